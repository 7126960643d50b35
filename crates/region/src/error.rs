//! Why memory was unavailable.

use hugeleaf_host::ReadError;
use hugeleaf_sys::{Errno, SysError};
use hugeleaf_units::{Bytes, Ladder, PageSize};

use crate::extent::Why;

/// Memory that was asked for and is unavailable; nothing of it is left behind.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MemoryError {
    /// A length of 0.
    #[error("a length of 0")]
    Empty,
    /// A length that no page size of the ladder allows.
    #[error("{length} is no multiple of {page}")]
    NotAMultiple {
        /// The length.
        length: Bytes,
        /// The page size.
        page: PageSize,
    },
    /// More than there is.
    #[error("{asked} asked, {available} available ({limited_by})")]
    TooLarge {
        /// What was asked for.
        asked: Bytes,
        /// What was available.
        available: Bytes,
        /// What limits it.
        limited_by: String,
    },
    /// A ladder whose sizes grow: extents are laid out largest first.
    #[error("the sizes of '{0}' grow: a ladder goes from large to small")]
    Unordered(Ladder),
    /// A mandatory ladder of which this host has no size.
    #[error("this host has no page size of '{0}'")]
    NoSuchSize(Ladder),
    /// A mandatory ladder that was unavailable for all of it.
    #[error("{missing} of {asked} unavailable on '{ladder}': {why}")]
    Short {
        /// The ladder.
        ladder: Ladder,
        /// What was asked for.
        asked: Bytes,
        /// How much of it was unavailable.
        missing: Bytes,
        /// Why.
        why: Why,
    },
    /// More than this process may lock.
    #[error("{asked} to lock, the limit is {limit} (RLIMIT_MEMLOCK)")]
    MemlockLimit {
        /// What was to be locked.
        asked: Bytes,
        /// The limit.
        limit: Bytes,
    },
    /// A policy that names a node which is not there or has no memory.
    #[error("this host has no memory on node {node}")]
    NoSuchNode {
        /// The node.
        node: u32,
    },
    /// A policy that names no node.
    #[error("the policy names no node")]
    NoNodes,
    /// The memory of a process that forked this one, and which children do not get.
    #[error("the memory stayed with the process that forked this one")]
    Elsewhere,
    /// A handle that is none, is of another version, or does not hold what it says.
    #[error("not a handle of this library: {0}")]
    BadHandle(String),
    /// Private memory cannot be handed to other processes.
    #[error("the memory is private to this process")]
    NotShared,
    /// A system call.
    #[error("{0}")]
    Sys(#[from] SysError),
    /// The host could not be read.
    #[error("{0}")]
    Unreadable(#[from] ReadError),
}

impl MemoryError {
    /// What to do next: a command, or what to ask for instead.
    pub fn next(&self) -> String {
        use MemoryError as E;
        let text = match self {
            E::Empty => "ask for at least one page",
            E::NotAMultiple { page, .. } => return format!("ask for a multiple of {page}"),
            E::TooLarge { available, .. } => {
                return format!("ask for at most {available}, or free memory: hugeleaf mem");
            }
            E::Unordered(_) => "write the sizes from large to small, as in 1G,2M",
            E::NoSuchSize(_) => "hugeleaf status    # the sizes that there are",
            E::Short { why, .. } => return why.next(),
            E::MemlockLimit { asked, .. } => {
                let (kib, bytes) = (asked.get().div_ceil(1024), asked.get());
                return format!("raise it: ulimit -l {kib}, or LimitMEMLOCK={bytes} in the unit");
            }
            E::NoSuchNode { .. } | E::NoNodes => "hugeleaf status    # the nodes that there are",
            E::Elsewhere => "use it in the process that made it, or make it with Sharing::Shared",
            E::BadHandle(_) => "attach with the library that made it, while its maker lives",
            E::NotShared => "make it with Sharing::Shared",
            E::Sys(error) => after(error),
            E::Unreadable(_) => "hugeleaf status    # limits and pools",
        };
        text.to_owned()
    }
}

/// Once more where a signal came in between and nothing was done (signal(7)).
pub(crate) fn again<T>(mut call: impl FnMut() -> Result<T, SysError>) -> Result<T, SysError> {
    loop {
        match call() {
            Err(error) if error.errno == Errno::INTR => {}
            done => return done,
        }
    }
}

/// What to do after a system call that failed: most name a limit of the process, which no host-wide
/// command shows.
fn after(error: &SysError) -> &'static str {
    match error.errno {
        Errno::MFILE => "raise its limit of descriptors: ulimit -n, LimitNOFILE= in the unit",
        Errno::NFILE => "raise the host's limit of files: sysctl fs.file-max",
        Errno::NOMEM if error.call == "mmap" => {
            "ask for less, or raise ulimit -v, vm.max_map_count or vm.overcommit_ratio"
        }
        Errno::AGAIN | Errno::INTR => "try again",
        Errno::PIPE | Errno::CONNRESET | Errno::NOTCONN => "the other side has gone: connect again",
        Errno::BADF | Errno::NOTSOCK => "give it a connected Unix stream socket",
        Errno::HWPOISON => "memory of this host is broken: dmesg | grep -i poison",
        _ => "hugeleaf status    # limits and pools",
    }
}
