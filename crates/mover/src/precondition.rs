//! Reasons why a change could not begin.

use hugeleaf_host::{ProcessError, ReadError, TargetError};
use hugeleaf_sys::{Pid, SysError, setcap_advice};
use hugeleaf_units::Failure;

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

impl From<PreconditionError> for Failure {
    fn from(error: PreconditionError) -> Failure {
        let text = error.to_string();
        let kernel = |what: &str| Failure::missing(text.clone(), what);
        match error {
            PreconditionError::NoTarget => {
                Failure::usage(text, "hugeleaf mem    # lists the processes")
            }
            PreconditionError::Process(error) => TargetError::from(error).into(),
            PreconditionError::Unreadable(error) => Failure::from(error),
            PreconditionError::NoProcessMadvise => {
                kernel("run Linux 5.10 or newer; 6.1 to promote")
            }
            PreconditionError::NoPidfd => kernel("run Linux 5.10 or newer; 6.1 to promote"),
            PreconditionError::NoCollapse => kernel(
                "run Linux 6.1 or newer, or configure huge pages in the server and restart it: \
                 hugeleaf why",
            ),
            PreconditionError::NoThp => kernel("run a kernel with CONFIG_TRANSPARENT_HUGEPAGE=y"),
            PreconditionError::Denied {
                uid,
                own_uid,
                missing,
                ..
            } => denied(&text, uid, own_uid, &missing),
            PreconditionError::Filtered { .. } => kernel(
                "omit --switch-thp-on, or start the program without disabling THP; in a unit: its \
                 own SystemCallFilter=, or none",
            ),
            PreconditionError::Sys(_) => kernel("try again; if it fails again: hugeleaf status"),
        }
    }
}

/// Names the missing capabilities and the command that grants them to this binary alone.
fn denied(text: &str, uid: u32, own_uid: u32, missing: &[&str]) -> Failure {
    if missing.is_empty() {
        return Failure::missing(
            format!("{text} (hugeleaf has all capabilities that this takes)"),
            "run it on the host itself, outside containers and user namespaces, as root",
        );
    }
    let list = missing.join(",");
    let whose = if uid == own_uid {
        ""
    } else {
        " of another user"
    };
    Failure::missing(
        format!("{text}{whose}; missing: {list}"),
        format!("run as root, or: sudo {}", setcap_advice(missing)),
    )
}
