//! Splits a mapping into blocks, and counts the pages of each.

use hugeleaf_host::{PageRun, PageState, ProcessMapping};
use hugeleaf_units::{Bytes, PageSize, Range};

/// The page counts of a range of memory, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PageStateBytes {
    /// Resident bytes without the zero page, which costs nothing until it is filled.
    pub present: Bytes,
    pub zero: Bytes,
    pub swapped: Bytes,
    pub huge: Bytes,
    pub exclusive: Bytes,
    /// Exclusive bytes on base pages.
    pub exclusive_base: Bytes,
    pub file: Bytes,
    /// Guard pages.
    pub guard: Bytes,
    /// The maximum that KSM may have merged. `smaps` has the merged bytes of a whole mapping, and the page map shows
    /// pages that others also map.
    pub merged: Bytes,
}

impl PageStateBytes {
    /// Counts the pages of a range within one block. A page under migration reads as swapped.
    pub fn from_runs(range: Range, runs: &[PageRun]) -> PageStateBytes {
        let mut tally = PageStateBytes::default();
        for run in runs {
            if let Some(part) = run.range.intersect(range) {
                tally.add(part.len(), run.state);
            }
        }
        tally
    }

    fn add(&mut self, len: Bytes, state: PageState) {
        let huge = state.has(PageState::HUGE);
        if state.has(PageState::GUARD) {
            self.guard += len;
        }
        if state.has(PageState::SWAPPED) {
            self.swapped += len;
        }
        if state.has(PageState::PRESENT.with(PageState::ZERO)) && !huge {
            self.zero += len;
        }
        if !is_resident(state) {
            return;
        }
        let own = state.has(PageState::EXCLUSIVE);
        self.present += len;
        for (holds, sum) in [
            (huge, &mut self.huge),
            (own, &mut self.exclusive),
            (own && !huge, &mut self.exclusive_base),
            (state.has(PageState::FILE), &mut self.file),
        ] {
            if holds {
                *sum += len;
            }
        }
    }

    pub fn on_base(&self) -> Bytes {
        self.present - self.huge
    }

    pub fn is_empty(&self) -> bool {
        (self.present + self.swapped).is_zero()
    }

    /// Counts the zero pages that a split left as present, because they are known to be the process's own.
    pub fn with_zeros_as_present(self) -> PageStateBytes {
        PageStateBytes {
            zero: Bytes::ZERO,
            ..self.and_own(self.zero)
        }
    }

    fn and_own(self, more: Bytes) -> PageStateBytes {
        PageStateBytes {
            present: self.present + more,
            exclusive: self.exclusive + more,
            exclusive_base: self.exclusive_base + more,
            ..self
        }
    }
}

/// True if the page is in memory and is not the zero page.
pub fn is_resident(state: PageState) -> bool {
    state.has(PageState::PRESENT) && !state.has(PageState::ZERO)
}

/// A block of a mapping, or the part before its first or after its last block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MappingPart {
    pub range: Range,
    /// True for a whole block, with the size and alignment of a huge page.
    pub whole: bool,
    pub tally: PageStateBytes,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockPageRun {
    pub slot: Range,
    pub whole: bool,
    pub range: Range,
    pub state: PageState,
}

/// Splits `runs` at the boundaries of the blocks of `size` inside `range`.
pub fn parts(range: Range, size: PageSize, runs: &[PageRun]) -> impl Iterator<Item = BlockPageRun> {
    let inner = range.aligned_inside(size);
    let of_run = move |run: &PageRun| {
        let (state, part) = (run.state, run.range.intersect(range));
        let mut at = part.map_or(0, |part| part.start());
        std::iter::from_fn(move || {
            let part = part.filter(|part| at < part.end())?;
            let (slot, whole) = slot_at(range, inner, size, at);
            let range = Range::new(at, part.end().min(slot.end())).ok()?;
            at = range.end();
            Some(BlockPageRun {
                slot,
                whole,
                range,
                state,
            })
        })
    };
    runs.iter().flat_map(of_run)
}

fn slot_at(range: Range, inner: Option<Range>, size: PageSize, at: u64) -> (Range, bool) {
    let Some(inner) = inner else {
        return (range, false);
    };
    let (start, end) = if at < inner.start() {
        (range.start(), inner.start())
    } else if at >= inner.end() {
        (inner.end(), range.end())
    } else {
        let start = size.round_down(at);
        (start, start.saturating_add(size.bytes().get()))
    };
    // The three cases are inside the range and contain `at`, so they are never empty.
    (Range::new(start, end).unwrap_or(range), inner.contains(at))
}

/// Splits a mapping with the pages `runs` into slots, in order. Slots without resident or swapped pages are omitted.
pub fn cut(segment: &ProcessMapping, size: PageSize, runs: &[PageRun]) -> Vec<MappingPart> {
    let mut slots: Vec<MappingPart> = Vec::new();
    for part in parts(segment.range, size, runs) {
        if slots.last().map(|slot| slot.range) != Some(part.slot) {
            slots.push(MappingPart {
                range: part.slot,
                whole: part.whole,
                tally: PageStateBytes::default(),
            });
        }
        if let Some(slot) = slots.last_mut() {
            slot.tally.add(part.range.len(), part.state);
        }
    }
    slots.retain(|slot| !slot.tally.is_empty());
    for MappingPart { tally, .. } in &mut slots {
        tally.merged = segment.merged.min(tally.present - tally.exclusive);
    }
    // A page under migration (compaction) reads as swapped, but smaps is correct.
    if segment.swapped.is_zero() {
        for slot in &mut slots {
            let moving = std::mem::take(&mut slot.tally.swapped);
            slot.tally = slot.tally.and_own(moving);
        }
    }
    slots
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::why::tests::testing;
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
            let mut runs = Vec::new();
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
                runs.push(PageRun { range, state });
            }
            let mut segment = testing::anon(range.start(), range.len().get());
            segment.swapped = Bytes(1);
            let slots = cut(&segment, size, &runs);
            let sum: Bytes = slots.iter().map(|s| s.tally.present).sum();
            prop_assert_eq!(sum, Bytes(present));
            for pair in slots.windows(2) {
                prop_assert!(pair[0].range.end() <= pair[1].range.start());
            }
            for s in &slots {
                prop_assert!(range.intersect(s.range) == Some(s.range));
                prop_assert!(!s.whole || (size.divides(s.range.start()) && s.range.len() == size.bytes()));
                prop_assert!(s.tally.present + s.tally.swapped <= s.range.len());
                let alone = PageStateBytes::from_runs(s.range, &runs);
                prop_assert_eq!(alone, s.tally);
            }
        }
    }
}
