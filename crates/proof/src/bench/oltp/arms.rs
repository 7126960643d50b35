//! Several arms of `bench oltp`: each run is a process of its own, and arms take turns in an order
//! drawn anew each round, so that what drifts hits all of them alike.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use serde::{Deserialize, Serialize};

use super::{OltpResult, OltpSample};
use crate::bench::{BenchEnding, CONFIDENCE, NotHad, Spread, effect_by_round};
use crate::result::Effect;

/// One arm of a result.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OltpArm {
    /// As `--pages` names it.
    pub label: String,
    /// The value of its step, where there are steps.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub at: Option<u64>,
    /// NOTPM, one a round.
    pub samples: Vec<f64>,
    /// The rounds in which they were taken.
    pub rounds: Vec<usize>,
    /// Median and its interval; missing where nothing was measured.
    #[serde(flatten)]
    pub spread: Option<Spread>,
    /// Over the first arm, in the same rounds.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub effect: Option<Effect>,
    /// Whether all of its cache was seen to be on the pages of the arm, in every run; missing where
    /// that cannot be told.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub verified: Option<bool>,
    /// Where it could not be had.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub not_had: Option<NotHad>,
}

/// How one run ended.
#[derive(Debug)]
pub enum Turn {
    /// It was measured.
    Ran(Box<OltpResult>),
    /// There are no such pages.
    NotHad(NotHad),
}

/// Runs `rounds` of all arms by `turn`, which gets the label and the number of a round. What it
/// answers with an error ends all. An arm that was not had is not asked again. `None` where nothing
/// at all was measured.
///
/// # Errors
/// Those of `turn`.
pub fn in_turn<E>(
    labels: &[String],
    rounds: usize,
    seed: u64,
    turn: &mut dyn FnMut(&str, usize) -> Result<Turn, E>,
    stop: &AtomicBool,
) -> Result<Option<OltpResult>, E> {
    let began = Instant::now();
    let mut random = fastrand::Rng::with_seed(seed);
    let mut had: Vec<Option<NotHad>> = vec![None; labels.len()];
    let mut first: Option<OltpResult> = None;
    let mut runs: Vec<OltpSample> = Vec::new();
    let mut ending = BenchEnding::Done;
    'rounds: for round in 0..rounds {
        let mut order: Vec<usize> = (0..labels.len()).collect();
        random.shuffle(&mut order);
        for at in order {
            if had[at].is_some() {
                continue;
            }
            if stop.load(Ordering::Relaxed) {
                ending = BenchEnding::Interrupted;
                break 'rounds;
            }
            match turn(&labels[at], round)? {
                Turn::NotHad(reason) => had[at] = Some(reason),
                Turn::Ran(result) => {
                    runs.extend(result.runs.iter().map(|run| OltpSample {
                        arm: Some(labels[at].clone()),
                        round,
                        ..run.clone()
                    }));
                    first.get_or_insert(*result);
                }
            }
        }
    }
    Ok(first.map(|mut result| {
        result.arms = summed(labels, &runs, had);
        result.runs = runs;
        result.experiment.ending = ending;
        result.experiment.duration_seconds = began.elapsed().as_secs_f64();
        result
    }))
}

fn summed(labels: &[String], runs: &[OltpSample], had: Vec<Option<NotHad>>) -> Vec<OltpArm> {
    let of = |label: &str| -> Vec<&OltpSample> {
        let runs = runs.iter();
        runs.filter(|run| run.arm.as_deref() == Some(label))
            .collect()
    };
    let base = labels.first().map(|label| of(label)).unwrap_or_default();
    let arm = |(at, (label, not_had)): (usize, (&String, Option<NotHad>))| {
        let own = of(label);
        let samples: Vec<f64> = own.iter().map(|run| run.notpm).collect();
        let told: Option<Vec<bool>> = own.iter().map(|run| run.verified).collect();
        OltpArm {
            label: label.clone(),
            at: None,
            spread: Spread::of(&samples, CONFIDENCE),
            samples,
            rounds: own.iter().map(|run| run.round).collect(),
            effect: (at > 0).then(|| effect(&base, &own)).flatten(),
            verified: told
                .filter(|told| !told.is_empty())
                .map(|told| told.into_iter().all(|seen| seen)),
            not_had,
        }
    };
    labels.iter().zip(had).enumerate().map(arm).collect()
}

/// The ratio in pairs of one round.
fn effect(base: &[&OltpSample], own: &[&OltpSample]) -> Option<Effect> {
    let of = |run: &&OltpSample| (run.round, run.notpm);
    effect_by_round(base.iter().map(of), own.iter().map(of))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::oltp::OltpCost;

    fn sample(arm: &str, round: usize, notpm: f64) -> OltpSample {
        OltpSample {
            arm: Some(arm.to_owned()),
            round,
            at: None,
            page_tables_bytes: None,
            copied_bytes_per_second: None,
            counted: None,
            pages: Vec::new(),
            verified: Some(arm != "thp:2M" || round != 3),
            notpm,
            transactions_per_second: 1.0,
            seconds: 1.0,
            kinds: Vec::new(),
            per_transaction: OltpCost::default(),
            per_second: OltpCost::default(),
            consistent: true,
        }
    }

    #[test]
    fn ratios_are_of_pairs_of_one_round() {
        // What drifts from round to round is in both samples of a pair.
        let drift = |round: usize| f64::from(u32::try_from(round).unwrap() + 1) * 1000.0;
        let mut runs = Vec::new();
        for round in 0..8 {
            runs.push(sample("thp:2M", round, drift(round) * 1.2));
            runs.push(sample("base", round, drift(round)));
        }
        let labels = ["base", "thp:2M", "hugetlb:1G"].map(str::to_owned);
        let missing = NotHad {
            from_bytes: 1,
            reason: "no such pages".to_owned(),
            next: "plan".to_owned(),
        };
        let arms = summed(&labels, &runs, vec![None, None, Some(missing.clone())]);
        assert_eq!(arms[0].effect, None);
        assert_eq!(arms[0].verified, Some(true));
        let effect = arms[1].effect.unwrap();
        assert!((effect.ratio - 1.2).abs() < 1e-9, "{effect:?}");
        assert!((effect.high - effect.low).abs() < 1e-9, "{effect:?}");
        // One run of eight was not on the pages it was asked to be on.
        assert_eq!(arms[1].verified, Some(false));
        assert_eq!(arms[2].not_had, Some(missing));
        assert_eq!((arms[2].spread, arms[2].verified), (None, None));
    }

    #[test]
    fn what_is_not_had_is_asked_once_and_stopping_keeps_what_is_there() {
        let labels = ["base", "hugetlb:2M"].map(str::to_owned);
        let stop = AtomicBool::new(false);
        let mut asked = Vec::new();
        let result: Result<Option<OltpResult>, ()> = in_turn(
            &labels,
            3,
            1,
            &mut |label, round| {
                asked.push((label.to_owned(), round));
                Ok(Turn::NotHad(NotHad {
                    from_bytes: 1,
                    reason: String::new(),
                    next: String::new(),
                }))
            },
            &stop,
        );
        assert_eq!(result, Ok(None));
        assert_eq!(asked.len(), 2, "{asked:?}");
        stop.store(true, Ordering::Relaxed);
        let mut never = |_: &str, _: usize| -> Result<Turn, ()> { Err(()) };
        assert_eq!(in_turn(&labels, 3, 1, &mut never, &stop), Ok(None));
    }
}
