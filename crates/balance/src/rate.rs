//! Rates in which the past counts less and less.

use std::time::Duration;

use crate::component::Estimate;

/// What is left of a weight after some time: half of it after a half-life. Nothing where the half-life is 0.
pub(crate) fn left(elapsed: Duration, half_life: Duration) -> f64 {
    match half_life.is_zero() {
        true => 0.0,
        false => (-elapsed.as_secs_f64() / half_life.as_secs_f64()).exp2(),
    }
}

/// The time over which events were counted, older time counting less: what counts are divided by.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Window {
    half_life: Duration,
    seconds: f64,
    passed: Duration,
}

impl Window {
    pub(crate) const fn new(half_life: Duration) -> Window {
        Window {
            half_life,
            seconds: 0.0,
            passed: Duration::ZERO,
        }
    }

    /// Time passed; returns what counts up to now are to be multiplied by. That halves events of this very
    /// time a bit as well, so the time itself is treated alike.
    pub(crate) fn pass(&mut self, elapsed: Duration) -> f64 {
        let left = left(elapsed, self.half_life);
        self.seconds = (self.seconds + elapsed.as_secs_f64()) * left;
        self.passed = self.passed.saturating_add(elapsed);
        left
    }

    /// Whether so much time has passed that few events mean that there are few.
    pub(crate) fn is_long(&self) -> bool {
        const HALF_LIVES: u32 = 5;
        self.passed >= self.half_life.saturating_mul(HALF_LIVES)
    }

    /// A count as events a second; `None` before any time has passed.
    pub(crate) fn rate(&self, count: f64) -> Option<f64> {
        (self.seconds > 0.0).then(|| count / self.seconds)
    }

    /// The sum of costs of `events` as a rate, its error that of counting them: a count of n is known to √(n + 1).
    pub(crate) fn estimate(&self, costs: f64, events: f64) -> Option<Estimate> {
        let value = self.rate(costs)?;
        let each = costs / events.max(1.0);
        let error = self.rate(each * (events + 1.0).sqrt())?;
        Some(Estimate {
            value,
            error,
            samples: events,
        })
    }
}
