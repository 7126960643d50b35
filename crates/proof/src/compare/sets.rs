//! Two sets of results: before and after an upgrade, one host and another. A row a workload, arm and place, of what each was
//! measured for. Pure.

use serde::{Serialize, Serializer};

use super::{CompareError, Compared, ComparedRow, Side, files};
use crate::rows::{Kind, Place, Results, places};
use crate::stats::{Effect, Verdict};

#[derive(Debug, Clone, PartialEq)]
pub struct ComparedSets {
    pub rows: Vec<SetRow>,
    /// What only one of them has, or what cannot be compared, in a sentence each.
    pub left_out: Vec<String>,
    pub equal: f64,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SetRow {
    pub workload: String,
    pub arm: Option<String>,
    pub what: String,
    pub unit: String,
    pub a: Option<f64>,
    pub b: Option<f64>,
    #[serde(serialize_with = "at")]
    pub at: Vec<Place>,
    /// How much better B is, in percent: of a time, how much shorter. Missing where that is not known.
    pub better_percent: Option<f64>,
    /// The ends of its 95 % interval.
    pub low_percent: Option<f64>,
    pub high_percent: Option<f64>,
    pub verdict: Option<Verdict>,
}

fn at<S: Serializer>(at: &[Place], to: S) -> Result<S::Ok, S::Error> {
    places::serialize(at, to)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Which {
    #[default]
    Main,
    /// What was counted beside it: page faults, page tables, memory, the part on large pages. It holds where the clock does
    /// not, as in an emulated machine.
    Counts,
}

impl Which {
    fn takes(self, row: &ComparedRow) -> bool {
        let quantity = &row.quantity;
        match self {
            Which::Main => quantity.main,
            Which::Counts => {
                let is_amount = matches!(quantity.kind, Kind::Amount | Kind::Counted);
                let is_time = ["s", "seconds", "ms", "µs", "ns"].contains(&quantity.unit.as_str());
                // What an arm brought over the first stays: a ratio, by its own clock on each side.
                !quantity.main && is_amount && !is_time
            }
        }
    }
}

/// Compares results of the same experiment in two sets.
pub fn sets(a: &[Results], b: &[Results], which: Which, equal: f64) -> ComparedSets {
    let mut compared = ComparedSets {
        rows: Vec::new(),
        left_out: Vec::new(),
        equal,
    };
    for one in a {
        let name = &one.experiment.name;
        let Some(other) = b.iter().find(|other| other.experiment.name == *name) else {
            compared.left_out.push(format!("{name}: only in A"));
            continue;
        };
        match files(one, other, equal) {
            Ok(both) => compared.rows.extend(rows(name, which, &both)),
            Err(
                error @ (CompareError::Different { .. }
                | CompareError::NothingInCommon { .. }
                | CompareError::NoSuchArm { .. }),
            ) => {
                compared.left_out.push(format!("{name}: {error}"));
            }
        }
    }
    let only_b = b.iter().map(|other| &other.experiment.name);
    let only_b = only_b.filter(|name| a.iter().all(|one| one.experiment.name != **name));
    compared
        .left_out
        .extend(only_b.map(|name| format!("{name}: only in B")));
    compared
}

fn rows(name: &str, which: Which, both: &Compared) -> Vec<SetRow> {
    let rows = both.rows.iter();
    let rows = rows.filter(|row| which.takes(row) && row.verdict.is_some());
    let median = |side: &Option<Side>| side.as_ref().map(|side| side.spread.median);
    rows.map(|row| {
        let ends = row.effect.as_ref().map(|effect| better(row, effect));
        SetRow {
            workload: name.to_owned(),
            arm: row.arm.clone(),
            what: row.quantity.name.clone(),
            unit: row.quantity.unit.clone(),
            a: median(&row.a),
            b: median(&row.b),
            at: row.at.clone(),
            better_percent: row.ratio.map(|ratio| percent(row, ratio)),
            low_percent: ends.map(|ends| ends.0),
            high_percent: ends.map(|ends| ends.1),
            verdict: row.verdict,
        }
    })
    .collect()
}

/// A ratio as percent of throughput.
fn percent(row: &ComparedRow, ratio: f64) -> f64 {
    100.0 * (row.quantity.better.gain(ratio) - 1.0)
}

fn better(row: &ComparedRow, effect: &Effect) -> (f64, f64) {
    let (a, b) = (percent(row, effect.low), percent(row, effect.high));
    (a.min(b), a.max(b))
}

impl Compared {
    /// The main rows that are slower by more than `part`, in words; for who stops a release by it.
    pub fn slower_by(&self, part: f64) -> Vec<String> {
        let is_slower = |row: &&ComparedRow| {
            let slower = row.ratio.map(|ratio| -percent(row, ratio) / 100.0);
            row.quantity.main
                && row.verdict == Some(Verdict::Slower)
                && slower.is_some_and(|s| s > part)
        };
        let slower = self.rows.iter().filter(is_slower);
        let words = slower.map(|row| match &row.arm {
            Some(arm) => format!("{} of {arm}", row.quantity.name),
            None => row.quantity.name.clone(),
        });
        words.collect()
    }
}

impl ComparedSets {
    /// The rows that are slower by more than `part`.
    pub fn slower_by(&self, part: f64) -> Vec<String> {
        slower(self.rows.iter(), part)
    }
}

/// Those of some rows that are slower by more than `part`, in words.
fn slower<'a>(rows: impl Iterator<Item = &'a SetRow>, part: f64) -> Vec<String> {
    let is_slower = |row: &&SetRow| {
        row.verdict == Some(Verdict::Slower)
            && row.better_percent.is_some_and(|p| -p > 100.0 * part)
    };
    let words = rows.filter(is_slower).map(|row| match &row.arm {
        Some(arm) => format!("{} on {arm}", row.workload),
        None => row.workload.clone(),
    });
    words.collect()
}

/// Many sets, each held against the first.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct History {
    pub sets: Vec<String>,
    pub rows: Vec<HistoryRow>,
    pub equal: f64,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct HistoryRow {
    pub workload: String,
    pub arm: Option<String>,
    #[serde(serialize_with = "at")]
    pub at: Vec<Place>,
    /// Against the first set, for each of the others in their order; missing where that set has no such result.
    pub points: Vec<Option<SetRow>>,
}

/// Holds each of some sets against the first, in what each workload was measured for.
pub fn history(sets_of: &[(String, Vec<Results>)], equal: f64) -> History {
    let mut all = History {
        sets: sets_of.iter().map(|(name, _)| name.clone()).collect(),
        rows: Vec::new(),
        equal,
    };
    let Some(((_, first), others)) = sets_of.split_first() else {
        return all;
    };
    for (index, (_, other)) in others.iter().enumerate() {
        for row in sets(first, other, Which::Main, equal).rows {
            let is_same = |known: &&mut HistoryRow| {
                known.workload == row.workload && known.arm == row.arm && known.at == row.at
            };
            let known = match all.rows.iter_mut().find(is_same) {
                Some(known) => known,
                None => {
                    all.rows.push(HistoryRow {
                        workload: row.workload.clone(),
                        arm: row.arm.clone(),
                        at: row.at.clone(),
                        points: vec![None; others.len()],
                    });
                    let last = all.rows.len() - 1;
                    &mut all.rows[last]
                }
            };
            known.points[index] = Some(row);
        }
    }
    all
}

impl History {
    /// The rows that are slower in the last set than in the first by more than `part`.
    pub fn slower_by(&self, part: f64) -> Vec<String> {
        let last = self.rows.iter();
        slower(last.filter_map(|row| row.points.last()?.as_ref()), part)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::{ArmAbout, Quantity, Sample};

    fn result(name: &str, quantity: Quantity, value: f64) -> Results {
        let mut results = Results::empty(name, "");
        results.arms = vec![ArmAbout::named("base")];
        for round in 0..10 {
            let value = value * (1.0 + 0.002 * f64::from(round % 3));
            results.add(
                "base",
                &[],
                quantity.clone(),
                Sample::of(usize::try_from(round).unwrap(), value),
            );
        }
        results
    }

    #[test]
    fn a_row_a_workload_and_better_is_more() {
        let rate = || Quantity::rate("rate", "1/s").main();
        let time = || Quantity::amount("time", "s").main();
        let a = [
            result("redis", rate(), 100.0),
            result("sort", time(), 10.0),
            result("gone", rate(), 1.0),
        ];
        let b = [
            result("sort", time(), 11.0),
            result("redis", rate(), 120.0),
            result("new", rate(), 1.0),
        ];
        let compared = sets(&a, &b, Which::Main, 0.02);
        let percents = compared.rows.iter().map(|row| {
            let percent = row.better_percent.unwrap();
            format!("{} {percent:.0}", row.workload)
        });
        assert_eq!(percents.collect::<Vec<_>>(), ["redis 20", "sort -9"]);
        assert_eq!(compared.left_out, ["gone: only in A", "new: only in B"]);
        for row in &compared.rows {
            assert!(
                row.low_percent <= row.better_percent && row.better_percent <= row.high_percent,
                "{row:?}"
            );
        }
        assert_eq!(compared.slower_by(0.02), ["sort on base"]);
        assert!(compared.slower_by(0.2).is_empty());
        let both = files(&a[1], &b[0], 0.02).unwrap();
        assert_eq!(both.slower_by(0.02), ["time of base"]);
        assert!(files(&a[0], &b[1], 0.02).unwrap().slower_by(0.0).is_empty());
    }

    /// A set held against itself shifts nothing: what is the same is never slower.
    #[test]
    fn the_same_is_the_same() {
        let a = [result("redis", Quantity::rate("rate", "1/s").main(), 100.0)];
        let compared = sets(&a, &a, Which::Main, 0.02);
        assert_eq!(compared.rows[0].verdict, Some(Verdict::Same));
        assert!(compared.slower_by(0.0).is_empty());
    }

    #[test]
    fn what_was_counted_can_be_asked_for() {
        let with = |faults: f64, seconds: f64| {
            let mut all = result("redis", Quantity::rate("rate", "1/s").main(), 100.0);
            for round in 0..6 {
                let mut put =
                    |quantity, value| all.add("base", &[], quantity, Sample::of(round, value));
                put(Quantity::amount("page faults", ""), faults);
                put(Quantity::amount("processor time", "s"), seconds);
            }
            all
        };
        let compared = sets(&[with(100.0, 1.0)], &[with(50.0, 9.0)], Which::Counts, 0.02);
        let [row] = compared.rows.as_slice() else {
            panic!("{compared:?}")
        };
        assert_eq!(
            (row.what.as_str(), row.a, row.b),
            ("page faults", Some(100.0), Some(50.0))
        );
        assert_eq!(row.verdict, Some(Verdict::Faster));
    }

    #[test]
    fn a_history_has_a_point_a_set() {
        let rate = || Quantity::rate("rate", "1/s").main();
        let set = |name: &str, all: Vec<Results>| (name.to_owned(), all);
        let history = history(
            &[
                set(
                    "1",
                    vec![result("redis", rate(), 100.0), result("sort", rate(), 10.0)],
                ),
                set("2", vec![result("redis", rate(), 110.0)]),
                set(
                    "3",
                    vec![result("redis", rate(), 80.0), result("sort", rate(), 10.0)],
                ),
            ],
            0.02,
        );
        let percents = |at: usize| {
            let points = history.rows[at].points.iter();
            let percents = points.map(|p| p.as_ref().map(|p| p.better_percent.unwrap().round()));
            percents.collect::<Vec<_>>()
        };
        assert_eq!(history.rows.len(), 2);
        assert_eq!(percents(0), [Some(10.0), Some(-20.0)]);
        assert_eq!(percents(1), [None, Some(0.0)]);
        assert_eq!(history.slower_by(0.02), ["redis on base"]);
        assert!(super::history(&[], 0.02).rows.is_empty());
    }
}
