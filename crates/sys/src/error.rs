use std::fmt;

pub use rustix::io::Errno;

/// A system call that failed: which one, on what, and the kernel's answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct SysError {
    /// The call as its manual page names it, as in `process_madvise(MADV_COLLAPSE)`.
    pub call: &'static str,
    /// What it was called on: a PID, a range, a path. Empty where the call says it all.
    pub subject: String,
    pub errno: Errno,
}

impl SysError {
    /// Describes a failure of `call` on `subject`.
    pub fn new(call: &'static str, subject: impl Into<String>, errno: Errno) -> SysError {
        SysError {
            call,
            subject: subject.into(),
            errno,
        }
    }
}

impl fmt::Display for SysError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.subject.is_empty() {
            write!(f, "{}: {}", self.call, self.errno)
        } else {
            write!(f, "{} {}: {}", self.call, self.subject, self.errno)
        }
    }
}

/// What the call that this thread made last was answered: right after one without a safe wrapper.
pub fn last_errno() -> Errno {
    errno_of(&std::io::Error::last_os_error())
}

/// The kernel's answer in an error of the standard library; EIO where it is none of the kernel's.
pub fn errno_of(e: &std::io::Error) -> Errno {
    Errno::from_io_error(e).unwrap_or(Errno::IO)
}
