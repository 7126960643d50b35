//! How much of a range the program has used.
//!
//! On small pages the page map says it. In a huge page it cannot: there the content is looked at,
//! at some places, and a page that is all zero was not used. Content is read through
//! `/proc/self/mem`, so that memory that went meanwhile is an error and not a fault, and only
//! where a page is present, so that nothing is read in from swap.
//!
//! # Safety
//!
//! The buffers are mapped for one look, and lent to it alone.

#![allow(unsafe_code)]

use crate::calls;
use crate::room::lend;
use crate::state::settings;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// Some of it is not mapped any more.
    Gone,
    Untouched,
    /// In the parts of it that are there at all: used pages, of how many.
    Pages {
        used: usize,
        of: usize,
        parts: usize,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// At which pages are there: the range is on small ones.
    Pages,
    /// At the content of some pages: the range may be on huge ones.
    Content,
    Thorough,
}

/// Page-map entries that are read at a time: a block of 2M in pages of 4K, or part of a larger one.
pub const ENTRIES: usize = 512;

/// Buffers of a look: the stack of a thread can be too small for them.
pub struct Scratch {
    entries: [u8; ENTRIES * 8],
    there: [bool; ENTRIES],
    content: [u8; ENTRIES * 8],
}

impl Scratch {
    /// Maps them, lends them, and unmaps them.
    pub fn lend(work: impl FnOnce(&mut Scratch)) {
        // SAFETY: zeros and `false`.
        unsafe { lend(work) };
    }
}

/// This process's page map and memory. A process that changed its user may not open them
/// (`PR_SET_DUMPABLE` of prctl(2)): then `mincore` and `process_vm_readv` serve, which tell nothing
/// of what is shared.
pub struct Files {
    pagemap: Option<usize>,
    memory: Option<usize>,
}

/// Places of a block whose content is looked at.
const PLACES: usize = 16;
/// Blocks of a long range that are looked at.
const BLOCKS: usize = 4;

impl Files {
    pub fn open() -> Files {
        Files {
            pagemap: calls::open(b"/proc/self/pagemap\0", 0),
            memory: calls::open(b"/proc/self/mem\0", 0),
        }
    }

    pub fn close(&self) {
        for file in [self.pagemap, self.memory].into_iter().flatten() {
            calls::close(file);
        }
    }

    /// Looks at a range that was handed out on huge pages, or on small ones.
    pub fn look_at(&self, scratch: &mut Scratch, start: usize, length: usize, how: How) -> Found {
        let settings = settings();
        let block = settings.pmd.min(ENTRIES * settings.base);
        let last = start.saturating_add(length.saturating_sub(1)) & !(settings.base - 1);
        let gone = |at| calls::mincore(at, settings.base, &mut [0]) == calls::ENOMEM;
        if gone(start) || gone(last) {
            return Found::Gone;
        }
        let blocks = length.div_ceil(block.max(1));
        let (mut used, mut of, mut parts) = (0, 0, 0);
        for place in 0..blocks.min(BLOCKS) {
            // The first, the last, and some between them.
            let index = place * blocks.saturating_sub(1) / (blocks.min(BLOCKS) - 1).max(1);
            let at = start + index * block;
            let (more, all) = self.block(scratch, at, block.min(start + length - at), how);
            if more != 0 || all != 0 && blocks > 1 && how != How::Pages {
                used += more;
                of += all;
                parts += usize::from(more != 0);
            }
        }
        match used {
            0 => Found::Untouched,
            _ => Found::Pages { used, of, parts },
        }
    }

    /// Used pages of a block, and how many it has; or of the places of it that were looked at. No
    /// page is there: nothing of nothing.
    fn block(
        &self,
        scratch: &mut Scratch,
        start: usize,
        length: usize,
        how: How,
    ) -> (usize, usize) {
        let base = settings().base;
        let pages = length.div_ceil(base.max(1)).min(ENTRIES);
        if !self.find_pages(scratch, start, pages) {
            return (0, 0);
        }
        let there = scratch.there.iter().take(pages).filter(|page| **page);
        let there = there.count();
        if how == How::Pages || there == 0 {
            return (there, if there == 0 { 0 } else { pages });
        }
        let places = match how {
            How::Thorough => pages,
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

    /// Which pages of a block are in memory, and not shared with another process; whether that is
    /// known.
    fn find_pages(&self, scratch: &mut Scratch, start: usize, pages: usize) -> bool {
        const PRESENT_AND_OWN: u64 = 1 << 63 | 1 << 56;
        let base = settings().base;
        let Some(pagemap) = self.pagemap else {
            let Some(part) = scratch.entries.get_mut(..pages) else {
                return false;
            };
            let known = !calls::failed(calls::mincore(start, pages * base, part));
            for (there, page) in scratch.there.iter_mut().zip(part) {
                *there = *page & 1 != 0;
            }
            return known;
        };
        let Some(part) = scratch.entries.get_mut(..pages * 8) else {
            return false;
        };
        let offset = (start >> base.trailing_zeros()) * 8;
        let known = calls::pread(pagemap, part, offset) == part.len() as isize;
        for (there, entry) in scratch.there.iter_mut().zip(part.as_chunks::<8>().0) {
            *there = u64::from_le_bytes(*entry) & PRESENT_AND_OWN == PRESENT_AND_OWN;
        }
        known
    }

    /// Whether a page has a byte that is not zero; not where it cannot be read.
    fn holds_something(&self, content: &mut [u8; ENTRIES * 8], page: usize) -> bool {
        let base = settings().base;
        let mut done = 0;
        while done < base {
            // Most pages that hold something do so at their beginning.
            let wanted = if done == 0 { 256 } else { content.len() };
            let wanted = wanted.min(base - done);
            let Some(part) = content.get_mut(..wanted) else {
                return false;
            };
            let got = match self.memory {
                Some(memory) => calls::pread(memory, part, page + done),
                None => calls::read_own(page + done, part),
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

/// A page of the `place`th part of a block: not at the same distance each time, and the same at
/// every look.
fn within(start: usize, place: usize, pages: usize, places: usize) -> usize {
    let (from, to) = (place * pages / places, (place + 1) * pages / places);
    let drawn = (start >> 12)
        .wrapping_add(place)
        .wrapping_mul(0x9e37_79b9_7f4a_7c15);
    from + (drawn >> 40) % (to - from).max(1)
}
