//! Effects that need longer than an interval: both arms are held after the pairs.
//!
//! Pairs of short intervals cancel drift of the load. They miss an effect that grows after promotion, for instance while
//! caches fill. Therefore each arm is held for [`ExperimentSettings::hold`](crate::ExperimentSettings::hold), and the later halves are
//! compared. One round that agrees with the pairs ends the holds. The effect is not settled if two of at most
//! [`MOST_ROUNDS`] rounds contradict the pairs in the same way. A single round cannot distinguish an effect from a change
//! of the load.
//!
//! The engine and the lab's simulator share this code. It measures nothing itself.

use std::cmp::Ordering;

use serde::{Deserialize, Serialize};

use crate::median_interval::MedianInterval;
use crate::stats::{self, LogRatioInterval, Verdict};
use crate::subject::Arm;

/// Maximum number of rounds.
pub const MOST_ROUNDS: usize = 3;
/// Maximum distance from the pairs' interval, a log ratio, of a round that agrees with it. A margin derived from the
/// scatter of the base arm detected a third fewer slow effects on one of two recordings and avoided few false alarms.
const MARGIN: f64 = 0.01;
/// Maximum difference of two rounds that contradict the pairs in the same way, as a part of the larger deviation.
const ALIKE: f64 = 0.6;

/// Both arms held on their pages, one after the other.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct HoldRound {
    /// Median of the samples in the later half.
    pub base: f64,
    pub large: f64,
    /// `large / base`.
    pub ratio: f64,
    pub first: Arm,
}

impl HoldRound {
    /// Returns the round of these samples, which are in order of time. `None` if an arm has fewer than two, or if a value
    /// is not positive.
    fn new(base: &[f64], large: &[f64], first: Arm) -> Option<HoldRound> {
        let late = |samples: &[f64]| match samples {
            [] | [_] => None,
            more => Some(MedianInterval::from_samples(&more[more.len() / 2..])?.median),
        };
        let (base, large) = (late(base)?, late(large)?);
        let ratio = stats::log_ratio(base, large)?.exp();
        Some(HoldRound {
            base,
            large,
            ratio,
            first,
        })
    }
}

/// Result of the rounds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HoldResult {
    /// Duration of the hold of one arm.
    pub seconds: f64,
    pub rounds: Vec<HoldRound>,
    /// False if two rounds contradict the pairs in the same way.
    pub settled: bool,
}

impl HoldResult {
    /// Returns the median ratio of the rounds if they contradict the pairs.
    pub fn late_ratio(&self) -> Option<f64> {
        let ratios: Vec<f64> = self.rounds.iter().map(|r| r.ratio).collect();
        Some(MedianInterval::from_samples(&ratios)?.median).filter(|_| !self.settled)
    }
}

/// Holds both arms until it is known whether the effect has settled. `hold` holds one arm for `seconds` and returns its
/// samples, or `None` if it was interrupted; then the result is `None` as well.
///
/// # Errors
/// The first error of `hold`.
pub fn hold_both<E>(
    pairs: &LogRatioInterval,
    seconds: f64,
    mut hold: impl FnMut(Arm) -> Result<Option<Vec<f64>>, E>,
) -> Result<Option<HoldResult>, E> {
    let mut rounds: Vec<HoldRound> = Vec::new();
    loop {
        let logs: Vec<f64> = rounds.iter().map(|r| r.ratio.ln()).collect();
        if let Some(settled) = settled(pairs, &logs) {
            return Ok(Some(HoldResult {
                seconds,
                rounds,
                settled,
            }));
        }
        // Drift cancels out over two rounds.
        let first = match rounds.len() % 2 {
            0 => Arm::Large,
            _ => Arm::Base,
        };
        let mut held = [Vec::new(), Vec::new()];
        for arm in [first, first.other()] {
            let Some(samples) = hold(arm)? else {
                return Ok(None);
            };
            held[arm as usize] = samples;
        }
        let Some(round) = HoldRound::new(&held[0], &held[1], first) else {
            return Ok(None);
        };
        rounds.push(round);
    }
}

/// Returns true if the rounds agree with the pairs, false if two contradict them in the same way, and `None` if another
/// round is needed. The pairs stand if [`MOST_ROUNDS`] rounds contradict each other.
fn settled(pairs: &LogRatioInterval, rounds: &[f64]) -> Option<bool> {
    let side = |log: f64| match log {
        above if above > pairs.high + MARGIN => Ordering::Greater,
        below if below < pairs.low - MARGIN => Ordering::Less,
        _ => Ordering::Equal,
    };
    if rounds.iter().any(|&log| side(log).is_eq()) {
        return Some(true);
    }
    let is_alike = |a: f64, b: f64| {
        let far = (a - pairs.center).abs().max((b - pairs.center).abs());
        side(a) == side(b) && (a - b).abs() <= ALIKE * far
    };
    let mut others = rounds.iter().enumerate();
    if others.any(|(n, &a)| rounds[..n].iter().any(|&b| is_alike(a, b))) {
        return Some(false);
    }
    (rounds.len() >= MOST_ROUNDS).then_some(true)
}

/// Returns the verdict after the holds. If they contradict the pairs, the verdict becomes `unclear`, except `faster` or
/// `slower` with at least half of the pairs' effect left.
pub fn verdict(verdict: Verdict, pairs: &LogRatioInterval, holds: Option<&HoldResult>) -> Verdict {
    let Some(late) = holds.and_then(HoldResult::late_ratio) else {
        return verdict;
    };
    match verdict {
        Verdict::Faster | Verdict::Slower if late.ln() / pairs.center >= 0.5 => verdict,
        _ => Verdict::Unclear,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::StatisticalTest;

    fn pairs(low: f64, center: f64, high: f64) -> LogRatioInterval {
        LogRatioInterval {
            center,
            low,
            high,
            method: StatisticalTest::SignedRank,
        }
    }

    fn holds(ratios: &[f64]) -> HoldResult {
        let round = |&ratio: &f64| HoldRound {
            base: 1.0,
            large: ratio,
            ratio,
            first: Arm::Base,
        };
        HoldResult {
            seconds: 40.0,
            rounds: ratios.iter().map(round).collect(),
            settled: false,
        }
    }

    #[test]
    fn the_later_half_counts() {
        let round =
            HoldRound::new(&[9.0, 9.0, 1.0, 1.0], &[9.0, 9.0, 2.0, 2.0], Arm::Large).unwrap();
        assert_eq!((round.base, round.large, round.ratio), (1.0, 2.0, 2.0));
        assert_eq!(HoldRound::new(&[1.0], &[1.0, 1.0], Arm::Base), None);
        assert_eq!(HoldRound::new(&[0.0; 4], &[1.0; 4], Arm::Base), None);
    }

    #[test]
    fn one_round_that_agrees_is_enough_and_two_have_to_contradict() {
        let pairs = pairs(-0.02, 0.0, 0.02);
        assert_eq!(settled(&pairs, &[]), None);
        assert_eq!(settled(&pairs, &[0.025]), Some(true));
        assert_eq!(settled(&pairs, &[0.09]), None);
        assert_eq!(settled(&pairs, &[0.09, 0.10]), Some(false));
        assert_eq!(settled(&pairs, &[0.09, -0.10]), None);
        assert_eq!(settled(&pairs, &[0.09, 0.9]), None);
        assert_eq!(settled(&pairs, &[0.09, 0.9, 0.08]), Some(false));
        assert_eq!(settled(&pairs, &[0.09, 0.9, -0.09]), Some(true));
    }

    #[test]
    fn a_verdict_stands_only_where_the_effect_grows() {
        let faster = pairs(0.03, 0.05, 0.07);
        assert_eq!(
            verdict(Verdict::Faster, &faster, Some(&holds(&[1.2, 1.2]))),
            Verdict::Faster
        );
        assert_eq!(
            verdict(Verdict::Faster, &faster, Some(&holds(&[1.0, 1.0]))),
            Verdict::Unclear
        );
        assert_eq!(
            verdict(Verdict::Faster, &faster, Some(&holds(&[0.9, 0.9]))),
            Verdict::Unclear
        );
        assert_eq!(verdict(Verdict::Faster, &faster, None), Verdict::Faster);
        let slower = pairs(-0.12, -0.10, -0.08);
        assert_eq!(
            verdict(Verdict::Slower, &slower, Some(&holds(&[1.1, 1.1]))),
            Verdict::Unclear
        );
        let same = pairs(-0.01, 0.0, 0.01);
        assert_eq!(
            verdict(Verdict::Same, &same, Some(&holds(&[1.1, 1.1]))),
            Verdict::Unclear
        );
        let stands = HoldResult {
            settled: true,
            ..holds(&[1.1, 1.1])
        };
        assert_eq!(verdict(Verdict::Same, &same, Some(&stands)), Verdict::Same);
    }
}
