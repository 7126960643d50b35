//! Judges a program by all tests of its life. Pure; the lab plays decades with it.
//!
//! A weekly test that errs once in forty errs within a year more often than not. So the tests of a program share one
//! budget of error, `BUDGET`, for as long as its name is remembered. Test number k may err with `BUDGET / (k (k + 1))`:
//! these shares add up to the budget, however many tests there are. That is alpha spending (Lan and DeMets 1983) with
//! the union bound for its boundary (Darling and Robbins 1967). It needs no model of how the looks depend on each
//! other, so each look is the signed-rank interval of `prove` at its share.
//!
//! A look takes the pairs of all tests, and those of the latest `RECENT` tests as well, because what huge pages bring
//! may change. Each has half of the share; where the latest decide, they count.

use std::time::Duration;

use hugeleaf_proof::Verdict;
use hugeleaf_proof::rule::Rule;
use hugeleaf_proof::stats::{self, Better, LogInterval};
use hugeleaf_proof::weigh::{self, PairLogs};
use serde::{Deserialize, Serialize};

use crate::limits::Keep;

/// Probability that any test of a program's life errs to one side: that it calls a program `slower` that is not, or one
/// `same` whose memory brings more than `EQUAL`.
const BUDGET: f64 = 0.01;
const EQUAL: f64 = 1.02;
const RECENT: usize = 4;
/// Two years of the usual tests. Older pairs are dropped.
const MOST_PAIRS: usize = 1248;
/// Time until a program that was moved back is tried again: half a year, doubled by each revert, at most two years.
const AGAIN: Duration = Duration::from_secs(182 * 86_400);
const MOST_DOUBLINGS: u32 = 2;

/// Findings of tests. A field that an older state file lacks is empty.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Evidence {
    /// Tests so far, those before a revert included: how much of the budget is spent.
    pub tests: u32,
    /// Log ratios of the pairs since it was moved last, large over base, the newest last.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub logs: Vec<f64>,
    pub reverts: u32,
}

/// A verdict of the tests so far, with its interval.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Proven {
    pub verdict: Verdict,
    /// The ratio, and its interval as this verdict needs it ([`Evidence`]).
    pub ratio: f64,
    pub low: f64,
    pub high: f64,
    pub pairs: usize,
    pub metric: String,
    /// Seconds since 1970.
    pub at: i64,
}

/// A test that has all of its pairs.
#[derive(Debug, Clone, Copy)]
pub struct Tested<'a> {
    pub logs: &'a [f64],
    pub better: Better,
    pub metric: &'a str,
    /// When, in seconds since 1970.
    pub at: i64,
}

impl Evidence {
    /// Adds a test. Returns what is known now, and whether the memory goes back. A verdict stands until another one is
    /// certain: `unclear` overturns none.
    pub fn add(
        &mut self,
        test: &Tested<'_>,
        before: Option<&Proven>,
        keep: Keep,
    ) -> Option<(Proven, bool)> {
        // Six digits are more than a pair has, and a state file is written often.
        self.logs
            .extend(test.logs.iter().map(|log| (log * 1e6).round() / 1e6));
        let over = self
            .logs
            .len()
            .saturating_sub(MOST_PAIRS.max(test.logs.len()));
        self.logs.drain(..over);
        self.tests = self.tests.saturating_add(1);
        let (verdict, interval) = self.look(test)?;
        let stands = before.filter(|p| p.verdict != Verdict::Unclear);
        let proven = match (verdict, stands) {
            (Verdict::Unclear, Some(stands)) => Proven {
                at: test.at,
                ..stands.clone()
            },
            _ => Proven {
                verdict,
                ratio: interval.center.exp(),
                low: interval.low.exp(),
                high: interval.high.exp(),
                pairs: self.logs.len(),
                metric: test.metric.to_owned(),
                at: test.at,
            },
        };
        let reverts = match (keep, proven.verdict) {
            (_, Verdict::Slower) | (Keep::IfFaster, Verdict::Same) => true,
            (Keep::IfFaster, Verdict::Unclear) => self.logs.len() >= MOST_PAIRS,
            _ => false,
        };
        self.reverts = self.reverts.saturating_add(u32::from(reverts));
        Some((proven, reverts))
    }

    /// The verdict of the latest tests where they have one, else that of all.
    fn look(&self, test: &Tested<'_>) -> Option<(Verdict, LogInterval)> {
        let number = f64::from(self.tests);
        let share = BUDGET / (number * (number + 1.0));
        let latest = self.logs.len().saturating_sub(RECENT * test.logs.len());
        if latest == 0 {
            return judge(&self.logs, share, test.better);
        }
        let recent = judge(&self.logs[latest..], share / 2.0, test.better);
        match recent {
            Some((verdict, _)) if verdict != Verdict::Unclear => recent,
            _ => judge(&self.logs, share / 2.0, test.better),
        }
    }

    /// The same program after a change that makes its pairs worthless: the budget stays as spent as it is.
    pub fn anew(&self) -> Evidence {
        Evidence {
            logs: Vec::new(),
            ..self.clone()
        }
    }

    /// Returns the time for which a program that was moved back stays as it is.
    pub fn again_after(&self) -> Duration {
        AGAIN * 2u32.pow(self.reverts.saturating_sub(1).min(MOST_DOUBLINGS))
    }
}

/// The verdict of pairs that may err to either side with this probability. `None` where they are too few for any.
fn judge(logs: &[f64], share: f64, better: Better) -> Option<(Verdict, LogInterval)> {
    let pairs: Vec<PairLogs> = logs.iter().map(|log| PairLogs::of(*log)).collect();
    let weigh = |confidence: f64| {
        let rule = Rule {
            confidence,
            fixed_pairs: Some(logs.len()),
            ..Rule::default()
        };
        Some(weigh::weigh(&rule, &pairs)?.interval)
    };
    match weigh(1.0 - 2.0 * share) {
        Some(interval) => Some((stats::judge(&interval, EQUAL.ln(), better), interval)),
        // So few cannot be as certain as this test has to be.
        None => Some((Verdict::Unclear, weigh(Rule::default().confidence)?)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fastrand::Rng;
    use proptest::prelude::*;

    /// A number of the standard normal distribution (Box and Muller).
    fn normal(rng: &mut Rng) -> f64 {
        let (u, v) = (1.0 - rng.f64(), rng.f64());
        (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos()
    }

    struct Life {
        evidence: Evidence,
        proven: Option<Proven>,
        rng: Rng,
    }

    impl Life {
        fn new(seed: u64) -> Life {
            Life {
                evidence: Evidence::default(),
                proven: None,
                rng: Rng::with_seed(seed),
            }
        }

        /// One test of twelve pairs with 5 % noise.
        fn test(&mut self, ratio: f64, keep: Keep) -> bool {
            let logs: Vec<f64> = (0..12)
                .map(|_| ratio.ln() + 0.05 * normal(&mut self.rng))
                .collect();
            let test = Tested {
                logs: &logs,
                better: Better::Higher,
                metric: "cmd:x",
                at: 0,
            };
            let (proven, reverts) = self
                .evidence
                .add(&test, self.proven.as_ref(), keep)
                .unwrap();
            self.proven = Some(proven);
            reverts
        }

        /// The number of the test that has it moved back, from 1.
        fn reverted(&mut self, ratio: f64, tests: usize, keep: Keep) -> Option<usize> {
            (1..=tests).find(|_| self.test(ratio, keep))
        }
    }

    const KEEPS: [Keep; 2] = [Keep::IfFaster, Keep::UnlessSlower];

    #[test]
    fn half_a_year_of_tests_decides_right() {
        for keep in KEEPS {
            let wrong = (0..8).filter(|seed| Life::new(*seed).reverted(1.02, 26, keep).is_some());
            assert_eq!(wrong.count(), 0, "{keep:?}");
            let right = (0..40).filter(|seed| Life::new(*seed).reverted(0.95, 4, keep).is_some());
            assert!(right.count() >= 38, "{keep:?}");
        }
        // Nothing gained: kept where that is allowed, moved back where it has to help.
        let reverts = |keep| {
            let all = (0..4).filter(move |s| Life::new(*s).reverted(1.0, 26, keep).is_some());
            all.count()
        };
        assert_eq!(
            (reverts(Keep::IfFaster), reverts(Keep::UnlessSlower)),
            (4, 0)
        );
    }

    #[test]
    fn what_changes_after_years_is_seen_within_weeks() {
        for keep in KEEPS {
            let mut life = Life::new(3);
            assert_eq!(life.reverted(1.05, 80, keep), None);
            assert!(life.reverted(0.93, 4, keep).is_some(), "{keep:?}");
        }
    }

    #[test]
    fn unclear_overturns_nothing() {
        let mut life = Life::new(5);
        assert_eq!(life.reverted(1.08, 10, Keep::IfFaster), None);
        let faster = life.proven.clone().unwrap();
        assert_eq!(faster.verdict, Verdict::Faster);
        // A metric that has become so noisy that it says nothing.
        life.evidence.logs.clear();
        for n in 0..80 {
            let logs = [f64::from(n % 3) - 1.0, 0.9, -0.9, 0.5, -0.5, 0.1, -0.1, 0.7];
            let test = Tested {
                logs: &logs,
                better: Better::Higher,
                metric: "cmd:x",
                at: i64::from(n),
            };
            let before = life.proven.clone();
            let added = life.evidence.add(&test, before.as_ref(), Keep::IfFaster);
            let (proven, reverts) = added.unwrap();
            assert!(
                !reverts && proven.verdict == Verdict::Faster,
                "{n} {proven:?}"
            );
            assert_eq!((proven.ratio, proven.at), (faster.ratio, i64::from(n)));
            life.proven = Some(proven);
        }
        // Two years in which nothing was certain are enough.
        life.proven = None;
        life.evidence.logs = (0..i32::try_from(MOST_PAIRS).unwrap())
            .map(|n| f64::from(n % 7) - 3.0)
            .collect();
        let unsure = life.reverted(1.0, 1, Keep::UnlessSlower);
        assert_eq!(unsure, None);
        life.proven = None;
        assert_eq!(life.reverted(1.0, 1, Keep::IfFaster), Some(1));
    }

    #[test]
    fn reverts_last_half_a_year_then_one_then_two() {
        let mut evidence = Evidence::default();
        let days = [0, 1, 2, 3, 40].map(|reverts| {
            evidence.reverts = reverts;
            evidence.again_after().as_secs() / 86_400
        });
        assert_eq!(days, [182, 182, 364, 728, 728]);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(16))]
        /// No figure that a state file cannot hold, whatever pairs and whatever number of tests there were.
        #[test]
        fn evidence_stays_small_and_finite(
            tests in prop::collection::vec(prop::collection::vec(-10.0f64..10.0, 8..300), 1..8), before in any::<u32>())
        {
            let mut evidence = Evidence { tests: before, ..Evidence::default() };
            let mut known = None;
            for logs in &tests {
                let test = Tested { logs, better: Better::Lower, metric: "cpi", at: 1 };
                let (proven, _) = evidence.add(&test, known.as_ref(), Keep::UnlessSlower).unwrap();
                prop_assert!([proven.ratio, proven.low, proven.high].iter().all(|v| v.is_finite()));
                prop_assert!(evidence.logs.len() <= MOST_PAIRS);
                known = Some(proven);
            }
            let text = serde_json::to_string(&evidence).unwrap();
            prop_assert_eq!(serde_json::from_str::<Evidence>(&text).unwrap(), evidence);
        }
    }
}
