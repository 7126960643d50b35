//! A metric's reading at one time, and the sample of two readings.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use hugeleaf_sys::Deadline;
use hugeleaf_units::Failure;

use super::prometheus;
use crate::stats::BetterDirection;

/// Timeout of one reading of any kind.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadingKind {
    /// A rising count: the sample is its rise per second.
    Counter,
    /// A value at one time: the sample is the mean of several readings in the interval.
    Gauge,
    /// Counts by size: the sample is a quantile of those added in the interval.
    Quantile,
    /// Two rising counts: the sample is the ratio of their rises.
    Ratio,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Reading {
    Counter(f64),
    Gauge(f64),
    /// Counts so far by upper bound, each including those below; the last bound is infinite.
    Buckets {
        /// The requested quantile, above 0 and below 1.
        quantile: f64,
        /// (upper bound, count), in rising order of bounds.
        counts: Vec<(f64, f64)>,
    },
    /// Two counts so far; the metric is `above / below`.
    Ratio {
        above: f64,
        below: f64,
    },
}

/// A number that can be read repeatedly.
pub struct Metric {
    pub name: String,
    /// The unit, such as `transactions/s`.
    pub unit: String,
    pub better: BetterDirection,
    pub kind: ReadingKind,
    /// The shortest meaningful interval.
    pub least_interval: Duration,
    /// Delay until events show in the metric; discarded after every change.
    pub lag: Duration,
    /// For a quantile read from buckets: the better metric, the mean of the same observations, in
    /// the form of `--metric`.
    pub instead_of_quantile: Option<String>,
    pub read: Box<MetricReader>,
}

type MetricReader = dyn FnMut(Deadline<'_>) -> Result<Reading, MetricError> + Send;

impl Metric {
    pub fn counter(
        name: impl Into<String>,
        unit: &str,
        read: impl FnMut(Deadline<'_>) -> Result<Reading, MetricError> + Send + 'static,
    ) -> Metric {
        Metric {
            name: name.into(),
            unit: unit.to_owned(),
            better: BetterDirection::Higher,
            kind: ReadingKind::Counter,
            least_interval: Duration::ZERO,
            lag: Duration::ZERO,
            instead_of_quantile: None,
            read: Box::new(read),
        }
    }

    /// Reads the metric, within a few seconds and until `stop` is set.
    pub fn read(&mut self, stop: &AtomicBool) -> Result<Reading, MetricError> {
        (self.read)(Deadline::new(PATIENCE).with_stop(stop))
    }
}

#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum MetricError {
    #[error("{metric}: cannot be read: {reason}")]
    Unreachable {
        metric: String,
        reason: String,
        next: String,
    },
    #[error("{metric}: {what}")]
    Garbage {
        metric: String,
        what: String,
        next: String,
    },
    #[error("{metric}: fell from {from} to {to}")]
    Fell { metric: String, from: f64, to: f64 },
    #[error("{metric}: stood still for {seconds:.1} s")]
    StoodStill { metric: String, seconds: f64 },
    #[error("{metric}: is {value}; a ratio needs values above 0")]
    NotPositive { metric: String, value: f64 },
    #[error("{metric}: no such hardware counter here: {reason}")]
    NoCounter {
        metric: String,
        reason: String,
        next: String,
    },
}

impl MetricError {
    pub(crate) fn unreachable(
        metric: &str,
        reason: impl Into<String>,
        next: impl Into<String>,
    ) -> MetricError {
        MetricError::Unreachable {
            metric: metric.to_owned(),
            reason: reason.into().replace('\n', " "),
            next: next.into(),
        }
    }

    pub(super) fn garbage(
        metric: &str,
        what: impl Into<String>,
        next: impl Into<String>,
    ) -> MetricError {
        MetricError::Garbage {
            metric: metric.to_owned(),
            what: what.into(),
            next: next.into(),
        }
    }

    pub fn next(&self) -> String {
        match self {
            MetricError::Unreachable { next, .. }
            | MetricError::Garbage { next, .. }
            | MetricError::NoCounter { next, .. } => next.clone(),
            MetricError::Fell { .. } => {
                "a counter must only rise: if the server was restarted, run again; \
                 for a value that rises and falls: --metric gauge:lower:… or gauge:higher:…"
                    .into()
            }
            MetricError::StoodStill { .. } => {
                "put load on the server first, or choose a metric that changes with its load, \
                 or a longer --interval"
                    .into()
            }
            MetricError::NotPositive { .. } => {
                "choose a metric that is above 0 under load, such as a rate or a latency".into()
            }
        }
    }
}

impl From<MetricError> for Failure {
    fn from(error: MetricError) -> Failure {
        Failure::missing(error.to_string(), error.next())
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MeasuredValue {
    /// The sample; positive.
    pub value: f64,
    /// For a quantile: the edges of its bucket. `value` is interpolated between them, and the truth
    /// may be anywhere there.
    pub bucket: Option<[f64; 2]>,
}

/// Returns the value of [`measured`] for two readings, `elapsed` apart.
pub fn between(
    name: &str,
    before: &Reading,
    after: &Reading,
    elapsed: Duration,
) -> Result<f64, MetricError> {
    measured(name, before, after, elapsed).map(|measured| measured.value)
}

/// Returns the sample of two readings, `elapsed` apart.
///
/// # Errors
/// [`MetricError::Fell`], [`MetricError::StoodStill`], [`MetricError::NotPositive`], and
/// [`MetricError::Garbage`] if the readings do not match.
pub fn measured(
    name: &str,
    before: &Reading,
    after: &Reading,
    elapsed: Duration,
) -> Result<MeasuredValue, MetricError> {
    let mut bucket = None;
    let seconds = elapsed.as_secs_f64();
    let rise = |from: f64, to: f64| {
        if to < from {
            let metric = name.to_owned();
            return Err(MetricError::Fell { metric, from, to });
        }
        Ok(to - from)
    };
    let still = || MetricError::StoodStill {
        metric: name.to_owned(),
        seconds,
    };
    let value = match (before, after) {
        (Reading::Counter(from), Reading::Counter(to)) => {
            let rise = rise(*from, *to)?;
            if rise == 0.0 || seconds <= 0.0 {
                return Err(still());
            }
            rise / seconds
        }
        (_, Reading::Gauge(value)) => *value,
        (Reading::Ratio { above: a, below: b }, Reading::Ratio { above, below }) => {
            let (above, below) = (rise(*a, *above)?, rise(*b, *below)?);
            if below == 0.0 {
                return Err(still());
            }
            above / below
        }
        (Reading::Buckets { counts: old, .. }, Reading::Buckets { quantile, counts }) => {
            let mut added = Vec::with_capacity(counts.len());
            for (bound, count) in counts {
                // A new bucket was empty before.
                let from = old.iter().find(|(b, _)| b == bound).map_or(0.0, |o| o.1);
                added.push((*bound, rise(from, *count)?));
            }
            let found = prometheus::locate(*quantile, &added).ok_or_else(still)?;
            bucket = Some([found.low, found.high]);
            found.value
        }
        _ => {
            let what = "its type changed between two readings";
            let next = "run again when the server has settled";
            return Err(MetricError::garbage(name, what, next));
        }
    };
    if value.is_finite() && value > 0.0 {
        Ok(MeasuredValue { value, bucket })
    } else {
        let metric = name.to_owned();
        Err(MetricError::NotPositive { metric, value })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TWO: Duration = Duration::from_secs(2);

    #[test]
    fn samples_from_readings() {
        let between = |a: Reading, b: Reading| between("m", &a, &b, TWO);
        let c = Reading::Counter;
        assert_eq!(between(c(10.0), c(30.0)), Ok(10.0));
        assert!(matches!(
            between(c(30.0), c(10.0)),
            Err(MetricError::Fell {
                from: 30.0,
                to: 10.0,
                ..
            })
        ));
        assert!(matches!(
            between(c(30.0), c(30.0)),
            Err(MetricError::StoodStill { .. })
        ));
        assert_eq!(between(Reading::Gauge(1.0), Reading::Gauge(3.0)), Ok(3.0));
        assert!(matches!(
            between(Reading::Gauge(1.0), Reading::Gauge(-3.0)),
            Err(MetricError::NotPositive { .. })
        ));
        let r = |above, below| Reading::Ratio { above, below };
        assert_eq!(between(r(10.0, 10.0), r(40.0, 30.0)), Ok(1.5));
        assert!(matches!(
            between(r(1.0, 1.0), r(2.0, 1.0)),
            Err(MetricError::StoodStill { .. })
        ));
        assert!(matches!(
            between(c(1.0), r(2.0, 1.0)),
            Err(MetricError::Garbage { .. })
        ));
    }

    #[test]
    fn quantiles_are_of_what_was_added() {
        let buckets = |a, b, c| Reading::Buckets {
            quantile: 0.5,
            counts: vec![(1.0, a), (2.0, b), (f64::INFINITY, c)],
        };
        // 100 old observations below 1, 10 new ones between 1 and 2: their median is 1.5.
        let v = between(
            "m",
            &buckets(100.0, 100.0, 100.0),
            &buckets(100.0, 110.0, 110.0),
            TWO,
        );
        assert_eq!(v, Ok(1.5));
        let whole = measured(
            "m",
            &buckets(100.0, 100.0, 100.0),
            &buckets(100.0, 110.0, 110.0),
            TWO,
        );
        assert_eq!(whole.unwrap().bucket, Some([1.0, 2.0]));
        let v = between("m", &buckets(1.0, 1.0, 1.0), &buckets(1.0, 1.0, 1.0), TWO);
        assert!(matches!(v, Err(MetricError::StoodStill { .. })));
        let v = between("m", &buckets(2.0, 2.0, 2.0), &buckets(1.0, 3.0, 3.0), TWO);
        assert!(matches!(v, Err(MetricError::Fell { .. })));
    }

    #[test]
    fn every_error_says_what_to_do() {
        let metric = || "m".to_owned();
        for e in [
            MetricError::Fell {
                metric: metric(),
                from: 1.0,
                to: 0.0,
            },
            MetricError::StoodStill {
                metric: metric(),
                seconds: 1.0,
            },
            MetricError::NotPositive {
                metric: metric(),
                value: 0.0,
            },
        ] {
            assert!(!e.next().is_empty());
            assert!(!e.to_string().contains('\n') && !e.next().contains('\n'));
        }
    }

    proptest! {
        #[test]
        fn a_sample_is_positive_or_an_error(a in prop::num::f64::ANY, b in prop::num::f64::ANY) {
            if let Ok(v) = between("m", &Reading::Counter(a), &Reading::Counter(b), TWO) {
                prop_assert!(v.is_finite() && v > 0.0);
            }
        }
    }
}
