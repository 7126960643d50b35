//! The kernel's calls for the library: the real ones with checks. Hugetlb pages are ordinary ones.
//!
//! # Safety
//!
//! Passes on the library's calls, after checking if the program uses the memory.

#![allow(unsafe_code)]

pub use crate::real::{Advice, EEXIST, ENOMEM, advise, failed, flag};

use crate::program;
use crate::real;
use crate::schedule::turn;

/// Returns the host's memory in the model.
pub fn memory() -> Option<usize> {
    Some(crate::state::settings().pmd << 18)
}

/// # Safety
///
/// As for the real one.
pub unsafe fn mmap(address: usize, length: usize, protection: usize, flags: usize) -> isize {
    turn();
    let pool = flags & flag::HUGETLB != 0;
    let flags = if pool {
        flag::PRIVATE | flag::ANONYMOUS
    } else {
        flags
    };
    if flags & flag::FIXED != 0 {
        program::nobody_has(address, length, "mapped over");
    }
    // A pool allocates whole pages at a multiple of their size.
    let more = if pool {
        crate::state::settings().pmd
    } else {
        0
    };
    // SAFETY: ensured by the caller.
    let at = unsafe { real::mmap(address, length + more, protection, flags) };
    if more == 0 || failed(at) {
        return at;
    }
    let start = crate::state::round_up(at as usize, more).unwrap();
    // SAFETY: mapped above, before and after the whole pages.
    unsafe {
        if start != at as usize {
            real::munmap(at as usize, start - at as usize);
        }
        real::munmap(start + length, at as usize + more - start);
    }
    start as isize
}

pub fn map_new(length: usize, protection: usize, how: usize) -> Option<usize> {
    // SAFETY: a new mapping.
    let at = unsafe { mmap(0, length, protection, how | flag::ANONYMOUS) };
    (!failed(at)).then_some(at as usize)
}

/// # Safety
///
/// As for the real one.
pub unsafe fn munmap(address: usize, length: usize) -> isize {
    turn();
    program::nobody_has(address, length, "unmapped");
    // SAFETY: ensured by the caller.
    unsafe { real::munmap(address, length) }
}

/// # Safety
///
/// As for the real one.
pub unsafe fn mremap(old: usize, length: usize, new: usize, flags: usize, to: usize) -> isize {
    turn();
    program::nobody_has(old, length, "moved away");
    program::nobody_has(to, new, "moved over");
    // SAFETY: ensured by the caller.
    unsafe { real::mremap(old, length, new, flags, to) }
}

/// # Safety
///
/// As for the real one.
pub unsafe fn mmap_file(
    address: usize,
    length: usize,
    protection: usize,
    flags: usize,
    _file: usize,
    _offset: usize,
) -> isize {
    // SAFETY: ensured by the caller; the modules of the model map no files.
    unsafe { mmap(address, length, protection, flags) }
}

/// # Safety
///
/// As for the real one.
pub unsafe fn mprotect(address: usize, length: usize, protection: usize) -> isize {
    turn();
    program::nobody_has(address, length, "given other rights");
    // SAFETY: ensured by the caller.
    unsafe { real::mprotect(address, length, protection) }
}
