//! A kernel whose chosen calls fail with a chosen errno.

use std::sync::{Arc, Mutex};

use hugeleaf_sys::{Advice, Errno, GateReply, Kernel, ProcessCall, SyscallGate};

/// The calls that can be made to fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Call {
    PidfdOpen,
    HasExited,
    ProcessMadvise(Advice),
    PageMap,
    SwitchThpOn,
    Split,
    MapIn,
    Populate,
    Fetch,
    Drain,
    KnowsCollapse,
    KnowsProcessMadvise,
}

impl Call {
    fn of(call: ProcessCall<'_>) -> Option<Call> {
        Some(match call {
            ProcessCall::PidfdOpen(_) => Call::PidfdOpen,
            ProcessCall::HasExited(_) => Call::HasExited,
            ProcessCall::Madvise(_, _, advice) => Call::ProcessMadvise(advice),
            ProcessCall::PageMap(..) => Call::PageMap,
            ProcessCall::SwitchThpOn(_) => Call::SwitchThpOn,
            ProcessCall::Split(..) => Call::Split,
            ProcessCall::MapIn(..) => Call::MapIn,
            ProcessCall::Populate(..) => Call::Populate,
            ProcessCall::Fetch(..) => Call::Fetch,
            ProcessCall::Drain(_) => Call::Drain,
            ProcessCall::KnowsCollapse => Call::KnowsCollapse,
            ProcessCall::KnowsProcessMadvise => Call::KnowsProcessMadvise,
            _ => return None,
        })
    }
}

/// The failing call, and its error.
#[derive(Debug, Clone, Copy)]
pub struct Fault {
    pub call: Call,
    /// Number of calls that pass before the first failure.
    pub after: u64,
    /// Number of failing calls; `u64::MAX` for all.
    pub times: u64,
    pub errno: Errno,
}

#[derive(Debug)]
struct Faulty {
    faults: Mutex<Vec<(Fault, u64)>>,
    /// Gate for calls without a due fault.
    then: Option<Arc<dyn SyscallGate>>,
}

impl SyscallGate for Faulty {
    fn process(&self, call: ProcessCall<'_>) -> Result<Option<GateReply>, Errno> {
        let name = Call::of(call);
        let mut faults = self.faults.lock().unwrap();
        for (fault, seen) in faults.iter_mut().filter(|(f, _)| Some(f.call) == name) {
            *seen += 1;
            if *seen > fault.after && *seen - fault.after <= fault.times {
                return Err(fault.errno);
            }
        }
        drop(faults);
        self.then
            .as_ref()
            .map_or(Ok(None), |then| then.process(call))
    }
}

/// Returns this host's kernel behind `then`, with one fault.
pub fn faulty(fault: Fault, then: Option<Arc<dyn SyscallGate>>) -> Kernel {
    Kernel::behind(Arc::new(Faulty {
        faults: Mutex::new(vec![(fault, 0)]),
        then,
    }))
}

/// Returns this host's kernel with one failing call.
pub fn failing(call: Call, errno: Errno, after: u64, times: u64) -> Kernel {
    let fault = Fault {
        call,
        after,
        times,
        errno,
    };
    faulty(fault, None)
}

#[test]
fn fails_the_ordered_calls_only() {
    let kernel = failing(Call::PidfdOpen, Errno::MFILE, 1, 1);
    let own = hugeleaf_sys::own_pid();
    assert!(kernel.pidfd_open(own).is_ok());
    assert_eq!(kernel.pidfd_open(own).unwrap_err().errno, Errno::MFILE);
    let fd = kernel.pidfd_open(own).unwrap();
    assert!(!kernel.has_exited(&fd).unwrap());
}
