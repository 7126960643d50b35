use std::fmt;

pub use rustix::io::Errno;

/// A failed system call, with its object and the kernel's error.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct SysError {
    /// The call by its manual page's name, such as `process_madvise(MADV_COLLAPSE)`.
    pub call: &'static str,
    /// Object of the call: a PID, a range or a path. Empty if the call needs none.
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

/// Returns the error of this thread's last call. Use it right after a call without a safe wrapper.
pub fn last_errno() -> Errno {
    errno_of(&std::io::Error::last_os_error())
}

/// Returns the kernel's error in a standard library error, or EIO if it has none.
pub fn errno_of(e: &std::io::Error) -> Errno {
    Errno::from_io_error(e).unwrap_or(Errno::IO)
}
