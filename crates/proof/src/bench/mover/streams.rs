//! How many drives one server can feed: writers at a fixed rate, more and more of them, until one
//! does not keep up.

use hugeleaf_units::Bytes;
use hugeleaf_workload::mover::{Devices, Load, Moved};

use super::Engine;
use super::result::{Streams, StreamsStep};
use crate::bench::{BenchError, BenchEvent};

/// A drive that gets less of its rate than this has to stop and wind back.
const ENOUGH: f64 = 0.98;
/// Times that the number is looked for, each anew.
const ROUNDS: usize = 3;

impl Engine<'_> {
    /// Looks for the number of streams, arm by arm, in orders drawn anew.
    pub(super) fn streams(
        &mut self,
        rate: Bytes,
        plan: &[(usize, usize)],
        devices: &Devices,
    ) -> Result<(), BenchError> {
        for round in 0..ROUNDS {
            let mut order = plan.to_vec();
            self.random.shuffle(&mut order);
            for (at, (arm, space)) in order.iter().copied().enumerate() {
                (self.progress)(BenchEvent::At {
                    done: (round * order.len() + at) as u64,
                    of: (ROUNDS * order.len()) as u64,
                    what: format!(
                        "streams of {rate}, {} on {}",
                        self.arms[arm].mode, self.arms[arm].label
                    ),
                });
                self.search(rate, arm, space, devices)?;
            }
        }
        Ok(())
    }

    fn search(
        &mut self,
        rate: Bytes,
        arm: usize,
        space: usize,
        devices: &Devices,
    ) -> Result<(), BenchError> {
        let guess = self.guess(arm, rate);
        let mode = self.arms[arm].mode_as_asked();
        let most = devices.targets.len();
        let mut search = Search::new(guess, most);
        let mut steps = Vec::new();
        while let Some(count) = search.next() {
            let load = Load {
                rate: Some(rate),
                ..self.load(mode, devices, count)
            };
            let (moved, _) = self.run(space, &load)?;
            let worst = worst(&moved, rate, load.block);
            search.saw(count, worst >= ENOUGH);
            steps.push(StreamsStep {
                streams: count,
                worst_share: worst,
                sustained: worst >= ENOUGH,
            });
        }
        let streams = self.arms[arm].streams.get_or_insert_with(|| Streams {
            rate_bytes: rate.get(),
            most_tried: most,
            samples: Vec::new(),
            steps: Vec::new(),
        });
        streams.samples.push(search.best());
        streams.steps.push(steps);
        Ok(())
    }

    /// Where to begin: what the arm wrote without a rate.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    fn guess(&self, arm: usize, rate: Bytes) -> usize {
        let written = self.arms[arm].raw.iter().map(|sample| {
            Bytes(sample.written_bytes).as_f64() / sample.seconds / rate.as_f64().max(1.0)
        });
        written.fold(1.0f64, f64::max) as usize
    }
}

/// What the worst of the streams got of its rate. One block more or less is no matter.
fn worst(moved: &Moved, rate: Bytes, block: Bytes) -> f64 {
    let due = rate.as_f64() * moved.time.as_secs_f64();
    let shares = moved
        .by_target
        .iter()
        .map(|got| (*got + block).as_f64() / due);
    shares.fold(f64::INFINITY, f64::min)
}

/// Looks for the largest number that is good, beginning at a guess: by doubling steps away from it,
/// then by halves. Pure.
struct Search {
    /// The most that was seen to be good; 0 is.
    good: usize,
    /// The least that was seen to be too many.
    bad: usize,
    guess: usize,
    step: usize,
}

impl Search {
    fn new(guess: usize, most: usize) -> Search {
        Search {
            good: 0,
            bad: most + 1,
            guess: guess.clamp(1, most.max(1)),
            step: 1,
        }
    }

    fn next(&mut self) -> Option<usize> {
        if self.good + 1 >= self.bad {
            return None;
        }
        let inside = self.guess.clamp(self.good + 1, self.bad - 1);
        Some(inside)
    }

    fn saw(&mut self, count: usize, is_good: bool) {
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

    fn best(&self) -> usize {
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
