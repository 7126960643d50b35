//! Finds the number of drives that one server can feed: writers at a fixed rate, increased until
//! one does not keep up. Pure.

use crate::kits::backup_io::BackupIoResult;
use hugeleaf_units::Bytes;

/// Minimum part of its rate for a drive; below it a drive must stop and wind back.
pub(super) const ENOUGH: f64 = 0.98;
/// Number of searches, each from the start.
pub(super) const ROUNDS: usize = 3;

/// Returns the part of its rate that the slowest stream got, with a tolerance of one block.
pub(super) fn worst(moved: &BackupIoResult, rate: Bytes, block: Bytes) -> f64 {
    let due = rate.as_f64() * moved.time.as_secs_f64();
    let shares = moved
        .by_target
        .iter()
        .map(|got| (*got + block).as_f64() / due);
    shares.fold(f64::INFINITY, f64::min)
}

/// Searches the largest good number from a guess, first by doubling steps away from it, then by
/// halving. Pure.
pub(super) struct StreamSearch {
    /// Largest number seen to be good; 0 always is.
    good: usize,
    /// Smallest number seen to be too many.
    bad: usize,
    guess: usize,
    step: usize,
}

impl StreamSearch {
    pub(super) fn new(guess: usize, most: usize) -> StreamSearch {
        StreamSearch {
            good: 0,
            bad: most + 1,
            guess: guess.clamp(1, most.max(1)),
            step: 1,
        }
    }

    pub(super) fn next(&mut self) -> Option<usize> {
        if self.good + 1 >= self.bad {
            return None;
        }
        let inside = self.guess.clamp(self.good + 1, self.bad - 1);
        Some(inside)
    }

    pub(super) fn saw(&mut self, count: usize, is_good: bool) {
        if is_good {
            self.good = self.good.max(count);
            self.guess = count + self.step;
        } else {
            self.bad = self.bad.min(count);
            self.guess = count.saturating_sub(self.step);
        }
        self.step *= 2;
        // Between two known numbers, the search halves.
        if self.good > 0 && self.guess >= self.bad || self.guess <= self.good {
            self.guess = usize::midpoint(self.good, self.bad);
        }
    }

    pub(super) fn best(&self) -> usize {
        self.good
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// The answer is found quickly from any guess.
        #[test]
        fn the_largest_good_number_is_found(limit in 0usize..70, guess in 0usize..100) {
            let most = 64;
            let mut search = StreamSearch::new(guess, most);
            let mut steps = 0;
            while let Some(count) = search.next() {
                prop_assert!((1..=most).contains(&count));
                search.saw(count, count <= limit);
                steps += 1;
                prop_assert!(steps <= 16, "{steps} steps");
            }
            prop_assert_eq!(search.best(), limit.min(most));
        }
    }
}
