//! Judges a program by all tests of its life. Pure; the lab simulates decades with it.
//!
//! A weekly test with an error rate of 1 in 40 probably errs within a year. So all tests of a program share one error
//! budget, `BUDGET`, for as long as its name is remembered. Test number k may err with `BUDGET / (k (k + 1))`. These
//! shares sum up to the budget for any number of tests. This is alpha spending (Lan and DeMets 1983) with the union
//! bound for its boundary (Darling and Robbins 1967). It needs no model of the dependence between evaluations. So each
//! evaluation is the signed-rank interval of `prove` at its share.
//!
//! An evaluation uses the pairs of all tests, and separately those of the latest `RECENT` tests, because the effect of
//! huge pages may change. Each gets half of the share; if the latest tests give a verdict, it counts.

use std::time::Duration;

use hugeleaf_proof::Verdict;
use hugeleaf_proof::effective_sample::{self, PairLogRatios};
use hugeleaf_proof::long_holds::{self, HoldResult};
use hugeleaf_proof::stats::{self, BetterDirection, LogRatioInterval, StatisticalTest};
use hugeleaf_proof::stopping_rule::StoppingRule;
use serde::{Deserialize, Serialize};

use crate::rule_settings::KeepCondition;

/// Probability that any test of a program's life errs to one side: it reports `slower` falsely, or `same` although
/// memory gains more than `EQUAL`.
const BUDGET: f64 = 0.01;
const EQUAL: f64 = 1.02;
const RECENT: usize = 4;
/// Two years of default tests. Older pairs are dropped.
const MOST_PAIRS: usize = 1248;
/// Time until a demoted program is tried again: half a year, doubled by each revert, at most two years.
const AGAIN: Duration = Duration::from_secs(182 * 86_400);
const MOST_DOUBLINGS: u32 = 2;

/// Findings of tests. A field that is missing in an older state file is empty.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Evidence {
    /// Number of tests so far, including those before a revert; determines the spent budget.
    pub tests: u32,
    /// Log ratios of the pairs since the last promotion, huge over base, newest last.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub logs: Vec<f64>,
    pub reverts: u32,
}

/// Verdict of the tests so far, with its interval.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TestVerdict {
    pub verdict: Verdict,
    /// The ratio, and its interval at the confidence of this verdict ([`Evidence`]).
    pub ratio: f64,
    pub low: f64,
    pub high: f64,
    pub pairs: usize,
    pub metric: String,
    /// Direction of the metric; missing in the state of earlier builds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub better: Option<BetterDirection>,
    /// Time in seconds since 1970.
    pub at: i64,
}

impl TestVerdict {
    /// Returns the direction of the metric, which a clear verdict tells too.
    fn direction(&self) -> Option<BetterDirection> {
        let told = match (self.verdict, self.ratio > 1.0) {
            (Verdict::Faster, false) | (Verdict::Slower, true) => Some(BetterDirection::Lower),
            (Verdict::Faster, true) | (Verdict::Slower, false) => Some(BetterDirection::Higher),
            _ => None,
        };
        self.better.or(told)
    }

    /// Returns the gain by huge pages as a ratio above 1 for a gain, whatever the direction of the metric: low end of the
    /// interval, estimate, high end. `None` if the direction is unknown, or neither is better.
    pub fn gain(&self) -> Option<[f64; 3]> {
        let better = self.direction()?;
        let gain = [self.low, self.ratio, self.high].map(|ratio| better.gain(ratio));
        match better {
            BetterDirection::Higher => Some(gain),
            BetterDirection::Lower => Some([gain[2], gain[1], gain[0]]),
            BetterDirection::Neither => None,
        }
    }

    /// Returns the interval of log ratios, with which holds of both arms are compared.
    pub fn interval(&self) -> LogRatioInterval {
        LogRatioInterval {
            center: self.ratio.ln(),
            low: self.low.ln(),
            high: self.high.ln(),
            method: StatisticalTest::SignedRank,
        }
    }

    /// Applies holds to a verdict that would demote. Returns false if they contradict the pairs; the verdict is then
    /// `unclear`, and the memory stays.
    pub fn confirm(&mut self, holds: &HoldResult) -> bool {
        let judged = long_holds::verdict(self.verdict, &self.interval(), Some(holds));
        let stands = holds.settled || (judged == self.verdict && judged != Verdict::Unclear);
        self.verdict = judged;
        stands
    }

    /// Formats the result for a person: [`stats::difference`]. The confidence differs from test to test, so it is not named.
    pub fn in_words(&self) -> String {
        let better = self.direction().unwrap_or(BetterDirection::Higher);
        let ratio = [self.low, self.ratio, self.high];
        stats::difference(self.verdict, better, ratio, None)
    }
}

/// A test with all of its pairs.
#[derive(Debug, Clone, Copy)]
pub struct CompletedTest<'a> {
    pub logs: &'a [f64],
    pub better: BetterDirection,
    pub metric: &'a str,
    /// Time in seconds since 1970.
    pub at: i64,
}

impl Evidence {
    /// Adds a test. Returns the current verdict, and true if the memory must be demoted unless holds contradict
    /// ([`TestVerdict::confirm`]). A verdict stands until another is certain: `unclear` overrides none.
    pub fn add(
        &mut self,
        test: &CompletedTest<'_>,
        before: Option<&TestVerdict>,
        keep: KeepCondition,
    ) -> Option<(TestVerdict, bool)> {
        // Six digits exceed a pair's precision, and the state file is written often.
        self.logs
            .extend(test.logs.iter().map(|log| (log * 1e6).round() / 1e6));
        let over = self
            .logs
            .len()
            .saturating_sub(MOST_PAIRS.max(test.logs.len()));
        self.logs.drain(..over);
        self.tests = self.tests.saturating_add(1);
        let (verdict, interval) = self.interim_verdict(test)?;
        let stands = before.filter(|p| p.verdict != Verdict::Unclear);
        let proven = match (verdict, stands) {
            (Verdict::Unclear, Some(stands)) => TestVerdict {
                at: test.at,
                ..stands.clone()
            },
            _ => TestVerdict {
                verdict,
                ratio: interval.center.exp(),
                low: interval.low.exp(),
                high: interval.high.exp(),
                pairs: self.logs.len(),
                metric: test.metric.to_owned(),
                better: Some(test.better),
                at: test.at,
            },
        };
        let reverts = match (keep, proven.verdict) {
            (_, Verdict::Slower) | (KeepCondition::IfFaster, Verdict::Same) => true,
            (KeepCondition::IfFaster, Verdict::Unclear) => self.logs.len() >= MOST_PAIRS,
            _ => false,
        };
        Some((proven, reverts))
    }

    /// Returns the verdict of the latest tests if they have one, otherwise that of all.
    fn interim_verdict(&self, test: &CompletedTest<'_>) -> Option<(Verdict, LogRatioInterval)> {
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

    /// Returns the same program's evidence after a change that invalidates its pairs. The spent budget remains.
    pub fn without_pairs(&self) -> Evidence {
        Evidence {
            logs: Vec::new(),
            ..self.clone()
        }
    }

    /// Returns the time for which a demoted program is not tried again.
    pub fn again_after(&self) -> Duration {
        AGAIN * 2u32.pow(self.reverts.saturating_sub(1).min(MOST_DOUBLINGS))
    }
}

/// Returns the verdict of pairs at this error probability per side; `None` if there are too few for any interval.
fn judge(logs: &[f64], share: f64, better: BetterDirection) -> Option<(Verdict, LogRatioInterval)> {
    let pairs: Vec<PairLogRatios> = logs
        .iter()
        .map(|log| PairLogRatios::from_whole(*log))
        .collect();
    let weigh = |confidence: f64| {
        let rule = StoppingRule {
            confidence,
            fixed_pairs: Some(logs.len()),
            ..StoppingRule::default()
        };
        Some(effective_sample::analyse(&rule, &pairs)?.interval)
    };
    match weigh(1.0 - 2.0 * share) {
        Some(interval) => Some((stats::judge(&interval, EQUAL.ln(), better), interval)),
        // Too few pairs for the confidence that this test requires.
        None => Some((Verdict::Unclear, weigh(StoppingRule::default().confidence)?)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fastrand::Rng;
    use hugeleaf_proof::Arm;
    use hugeleaf_proof::long_holds::HoldRound;
    use proptest::prelude::*;

    /// Returns a sample of the standard normal distribution (Box and Muller).
    fn normal(rng: &mut Rng) -> f64 {
        let (u, v) = (1.0 - rng.f64(), rng.f64());
        (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos()
    }

    struct Life {
        evidence: Evidence,
        proven: Option<TestVerdict>,
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

        /// Runs one test of twelve pairs with 5 % noise.
        fn test(&mut self, ratio: f64, keep: KeepCondition) -> bool {
            let logs: Vec<f64> = (0..12)
                .map(|_| ratio.ln() + 0.05 * normal(&mut self.rng))
                .collect();
            let test = CompletedTest {
                logs: &logs,
                better: BetterDirection::Higher,
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

        /// Returns the number of the test that causes a demotion, from 1.
        fn reverted(&mut self, ratio: f64, tests: usize, keep: KeepCondition) -> Option<usize> {
            (1..=tests).find(|_| self.test(ratio, keep))
        }
    }

    const KEEPS: [KeepCondition; 2] = [KeepCondition::IfFaster, KeepCondition::UnlessSlower];

    #[test]
    fn half_a_year_of_tests_decides_right() {
        for keep in KEEPS {
            let wrong = (0..8).filter(|seed| Life::new(*seed).reverted(1.02, 26, keep).is_some());
            assert_eq!(wrong.count(), 0, "{keep:?}");
            let right = (0..40).filter(|seed| Life::new(*seed).reverted(0.95, 4, keep).is_some());
            assert!(right.count() >= 38, "{keep:?}");
        }
        // No gain: kept if the rule allows it, demoted if a gain is required.
        let reverts = |keep| {
            let all = (0..4).filter(move |s| Life::new(*s).reverted(1.0, 26, keep).is_some());
            all.count()
        };
        assert_eq!(
            (
                reverts(KeepCondition::IfFaster),
                reverts(KeepCondition::UnlessSlower)
            ),
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
        assert_eq!(life.reverted(1.08, 10, KeepCondition::IfFaster), None);
        let faster = life.proven.clone().unwrap();
        assert_eq!(faster.verdict, Verdict::Faster);
        // A metric that has become too noisy for any verdict.
        life.evidence.logs.clear();
        for n in 0..80 {
            let logs = [f64::from(n % 3) - 1.0, 0.9, -0.9, 0.5, -0.5, 0.1, -0.1, 0.7];
            let test = CompletedTest {
                logs: &logs,
                better: BetterDirection::Higher,
                metric: "cmd:x",
                at: i64::from(n),
            };
            let before = life.proven.clone();
            let added = life
                .evidence
                .add(&test, before.as_ref(), KeepCondition::IfFaster);
            let (proven, reverts) = added.unwrap();
            assert!(
                !reverts && proven.verdict == Verdict::Faster,
                "{n} {proven:?}"
            );
            assert_eq!((proven.ratio, proven.at), (faster.ratio, i64::from(n)));
            life.proven = Some(proven);
        }
        // Two years without certainty are enough.
        life.proven = None;
        life.evidence.logs = (0..i32::try_from(MOST_PAIRS).unwrap())
            .map(|n| f64::from(n % 7) - 3.0)
            .collect();
        let unsure = life.reverted(1.0, 1, KeepCondition::UnlessSlower);
        assert_eq!(unsure, None);
        life.proven = None;
        assert_eq!(life.reverted(1.0, 1, KeepCondition::IfFaster), Some(1));
    }

    #[test]
    fn a_hold_confirms_a_verdict_or_makes_it_unclear() {
        let holds = |ratio: f64, settled| HoldResult {
            seconds: 40.0,
            rounds: vec![HoldRound {
                base: 1.0,
                large: ratio,
                ratio,
                first: Arm::Large,
            }],
            settled,
        };
        let confirm = |verdict, holds: HoldResult| {
            let mut proven = TestVerdict {
                verdict,
                ratio: 0.9,
                low: 0.88,
                high: 0.92,
                pairs: 12,
                metric: "cmd:x".into(),
                better: None,
                at: 0,
            };
            (proven.confirm(&holds), proven.verdict)
        };
        for verdict in [Verdict::Slower, Verdict::Same, Verdict::Unclear] {
            assert_eq!(confirm(verdict, holds(0.9, true)), (true, verdict));
            assert_eq!(
                confirm(verdict, holds(1.1, false)),
                (false, Verdict::Unclear)
            );
        }
        // The loss grows with time.
        assert_eq!(
            confirm(Verdict::Slower, holds(0.7, false)),
            (true, Verdict::Slower)
        );
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
        /// All figures fit into a state file, for any pairs and any number of tests.
        #[test]
        fn evidence_stays_small_and_finite(
            tests in prop::collection::vec(prop::collection::vec(-10.0f64..10.0, 8..300), 1..8), before in any::<u32>())
        {
            let mut evidence = Evidence { tests: before, ..Evidence::default() };
            let mut known = None;
            for logs in &tests {
                let test = CompletedTest { logs, better: BetterDirection::Lower, metric: "cpi", at: 1 };
                let (proven, _) = evidence.add(&test, known.as_ref(), KeepCondition::UnlessSlower).unwrap();
                prop_assert!([proven.ratio, proven.low, proven.high].iter().all(|v| v.is_finite()));
                prop_assert!(evidence.logs.len() <= MOST_PAIRS);
                known = Some(proven);
            }
            let text = serde_json::to_string(&evidence).unwrap();
            prop_assert_eq!(serde_json::from_str::<Evidence>(&text).unwrap(), evidence);
        }
    }
}
