//! Processes, and the facts about this host that only a system call returns.
#![allow(unsafe_code)]
//! # Safety
//! `klogctl` has no safe wrapper in any library used here; it writes into a buffer whose real
//! length is passed with it. `sysconf` takes and returns integers.

use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};

use rustix::event::{PollFd, PollFlags};
use rustix::process::PidfdFlags;
use serde::{Deserialize, Serialize};

use crate::{Errno, SysError, last_errno};

/// A process id in the PID namespace of this process. No process has id 0.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Pid(pub u32);

impl std::fmt::Display for Pid {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(&self.0, f)
    }
}

/// A handle on one process. It never refers to another process (pidfd_open(2)).
#[derive(Debug)]
pub struct PidFd {
    pid: Pid,
    fd: OwnedFd,
}

impl PidFd {
    pub(crate) fn open(pid: Pid) -> Result<PidFd, SysError> {
        let fail = |errno| SysError::new("pidfd_open", pid.to_string(), errno);
        let raw = i32::try_from(pid.0)
            .ok()
            .and_then(rustix::process::Pid::from_raw)
            .ok_or_else(|| fail(Errno::SRCH))?;
        let fd = rustix::process::pidfd_open(raw, PidfdFlags::empty()).map_err(fail)?;
        Ok(PidFd { pid, fd })
    }

    /// Makes a handle of a descriptor that already is a pidfd. For tests that replace the kernel.
    pub fn from_fd(pid: Pid, fd: OwnedFd) -> PidFd {
        PidFd { pid, fd }
    }

    #[cfg(target_arch = "x86_64")]
    pub(crate) fn try_clone(&self) -> Result<PidFd, SysError> {
        let fail = |e: std::io::Error| {
            let subject = format!("of pidfd {}", self.pid);
            SysError::new("dup", subject, crate::errno_of(&e))
        };
        Ok(PidFd {
            pid: self.pid,
            fd: self.fd.try_clone().map_err(fail)?,
        })
    }

    /// Returns the process's id at the time the handle was opened.
    pub const fn pid(&self) -> Pid {
        self.pid
    }

    /// Returns the descriptor's number, which is also the name of its file in `/proc/self/fdinfo`.
    pub fn number(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    pub(crate) fn has_exited(&self) -> Result<bool, SysError> {
        let fd = self.fd.as_fd();
        let mut polled = [PollFd::new(&fd, PollFlags::IN)];
        let now = rustix::event::Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        rustix::event::poll(&mut polled, Some(&now))
            .map_err(|errno| SysError::new("poll", format!("of pidfd {}", self.pid), errno))?;
        Ok(polled[0]
            .revents()
            .intersects(PollFlags::IN | PollFlags::HUP))
    }
}

pub fn own_pid() -> Pid {
    Pid(std::process::id())
}

/// Returns the effective user of this process (geteuid(2)).
pub fn effective_uid() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Returns the architecture by the kernel's name (uname(2)), such as `x86_64` or `aarch64`.
pub fn machine() -> String {
    rustix::system::uname()
        .machine()
        .to_string_lossy()
        .into_owned()
}

/// Returns the clock ticks per second (sysconf(3), _SC_CLK_TCK), the unit of times in
/// `/proc/PID/stat`.
pub fn ticks_per_second() -> u64 {
    rustix::param::clock_ticks_per_second()
}

/// Maximum number of bytes read. The ring buffer grows with the number of processors.
const MOST_OF_LOG: i32 = 512 << 10;

/// Returns the last 512K of the kernel's log (syslog(2), SYSLOG_ACTION_READ_ALL).
/// Consumes no message.
///
/// # Errors
/// EPERM if `kernel.dmesg_restrict` is set and CAP_SYSLOG is missing. ENOSYS without printk.
pub fn kernel_log() -> Result<String, SysError> {
    const READ_ALL: i32 = 3;
    const SIZE_BUFFER: i32 = 10;
    let fail = || SysError::new("syslog", "", last_errno());
    // SAFETY: action 10 takes no buffer.
    let size = unsafe { libc::klogctl(SIZE_BUFFER, std::ptr::null_mut(), 0) };
    let size = size.min(MOST_OF_LOG);
    let mut buffer = vec![0u8; usize::try_from(size).map_err(|_| fail())?];
    // SAFETY: the kernel writes at most `size` bytes, which is the buffer's length.
    let got = unsafe { libc::klogctl(READ_ALL, buffer.as_mut_ptr().cast(), size) };
    buffer.truncate(usize::try_from(got).map_err(|_| fail())?);
    // Only a log with invalid UTF-8 is copied.
    Ok(String::from_utf8(buffer)
        .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()))
}

/// O_DIRECT, as in the flags of `/proc/PID/fdinfo/N`.
pub const DIRECT_FLAG: u32 = libc::O_DIRECT.cast_unsigned();

/// O_NOFOLLOW: opening a symbolic link is an error.
pub const NOFOLLOW_FLAG: i32 = libc::O_NOFOLLOW;

/// Returns the columns of the terminal on standard output, or `None` if it is not a terminal.
pub fn terminal_columns() -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(rustix::stdio::stdout()).ok()?;
    Some(usize::from(size.ws_col)).filter(|columns| *columns > 0)
}
