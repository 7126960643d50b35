//! Private mappings, cut from aligned windows.
//!
//! A mapping of its own begins and ends anywhere, and only the aligned blocks wholly inside it
//! can be huge pages: a program that maps 1M at a time gets none. Cut one below the other from a
//! window that is mapped ahead, neighbours share a block, whatever the sizes; where the window is
//! advised, the first touch of a block is a huge page. Each kind of mapping has windows of its own
//! (`judge`). The kernel sees one mapping that the program later
//! unmaps part by part, as it may.
//!
//! # Safety
//!
//! Maps only what is free, and unmaps only what it mapped and never handed out.

#![allow(unsafe_code)]

use crate::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use crate::calls::{self, Advice, flag};
use crate::judge::{KINDS, judging};
use crate::room::{on_huge_pages, reserve};
use crate::state::{LOCK, RESIDENT, down, settings, up};

/// What is mapped ahead of one kind, and not handed out: from here to there.
struct Window {
    start: AtomicUsize,
    end: AtomicUsize,
}

impl Window {
    const fn new() -> Window {
        Window {
            start: AtomicUsize::new(0),
            end: AtomicUsize::new(0),
        }
    }

    fn set(&self, start: usize, end: usize) {
        self.start.store(start, Relaxed);
        self.end.store(end, Relaxed);
    }
}

/// Of each kind one on small pages and one on huge ones: mappings that are used alike are next to each other.
static WINDOWS: [[Window; 2]; KINDS] = [const { [Window::new(), Window::new()] }; KINDS];

/// A new private mapping of that many bytes (a multiple of the base page), of a kind, on huge pages
/// or not; or `None`: then the program's own call is made, or, where large pages are mandatory,
/// it fails.
pub fn cut(kind: usize, large: bool, length: usize) -> Option<usize> {
    // Where use is not judged nothing is to be kept apart, and each window ends in a page that is begun.
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

/// Leaves the windows, in a forked child: what is mapped below one would not become one mapping
/// with it, because its pages are shared with the parent's, and then a mapping across both
/// could not be moved in one `mremap`.
pub fn leave() {
    for window in WINDOWS.iter().flatten() {
        window.set(0, 0);
    }
}

/// With memory that is locked as soon as it is mapped (`mlockall(2)`), nothing is mapped ahead.
pub static LOCKED: AtomicBool = AtomicBool::new(false);

/// Maps more window: below the old one, so that what is left of that stays in use, or elsewhere.
fn extend(window: &Window, large: bool, length: usize) -> Option<()> {
    let settings = settings();
    let (start, end) = (window.start.load(Relaxed), window.end.load(Relaxed));
    let ahead = match LOCKED.load(Relaxed) {
        true => settings.pmd,
        false => (RESIDENT.load(Relaxed) / 32)
            .max(2 * settings.pmd)
            .min(16 * settings.pmd),
    };
    let size = up(length.checked_sub(end - start)?.max(ahead), settings.pmd)?;
    let below = start.checked_sub(size).filter(|_| start != 0);
    if let Some(below) = below.and_then(|below| map_at(below, size)) {
        window.start.store(below, Relaxed);
        return prepare(window, large, below, size);
    }
    let size = up(length.max(ahead), settings.pmd)?;
    let fresh = map_aligned(size)?;
    if end > start {
        // SAFETY: the rest of the old window, never handed out.
        unsafe { calls::munmap(start, end - start) };
    }
    window.set(fresh, fresh + size);
    prepare(window, large, fresh, size)
}

/// Advises a new part of a window of huge pages; where large pages are mandatory it is populated
/// and must be on them, or it is taken back.
fn prepare(window: &Window, large: bool, start: usize, size: usize) -> Option<()> {
    if large && settings().touch {
        calls::advise(start, size, Advice::HugePage);
    }
    if settings().data.mandatory && !on_huge_pages(start, size) {
        // SAFETY: mapped above, not handed out.
        unsafe { calls::munmap(start, size) };
        let end = window.end.load(Relaxed);
        window.start.store((start + size).min(end), Relaxed);
        return None;
    }
    Some(())
}

fn map_at(start: usize, size: usize) -> Option<usize> {
    let flags = flag::PRIVATE | flag::ANONYMOUS | flag::FIXED_NOREPLACE;
    // SAFETY: takes nothing that is mapped; old kernels take the address as a hint.
    let at = unsafe { calls::mmap(start, size, flag::MEMORY, flags) };
    if calls::failed(at) {
        return None;
    }
    if at as usize != start {
        // SAFETY: mapped just now.
        unsafe { calls::munmap(at as usize, size) };
        return None;
    }
    Some(start)
}

fn map_aligned(size: usize) -> Option<usize> {
    let at = calls::map_new(size, flag::MEMORY, flag::PRIVATE)?;
    if at == down(at, settings().pmd) {
        return Some(at);
    }
    // SAFETY: mapped just now.
    unsafe { calls::munmap(at, size) };
    reserve(size, 0)?.open(size, flag::MEMORY).ok()
}
