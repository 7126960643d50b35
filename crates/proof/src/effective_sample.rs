//! From pairs to the reported interval. Pure; the engine and the simulator share it.
//!
//! The signed-rank interval assumes independent pairs, and intervals that reflect their own arm
//! only. Both assumptions are checked, by rules fixed before the first pair. If one fails, the
//! interval is widened, never narrowed:
//!
//! - **Correlated pairs** (lag-1 correlation `r` beyond what chance allows): the interval is
//!   widened by `sqrt((1 + r) / (1 - r))`.
//! - **Carry-over**: after a change of pages, the second half of an interval is significantly
//!   further towards its arm than the first half, so the former pages still have an effect. Then
//!   the interval also covers the result of the second halves alone.
//!
//! For a quantile read from buckets only its bucket is known; [`bounded`] accounts for that.

use crate::stats::{self, LogRatioInterval};
use crate::stopping_rule::StoppingRule;

/// Threshold for a lag-1 correlation, times the root of the number of pairs. Chance alone exceeds
/// it in one of ten experiments.
const SUSPICIOUS: f64 = 1.28;
/// Maximum correlation used, because the interval would grow without bound.
const MOST_CORRELATION: f64 = 0.9;
/// The confidence at which a carry-over counts.
const CARRY_OVER_CONFIDENCE: f64 = 0.95;

/// A pair as logarithms of ratios, huge over base pages.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct PairLogRatios {
    pub whole: f64,
    /// The log ratio of the second halves; `None` if the metric has none.
    pub late: Option<f64>,
    /// For each of the two intervals, if it followed a change of pages: how much further the second
    /// half is towards its arm than the first half.
    pub carry_over: [Option<f64>; 2],
    /// The smallest and the largest log ratio that a quantile's buckets allow; may be infinite.
    pub bounds: Option<[f64; 2]>,
}

impl PairLogRatios {
    pub fn from_whole(whole: f64) -> PairLogRatios {
        PairLogRatios {
            whole,
            ..PairLogRatios::default()
        }
    }
}

/// One interval of an arm, for [`pair`].
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct ArmMeasurement {
    pub value: f64,
    /// The values in its first and its second half.
    pub halves: Option<[f64; 2]>,
    pub bucket: Option<[f64; 2]>,
    pub followed_a_move: bool,
}

/// Returns the logarithms of a pair; `None` if a value is not a positive number.
pub fn pair(base: &ArmMeasurement, large: &ArmMeasurement) -> Option<PairLogRatios> {
    let half = |part: &ArmMeasurement, n: usize| part.halves.map(|halves| halves[n]);
    let carried = |part: &ArmMeasurement, sign: f64| {
        let log = stats::log_ratio(half(part, 0)?, half(part, 1)?)?;
        part.followed_a_move.then_some(sign * log)
    };
    let bounds = |[base_low, base_high]: [f64; 2], [large_low, large_high]: [f64; 2]| {
        [
            (large_low.max(0.0) / base_high).ln(),
            (large_high / base_low.max(0.0)).ln(),
        ]
    };
    Some(PairLogRatios {
        whole: stats::log_ratio(base.value, large.value)?,
        late: half(base, 1)
            .zip(half(large, 1))
            .and_then(|(base, large)| stats::log_ratio(base, large)),
        carry_over: [carried(base, -1.0), carried(large, 1.0)],
        bounds: (base.bucket.zip(large.bucket)).map(|(base, large)| bounds(base, large)),
    })
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PairAnalysis {
    pub interval: LogRatioInterval,
    /// The lag-1 correlation of the pairs.
    pub correlation: f64,
    /// The factor that widened the interval for the correlation; 1 without widening.
    pub stretched: f64,
    /// The distance of the second halves towards their arm, a log ratio, if significant.
    pub carry_over: Option<f64>,
}

/// Returns the interval of the pairs, in the order they were made; `None` with too few.
pub fn analyse(rule: &StoppingRule, pairs: &[PairLogRatios]) -> Option<PairAnalysis> {
    let whole: Vec<f64> = pairs.iter().map(|p| p.whole).collect();
    let mut interval = rule.interval(&whole)?;
    let carried: Vec<f64> = pairs.iter().flat_map(|p| p.carry_over).flatten().collect();
    let carried =
        stats::signed_rank_interval(&carried, CARRY_OVER_CONFIDENCE).filter(|i| !i.covers(0.0));
    if carried.is_some() {
        let late: Option<Vec<f64>> = pairs.iter().map(|p| p.late).collect();
        if let Some(late) = late.and_then(|late| rule.interval(&late)) {
            interval.center = late.center;
            interval.low = interval.low.min(late.low);
            interval.high = interval.high.max(late.high);
        }
    }
    let (correlation, stretched) = widening(&whole);
    let LogRatioInterval { center, .. } = interval;
    interval.low = center - (center - interval.low) * stretched;
    interval.high = center + (interval.high - center) * stretched;
    Some(PairAnalysis {
        interval,
        correlation,
        stretched,
        carry_over: carried.map(|i| i.center),
    })
}

fn widening(logs: &[f64]) -> (f64, f64) {
    let r = stats::lag_one(logs);
    let chance = SUSPICIOUS / (logs.len() as f64).sqrt();
    let stretched = match r > chance {
        true => {
            let r = r.min(MOST_CORRELATION);
            ((1.0 + r) / (1.0 - r)).sqrt()
        }
        false => 1.0,
    };
    (r, stretched)
}

/// Returns the interval of quantiles of which only the buckets are known. It contains the interval
/// of the true quantiles for any observations within the buckets, because both ends of a
/// signed-rank interval rise with every value. An end may be infinite. `None` if a pair has no
/// buckets.
pub fn bounded(
    rule: &StoppingRule,
    pairs: &[PairLogRatios],
    weighed: &PairAnalysis,
) -> Option<LogRatioInterval> {
    let bounds: Option<Vec<[f64; 2]>> = pairs.iter().map(|p| p.bounds).collect();
    let bounds = bounds?;
    let end = |n: usize| rule.interval(&bounds.iter().map(|b| b[n]).collect::<Vec<_>>());
    let whole: Vec<f64> = pairs.iter().map(|p| p.whole).collect();
    let plain = rule.interval(&whole)?;
    // Add the widening by the checks of the pairs.
    let low = end(0)?.low - (plain.low - weighed.interval.low).max(0.0);
    let high = end(1)?.high + (weighed.interval.high - plain.high).max(0.0);
    Some(LogRatioInterval {
        center: weighed.interval.center.clamp(low, high),
        low,
        high,
        method: weighed.interval.method,
    })
}

/// Returns the bucket of both arms' middle sample, if it is the same one. The buckets then show no
/// difference between the arms.
pub fn shared_bucket(base: &[[f64; 2]], large: &[[f64; 2]]) -> Option<[f64; 2]> {
    let middle = |buckets: &[[f64; 2]]| {
        let mut sorted = buckets.to_vec();
        sorted.sort_by(|a, b| a[1].total_cmp(&b[1]));
        let last = sorted.len().checked_sub(1)?;
        Some(sorted[last / 2])
    };
    let (base, large) = (middle(base)?, middle(large)?);
    (base == large).then_some(base)
}

#[cfg(test)]
mod tests {
    use super::*;
    use fastrand::Rng;
    use proptest::prelude::*;

    fn logs(n: usize, seed: u64) -> Vec<f64> {
        let mut rng = Rng::with_seed(seed);
        (0..n).map(|_| rng.f64() * 0.2 - 0.05).collect()
    }

    #[test]
    fn pairs_that_follow_each_other_widen_the_interval() {
        let rule = StoppingRule::default();
        let quiet: Vec<PairLogRatios> = logs(40, 1)
            .into_iter()
            .map(PairLogRatios::from_whole)
            .collect();
        let weighed = analyse(&rule, &quiet).unwrap();
        assert_eq!(weighed.stretched, 1.0, "{weighed:?}");
        let whole: Vec<f64> = quiet.iter().map(|p| p.whole).collect();
        assert_eq!(Some(weighed.interval), rule.interval(&whole));
        // The same values, sorted: each is similar to the previous one.
        let mut sorted = whole.clone();
        sorted.sort_by(f64::total_cmp);
        let sorted: Vec<PairLogRatios> =
            sorted.into_iter().map(PairLogRatios::from_whole).collect();
        let wide = analyse(&rule, &sorted).unwrap();
        assert!(wide.correlation > 0.8 && wide.stretched > 2.0, "{wide:?}");
        assert!(wide.interval.half_width() > 2.0 * weighed.interval.half_width());
        assert!((wide.interval.center - weighed.interval.center).abs() < 1e-12);
        // Alternating pairs never narrow it.
        let turns: Vec<PairLogRatios> = (0..40)
            .map(|n| PairLogRatios::from_whole(f64::from(n % 2) * 0.1))
            .collect();
        assert_eq!(analyse(&rule, &turns).unwrap().stretched, 1.0);
    }

    #[test]
    fn what_is_carried_over_is_seen_and_the_interval_holds_both() {
        let rule = StoppingRule::default();
        let mut rng = Rng::with_seed(4);
        let mut noise = || 1.0 + 0.01 * (rng.f64() - 0.5);
        // The first half of every interval still reflects the pages before.
        let pairs: Vec<PairLogRatios> = (0..16)
            .filter_map(|_| {
                let (base, large) = (100.0 * noise(), 110.0 * noise());
                let part = |first: f64, second: f64| ArmMeasurement {
                    value: f64::midpoint(first, second),
                    halves: Some([first, second]),
                    bucket: None,
                    followed_a_move: true,
                };
                pair(&part(large, base), &part(base, large))
            })
            .collect();
        let weighed = analyse(&rule, &pairs).unwrap();
        assert!(weighed.carry_over.is_some_and(|c| c > 0.05), "{weighed:?}");
        assert!(weighed.interval.covers(1.10f64.ln()), "{weighed:?}");
        assert!(weighed.interval.covers(0.0), "{weighed:?}");
        let clean: Vec<PairLogRatios> = pairs
            .iter()
            .map(|p| PairLogRatios {
                carry_over: [None; 2],
                ..*p
            })
            .collect();
        assert!(
            !analyse(&rule, &clean)
                .unwrap()
                .interval
                .covers(1.10f64.ln())
        );
    }

    #[test]
    fn one_bucket_says_nothing() {
        let (a, b) = ([0.02, 0.05], [0.01, 0.02]);
        assert_eq!(shared_bucket(&[a, a, b], &[a, b, a]), Some(a));
        assert_eq!(shared_bucket(&[a, a, a], &[b, b, a]), None);
        assert_eq!(shared_bucket(&[], &[]), None);
    }

    #[test]
    fn open_buckets_have_open_bounds() {
        let part = |low, high| ArmMeasurement {
            value: 1.0,
            bucket: Some([low, high]),
            ..ArmMeasurement::default()
        };
        let bounds = |base: ArmMeasurement, large: ArmMeasurement| {
            pair(&base, &large).unwrap().bounds.unwrap()
        };
        assert_eq!(
            bounds(part(0.0, 2.0), part(0.0, 2.0)),
            [f64::NEG_INFINITY, f64::INFINITY]
        );
        assert_eq!(
            bounds(part(1.0, f64::INFINITY), part(1.0, 2.0)),
            [f64::NEG_INFINITY, 2.0f64.ln()]
        );
        assert_eq!(
            bounds(part(-1.0, 2.0), part(1.0, 2.0)),
            [0.5f64.ln(), f64::INFINITY]
        );
    }

    proptest! {
        /// For any observations within their buckets, the bounded interval contains that of the
        /// true quantiles.
        #[test]
        fn the_truth_lies_in_the_bounded_interval(
            pairs in prop::collection::vec((0usize..4, 0usize..4, 0.0f64..1.0, 0.0f64..1.0, 0.0f64..1.0, 0.0f64..1.0), 8..30))
        {
            let edges = [0.001, 0.002, 0.005, 0.01, 0.02];
            let rule = StoppingRule::default();
            let at = |b: usize, x: f64| edges[b] + (edges[b + 1] - edges[b]) * x;
            let mut logs = Vec::new();
            let mut truth = Vec::new();
            for (base, large, x, y, u, v) in pairs {
                let part = |b: usize, x| ArmMeasurement {
                    value: at(b, x),
                    bucket: Some([edges[b], edges[b + 1]]),
                    ..ArmMeasurement::default()
                };
                logs.extend(pair(&part(base, x), &part(large, y)));
                truth.push((at(large, v) / at(base, u)).ln());
            }
            let weighed = analyse(&rule, &logs).unwrap();
            let bounded = bounded(&rule, &logs, &weighed).unwrap();
            let truth = rule.interval(&truth).unwrap();
            prop_assert!(bounded.low <= truth.low + 1e-12 && truth.high <= bounded.high + 1e-12);
            prop_assert!(bounded.low <= bounded.center && bounded.center <= bounded.high);
        }
    }
}
