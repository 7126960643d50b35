//! Several arms of `bench oltp`: each run is a process of its own, and arms take turns in an order
//! drawn anew each round, so that what drifts hits all of them alike.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use serde::{Deserialize, Serialize};

use super::{OltpResult, OltpSample, Steps};
use crate::bench::{BenchEnding, Shortage};

/// One arm of a result.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OltpArm {
    /// As `--pages` names it.
    pub label: String,
    /// The value of its step, where there are steps.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub at: Option<u64>,
    /// Whether all of its cache was seen to be on the pages of the arm, in every run; missing where
    /// that cannot be determined.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub verified: Option<bool>,
    /// Where it was unavailable.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub shortage: Option<Shortage>,
}

/// How one run ended.
#[derive(Debug)]
pub enum Turn {
    /// It was measured.
    Ran(Box<OltpResult>),
    /// There are no such pages.
    Shortage(Shortage),
    /// Somebody asked to stop: nothing of it is a result.
    Stopped,
}

/// One run: an arm, at a step where there are steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cell<'a> {
    /// As `--pages` names the arm.
    pub label: &'a str,
    /// The value of its step.
    pub at: Option<u64>,
    /// The round, from 0.
    pub round: usize,
}

/// What takes turns.
#[derive(Debug, Clone, Copy)]
pub struct Grid<'a> {
    /// The arms; others are held against the first.
    pub labels: &'a [String],
    /// The steps, where there are any.
    pub steps: Option<&'a Steps>,
    /// Runs of each arm at each step.
    pub rounds: usize,
    /// What orders are drawn from.
    pub seed: u64,
}

impl Grid<'_> {
    /// Each arm at each step, in the order of a result: step by step.
    fn cells(&self) -> Vec<(&str, Option<u64>)> {
        let steps = match self.steps {
            Some(steps) => steps.values.iter().copied().map(Some).collect(),
            None => vec![None],
        };
        let of = |at| self.labels.iter().map(move |label| (label.as_str(), at));
        steps.into_iter().flat_map(of).collect()
    }

    /// How many runs there are if all is available.
    pub fn runs(&self) -> usize {
        self.cells().len() * self.rounds
    }
}

/// Has all take turns: each round all arms at all steps, in an order drawn anew. What `turn` answers
/// with an error ends all. An arm that was unavailable at a step is not asked for there again. `None`
/// where nothing at all was measured.
///
/// # Errors
/// Those of `turn`.
pub fn in_turn<E>(
    grid: &Grid<'_>,
    turn: &mut dyn FnMut(Cell<'_>) -> Result<Turn, E>,
    stop: &AtomicBool,
) -> Result<Option<OltpResult>, E> {
    let began = Instant::now();
    let mut random = fastrand::Rng::with_seed(grid.seed);
    let cells = grid.cells();
    let mut had: Vec<Option<Shortage>> = vec![None; cells.len()];
    let mut first: Option<OltpResult> = None;
    let mut runs: Vec<OltpSample> = Vec::new();
    let mut ending = BenchEnding::Done;
    'rounds: for round in 0..grid.rounds {
        let mut order: Vec<usize> = (0..cells.len()).collect();
        random.shuffle(&mut order);
        for index in order {
            if had[index].is_some() {
                continue;
            }
            let (label, at) = cells[index];
            let ended = match stop.load(Ordering::Relaxed) {
                true => Turn::Stopped,
                false => turn(Cell { label, at, round })?,
            };
            match ended {
                Turn::Shortage(reason) => had[index] = Some(reason),
                Turn::Ran(result) => {
                    runs.extend(result.runs.iter().map(|run| OltpSample {
                        arm: Some(label.to_owned()),
                        round,
                        at,
                        ..run.clone()
                    }));
                    keep(&mut first, *result);
                }
                Turn::Stopped => {
                    ending = BenchEnding::Interrupted;
                    break 'rounds;
                }
            }
        }
    }
    Ok(first.map(|mut result| {
        result.arms = summed(&cells, &runs, had);
        result.runs = runs;
        result.steps = grid.steps.cloned();
        result.experiment.ending = ending;
        result.experiment.duration_seconds = began.elapsed().as_secs_f64();
        result
    }))
}

/// The first result, with what later ones have to say that it does not.
fn keep(first: &mut Option<OltpResult>, next: OltpResult) {
    let Some(first) = first else {
        *first = Some(next);
        return;
    };
    for caveat in next.caveats {
        if !first.caveats.contains(&caveat) {
            first.caveats.push(caveat);
        }
    }
}

fn summed(
    cells: &[(&str, Option<u64>)],
    runs: &[OltpSample],
    had: Vec<Option<Shortage>>,
) -> Vec<OltpArm> {
    let arm = |(&(label, at), shortage): (&(&str, Option<u64>), Option<Shortage>)| {
        let own = runs.iter();
        let own = own.filter(|run| run.arm.as_deref() == Some(label) && run.at == at);
        let seen: Option<Vec<bool>> = own.map(|run| run.verified).collect();
        OltpArm {
            label: label.to_owned(),
            at,
            verified: seen
                .filter(|seen| !seen.is_empty())
                .map(|seen| seen.into_iter().all(|seen| seen)),
            shortage,
        }
    };
    cells.iter().zip(had).map(arm).collect()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::bench::oltp::{OltpDatabase, OltpUsed, StepsBy};

    fn sample(arm: &str, at: Option<u64>, round: usize, notpm: f64) -> OltpSample {
        OltpSample {
            arm: Some(arm.to_owned()),
            round,
            at,
            verified: Some(arm != "thp:2M" || round != 3),
            notpm,
            consistent: true,
            ..OltpSample::default()
        }
    }

    fn missing() -> Shortage {
        Shortage {
            from_bytes: 1,
            reason: "no such pages".to_owned(),
            next: "plan".to_owned(),
        }
    }

    /// A result with one run of each arm at each step a round; each NOTPM is 1000 × (round + 1).
    pub(in crate::bench::oltp) fn result(
        labels: &[&str],
        steps: &[Option<u64>],
        rounds: usize,
    ) -> OltpResult {
        let mut runs = Vec::new();
        for round in 0..rounds {
            for at in steps {
                runs.extend(labels.iter().map(|label| {
                    let drift = f64::from(u32::try_from(round).unwrap() + 1);
                    sample(label, *at, round, 1000.0 * drift)
                }));
            }
        }
        let cells: Vec<(&str, Option<u64>)> = steps
            .iter()
            .flat_map(|at| labels.iter().map(move |label| (*label, *at)))
            .collect();
        let arms = summed(&cells, &runs, vec![None; cells.len()]);
        OltpResult {
            arms,
            runs,
            ..one()
        }
    }

    /// What a run of its own answers.
    fn one() -> OltpResult {
        let text = serde_json::json!({
            "schema": 1,
            "experiment": {"name": "oltp", "unit": "NOTPM", "better": "higher",
                "started": "2026-01-31T12:00:00Z", "duration_seconds": 1.0, "ending": "done"},
            "database": OltpDatabase {
                name: "sqlite:x".to_owned(),
                version: "SQLite 3".to_owned(),
                warehouses: 1,
                databases: 1,
                items: 1,
                customers: 1,
                cache_bytes: 1,
                durability: "soon".to_owned(),
            },
            "runs": [sample("", None, 0, 1000.0)],
            "caveats": ["as always"],
            "host": {"cpus": 1, "nodes": 1, "base_page_bytes": 1},
            "settings": OltpUsed {
                connections: 1,
                ramp_up_seconds: 0.0,
                for_seconds: 1.0,
                touched_warehouses: 1,
                think: 0.0,
                seed: 1,
                io: crate::bench::oltp::Io::Cached,
                copied_file_bytes: None,
                knobs: Vec::new(),
            },
            "command": ["hugeleaf"],
        });
        serde_json::from_value(text).unwrap()
    }

    /// NOTPM of an arm over that of the first, at each place where it is.
    fn over_first(result: &OltpResult, label: &str) -> Vec<f64> {
        let results = result.to_results();
        let notpm = results.rows.iter().filter(|row| row.quantity.main);
        let of = |arm: &str| {
            notpm
                .clone()
                .filter(|row| row.arm == arm)
                .collect::<Vec<_>>()
        };
        let (first, own) = (of(&result.arms[0].label), of(label));
        let pairs = own.iter().zip(&first);
        pairs
            .filter_map(|(row, first)| Some(row.over(first)?.ratio))
            .collect()
    }

    #[test]
    fn ratios_are_of_pairs_of_one_round() {
        // What drifts from round to round is in both samples of a pair.
        let drift = |round: usize| f64::from(u32::try_from(round).unwrap() + 1) * 1000.0;
        let mut runs = Vec::new();
        for round in 0..8 {
            runs.push(sample("thp:2M", None, round, drift(round) * 1.2));
            runs.push(sample("base", None, round, drift(round)));
        }
        let cells = ["base", "thp:2M", "hugetlb:1G"].map(|label| (label, None));
        let arms = summed(&cells, &runs, vec![None, None, Some(missing())]);
        assert_eq!(arms[0].verified, Some(true));
        // One run of eight was not on the pages it was asked to be on.
        assert_eq!(arms[1].verified, Some(false));
        assert_eq!(arms[2].shortage, Some(missing()));
        assert_eq!(arms[2].verified, None);
        let result = OltpResult {
            arms,
            runs,
            ..one()
        };
        let ratios = over_first(&result, "thp:2M");
        assert!((ratios[0] - 1.2).abs() < 1e-9, "{ratios:?}");
    }

    #[test]
    fn an_arm_is_compared_with_the_first_of_its_own_step() {
        let labels = ["base", "thp:2M"].map(str::to_owned);
        let steps = Steps {
            by: StepsBy::Cache,
            values: vec![10, 20],
        };
        let grid = Grid {
            labels: &labels,
            steps: Some(&steps),
            rounds: 6,
            seed: 1,
        };
        assert_eq!(grid.runs(), 24);
        // The gain is a tenth at the small step and a fifth at the large one.
        let mut turn = |cell: Cell<'_>| -> Result<Turn, ()> {
            let mut result = one();
            let gain = match (cell.label, cell.at) {
                ("base", Some(10)) => 1.0,
                ("base", _) => 5.0,
                (_, Some(10)) => 1.1,
                _ => 6.0,
            };
            result.runs[0].notpm = 1000.0 * gain;
            result.caveats.push(format!("of {}", cell.label));
            Ok(Turn::Ran(Box::new(result)))
        };
        let result = in_turn(&grid, &mut turn, &AtomicBool::new(false)).unwrap();
        let result = result.unwrap();
        assert_eq!(result.steps, Some(steps));
        assert_eq!(result.runs.len(), 24);
        let arms = result.arms.iter();
        let arms: Vec<(&str, Option<u64>)> = arms.map(|arm| (arm.label.as_str(), arm.at)).collect();
        let expected = [("base", 10), ("thp:2M", 10), ("base", 20), ("thp:2M", 20)];
        assert_eq!(arms, expected.map(|(label, at)| (label, Some(at))));
        let ratios = over_first(&result, "thp:2M");
        let rounded: Vec<f64> = ratios.iter().map(|r| (r * 100.0).round() / 100.0).collect();
        assert_eq!(rounded, [1.1, 1.2]);
        // What any run has to say is said, once.
        let mut caveats = result.caveats.clone();
        caveats.sort();
        assert_eq!(caveats, ["as always", "of base", "of thp:2M"]);
    }

    #[test]
    fn what_is_not_had_is_asked_once_and_stopping_keeps_what_is_there() {
        let labels = ["base", "hugetlb:2M"].map(str::to_owned);
        let grid = Grid {
            labels: &labels,
            steps: None,
            rounds: 3,
            seed: 1,
        };
        let stop = AtomicBool::new(false);
        let mut asked = 0;
        let mut nothing = |_: Cell<'_>| -> Result<Turn, ()> {
            asked += 1;
            Ok(Turn::Shortage(missing()))
        };
        assert_eq!(in_turn(&grid, &mut nothing, &stop), Ok(None));
        assert_eq!(asked, 2);
        // Of a run that is stopped nothing is left, of those before it all.
        let mut left = 3;
        let mut some = |_: Cell<'_>| -> Result<Turn, ()> {
            left -= 1;
            Ok(match left {
                0 => Turn::Stopped,
                _ => Turn::Ran(Box::new(one())),
            })
        };
        let result = in_turn(&grid, &mut some, &stop).unwrap().unwrap();
        assert_eq!(result.experiment.ending, BenchEnding::Interrupted);
        assert_eq!(result.runs.len(), 2);
        stop.store(true, Ordering::Relaxed);
        let mut never = |_: Cell<'_>| -> Result<Turn, ()> { Err(()) };
        assert_eq!(in_turn(&grid, &mut never, &stop), Ok(None));
    }
}
