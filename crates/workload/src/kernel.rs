use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use hugeleaf_sys::{
    Advice, Kernel, PageMap, Pid, PidFd, RealKernel, ScanDetail, SplitFile, SysError,
};
use hugeleaf_units::{Bytes, PageSize, Range};

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
    fn base_page(&self) -> PageSize {
        self.kernel.base_page()
    }

    fn pidfd_open(&self, pid: Pid) -> Result<PidFd, SysError> {
        self.kernel.pidfd_open(pid)
    }

    fn has_exited(&self, process: &PidFd) -> Result<bool, SysError> {
        self.kernel.has_exited(process)
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

    fn page_map(
        &self,
        pagemap: &File,
        range: Range,
        detail: ScanDetail,
    ) -> Result<PageMap, SysError> {
        self.kernel.page_map(pagemap, range, detail)
    }

    fn switch_thp_on(&self, process: &PidFd) -> Result<(), SysError> {
        self.kernel.switch_thp_on(process)
    }

    fn open_split(&self, path: Option<&Path>) -> Result<SplitFile, SysError> {
        self.kernel.open_split(path)
    }

    fn split(&self, file: &SplitFile, process: &PidFd, range: Range) -> Result<(), SysError> {
        self.kernel.split(file, process, range)
    }

    fn map_in(&self, process: &PidFd, range: Range) -> Result<Bytes, SysError> {
        self.kernel.map_in(process, range)
    }

    fn populate(&self, process: &PidFd, ranges: &[Range]) -> Result<(), SysError> {
        self.kernel.populate(process, ranges)
    }

    fn knows_collapse(&self) -> bool {
        self.kernel.knows_collapse()
    }

    fn knows_process_madvise(&self) -> bool {
        // The workload uses madvise(2), which every kernel has.
        true
    }

    fn now(&self) -> Duration {
        self.kernel.now()
    }

    fn sleep(&self, time: Duration) {
        self.kernel.sleep(time);
    }
}
