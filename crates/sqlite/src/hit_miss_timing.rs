//! Measures how much longer a miss takes than a hit, so that the benefit of memory is measured and not guessed.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Number of times kept of each kind.
const KEPT: usize = 63;
/// Minimum number of times for a result.
const ENOUGH: usize = 15;

/// Times from a call until SQLite's next one. After a miss SQLite reads the page from the file, after a hit it does
/// not; all its other work is the same. The median is used, because a program may do anything between two calls.
#[derive(Debug, Default)]
pub(crate) struct HitMissTiming {
    hits: Mutex<VecDeque<Duration>>,
    misses: Mutex<VecDeque<Duration>>,
}

fn median(last: &Mutex<VecDeque<Duration>>) -> Option<Duration> {
    let last = last.lock().unwrap_or_else(PoisonError::into_inner);
    let mut times: Vec<Duration> = last.iter().copied().collect();
    times.sort_unstable();
    let middle = times.get(times.len() / 2).copied();
    middle.filter(|_| times.len() >= ENOUGH)
}

impl HitMissTiming {
    pub fn record_time(&self, time: Duration, hit: bool) {
        let last = if hit { &self.hits } else { &self.misses };
        // If the list is being read now, this sample is skipped.
        if let Ok(mut last) = last.try_lock() {
            if last.len() == KEPT {
                last.pop_front();
            }
            last.push_back(time);
        }
    }

    /// Returns the additional time of a miss; `None` before enough were timed.
    pub fn miss(&self) -> Option<Duration> {
        let hit = median(&self.hits).unwrap_or_default();
        median(&self.misses).map(|miss| miss.saturating_sub(hit))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_miss_costs_what_it_takes_more_than_a_hit() {
        let timing = HitMissTiming::default();
        assert_eq!(timing.miss(), None);
        for n in 0..100 {
            // Every fourth sample is a program that does other work in between.
            let pause = if n % 4 == 0 { 1000 } else { 0 };
            timing.record_time(Duration::from_micros(2 + pause), true);
            timing.record_time(Duration::from_micros(30 + pause), false);
        }
        assert_eq!(timing.miss(), Some(Duration::from_micros(28)));
    }
}
