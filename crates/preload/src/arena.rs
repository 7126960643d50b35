//! The heaps of malloc's threads.
//!
//! Glibc reserves 64M without access rights for each and makes them usable page by page with
//! `mprotect`. The usable part of a block never fits a huge page at its first touch. So when such a
//! heap enters a new block, the whole block is made usable at once. This applies only to ranges
//! reserved in that way and only to calls from libc, because other programs keep guard pages in their
//! reservations.
//!
//! # Safety
//! Gives access rights only inside such a reservation, above the part that malloc uses.

#![allow(unsafe_code)]

use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use crate::state::{RESIDENT, round_down, round_up, settings};
use crate::syscalls::{self, Advice, flag};
use crate::{density, process_size_threshold};

/// Size and alignment of such a heap: `HEAP_MAX_SIZE` of glibc's `malloc/arena.c`, twice the largest
/// dynamic threshold of 32M.
const HEAP: usize = 64 << 20;

/// Maximum number of heaps tracked: eight arenas per processor, for 64 processors.
const MOST: usize = 512;

/// Address of the array of `MOST` heap bases, mapped for the first heap, and the number of heaps.
static KNOWN: AtomicUsize = AtomicUsize::new(0);
static COUNT: AtomicUsize = AtomicUsize::new(0);
/// Number of blocks made usable before malloc requested it.
static AHEAD: AtomicUsize = AtomicUsize::new(0);

/// Records memory that was reserved without access rights.
pub fn reserved(start: usize, length: usize) {
    if length != HEAP && length != 2 * HEAP {
        return;
    }
    let Some(base) = round_up(start, HEAP) else {
        return;
    };
    if KNOWN.load(Relaxed) == 0 {
        begin();
    }
    if base + HEAP > start + length || find(base).is_some() {
        return;
    }
    if let Some(slot) = find(0) {
        slot.store(base, Relaxed);
        COUNT.fetch_add(1, Relaxed);
    }
}

pub fn unmapped(start: usize, length: usize) {
    if length >= HEAP
        && COUNT.load(Relaxed) != 0
        && let Some(slot) = find(start)
    {
        slot.store(0, Relaxed);
        COUNT.fetch_sub(1, Relaxed);
    }
}

fn find(base: usize) -> Option<&'static AtomicUsize> {
    let known = KNOWN.load(Relaxed) as *const [AtomicUsize; MOST];
    // SAFETY: null, or the array that `begin` mapped, which is never unmapped.
    let known = unsafe { known.as_ref() }?;
    known.iter().find(|known| known.load(Relaxed) == base)
}

/// Maps the array. If two threads do so at once, one mapping is released.
fn begin() {
    let length = size_of::<[AtomicUsize; MOST]>();
    let Some(at) = syscalls::map_new(length, flag::MEMORY, flag::PRIVATE) else {
        return;
    };
    if KNOWN.compare_exchange(0, at, Relaxed, Relaxed).is_err() {
        // SAFETY: mapped above.
        unsafe { syscalls::munmap(at, length) };
    }
}

/// Handles a range that libc made readable and writable. Returns true if it is in such a heap.
pub fn grew(start: usize, length: usize) -> bool {
    let settings = settings();
    if COUNT.load(Relaxed) == 0 {
        return false;
    }
    let base = round_down(start, HEAP);
    if find(base).is_none() {
        return false;
    }
    process_size_threshold::note(length);
    let large = process_size_threshold::use_huge(density::ARENA, length);
    density::record(density::ARENA, start, length, large);
    let end = start + length;
    let (Some(next), Some(to)) = (round_up(start, settings.pmd), round_up(end, settings.pmd))
    else {
        return true;
    };
    if !large || !settings.touch || end <= next || !affordable() {
        return true;
    }
    // SAFETY: inside the reservation, which is a multiple of the huge page.
    let result = unsafe { syscalls::mprotect(end, to - end, flag::MEMORY) };
    if !syscalls::failed(result) {
        AHEAD.fetch_add(1, Relaxed);
        // Advise from the start of the block, otherwise the block would span two mappings.
        let block = round_down(start, settings.pmd);
        syscalls::advise(block, to - block, Advice::HugePage);
    }
    true
}

/// Returns true if one more partly used block is affordable.
/// Each heap has one, and all together must stay small compared with resident memory.
fn affordable() -> bool {
    if settings().data.mandatory {
        return true;
    }
    let heaps = COUNT.load(Relaxed).min(AHEAD.load(Relaxed) + 1);
    heaps * settings().pmd * 16 <= RESIDENT.load(Relaxed)
}
