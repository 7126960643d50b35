use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::{Bytes, PageSize, ParseError};

/// A non-empty half-open range of addresses `[start, end)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "UncheckedRange")]
pub struct Range {
    start: u64,
    end: u64,
}

/// The error for a range whose end is not above its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{start:x}-{end:x} is not a range: its end is not above its start")]
pub struct EmptyRangeError {
    start: u64,
    end: u64,
}

/// An unvalidated range, as read from a file.
#[derive(Deserialize)]
struct UncheckedRange {
    start: u64,
    end: u64,
}

impl TryFrom<UncheckedRange> for Range {
    type Error = EmptyRangeError;
    fn try_from(ends: UncheckedRange) -> Result<Range, EmptyRangeError> {
        Range::new(ends.start, ends.end)
    }
}

impl Range {
    /// Creates the range `[start, end)`.
    ///
    /// # Errors
    /// [`EmptyRangeError`] unless `start < end`.
    pub const fn new(start: u64, end: u64) -> Result<Range, EmptyRangeError> {
        if start < end {
            Ok(Range { start, end })
        } else {
            Err(EmptyRangeError { start, end })
        }
    }

    /// Returns the first address.
    pub const fn start(self) -> u64 {
        self.start
    }

    /// Returns the first address past the range.
    pub const fn end(self) -> u64 {
        self.end
    }

    /// Returns the length; never 0.
    pub const fn len(self) -> Bytes {
        Bytes(self.end - self.start)
    }

    /// Returns false, because a range has at least one byte.
    pub const fn is_empty(self) -> bool {
        false
    }

    /// True if the address is inside.
    pub const fn contains(self, address: u64) -> bool {
        self.start <= address && address < self.end
    }

    /// Returns the intersection of both ranges.
    pub fn intersect(self, other: Range) -> Option<Range> {
        Range::new(self.start.max(other.start), self.end.min(other.end)).ok()
    }

    /// Returns the largest part that starts and ends at a multiple of `size`. `None` if no whole
    /// page of that size fits.
    pub fn aligned_inside(self, size: PageSize) -> Option<Range> {
        Range::new(size.round_up(self.start)?, size.round_down(self.end)).ok()
    }

    /// Splits into ranges of at most `step` bytes, in order. Boundaries are multiples of `step`.
    pub fn chunks(self, step: PageSize) -> impl Iterator<Item = Range> {
        let mut at = self.start;
        std::iter::from_fn(move || {
            let next = step.round_down(at).saturating_add(step.bytes().get());
            let chunk = Range::new(at, next.min(self.end)).ok()?;
            at = chunk.end;
            Some(chunk)
        })
    }
}

impl FromStr for Range {
    type Err = ParseError;

    /// Parses the address field of `/proc/PID/maps`: `start-end` in hexadecimal.
    fn from_str(text: &str) -> Result<Range, ParseError> {
        let hex = |digits| u64::from_str_radix(digits, 16).ok();
        text.split_once('-')
            .and_then(|(start, end)| Range::new(hex(start)?, hex(end)?).ok())
            .ok_or_else(|| {
                ParseError(format!(
                    "'{text}' is not a range of addresses; expected start-end"
                ))
            })
    }
}

impl fmt::Display for Range {
    /// Formats as in `/proc/PID/maps`: `start-end` in hexadecimal.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}-{:x}", self.start, self.end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn aligned_inside_takes_whole_pages_only() {
        let p: PageSize = "4K".parse().unwrap();
        let r = |a, b| Range::new(a, b).unwrap();
        assert_eq!(r(1, 8192).aligned_inside(p), Some(r(4096, 8192)));
        assert_eq!(r(1, 8191).aligned_inside(p), None);
        assert!(Range::new(5, 5).is_err());
        assert_eq!("1-2000".parse(), Ok(r(1, 8192)));
        assert!("2000-1".parse::<Range>().is_err() && "1".parse::<Range>().is_err());
    }

    proptest! {
        #[test]
        fn chunks_cover_the_range_exactly(start in 0u64..100_000, len in 1u64..100_000, shift in 4u32..16) {
            let range = Range::new(start, start + len).unwrap();
            let step = PageSize::new(Bytes(1 << shift)).unwrap();
            let mut at = range.start();
            for chunk in range.chunks(step) {
                prop_assert_eq!(chunk.start(), at);
                prop_assert!(chunk.len() <= step.bytes());
                prop_assert!(chunk.end() == range.end() || step.divides(chunk.end()));
                at = chunk.end();
            }
            prop_assert_eq!(at, range.end());
        }
    }
}
