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

use crate::outcome::Ended;

/// One process, distinguished from every other for good.
pub(crate) struct Identity {
    pub(crate) fd: PidFd,
    pub(crate) pagemap: File,
    start_ticks: u64,
    image: [u64; 4],
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
            start_ticks: process.start_ticks,
            image: process.image,
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
        let Ok((start_ticks, image)) = hugeleaf_host::process::identity(root, self.pid()) else {
            return Err(Lost::Ended(Ended::Exited));
        };
        if start_ticks != self.start_ticks {
            return Err(Lost::Ended(Ended::Exited));
        }
        if image != self.image {
            return Err(Lost::Ended(ended_by(image)));
        }
        Ok(())
    }

    /// Its address space is gone: it exited, or it is there and runs another program.
    fn how_it_ended(&self, kernel: &Kernel, root: &Root) -> Ended {
        match (
            kernel.has_exited(&self.fd),
            hugeleaf_host::process::identity(root, self.pid()),
        ) {
            (Ok(false), Ok((_, image))) => ended_by(image),
            _ => Ended::Exited,
        }
    }
}

/// What the addresses in place of those that were planned for tell: a process that is being killed has given its memory
/// up before it has exited, and shows no address (`do_task_stat`, fs/proc/array.c).
const fn ended_by(image: [u64; 4]) -> Ended {
    match image {
        [0, ..] => Ended::Exited,
        _ => Ended::Replaced,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_is_killed_did_not_become_another_program() {
        assert_eq!(ended_by([0; 4]), Ended::Exited);
        assert_eq!(ended_by([0x40_0000, 0x40_1000, 1, 2]), Ended::Replaced);
        // What the kernel shows to who may not see addresses.
        assert_eq!(ended_by([1, 1, 0, 0]), Ended::Replaced);
    }
}
