//! Promotes existing memory: blocks filled before the process was found to grow, or not reached by
//! a window (heaps of threads, refilled holes).
//!
//! Only almost full blocks are promoted, so that memory does not grow. Their pages must be
//! exclusive to this process, because a collapse copies pages that a forked child still shares.
//!
//! # Safety
//! The buffers are mapped for one step, and lent to it alone.

#![allow(unsafe_code)]

use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use crate::density;
use crate::maps::{PromotableMapping, movable};
use crate::placement::with_buffer;
use crate::state::{Lock, round_down, round_up, settings};
use crate::syscalls::{self, Advice};

/// Allows one sweep at a time.
pub static LOCK: Lock = Lock::new();

/// Page-map entries of a block of 2M with 4K base pages, or of part of a larger one.
type PagemapEntries = [u8; 512 * 8];

/// Lines of maps, and the page-map entries of a block.
struct PromotionBuffers {
    lines: [u8; 8192],
    pages: PagemapEntries,
}

/// Maps the buffers, lends them, and unmaps them.
fn with_buffers(work: impl FnOnce(&mut PromotionBuffers)) {
    // SAFETY: all zeros are valid.
    unsafe { with_buffer(work) };
}

/// Start address of the next step. Zero: the start of memory.
static NEXT: AtomicUsize = AtomicUsize::new(0);

/// Bounds of the blocks that one step promotes.
/// It runs inside a call of the program, and a block takes up to a millisecond. Within the bounds,
/// it promotes as much as the program requested since the last step, which takes as long to fill.
const LEAST: usize = 8;
const MOST: usize = 64;

/// Number of lines of the mapping list that the last step read.
static LINES: AtomicUsize = AtomicUsize::new(0);

/// Returns N: growth by 1/N of the size at the last complete sweep justifies another one.
/// Each sweep reads the list of mappings, which is long for some programs.
pub fn every() -> usize {
    if LINES.load(Relaxed) < 2000 { 64 } else { 4 }
}

/// Continues through the memory of this process and promotes some blocks. Returns true at the end.
#[cold]
pub fn step(asked: usize) -> bool {
    let Some(_held) = LOCK.take() else {
        return true;
    };
    let mut run = BlockRun {
        start: 0,
        end: 0,
        left: (asked / settings().pmd.max(1)).clamp(LEAST, MOST),
    };
    with_buffers(|buffers| go_on(buffers, &mut run));
    NEXT.store(if run.left == 0 { run.end } else { 0 }, Relaxed);
    run.left != 0
}

/// Calls `each` for the lines of this process's maps until it returns false.
pub fn own_maps(each: impl FnMut(&[u8]) -> bool) {
    if let Some(maps) = syscalls::open(b"/proc/self/maps\0", 0) {
        with_buffers(|buffers| each_line(maps, &mut buffers.lines, each));
        syscalls::close(maps);
    }
}

/// Continues after the end of the last step.
fn go_on(buffers: &mut PromotionBuffers, run: &mut BlockRun) {
    let (maps, pagemap) = (
        syscalls::open(b"/proc/self/maps\0", 0),
        syscalls::open(b"/proc/self/pagemap\0", 0),
    );
    if let (Some(maps), Some(pagemap)) = (maps, pagemap) {
        let from = NEXT.load(Relaxed);
        LINES.store(0, Relaxed);
        each_line(maps, &mut buffers.lines, |line| {
            LINES.fetch_add(1, Relaxed);
            match movable(line).filter(|mapping| mapping.end > from) {
                Some(mapping) => {
                    let mapping = PromotableMapping {
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
        syscalls::close(file);
    }
}

/// Adjacent blocks that are promoted with one call, because each call makes all processors drain
/// their lists of new pages.
struct BlockRun {
    start: usize,
    end: usize,
    left: usize,
}

impl BlockRun {
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
            syscalls::advise(self.start, self.end - self.start, Advice::Collapse);
        }
        self.start = self.end;
    }
}

/// Calls `each` for every line of a file until it returns false.
/// Skips lines longer than half the buffer.
fn each_line(file: usize, buffer: &mut [u8; 8192], mut each: impl FnMut(&[u8]) -> bool) {
    let mut filled = 0;
    loop {
        let Some(rest) = buffer.get_mut(filled..) else {
            return;
        };
        let length = syscalls::read(file, rest);
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

/// Moves unused bytes to the front and returns their number.
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

/// Advises a mapping and promotes its full blocks. Returns false at the step's limit.
fn sweep(
    mapping: PromotableMapping,
    pagemap: usize,
    pages: &mut PagemapEntries,
    run: &mut BlockRun,
) -> bool {
    let settings = settings();
    let (Some(mut at), end) = (
        round_up(mapping.start, settings.pmd),
        round_down(mapping.end, settings.pmd),
    ) else {
        return true;
    };
    // Advise private memory only if usage is not judged: after advice, any first touch gives a huge
    // page, however little is used. Explicit requests get all of it. Short mappings are advised
    // too, because neighbours with different advice do not merge, and a block across them stays on
    // base pages.
    let touch = match mapping.shared {
        true => settings.shmem_touch,
        false => settings.touch && !density::judging(),
    };
    if touch {
        syscalls::advise(mapping.start, mapping.end - mapping.start, Advice::HugePage);
    }
    while at < end {
        at = match syscalls::next_small_page(pagemap, at, end) {
            Some(page) => round_down(page, settings.pmd),
            // Kernels before 6.7 cannot scan: check each block.
            None if syscalls::can_scan(pagemap) => break,
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

/// Returns true if at least 15 of 16 pages of a block are in memory, all exclusive to this process
/// (bits 63 and 56, `pagemap.rst` of the kernel's documents).
fn is_own(start: usize, pagemap: usize, buffer: &mut PagemapEntries) -> bool {
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
        if syscalls::pread(pagemap, part, page * 8) != wanted as isize {
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

/// Returns true if at least 15 of 16 pages of a block of shared memory are in memory.
fn is_resident(start: usize, buffer: &mut PagemapEntries) -> bool {
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
        if syscalls::failed(syscalls::mincore(at, length, part)) {
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
