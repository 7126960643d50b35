//! A kernel that fails on order, for tests of every error arm.

use std::fs::File;
use std::path::Path;
use std::sync::Mutex;

use hugeleaf_units::{Bytes, PageSize, Range};

use crate::{Advice, Errno, Kernel, PageMap, Pid, PidFd, ScanDetail, SplitFile, SysError};

/// The calls that can be made to fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Call {
    /// pidfd_open(2).
    PidfdOpen,
    /// poll(2) on a pidfd.
    HasExited,
    /// process_madvise(2) with this advice.
    ProcessMadvise(Advice),
    /// Reading a page map.
    PageMap,
    /// ptrace(2).
    SwitchThpOn,
    /// Opening the file that splits huge pages.
    OpenSplit,
    /// Writing to that file.
    Split,
    /// process_vm_readv(2).
    MapIn,
    /// process_vm_writev(2).
    Populate,
    /// Touching pages of this process's own.
    Fetch,
}

/// Which calls fail, and how.
#[derive(Debug, Clone, Copy)]
pub struct Fault {
    /// The call.
    pub call: Call,
    /// How many such calls pass before the first fails.
    pub after: u64,
    /// How many fail then; `u64::MAX` for all.
    pub times: u64,
    /// The answer.
    pub errno: Errno,
}

/// A kernel whose named calls fail; the others go to the kernel inside.
pub struct Faulty<K> {
    inner: K,
    faults: Mutex<Vec<(Fault, u64)>>,
    /// Whether MADV_COLLAPSE and process_madvise are known; false stands for an old kernel.
    pub knows_collapse: bool,
    /// As above.
    pub knows_process_madvise: bool,
}

impl<K: Kernel> Faulty<K> {
    /// `inner`, but for `faults`.
    pub fn new(inner: K, faults: Vec<Fault>) -> Faulty<K> {
        Faulty {
            knows_collapse: inner.knows_collapse(),
            knows_process_madvise: inner.knows_process_madvise(),
            inner,
            faults: Mutex::new(faults.into_iter().map(|f| (f, 0)).collect()),
        }
    }

    /// Counts the call, and fails it where that was ordered.
    fn check(&self, call: Call, name: &'static str) -> Result<(), SysError> {
        let mut faults = self
            .faults
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        for (fault, seen) in faults.iter_mut().filter(|(f, _)| f.call == call) {
            *seen += 1;
            if *seen > fault.after && *seen - fault.after <= fault.times {
                return Err(SysError::new(name, "(injected)", fault.errno));
            }
        }
        Ok(())
    }
}

impl<K: Kernel> Kernel for Faulty<K> {
    fn inner(&self) -> &dyn Kernel {
        &self.inner
    }

    fn pidfd_open(&self, pid: Pid) -> Result<PidFd, SysError> {
        self.check(Call::PidfdOpen, "pidfd_open")?;
        self.inner.pidfd_open(pid)
    }

    fn has_exited(&self, process: &PidFd) -> Result<bool, SysError> {
        self.check(Call::HasExited, "poll")?;
        self.inner.has_exited(process)
    }

    fn process_madvise(
        &self,
        process: &PidFd,
        ranges: &[Range],
        advice: Advice,
    ) -> Result<Bytes, SysError> {
        self.check(Call::ProcessMadvise(advice), advice.call_name())?;
        self.inner.process_madvise(process, ranges, advice)
    }

    fn page_map(
        &self,
        pagemap: &File,
        range: Range,
        detail: ScanDetail,
    ) -> Result<PageMap, SysError> {
        self.check(Call::PageMap, "read")?;
        self.inner.page_map(pagemap, range, detail)
    }

    fn switch_thp_on(&self, process: &PidFd) -> Result<(), SysError> {
        self.check(Call::SwitchThpOn, "ptrace")?;
        self.inner.switch_thp_on(process)
    }

    fn open_split(&self, path: Option<&Path>) -> Result<SplitFile, SysError> {
        self.check(Call::OpenSplit, "open")?;
        self.inner.open_split(path)
    }

    fn split(&self, file: &SplitFile, process: &PidFd, range: Range) -> Result<(), SysError> {
        self.check(Call::Split, "write")?;
        self.inner.split(file, process, range)
    }

    fn map_in(&self, process: &PidFd, range: Range) -> Result<Bytes, SysError> {
        self.check(Call::MapIn, "process_vm_readv")?;
        self.inner.map_in(process, range)
    }

    fn populate(&self, process: &PidFd, ranges: &[Range]) -> Result<(), SysError> {
        self.check(Call::Populate, "process_vm_writev")?;
        self.inner.populate(process, ranges)
    }

    fn fetch(&self, page: PageSize, pages: u64) -> Result<(), SysError> {
        self.check(Call::Fetch, "madvise")?;
        self.inner.fetch(page, pages)
    }

    fn knows_collapse(&self) -> bool {
        self.knows_collapse
    }

    fn knows_process_madvise(&self) -> bool {
        self.knows_process_madvise
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{RealKernel, own_pid};

    #[test]
    fn fails_the_ordered_calls_only() {
        let fault = Fault {
            call: Call::PidfdOpen,
            after: 1,
            times: 1,
            errno: Errno::MFILE,
        };
        let kernel = Faulty::new(RealKernel::new(), vec![fault]);
        assert!(kernel.pidfd_open(own_pid()).is_ok());
        assert_eq!(
            kernel.pidfd_open(own_pid()).unwrap_err().errno,
            Errno::MFILE
        );
        let fd = kernel.pidfd_open(own_pid()).unwrap();
        assert!(!kernel.has_exited(&fd).unwrap());
    }
}
