//! One row over another: the single place that decides if two rows are comparable, and computes their ratio. Every
//! displayed ratio of samples (`compare`, `bench`, `check`) comes from here, so each has its interval. Pure.

use crate::median_interval::CONFIDENCE;
use crate::result_format::{NotComparableReason, Pairing, QuantityKind, ResultRow};
use crate::stats::{
    BetterDirection, Effect, LogRatioInterval, StatisticalTest, Verdict, judge_beyond, log_ratio,
    rank_sum_interval, signed_rank_interval,
};

#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct RowRatio {
    /// `None` if both are 0.
    pub ratio: Option<f64>,
    /// `None` for a count taken once.
    pub effect: Option<Effect>,
    interval: Option<LogRatioInterval>,
}

/// Returns B over A.
///
/// # Errors
/// The reason why they are not comparable: a sample that is not positive, too few samples for an interval, quantiles of
/// buckets.
pub fn over(
    a: &ResultRow,
    b: &ResultRow,
    pairing: Pairing,
) -> Result<RowRatio, NotComparableReason> {
    let quantity = &a.quantity;
    let is_zero = |row: &ResultRow| row.samples.iter().all(|sample| sample.value == 0.0);
    let may_be_zero = !quantity.main || quantity.kind == QuantityKind::Counted;
    if may_be_zero && is_zero(a) && is_zero(b) && !a.samples.is_empty() && !b.samples.is_empty() {
        return Ok(RowRatio::default());
    }
    let few =
        |what: String| NotComparableReason(format!("too few samples for an interval: {what}"));
    let interval = match (quantity.kind, pairing) {
        (QuantityKind::InBuckets, _) => {
            return Err(NotComparableReason(
                "a quantile of a histogram is known to its bucket only: compare means of the \
                 same observations, --metric 'http://…#mean(NAME)'"
                    .to_owned(),
            ));
        }
        (QuantityKind::Counted, _) => return counted(a, b),
        (_, Pairing::Rounds) => {
            let logs: Vec<f64> = b.logs_over(a)?.into_iter().map(|log| log.1).collect();
            let interval = signed_rank_interval(&logs, CONFIDENCE);
            interval.ok_or_else(|| few(format!("{} of 6 pairs", logs.len())))?
        }
        (_, Pairing::Ranks) => {
            let logs = (a.logs()?, b.logs()?);
            let interval = rank_sum_interval(&logs.0, &logs.1, CONFIDENCE);
            let had = || format!("{} and {} of 4 each", logs.0.len(), logs.1.len());
            interval.ok_or_else(|| few(had()))?
        }
    };
    let effect = Effect::from_interval(&interval, CONFIDENCE);
    Ok(RowRatio {
        ratio: Some(effect.ratio),
        // The method implies the estimator.
        effect: Some(Effect {
            estimator: None,
            ..effect
        }),
        interval: Some(interval),
    })
}

/// A count taken once is exact and has no interval.
fn counted(a: &ResultRow, b: &ResultRow) -> Result<RowRatio, NotComparableReason> {
    let median = |row: &ResultRow| row.spread().map_or(f64::NAN, |spread| spread.median);
    let (of_a, of_b) = (median(a), median(b));
    let none = || {
        NotComparableReason(format!(
            "{of_a} and {of_b} have no ratio: both must be above 0"
        ))
    };
    let log = log_ratio(of_a, of_b).ok_or_else(none)?;
    Ok(RowRatio {
        ratio: Some(log.exp()),
        effect: None,
        interval: Some(LogRatioInterval {
            center: log,
            low: log,
            high: log,
            method: StatisticalTest::RankSum,
        }),
    })
}

impl ResultRow {
    /// Returns this row over another by their common rounds; `None` if they are not comparable.
    pub fn over(&self, other: &ResultRow) -> Option<Effect> {
        over(other, self, Pairing::Rounds).ok()?.effect
    }
}

impl RowRatio {
    /// Returns the verdict: ratios within ±`equal` (a log ratio) are equal, those beyond ±`beyond` are different.
    pub fn verdict(&self, equal: f64, beyond: f64, better: BetterDirection) -> Verdict {
        let judged = |interval: &LogRatioInterval| judge_beyond(interval, equal, beyond, better);
        self.interval.as_ref().map_or(Verdict::Same, judged)
    }
}
