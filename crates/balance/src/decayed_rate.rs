//! Rates with exponential decay.

use std::time::Duration;

use crate::component::Estimate;

/// Returns the rest of a weight after some time: half after a half-life. 0 if the half-life is 0.
pub(crate) fn left(elapsed: Duration, half_life: Duration) -> f64 {
    match half_life.is_zero() {
        true => 0.0,
        false => (-elapsed.as_secs_f64() / half_life.as_secs_f64()).exp2(),
    }
}

/// Observation time with the decay of the counts, which are divided by it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct DecayWindow {
    half_life: Duration,
    seconds: f64,
    passed: Duration,
}

impl DecayWindow {
    pub(crate) const fn new(half_life: Duration) -> DecayWindow {
        DecayWindow {
            half_life,
            seconds: 0.0,
            passed: Duration::ZERO,
        }
    }

    /// Advances the time; returns the factor for current counts. It slightly reduces events of this interval too,
    /// so the interval is treated alike.
    pub(crate) fn pass(&mut self, elapsed: Duration) -> f64 {
        let left = left(elapsed, self.half_life);
        self.seconds = (self.seconds + elapsed.as_secs_f64()) * left;
        self.passed = self.passed.saturating_add(elapsed);
        left
    }

    /// Returns true after so much time that few events mean a low rate.
    pub(crate) fn is_long(&self) -> bool {
        const HALF_LIVES: u32 = 5;
        self.passed >= self.half_life.saturating_mul(HALF_LIVES)
    }

    /// Returns a count as events per second; `None` before any time has passed.
    pub(crate) fn rate(&self, count: f64) -> Option<f64> {
        (self.seconds > 0.0).then(|| count / self.seconds)
    }

    /// Returns the sum of the costs of `events` as a rate. A count of n has an error of √(n + 1).
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
