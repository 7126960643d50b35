//! How much longer a miss takes than a hit: what memory saves is measured here, and not guessed.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// So many of each kind are remembered.
const KEPT: usize = 63;
/// Fewer say nothing.
const ENOUGH: usize = 15;

/// Times from a call until SQLite's next one. After a miss SQLite reads the page from the file, after a hit it does not;
/// all else it does is the same. The median, because a program may do anything between two calls.
#[derive(Debug, Default)]
pub(crate) struct Timing {
    hits: Mutex<Last>,
    misses: Mutex<Last>,
}

#[derive(Debug, Default)]
struct Last {
    times: Vec<Duration>,
    next: usize,
}

impl Last {
    fn add(&mut self, time: Duration) {
        if self.times.len() < KEPT {
            return self.times.push(time);
        }
        self.times[self.next] = time;
        self.next = (self.next + 1) % KEPT;
    }

    fn median(&self) -> Option<Duration> {
        let mut times = self.times.clone();
        times.sort_unstable();
        let middle = times.get(times.len() / 2).copied();
        middle.filter(|_| times.len() >= ENOUGH)
    }
}

impl Timing {
    pub fn took(&self, time: Duration, hit: bool) {
        let last = if hit { &self.hits } else { &self.misses };
        // One that is read now is one of many.
        if let Ok(mut last) = last.try_lock() {
            last.add(time);
        }
    }

    /// How much longer a miss takes; `None` before enough were timed.
    pub fn miss(&self) -> Option<Duration> {
        let median =
            |last: &Mutex<Last>| last.lock().unwrap_or_else(PoisonError::into_inner).median();
        let hit = median(&self.hits).unwrap_or_default();
        median(&self.misses).map(|miss| miss.saturating_sub(hit))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_miss_costs_what_it_takes_more_than_a_hit() {
        let timing = Timing::default();
        assert_eq!(timing.miss(), None);
        for n in 0..100 {
            // One in four is a program that does something else meanwhile.
            let pause = if n % 4 == 0 { 1000 } else { 0 };
            timing.took(Duration::from_micros(2 + pause), true);
            timing.took(Duration::from_micros(30 + pause), false);
        }
        assert_eq!(timing.miss(), Some(Duration::from_micros(28)));
    }
}
