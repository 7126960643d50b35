//! Private mappings, cut from aligned windows.
//!
//! A separate mapping begins and ends anywhere, and only aligned blocks that lie completely inside it can be
//! huge pages. A program that maps 1M at a time gets none. Mappings of any size that are cut downwards from a
//! window mapped ahead share blocks with their neighbours. If the window is advised, the first touch of a
//! block gives a huge page. Each kind of mapping has its own windows (`density`). The kernel sees one mapping
//! that the program later unmaps part by part, which is allowed.
//!
//! # Safety
//! Maps only free addresses, and unmaps only what it mapped and never handed out.

#![allow(unsafe_code)]

use crate::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use crate::density::{KINDS, judging};
use crate::placement::{populate_and_promote, reserve};
use crate::state::{LOCK, RESIDENT, round_down, round_up, settings};
use crate::syscalls::{self, Advice, flag};

/// The part of a window that is mapped but not handed out, for one kind.
struct MappingWindow {
    start: AtomicUsize,
    end: AtomicUsize,
}

impl MappingWindow {
    const fn new() -> MappingWindow {
        MappingWindow {
            start: AtomicUsize::new(0),
            end: AtomicUsize::new(0),
        }
    }

    fn set(&self, start: usize, end: usize) {
        self.start.store(start, Relaxed);
        self.end.store(end, Relaxed);
    }
}

/// One window on base pages and one on huge pages for each kind, so that neighbours have similar usage.
static WINDOWS: [[MappingWindow; 2]; KINDS] =
    [const { [MappingWindow::new(), MappingWindow::new()] }; KINDS];

/// Returns a new private mapping of `length` bytes (a multiple of the base page), on huge pages if `large`.
/// `None` makes the caller issue the program's own call, or fail if huge pages are mandatory.
pub fn allocate(kind: usize, large: bool, length: usize) -> Option<usize> {
    // Without a judgement of usage, kinds need no separate windows, and each window costs a partly used page.
    let kind = if judging() { kind } else { 0 };
    let window = WINDOWS.get(kind)?.get(usize::from(large))?;
    let _held = LOCK.take()?;
    let (start, end) = (window.start.load(Relaxed), window.end.load(Relaxed));
    if end - start < length {
        extend(window, large, length)?;
    }
    let at = window.end.load(Relaxed).checked_sub(length)?;
    window.end.store(at, Relaxed);
    Some(at)
}

/// Drops the windows in a forked child. Their pages are shared with the parent, so memory mapped below would
/// not merge with them, and a mapping across both could not be moved by one `mremap`.
pub fn leave() {
    for window in WINDOWS.iter().flatten() {
        window.set(0, 0);
    }
}

/// True if memory is locked as soon as it is mapped (`mlockall(2)`). Nothing is then mapped ahead.
pub static LOCKED: AtomicBool = AtomicBool::new(false);

/// Maps more window below the old one, so that its rest stays in use, or elsewhere.
fn extend(window: &MappingWindow, large: bool, length: usize) -> Option<()> {
    let settings = settings();
    let (start, end) = (window.start.load(Relaxed), window.end.load(Relaxed));
    let ahead = match LOCKED.load(Relaxed) {
        true => settings.pmd,
        false => (RESIDENT.load(Relaxed) / 32)
            .max(2 * settings.pmd)
            .min(16 * settings.pmd),
    };
    let size = round_up(length.checked_sub(end - start)?.max(ahead), settings.pmd)?;
    let below = start.checked_sub(size).filter(|_| start != 0);
    if let Some(below) = below.and_then(|below| map_at(below, size)) {
        window.start.store(below, Relaxed);
        return prepare(window, large, below, size);
    }
    let size = round_up(length.max(ahead), settings.pmd)?;
    let fresh = map_aligned(size)?;
    if end > start {
        // SAFETY: the rest of the old window, never handed out.
        unsafe { syscalls::munmap(start, end - start) };
    }
    window.set(fresh, fresh + size);
    prepare(window, large, fresh, size)
}

/// Advises a new part of a window.
/// If huge pages are mandatory, the part is populated, and unmapped if it is not on huge pages.
fn prepare(window: &MappingWindow, large: bool, start: usize, size: usize) -> Option<()> {
    if large && settings().touch {
        syscalls::advise(start, size, Advice::HugePage);
    }
    if settings().data.mandatory && !populate_and_promote(start, size) {
        // SAFETY: mapped above, not handed out.
        unsafe { syscalls::munmap(start, size) };
        let end = window.end.load(Relaxed);
        window.start.store((start + size).min(end), Relaxed);
        return None;
    }
    Some(())
}

fn map_at(start: usize, size: usize) -> Option<usize> {
    let flags = flag::PRIVATE | flag::ANONYMOUS | flag::FIXED_NOREPLACE;
    // SAFETY: replaces nothing; old kernels treat the address as a hint.
    let at = unsafe { syscalls::mmap(start, size, flag::MEMORY, flags) };
    if syscalls::failed(at) {
        return None;
    }
    if at as usize != start {
        // SAFETY: mapped just now.
        unsafe { syscalls::munmap(at as usize, size) };
        return None;
    }
    Some(start)
}

fn map_aligned(size: usize) -> Option<usize> {
    let at = syscalls::map_new(size, flag::MEMORY, flag::PRIVATE)?;
    if at == round_down(at, settings().pmd) {
        return Some(at);
    }
    // SAFETY: mapped just now.
    unsafe { syscalls::munmap(at, size) };
    reserve(size, 0)?.open(size, flag::MEMORY).ok()
}
