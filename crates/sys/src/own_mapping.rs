//! Memory of this process, for the embedded workload and the tests.
#![allow(unsafe_code)]
//! # Safety
//! An [`OwnMapping`] owns its addresses from mmap(2) until it is dropped; nobody else unmaps them.

use hugeleaf_units::{Bytes, Range};

use crate::address_space::{READ_WRITE, madvise, mmap, munmap};
use crate::advice::Advice;
use crate::{Errno, SysError, last_errno};

/// Sharing of a mapping: private to this process (copied on fork), or shared with its children.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sharing {
    /// `MAP_PRIVATE`.
    Private,
    /// `MAP_SHARED`.
    Shared,
}

/// Readable and writable memory of this process, unmapped when dropped.
#[derive(Debug)]
pub struct OwnMapping {
    range: Range,
}

impl OwnMapping {
    /// Maps `length` bytes, which the kernel rounds up to base pages. Nothing is populated.
    ///
    /// # Errors
    /// EINVAL for a length of 0. ENOMEM if the address space or a limit is exhausted.
    pub fn anonymous(length: Bytes, sharing: Sharing) -> Result<OwnMapping, SysError> {
        let fail = |errno| SysError::new("mmap", length.to_string(), errno);
        let flags = match sharing {
            Sharing::Private => libc::MAP_PRIVATE,
            Sharing::Shared => libc::MAP_SHARED,
        };
        let flags = flags | libc::MAP_ANONYMOUS;
        let start = mmap(0, length, READ_WRITE, flags, -1, 0).map_err(fail)?;
        let range = Range::new(start, start + length.get()).map_err(|_| fail(Errno::INVAL))?;
        Ok(OwnMapping { range })
    }

    pub const fn range(&self) -> Range {
        self.range
    }

    /// Returns the first byte. Valid for reads and writes of [`OwnMapping::range`] while this lives.
    pub const fn as_ptr(&self) -> *mut u8 {
        self.range.start() as *mut u8
    }

    /// Advises on a part of the mapping (madvise(2)).
    ///
    /// # Errors
    /// EINVAL if `part` is outside or the kernel refuses the advice. EAGAIN, EBUSY, ENOMEM as in
    /// madvise(2).
    pub fn advise(&self, part: Range, advice: Advice) -> Result<(), SysError> {
        match part.intersect(self.range) == Some(part) {
            true => advise_own(part, advice),
            false => {
                let name = advice.call_name();
                Err(SysError::new(name, part.to_string(), Errno::INVAL))
            }
        }
    }

    /// Writes one byte in every `step` bytes to populate each page.
    ///
    /// # Errors
    /// EINVAL for a step of 0.
    pub fn touch(&self, step: Bytes) -> Result<(), SysError> {
        let step = usize::try_from(step.get())
            .ok()
            .filter(|s| *s > 0)
            .ok_or_else(|| SysError::new("touch", "", Errno::INVAL))?;
        let len = usize::try_from(self.range.len().get()).unwrap_or(usize::MAX);
        for offset in (0..len).step_by(step) {
            // SAFETY: inside the mapping, which is writable and has no other borrower: `as_ptr`
            // hands out raw pointers only. Volatile, so that the store is not left out.
            unsafe { self.as_ptr().add(offset).write_volatile(1) };
        }
        Ok(())
    }
}

impl Drop for OwnMapping {
    fn drop(&mut self) {
        // This mapping owns the range since mmap. Raw pointers from `as_ptr` are documented to end
        // with it.
        munmap(self.range);
    }
}

/// Advises on any memory of this process (madvise(2)).
/// It needs no privilege, so a program can promote its own memory on request.
///
/// # Errors
/// EINVAL if the kernel refuses the advice. ENOMEM if a part is not mapped. EAGAIN, EBUSY as in
/// madvise(2).
pub fn advise_own(range: Range, advice: Advice) -> Result<(), SysError> {
    madvise(range, advice.number())
        .map_err(|errno| SysError::new(advice.call_name(), range.to_string(), errno))
}

/// Names anonymous memory of this process in `/proc/PID/maps` (prctl(2), PR_SET_VMA_ANON_NAME,
/// Linux 5.17 with CONFIG_ANON_VMA_NAME).
///
/// # Errors
/// EINVAL if this kernel does not support it, or the name has an invalid character.
pub fn name_own(range: Range, name: &std::ffi::CStr) -> Result<(), SysError> {
    let fail = |errno| SysError::new("prctl(PR_SET_VMA)", range.to_string(), errno);
    let start = libc::c_ulong::try_from(range.start()).map_err(|_| fail(Errno::INVAL))?;
    let len = libc::c_ulong::try_from(range.len().get()).map_err(|_| fail(Errno::INVAL))?;
    // SAFETY: the kernel copies the name, which is terminated, and touches no memory in the range.
    let done = unsafe {
        libc::prctl(
            libc::PR_SET_VMA,
            libc::PR_SET_VMA_ANON_NAME as libc::c_ulong,
            start,
            len,
            name.as_ptr(),
        )
    };
    match done {
        0 => Ok(()),
        _ => Err(fail(last_errno())),
    }
}
