//! Determines the capabilities that a refused call needs.

use hugeleaf_host::process::proc_parsers::own_capabilities;
use hugeleaf_host::{ProcessError, Root};
use hugeleaf_sys::{Errno, Kernel, Pid, PidFd, SysError};

use crate::precondition::PreconditionError;

/// A capability: its setcap(8) name and its bit in `CapEff` (linux/capability.h).
type Capability = (&'static str, u32);

const DAC_READ_SEARCH: Capability = ("cap_dac_read_search", 2);
const SYS_PTRACE: Capability = ("cap_sys_ptrace", 19);
const SYS_NICE: Capability = ("cap_sys_nice", 23);

/// Returns the capabilities for acting on a process. Found by tests: for the same user only
/// CAP_SYS_NICE. For another user also CAP_SYS_PTRACE for its memory, and CAP_DAC_READ_SEARCH for
/// `/proc/PID/pagemap`, which only its owner may open.
const fn needed(same_user: bool) -> &'static [Capability] {
    match same_user {
        true => &[SYS_NICE],
        false => &[SYS_NICE, SYS_PTRACE, DAC_READ_SEARCH],
    }
}

/// Asks the kernel for permission, with a call on an empty range.
#[expect(
    clippy::disallowed_methods,
    reason = "advice on no range, to learn whether it is permitted"
)]
pub(crate) fn probe(
    kernel: &Kernel,
    root: &Root,
    process: &PidFd,
    uid: u32,
    advice: hugeleaf_sys::Advice,
) -> Result<(), PreconditionError> {
    match kernel.process_madvise(process, &[], advice) {
        Err(error) if is_denied(error.errno) => Err(denied(root, process.pid(), uid, error)),
        Err(error) if error.errno == Errno::NOSYS => Err(PreconditionError::NoProcessMadvise),
        // Other errors concern memory, and the real calls will report them.
        _ => Ok(()),
    }
}

pub(crate) fn is_denied(errno: Errno) -> bool {
    errno == Errno::PERM || errno == Errno::ACCESS
}

pub(crate) fn denied(root: &Root, pid: Pid, uid: u32, error: SysError) -> PreconditionError {
    let own_uid = hugeleaf_sys::effective_uid();
    // If they cannot be read, all needed capabilities are named.
    let held = own_capabilities(root).unwrap_or(0);
    // The error tells the two apart: EACCES is the right to read by ptrace. Attaching needs that
    // right even for the same user, if Yama requires it.
    let ptrace = error.errno == Errno::ACCESS || error.call == "ptrace";
    let same_user = own_uid == uid && !ptrace;
    let missing = needed(same_user)
        .iter()
        .filter(|(_, bit)| held >> bit & 1 == 0);
    PreconditionError::Denied {
        pid,
        uid,
        own_uid,
        error,
        missing: missing.map(|(name, _)| *name).collect(),
    }
}

pub(crate) fn unread(root: &Root, error: ProcessError) -> PreconditionError {
    match error {
        ProcessError::Denied {
            pid, uid, error, ..
        } => {
            let file = error.path.display().to_string();
            denied(root, pid, uid, SysError::new("open", file, Errno::ACCESS))
        }
        other => PreconditionError::Process(other),
    }
}
