//! Plays the guard's tests of one server over years, and counts correct and wrong demotions.
//!
//! Each test is [`PAIRS`] pairs. There is one test a week, as for a rule without further keys. The guard's own code
//! ([`Evidence`]) judges the tests.

use fastrand::Rng;
use serde::{Deserialize, Serialize};

use hugeleaf_guard::evidence::{CompletedTest, Evidence};
use hugeleaf_guard::{KeepCondition, TestVerdict};
use hugeleaf_proof::effective_sample::{self, PairLogRatios};
use hugeleaf_proof::stats::{self, BetterDirection, Verdict};
use hugeleaf_proof::stopping_rule::StoppingRule;

use crate::prove_simulation::{NoiseRecording, SimulationSettings, normal, pairs};

pub const PAIRS: usize = 12;
/// Number of pairs of one session, without a pause between them.
const PAIRS_PER_SESSION: usize = 4;
pub const TEN_YEARS: usize = 520;

/// Noise of the pairs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NoiseModel {
    /// The log ratios of pairs have a standard deviation of 5 %.
    Pairs,
    /// Each interval has a standard deviation of 5 %, so a pair has 7.1 %.
    Intervals,
    /// 5 % times Student's t with 2 degrees of freedom, which has infinite variance.
    HeavyTails,
    /// Pairs have 5 %, and the effect differs by 1 % from week to week.
    Weeks,
    /// Pairs of 5 s on recorded noise.
    Recorded,
}

impl NoiseModel {
    pub const ALL: [NoiseModel; 5] = [
        NoiseModel::Pairs,
        NoiseModel::Intervals,
        NoiseModel::HeavyTails,
        NoiseModel::Weeks,
        NoiseModel::Recorded,
    ];
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DecisionRule {
    /// The guard's rule: all tests together.
    Together,
    /// Each test alone at 95 %: the guard's earlier rule, for comparison.
    Alone,
}

/// Returns the log ratios of one test; huge pages multiply the rate by `effect`.
fn test(noises: &[NoiseRecording], effect: f64, spread: NoiseModel, rng: &mut Rng) -> Vec<f64> {
    let week = match spread {
        NoiseModel::Weeks => 0.01 * normal(rng),
        _ => 0.0,
    };
    let mut pair = || {
        let noise = match spread {
            NoiseModel::Pairs | NoiseModel::Weeks => 0.05 * normal(rng),
            NoiseModel::Intervals => 0.05 * (normal(rng) - normal(rng)),
            NoiseModel::HeavyTails | NoiseModel::Recorded => {
                let spread = (-(1.0 - rng.f64()).ln()).sqrt();
                0.05 * normal(rng) / spread.max(1e-3)
            }
        };
        effect.ln() + week + noise
    };
    if spread != NoiseModel::Recorded {
        return (0..PAIRS).map(|_| pair()).collect();
    }
    let play = SimulationSettings {
        interval_seconds: 5.0,
        transition_seconds: 1.25,
        ..SimulationSettings::default()
    };
    let noise = &noises[rng.usize(..noises.len())];
    let sitting = |_| pairs(noise, effect, &play, PAIRS_PER_SESSION, rng);
    (0..PAIRS / PAIRS_PER_SESSION).flat_map(sitting).collect()
}

/// Judges one test alone, as the guard did earlier.
fn alone(logs: &[f64], keep: KeepCondition) -> bool {
    let rule = StoppingRule {
        fixed_pairs: Some(logs.len()),
        ..StoppingRule::default()
    };
    let pairs: Vec<PairLogRatios> = logs
        .iter()
        .map(|log| PairLogRatios::from_whole(*log))
        .collect();
    let verdict = effective_sample::analyse(&rule, &pairs).map_or(Verdict::Unclear, |w| {
        stats::judge(&w.interval, 1.02f64.ln(), BetterDirection::Higher)
    });
    match keep {
        KeepCondition::IfFaster => verdict != Verdict::Faster,
        KeepCondition::UnlessSlower => verdict == Verdict::Slower,
    }
}

/// Returns the number of the test, from 1, that demotes a server's memory; `None` if none of `tests` does.
pub fn reverted(
    noises: &[NoiseRecording],
    (effect, spread): (f64, NoiseModel),
    (judge, keep): (DecisionRule, KeepCondition),
    tests: usize,
    rng: &mut Rng,
) -> Option<usize> {
    let mut evidence = Evidence::default();
    let mut known: Option<TestVerdict> = None;
    (1..=tests).find(|_| {
        let logs = test(noises, effect, spread, rng);
        if judge == DecisionRule::Alone {
            return alone(&logs, keep);
        }
        let tested = CompletedTest {
            logs: &logs,
            better: BetterDirection::Higher,
            metric: "simulated",
            at: 0,
        };
        match evidence.add(&tested, known.as_ref(), keep) {
            Some((proven, reverts)) => {
                known = Some(proven);
                reverts
            }
            None => false,
        }
    })
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct DemotionCounts {
    pub judge: DecisionRule,
    pub keep: KeepCondition,
    pub spread: NoiseModel,
    pub effect: f64,
    pub servers: usize,
    pub tests: usize,
    /// Servers demoted within four weeks (four tests), half a year, a year, and all of the tests.
    pub in_four_weeks: usize,
    pub in_half_a_year: usize,
    pub in_a_year: usize,
    pub ever: usize,
}

/// Plays `servers` servers, one after the other, each with `tests` tests.
pub fn play_servers(
    noises: &[NoiseRecording],
    (effect, spread): (f64, NoiseModel),
    (judge, keep): (DecisionRule, KeepCondition),
    (servers, tests): (usize, usize),
    rng: &mut Rng,
) -> DemotionCounts {
    let played: Vec<Option<usize>> = (0..servers)
        .map(|_| reverted(noises, (effect, spread), (judge, keep), tests, rng))
        .collect();
    let within = |tests: usize| played.iter().flatten().filter(|at| **at <= tests).count();
    DemotionCounts {
        judge,
        keep,
        spread,
        effect,
        servers,
        tests,
        in_four_weeks: within(4),
        in_half_a_year: within(26),
        in_a_year: within(52),
        ever: within(tests),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(
        judge: DecisionRule,
        keep: KeepCondition,
        effect: f64,
        servers: usize,
        tests: usize,
    ) -> DemotionCounts {
        let mut rng = Rng::with_seed(9);
        let what = (effect, NoiseModel::Pairs);
        play_servers(&[], what, (judge, keep), (servers, tests), &mut rng)
    }

    #[test]
    fn servers_that_gain_are_kept_and_those_that_lose_are_not() {
        for keep in [KeepCondition::IfFaster, KeepCondition::UnlessSlower] {
            let gains = row(DecisionRule::Together, keep, 1.02, 40, 60);
            assert_eq!(gains.ever, 0, "{gains:?}");
            let loses = row(DecisionRule::Together, keep, 0.95, 200, 4);
            assert!(loses.in_four_weeks >= 190, "{loses:?}");
        }
    }

    #[test]
    fn the_simulation_finds_out_tests_that_are_judged_alone() {
        let reverted = row(DecisionRule::Alone, KeepCondition::IfFaster, 1.05, 200, 26);
        assert!(reverted.ever > 180, "{reverted:?}");
        let reverted = row(
            DecisionRule::Alone,
            KeepCondition::UnlessSlower,
            1.0,
            200,
            52,
        );
        assert!(reverted.ever > 90, "{reverted:?}");
    }
}
