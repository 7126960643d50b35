//! Reasons why shared huge pages cannot be split, and why zero pages are not restored.

use hugeleaf_sys::{Errno, SysError};

use crate::privilege;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum SplitRefusal {
    #[error("debugfs split_huge_pages: only root may open it")]
    NotRoot,
    #[error("debugfs split_huge_pages: refused even to root (kernel lockdown, or a container)")]
    Refused,
    /// The kernel has no debugfs, or runs with `debugfs=off`.
    #[error("debugfs split_huge_pages: this kernel has no debugfs")]
    NoDebugfs,
    /// Debugfs exists, but not the file in it.
    #[error("debugfs split_huge_pages: this kernel has no such file")]
    NoFile,
    /// `/proc` and the kernel's file number processes differently for this program, because the PID namespaces
    /// differ.
    #[error("debugfs split_huge_pages: /proc and this process are in different PID namespaces")]
    OtherNamespace,
    #[error("debugfs split_huge_pages: {0}")]
    Failed(Errno),
}

impl SplitRefusal {
    pub(crate) fn from_errno(errno: Errno) -> SplitRefusal {
        match errno {
            Errno::NOENT => SplitRefusal::NoFile,
            Errno::NODEV | Errno::NOSYS => SplitRefusal::NoDebugfs,
            errno if privilege::is_denied(errno) => match hugeleaf_sys::effective_uid() {
                0 => SplitRefusal::Refused,
                _ => SplitRefusal::NotRoot,
            },
            errno => SplitRefusal::Failed(errno),
        }
    }

    pub const fn remedy(self) -> Option<&'static str> {
        match self {
            SplitRefusal::NotRoot => Some("run as root"),
            SplitRefusal::Refused => Some(
                "run it outside containers, on a kernel that is not locked down: cat \
                 /sys/kernel/security/lockdown",
            ),
            SplitRefusal::NoDebugfs => Some("boot a kernel with debugfs, without debugfs=off"),
            SplitRefusal::OtherNamespace => Some("run it on the host itself, outside containers"),
            SplitRefusal::NoFile | SplitRefusal::Failed(_) => None,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ZeroRestoreError {
    /// No permission to attach to the process by ptrace.
    Denied,
    Pressure,
    Failed(Errno),
}

impl ZeroRestoreError {
    pub(crate) fn from_error(error: &SysError) -> ZeroRestoreError {
        match error.errno {
            errno if privilege::is_denied(errno) => ZeroRestoreError::Denied,
            errno => ZeroRestoreError::Failed(errno),
        }
    }
}
