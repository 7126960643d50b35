//! Shared memory on hugetlb pages. Such pages can only be unmapped whole, but a program unmaps the
//! length that it requested, or parts of it.

use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use crate::state::{round_down, round_up, settings};

struct ShmSegment {
    start: AtomicUsize,
    /// Bytes requested by the program. Zero if parts of it were unmapped.
    asked: AtomicUsize,
    mapped: AtomicUsize,
    page: AtomicUsize,
}

static SEGMENTS: [ShmSegment; 32] = [const {
    ShmSegment {
        start: AtomicUsize::new(0),
        asked: AtomicUsize::new(0),
        mapped: AtomicUsize::new(0),
        page: AtomicUsize::new(0),
    }
}; 32];
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// Records a segment on pages of a size. Returns true if it may be handed out. Without a free slot,
/// only if the program can unmap it without help.
pub fn remember(start: usize, asked: usize, mapped: usize, page: usize) -> bool {
    for segment in &SEGMENTS {
        let free = segment.start.compare_exchange(0, start, Relaxed, Relaxed);
        if free.is_ok() {
            segment.asked.store(asked, Relaxed);
            segment.mapped.store(mapped, Relaxed);
            segment.page.store(page, Relaxed);
            COUNT.fetch_add(1, Relaxed);
            return true;
        }
    }
    asked == mapped
}

/// Returns the length to unmap if the program requests `length` from `start`.
#[inline(always)]
pub fn unmap_length(start: usize, length: usize) -> usize {
    if COUNT.load(Relaxed) == 0 {
        length
    } else {
        look_up(start, length)
    }
}

#[cold]
fn look_up(start: usize, length: usize) -> usize {
    for segment in &SEGMENTS {
        let (asked, mapped) = (segment.asked.load(Relaxed), segment.mapped.load(Relaxed));
        let whole = asked != 0 && length >= asked && length <= mapped;
        if segment.start.load(Relaxed) == start && whole {
            segment.start.store(0, Relaxed);
            COUNT.fetch_sub(1, Relaxed);
            return mapped;
        }
    }
    record_change(start, length);
    length
}

/// Returns the mapped length of the segment that begins at `start`, if any.
pub fn mapped(start: usize) -> Option<usize> {
    let segment = SEGMENTS
        .iter()
        .find(|segment| start != 0 && segment.start.load(Relaxed) == start)?;
    Some(segment.mapped.load(Relaxed))
}

/// Records another change of a range. A segment that it overlaps is no longer whole.
pub fn record_change(start: usize, length: usize) {
    if COUNT.load(Relaxed) != 0
        && let Some(segment) = meeting(start, length)
    {
        segment.asked.store(0, Relaxed);
    }
}

/// Returns the page size of a range that begins in a segment.
pub fn page_of(start: usize) -> Option<usize> {
    if COUNT.load(Relaxed) == 0 {
        return None;
    }
    Some(meeting(start, 1)?.page.load(Relaxed))
}

/// Records that the program moved a range. A whole segment is tracked at its new address. A segment
/// moved in part is no longer tracked as whole.
pub fn record_move(start: usize, length: usize, to: usize) {
    let Some(segment) = meeting(start, 1) else {
        return;
    };
    let (asked, mapped) = (segment.asked.load(Relaxed), segment.mapped.load(Relaxed));
    let whole = asked != 0 && length >= asked && length <= mapped;
    if segment.start.load(Relaxed) == start && whole {
        segment.start.store(to, Relaxed);
    } else {
        segment.asked.store(0, Relaxed);
    }
}

fn meeting(start: usize, length: usize) -> Option<&'static ShmSegment> {
    SEGMENTS.iter().find(|segment| {
        let (first, mapped) = (segment.start.load(Relaxed), segment.mapped.load(Relaxed));
        first != 0 && start < first + mapped && start.saturating_add(length) > first
    })
}

/// Returns the start and length of the whole pages in a range that the kernel refused to unmap, if it
/// is in a segment. The length may be 0. The rest stays until the process ends.
pub fn whole_pages(start: usize, length: usize) -> Option<(usize, usize)> {
    if COUNT.load(Relaxed) == 0 || start & settings().base.wrapping_sub(1) != 0 || length == 0 {
        return None;
    }
    let page = meeting(start, length)?.page.load(Relaxed);
    let (from, to) = (
        round_up(start, page)?,
        round_down(start.checked_add(length)?, page),
    );
    Some((from, to.saturating_sub(from)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: usize = 0x10_0000;

    #[test]
    fn a_piece_is_unmapped_whole_and_once() {
        let start = 0x40_0000;
        assert_eq!(unmap_length(start, 5000), 5000);
        assert!(remember(start, 5000, PAGE, PAGE));
        assert_eq!(unmap_length(start + PAGE, 5000), 5000);
        assert_eq!(unmap_length(start, 5000), PAGE);
        assert_eq!(unmap_length(start, 5000), 5000);
    }

    #[test]
    fn one_that_was_moved_is_known_where_it_is() {
        let (start, to) = (0x1_0000_0000, 0x2_0000_0000);
        assert!(remember(start, 2 * PAGE - 1, 2 * PAGE, PAGE));
        assert_eq!(page_of(start + PAGE), Some(PAGE));
        record_move(start, 2 * PAGE - 1, to);
        assert_eq!((page_of(start), page_of(to)), (None, Some(PAGE)));
        // Move a part. The rest is then unmapped as requested.
        record_move(to, PAGE, start);
        assert_eq!(unmap_length(to, 2 * PAGE - 1), 2 * PAGE - 1);
    }

    #[test]
    fn of_a_part_the_whole_pages_go_and_no_more_than_asked() {
        let start = 0x8000_0000;
        assert!(remember(start, 4 * PAGE - 1, 4 * PAGE, PAGE));
        assert_eq!(whole_pages(start + 1, 2 * PAGE), Some((start + PAGE, PAGE)));
        assert_eq!(whole_pages(start + 1, PAGE), Some((start + PAGE, 0)));
        assert_eq!(whole_pages(start + 8 * PAGE, PAGE), None);
        assert_eq!(unmap_length(start, 2 * PAGE), 2 * PAGE);
        // Other memory may be there by now.
        let rest = 4 * PAGE - 1;
        assert_eq!(unmap_length(start, rest), rest);
    }
}
