//! Private mappings on hugetlb pages, requested explicitly (`--data hugetlb:2M`).
//!
//! Programs map 256K or 1M at a time, but a hugetlb page is mapped and unmapped whole. Mappings are
//! therefore cut downwards from hugetlb pages, and a bit per base page shows if the program still has
//! it. A hugetlb page is returned to its pool when no bit is left. Pages are populated before any
//! part is handed out, because exceeding a limit at a fault kills the program.
//!
//! Two operations are impossible on a part of a hugetlb page. For other access rights, the page
//! leaves the pool, if no other thread can write to it. For `mremap`, the content is copied.
//!
//! # Safety
//! Maps only inside a range that it reserved; unmaps only pages that the program no longer uses;
//! replaces pages by copies while the process has one thread.

#![allow(unsafe_code)]

use crate::atomic::{AtomicUsize, Ordering::Relaxed};

use crate::state::{LOCK, round_down, round_up, settings};
use crate::syscalls::{self, flag};
use crate::{heap, placement};

/// Start and end of the range. Zero: none was reserved.
static START: AtomicUsize = AtomicUsize::new(0);
static END: AtomicUsize = AtomicUsize::new(0);
/// Start of the mapped part.
static MAPPED: AtomicUsize = AtomicUsize::new(0);
/// Start of the part handed out.
static CUT: AtomicUsize = AtomicUsize::new(0);
/// Address of the bits: one per base page of the range, set while the program has it, then one per
/// hugetlb page, set after it left the pool.
static BITS: AtomicUsize = AtomicUsize::new(0);

const WORD: usize = usize::BITS as usize;
const NOTHING: usize = flag::PRIVATE | flag::ANONYMOUS | flag::NORESERVE;

/// Returns the smallest requested size, because mappings cut here are small.
fn page() -> usize {
    settings().data.sizes().min().unwrap_or(0)
}

/// Returns a new private mapping of `length` bytes (a multiple of the base page), or `None`.
///
/// Short mappings are excluded, because programs change the rights of parts of those.
pub fn allocate(length: usize) -> Option<usize> {
    let page = page();
    if page == 0 || length < settings().pmd / 8 || !heap::may_use_pools() {
        return None;
    }
    let _held = LOCK.take()?;
    if START.load(Relaxed) == 0 {
        begin(page)?;
    }
    let at = CUT.load(Relaxed).checked_sub(length)?;
    let (start, mapped) = (START.load(Relaxed), MAPPED.load(Relaxed));
    if at < start {
        return None;
    }
    if at < mapped {
        let from = round_down(at, page);
        if !placement::place_hugetlb(from, mapped - from, page, flag::PRIVATE) {
            return None;
        }
        MAPPED.store(from, Relaxed);
    }
    CUT.store(at, Relaxed);
    mark(at, at + length, true);
    Some(at)
}

/// Reserves the range, as large as the host's memory, and its bits.
fn begin(page: usize) -> Option<()> {
    let size = round_up(syscalls::memory()?, page)?;
    let words = bits_of_pages(size) / WORD + 1;
    let length = words * size_of::<usize>();
    let bits = syscalls::map_new(length, flag::MEMORY, NOTHING)?;
    let Some(at) = syscalls::map_new(size.checked_add(page)?, 0, NOTHING) else {
        // SAFETY: mapped above.
        unsafe { syscalls::munmap(bits, length) };
        return None;
    };
    let start = round_up(at, page)?;
    BITS.store(bits, Relaxed);
    for edge in [&END, &MAPPED, &CUT] {
        edge.store(start + size, Relaxed);
    }
    START.store(start, Relaxed);
    Some(())
}

/// Returns the words that hold the bits.
fn words() -> &'static [AtomicUsize] {
    let (start, end) = (START.load(Relaxed), END.load(Relaxed));
    if start == 0 {
        return &[];
    }
    let count = bits_of_pages(end - start) / WORD + 1;
    // SAFETY: mapped by `begin` with that length, and never unmapped.
    unsafe { core::slice::from_raw_parts(BITS.load(Relaxed) as *const AtomicUsize, count) }
}

fn base_pages(bytes: usize) -> usize {
    bytes >> settings().base.trailing_zeros()
}

/// Returns the number of bits for a range: its base pages plus its hugetlb pages.
fn bits_of_pages(size: usize) -> usize {
    base_pages(size) + size / page().max(1)
}

fn bit_of_page(at: usize) -> usize {
    let (start, end) = (START.load(Relaxed), END.load(Relaxed));
    base_pages(end - start) + (at - start) / page().max(1)
}

fn has_left(at: usize) -> bool {
    let bit = bit_of_page(at);
    let word = words().get(bit / WORD);
    word.is_some_and(|word| word.load(Relaxed) >> (bit % WORD) & 1 != 0)
}

fn mark(from: usize, to: usize, has: bool) {
    let (base, start) = (settings().base, START.load(Relaxed));
    set_bits(
        base_pages(from - start),
        base_pages(to - start + base - 1),
        has,
    );
}

fn set_bits(mut at: usize, end: usize, has: bool) {
    let words = words();
    while at < end {
        let count = (WORD - at % WORD).min(end - at);
        let mask = (usize::MAX >> (WORD - count)) << (at % WORD);
        if let Some(word) = words.get(at / WORD) {
            let old = word.load(Relaxed);
            word.store(if has { old | mask } else { old & !mask }, Relaxed);
        }
        at += count;
    }
}

fn has_any(at: usize, page: usize) -> bool {
    let first = base_pages(at - START.load(Relaxed));
    let (from, to) = (first / WORD, (first + base_pages(page)).div_ceil(WORD));
    words()
        .get(from..to)
        .is_some_and(|words| words.iter().any(|word| word.load(Relaxed) != 0))
}

/// Returns true if a range was handed out here and is still on hugetlb pages.
#[inline(always)]
pub fn holds(start: usize, length: usize) -> bool {
    let end = END.load(Relaxed);
    start < end
        && start >= MAPPED.load(Relaxed)
        && length <= end - start
        && length != 0
        && heap::may_use_pools()
}

/// Unmaps a range of the program for which `holds` is true.
/// `start` is a multiple of the base page. Without the lock the range stays as unused memory.
pub fn unmap(start: usize, length: usize) {
    let Some(_held) = LOCK.take() else { return };
    let page = page();
    mark(start, start + length, false);
    let mut at = round_down(start, page);
    while at < start + length {
        let is_begun = round_down(CUT.load(Relaxed), page) == at;
        if has_left(at) {
            let (from, to) = (at.max(start), (at + page).min(start + length));
            // SAFETY: the program's own call; this memory can be unmapped in parts.
            unsafe { syscalls::munmap(from, to - from) };
        } else if !is_begun && !has_any(at, page) {
            // SAFETY: the program no longer has any part of this page.
            unsafe { syscalls::mmap(at, page, 0, NOTHING | flag::FIXED) };
        }
        at += page;
    }
}

/// Implements `mremap(2)` of a range that `holds` and may move. `new` maps the copy.
pub fn remap(old: usize, old_length: usize, length: usize, new: impl FnOnce() -> isize) -> isize {
    if length <= old_length {
        if let Some(rest) = round_up(length, settings().base).filter(|rest| *rest < old_length) {
            unmap(old + rest, old_length - rest);
        }
        return old as isize;
    }
    let at = new();
    if !syscalls::failed(at) {
        // SAFETY: both belong to the program, which gives up the old one.
        unsafe { core::ptr::copy_nonoverlapping(old as *const u8, at as *mut u8, old_length) };
        unmap(old, old_length);
    }
    at
}

/// Moves a range that `holds` to other pages, while the process has one thread.
/// Returns false on failure.
pub fn move_off_pool_part(start: usize, length: usize) -> bool {
    let page = page();
    let mut at = round_down(start, page);
    while at < start + length {
        if !has_left(at) && !move_off_pool_page(at, page) {
            return false;
        }
        at += page;
    }
    true
}

/// Moves everything, while the process has one thread. Returns true if nothing is left.
pub fn move_off_pool() -> bool {
    let (mut at, end, page) = (MAPPED.load(Relaxed), END.load(Relaxed), page());
    while at < end {
        if has_any(at, page) && !has_left(at) && !move_off_pool_page(at, page) {
            return false;
        }
        at += page;
    }
    true
}

fn move_off_pool_page(at: usize, page: usize) -> bool {
    // SAFETY: one thread, as ensured by the callers; the page is populated, and ours.
    let left = unsafe { placement::move_off_hugetlb(at, page) };
    if left {
        let bit = bit_of_page(at);
        set_bits(bit, bit + 1, true);
    }
    left
}
