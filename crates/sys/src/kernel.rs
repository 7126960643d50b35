//! The calls that act on processes and change the host, behind a gate.
#![allow(unsafe_code)]
//! # Safety
//! `process_madvise` is called through `libc::syscall` because neither rustix nor libc wraps it
//! for every target. The advices offered by [`Advice`] change how memory is held and never what it
//! holds, so no value of them can make safe code unsound, in this process or in another.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use hugeleaf_units::{Bytes, PageSize, Range};

use crate::advice::Advice;
use crate::files::HostChange;
use crate::gate::{Answer, Gate, ProcessCall};
use crate::pagemap::{self, PageMap, ScanDetail};
use crate::populate;
use crate::priority::RunsFirst;
use crate::process::{Pid, PidFd};
use crate::split::{self, SplitFile};
use crate::{Errno, SysError, last_errno};

/// Longest time that a stop flag waits for a pause to end.
const WAITS_AT_ONCE: Duration = Duration::from_millis(100);

/// The kernel as hugeleaf uses it on other processes and on the host, with the clock that paces it.
#[derive(Debug, Clone)]
pub struct Kernel {
    start: Instant,
    gate: Option<Arc<dyn Gate>>,
}

impl Default for Kernel {
    fn default() -> Kernel {
        Kernel::new()
    }
}

impl Kernel {
    pub fn new() -> Kernel {
        Kernel {
            start: Instant::now(),
            gate: None,
        }
    }

    /// The same, with a gate before its calls.
    pub fn behind(gate: Arc<dyn Gate>) -> Kernel {
        Kernel {
            gate: Some(gate),
            ..Kernel::new()
        }
    }

    /// The gate's answer, where there is one; `name` and `subject` describe the call in an error.
    fn ask(
        &self,
        call: ProcessCall<'_>,
        name: &'static str,
        subject: impl FnOnce() -> String,
    ) -> Result<Option<Answer>, SysError> {
        match &self.gate {
            None => Ok(None),
            Some(gate) => gate
                .process(call)
                .map_err(|errno| SysError::new(name, subject(), errno)),
        }
    }

    /// The gate's answer to a question that cannot fail; `None` where the kernel is to be asked.
    fn knows(&self, question: ProcessCall<'_>) -> Option<bool> {
        let answer = self.gate.as_ref()?.process(question);
        answer.map_or(Some(false), |answer| answer.map(|_| true))
    }

    /// Makes a change of the host.
    ///
    /// # Errors
    /// Those of the call that makes it.
    pub fn change(&self, change: HostChange<'_>) -> Result<(), SysError> {
        let gate = self.gate.as_ref();
        gate.and_then(|gate| gate.host(change))
            .unwrap_or_else(|| change.make())
    }

    /// The size of this host's base page.
    pub fn base_page(&self) -> PageSize {
        PageSize::new(Bytes(rustix::param::page_size() as u64))
            .expect("the kernel's page size is a power of two")
    }

    /// A handle on a process that goes stale, rather than over to another, when it exits
    /// (pidfd_open(2), Linux 5.3).
    ///
    /// # Errors
    /// ESRCH: no such process. EINVAL: a thread that is no process. ENOSYS: kernel before 5.3.
    pub fn pidfd_open(&self, pid: Pid) -> Result<PidFd, SysError> {
        match self.ask(ProcessCall::PidfdOpen(pid), "pidfd_open", || {
            pid.to_string()
        })? {
            Some(Answer::Descriptor(fd)) => Ok(PidFd::from_fd(pid, fd)),
            _ => PidFd::open(pid),
        }
    }

    /// Whether the process behind the handle has exited.
    ///
    /// # Errors
    /// Those of poll(2).
    pub fn has_exited(&self, process: &PidFd) -> Result<bool, SysError> {
        let subject = || format!("of pidfd {}", process.pid());
        self.ask(ProcessCall::HasExited(process), "poll", subject)?;
        process.has_exited()
    }

    /// Advises on ranges of a process's memory (process_madvise(2), Linux 5.10), at most 1024
    /// ranges. Returns how many bytes the kernel went through before it stopped; that is no word
    /// on what it did to them: read it back.
    ///
    /// # Errors
    /// EPERM: CAP_SYS_NICE or the right to read it by ptrace is missing. ESRCH: it exited. EAGAIN:
    /// pages are held elsewhere, try again. EBUSY: pages are locked. EINVAL: the range cannot take
    /// this advice, or the kernel does not know it. ENOMEM: not mapped, or no memory. ENOSYS.
    pub fn process_madvise(
        &self,
        process: &PidFd,
        ranges: &[Range],
        advice: Advice,
    ) -> Result<Bytes, SysError> {
        let of = || format!("of {}", process.pid());
        let call = ProcessCall::Madvise(process, ranges, advice);
        if let Some(Answer::Bytes(bytes)) = self.ask(call, advice.call_name(), of)? {
            return Ok(bytes);
        }
        self.advise(process, ranges, advice)
    }

    fn advise(&self, process: &PidFd, ranges: &[Range], advice: Advice) -> Result<Bytes, SysError> {
        let of = || format!("of {}", process.pid());
        // Addresses of another process may not fit in this one's usize (a 32-bit build); such a
        // build cannot map them either, so refuse instead of truncating.
        let fail = |errno| SysError::new(advice.call_name(), of(), errno);
        let vectors = ranges
            .iter()
            .map(|r| {
                Ok(libc::iovec {
                    iov_base: usize::try_from(r.start()).map_err(|_| fail(Errno::INVAL))?
                        as *mut libc::c_void,
                    iov_len: usize::try_from(r.len().get()).map_err(|_| fail(Errno::INVAL))?,
                })
            })
            .collect::<Result<Vec<_>, SysError>>()?;
        // SAFETY: the vector outlives the call and its length is passed with it. The addresses in
        // it are never dereferenced here: the kernel checks them against the target's mappings.
        let done = unsafe {
            libc::syscall(
                libc::SYS_process_madvise,
                process.raw(),
                vectors.as_ptr(),
                vectors.len(),
                advice.number(),
                0u32,
            )
        };
        match u64::try_from(done) {
            Ok(bytes) => Ok(Bytes(bytes)),
            Err(_) => Err(fail(last_errno())),
        }
    }

    /// Returns true where MADV_COLLAPSE takes the mapping of `block`, whatever its pages are: asks with the
    /// first base page of a whole huge page, for which the kernel checks the mapping and moves nothing
    /// (`madvise_collapse`, mm/khugepaged.c).
    ///
    /// # Errors
    /// Those of [`Kernel::process_madvise`] but EINVAL, which is the answer no.
    pub fn collapses(&self, process: &PidFd, block: Range) -> Result<bool, SysError> {
        let of = || format!("{block} of {}", process.pid());
        let call = ProcessCall::Collapses(process, block);
        if self.ask(call, Advice::Collapse.call_name(), of)?.is_some() {
            return Ok(true);
        }
        let end = block.start() + self.base_page().bytes().get();
        let page = Range::new(block.start(), end).unwrap_or(block);
        match self.advise(process, &[page], Advice::Collapse) {
            Ok(_) => Ok(true),
            Err(error) if error.errno == Errno::INVAL => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Reads the state of the pages of `range` from an open `/proc/PID/pagemap`.
    ///
    /// # Errors
    /// Those of read(2) and of ioctl(PAGEMAP_SCAN).
    pub fn page_map(
        &self,
        pagemap: &File,
        range: Range,
        detail: ScanDetail,
    ) -> Result<PageMap, SysError> {
        let call = ProcessCall::PageMap(pagemap, range, detail);
        if let Some(Answer::PageMap(map)) = self.ask(call, "read", || "pagemap".to_owned())? {
            return Ok(map);
        }
        pagemap::read(
            pagemap.as_raw_fd(),
            pagemap,
            range,
            self.base_page(),
            detail,
        )
    }

    /// Takes back that a process has switched THP off for itself: makes it call
    /// prctl(PR_SET_THP_DISABLE, 0) in its main thread, which is stopped for some tens of
    /// microseconds (ptrace(2)). Nothing else of the process changes.
    ///
    /// # Errors
    /// EPERM: CAP_SYS_PTRACE is missing, or a debugger is at it. ESRCH: it exited. EBUSY: it is
    /// stopped. ENOSYS: not on this architecture, or a 32-bit program.
    pub fn switch_thp_on(&self, process: &PidFd) -> Result<(), SysError> {
        let subject = || format!("of {}", process.pid());
        match self.ask(ProcessCall::SwitchThpOn(process), "ptrace", subject)? {
            Some(_) => Ok(()),
            None => crate::remote_call::switch_thp_on(process),
        }
    }

    /// Opens the file that splits huge pages, shared ones too: `path`, or without one that of a
    /// debugfs which is mounted nowhere for it, so that nothing on the host changes.
    ///
    /// # Errors
    /// ENOENT: no such file. EACCES: not root. EPERM: refused to root too (kernel lockdown). ENODEV:
    /// a kernel without debugfs, or with `debugfs=off`.
    pub fn open_split(&self, path: Option<&Path>) -> Result<SplitFile, SysError> {
        let subject = || "split_huge_pages".to_owned();
        match self.ask(ProcessCall::OpenSplit(path), "open", subject)? {
            Some(Answer::Descriptor(fd)) => Ok(SplitFile::from_file(File::from(fd))),
            _ => SplitFile::open(path),
        }
    }

    /// Splits the huge pages in a range of a process, in all processes that map them. The kernel
    /// ends at the first gap between mappings, passes over pages that somebody holds, and reports
    /// success in both cases: read it back. It holds the process's memory map for reading
    /// meanwhile, and looks at every base page of the range: keep ranges short.
    ///
    /// The kernel is given a number, which it looks up in this process's PID namespace. Make sure
    /// before that it means the process behind the handle.
    ///
    /// # Errors
    /// ESRCH: no such process. EINVAL: it has no memory any more. EINTR: a signal came. EPERM,
    /// EACCES: refused. EIO: not all of the line was taken.
    pub fn split(&self, file: &SplitFile, process: &PidFd, range: Range) -> Result<(), SysError> {
        let subject = || format!("{range} of {}", process.pid());
        match self.ask(ProcessCall::Split(process, range), "write", subject)? {
            Some(_) => Ok(()),
            None => file.split(process, range),
        }
    }

    /// Has a process map the pages of a range again, by reading a byte of each
    /// (process_vm_readv(2)). Returns how much of it was read before the first page that is not
    /// there.
    ///
    /// # Errors
    /// EPERM: the right to read it by ptrace is missing. ESRCH: it exited. EFAULT: not mapped.
    /// ETIMEDOUT: as [`Kernel::populate`].
    pub fn map_in(&self, process: &PidFd, range: Range) -> Result<Bytes, SysError> {
        let subject = || format!("of {}", process.pid());
        match self.ask(
            ProcessCall::MapIn(process, range),
            "process_vm_readv",
            subject,
        )? {
            Some(Answer::Bytes(bytes)) => Ok(bytes),
            _ => split::map_in(process, range, self.base_page()),
        }
    }

    /// Has a process hold pages of its own where it has the zero page or nothing in ranges, by a
    /// write fault on each that writes nothing (process_vm_writev(2)). Success is no word on
    /// which pages are there then: read it back. What is private and shared with a child is copied,
    /// what is in swap is brought in: name pages of zeros only.
    ///
    /// # Errors
    /// EPERM: the right to write to it by ptrace is missing. ESRCH: it exited. ENOMEM, ENOSYS.
    /// ETIMEDOUT: a page did not come, because its faults are somebody else's business
    /// (userfaultfd); the call was left to itself.
    pub fn populate(&self, process: &PidFd, ranges: &[Range]) -> Result<(), SysError> {
        let (name, subject) = ("process_vm_writev", || format!("of {}", process.pid()));
        match self.ask(ProcessCall::Populate(process, ranges), name, subject)? {
            Some(_) => Ok(()),
            None => populate::populate(process, ranges, self.base_page()),
        }
    }

    /// Touches so many new pages for this process, and frees them at once: the kernel hands them out next. Where a
    /// hypervisor has taken free memory away, they are there again then.
    ///
    /// # Errors
    /// ENOMEM: no memory, or past a limit of this process. EINVAL: no pages.
    pub fn fetch(&self, page: PageSize, pages: u64) -> Result<(), SysError> {
        let subject = || format!("{pages} pages of {page}");
        match self.ask(ProcessCall::Fetch(page, pages), "madvise", subject)? {
            Some(_) => Ok(()),
            None => crate::fetch::fetch(page, pages),
        }
    }

    /// Has all processors empty their lists of new pages (`lru_add_drain_all`), by a collapse of memory of this process's
    /// own. MADV_COLLAPSE of another process's memory does that first, with its map locked: right after this call it has
    /// little to wait for.
    ///
    /// # Errors
    /// Those of mmap(2) and madvise(2), as in MADV_COLLAPSE; nothing is left of it.
    pub fn drain(&self, page: PageSize) -> Result<(), SysError> {
        match self.ask(ProcessCall::Drain(page), "madvise", || page.to_string())? {
            Some(_) => Ok(()),
            None => crate::fetch::drain(page, self.base_page()),
        }
    }

    /// Whether this kernel knows MADV_COLLAPSE at all: probed, never derived from a version.
    pub fn knows_collapse(&self) -> bool {
        if let Some(known) = self.knows(ProcessCall::KnowsCollapse) {
            return known;
        }
        // SAFETY: a length of 0 touches no memory; the kernel checks the advice first and answers
        // EINVAL only where it does not know it (mm/madvise.c, madvise_behavior_valid).
        unsafe { libc::madvise(std::ptr::null_mut(), 0, Advice::Collapse.number()) == 0 }
    }

    /// Whether this kernel has process_madvise: probed.
    pub fn knows_process_madvise(&self) -> bool {
        if let Some(known) = self.knows(ProcessCall::KnowsProcessMadvise) {
            return known;
        }
        // SAFETY: descriptor -1 is never open: the call ends in EBADF (or EINVAL) where it exists.
        let done = unsafe {
            libc::syscall(
                libc::SYS_process_madvise,
                -1,
                std::ptr::null::<libc::iovec>(),
                0,
                0,
                0u32,
            )
        };
        done == 0 || last_errno() != Errno::NOSYS
    }

    /// Time since some fixed instant; never goes back.
    pub fn now(&self) -> Duration {
        let time = self.start.elapsed();
        self.gate.as_ref().map_or(time, |gate| gate.now(time))
    }

    /// Has this thread run before others until the value is dropped.
    ///
    /// # Errors
    /// EPERM: not permitted.
    pub fn run_first(&self) -> Result<RunsFirst, SysError> {
        RunsFirst::new()
    }

    /// Waits, but not on once `stop` is set; returns false then. A signal sets it, and may come just before a pause or in
    /// another thread: the pause is made in parts.
    #[expect(clippy::disallowed_methods, reason = "the place that waits")]
    pub fn wait(&self, time: Duration, stop: &AtomicBool) -> bool {
        let mut left = time;
        while !stop.load(Ordering::Relaxed) {
            if left.is_zero() {
                return true;
            }
            let part = left.min(WAITS_AT_ONCE);
            if self.knows(ProcessCall::Sleep(part)).is_none() {
                std::thread::sleep(part);
            }
            left -= part;
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_ends_where_its_flag_is_set() {
        let (kernel, stop) = (Kernel::new(), AtomicBool::new(false));
        assert!(kernel.wait(Duration::ZERO, &stop));
        assert!(kernel.wait(WAITS_AT_ONCE + Duration::from_millis(1), &stop));
        let hour = Duration::from_secs(3600);
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| kernel.wait(hour, &stop));
            stop.store(true, Ordering::Relaxed);
            assert!(!waits.join().unwrap());
        });
        assert!(!kernel.wait(Duration::ZERO, &stop));
    }
}
