//! How many drives one server can feed: writers at a fixed rate, more and more of them, until one
//! does not keep up. Pure.

use crate::kits::mover::Moved;
use hugeleaf_units::Bytes;

/// A drive that gets less of its rate than this has to stop and wind back.
pub(super) const ENOUGH: f64 = 0.98;
/// Times that the number is looked for, each anew.
pub(super) const ROUNDS: usize = 3;

/// What the worst of the streams got of its rate. One block more or less is no matter.
pub(super) fn worst(moved: &Moved, rate: Bytes, block: Bytes) -> f64 {
    let due = rate.as_f64() * moved.time.as_secs_f64();
    let shares = moved
        .by_target
        .iter()
        .map(|got| (*got + block).as_f64() / due);
    shares.fold(f64::INFINITY, f64::min)
}

/// Looks for the largest number that is good, beginning at a guess: by doubling steps away from it,
/// then by halves. Pure.
pub(super) struct Search {
    /// The most that was seen to be good; 0 is.
    good: usize,
    /// The least that was seen to be too many.
    bad: usize,
    guess: usize,
    step: usize,
}

impl Search {
    pub(super) fn new(guess: usize, most: usize) -> Search {
        Search {
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
        // Once it is between two, by halves.
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
        /// Whatever the guess, the answer is found, and soon.
        #[test]
        fn the_largest_good_number_is_found(limit in 0usize..70, guess in 0usize..100) {
            let most = 64;
            let mut search = Search::new(guess, most);
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
