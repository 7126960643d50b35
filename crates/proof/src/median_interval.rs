//! The median of a few samples, with its interval. Pure.

use serde::{Deserialize, Serialize};

pub const CONFIDENCE: f64 = 0.95;

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct MedianInterval {
    pub median: f64,
    /// Lower end of its interval; `None` for fewer than six samples.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub low: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub high: Option<f64>,
}

impl MedianInterval {
    /// Returns the spread of samples in any order; `None` without any.
    pub fn from_samples(samples: &[f64]) -> Option<MedianInterval> {
        let mut sorted = samples.to_vec();
        sorted.sort_by(f64::total_cmp);
        let last = sorted.len().checked_sub(1)?;
        let interval = median_interval(&sorted);
        Some(MedianInterval {
            median: f64::midpoint(sorted[last / 2], sorted[sorted.len() / 2]),
            low: interval.map(|(low, _)| low),
            high: interval.map(|(_, high)| high),
        })
    }
}

/// Returns the interval of the median of sorted samples: two of them, such that the binomial distribution
/// leaves at most 1 - [`CONFIDENCE`] outside, for any distribution of the samples (Conover, Practical
/// Nonparametric Statistics, 3.2). `None` with too few samples: 6 are needed for 0.95.
fn median_interval(sorted: &[f64]) -> Option<(f64, f64)> {
    let n = sorted.len();
    let count = f64::from(u32::try_from(n).ok()?);
    // The share of both tails below the k-th sample, each term derived from the previous one. In logarithms,
    // because 2^-n is 0 for n above a thousand.
    let mut term = -count * std::f64::consts::LN_2;
    let mut outside = 0.0;
    let mut best = None;
    for k in 0..n.div_ceil(2) {
        outside += 2.0 * term.exp();
        if outside > 1.0 - CONFIDENCE {
            break;
        }
        best = Some((sorted[k], sorted[n - 1 - k]));
        let at = f64::from(u32::try_from(k).ok()?);
        term += ((count - at) / (at + 1.0)).ln();
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Ranks from textbook tables for 95 %: the k-th from either end.
    #[test]
    fn ranks_are_the_published_ones() {
        for (n, rank) in [(6, 1), (8, 1), (9, 2), (12, 3), (15, 4), (20, 6), (30, 10)] {
            let sorted: Vec<f64> = (1..=n).map(f64::from).collect();
            let (low, high) = median_interval(&sorted).unwrap();
            assert_eq!(
                (low, high),
                (f64::from(rank), f64::from(n + 1 - rank)),
                "{n}"
            );
        }
        assert_eq!(median_interval(&[1.0; 5]), None);
        assert_eq!(median_interval(&[]), None);
        let many: Vec<f64> = (0..1024).map(f64::from).collect();
        let (low, high) = median_interval(&many).unwrap();
        assert!(
            (480.0..=481.0).contains(&low) && (542.0..=543.0).contains(&high),
            "{low} {high}"
        );
    }

    #[test]
    fn medians() {
        assert_eq!(MedianInterval::from_samples(&[]), None);
        let few = MedianInterval::from_samples(&[3.0, 1.0, 2.0, 10.0]).unwrap();
        assert_eq!((few.median, few.low), (2.5, None));
    }

    proptest! {
        #[test]
        fn the_median_lies_in_its_interval(samples in prop::collection::vec(-1e6f64..1e6, 1..40)) {
            let spread = MedianInterval::from_samples(&samples).unwrap();
            if let (Some(low), Some(high)) = (spread.low, spread.high) {
                prop_assert!(low <= spread.median && spread.median <= high);
            }
            prop_assert_eq!(spread.low.is_some(), samples.len() >= 6);
        }
    }
}
