//! Measures how much of a range the program has used.
//!
//! For base pages, the page map shows it. For huge pages, the content of some places is read, and
//! an all-zero page counts as unused. Content is read through `/proc/self/mem`, so that memory
//! unmapped meanwhile gives an error and not a fault. Only present pages are read, so that nothing
//! is swapped in.
//!
//! # Safety
//! The buffers are mapped for one check, and lent to it alone.

#![allow(unsafe_code)]

use crate::placement::with_buffer;
use crate::state::settings;
use crate::syscalls;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RangeUsage {
    /// Part of it is no longer mapped.
    Gone,
    Untouched,
    /// Used pages, and the total, of the parts that exist.
    Pages {
        used: usize,
        of: usize,
        parts: usize,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SampleMethod {
    /// Count present pages, for a range on base pages.
    Pages,
    /// Read the content of some pages, for a range that may be on huge pages.
    Content,
    Thorough,
}

/// Page-map entries read at once: a block of 2M with 4K base pages, or part of a larger one.
pub const ENTRIES: usize = 512;

/// Buffers of a check, which may be too large for a thread's stack.
pub struct SampleBuffers {
    entries: [u8; ENTRIES * 8],
    there: [bool; ENTRIES],
    content: [u8; ENTRIES * 8],
}

impl SampleBuffers {
    /// Maps the buffers, lends them, and unmaps them.
    pub fn lend(work: impl FnOnce(&mut SampleBuffers)) {
        // SAFETY: all zeros are valid integers and `false`.
        unsafe { with_buffer(work) };
    }
}

/// The page map and memory of this process.
/// A process that changed its user may not open them (`PR_SET_DUMPABLE` of prctl(2)). `mincore` and
/// `process_vm_readv` are then used, which do not show if a page is shared.
pub struct ProcFiles {
    pagemap: Option<usize>,
    memory: Option<usize>,
}

/// Number of places read per block.
const PLACES: usize = 16;
/// Number of blocks checked in a long range.
const BLOCKS: usize = 4;

impl ProcFiles {
    pub fn open() -> ProcFiles {
        ProcFiles {
            pagemap: syscalls::open(b"/proc/self/pagemap\0", 0),
            memory: syscalls::open(b"/proc/self/mem\0", 0),
        }
    }

    pub fn close(&self) {
        for file in [self.pagemap, self.memory].into_iter().flatten() {
            syscalls::close(file);
        }
    }

    /// Checks a range on huge pages or on base pages.
    pub fn sample_range(
        &self,
        scratch: &mut SampleBuffers,
        start: usize,
        length: usize,
        how: SampleMethod,
    ) -> RangeUsage {
        let settings = settings();
        let block = settings.pmd.min(ENTRIES * settings.base);
        let last = start.saturating_add(length.saturating_sub(1)) & !(settings.base - 1);
        let gone = |at| syscalls::mincore(at, settings.base, &mut [0]) == syscalls::ENOMEM;
        if gone(start) || gone(last) {
            return RangeUsage::Gone;
        }
        let blocks = length.div_ceil(block.max(1));
        let (mut used, mut of, mut parts) = (0, 0, 0);
        for place in 0..blocks.min(BLOCKS) {
            // The first, the last, and some between them.
            let index = place * blocks.saturating_sub(1) / (blocks.min(BLOCKS) - 1).max(1);
            let at = start + index * block;
            let (more, all) = self.block(scratch, at, block.min(start + length - at), how);
            if more != 0 || all != 0 && blocks > 1 && how != SampleMethod::Pages {
                used += more;
                of += all;
                parts += usize::from(more != 0);
            }
        }
        match used {
            0 => RangeUsage::Untouched,
            _ => RangeUsage::Pages { used, of, parts },
        }
    }

    /// Returns the used and total pages of a block, or of its checked places.
    /// Both are 0 if no page is present.
    fn block(
        &self,
        scratch: &mut SampleBuffers,
        start: usize,
        length: usize,
        how: SampleMethod,
    ) -> (usize, usize) {
        let base = settings().base;
        let pages = length.div_ceil(base.max(1)).min(ENTRIES);
        if !self.find_pages(scratch, start, pages) {
            return (0, 0);
        }
        let there = scratch.there.iter().take(pages).filter(|page| **page);
        let there = there.count();
        if how == SampleMethod::Pages || there == 0 {
            return (there, if there == 0 { 0 } else { pages });
        }
        let places = match how {
            SampleMethod::Thorough => pages,
            _ => pages.min(PLACES),
        };
        let mut used = 0;
        for place in 0..places {
            let index = within(start, place, pages, places);
            let touched = scratch.there.get(index) == Some(&true)
                && self.holds_something(&mut scratch.content, start + index * base);
            used += usize::from(touched);
        }
        (used, places)
    }

    /// Finds the pages of a block that are in memory and not shared with another process.
    /// Returns false if unknown.
    fn find_pages(&self, scratch: &mut SampleBuffers, start: usize, pages: usize) -> bool {
        const PRESENT_AND_OWN: u64 = 1 << 63 | 1 << 56;
        let base = settings().base;
        let Some(pagemap) = self.pagemap else {
            let Some(part) = scratch.entries.get_mut(..pages) else {
                return false;
            };
            let known = !syscalls::failed(syscalls::mincore(start, pages * base, part));
            for (there, page) in scratch.there.iter_mut().zip(part) {
                *there = *page & 1 != 0;
            }
            return known;
        };
        let Some(part) = scratch.entries.get_mut(..pages * 8) else {
            return false;
        };
        let offset = (start >> base.trailing_zeros()) * 8;
        let known = syscalls::pread(pagemap, part, offset) == part.len() as isize;
        for (there, entry) in scratch.there.iter_mut().zip(part.as_chunks::<8>().0) {
            *there = u64::from_le_bytes(*entry) & PRESENT_AND_OWN == PRESENT_AND_OWN;
        }
        known
    }

    /// Returns true if a page has a non-zero byte. False if it is unreadable.
    fn holds_something(&self, content: &mut [u8; ENTRIES * 8], page: usize) -> bool {
        let base = settings().base;
        let mut done = 0;
        while done < base {
            // Most pages with content have some at their start.
            let wanted = if done == 0 { 256 } else { content.len() };
            let wanted = wanted.min(base - done);
            let Some(part) = content.get_mut(..wanted) else {
                return false;
            };
            let got = match self.memory {
                Some(memory) => syscalls::pread(memory, part, page + done),
                None => syscalls::read_own(page + done, part),
            };
            if got != wanted as isize {
                return false;
            }
            if part.iter().any(|byte| *byte != 0) {
                return true;
            }
            done += wanted;
        }
        false
    }
}

/// Returns a page in the `place`th part of a block.
/// Distances vary, but every check picks the same pages.
fn within(start: usize, place: usize, pages: usize, places: usize) -> usize {
    let (from, to) = (place * pages / places, (place + 1) * pages / places);
    let drawn = (start >> 12)
        .wrapping_add(place)
        .wrapping_mul(0x9e37_79b9_7f4a_7c15);
    from + (drawn >> 40) % (to - from).max(1)
}
