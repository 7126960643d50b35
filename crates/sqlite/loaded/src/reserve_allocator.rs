//! The allocator of this library: the program's heap and, if that is exhausted, a small reserve. Lists that may be long
//! are allocated fallibly. All other allocations are small, and abort the program if they fail.
//!
//! # Safety
//! Memory from the reserve is within it, aligned, and handed out once: it is never reused.

#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::UnsafeCell;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicUsize, Ordering};

const SIZE: usize = 256 << 10;
/// Maximum size taken from the reserve. Larger requests fail, which their callers handle.
const LARGEST: usize = 4 << 10; // not a page size

pub struct ReserveAllocator {
    /// Not touched, and so not resident, before it is needed.
    memory: UnsafeCell<[u8; SIZE]>,
    used: AtomicUsize,
}

// SAFETY: each part is handed out once.
unsafe impl Sync for ReserveAllocator {}

impl ReserveAllocator {
    pub const fn new() -> ReserveAllocator {
        ReserveAllocator {
            memory: UnsafeCell::new([0; SIZE]),
            used: AtomicUsize::new(0),
        }
    }

    fn take(&self, layout: Layout) -> *mut u8 {
        let start = self.memory.get().cast::<u8>();
        if layout.size() > LARGEST {
            return null_mut();
        }
        let mut at = 0;
        let next = |used: usize| {
            at = (start as usize + used).next_multiple_of(layout.align()) - start as usize;
            Some(at + layout.size()).filter(|end| *end <= SIZE)
        };
        match { &self.used }.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next) {
            // SAFETY: it is within the reserve.
            Ok(_) => unsafe { start.add(at) },
            Err(_) => null_mut(),
        }
    }

    fn has(&self, pointer: *const u8) -> bool {
        let start = self.memory.get() as usize;
        (start..start + SIZE).contains(&(pointer as usize))
    }
}

// SAFETY: memory is the system's or a part of the reserve; the latter is never freed.
unsafe impl GlobalAlloc for ReserveAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as the caller promises.
        match unsafe { System.alloc(layout) } {
            none if none.is_null() => self.take(layout),
            some => some,
        }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        if !self.has(pointer) {
            // SAFETY: as the caller promises.
            unsafe { System.dealloc(pointer, layout) };
        }
    }
}
