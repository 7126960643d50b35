//! Reasons why a change could not begin.

use hugeleaf_host::{ProcessError, ReadError};
use hugeleaf_sys::{Pid, SysError};

/// A missing precondition of a change. Nothing was changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PreconditionError {
    #[error("no process to work on")]
    NoTarget,
    #[error("{0}")]
    Process(#[from] ProcessError),
    #[error("this kernel has no process_madvise(2)")]
    NoProcessMadvise,
    #[error("this kernel has no process_madvise(MADV_COLLAPSE)")]
    NoCollapse,
    #[error("this kernel has no pidfd_open(2)")]
    NoPidfd,
    #[error("this kernel has no transparent huge pages")]
    NoThp,
    #[error("{0}")]
    Unreadable(ReadError),
    #[error("{error}: process {pid} of uid {uid}")]
    Denied {
        pid: Pid,
        uid: u32,
        own_uid: u32,
        error: SysError,
        /// Missing capabilities that would allow it, by their setcap(8) names.
        missing: Vec<&'static str>,
    },
    /// The process filters its system calls (seccomp(2)). A call that it does not make itself could
    /// kill it.
    #[error(
        "process {pid} filters its system calls (seccomp mode {mode}): the call that switches THP on \
         could kill it, and was not made"
    )]
    Filtered {
        pid: Pid,
        /// `Seccomp` of its status: 1 is strict mode, 2 a filter.
        mode: u32,
    },
    #[error("{0}")]
    Sys(#[from] SysError),
}

impl PreconditionError {
    /// True if the process had ended, so that nothing is left to do on it.
    pub const fn is_end(&self) -> bool {
        use ProcessError::{Gone, Zombie};
        matches!(
            self,
            PreconditionError::Process(Gone { .. } | Zombie { .. })
        )
    }
}
