//! Comparison of two results, row by row. Pure: texts of files in, a comparison out.
//!
//! [`files`] compares rows of the same name in two files. [`arms`] compares two arms, of one file by their common rounds, of two files by
//! rank. Other differences of the results (host, kernel, settings) are listed, and each row refers to those that affect it.
//!
//! This module lists differences and never decides on their cause.

mod environment_diff;
mod ratio;
mod result_sets;

pub use ratio::{RowRatio, over};
pub use result_sets::{
    ComparedSets, HistoryRow, NamedResult, QuantitySelection, ReleaseBlockers, ResultSet,
    SetComparisonRow, SetHistory, history, sets,
};

use std::collections::{HashMap, HashSet};

use hugeleaf_units::Failure;
use serde::{Serialize, Serializer};

use crate::median_interval::MedianInterval;
use crate::result_format::{
    NotComparableReason, Pairing, Parameter, ParameterValue, Quantity, ResultRow, Results, Sample,
    places,
};
use crate::stats::{BetterDirection, Effect, Verdict};

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Comparison {
    pub arms: Option<[String; 2]>,
    pub is_within: bool,
    /// Other differences, and remarks for the reader; rows refer to them by ID.
    pub notes: Vec<ComparisonNote>,
    /// Caveats on the whole comparison, a sentence each.
    pub caveats: Vec<String>,
    pub rows: Vec<ComparedRow>,
    /// Tolerance of equality: the maximum distance of a ratio from 1.
    pub equal: f64,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct ComparisonNote {
    /// Counts from 1.
    pub id: usize,
    pub text: String,
    pub name: Option<String>,
    /// Value in A; `None` if A does not report it.
    pub a: Option<ParameterValue>,
    pub b: Option<ParameterValue>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ComparedRow {
    pub arm: Option<String>,
    #[serde(serialize_with = "places::serialize")]
    pub at: Vec<Parameter>,
    #[serde(flatten, serialize_with = "what")]
    pub quantity: Quantity,
    /// Row in A; `None` if A does not have it.
    pub a: Option<SideSamples>,
    pub b: Option<SideSamples>,
    /// B over A; `None` if not compared, or if both are 0.
    pub ratio: Option<f64>,
    /// B over A with its interval; `None` for a count taken once.
    pub effect: Option<Effect>,
    pub verdict: Option<Verdict>,
    /// The reason for a missing verdict.
    pub not_compared: Option<NotComparableReason>,
    pub notes: Vec<usize>,
}

/// Serializes a quantity with the field names of a comparison.
fn what<S: Serializer>(quantity: &Quantity, to: S) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct QuantityFields<'a> {
        what: &'a str,
        unit: &'a str,
        better: BetterDirection,
        is_main: bool,
    }
    QuantityFields {
        what: &quantity.name,
        unit: &quantity.unit,
        better: quantity.better,
        is_main: quantity.main,
    }
    .serialize(to)
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SideSamples {
    #[serde(flatten)]
    pub spread: MedianInterval,
    pub samples: Vec<f64>,
}

impl SideSamples {
    fn from_row(row: &ResultRow) -> Option<SideSamples> {
        Some(SideSamples {
            spread: row.spread()?,
            samples: row.values(),
        })
    }
}

/// Compares rows of the same name in two files. A ratio within `equal` of 1 counts as equal.
pub fn files(a: &Results, b: &Results, equal: f64) -> Result<Comparison, Failure> {
    let rows = [with_gains(&a.rows), with_gains(&b.rows)];
    ComparisonBuilder::new(a, b, equal)?.compare(&rows)
}

/// Compares two arms: `names[0]` of A and `names[1]` of B. For two arms of one file, `b` is `None`.
pub fn arms(
    a: &Results,
    b: Option<&Results>,
    names: &[String; 2],
    equal: f64,
) -> Result<Comparison, Failure> {
    let of = |side: char, measured: &Results, arm: &String| -> Result<Vec<ResultRow>, Failure> {
        let had = measured.arm_names();
        if !had.contains(arm) {
            let two = had.iter().take(2).cloned().collect::<Vec<_>>().join(",");
            return Err(Failure::usage(
                format!("{side} has no arm '{arm}'; it has {}", had.join(", ")),
                format!("name two of these: --arms {two}"),
            ));
        }
        let rows = measured.rows.iter().filter(|row| row.arm == *arm);
        Ok(rows.cloned().collect())
    };
    let other = b.unwrap_or(a);
    let rows = [
        of('A', a, &names[0])?,
        of(if b.is_some() { 'B' } else { 'A' }, other, &names[1])?,
    ];
    let mut builder = ComparisonBuilder::new(a, other, equal)?;
    builder.compared.is_within = b.is_none();
    builder.compared.arms = Some(names.clone());
    builder.compare(&rows)
}

struct ComparisonBuilder<'a> {
    a: &'a Results,
    b: &'a Results,
    on_all: Vec<usize>,
    /// The IDs of notes by their texts.
    noted: HashMap<String, usize>,
    compared: Comparison,
}

/// The note on secondary quantities without a ratio.
const NOT_COMPARED: &str =
    "not compared: a sample is not above 0, or there are too few samples for an interval";

/// Maximum number of notes on differing circumstances.
const MOST_DIFFERENCES: usize = 100;

impl<'a> ComparisonBuilder<'a> {
    fn new(a: &'a Results, b: &'a Results, equal: f64) -> Result<ComparisonBuilder<'a>, Failure> {
        let about = |of: &Results| {
            let main = of.main().cloned();
            let main = main.map(|quantity| (quantity.unit, quantity.better));
            (of.experiment.name.clone(), main)
        };
        if about(a) != about(b) {
            let (a, b) = (a.in_words(), b.in_words());
            return Err(Failure::no(
                format!("A measures {a} and B {b}: these are not comparable"),
                "compare results of one kind, measured in one unit",
            ));
        }
        let mut builder = ComparisonBuilder {
            a,
            b,
            on_all: Vec::new(),
            noted: HashMap::new(),
            compared: Comparison {
                caveats: caveats(a, b),
                equal,
                ..Comparison::default()
            },
        };
        let differences = environment_diff::differences(a, b);
        let more = differences.len().saturating_sub(MOST_DIFFERENCES);
        for (name, of_a, of_b) in differences.into_iter().take(MOST_DIFFERENCES) {
            let value = |value: &Option<ParameterValue>| match value {
                Some(value) => value.to_string(),
                None => "not reported".to_owned(),
            };
            let text = format!("{name}: {} in A, {} in B", value(&of_a), value(&of_b));
            let id = builder.note(text);
            let note = &mut builder.compared.notes[id - 1];
            (note.name, note.a, note.b) = (Some(name), of_a, of_b);
        }
        if more > 0 {
            builder.note(format!("{more} more circumstances differ"));
        }
        for (of, name) in [(a, "A"), (b, "B")] {
            if of.experiment.is_interrupted() {
                let what = "was interrupted: it has fewer rounds than requested";
                builder.note(format!("{name} {what}"));
            }
        }
        builder.on_all = (1..=builder.compared.notes.len()).collect();
        Ok(builder)
    }

    /// Returns the ID of a note, which is added once.
    fn note(&mut self, text: impl Into<String>) -> usize {
        let (text, notes) = (text.into(), &mut self.compared.notes);
        if let Some(id) = self.noted.get(&text) {
            return *id;
        }
        let id = notes.len() + 1;
        self.noted.insert(text.clone(), id);
        notes.push(ComparisonNote {
            id,
            text,
            ..ComparisonNote::default()
        });
        id
    }

    fn compare(mut self, [of_a, of_b]: &[Vec<ResultRow>; 2]) -> Result<Comparison, Failure> {
        let by_arm = self.compared.arms.is_none();
        let key = |row: &ResultRow| (by_arm.then(|| row.arm.clone()), row.key());
        let others: HashMap<_, &ResultRow> = of_b.iter().map(|row| (key(row), row)).collect();
        let mut in_both = HashSet::new();
        for row in of_a {
            let key = key(row);
            let other = others.get(&key).copied();
            self.pair(Some(row), other);
            in_both.extend(other.map(|_| key));
        }
        for row in of_b {
            if !in_both.contains(&key(row)) {
                self.pair(None, Some(row));
            }
        }
        let is_in_both = |row: &ComparedRow| row.a.is_some() && row.b.is_some();
        if !self.compared.rows.iter().any(is_in_both) {
            let [a, b] = [self.a, self.b].map(|side| side.arm_names().join(", "));
            return Err(Failure::no(
                format!("A and B have no row in common: A has {a}; B has {b}"),
                "name an arm of each: --arms ARM_OF_A,ARM_OF_B; or measure both with the same flags",
            ));
        }
        if !self.compared.is_within {
            self.compared.caveats.push(
                "A and B were measured one after the other, so drift between them is in the ratios. \
                 For the effect of page sizes, measure them in one run and compare its arms."
                    .to_owned(),
            );
        }
        Ok(self.compared)
    }

    /// Adds a row, unless neither side has samples of it.
    fn pair(&mut self, a: Option<&ResultRow>, b: Option<&ResultRow>) {
        let Some(row) = a.or(b) else {
            return;
        };
        let sides = [
            a.and_then(SideSamples::from_row),
            b.and_then(SideSamples::from_row),
        ];
        let mut notes = self.on_all.clone();
        for (name, of, row) in [("A", self.a, a), ("B", self.b, b)] {
            if let Some((said, arm)) = row.and_then(|row| Some((of.remark_of(row)?, &row.arm))) {
                notes.push(self.note(match self.compared.is_within {
                    true => format!("{arm}: {said}"),
                    false => format!("{name}, {arm}: {said}"),
                }));
            }
        }
        let judged = match (&sides, a, b) {
            ([None, None], ..) => return,
            ([Some(_), Some(_)], Some(a), Some(b)) => self.judged(a, b),
            ([own, _], ..) => {
                let who = if own.is_some() { "A" } else { "B" };
                let reason = format!("only {who} has samples of {}", row.arm);
                Err(NotComparableReason(reason))
            }
        };
        let is_in_both = sides.iter().all(Option::is_some);
        match &judged {
            Err(reason) if row.quantity.main => notes.push(self.note(reason.to_string())),
            // Each row has its own reason (`not_compared`), so one note covers all secondary quantities.
            Err(_) if is_in_both => notes.push(self.note(NOT_COMPARED)),
            _ => {}
        }
        let [a, b] = sides;
        let (over, not_compared) = match judged {
            Ok(over) => (Some(over), None),
            Err(reason) => (None, Some(reason)),
        };
        self.compared.rows.push(ComparedRow {
            arm: self.compared.arms.is_none().then(|| row.arm.clone()),
            at: row.at.clone(),
            quantity: row.quantity.clone(),
            a,
            b,
            ratio: over.as_ref().and_then(|(over, _)| over.ratio),
            effect: over.as_ref().and_then(|(over, _)| over.effect),
            verdict: over.map(|(_, verdict)| verdict),
            not_compared,
            notes,
        });
    }

    /// Compares by common rounds within a file, else by rank.
    fn judged(
        &self,
        a: &ResultRow,
        b: &ResultRow,
    ) -> Result<(RowRatio, Verdict), NotComparableReason> {
        let has_rounds = |row: &ResultRow| row.samples.iter().all(|sample| sample.round.is_some());
        let is_within = self.compared.is_within;
        let pairing = match is_within && has_rounds(a) && has_rounds(b) {
            true => Pairing::Rounds,
            false => Pairing::Ranks,
        };
        let over = over(a, b, pairing)?;
        let equal = self.compared.equal.ln_1p();
        // Natural variation between two runs is not a finding.
        let beyond = if is_within { 0.0 } else { equal };
        let verdict = over.verdict(equal, beyond, a.quantity.better);
        Ok((over, verdict))
    }
}

/// Adds to each main row of a later arm its ratio to the first arm, by common rounds. Such gains are comparable even between hosts.
fn with_gains(rows: &[ResultRow]) -> Vec<ResultRow> {
    let mut firsts: HashMap<String, &ResultRow> = HashMap::new();
    for row in rows {
        firsts.entry(row.key()).or_insert(row);
    }
    let mut all = rows.to_vec();
    for row in rows.iter().filter(|row| row.quantity.main) {
        let first = firsts.get(&row.key());
        let Some(first) = first.filter(|first| first.arm != row.arm) else {
            continue;
        };
        // Incomparable rows have no gain, and give the reason themselves.
        let gains = row.logs_over(first).unwrap_or_default().into_iter();
        let gains: Vec<Sample> = gains.map(|(at, log)| Sample::new(at, log.exp())).collect();
        if !gains.is_empty() {
            let name = format!("{} over {}", row.quantity.name, first.arm);
            all.push(ResultRow {
                quantity: Quantity {
                    better: row.quantity.better,
                    ..Quantity::amount(&name, "×")
                },
                samples: gains,
                ..row.clone()
            });
        }
    }
    all
}

/// Joins caveats: common ones once, the others with the name of their side.
fn caveats(a: &Results, b: &Results) -> Vec<String> {
    let of_b = b.caveats.iter().filter(|c| !a.caveats.contains(c));
    let of_a = a.caveats.iter().map(|c| match b.caveats.contains(c) {
        true => c.clone(),
        false => format!("A: {c}"),
    });
    of_a.chain(of_b.map(|c| format!("B: {c}"))).collect()
}

#[cfg(test)]
mod tests;
