//! Two results compared with each other, row by row. Pure: texts of files in, a comparison out.
//!
//! [`files`] compares rows of two files that have the same name; [`arms`] two arms, of one file by the rounds that both have, of two files
//! by rank. What makes two results differ otherwise (host, kernel, settings) is listed, and each
//! row says what of that bears on it.
//!
//! This module must not decide what a difference comes from: it lists what differs.

mod facts;
mod over;
mod sets;

pub use over::{Over, over};
pub use sets::{
    ComparedSets, History, HistoryRow, Measured, Set, SetRow, Stopping, Which, history, sets,
};

use std::collections::{HashMap, HashSet};

use serde::{Serialize, Serializer};

use crate::rows::{NotCompared, Pairing, Place, Quantity, Results, Row, Sample, Value, places};
use crate::spread::Spread;
use crate::stats::{Better, Effect, Verdict};

#[derive(Debug, Clone, PartialEq)]
pub struct Compared {
    pub arms: Option<[String; 2]>,
    pub is_within: bool,
    /// What differs otherwise, and what a reader must know; rows name these by their id.
    pub notes: Vec<Note>,
    /// What must be known of all of it, a sentence each.
    pub caveats: Vec<String>,
    pub rows: Vec<ComparedRow>,
    /// What counted as equal: a ratio within so much of 1.
    pub equal: f64,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Note {
    /// From 1.
    pub id: usize,
    pub text: String,
    pub name: Option<String>,
    /// In A; missing where A does not report it.
    pub a: Option<Value>,
    pub b: Option<Value>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ComparedRow {
    pub arm: Option<String>,
    #[serde(serialize_with = "places::serialize")]
    pub at: Vec<Place>,
    #[serde(flatten, serialize_with = "what")]
    pub quantity: Quantity,
    /// In A; missing where A does not have it.
    pub a: Option<Side>,
    pub b: Option<Side>,
    /// B over A; missing where they were not compared, and of what is 0 in both.
    pub ratio: Option<f64>,
    /// B over A with its interval; missing of what was counted once.
    pub effect: Option<Effect>,
    pub verdict: Option<Verdict>,
    /// Why there is no verdict.
    pub not_compared: Option<NotCompared>,
    pub notes: Vec<usize>,
}

/// A quantity, as a comparison calls its fields.
fn what<S: Serializer>(quantity: &Quantity, to: S) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct What<'a> {
        what: &'a str,
        unit: &'a str,
        better: Better,
        is_main: bool,
    }
    What {
        what: &quantity.name,
        unit: &quantity.unit,
        better: quantity.better,
        is_main: quantity.main,
    }
    .serialize(to)
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Side {
    #[serde(flatten)]
    pub spread: Spread,
    pub samples: Vec<f64>,
}

impl Side {
    fn of(row: &Row) -> Option<Side> {
        Some(Side {
            spread: row.spread()?,
            samples: row.values(),
        })
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CompareError {
    #[error("A measures {a} and B {b}: these are not comparable")]
    Different { a: String, b: String },
    #[error("{side} has no arm '{arm}'; it has {}", had.join(", "))]
    NoSuchArm {
        side: char,
        arm: String,
        had: Vec<String>,
    },
    #[error("A and B have no row in common: A has {a}; B has {b}")]
    NothingInCommon { a: String, b: String },
}

impl CompareError {
    pub fn next(&self) -> String {
        match self {
            CompareError::Different { .. } => {
                "compare results of one kind, measured in one unit".to_owned()
            }
            CompareError::NoSuchArm { had, .. } => format!(
                "name two of these: --arms {}",
                had.iter().take(2).cloned().collect::<Vec<_>>().join(",")
            ),
            CompareError::NothingInCommon { .. } => {
                "name an arm of each: --arms ARM_OF_A,ARM_OF_B; or measure both with the same flags"
                    .to_owned()
            }
        }
    }
}

/// Rows of the same name in two files. A ratio within `equal` of 1 counts as equal.
pub fn files(a: &Results, b: &Results, equal: f64) -> Result<Compared, CompareError> {
    let rows = [with_gains(&a.rows), with_gains(&b.rows)];
    Builder::new(a, b, equal)?.compare(&rows)
}

/// Two arms: `names[0]` of A and `names[1]` of B. Where both are of one file, `b` is `None`.
pub fn arms(
    a: &Results,
    b: Option<&Results>,
    names: &[String; 2],
    equal: f64,
) -> Result<Compared, CompareError> {
    let of = |side: char, measured: &Results, arm: &String| -> Result<Vec<Row>, CompareError> {
        let had = measured.arm_names();
        if !had.contains(arm) {
            let arm = arm.clone();
            return Err(CompareError::NoSuchArm { side, arm, had });
        }
        let rows = measured.rows.iter().filter(|row| row.arm == *arm);
        Ok(rows.cloned().collect())
    };
    let other = b.unwrap_or(a);
    let rows = [
        of('A', a, &names[0])?,
        of(if b.is_some() { 'B' } else { 'A' }, other, &names[1])?,
    ];
    let mut builder = Builder::new(a, other, equal)?;
    builder.compared.is_within = b.is_none();
    builder.compared.arms = Some(names.clone());
    builder.compare(&rows)
}

struct Builder<'a> {
    a: &'a Results,
    b: &'a Results,
    on_all: Vec<usize>,
    /// The ids of notes by their texts.
    noted: HashMap<String, usize>,
    compared: Compared,
}

/// The note on what was also measured and has no ratio.
const NOT_COMPARED: &str =
    "not compared: a sample is not above 0, or there are too few samples for an interval";

/// Bound on the notes about circumstances that differ.
const MOST_DIFFERENCES: usize = 100;

impl<'a> Builder<'a> {
    fn new(a: &'a Results, b: &'a Results, equal: f64) -> Result<Builder<'a>, CompareError> {
        let about = |of: &Results| {
            let main = of.main().cloned();
            let main = main.map(|quantity| (quantity.unit, quantity.better));
            (of.experiment.name.clone(), main)
        };
        if about(a) != about(b) {
            return Err(CompareError::Different {
                a: a.in_words(),
                b: b.in_words(),
            });
        }
        let mut builder = Builder {
            a,
            b,
            on_all: Vec::new(),
            noted: HashMap::new(),
            compared: Compared {
                arms: None,
                is_within: false,
                notes: Vec::new(),
                caveats: caveats(a, b),
                rows: Vec::new(),
                equal,
            },
        };
        let differences = facts::differences(a, b);
        let more = differences.len().saturating_sub(MOST_DIFFERENCES);
        for (name, of_a, of_b) in differences.into_iter().take(MOST_DIFFERENCES) {
            let value = |value: &Option<Value>| match value {
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
                let what = "was interrupted: what it has is of fewer rounds than asked";
                builder.note(format!("{name} {what}"));
            }
        }
        builder.on_all = (1..=builder.compared.notes.len()).collect();
        Ok(builder)
    }

    /// The id of a note, which is there once.
    fn note(&mut self, text: impl Into<String>) -> usize {
        let (text, notes) = (text.into(), &mut self.compared.notes);
        if let Some(id) = self.noted.get(&text) {
            return *id;
        }
        let id = notes.len() + 1;
        self.noted.insert(text.clone(), id);
        let (name, a, b) = (None, None, None);
        notes.push(Note {
            id,
            text,
            name,
            a,
            b,
        });
        id
    }

    fn compare(mut self, [of_a, of_b]: &[Vec<Row>; 2]) -> Result<Compared, CompareError> {
        let by_arm = self.compared.arms.is_none();
        let key = |row: &Row| (by_arm.then(|| row.arm.clone()), row.key());
        let others: HashMap<_, &Row> = of_b.iter().map(|row| (key(row), row)).collect();
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
            return Err(CompareError::NothingInCommon {
                a: self.a.arm_names().join(", "),
                b: self.b.arm_names().join(", "),
            });
        }
        if !self.compared.is_within {
            self.compared.caveats.push(
                "A and B were measured one after the other: what drifted between them is in the \
                 ratios. For what page sizes bring, measure them in one run and compare its arms."
                    .to_owned(),
            );
        }
        Ok(self.compared)
    }

    /// Adds a row, unless neither has samples of it.
    fn pair(&mut self, a: Option<&Row>, b: Option<&Row>) {
        let Some(row) = a.or(b) else {
            return;
        };
        let sides = [a.and_then(Side::of), b.and_then(Side::of)];
        let mut notes = self.on_all.clone();
        for (name, of, row) in [("A", self.a, a), ("B", self.b, b)] {
            if let Some((said, arm)) = row.and_then(|row| Some((of.said_of(row)?, &row.arm))) {
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
                Err(NotCompared(reason))
            }
        };
        let is_in_both = sides.iter().all(Option::is_some);
        match &judged {
            Err(reason) if row.quantity.main => notes.push(self.note(reason.to_string())),
            // Each row has its own reason (`not_compared`): one note for all of what was also measured.
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

    /// Of one file by the rounds that both have; else by rank.
    fn judged(&self, a: &Row, b: &Row) -> Result<(Over, Verdict), NotCompared> {
        let has_rounds = |row: &Row| row.samples.iter().all(|sample| sample.round.is_some());
        let is_within = self.compared.is_within;
        let pairing = match is_within && has_rounds(a) && has_rounds(b) {
            true => Pairing::Rounds,
            false => Pairing::Ranks,
        };
        let over = over(a, b, pairing)?;
        let equal = self.compared.equal.ln_1p();
        // What two times differ by of themselves is no finding.
        let beyond = if is_within { 0.0 } else { equal };
        let verdict = over.verdict(equal, beyond, a.quantity.better);
        Ok((over, verdict))
    }
}

/// The rows, and for each main row of an arm that is not the first how much it is over the first, by
/// the rounds that both have: what is left of two results of different hosts.
fn with_gains(rows: &[Row]) -> Vec<Row> {
    let mut firsts: HashMap<String, &Row> = HashMap::new();
    for row in rows {
        firsts.entry(row.key()).or_insert(row);
    }
    let mut all = rows.to_vec();
    for row in rows.iter().filter(|row| row.quantity.main) {
        let first = firsts.get(&row.key());
        let Some(first) = first.filter(|first| first.arm != row.arm) else {
            continue;
        };
        // Rows that cannot be compared have no gain, and say why themselves.
        let gains = row.logs_over(first).unwrap_or_default().into_iter();
        let gains: Vec<Sample> = gains.map(|(at, log)| Sample::of(at, log.exp())).collect();
        if !gains.is_empty() {
            let name = format!("{} over {}", row.quantity.name, first.arm);
            all.push(Row {
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

/// What both say once, what one says with its name.
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
