//! Errors of memory requests.

use hugeleaf_host::ReadError;
use hugeleaf_sys::{Errno, SysError};
use hugeleaf_units::{Bytes, Ladder, PageSize};

use crate::extent::FallbackReason;

/// A failed memory request. A failed request leaves no memory behind.
///
/// ```
/// use hugeleaf::{Bytes, MemoryError, Region, RegionOptions};
///
/// // No host has pages of 1E, and the `!` allows no others.
/// let options = RegionOptions::new(Bytes::from_mib(4), "1E!".parse()?);
/// match Region::new(&options) {
///     Ok(region) => println!("{} ready", region.len()),
///     Err(MemoryError::Short { missing, why, .. }) => {
///         println!("{missing} missing: {why}\n  next: {}", why.next());
///     }
///     Err(error) => println!("{error}\n  next: {}", error.next()),
/// }
/// # assert!(matches!(Region::new(&options), Err(MemoryError::NoSuchSize(_))));
/// # Ok::<(), hugeleaf::ParseError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MemoryError {
    /// The length is 0.
    #[error("the length is 0")]
    Empty,
    /// The length is not a multiple of a page size that the ladder allows.
    #[error("{length:#} bytes is not a multiple of {page}")]
    NotAMultiple {
        /// The length.
        length: Bytes,
        /// The page size.
        page: PageSize,
    },
    /// The request exceeds the available memory.
    #[error("{asked} requested, {available} available ({limited_by})")]
    TooLarge {
        /// The requested size.
        asked: Bytes,
        /// The available size.
        available: Bytes,
        /// The limit that applies.
        limited_by: String,
    },
    /// The sizes of the ladder grow. Extents are laid out largest first.
    #[error("the sizes of '{0}' are not in descending order")]
    Unordered(Ladder),
    /// The ladder is mandatory and the host has none of its sizes.
    #[error("this host has no page size of '{0}'")]
    NoSuchSize(Ladder),
    /// The ladder is mandatory and could not be satisfied for the whole length.
    #[error("{missing} of {asked} unavailable on '{ladder}': {why}")]
    Short {
        /// The ladder.
        ladder: Ladder,
        /// The requested size.
        asked: Bytes,
        /// The part that was unavailable.
        missing: Bytes,
        /// The reason.
        why: FallbackReason,
    },
    /// The request exceeds the RLIMIT_MEMLOCK of this process.
    #[error("{asked} to lock exceed the limit of {limit} (RLIMIT_MEMLOCK)")]
    MemlockLimit {
        /// The size to lock.
        asked: Bytes,
        /// The limit.
        limit: Bytes,
    },
    /// The policy names a node that does not exist or has no memory.
    #[error("this host has no memory on node {node}")]
    NoSuchNode {
        /// The node.
        node: u32,
    },
    /// The policy names no node.
    #[error("the policy names no node")]
    NoNodes,
    /// The memory belongs to the process that forked this one, and children do not inherit it.
    #[error("the memory belongs to the process that forked this one")]
    NotInherited,
    /// The handle is malformed, has another version, or describes other files than it carries.
    #[error("not a handle of this library: {0}")]
    BadHandle(String),
    /// Private memory cannot be handed to other processes.
    #[error("the memory is private to this process")]
    NotShared,
    /// A system call failed.
    #[error("{0}")]
    Sys(#[from] SysError),
    /// The host could not be read.
    #[error("{0}")]
    Unreadable(#[from] ReadError),
}

impl MemoryError {
    /// Returns the next action: a command, or a different request.
    pub fn next(&self) -> String {
        use MemoryError as E;
        let text = match self {
            E::Empty => "request at least one page",
            E::NotAMultiple { page, .. } => return format!("request a multiple of {page}"),
            E::TooLarge { available, .. } => {
                return format!("request at most {available}, or free memory: hugeleaf mem");
            }
            E::Unordered(_) => "write the sizes from large to small, as in 1G,2M",
            E::NoSuchSize(_) => "hugeleaf status    # lists the page sizes",
            E::Short { why, .. } => return why.next(),
            E::MemlockLimit { asked, .. } => {
                let (kib, bytes) = (asked.get().div_ceil(1024), asked.get());
                return format!(
                    "raise the limit: ulimit -l {kib}, or LimitMEMLOCK={bytes} in the unit"
                );
            }
            E::NoSuchNode { .. } | E::NoNodes => "hugeleaf status    # lists the nodes",
            E::NotInherited => "use it in its own process, or create it as Sharing::Shared",
            E::BadHandle(_) => "attach with the same library version, while its creator runs",
            E::NotShared => "create it as Sharing::Shared",
            E::Sys(error) => remedy_of(error),
            E::Unreadable(_) => "hugeleaf status    # limits and pools",
        };
        text.to_owned()
    }
}

/// Repeats a call that a signal interrupted before it had any effect (signal(7)).
pub(crate) fn again<T>(mut call: impl FnMut() -> Result<T, SysError>) -> Result<T, SysError> {
    loop {
        match call() {
            Err(error) if error.errno == Errno::INTR => {}
            done => return done,
        }
    }
}

/// Returns the action for a failed system call. Most errors name a limit of the process, which no
/// host-wide command shows.
fn remedy_of(error: &SysError) -> &'static str {
    match error.errno {
        Errno::MFILE => "raise the limit of open files: ulimit -n, LimitNOFILE= in the unit",
        Errno::NFILE => "raise the host's limit of open files: sysctl fs.file-max",
        Errno::NOMEM if error.call == "mmap" => {
            "request less, or raise ulimit -v, vm.max_map_count or vm.overcommit_ratio"
        }
        Errno::AGAIN | Errno::INTR => "try again",
        Errno::PIPE | Errno::CONNRESET | Errno::NOTCONN => "closed by the peer: connect again",
        Errno::BADF | Errno::NOTSOCK => "pass a connected Unix stream socket",
        Errno::HWPOISON => "the host has faulty memory: dmesg | grep -i poison",
        _ => "hugeleaf status    # limits and pools",
    }
}
