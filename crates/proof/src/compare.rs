//! Two results compared with each other, row by row. Pure: texts of files in, a comparison out.
//!
//! [`files`] compares rows of two files that have the same name; [`arms`] two arms, of one file by the rounds that both have, of two files
//! by rank. What makes two results differ otherwise (host, kernel, settings) is listed, and each
//! row says what of that bears on it.
//!
//! This module must not decide what a difference comes from: it lists what differs.

mod facts;
mod sets;

pub use sets::{ComparedSets, History, HistoryRow, SetRow, Which, history, sets};

use serde::{Serialize, Serializer};

use crate::rows::{Kind, Place, Quantity, Results, Row, Sample, Value, places};
use crate::spread::{CONFIDENCE, Spread};
use crate::stats::{
    Better, Effect, LogInterval, Method, Verdict, judge_beyond, log_ratio, rank_sum_interval,
};

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
    /// B over A: the medians' ratio, or that of the interval where there is one. Missing where one
    /// of them is not above 0.
    pub ratio: Option<f64>,
    /// B over A with its interval; missing where there are too few samples.
    pub effect: Option<Effect>,
    /// What that says; missing where only one has it.
    pub verdict: Option<Verdict>,
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
    compared: Compared,
}

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
            compared: Compared {
                arms: None,
                is_within: false,
                notes: Vec::new(),
                caveats: caveats(a, b),
                rows: Vec::new(),
                equal,
            },
        };
        for (name, of_a, of_b) in facts::differences(a, b) {
            let value = |value: &Option<Value>| match value {
                Some(value) => value.to_string(),
                None => "not reported".to_owned(),
            };
            let text = format!("{name}: {} in A, {} in B", value(&of_a), value(&of_b));
            let id = builder.note(text);
            let note = &mut builder.compared.notes[id - 1];
            (note.name, note.a, note.b) = (Some(name), of_a, of_b);
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
        if let Some(note) = notes.iter().find(|note| note.text == text) {
            return note.id;
        }
        let id = notes.len() + 1;
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
        let is_same = |a: &Row, b: &Row| (!by_arm || a.arm == b.arm) && a.is_same_as(b);
        for row in of_a {
            self.pair(Some(row), of_b.iter().find(|other| is_same(row, other)));
        }
        for row in of_b {
            if !of_a.iter().any(|other| is_same(other, row)) {
                self.pair(None, Some(row));
            }
        }
        if !self.compared.rows.iter().any(|row| row.verdict.is_some()) {
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
        let kind = row.quantity.kind;
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
        let both = match &sides {
            [None, None] => return,
            [Some(a), Some(b)] => Some((a, b)),
            [a, _] => {
                if row.quantity.main {
                    let who = if a.is_some() { "A" } else { "B" };
                    notes.push(self.note(format!("only {who} has samples of {}", row.arm)));
                }
                None
            }
        };
        let interval = a.zip(b).filter(|_| both.is_some());
        let interval = interval.and_then(|(a, b)| self.interval(a, b));
        let medians = || both.and_then(|(a, b)| log_ratio(a.spread.median, b.spread.median));
        let ratio = interval.map(|i| i.center).or_else(medians).map(f64::exp);
        let verdict = both.map(|both| self.verdict(both, row, ratio, interval.as_ref()));
        if kind == Kind::InBuckets && verdict.is_some() {
            notes.push(self.note(
                "a quantile read from buckets is known to its bucket only: compare means of the \
                 same observations, --metric 'http://…#mean(NAME)'",
            ));
        }
        if both.is_some() && interval.is_none() && ratio.is_some() && is_sampled(kind) {
            notes.push(
                self.note("too few samples for an interval: it takes 4 on each side, or 6 pairs"),
            );
        }
        let [a, b] = sides;
        self.compared.rows.push(ComparedRow {
            arm: self.compared.arms.is_none().then(|| row.arm.clone()),
            at: row.at.clone(),
            quantity: row.quantity.clone(),
            a,
            b,
            ratio,
            effect: interval.map(|interval| Effect {
                // It says as much as the method.
                estimator: None,
                ..Effect::of(&interval, CONFIDENCE)
            }),
            verdict,
            notes,
        });
    }

    /// Of one file by the rounds that both have; else by rank.
    fn interval(&self, a: &Row, b: &Row) -> Option<LogInterval> {
        if !is_sampled(a.quantity.kind) {
            return None;
        }
        let has_rounds = |row: &Row| row.samples.iter().all(|sample| sample.round.is_some());
        if self.compared.is_within && has_rounds(a) && has_rounds(b) {
            return b.interval_over(a);
        }
        let logs = |row: &Row| -> Option<Vec<f64>> {
            let values = row.samples.iter();
            values.map(|sample| log_ratio(1.0, sample.value)).collect()
        };
        rank_sum_interval(&logs(a)?, &logs(b)?, CONFIDENCE)
    }

    fn verdict(
        &self,
        (a, b): (&Side, &Side),
        row: &Row,
        ratio: Option<f64>,
        interval: Option<&LogInterval>,
    ) -> Verdict {
        let is_zero = |side: &Side| side.samples.iter().all(|value| *value == 0.0);
        let equal = self.compared.equal.ln_1p();
        // What two times differ by of themselves is no finding.
        let beyond = if self.compared.is_within { 0.0 } else { equal };
        let judged =
            |interval: &LogInterval| judge_beyond(interval, equal, beyond, row.quantity.better);
        match (row.quantity.kind, ratio, interval) {
            (Kind::InBuckets, ..) => Verdict::Unclear,
            _ if is_zero(a) && is_zero(b) => Verdict::Same,
            (Kind::Counted, Some(ratio), _) => judged(&LogInterval {
                center: ratio.ln(),
                low: ratio.ln(),
                high: ratio.ln(),
                method: Method::RankSum,
            }),
            (_, _, Some(interval)) => judged(interval),
            _ => Verdict::Unclear,
        }
    }
}

fn is_sampled(kind: Kind) -> bool {
    !matches!(kind, Kind::Counted | Kind::InBuckets)
}

/// The rows, and for each main row of an arm that is not the first how much it is over the first, by
/// the rounds that both have: what is left of two results of different hosts.
fn with_gains(rows: &[Row]) -> Vec<Row> {
    let mut all = rows.to_vec();
    for row in rows.iter().filter(|row| row.quantity.main) {
        let first = rows.iter().find(|first| first.is_same_as(row));
        let Some(first) = first.filter(|first| first.arm != row.arm) else {
            continue;
        };
        let gains = row.logs_over(first).into_iter();
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
