use std::sync::Arc;

use hugeleaf_sys::{Errno, GateReply, ProcessCall, SyscallGate};

use crate::control_client::ControlClient;

/// Lets the workload advise its own memory, which needs no privilege; process_madvise(2) needs CAP_SYS_NICE. All other calls, and calls on
/// other processes, go to the kernel. Promotion and proof therefore treat the workload like any other process.
#[derive(Debug)]
pub(crate) struct SelfAdvice(pub(crate) Arc<ControlClient>);

impl SyscallGate for SelfAdvice {
    fn process(&self, call: ProcessCall<'_>) -> Result<Option<GateReply>, Errno> {
        match call {
            ProcessCall::Madvise(process, ranges, advice) if process.pid() == self.0.pid() => {
                let bytes = self.0.advise(ranges, advice).map_err(|e| e.errno)?;
                Ok(Some(GateReply::Bytes(bytes)))
            }
            // The workload uses madvise(2), which every kernel has.
            ProcessCall::KnowsProcessMadvise => Ok(Some(GateReply::Done)),
            _ => Ok(None),
        }
    }
}
