//! From pairs of samples to an interval and a verdict.
//!
//! A pair is one sample on base pages and one on huge pages, taken one after the other in an order drawn in balanced blocks
//! ([`crate::arm_order`]). The logarithm of their ratio is analysed. Because the order is random, any other change between the
//! two samples (drift, a neighbour, a compaction) enters each log ratio with a random sign. So the log ratios are symmetric
//! around the true effect, for any distribution of the noise and any correlation in time. Wilcoxon's signed-rank statistic
//! requires exactly that. With a fair coin for each pair its interval is exact for a fixed number of pairs. Within a block
//! the signs depend on each other, which removes a steady drift and otherwise has a small effect, measured by the lab's
//! simulator. Designs without random order use Welch's interval, which is exact for normal noise only.
//!
//! The matching estimate is that of Hodges and Lehmann: the median of the means of all pairs of log ratios, converted back
//! to a ratio. It is neither the median nor the mean of the pairs' ratios.
//!
//! This module is pure: it never reads a clock or draws a number.

use serde::{Deserialize, Serialize};
use statrs::distribution::{ContinuousCDF, Normal, StudentsT};

hugeleaf_units::named! {
    #[derive(Deserialize)]
    pub enum BetterDirection {
        /// Rates: transactions per second.
        Higher = "higher",
        /// Times and costs: p99 latency, cycles per instruction.
        Lower = "lower",
        /// Neither good nor bad: a count, a duration of measuring.
        Neither = "neither",
    }
}

impl BetterDirection {
    /// Converts a ratio to one of throughput: half the time is twice as much.
    pub fn gain(self, ratio: f64) -> f64 {
        match self {
            BetterDirection::Lower => 1.0 / ratio,
            BetterDirection::Higher | BetterDirection::Neither => ratio,
        }
    }
}

hugeleaf_units::named! {
    #[derive(Default, Deserialize)]
    pub enum Verdict {
        Faster = "faster",
        Slower = "slower",
        /// The difference, if any, is within the margin of equality.
        Same = "same",
        #[default]
        Unclear = "unclear",
    }
}

impl std::fmt::Display for BetterDirection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

impl std::fmt::Display for Verdict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StatisticalTest {
    /// Wilcoxon's signed rank, inverted (Hodges and Lehmann): for pairs in random order.
    SignedRank,
    /// Welch's t on the logs of two runs of samples, widened for their correlation in time.
    Welch,
    /// The rank sum of Wilcoxon, Mann and Whitney, inverted (Hodges and Lehmann): for two runs of unpaired samples.
    RankSum,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Estimator {
    /// The estimate of Hodges and Lehmann: the median of the means of all pairs of log ratios, converted back. For unpaired
    /// runs, the median of all differences between the runs.
    HodgesLehmann,
    GeometricMeans,
}

impl StatisticalTest {
    pub const fn estimator(self) -> Estimator {
        match self {
            StatisticalTest::SignedRank | StatisticalTest::RankSum => Estimator::HodgesLehmann,
            StatisticalTest::Welch => Estimator::GeometricMeans,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LogRatioInterval {
    pub center: f64,
    pub low: f64,
    pub high: f64,
    pub method: StatisticalTest,
}

impl LogRatioInterval {
    /// Returns half the width: ln 1.03 is "within ±3 %".
    pub fn half_width(&self) -> f64 {
        (self.high - self.low) / 2.0
    }

    /// True if `value` is in it, ends included.
    pub fn covers(&self, value: f64) -> bool {
        self.low <= value && value <= self.high
    }
}

/// Returns the log of `large / base`; `None` if one of them is not positive and finite.
pub fn log_ratio(base: f64, large: f64) -> Option<f64> {
    let usable = |x: f64| x.is_finite() && x > 0.0;
    (usable(base) && usable(large))
        .then(|| (large / base).ln())
        .filter(|x| x.is_finite())
}

/// Returns the two-sided quantile of Student's t: 2.228 for 10 degrees of freedom and 0.95. Infinite without a degree of
/// freedom, or if `confidence` is not within 0 to 1.
pub fn t_quantile(confidence: f64, degrees: f64) -> f64 {
    if !(confidence > 0.0 && confidence < 1.0) {
        return f64::INFINITY;
    }
    StudentsT::new(0.0, 1.0, degrees).map_or(f64::INFINITY, |t| {
        t.inverse_cdf(0.5 + confidence / 2.0).abs()
    })
}

/// Returns the signed-rank interval for the centre of symmetry of `x`: its ends are order statistics of the means of all
/// pairs of values (Walsh averages), the estimate is their median. `None` if `x` is too short for this confidence (fewer
/// than 6 values for 0.95).
pub fn signed_rank_interval(x: &[f64], confidence: f64) -> Option<LogRatioInterval> {
    let rank = signed_rank_critical(x.len(), 1.0 - confidence)?;
    let all = x.len() * (x.len() + 1) / 2;
    let [below, above, low, high] = if x.len() > MADE_UP_TO {
        let mut sorted = x.to_vec();
        sorted.sort_by(f64::total_cmp);
        quantile_ranks(all, rank).map(|n| nth_mean(&sorted, n))
    } else {
        let mut walsh = Vec::with_capacity(all);
        for (i, a) in x.iter().enumerate() {
            walsh.extend(x[i..].iter().map(|b| f64::midpoint(*a, *b)));
        }
        // Selected, not sorted: a thousand pairs have half a million means.
        quantile_ranks(all, rank).map(|n| *walsh.select_nth_unstable_by(n, f64::total_cmp).1)
    };
    Some(LogRatioInterval {
        center: f64::midpoint(below, above),
        low,
        high,
        method: StatisticalTest::SignedRank,
    })
}

/// For more values than this, means are counted instead of stored. A decade of tests is then simulated in the time of one of
/// its former analyses.
const MADE_UP_TO: usize = 60;

/// Returns the ranks among `all` values of both sides of the median, and of the ends that leave `rank` outside.
fn quantile_ranks(all: usize, rank: usize) -> [usize; 4] {
    let last = all - 1;
    [last / 2, last.div_ceil(2), rank, last - rank]
}

/// Returns the n-th smallest, from 0, of the means of all pairs of sorted finite values, including each with itself.
fn nth_mean(x: &[f64], n: usize) -> f64 {
    let at_most = |limit: f64| -> usize {
        // The larger the first value of a pair, the fewer fit as the second.
        let mut end = x.len();
        let each = x.iter().enumerate().map(|(i, a)| {
            while end > i && f64::midpoint(*a, x[end - 1]) > limit {
                end -= 1;
            }
            end.saturating_sub(i)
        });
        each.sum()
    };
    nth_counted((x[0], x[x.len() - 1]), n, at_most)
}

/// Returns the largest k for which both tails together, `2 P(W <= k)`, hold at most `alpha`. W is the signed-rank statistic
/// of `n` values. `None` if not even k = 0 fits.
fn signed_rank_critical(n: usize, alpha: f64) -> Option<usize> {
    /// Above this the normal approximation is right to the third digit.
    const EXACT_UP_TO: usize = 60;
    if n == 0 || !(alpha > 0.0 && alpha < 1.0) {
        return None;
    }
    if n > EXACT_UP_TO {
        let n = f64::from(u32::try_from(n).ok()?);
        let sd = (n * (n + 1.0) * (2.0 * n + 1.0) / 24.0).sqrt();
        return normal_critical(n * (n + 1.0) / 4.0, sd, alpha);
    }
    // ways[s]: the share of the 2^n sign patterns whose positive ranks sum to s.
    let most = n * (n + 1) / 2;
    let mut ways = vec![0.0f64; most + 1];
    ways[0] = 1.0;
    for rank in 1..=n {
        for sum in (0..=most).rev() {
            let with = if sum >= rank { ways[sum - rank] } else { 0.0 };
            ways[sum] = (ways[sum] + with) / 2.0;
        }
    }
    both_tails(&ways, alpha)
}

/// Returns that k for an integer statistic that is nearly normal.
fn normal_critical(mean: f64, sd: f64, alpha: f64) -> Option<usize> {
    let z = Normal::standard().inverse_cdf(1.0 - alpha / 2.0);
    let k = (mean - z * sd - 0.5).floor();
    #[allow(clippy::cast_possible_truncation)]
    (k >= 0.0).then_some(k as usize)
}

/// Returns the largest k for which both tails up to it together hold at most `alpha`.
fn both_tails(shares: &[f64], alpha: f64) -> Option<usize> {
    let mut tail = 0.0;
    let held = shares.iter().take_while(|share| {
        tail += **share;
        2.0 * tail <= alpha
    });
    held.count().checked_sub(1)
}

/// Returns the rank-sum interval for the difference of two runs of samples, `b - a`: its ends are order statistics of all
/// differences between the runs, the estimate is their median. Exact for independent values; a drift between the two runs
/// goes undetected. `None` with too few values for this confidence (fewer than 4 each for 0.95), or with a value that is not
/// finite.
pub fn rank_sum_interval(a: &[f64], b: &[f64], confidence: f64) -> Option<LogRatioInterval> {
    let sorted = |x: &[f64]| {
        let mut x = x.to_vec();
        x.sort_by(f64::total_cmp);
        x
    };
    if !a.iter().chain(b).all(|v| v.is_finite()) {
        return None;
    }
    let rank = rank_sum_critical(a.len(), b.len(), 1.0 - confidence)?;
    let (a, b) = (sorted(a), sorted(b));
    let picks = quantile_ranks(a.len() * b.len(), rank);
    let [below, above, low, high] = picks.map(|n| nth_difference(&a, &b, n));
    Some(LogRatioInterval {
        center: f64::midpoint(below, above),
        low,
        high,
        method: StatisticalTest::RankSum,
    })
}

/// Returns the n-th smallest, from 0, of all differences `b - a` of two sorted runs of finite values.
fn nth_difference(a: &[f64], b: &[f64], n: usize) -> f64 {
    let at_most = |limit: f64| -> usize {
        // The larger `b` is, the more of `a` are too small.
        let mut below = 0;
        let each = b.iter().map(|b| {
            below += a[below..].iter().take_while(|a| b - **a > limit).count();
            a.len() - below
        });
        each.sum()
    };
    nth_counted((b[0] - a[a.len() - 1], b[b.len() - 1] - a[0]), n, at_most)
}

/// Returns the n-th smallest, from 0, of values in a range, where `at_most` counts those up to a limit. Values are not
/// stored, because two runs of an hour have millions of differences. A bisection over all floating-point numbers finds it.
fn nth_counted((low, high): (f64, f64), n: usize, at_most: impl Fn(f64) -> usize) -> f64 {
    // Map the bits to integers in numerical order.
    const SIGN: u64 = 1 << 63;
    let key = |x: f64| match x.to_bits() {
        bits if bits & SIGN == 0 => bits | SIGN,
        bits => !bits,
    };
    let number = |key: u64| match key & SIGN {
        0 => f64::from_bits(!key),
        _ => f64::from_bits(key & !SIGN),
    };
    let (mut low, mut high) = (key(low), key(high));
    while low < high {
        let middle = low + (high - low) / 2;
        match at_most(number(middle)) > n {
            true => high = middle,
            false => low = middle + 1,
        }
    }
    number(low)
}

/// Returns the largest k for which both tails together, `2 P(U <= k)`, hold at most `alpha`. U is the Mann-Whitney statistic
/// for runs of `m` and `n` values. `None` if not even k = 0 fits.
fn rank_sum_critical(m: usize, n: usize, alpha: f64) -> Option<usize> {
    /// Above this number of pairs of values the normal approximation is right to the third digit. If one run is short, it is
    /// conservative.
    const EXACT_UP_TO: usize = 1600;
    if m == 0 || n == 0 || !(alpha > 0.0 && alpha < 1.0) {
        return None;
    }
    let pairs = m.checked_mul(n)?;
    if pairs > EXACT_UP_TO {
        let float = |n: usize| u32::try_from(n).map(f64::from);
        let (m, n) = (float(m).ok()?, float(n).ok()?);
        let sd = (m * n * (m + n + 1.0) / 12.0).sqrt();
        return normal_critical(m * n / 2.0, sd, alpha);
    }
    both_tails(&rank_sum_shares(m, n), alpha)
}

/// Returns the distribution of U: the probabilities of 0, 1, … `m * n`. The recursion removes the largest value, which is in
/// one run or the other.
fn rank_sum_shares(m: usize, n: usize) -> Vec<f64> {
    // row[b]: for as many values of the first run as iterations so far, and b of the second.
    let mut row: Vec<Vec<f64>> = vec![vec![1.0]; n + 1];
    for a in 1..=m {
        let mut next: Vec<Vec<f64>> = vec![vec![1.0]];
        for b in 1..=n {
            let all = (a + b) as f64;
            let (of_a, of_b) = (a as f64 / all, b as f64 / all);
            let mut shares = vec![0.0; a * b + 1];
            for (u, share) in row[b].iter().enumerate() {
                shares[u + b] += of_a * share;
            }
            for (u, share) in next[b - 1].iter().enumerate() {
                shares[u] += of_b * share;
            }
            next.push(shares);
        }
        row = next;
    }
    row.pop().unwrap_or_default()
}

/// Returns Welch's interval for the difference of the means of logs, `large - base`, of two runs with one sample per
/// interval. Consecutive samples are correlated, so each run's variance is widened by (1 + r) / (1 - r), r being its lag-1
/// autocorrelation if positive. A drift between the two runs goes undetected. `None` if a run has fewer than three samples.
pub fn welch_interval(base: &[f64], large: &[f64], confidence: f64) -> Option<LogRatioInterval> {
    if base.len() < 3 || large.len() < 3 {
        return None;
    }
    let part = |x: &[f64]| {
        let r = lag_one(x).clamp(0.0, 0.95);
        let widen = (1.0 + r) / (1.0 - r);
        (variance(x) / count(x) * widen, count(x) / widen)
    };
    let ((vb, nb), (vl, nl)) = (part(base), part(large));
    let sum = vb + vl;
    let spread = vb * vb / (nb - 1.0).max(1.0) + vl * vl / (nl - 1.0).max(1.0);
    let degrees = if spread > 0.0 {
        sum * sum / spread
    } else {
        1.0
    };
    let center = mean(large) - mean(base);
    let half = t_quantile(confidence, degrees.max(1.0)) * sum.sqrt();
    Some(LogRatioInterval {
        center,
        low: center - half,
        high: center + half,
        method: StatisticalTest::Welch,
    })
}

/// One arm over another: huge over base pages.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Effect {
    pub ratio: f64,
    pub low: f64,
    pub high: f64,
    /// The confidence of the interval: 0.95.
    pub confidence: f64,
    pub method: StatisticalTest,
    /// The estimator; `None` in files from before it was recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub estimator: Option<Estimator>,
}

impl Effect {
    pub fn from_interval(interval: &LogRatioInterval, confidence: f64) -> Effect {
        Effect {
            ratio: interval.center.exp(),
            low: interval.low.exp(),
            high: interval.high.exp(),
            confidence,
            method: interval.method,
            estimator: Some(interval.method.estimator()),
        }
    }
}

/// Formats a result for a person, the difference first: `12 % faster (95 % CI 7 to 17 %), ×1.12 [1.07, 1.17]`. Without a clear
/// direction: `unclear, +4 % (95 % CI -3 to +11 %), ×1.04 [0.97, 1.11]`. The ratio is given with its interval in ascending order.
pub fn difference(
    verdict: Verdict,
    better: BetterDirection,
    [low, ratio, high]: [f64; 3],
    confidence: Option<f64>,
) -> String {
    let has_direction = matches!(verdict, Verdict::Faster | Verdict::Slower);
    let (is_more, is_less) = (low > 1.0, high < 1.0);
    let (lead, ends) = if has_direction && (is_more || is_less) {
        let size = |ratio: f64| percent(ratio).trim_start_matches(['+', '-']).to_owned();
        let (near, far) = if is_more { (low, high) } else { (high, low) };
        (
            format!("{} % {verdict}", size(ratio)),
            format!("{} to {} %", size(near), size(far)),
        )
    } else {
        (
            format!("{verdict}, {} %", percent(ratio)),
            format!("{} to {} %", percent(low), percent(high)),
        )
    };
    let level = confidence.map_or_else(String::new, |part| format!("{:.0} % ", part * 100.0));
    let direction = match better {
        BetterDirection::Lower => ", lower is better",
        BetterDirection::Higher | BetterDirection::Neither => "",
    };
    let [low, ratio, high] = [low, ratio, high].map(times);
    format!("{lead} ({level}CI {ends}), ×{ratio} [{low}, {high}]{direction}")
}

/// Formats a ratio as a difference in percent, with its sign and without the unit: `+12`, `-3.5`, `0`.
pub fn percent(ratio: f64) -> String {
    let value = (ratio - 1.0) * 100.0;
    let text = match value.abs() < 9.95 {
        true => format!("{value:+.1}"),
        false => format!("{value:+.0}"),
    };
    match text.trim_end_matches(".0") {
        "+0" | "-0" => "0".to_owned(),
        text => text.to_owned(),
    }
}

fn times(ratio: f64) -> String {
    match ratio {
        small if small < 0.1 => format!("{small:.3}"),
        large if large >= 10.0 => format!("{large:.1}"),
        ratio => format!("{ratio:.2}"),
    }
}

/// Returns the verdict for an interval, if anything within ±`equal` (a log ratio: ln 1.02) counts as equal.
///
/// `same` is two one-sided tests (TOST, Schuirmann 1987) of the margin: "the ratio is not below 1 / (1 + margin)" and "it is
/// not above 1 + margin", each at half of `1 - confidence` (2.5 % at 95 %). Both hold exactly if the whole interval is
/// within the margin; with the customary interval of 90 % each would be at 5 %. A significant difference within the margin
/// is `same`.
pub fn judge(interval: &LogRatioInterval, equal: f64, better: BetterDirection) -> Verdict {
    judge_beyond(interval, equal, 0.0, better)
}

/// Judges likewise, but a difference must be certain beyond ±`beyond`: for samples that were not taken side by side, and may
/// differ by time as well (a region of practical equivalence, Kruschke 2018).
pub fn judge_beyond(
    interval: &LogRatioInterval,
    equal: f64,
    beyond: f64,
    better: BetterDirection,
) -> Verdict {
    let (up, down) = match better {
        BetterDirection::Higher => (Verdict::Faster, Verdict::Slower),
        BetterDirection::Lower | BetterDirection::Neither => (Verdict::Slower, Verdict::Faster),
    };
    if interval.low >= -equal && interval.high <= equal {
        Verdict::Same
    } else if interval.low > beyond {
        up
    } else if interval.high < -beyond {
        down
    } else {
        Verdict::Unclear
    }
}

fn count(x: &[f64]) -> f64 {
    x.len() as f64
}

/// Returns the arithmetic mean; 0 without values.
pub fn mean(x: &[f64]) -> f64 {
    x.iter().sum::<f64>() / count(x).max(1.0)
}

/// Returns the sample variance (divided by n - 1); 0 for fewer than two values.
pub fn variance(x: &[f64]) -> f64 {
    let m = mean(x);
    x.iter().map(|v| (v - m) * (v - m)).sum::<f64>() / (count(x) - 1.0).max(1.0)
}

/// Returns the lag-1 autocorrelation of a series; 0 if it is constant.
pub fn lag_one(x: &[f64]) -> f64 {
    let m = mean(x);
    let all: f64 = x.iter().map(|v| (v - m) * (v - m)).sum();
    let next: f64 = x.windows(2).map(|w| (w[0] - m) * (w[1] - m)).sum();
    if all > 0.0 { next / all } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn near(a: f64, b: f64, by: f64) {
        assert!((a - b).abs() <= by, "{a} is not {b}");
    }

    #[test]
    fn a_difference_is_a_percentage_with_its_interval_first() {
        let all = |verdict, better, ratio| difference(verdict, better, ratio, Some(0.95));
        for (verdict, better, ratio, text) in [
            (
                Verdict::Faster,
                BetterDirection::Higher,
                [1.0702, 1.1201, 1.1698],
                "12 % faster (95 % CI 7 to 17 %), ×1.12 [1.07, 1.17]",
            ),
            (
                Verdict::Slower,
                BetterDirection::Higher,
                [0.83, 0.88, 0.985],
                "12 % slower (95 % CI 1.5 to 17 %), ×0.88 [0.83, 0.98]",
            ),
            (
                Verdict::Faster,
                BetterDirection::Lower,
                [0.85, 0.89, 0.93],
                "11 % faster (95 % CI 7 to 15 %), ×0.89 [0.85, 0.93], lower is better",
            ),
            (
                Verdict::Same,
                BetterDirection::Higher,
                [0.994, 1.0002, 1.012],
                "same, 0 % (95 % CI -0.6 to +1.2 %), ×1.00 [0.99, 1.01]",
            ),
            (
                Verdict::Unclear,
                BetterDirection::Neither,
                [0.97, 1.04, 1.11],
                "unclear, +4 % (95 % CI -3 to +11 %), ×1.04 [0.97, 1.11]",
            ),
            // An interval that was widened later.
            (
                Verdict::Faster,
                BetterDirection::Higher,
                [0.99, 1.12, 25.0],
                "faster, +12 % (95 % CI -1 to +2400 %), ×1.12 [0.99, 25.0]",
            ),
        ] {
            assert_eq!(all(verdict, better, ratio), text);
        }
        let unknown = difference(
            Verdict::Faster,
            BetterDirection::Higher,
            [1.07, 1.12, 1.17],
            None,
        );
        assert!(
            unknown.starts_with("12 % faster (CI 7 to 17 %)"),
            "{unknown}"
        );
    }

    /// Table of Student's t (NIST/SEMATECH e-Handbook 1.3.6.7.2), two-sided.
    #[test]
    fn quantiles_are_the_published_ones() {
        for (confidence, degrees, value) in [
            (0.95, 1.0, 12.706),
            (0.95, 7.0, 2.365),
            (0.95, 10.0, 2.228),
            (0.95, 30.0, 2.042),
            (0.99, 10.0, 3.169),
            (0.90, 5.0, 2.015),
        ] {
            near(t_quantile(confidence, degrees), value, 5e-4);
        }
        assert!(t_quantile(0.95, 0.0).is_infinite());
        assert!(t_quantile(1.0, 5.0).is_infinite());
    }

    /// Critical values of Wilcoxon's table, two-sided 0.05 and 0.01.
    #[test]
    fn signed_ranks_are_the_published_ones() {
        for (n, five, one) in [
            (6, Some(0), None),
            (8, Some(3), Some(0)),
            (10, Some(8), Some(3)),
            (15, Some(25), Some(15)),
            (20, Some(52), Some(37)),
            (25, Some(89), Some(68)),
            (30, Some(137), Some(109)),
            (50, Some(434), Some(373)),
        ] {
            assert_eq!(signed_rank_critical(n, 0.05), five, "{n}");
            assert_eq!(signed_rank_critical(n, 0.01), one, "{n}");
        }
        assert_eq!(signed_rank_critical(5, 0.05), None);
        assert_eq!(signed_rank_critical(0, 0.05), None);
        // The approximation takes over without a step.
        let (a, b) = (
            signed_rank_critical(60, 0.05).unwrap(),
            signed_rank_critical(61, 0.05).unwrap(),
        );
        assert!(b > a && b - a < 30, "{a} {b}");
    }

    /// The depression data of Hollander and Wolfe (1973), as shown by R's wilcox.test: estimate -0.46; 95 % interval -0.786
    /// to -0.010.
    #[test]
    #[allow(clippy::approx_constant, reason = "a measured 3.14")]
    fn hodges_and_lehmann_on_published_data() {
        let before = [1.83, 0.50, 1.62, 2.48, 1.68, 1.88, 1.55, 3.06, 1.30];
        let after = [0.878, 0.647, 0.598, 2.05, 1.06, 1.29, 1.06, 3.14, 1.29];
        let x: Vec<f64> = before.iter().zip(after).map(|(b, a)| a - b).collect();
        let i = signed_rank_interval(&x, 0.95).unwrap();
        near(i.center, -0.46, 1e-3);
        near(i.low, -0.786, 1e-3);
        near(i.high, -0.010, 1e-3);
    }

    /// Critical values of the table of Mann and Whitney, two-sided 0.05 and 0.01.
    #[test]
    fn rank_sums_are_the_published_ones() {
        for (m, n, five, one) in [
            (2, 8, Some(0), None),
            (3, 5, Some(0), None),
            (4, 4, Some(0), None),
            (5, 5, Some(2), Some(0)),
            (6, 10, Some(11), Some(6)),
            (7, 9, Some(12), Some(7)),
            (8, 8, Some(13), Some(7)),
            (9, 9, Some(17), Some(11)),
            (10, 10, Some(23), Some(16)),
            (12, 15, Some(49), Some(37)),
            (15, 15, Some(64), Some(51)),
            (20, 20, Some(127), Some(105)),
        ] {
            assert_eq!(rank_sum_critical(m, n, 0.05), five, "{m} {n}");
            assert_eq!(rank_sum_critical(n, m, 0.05), five, "{n} {m}");
            assert_eq!(rank_sum_critical(m, n, 0.01), one, "{m} {n}");
        }
        assert_eq!(rank_sum_critical(3, 4, 0.05), None);
        assert_eq!(rank_sum_critical(1, 30, 0.05), None);
        assert_eq!(rank_sum_critical(0, 5, 0.05), None);
        // The approximation takes over without a step: 40 times 40 and 41 are 41 U apart at most.
        let (a, b) = (
            rank_sum_critical(40, 40, 0.05).unwrap(),
            rank_sum_critical(40, 41, 0.05).unwrap(),
        );
        assert!(b > a && b - a < 20, "{a} {b}");
    }

    /// The chorioamnion data of Hollander and Wolfe (1973, 69f), as shown by R's wilcox.test: estimate 0.305; 95 % interval
    /// -0.15 to 0.76.
    #[test]
    fn hodges_and_lehmann_of_two_runs_on_published_data() {
        let at_term = [0.80, 0.83, 1.89, 1.04, 1.45, 1.38, 1.91, 1.64, 0.73, 1.46];
        let early = [1.15, 0.88, 0.90, 0.74, 1.21];
        let i = rank_sum_interval(&early, &at_term, 0.95).unwrap();
        near(i.center, 0.305, 1e-9);
        near(i.low, -0.15, 1e-9);
        near(i.high, 0.76, 1e-9);
        assert_eq!(i.method, StatisticalTest::RankSum);
        assert_eq!(rank_sum_interval(&early[..3], &at_term[..4], 0.95), None);
        assert_eq!(rank_sum_interval(&[f64::NAN; 5], &at_term, 0.95), None);
    }

    #[test]
    fn welch_widens_for_resemblance() {
        let flat = [1.0, 1.2, 0.9, 1.1, 1.0, 1.2, 0.9, 1.1];
        let climbing = [1.0, 1.05, 1.1, 1.15, 1.2, 1.25, 1.3, 1.35];
        let plain = welch_interval(&flat, &flat, 0.95).unwrap();
        near(plain.center, 0.0, 1e-12);
        let i = welch_interval(&flat, &climbing, 0.95).unwrap();
        let unwidened =
            t_quantile(0.95, 14.0) * (variance(&flat) / 8.0 + variance(&climbing) / 8.0).sqrt();
        assert!(i.half_width() > unwidened);
        assert_eq!(welch_interval(&flat[..2], &flat, 0.95), None);
    }

    #[test]
    fn verdicts() {
        let judge = |low: f64, high: f64, better| {
            let method = StatisticalTest::SignedRank;
            let i = LogRatioInterval {
                center: f64::midpoint(low, high),
                low,
                high,
                method,
            };
            judge(&i, 0.02, better)
        };
        for (low, high, higher, lower) in [
            (0.05, 0.10, Verdict::Faster, Verdict::Slower),
            (-0.10, -0.05, Verdict::Slower, Verdict::Faster),
            (-0.02, 0.02, Verdict::Same, Verdict::Same),
            (0.005, 0.015, Verdict::Same, Verdict::Same),
            (0.005, 0.025, Verdict::Faster, Verdict::Slower),
            (-0.03, 0.01, Verdict::Unclear, Verdict::Unclear),
            (0.0, 0.10, Verdict::Unclear, Verdict::Unclear),
            (
                f64::NEG_INFINITY,
                f64::INFINITY,
                Verdict::Unclear,
                Verdict::Unclear,
            ),
        ] {
            assert_eq!(
                judge(low, high, BetterDirection::Higher),
                higher,
                "{low} {high}"
            );
            assert_eq!(
                judge(low, high, BetterDirection::Lower),
                lower,
                "{low} {high}"
            );
        }
    }

    proptest! {
        #[test]
        fn intervals_hold_their_estimate_and_move_with_the_data(
            x in prop::collection::vec(-1.0f64..1.0, 6..80), by in -1.0f64..1.0)
        {
            let moved: Vec<f64> = x.iter().map(|v| v + by).collect();
            let f = signed_rank_interval;
            let (i, m) = (f(&x, 0.95).unwrap(), f(&moved, 0.95).unwrap());
            prop_assert!(i.low <= i.center && i.center <= i.high);
            prop_assert!((i.center + by - m.center).abs() < 1e-9);
            prop_assert!((i.low + by - m.low).abs() < 1e-9);
            if let Some(wide) = f(&x, 0.99) {
                prop_assert!(wide.low <= i.low && wide.high >= i.high);
            }
        }

        #[test]
        fn swapping_the_arms_mirrors_the_interval(
            x in prop::collection::vec(-1.0f64..1.0, 6..40))
        {
            let swapped: Vec<f64> = x.iter().map(|v| -v).collect();
            let f = signed_rank_interval;
            let (i, s) = (f(&x, 0.95).unwrap(), f(&swapped, 0.95).unwrap());
            prop_assert!((i.low + s.high).abs() < 1e-9);
            prop_assert!((i.center + s.center).abs() < 1e-9);
        }

        /// Counting differences gives the same result as storing them.
        #[test]
        fn differences_are_found_without_being_made(
            a in prop::collection::vec(-3.0f64..3.0, 1..12),
            b in prop::collection::vec(-1e3f64..1e3, 1..12))
        {
            let (mut a, mut b) = (a, b);
            a.sort_by(f64::total_cmp);
            b.sort_by(f64::total_cmp);
            let mut all: Vec<f64> = a.iter().flat_map(|a| b.iter().map(move |b| b - a)).collect();
            all.sort_by(f64::total_cmp);
            for (n, value) in all.iter().enumerate() {
                prop_assert_eq!(nth_difference(&a, &b, n), *value);
            }
        }

        /// The same holds for means.
        #[test]
        fn means_are_found_without_being_made(x in prop::collection::vec(-3.0f64..3.0, 1..24)) {
            let mut x = x;
            x.sort_by(f64::total_cmp);
            let pairs = x.iter().enumerate();
            let pairs = pairs.flat_map(|(i, a)| x[i..].iter().map(|b| f64::midpoint(*a, *b)));
            let mut all: Vec<f64> = pairs.collect();
            all.sort_by(f64::total_cmp);
            for (n, value) in all.iter().enumerate() {
                prop_assert_eq!(nth_mean(&x, n), *value);
            }
        }

        #[test]
        fn two_runs_swapped_mirror_their_interval(
            a in prop::collection::vec(-1.0f64..1.0, 4..20),
            b in prop::collection::vec(-1.0f64..1.0, 4..20))
        {
            let i = rank_sum_interval(&a, &b, 0.95).unwrap();
            let s = rank_sum_interval(&b, &a, 0.95).unwrap();
            prop_assert!(i.low <= i.center && i.center <= i.high);
            prop_assert!((i.low + s.high).abs() < 1e-12 && (i.high + s.low).abs() < 1e-12);
            prop_assert!((i.center + s.center).abs() < 1e-12);
        }

        #[test]
        fn log_ratios_are_finite_or_none(a in prop::num::f64::ANY, b in prop::num::f64::ANY) {
            if let Some(x) = log_ratio(a, b) {
                prop_assert!(x.is_finite());
            }
        }
    }
}
