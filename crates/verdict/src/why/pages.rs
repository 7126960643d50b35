//! A segment cut into stretches whose pages are alike.

use hugeleaf_host::{PageMap, PageState};
use hugeleaf_units::{Bytes, PageSize, Range};

/// What the pages of one stretch are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tally {
    /// Where.
    pub range: Range,
    /// Whether it is one whole large page; otherwise it is what a segment has before its first
    /// and after its last.
    pub whole: bool,
    /// Resident: in memory, and not the zero page.
    pub present: Bytes,
    /// Of those mapped large.
    pub huge: Bytes,
    /// Of those on base pages that another process maps too.
    pub not_exclusive: Bytes,
    /// In swap.
    pub swapped: Bytes,
}

impl Tally {
    fn new(range: Range, whole: bool) -> Tally {
        Tally {
            range,
            whole,
            present: Bytes::ZERO,
            huge: Bytes::ZERO,
            not_exclusive: Bytes::ZERO,
            swapped: Bytes::ZERO,
        }
    }

    /// Resident on base pages.
    pub fn on_base(&self) -> Bytes {
        self.present.saturating_sub(self.huge)
    }

    /// Neither in memory nor in swap.
    pub fn missing(&self) -> Bytes {
        self.range.len() - self.present - self.swapped
    }
}

/// One tally for each large page of `size` inside `range`, in order, with what lies before the
/// first and after the last. Those with nothing resident are left out.
pub fn tallies(range: Range, size: PageSize, map: &PageMap) -> Vec<Tally> {
    let inner = range.aligned_inside(size);
    let mut out: Vec<Tally> = Vec::new();
    for run in &map.runs {
        let Some(part) = run.range.intersect(range) else {
            continue;
        };
        let mut at = part.start();
        while at < part.end() {
            let slot = slot_at(range, inner, size, at);
            if out.last().map(|t| t.range) != Some(slot.range) {
                out.push(slot);
            }
            let end = part.end().min(slot.range.end());
            if let (Some(tally), Ok(piece)) = (out.last_mut(), Range::new(at, end)) {
                add(tally, piece.len(), run.state, map.exclusive_known);
            }
            at = end;
        }
    }
    out.retain(|t| !(t.present + t.swapped).is_zero());
    out
}

/// The stretch that holds the address: a whole large page, or an end of the segment.
fn slot_at(range: Range, inner: Option<Range>, size: PageSize, at: u64) -> Tally {
    let Some(inner) = inner else {
        return Tally::new(range, false);
    };
    let (start, end) = if at < inner.start() {
        (range.start(), inner.start())
    } else if at >= inner.end() {
        (inner.end(), range.end())
    } else {
        let start = size.round_down(at);
        (start, start.saturating_add(size.bytes().get()))
    };
    // The three cases lie inside the range and hold `at`, so they are never empty.
    Tally::new(Range::new(start, end).unwrap_or(range), inner.contains(at))
}

fn add(tally: &mut Tally, bytes: Bytes, state: PageState, exclusive_known: bool) {
    if state.has(PageState::SWAPPED) {
        tally.swapped += bytes;
        return;
    }
    if !state.has(PageState::PRESENT) || state.has(PageState::ZERO) {
        return;
    }
    tally.present += bytes;
    if state.has(PageState::HUGE) {
        tally.huge += bytes;
    } else if exclusive_known && !state.has(PageState::EXCLUSIVE) {
        tally.not_exclusive += bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hugeleaf_host::PageRun;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn no_page_is_counted_twice_and_none_is_lost(
            start in 0u64..40,
            len in 1u64..100,
            cuts in proptest::collection::vec((1u64..30, 0u8..5), 0..20),
        ) {
            let base = 16u64;
            let size = PageSize::new(Bytes(base * 8)).unwrap();
            let range = Range::new(start * base, (start + len) * base).unwrap();
            let mut at = range.start();
            let mut map = PageMap { runs: Vec::new(), huge_known: true, exclusive_known: true };
            let mut present = 0;
            for (pages, kind) in cuts {
                let end = (at + pages * base).min(range.end());
                let Ok(range) = Range::new(at, end) else { break };
                at = end;
                let state = match kind {
                    0 => continue,
                    1 => PageState::SWAPPED,
                    2 => PageState::PRESENT.with(PageState::ZERO),
                    3 => PageState::PRESENT,
                    _ => PageState::PRESENT.with(PageState::EXCLUSIVE),
                };
                if kind > 2 {
                    present += range.len().get();
                }
                map.runs.push(PageRun { range, state });
            }
            let tallies = tallies(range, size, &map);
            let sum: Bytes = tallies.iter().map(|t| t.present).sum();
            prop_assert_eq!(sum, Bytes(present));
            for pair in tallies.windows(2) {
                prop_assert!(pair[0].range.end() <= pair[1].range.start());
            }
            for t in &tallies {
                prop_assert!(range.intersect(t.range) == Some(t.range));
                prop_assert!(!t.whole || (size.divides(t.range.start()) && t.range.len() == size.bytes()));
                prop_assert!(t.present + t.swapped <= t.range.len());
            }
        }
    }
}
