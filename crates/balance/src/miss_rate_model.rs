//! Benefit of memory to a server with only counters: operations and misses at its current size. The slope of misses
//! over size is learned from its recent sizes. With a single size it is unknown, and the policy may try another size
//! if the server loses much.

use std::time::Duration;

use hugeleaf_units::Bytes;

use crate::component::{Benefit, Estimate, Granule};
use crate::decayed_rate::{DecayWindow, left};

/// Half-life of observations at a size.
const HALF_LIFE: Duration = Duration::from_secs(120);
const SIZES: usize = 16;
/// Minimum number of operations, weighted by age, for a size to count.
const ENOUGH: f64 = 100.0;
/// Maximum relative distance of a size from the current one, because the slope is local.
const NEAR_PART: f64 = 0.5;
/// Relative uncertainty of each miss ratio, for any number of operations, because loads vary.
const DRIFT: f64 = 0.005;

#[derive(Debug, Clone, Copy)]
struct SizeSample {
    size: Bytes,
    operations: f64,
    misses: f64,
}

impl SizeSample {
    /// Returns misses per operation, and their variance.
    fn ratio(&self) -> (f64, f64) {
        let ratio = self.misses / self.operations;
        // For n operations; a count of 0 has an error of about 1.
        let counted = (self.misses + 1.0) / (self.operations * self.operations);
        (ratio, counted + (ratio * DRIFT).powi(2))
    }
}

/// Counters of one server (`Innodb_buffer_pool_read_requests` and `Innodb_buffer_pool_reads`; `keyspace_hits` and
/// `keyspace_misses`).
#[derive(Debug, Clone)]
pub struct MissRateModel {
    granule: Granule,
    seconds_per_miss: f64,
    half_life: Duration,
    seen: Vec<SizeSample>,
    /// The current size, with operations and misses over the last scans.
    size: Bytes,
    operations: f64,
    misses: f64,
    window: DecayWindow,
    /// Operations per second since the last scan.
    latest: f64,
}

impl MissRateModel {
    /// Creates counters for a server resized by `granule`. `seconds_per_miss` is the extra cost of a miss.
    pub fn new(granule: Granule, seconds_per_miss: f64) -> MissRateModel {
        MissRateModel {
            granule,
            seconds_per_miss: seconds_per_miss.max(0.0),
            half_life: HALF_LIFE,
            seen: Vec::new(),
            size: Bytes::ZERO,
            operations: 0.0,
            misses: 0.0,
            window: DecayWindow::new(HALF_LIFE / 24),
            latest: 0.0,
        }
    }

    /// Sets another half-life of observations.
    #[must_use]
    pub fn half_life(self, half_life: Duration) -> MissRateModel {
        MissRateModel {
            half_life,
            window: DecayWindow::new(half_life / 24),
            ..self
        }
    }

    /// Records the growth of its counters since the last scan, during all of which it had that size. Use
    /// [`MissRateModel::skip`] during a resize, and [`MissRateModel::observe_unfilled`] while it fills.
    pub fn observe(&mut self, size: Bytes, operations: u64, misses: u64, elapsed: Duration) {
        // The counters are not read at the same instant.
        let misses = misses.min(operations);
        let (operations, misses) = (operations as f64, misses as f64);
        self.size = size;
        let same = self.seen.iter_mut().find(|seen| seen.size == size);
        match same {
            Some(seen) => {
                seen.operations += operations;
                seen.misses += misses;
            }
            None => self.add(SizeSample {
                size,
                operations,
                misses,
            }),
        }
        self.count(operations, misses, elapsed);
        self.skip(elapsed);
    }

    /// Records counters of a server that fills or is not full: its current rates, which do not depend on its size.
    pub fn observe_unfilled(&mut self, operations: u64, misses: u64, elapsed: Duration) {
        self.count(operations as f64, misses.min(operations) as f64, elapsed);
        self.skip(elapsed);
    }

    fn count(&mut self, operations: f64, misses: f64, elapsed: Duration) {
        self.operations += operations;
        self.misses += misses;
        let now = self.window.pass(elapsed);
        self.operations *= now;
        self.misses *= now;
        if !elapsed.is_zero() {
            self.latest = operations / elapsed.as_secs_f64();
        }
    }

    /// Advances the time without counts: observations age, and rates stay.
    pub fn skip(&mut self, elapsed: Duration) {
        let left = left(elapsed, self.half_life);
        for seen in &mut self.seen {
            seen.operations *= left;
            seen.misses *= left;
        }
    }

    fn add(&mut self, new: SizeSample) {
        if self.seen.len() >= SIZES {
            let weights = self.seen.iter().enumerate();
            let least = weights.min_by(|a, b| a.1.operations.total_cmp(&b.1.operations));
            let least = least.map_or(0, |(index, _)| index);
            self.seen.swap_remove(least);
        }
        self.seen.push(new);
    }

    /// Returns the benefit of a granule, by a linear model. If the slope is unknown, only the pressure is returned.
    /// The gain uses the lower, and the loss the higher, of the recent and the smoothed rate of operations.
    pub fn benefit(&self) -> Benefit {
        let rate = |count: f64| self.window.rate(count).unwrap_or(0.0);
        let pressure = rate(self.misses) * self.seconds_per_miss;
        let smooth = rate(self.operations);
        let slope = self.slope();
        let at_rate = |operations: f64| {
            slope.map(|(slope, error, samples)| {
                let worth = self.granule.bytes().as_f64() * operations * self.seconds_per_miss;
                Estimate {
                    value: (-slope * worth).max(0.0),
                    error: error * worth,
                    samples,
                }
            })
        };
        Benefit {
            more: at_rate(smooth.min(self.latest)),
            less: at_rate(smooth.max(self.latest)),
            pressure,
        }
    }

    /// Returns the current loss, in seconds per second, if it held nothing: each operation would be a miss.
    pub fn loss_of_all(&self) -> f64 {
        self.latest * self.seconds_per_miss
    }

    /// Returns the change of the miss ratio per byte, its standard error, and the number of misses behind it. The line
    /// is fitted to observations weighted by their precision. `None` for a single size.
    fn slope(&self) -> Option<(f64, f64, f64)> {
        let here = self.size.as_f64();
        let away = |seen: &SizeSample| (seen.size.as_f64() - here).abs();
        let mut known: Vec<&SizeSample> = { self.seen.iter() }
            .filter(|s| s.operations >= ENOUGH)
            .collect();
        known.sort_by(|a, b| away(a).total_cmp(&away(b)));
        // The nearest other size counts at any distance.
        let near = here * NEAR_PART;
        let count = known.iter().take_while(|seen| away(seen) <= near).count();
        known.truncate(count.max(2));
        let points: Vec<(f64, f64, f64)> = { known.iter() }
            .map(|seen| {
                let (ratio, variance) = seen.ratio();
                (seen.size.as_f64() - here, ratio, 1.0 / variance)
            })
            .collect();
        let samples = known.iter().map(|seen| seen.misses).sum();
        let weight: f64 = points.iter().map(|p| p.2).sum();
        let mean = |of: fn(&(f64, f64, f64)) -> f64| {
            points.iter().map(|p| of(p) * p.2).sum::<f64>() / weight
        };
        let (x, y) = (mean(|p| p.0), mean(|p| p.1));
        let spread: f64 = points.iter().map(|p| p.2 * (p.0 - x).powi(2)).sum();
        let together: f64 = points.iter().map(|p| p.2 * (p.0 - x) * (p.1 - y)).sum();
        let is_line = points.len() >= 2 && spread > 0.0;
        is_line.then(|| (together / spread, (1.0 / spread).sqrt(), samples))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn counters() -> MissRateModel {
        MissRateModel::new(Granule::new(Bytes(10)).unwrap(), 0.001)
    }

    #[test]
    fn one_size_is_pressure_and_two_are_a_slope() {
        let mut counters = counters();
        for _ in 0..60 {
            counters.observe(Bytes(1000), 10_000, 2_000, SECOND);
        }
        let one = counters.benefit();
        assert_eq!((one.more, one.less), (None, None));
        // 2,000 misses per second of a millisecond each.
        assert!((one.pressure - 2.0).abs() < 0.01, "{}", one.pressure);
        for _ in 0..60 {
            counters.observe(Bytes(1100), 10_000, 1_500, SECOND);
        }
        // Each granule saves a tenth of 500 misses.
        let more = counters.benefit().more.unwrap();
        assert!((more.value - 0.05).abs() < 0.002, "{more:?}");
        assert!(more.error < 0.005, "{more:?}");
    }

    #[test]
    fn what_never_repeats_is_worth_nothing() {
        let mut counters = counters();
        for size in [1000, 1100, 1050] {
            for _ in 0..60 {
                counters.observe(Bytes(size), 10_000, 10_000, SECOND);
            }
        }
        let benefit = counters.benefit();
        assert!(benefit.pressure > 9.0);
        assert!(benefit.more.unwrap().low() == 0.0);
    }

    #[test]
    fn one_that_rests_unfilled_gains_nothing_any_more() {
        let mut counters = counters();
        for (size, misses) in [(1000, 2_000), (1100, 1_500)] {
            for _ in 0..60 {
                counters.observe(Bytes(size), 10_000, misses, SECOND);
            }
        }
        let busy = counters.benefit();
        counters.observe_unfilled(10, 10, SECOND);
        let just_now = counters.benefit();
        assert!(just_now.more.unwrap().value < busy.more.unwrap().value / 30.0);
        assert!(just_now.less.unwrap().value > busy.less.unwrap().value / 2.0);
        for _ in 0..60 {
            counters.observe_unfilled(10, 10, SECOND);
        }
        let idle = counters.benefit();
        // The same slope, with almost no operations.
        assert!(idle.more.unwrap().value < busy.more.unwrap().value / 30.0);
        assert!(idle.pressure < busy.pressure / 30.0);
    }

    #[test]
    fn any_numbers_are_taken() {
        let mut counters =
            MissRateModel::new(Granule::new(Bytes(u64::MAX)).unwrap(), f64::INFINITY);
        for size in [0, u64::MAX, 1] {
            counters.observe(Bytes(size), u64::MAX, u64::MAX, Duration::ZERO);
            counters.observe(Bytes(size), 0, 5, Duration::MAX);
        }
        let benefit = counters.benefit();
        assert!(benefit.more.is_none_or(|more| more.low().is_finite()));
    }
}
