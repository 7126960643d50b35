//! Whether a process is still the one that was planned for.
//!
//! A pidfd never comes to mean another process, but it outlives execve(2), which replaces the
//! memory behind the same id. An open page map does not: it holds the old address space, and reads
//! as empty once that is gone (see kernel-notes.md). Where a vfork child keeps the old address
//! space alive, the start time and the place of the program's code, stack and arguments tell.

use std::fs::File;
use std::os::unix::fs::FileExt;

use hugeleaf_host::{Process, Root};
use hugeleaf_sys::{Errno, Kernel, Pid, PidFd, SysError};

use crate::memory::Who;
use crate::outcome::Ended;

/// One process, distinguished from every other for good.
pub(crate) struct Identity {
    pub(crate) fd: PidFd,
    pub(crate) pagemap: File,
    pub(crate) who: Who,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lost {
    Ended(Ended),
    Unsure(Errno),
}

impl Identity {
    /// The process behind `fd`, as it was read after `fd` and then `pagemap` were opened.
    pub(crate) fn new(fd: PidFd, pagemap: File, process: &Process) -> Identity {
        Identity {
            fd,
            pagemap,
            who: Who::from(process),
        }
    }

    pub(crate) fn pid(&self) -> Pid {
        self.fd.pid()
    }

    pub(crate) fn check(&self, kernel: &Kernel, root: &Root) -> Result<(), Lost> {
        match kernel.has_exited(&self.fd) {
            Ok(false) => {}
            Ok(true) => return Err(Lost::Ended(Ended::Exited)),
            Err(SysError {
                errno: Errno::SRCH, ..
            }) => return Err(Lost::Ended(Ended::Exited)),
            Err(e) => return Err(Lost::Unsure(e.errno)),
        }
        match self.pagemap.read_at(&mut [0; 8], 0) {
            Ok(8) => {}
            Ok(_) => return Err(Lost::Ended(self.how_it_ended(kernel, root))),
            Err(e) => {
                let errno = Errno::from_io_error(&e).unwrap_or(Errno::IO);
                return Err(Lost::Unsure(errno));
            }
        }
        match Who::of(root, self.pid()) {
            Ok(now) if now == self.who => Ok(()),
            Ok(now) if now.is_same_process(&self.who) => Err(Lost::Ended(ended_by(&now))),
            _ => Err(Lost::Ended(Ended::Exited)),
        }
    }

    /// Its address space is gone: it exited, or it is there and runs another program.
    fn how_it_ended(&self, kernel: &Kernel, root: &Root) -> Ended {
        match (kernel.has_exited(&self.fd), Who::of(root, self.pid())) {
            (Ok(false), Ok(now)) => ended_by(&now),
            _ => Ended::Exited,
        }
    }
}

/// Tells how a process ended by the addresses that it shows now: a process that is being killed has given its memory
/// up before it has exited, and shows no address (`do_task_stat`, fs/proc/array.c).
const fn ended_by(now: &Who) -> Ended {
    match now.has_addresses() {
        false => Ended::Exited,
        true => Ended::Replaced,
    }
}
