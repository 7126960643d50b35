//! Gives another process its own pages in place of zero pages, without writing to them.
//!
//! No advice of madvise(2) does that from outside. MADV_POPULATE_WRITE returns EINVAL in
//! process_madvise(2) (tested on 6.18), and any write to another process may overwrite its concurrent
//! writes. process_vm_writev(2) first pins the target pages for writing, which causes the same write
//! fault as the process's own write, and then copies. The source here is an unreadable page, so the
//! call ends in EFAULT with nothing copied, and the pages exist.
#![allow(unsafe_code)]
//! # Safety
//! process_vm_writev(2) has no safe wrapper in any library used here. Its local part is one byte of a
//! mapping of this process that has no rights at all and is never unmapped, so nothing can be copied
//! from it. Addresses of the other process are never dereferenced here.

use std::sync::{OnceLock, mpsc};
use std::time::Duration;

use hugeleaf_units::{Bytes, PageSize, Range};

use crate::address_space::{NO_ACCESS, iovec, mmap};
use crate::{Errno, Pid, PidFd, SysError, last_errno};

/// Number of pages that one call pins, which is one batch of the kernel with 4K base pages (two pages
/// of pointers, mm/process_vm_access.c). A second batch would start only after the first was copied.
const PAGES_A_CALL: u64 = 512;

fn unreadable() -> Option<usize> {
    static PAGE: OnceLock<Option<usize>> = OnceLock::new();
    *PAGE.get_or_init(|| {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let page = mmap(0, Bytes(1), NO_ACCESS, flags, -1, 0).ok()?;
        usize::try_from(page).ok()
    })
}

/// Time limit of a call, much longer than faults under memory pressure take.
const PATIENCE: Duration = Duration::from_secs(10);

/// Runs work that faults in pages of another process. That process may determine how long it takes:
/// with userfaultfd, a program answers its own faults, or never does. After the time limit the call is
/// left behind on its thread, which ends with this program.
pub(crate) fn in_time<T: Send + 'static>(
    call: &'static str,
    process: &PidFd,
    work: impl FnOnce() -> Result<T, SysError> + Send + 'static,
) -> Result<T, SysError> {
    let fail = |errno| SysError::new(call, format!("of {}", process.pid()), errno);
    let (sender, receiver) = mpsc::channel();
    let thread = std::thread::Builder::new().name("hugeleaf-fault".to_owned());
    thread
        .spawn(move || sender.send(work()))
        .map_err(|e| fail(Errno::from_io_error(&e).unwrap_or(Errno::AGAIN)))?;
    match receiver.recv_timeout(PATIENCE) {
        Ok(answer) => answer,
        Err(_) => Err(fail(Errno::TIMEDOUT)),
    }
}

/// Implements [`crate::Kernel::populate`].
pub(crate) fn populate(process: &PidFd, ranges: &[Range], base: PageSize) -> Result<(), SysError> {
    const CALL: &str = "process_vm_writev";
    let pid = process.pid();
    let ranges = ranges.to_vec();
    in_time(CALL, process, move || {
        let mut each = ranges.into_iter();
        each.try_for_each(|range| populate_one(pid, range, base))
            .map_err(|errno| SysError::new(CALL, format!("of {pid}"), errno))
    })
}

fn populate_one(pid: Pid, range: Range, base: PageSize) -> Result<(), Errno> {
    let pid = i32::try_from(pid.0).map_err(|_| Errno::SRCH)?;
    let local = libc::iovec {
        iov_base: unreadable().ok_or(Errno::NOMEM)? as *mut libc::c_void,
        iov_len: 1,
    };
    let step = base.bytes().get().saturating_mul(PAGES_A_CALL);
    let mut at = range.start();
    while at < range.end() {
        let length = step.min(range.end() - at);
        let remote = iovec(at, length)?;
        // SAFETY: both vectors outlive the call. Nothing can be read through `local`, so nothing is
        // written to the other process; its addresses are checked by the kernel.
        let copied =
            unsafe { libc::process_vm_writev(pid, &raw const local, 1, &raw const remote, 1, 0) };
        let errno = last_errno();
        // The call returns EFAULT both if it pinned pages and if there were none to pin.
        if copied < 0 && errno != Errno::FAULT {
            return Err(errno);
        }
        at += length;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Advice, Kernel, OwnMapping, PageScanDetail, PageState, Sharing, own_pid};
    use hugeleaf_units::Bytes;

    #[test]
    fn pages_of_zeros_become_own_pages_and_nothing_is_written() {
        let kernel = Kernel::new();
        let base = kernel.base_page();
        let page = base.bytes().get();
        let calls = page * PAGES_A_CALL * 3;
        let mapping = OwnMapping::anonymous(Bytes(calls), Sharing::Private).unwrap();
        mapping.advise(mapping.range(), Advice::NoHugePage).unwrap();
        let start = mapping.as_ptr();
        // Every third page is written, every third is the zero page, every third is untouched.
        for at in (0..calls).step_by(usize::try_from(page).unwrap()) {
            let at = usize::try_from(at).unwrap();
            // SAFETY: inside the mapping, which no other code uses.
            unsafe {
                match at as u64 / page % 3 {
                    0 => start.add(at + 7).write_volatile(42),
                    1 => assert_eq!(start.add(at).read_volatile(), 0),
                    _ => {}
                }
            }
        }
        let own = kernel.pidfd_open(own_pid()).unwrap();
        kernel.populate(&own, &[mapping.range()]).unwrap();
        for at in (0..calls).step_by(usize::try_from(page).unwrap()) {
            let is = if (at / page).is_multiple_of(3) { 42 } else { 0 };
            // SAFETY: inside the mapping.
            let byte = unsafe { start.add(usize::try_from(at).unwrap() + 7).read_volatile() };
            assert_eq!(byte, is, "{at}");
        }
        let file = std::fs::File::open("/proc/self/pagemap").unwrap();
        let map = kernel
            .page_map(&file, mapping.range(), PageScanDetail::Exclusive)
            .unwrap();
        let own = PageState::PRESENT.with(PageState::EXCLUSIVE);
        let there: Bytes = map.runs.iter().map(|r| r.range.len()).sum();
        assert_eq!(there, Bytes(calls), "{map:?}");
        assert!(map.runs.iter().all(|r| r.state.has(own)), "{map:?}");
        assert!(!map.runs.iter().any(|r| r.state.has(PageState::ZERO)));
    }

    #[test]
    fn a_call_that_fails_or_panics_is_an_error() {
        let kernel = Kernel::new();
        let own = kernel.pidfd_open(own_pid()).unwrap();
        let fails = || Err::<(), _>(SysError::new("x", "", Errno::PERM));
        let error = in_time("x", &own, fails).unwrap_err();
        assert_eq!(error.errno, Errno::PERM);
        // A thread that ended without an answer counts as a time-out.
        let gone = in_time::<()>("x", &own, || panic!("on purpose")).unwrap_err();
        assert_eq!(gone.errno, Errno::TIMEDOUT);
    }

    #[test]
    fn what_is_not_mapped_or_not_writable_stays_so() {
        let kernel = Kernel::new();
        let own = kernel.pidfd_open(own_pid()).unwrap();
        let page = kernel.base_page().bytes();
        let gone = OwnMapping::anonymous(page, Sharing::Private)
            .unwrap()
            .range();
        assert!(kernel.populate(&own, &[gone]).is_ok());
        let none = unreadable().unwrap() as u64;
        let none = Range::new(none, none + page.get()).unwrap();
        assert!(kernel.populate(&own, &[none]).is_ok());
        let file = std::fs::File::open("/proc/self/pagemap").unwrap();
        let map = kernel
            .page_map(&file, none, PageScanDetail::Exclusive)
            .unwrap();
        assert!(map.runs.is_empty(), "{map:?}");
    }
}
