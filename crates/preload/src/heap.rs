//! The heap that grows by `brk`: malloc's first arena, and programs that call `sbrk`.
//!
//! Malloc grows it by 132K. Here the kernel's break runs ahead of libc's to the end of a huge page,
//! which is advised before it is touched. Memory that libc returns stays until a whole huge page is
//! free. It is zeroed before it is handed out again, as `brk(2)` promises.
//!
//! With a pool for private memory, the heap grows in a separate range, where hugetlb pages can be
//! mapped, and not from the program's break.
//!
//! # Safety
//! Moves the break only to libc's request or above it, and writes zeros only to memory that libc does
//! not use. Libc does not lock its break either: callers of `sbrk` must not race (malloc locks).

#![allow(unsafe_code)]

use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use crate::placement::populate_and_promote;
use crate::state::{
    growing, is_inactive, libc_break, round_down, round_up, set_libc_break, settings,
};
use crate::syscalls::{self, Advice, flag};
use crate::{density, mandatory, messages, placement, process_size_threshold};

/// The kernel's break, or the end of the mapped part of our own range.
static MAPPED: AtomicUsize = AtomicUsize::new(0);
/// End of possibly old content above libc's break.
static STALE: AtomicUsize = AtomicUsize::new(0);
/// Memory below this address is not returned, because `--reserve` requested it.
static KEPT: AtomicUsize = AtomicUsize::new(0);
/// Start and end of our own range. Zero: the heap is the kernel's.
static OWN_START: AtomicUsize = AtomicUsize::new(0);
static OWN_END: AtomicUsize = AtomicUsize::new(0);

/// True after a fork made this process leave its hugetlb pages.
/// The heap may be on such pages again from `POOL_FROM`; memory below was moved then.
static LEFT: AtomicBool = AtomicBool::new(false);
static POOL_FROM: AtomicUsize = AtomicUsize::new(0);

/// The start of the heap, or of the part before this library.
static FIRST: AtomicUsize = AtomicUsize::new(0);
/// True if the program changed mappings inside its heap. None of it is then kept.
static STRICT: AtomicBool = AtomicBool::new(false);

/// Records that the program changes rights or mappings of a range. If it is in the heap, returned
/// memory must be unmapped, because fresh memory has fresh rights (`brk(2)`).
pub fn changed(start: usize, length: usize) {
    /// Maximum size of a heap that existed before this library.
    const BEFORE: usize = 64 << 20;
    let (first, mapped) = (FIRST.load(Relaxed), MAPPED.load(Relaxed));
    if start < mapped && start.saturating_add(length) > first.saturating_sub(BEFORE) {
        STRICT.store(true, Relaxed);
    }
}

/// Implements `brk(3)`. Returns 0 or `-ENOMEM`.
pub fn set(to: usize) -> isize {
    if libc_break() == 0 {
        begin();
    }
    match to {
        0 => 0,
        _ => set_from(libc_break(), to),
    }
}

fn begin() {
    // SAFETY: only reads the break.
    let now = unsafe { syscalls::brk(0) };
    MAPPED.store(now, Relaxed);
    STALE.store(0, Relaxed);
    set_libc_break(now);
}

fn set_from(now: usize, to: usize) -> isize {
    if MAPPED.load(Relaxed) < now {
        // The break was moved before this library was loaded.
        MAPPED.store(now, Relaxed);
    }
    if FIRST.load(Relaxed) == 0 {
        FIRST.store(now, Relaxed);
    }
    if to < now {
        return shrink(now, to);
    }
    let mapped = MAPPED.load(Relaxed);
    if to > mapped {
        process_size_threshold::note(to - mapped);
        let large = process_size_threshold::use_huge(density::HEAP, to - mapped);
        if !extend(mapped, to, large) {
            return mandatory::refused(mandatory::MemoryRole::Data);
        }
        // More memory may have been mapped than requested.
        let bytes = MAPPED.load(Relaxed).max(to) - mapped;
        density::record_as(density::HEAP, mapped, to - mapped, bytes, large);
        process_size_threshold::note(bytes - (to - mapped));
    }
    clear(now, to);
    set_libc_break(to);
    0
}

/// Zeroes old content in the part of `[from, to)` that may be stale.
fn clear(from: usize, to: usize) {
    let stale = STALE.load(Relaxed);
    if stale <= from {
        return;
    }
    let to = to.min(stale);
    // SAFETY: mapped, above libc's break and below the new one, so not in use yet.
    unsafe { core::ptr::write_bytes(from as *mut u8, 0, to - from) };
}

fn shrink(now: usize, to: usize) -> isize {
    let own = OWN_START.load(Relaxed);
    if own != 0 && to < own {
        return syscalls::ENOMEM;
    }
    let step = match own {
        0 => settings().pmd,
        _ => pool_step(),
    };
    let kept = growing() && step != 0 || KEPT.load(Relaxed) != 0;
    if own == 0 && (!kept || STRICT.load(Relaxed)) {
        // SAFETY: libc returns it.
        let result = unsafe { syscalls::brk(to) };
        MAPPED.store(result, Relaxed);
        STALE.store(0, Relaxed);
        set_libc_break(result);
        return 0;
    }
    STALE.store(now.max(STALE.load(Relaxed)), Relaxed);
    let Some(keep) = round_up(to, step) else {
        return syscalls::ENOMEM;
    };
    let keep = keep.max(KEPT.load(Relaxed));
    let mapped = MAPPED.load(Relaxed);
    if keep < mapped {
        release(keep, mapped);
        density::heap_shrank(mapped - keep);
        MAPPED.store(keep, Relaxed);
        STALE.store(keep.min(STALE.load(Relaxed)), Relaxed);
    }
    set_libc_break(to);
    0
}

/// Returns `[from, to)` to the kernel.
fn release(from: usize, to: usize) {
    if OWN_START.load(Relaxed) == 0 {
        // SAFETY: above libc's break.
        unsafe { syscalls::brk(from) };
        return;
    }
    let flags = flag::PRIVATE | flag::ANONYMOUS | flag::FIXED;
    // SAFETY: inside our own range, above libc's break. Mapping memory without rights cannot fail for lack
    // of memory after the old mapping is unmapped.
    unsafe { syscalls::mmap(from, to - from, 0, flags) };
}

/// Maps from `mapped` at least to `to`, on huge pages to the end of one.
fn extend(mapped: usize, to: usize, large: bool) -> bool {
    if OWN_START.load(Relaxed) != 0 {
        return extend_own(mapped, to);
    }
    let settings = settings();
    // No range for hugetlb pages could be reserved (`start`), and only those are acceptable.
    if settings.data.hugetlb_only() {
        return false;
    }
    if !large || settings.pmd == 0 || is_inactive() {
        return move_break(to);
    }
    let Some(ahead) = round_up(to, settings.pmd) else {
        return false;
    };
    if !move_break(ahead) {
        return !settings.data.mandatory && move_break(to);
    }
    if settings.touch {
        // Advise from the start of the block, otherwise the block would span two mappings.
        let from = round_down(mapped, settings.pmd).max(FIRST.load(Relaxed));
        let from = round_down(from, settings.base);
        syscalls::advise(from, ahead - from, Advice::HugePage);
    }
    let blocks = round_up(mapped, settings.pmd).unwrap_or(ahead);
    if settings.data.mandatory && !populate_and_promote(blocks, ahead - blocks) {
        move_break(mapped);
        return false;
    }
    true
}

fn move_break(to: usize) -> bool {
    // SAFETY: at or above libc's break.
    let result = unsafe { syscalls::brk(to) };
    let moved = result >= to;
    if moved {
        MAPPED.store(result, Relaxed);
    }
    moved
}

/// Reserves a range of `size` bytes for a heap on hugetlb pages and sets libc's break to its start.
/// Returns false on failure.
pub fn begin_own(size: usize) -> bool {
    let step = pool_step();
    let Some(whole) = size.checked_add(step) else {
        return false;
    };
    // Without access rights it counts only for a limit on addresses.
    let at = syscalls::map_new(whole, 0, flag::PRIVATE);
    let Some(start) = at.and_then(|at| round_up(at, step)) else {
        return false;
    };
    OWN_START.store(start, Relaxed);
    OWN_END.store(start + round_down(size, step), Relaxed);
    MAPPED.store(start, Relaxed);
    set_libc_break(start);
    true
}

/// Returns true if private memory may use hugetlb pages.
/// False without a heap range for them, and after a fork unless only hugetlb pages are acceptable.
pub fn may_use_pools() -> bool {
    OWN_START.load(Relaxed) != 0 && (!LEFT.load(Relaxed) || settings().data.hugetlb_only())
}

/// Moves hugetlb memory to THP before a fork. Returns true if none is left.
///
/// # Safety
/// No other thread runs.
pub unsafe fn move_off_pools() -> bool {
    let (own, end) = (OWN_START.load(Relaxed), MAPPED.load(Relaxed));
    let start = own.max(POOL_FROM.load(Relaxed));
    if own != 0 && start < end {
        // SAFETY: ensured by the caller; the heap is mapped up to there.
        if !unsafe { placement::move_off_hugetlb(start, end - start) } {
            return false;
        }
        POOL_FROM.store(end, Relaxed);
        if settings().data.hugetlb_only() {
            messages::once(
                &[b"fork: private memory copied from reserved pages to THP; \
                later memory is on reserved pages again"],
            );
        }
    }
    LEFT.store(true, Relaxed);
    true
}

fn pool_step() -> usize {
    let settings = settings();
    let largest = settings.data.sizes().fold(settings.pmd, usize::max);
    largest.max(settings.base)
}

fn extend_own(mapped: usize, to: usize) -> bool {
    let Some(ahead) = round_up(to, pool_step()) else {
        return false;
    };
    if ahead > OWN_END.load(Relaxed) {
        return false;
    }
    let data = &settings().data;
    let place = |size| placement::place_hugetlb(mapped, ahead - mapped, size, flag::PRIVATE);
    let on_pool = may_use_pools() && data.sizes().any(place);
    if on_pool {
        POOL_FROM.fetch_min(mapped, Relaxed);
    }
    if on_pool || (!data.hugetlb_only() && map_transparent(mapped, ahead)) {
        MAPPED.store(ahead, Relaxed);
        return true;
    }
    false
}

fn map_transparent(from: usize, to: usize) -> bool {
    let length = to - from;
    // SAFETY: inside our own range, above what is used of it: private memory without rights.
    let opened = unsafe { syscalls::mprotect(from, length, flag::MEMORY) };
    if syscalls::failed(opened) {
        return false;
    }
    syscalls::advise(from, length, Advice::HugePage);
    if settings().data.mandatory && !populate_and_promote(from, length) {
        release(from, to);
        return false;
    }
    true
}

/// Takes populated heap before the program does. Returns true if all of it was available, on huge
/// pages if they are mandatory. Otherwise nothing is taken.
pub fn reserve(bytes: usize) -> bool {
    if libc_break() == 0 {
        begin();
    }
    let mapped = MAPPED.load(Relaxed).max(libc_break());
    let Some(to) = mapped
        .checked_add(bytes)
        .and_then(|to| round_up(to, settings().pmd.max(1)))
    else {
        return false;
    };
    MAPPED.store(mapped, Relaxed);
    if !extend(mapped, to, growing()) {
        return false;
    }
    let from = round_down(mapped, settings().base);
    if !placement::populate(from, to - from, settings().base) {
        release(mapped, to);
        MAPPED.store(mapped, Relaxed);
        return false;
    }
    KEPT.store(to, Relaxed);
    true
}
