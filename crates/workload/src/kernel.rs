use std::sync::Arc;

use hugeleaf_sys::{Advice, Kernel, PidFd, RealKernel, SysError};
use hugeleaf_units::{Bytes, Range};

use crate::client::Client;

/// The kernel, but for one thing: the workload is asked to advise on its memory itself, which
/// needs no privilege where process_madvise(2) asks for CAP_SYS_NICE. All other calls, and all
/// other processes, go to the kernel. So promotion and proof run on it as on any process.
#[derive(Debug)]
pub struct RemoteKernel {
    kernel: RealKernel,
    client: Arc<Client>,
}

impl RemoteKernel {
    /// Stands between the engines and the workload behind `client`.
    pub fn new(client: Arc<Client>) -> RemoteKernel {
        RemoteKernel {
            kernel: RealKernel::new(),
            client,
        }
    }
}

impl Kernel for RemoteKernel {
    fn inner(&self) -> &dyn Kernel {
        &self.kernel
    }

    fn process_madvise(
        &self,
        process: &PidFd,
        ranges: &[Range],
        advice: Advice,
    ) -> Result<Bytes, SysError> {
        if process.pid() == self.client.pid() {
            self.client.advise(ranges, advice)
        } else {
            self.kernel.process_madvise(process, ranges, advice)
        }
    }

    fn knows_process_madvise(&self) -> bool {
        // The workload uses madvise(2), which every kernel has.
        true
    }
}
