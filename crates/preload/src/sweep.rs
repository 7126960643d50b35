//! Moves what is already there: blocks that were filled before the process was found to grow, or
//! that no window reached (heaps of threads, holes that were filled again).
//!
//! Only blocks that are as good as full are taken, so that memory does not grow; and only pages
//! that are this process's alone, because a collapse copies what a forked child still shares.
//!
//! # Safety
//!
//! The buffers are mapped for one step, and lent to it alone.

#![allow(unsafe_code)]

use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use crate::calls::{self, Advice};
use crate::judge;
use crate::maps::{Mapping, movable};
use crate::room::lend;
use crate::state::{Lock, down, settings, up};

/// One sweep at a time.
pub static LOCK: Lock = Lock::new();

/// Page-map entries of a block of 2M in pages of 4K, or of part of a larger one.
type Entries = [u8; 512 * 8];

/// Lines of maps, and the page-map entries of a block.
struct Buffers {
    lines: [u8; 8192],
    pages: Entries,
}

/// Maps the buffers, lends them, and unmaps them.
fn with_buffers(work: impl FnOnce(&mut Buffers)) {
    // SAFETY: zeros.
    unsafe { lend(work) };
}

/// Where the next step begins; zero: at the start of memory.
static NEXT: AtomicUsize = AtomicUsize::new(0);

/// Blocks that one step moves: it happens inside a call of the program, and a block takes up to a
/// millisecond. As many as the program asked for since the last one, which takes as long to fill,
/// but within these bounds.
const LEAST: usize = 8;
const MOST: usize = 64;

/// Lines of the list of mappings that the last step read.
static LINES: AtomicUsize = AtomicUsize::new(0);

/// The part of what was there that must have come since a whole sweep before another is worth it:
/// the list of mappings is read for each, and that of some programs is long.
pub fn every() -> usize {
    if LINES.load(Relaxed) < 2000 { 64 } else { 4 }
}

/// Goes on through the memory of this process and moves what may be moved, some blocks at a
/// time. Whether the end was reached.
#[cold]
pub fn step(asked: usize) -> bool {
    let Some(_held) = LOCK.take() else {
        return true;
    };
    let mut run = Run {
        start: 0,
        end: 0,
        left: (asked / settings().pmd.max(1)).clamp(LEAST, MOST),
    };
    with_buffers(|buffers| go_on(buffers, &mut run));
    NEXT.store(if run.left == 0 { run.end } else { 0 }, Relaxed);
    run.left != 0
}

/// Calls `each` for the lines of this process's maps until it says no.
pub fn own_maps(each: impl FnMut(&[u8]) -> bool) {
    if let Some(maps) = calls::open(b"/proc/self/maps\0", 0) {
        with_buffers(|buffers| each_line(maps, &mut buffers.lines, each));
        calls::close(maps);
    }
}

/// Goes on from where the last step ended.
fn go_on(buffers: &mut Buffers, run: &mut Run) {
    let (maps, pagemap) = (
        calls::open(b"/proc/self/maps\0", 0),
        calls::open(b"/proc/self/pagemap\0", 0),
    );
    if let (Some(maps), Some(pagemap)) = (maps, pagemap) {
        let from = NEXT.load(Relaxed);
        LINES.store(0, Relaxed);
        each_line(maps, &mut buffers.lines, |line| {
            LINES.fetch_add(1, Relaxed);
            match movable(line).filter(|mapping| mapping.end > from) {
                Some(mapping) => {
                    let mapping = Mapping {
                        start: mapping.start.max(from),
                        ..mapping
                    };
                    sweep(mapping, pagemap, &mut buffers.pages, run)
                }
                None => true,
            }
        });
        run.flush();
    }
    for file in [maps, pagemap].into_iter().flatten() {
        calls::close(file);
    }
}

/// Neighbouring blocks that are moved with one call, because each call has every processor put
/// its newest pages onto the lists first.
struct Run {
    start: usize,
    end: usize,
    left: usize,
}

impl Run {
    fn add(&mut self, block: usize, length: usize) {
        if self.end != block {
            self.flush();
            self.start = block;
        }
        self.end = block + length;
        self.left -= 1;
    }

    fn flush(&mut self) {
        if self.end > self.start {
            calls::advise(self.start, self.end - self.start, Advice::Collapse);
        }
        self.start = self.end;
    }
}

/// Calls `each` for every line of a file until it says no; lines longer than half the buffer are
/// passed over.
fn each_line(file: usize, buffer: &mut [u8; 8192], mut each: impl FnMut(&[u8]) -> bool) {
    let mut filled = 0;
    loop {
        let Some(rest) = buffer.get_mut(filled..) else {
            return;
        };
        let length = calls::read(file, rest);
        if length <= 0 {
            return;
        }
        filled += length as usize;
        let mut start = 0;
        while let Some(text) = buffer.get(start..filled) {
            let Some(end) = text.iter().position(|byte| *byte == b'\n') else {
                break;
            };
            if !text.get(..end).is_some_and(&mut each) {
                return;
            }
            start += end + 1;
        }
        if start == 0 && filled > buffer.len() / 2 {
            filled = 0;
            continue;
        }
        filled = keep_rest(buffer, start, filled);
    }
}

/// Moves what was not used yet to the front; how much that is.
fn keep_rest(buffer: &mut [u8; 8192], start: usize, filled: usize) -> usize {
    let mut kept = 0;
    for from in start..filled {
        let byte = buffer.get(from).copied();
        if let (Some(byte), Some(to)) = (byte, buffer.get_mut(kept)) {
            *to = byte;
        }
        kept += 1;
    }
    kept
}

/// Advises a mapping and moves its full blocks; false where the step has done enough.
fn sweep(mapping: Mapping, pagemap: usize, pages: &mut Entries, run: &mut Run) -> bool {
    let settings = settings();
    let (Some(mut at), end) = (
        up(mapping.start, settings.pmd),
        down(mapping.end, settings.pmd),
    ) else {
        return true;
    };
    // Private memory only where it was found used as a whole (`judge`): a first touch of what is
    // advised is a huge page, however little of it is used. Who asked for it by name has it all.
    // Short ones too: neighbours that differ in advice stay apart, and a block across them small.
    let touch = match mapping.shared {
        true => settings.shmem_touch,
        false => settings.touch && !judge::judging(),
    };
    if touch {
        calls::advise(mapping.start, mapping.end - mapping.start, Advice::HugePage);
    }
    while at < end {
        at = match calls::next_small_page(pagemap, at, end) {
            Some(page) => down(page, settings.pmd),
            // Kernels before 6.7 cannot say: look at each block.
            None if calls::can_scan(pagemap) => break,
            None => at,
        };
        let full = if mapping.shared {
            is_resident(at, pages)
        } else {
            is_own(at, pagemap, pages)
        };
        if full {
            run.add(at, settings.pmd);
            if run.left == 0 {
                return false;
            }
        }
        at += settings.pmd;
    }
    true
}

/// Whether at least 15 of 16 pages of a block are in memory, and each is this process's alone:
/// bits 63 and 56 of its entry (`pagemap.rst` of the kernel's documents).
fn is_own(start: usize, pagemap: usize, buffer: &mut Entries) -> bool {
    const PRESENT: u64 = 1 << 63;
    const EXCLUSIVE: u64 = 1 << 56;
    let settings = settings();
    let shift = settings.base.trailing_zeros();
    let (mut page, last) = (start >> shift, (start + settings.pmd) >> shift);
    let allowed = (last - page) / 16;
    let mut missing = 0;
    while page < last {
        let wanted = ((last - page) * 8).min(buffer.len());
        let Some(part) = buffer.get_mut(..wanted) else {
            return false;
        };
        if calls::pread(pagemap, part, page * 8) != wanted as isize {
            return false;
        }
        for entry in part.as_chunks::<8>().0 {
            let entry = u64::from_le_bytes(*entry);
            if entry & PRESENT == 0 {
                missing += 1;
            } else if entry & EXCLUSIVE == 0 {
                return false;
            }
        }
        if missing > allowed {
            return false;
        }
        page += wanted / 8;
    }
    true
}

/// Whether at least 15 of 16 pages of a block of shared memory are in memory.
fn is_resident(start: usize, buffer: &mut Entries) -> bool {
    let settings = settings();
    let (mut at, end) = (start, start + settings.pmd);
    let shift = settings.base.trailing_zeros();
    let allowed = (settings.pmd >> shift) / 16;
    let mut missing = 0;
    while at < end {
        let length = (end - at).min(buffer.len() * settings.base);
        let Some(part) = buffer.get_mut(..length >> shift) else {
            return false;
        };
        if calls::failed(calls::mincore(at, length, part)) {
            return false;
        }
        missing += part.iter().filter(|page| **page & 1 == 0).count();
        if missing > allowed {
            return false;
        }
        at += length;
    }
    true
}
