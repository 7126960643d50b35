//! Two sets of results, such as before and after an upgrade, or of two hosts. One row per workload, arm and place, for the
//! main quantity. Pure.

use std::collections::HashSet;

use serde::Serialize;

use super::{ComparedRow, Comparison, SideSamples, files};
use crate::result_format::{Parameter, QuantityKind, Results, places};
use crate::stats::{Effect, Verdict};

#[derive(Debug, Clone, PartialEq)]
pub struct ComparedSets {
    pub rows: Vec<SetComparisonRow>,
    /// Results of only one set, and results that are not comparable, one sentence each.
    pub left_out: Vec<String>,
    pub equal: f64,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SetComparisonRow {
    pub workload: String,
    pub arm: Option<String>,
    pub what: String,
    pub unit: String,
    pub a: Option<f64>,
    pub b: Option<f64>,
    #[serde(serialize_with = "places::serialize")]
    pub at: Vec<Parameter>,
    /// Gain of B in percent; for times, the reduction. `None` if unknown.
    pub better_percent: Option<f64>,
    /// The ends of its 95 % interval.
    pub low_percent: Option<f64>,
    pub high_percent: Option<f64>,
    pub verdict: Option<Verdict>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum QuantitySelection {
    #[default]
    Main,
    /// Secondary quantities: page faults, page tables, memory, the share on huge pages. They are valid even if the clock is
    /// not, as in an emulated machine.
    Counts,
}

impl QuantitySelection {
    fn takes(self, row: &ComparedRow) -> bool {
        let quantity = &row.quantity;
        match self {
            QuantitySelection::Main => quantity.main,
            QuantitySelection::Counts => {
                let is_amount =
                    matches!(quantity.kind, QuantityKind::Amount | QuantityKind::Counted);
                let is_time = ["s", "seconds", "ms", "µs", "ns"].contains(&quantity.unit.as_str());
                // Gains of an arm over the first stay: they are ratios by each side's own clock.
                !quantity.main && is_amount && !is_time
            }
        }
    }
}

/// The results of a folder.
#[derive(Debug, Clone, Default)]
pub struct ResultSet {
    pub results: Vec<NamedResult>,
    /// Unreadable result files, with the reason.
    pub unread: Vec<String>,
}

#[derive(Debug, Clone)]
pub struct NamedResult {
    /// The file's name.
    pub file: String,
    pub results: Results,
}

impl NamedResult {
    fn name(&self) -> &str {
        &self.results.experiment.name
    }
}

impl ResultSet {
    /// Returns the matching result of another set: the same experiment, and the same file if there are several.
    fn partner(&self, of: &NamedResult, own: &ResultSet) -> Option<(usize, &NamedResult)> {
        let is_same = |other: &&NamedResult| other.name() == of.name();
        let all = self.results.iter().enumerate();
        let all: Vec<_> = all.filter(|(_, other)| is_same(other)).collect();
        let by_file = all.iter().find(|(_, other)| other.file == of.file);
        let has_several = own.results.iter().filter(is_same).count() > 1;
        match all.as_slice() {
            [only] if !has_several => Some(*only),
            _ => by_file.copied(),
        }
    }
}

/// Compares results of the same experiment in two sets.
pub fn sets(a: &ResultSet, b: &ResultSet, which: QuantitySelection, equal: f64) -> ComparedSets {
    let mut compared = ComparedSets {
        rows: Vec::new(),
        left_out: [a, b].iter().flat_map(|set| set.unread.clone()).collect(),
        equal,
    };
    let mut taken = HashSet::new();
    for one in &a.results {
        let name = one.name();
        let Some((at, other)) = b.partner(one, a) else {
            let text = format!("{name} ({}): only in A", one.file);
            compared.left_out.push(text);
            continue;
        };
        taken.insert(at);
        match files(&one.results, &other.results, equal) {
            Ok(both) => compared.add((name, &other.file), which, &both),
            Err(error) => compared
                .left_out
                .push(format!("{name} ({}): {error}", other.file)),
        }
    }
    let rest = b.results.iter().enumerate();
    for (_, other) in rest.filter(|(at, _)| !taken.contains(at)) {
        let text = format!("{} ({}): only in B", other.name(), other.file);
        compared.left_out.push(text);
    }
    compared
}

impl ComparedSets {
    fn add(&mut self, (name, file): (&str, &str), which: QuantitySelection, both: &Comparison) {
        let rows = both.rows.iter().filter(|row| which.takes(row));
        let (good, bad): (Vec<_>, Vec<_>) = rows.partition(|row| row.not_compared.is_none());
        let reasons = bad.into_iter().filter_map(ComparedRow::reason);
        let reasons = reasons.map(|reason| format!("{name} ({file}): {reason}"));
        self.left_out.extend(reasons);
        if good.is_empty() {
            let text = format!("{name} ({file}): it has no comparable rows");
            self.left_out.push(text);
        }
        self.rows
            .extend(good.into_iter().map(|row| set_row(name, row)));
    }
}

fn set_row(name: &str, row: &ComparedRow) -> SetComparisonRow {
    let median = |side: &Option<SideSamples>| side.as_ref().map(|side| side.spread.median);
    let ends = row.effect.as_ref().map(|effect| better(row, effect));
    SetComparisonRow {
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
}

impl ComparedRow {
    /// Returns the reason for a missing comparison: `NOTPM of base: only A has samples of base`.
    fn reason(&self) -> Option<String> {
        let reason = self.not_compared.as_ref()?;
        let at = self.at.iter();
        let at = at.map(|place| format!(", {} {}", place.head(), place.value));
        let of = self.of_arm();
        Some(format!("{of}{}: {reason}", at.collect::<String>()))
    }

    fn of_arm(&self) -> String {
        match &self.arm {
            Some(arm) => format!("{} of {arm}", self.quantity.name),
            None => self.quantity.name.clone(),
        }
    }
}

/// Converts a ratio to percent of throughput.
fn percent(row: &ComparedRow, ratio: f64) -> f64 {
    100.0 * (row.quantity.better.gain(ratio) - 1.0)
}

fn better(row: &ComparedRow, effect: &Effect) -> (f64, f64) {
    let (a, b) = (percent(row, effect.low), percent(row, effect.high));
    (a.min(b), a.max(b))
}

/// Findings that stop a release. If both are empty, everything was compared and no row was slower than allowed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReleaseBlockers {
    pub slower: Vec<String>,
    /// Missing comparisons, with the reason.
    pub not_compared: Vec<String>,
}

impl Comparison {
    /// Returns the main rows that stop a release, if a slowdown by `part` is allowed.
    pub fn stopping(&self, part: f64) -> ReleaseBlockers {
        let is_slower = |row: &&ComparedRow| {
            let slower = row.ratio.map(|ratio| -percent(row, ratio) / 100.0);
            row.verdict == Some(Verdict::Slower) && slower.is_some_and(|s| s > part)
        };
        let main = || self.rows.iter().filter(|row| row.quantity.main);
        let none = main().next().is_none();
        let none = none.then(|| "neither file has a main quantity".to_owned());
        ReleaseBlockers {
            slower: main().filter(is_slower).map(ComparedRow::of_arm).collect(),
            not_compared: main().filter_map(ComparedRow::reason).chain(none).collect(),
        }
    }
}

impl ComparedSets {
    pub fn stopping(&self, part: f64) -> ReleaseBlockers {
        ReleaseBlockers {
            slower: slower(self.rows.iter(), part),
            not_compared: self.left_out.clone(),
        }
    }
}

/// Describes the rows that are slower by more than `part`.
fn slower<'a>(rows: impl Iterator<Item = &'a SetComparisonRow>, part: f64) -> Vec<String> {
    let is_slower = |row: &&SetComparisonRow| {
        row.verdict == Some(Verdict::Slower)
            && row.better_percent.is_some_and(|p| -p > 100.0 * part)
    };
    let words = rows.filter(is_slower).map(|row| match &row.arm {
        Some(arm) => format!("{} on {arm}", row.workload),
        None => row.workload.clone(),
    });
    words.collect()
}

/// Many sets, each compared with the first.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SetHistory {
    pub sets: Vec<String>,
    pub rows: Vec<HistoryRow>,
    /// Rows of the last set and the first that are not comparable, one sentence each.
    pub left_out: Vec<String>,
    pub equal: f64,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct HistoryRow {
    pub workload: String,
    pub arm: Option<String>,
    #[serde(serialize_with = "places::serialize")]
    pub at: Vec<Parameter>,
    /// The comparison with the first set for each other set in order; `None` without such a result.
    pub points: Vec<Option<SetComparisonRow>>,
}

/// Compares each set with the first in the main quantity of each workload.
pub fn history(sets_of: &[(String, ResultSet)], equal: f64) -> SetHistory {
    let mut all = SetHistory {
        sets: sets_of.iter().map(|(name, _)| name.clone()).collect(),
        rows: Vec::new(),
        left_out: Vec::new(),
        equal,
    };
    let Some(((_, first), others)) = sets_of.split_first() else {
        return all;
    };
    for (index, (_, other)) in others.iter().enumerate() {
        let compared = sets(first, other, QuantitySelection::Main, equal);
        all.left_out = compared.left_out;
        for row in compared.rows {
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

impl SetHistory {
    /// Returns the findings that stop a release: the last set against the first.
    pub fn stopping(&self, part: f64) -> ReleaseBlockers {
        let last = self.rows.iter();
        let last = last.filter_map(|row| row.points.last()?.as_ref());
        ReleaseBlockers {
            slower: slower(last, part),
            not_compared: self.left_out.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result_format::{ArmInfo, Quantity, Sample};

    fn result(name: &str, quantity: Quantity, value: f64) -> Results {
        let mut results = Results::empty(name, "");
        results.arms = vec![ArmInfo::named("base")];
        for round in 0..10 {
            let value = value * (1.0 + 0.002 * f64::from(round % 3));
            results.add(
                "base",
                &[],
                quantity.clone(),
                Sample::new(usize::try_from(round).unwrap(), value),
            );
        }
        results
    }

    fn set(all: impl IntoIterator<Item = Results>) -> ResultSet {
        let measured = |results: Results| NamedResult {
            file: format!("{}.json", results.experiment.name),
            results,
        };
        ResultSet {
            results: all.into_iter().map(measured).collect(),
            unread: Vec::new(),
        }
    }

    #[test]
    fn a_row_a_workload_and_better_is_more() {
        let rate = || Quantity::rate("rate", "1/s").main();
        let time = || Quantity::amount("time", "s").main();
        let a = set([
            result("redis", rate(), 100.0),
            result("sort", time(), 10.0),
            result("gone", rate(), 1.0),
        ]);
        let b = set([
            result("sort", time(), 11.0),
            result("redis", rate(), 120.0),
            result("new", rate(), 1.0),
        ]);
        let compared = sets(&a, &b, QuantitySelection::Main, 0.02);
        let percents = compared.rows.iter().map(|row| {
            let percent = row.better_percent.unwrap();
            format!("{} {percent:.0}", row.workload)
        });
        assert_eq!(percents.collect::<Vec<_>>(), ["redis 20", "sort -9"]);
        let left_out = ["gone (gone.json): only in A", "new (new.json): only in B"];
        assert_eq!(compared.left_out, left_out);
        assert_eq!(compared.stopping(0.2).not_compared, left_out);
        for row in &compared.rows {
            assert!(
                row.low_percent <= row.better_percent && row.better_percent <= row.high_percent,
                "{row:?}"
            );
        }
        assert_eq!(compared.stopping(0.02).slower, ["sort on base"]);
        assert!(compared.stopping(0.2).slower.is_empty());
        let both = |at: usize, other: usize| {
            let (a, b) = (&a.results[at].results, &b.results[other].results);
            files(a, b, 0.02).unwrap()
        };
        assert_eq!(both(1, 0).stopping(0.02).slower, ["time of base"]);
        assert_eq!(both(0, 1).stopping(0.0), ReleaseBlockers::default());
    }

    /// A set compared with itself has no changes and is never slower.
    #[test]
    fn the_same_is_the_same() {
        let a = set([result("redis", Quantity::rate("rate", "1/s").main(), 100.0)]);
        let compared = sets(&a, &a, QuantitySelection::Main, 0.02);
        assert_eq!(compared.rows[0].verdict, Some(Verdict::Same));
        assert_eq!(compared.stopping(0.0), ReleaseBlockers::default());
    }

    /// Two files of one experiment are paired by file name, not both with the first.
    #[test]
    fn several_results_of_an_experiment_are_paired_by_file() {
        let rate = |value| result("redis", Quantity::rate("rate", "1/s").main(), value);
        let named = |all: [(&str, f64); 2]| {
            let mut set = set(all.map(|(_, value)| rate(value)));
            for (measured, (file, _)) in set.results.iter_mut().zip(all) {
                file.clone_into(&mut measured.file);
            }
            set
        };
        let (a, b) = (
            named([("1", 100.0), ("2", 50.0)]),
            named([("1", 100.0), ("2", 40.0)]),
        );
        let compared = sets(&a, &b, QuantitySelection::Main, 0.02);
        assert_eq!(compared.stopping(0.1).slower, ["redis on base"]);
        let other = named([("1", 100.0), ("3", 50.0)]);
        let left_out = sets(&a, &other, QuantitySelection::Main, 0.02).left_out;
        assert_eq!(left_out, ["redis (2): only in A", "redis (3): only in B"]);
    }

    #[test]
    fn what_was_counted_can_be_asked_for() {
        let with = |faults: f64, seconds: f64| {
            let mut all = result("redis", Quantity::rate("rate", "1/s").main(), 100.0);
            for round in 0..6 {
                let mut put =
                    |quantity, value| all.add("base", &[], quantity, Sample::new(round, value));
                put(Quantity::amount("page faults", ""), faults);
                put(Quantity::amount("processor time", "s"), seconds);
            }
            all
        };
        let compared = sets(
            &set([with(100.0, 1.0)]),
            &set([with(50.0, 9.0)]),
            QuantitySelection::Counts,
            0.02,
        );
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
        let set = |name: &str, all: Vec<Results>| (name.to_owned(), set(all));
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
        assert_eq!(history.stopping(0.02).slower, ["redis on base"]);
        assert!(history.left_out.is_empty());
        assert!(super::history(&[], 0.02).rows.is_empty());
    }
}
