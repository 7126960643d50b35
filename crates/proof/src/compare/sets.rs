//! Two sets of results: before and after an upgrade, one host and another. A row a workload, arm and place, of what each was
//! measured for. Pure.

use serde::{Serialize, Serializer};

use super::{CompareError, Compared, ComparedRow, files};
use crate::rows::{Place, Results, places};
use crate::stats::{Effect, Verdict};

/// Two sets compared.
#[derive(Debug, Clone, PartialEq)]
pub struct ComparedSets {
    /// What both have, workload by workload.
    pub rows: Vec<SetRow>,
    /// What only one of them has, or what cannot be compared, in a sentence each.
    pub left_out: Vec<String>,
    /// What counted as equal.
    pub equal: f64,
}

/// A workload on an arm at a place.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SetRow {
    /// The workload.
    pub workload: String,
    /// The arm.
    pub arm: Option<String>,
    /// Where.
    #[serde(serialize_with = "at")]
    pub at: Vec<Place>,
    /// How much better B is, in percent: of a time, how much shorter. Missing where that is not known.
    pub better_percent: Option<f64>,
    /// The ends of its 95 % interval.
    pub low_percent: Option<f64>,
    /// Upper end.
    pub high_percent: Option<f64>,
    /// What that says.
    pub verdict: Option<Verdict>,
}

fn at<S: Serializer>(at: &[Place], to: S) -> Result<S::Ok, S::Error> {
    places::serialize(at, to)
}

/// Compares results of the same experiment in two sets.
pub fn sets(a: &[Results], b: &[Results], equal: f64) -> ComparedSets {
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
            Ok(both) => compared.rows.extend(main_rows(name, &both)),
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

fn main_rows(name: &str, both: &Compared) -> Vec<SetRow> {
    let rows = both
        .rows
        .iter()
        .filter(|row| row.quantity.main && row.verdict.is_some());
    rows.map(|row| {
        let ends = row.effect.as_ref().map(|effect| better(row, effect));
        SetRow {
            workload: name.to_owned(),
            arm: row.arm.clone(),
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
        let is_slower = |row: &&SetRow| {
            row.verdict == Some(Verdict::Slower)
                && row.better_percent.is_some_and(|p| -p > 100.0 * part)
        };
        let slower = self.rows.iter().filter(is_slower);
        let words = slower.map(|row| match &row.arm {
            Some(arm) => format!("{} on {arm}", row.workload),
            None => row.workload.clone(),
        });
        words.collect()
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
        let compared = sets(&a, &b, 0.02);
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
        let compared = sets(&a, &a, 0.02);
        assert_eq!(compared.rows[0].verdict, Some(Verdict::Same));
        assert!(compared.slower_by(0.0).is_empty());
    }
}
