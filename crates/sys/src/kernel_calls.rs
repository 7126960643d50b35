//! The calls that act on processes and change the host, behind a gate.
#![allow(unsafe_code)]
//! # Safety
//! `process_madvise` is called through `libc::syscall` because neither rustix nor libc wraps it for every target.
//! The advices offered by [`Advice`] change how memory is held and never its content, so no value of them can make safe
//! code unsound, in this process or in another.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use hugeleaf_units::{Bytes, PageSize, Range};

use crate::address_space::iovec;
use crate::advice::Advice;
use crate::fault_hook::{GateReply, ProcessCall, SyscallGate};
use crate::host_file_changes::HostChange;
use crate::pagemap::{self, PageMap, PageScanDetail};
use crate::process::{Pid, PidFd};
use crate::remote_populate;
use crate::thp_split::{self, ThpSplitFile};
use crate::{Errno, SysError, last_errno};

/// Maximum delay between setting a stop flag and the end of a pause.
const WAITS_AT_ONCE: Duration = Duration::from_millis(100);

/// The kernel's interface to other processes and the host, with the clock that paces the calls.
#[derive(Debug, Clone)]
pub struct Kernel {
    start: Instant,
    gate: Option<Arc<dyn SyscallGate>>,
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

    /// Returns a kernel with a gate in front of its calls.
    pub fn behind(gate: Arc<dyn SyscallGate>) -> Kernel {
        Kernel {
            gate: Some(gate),
            ..Kernel::new()
        }
    }

    /// Returns the gate's answer, if any. `name` and `subject` describe the call in an error.
    fn ask(
        &self,
        call: ProcessCall<'_>,
        name: &'static str,
        subject: impl FnOnce() -> String,
    ) -> Result<Option<GateReply>, SysError> {
        match &self.gate {
            None => Ok(None),
            Some(gate) => gate
                .process(call)
                .map_err(|errno| SysError::new(name, subject(), errno)),
        }
    }

    /// Returns the gate's answer to a probe that cannot fail, or `None` if the kernel must be asked.
    fn knows(&self, question: ProcessCall<'_>) -> Option<bool> {
        let answer = self.gate.as_ref()?.process(question);
        answer.map_or(Some(false), |answer| answer.map(|_| true))
    }

    /// Makes a change of the host.
    ///
    /// # Errors
    /// The errors of the underlying call.
    pub fn change(&self, change: HostChange<'_>) -> Result<(), SysError> {
        let gate = self.gate.as_ref();
        gate.and_then(|gate| gate.host(change))
            .unwrap_or_else(|| change.execute())
    }

    /// Returns the base page size of this host.
    pub fn base_page(&self) -> PageSize {
        PageSize::new(Bytes(rustix::param::page_size() as u64))
            .expect("the kernel's page size is a power of two")
    }

    /// Opens a handle on a process.
    /// After the process exits, the handle is stale and never refers to another process (pidfd_open(2), Linux 5.3).
    ///
    /// # Errors
    /// ESRCH: no such process. EINVAL: a thread that is not a process. ENOSYS: before Linux 5.3.
    pub fn pidfd_open(&self, pid: Pid) -> Result<PidFd, SysError> {
        match self.ask(ProcessCall::PidfdOpen(pid), "pidfd_open", || {
            pid.to_string()
        })? {
            Some(GateReply::Descriptor(fd)) => Ok(PidFd::from_fd(pid, fd)),
            _ => PidFd::open(pid),
        }
    }

    /// Returns true if the process behind the handle has exited.
    ///
    /// # Errors
    /// The errors of poll(2).
    pub fn has_exited(&self, process: &PidFd) -> Result<bool, SysError> {
        let subject = || format!("of pidfd {}", process.pid());
        self.ask(ProcessCall::HasExited(process), "poll", subject)?;
        process.has_exited()
    }

    /// Advises on at most 1024 ranges of a process's memory (process_madvise(2), Linux 5.10). Returns the number of bytes
    /// that the kernel processed before it stopped. That does not say if the advice had an effect: read the page map.
    ///
    /// # Errors
    /// EPERM: CAP_SYS_NICE or the ptrace right to read it is missing. ESRCH: it exited. EAGAIN: pages are in use, try
    /// again. EBUSY: pages are locked. EINVAL: the range cannot take this advice, or the kernel does not know it. ENOMEM:
    /// not mapped, or no memory. ENOSYS.
    pub fn process_madvise(
        &self,
        process: &PidFd,
        ranges: &[Range],
        advice: Advice,
    ) -> Result<Bytes, SysError> {
        let of = || format!("of {}", process.pid());
        let call = ProcessCall::Madvise(process, ranges, advice);
        if let Some(GateReply::Bytes(bytes)) = self.ask(call, advice.call_name(), of)? {
            return Ok(bytes);
        }
        self.advise(process, ranges, advice)
    }

    fn advise(&self, process: &PidFd, ranges: &[Range], advice: Advice) -> Result<Bytes, SysError> {
        let of = || format!("of {}", process.pid());
        // Addresses of another process may not fit in the usize of a 32-bit build. Such a build cannot map them either,
        // so refuse instead of truncating.
        let fail = |errno| SysError::new(advice.call_name(), of(), errno);
        let vectors = ranges.iter().map(|r| iovec(r.start(), r.len().get()));
        let vectors = vectors.collect::<Result<Vec<_>, _>>().map_err(fail)?;
        // SAFETY: the vector outlives the call and its length is passed with it. The addresses in
        // it are never dereferenced here: the kernel checks them against the target's mappings.
        let done = unsafe {
            libc::syscall(
                libc::SYS_process_madvise,
                process.number(),
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

    /// Returns true if MADV_COLLAPSE accepts the mapping of `block`, independent of its pages. Asks with the first base
    /// page of a block. The kernel then checks the mapping and copies nothing (`madvise_collapse`, mm/khugepaged.c).
    ///
    /// # Errors
    /// The errors of [`Kernel::process_madvise`], except EINVAL, which means false.
    pub fn can_collapse(&self, process: &PidFd, block: Range) -> Result<bool, SysError> {
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
    /// The errors of read(2) and of ioctl(PAGEMAP_SCAN).
    pub fn page_map(
        &self,
        pagemap: &File,
        range: Range,
        detail: PageScanDetail,
    ) -> Result<PageMap, SysError> {
        let call = ProcessCall::PageMap(pagemap, range, detail);
        if let Some(GateReply::PageMap(map)) = self.ask(call, "read", || "pagemap".to_owned())? {
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

    /// Re-enables THP in a process that has disabled it for itself. Makes its main thread call prctl(PR_SET_THP_DISABLE,
    /// 0) by ptrace(2), which stops that thread for some tens of microseconds. Nothing else in the process changes.
    ///
    /// A thread that waits in the kernel (state D) cannot be stopped. After two seconds, or when this process is asked to
    /// end, it is left as it is. Once the call has begun, it is waited for without a limit: see `remote_syscall`.
    ///
    /// # Errors
    /// EPERM: CAP_SYS_PTRACE is missing, or a debugger is attached. ESRCH: it exited. EBUSY: it is stopped. ETIMEDOUT: it
    /// did not stop. EINTR: this process is asked to end. ENOSYS: not on this architecture, or a 32-bit program.
    pub fn switch_thp_on(&self, process: &PidFd) -> Result<(), SysError> {
        let subject = || format!("of {}", process.pid());
        match self.ask(ProcessCall::SwitchThpOn(process), "ptrace", subject)? {
            Some(_) => Ok(()),
            None => crate::remote_syscall::switch_thp_on(process),
        }
    }

    /// Opens the file that splits huge pages, including shared ones.
    /// Uses `path`, or else a debugfs that is not mounted anywhere, so that nothing on the host changes.
    ///
    /// # Errors
    /// ENOENT: no such file. EACCES: not root. EPERM: refused to root too (kernel lockdown). ENODEV: a kernel without
    /// debugfs, or with `debugfs=off`.
    pub fn open_split(&self, path: Option<&Path>) -> Result<ThpSplitFile, SysError> {
        let subject = || "split_huge_pages".to_owned();
        match self.ask(ProcessCall::OpenSplit(path), "open", subject)? {
            Some(GateReply::Descriptor(fd)) => Ok(ThpSplitFile::from_file(File::from(fd))),
            _ => ThpSplitFile::open(path),
        }
    }

    /// Splits the huge pages in a range of a process, in all processes that map them. The kernel stops at the first gap
    /// between mappings and skips pages in use, and reports success in both cases: read the page map. It holds the
    /// process's memory map for reading and visits every base page of the range: keep ranges short.
    ///
    /// The kernel looks up the number in the PID namespace of this process. First make sure that it still refers to the
    /// process behind the handle.
    ///
    /// # Errors
    /// ESRCH: no such process. EINVAL: it has no memory any more. EINTR: a signal arrived. EPERM, EACCES: refused. EIO:
    /// the line was written partly.
    pub fn split(
        &self,
        file: &ThpSplitFile,
        process: &PidFd,
        range: Range,
    ) -> Result<(), SysError> {
        let subject = || format!("{range} of {}", process.pid());
        match self.ask(ProcessCall::Split(process, range), "write", subject)? {
            Some(_) => Ok(()),
            None => file.split(process, range),
        }
    }

    /// Makes a process map the pages of a range again, by reading one byte of each (process_vm_readv(2)).
    /// Returns the length read before the first missing page.
    ///
    /// # Errors
    /// EPERM: the ptrace right to read it is missing. ESRCH: it exited. EFAULT: not mapped. ETIMEDOUT: as
    /// [`Kernel::populate`].
    pub fn fault_in(&self, process: &PidFd, range: Range) -> Result<Bytes, SysError> {
        let subject = || format!("of {}", process.pid());
        match self.ask(
            ProcessCall::MapIn(process, range),
            "process_vm_readv",
            subject,
        )? {
            Some(GateReply::Bytes(bytes)) => Ok(bytes),
            _ => thp_split::map_in(process, range, self.base_page()),
        }
    }

    /// Gives a process its own pages in place of zero pages and holes in ranges, by write faults that write nothing
    /// (process_vm_writev(2)). Success does not say which pages then exist: read the page map. Private pages shared with
    /// a child are copied and swapped pages are read in, so pass ranges of zero pages only.
    ///
    /// # Errors
    /// EPERM: the ptrace right to write to it is missing. ESRCH: it exited. ENOMEM, ENOSYS. ETIMEDOUT: another process
    /// handles its faults (userfaultfd) and did not supply a page. The call was left behind.
    pub fn populate(&self, process: &PidFd, ranges: &[Range]) -> Result<(), SysError> {
        let (name, subject) = ("process_vm_writev", || format!("of {}", process.pid()));
        match self.ask(ProcessCall::Populate(process, ranges), name, subject)? {
            Some(_) => Ok(()),
            None => remote_populate::populate(process, ranges, self.base_page()),
        }
    }

    /// Touches `pages` new pages and frees them at once, so that the kernel allocates them next.
    /// Free memory that a hypervisor has reclaimed is then backed again.
    ///
    /// # Errors
    /// ENOMEM: no memory, or past a limit of this process. EINVAL: no pages.
    pub fn back_free_memory(&self, page: PageSize, pages: u64) -> Result<(), SysError> {
        let subject = || format!("{pages} pages of {page}");
        match self.ask(ProcessCall::Fetch(page, pages), "madvise", subject)? {
            Some(_) => Ok(()),
            None => crate::prefault::fetch(page, pages),
        }
    }

    /// Makes all processors drain their lists of new pages (`lru_add_drain_all`), by a collapse of memory of this
    /// process. MADV_COLLAPSE of another process's memory drains them first, with its memory map locked. Right after this
    /// call, that takes little time.
    ///
    /// # Errors
    /// The errors of mmap(2) and madvise(2), as for MADV_COLLAPSE. No memory is kept.
    pub fn drain_page_lists(&self, page: PageSize) -> Result<(), SysError> {
        match self.ask(ProcessCall::Drain(page), "madvise", || page.to_string())? {
            Some(_) => Ok(()),
            None => crate::prefault::drain(page, self.base_page()),
        }
    }

    /// Returns true if this kernel supports MADV_COLLAPSE, by a probe and not by its version.
    pub fn supports_collapse(&self) -> bool {
        if let Some(known) = self.knows(ProcessCall::KnowsCollapse) {
            return known;
        }
        // SAFETY: a length of 0 touches no memory. The kernel checks the advice first and returns EINVAL only if it does
        // not know it (mm/madvise.c, madvise_behavior_valid).
        unsafe { libc::madvise(std::ptr::null_mut(), 0, Advice::Collapse.number()) == 0 }
    }

    /// Returns true if this kernel has process_madvise, by a probe.
    pub fn supports_process_madvise(&self) -> bool {
        if let Some(known) = self.knows(ProcessCall::KnowsProcessMadvise) {
            return known;
        }
        // SAFETY: descriptor -1 is never open: the call ends in EBADF (or EINVAL) if it exists.
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

    /// Returns the monotonic time since a fixed instant.
    pub fn now(&self) -> Duration {
        let time = self.start.elapsed();
        self.gate.as_ref().map_or(time, |gate| gate.now(time))
    }

    /// Waits for `time`. Returns false as soon as `stop` is set, which a signal may do just before the pause or in
    /// another thread. The pause is therefore split into parts.
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
