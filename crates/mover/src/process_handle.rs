//! Checks that a process is still the one of the plan.
//!
//! A pidfd never refers to another process, but it survives execve(2), which replaces the memory behind the same id.
//! An open page map does not: it refers to the old address space, and reads as empty once that is gone (see
//! kernel-notes.md). If a vfork child keeps the old address space alive, the start time and the addresses of the
//! program's code, stack and arguments reveal the change.

use std::fs::File;
use std::os::unix::fs::FileExt;

use hugeleaf_host::Root;
use hugeleaf_sys::{Errno, Kernel, Pid, PidFd, SysError};

use crate::outcome::TargetLoss;
use crate::process_memory::ProcessIdentity;

/// One process, permanently distinguished from every other. `fd` and then `pagemap` are opened before the process is
/// read.
pub(crate) struct ProcessHandle {
    pub(crate) fd: PidFd,
    pub(crate) pagemap: File,
    pub(crate) who: ProcessIdentity,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum IdentityCheckError {
    Ended(TargetLoss),
    Unsure(Errno),
}

impl ProcessHandle {
    pub(crate) fn pid(&self) -> Pid {
        self.fd.pid()
    }

    pub(crate) fn check(&self, kernel: &Kernel, root: &Root) -> Result<(), IdentityCheckError> {
        match kernel.has_exited(&self.fd) {
            Ok(false) => {}
            Ok(true) => return Err(IdentityCheckError::Ended(TargetLoss::Exited)),
            Err(SysError {
                errno: Errno::SRCH, ..
            }) => return Err(IdentityCheckError::Ended(TargetLoss::Exited)),
            Err(e) => return Err(IdentityCheckError::Unsure(e.errno)),
        }
        match self.pagemap.read_at(&mut [0; 8], 0) {
            Ok(8) => {}
            Ok(_) => return Err(IdentityCheckError::Ended(self.how_it_ended(kernel, root))),
            Err(e) => {
                let errno = Errno::from_io_error(&e).unwrap_or(Errno::IO);
                return Err(IdentityCheckError::Unsure(errno));
            }
        }
        match ProcessIdentity::of(root, self.pid()) {
            Ok(now) if now == self.who => Ok(()),
            Ok(now) if now.is_same_process(&self.who) => {
                Err(IdentityCheckError::Ended(ended_by(&now)))
            }
            _ => Err(IdentityCheckError::Ended(TargetLoss::Exited)),
        }
    }

    /// Returns why the address space is gone: the process exited, or it runs another program.
    fn how_it_ended(&self, kernel: &Kernel, root: &Root) -> TargetLoss {
        match (
            kernel.has_exited(&self.fd),
            ProcessIdentity::of(root, self.pid()),
        ) {
            (Ok(false), Ok(now)) => ended_by(&now),
            _ => TargetLoss::Exited,
        }
    }
}

/// Determines how a process ended from the addresses that it shows now. A process that is being killed gives up its
/// memory before it exits, and shows no address (`do_task_stat`, fs/proc/array.c).
const fn ended_by(now: &ProcessIdentity) -> TargetLoss {
    match now.has_addresses() {
        false => TargetLoss::Exited,
        true => TargetLoss::Replaced,
    }
}
