//! Two results held against each other, row by row. Pure: texts of files in, a comparison out.
//!
//! A result of any kind becomes a list of [`Row`]s ([`Measured::read`]): an arm, a place (working
//! set, number of threads), a quantity and its samples. [`files`] compares rows of two files that
//! have the same name; [`arms`] two arms, of one file by the rounds that both have, of two files
//! by rank. What makes two results differ otherwise (host, kernel, settings) is listed, and each
//! row says what of that bears on it.
//!
//! This module must not decide what a difference comes from: it lists what differs.

mod facts;
mod read;
mod rows;

use crate::bench::{CONFIDENCE, Spread};
use crate::result::Effect;
use crate::stats::{
    Better, LogInterval, Verdict, judge, log_ratio, rank_sum_interval, signed_rank_interval,
};

pub use facts::{Fact, Value};
pub use read::{Measured, NotAResult};

/// Where within an experiment something was measured: `working_set_bytes`, `threads`, `mode`.
#[derive(Debug, Clone, PartialEq)]
pub struct Place {
    /// As the result's file calls it.
    pub name: &'static str,
    /// Its value.
    pub value: Value,
}

/// What was measured.
#[derive(Debug, Clone, PartialEq)]
pub struct Quantity {
    /// `NOTPM`, `New-Order p99`, `page tables`.
    pub name: String,
    /// Its unit: `ns`, `seconds`, `bytes`, nothing for a plain number.
    pub unit: String,
    /// Which way it gets better.
    pub better: Better,
    /// What it is a measure of.
    pub sort: Sort,
    /// Whether the experiment was made for it; the others were seen beside.
    pub is_main: bool,
}

/// What a quantity is a measure of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sort {
    /// A rate or a time: it gets faster or slower.
    Speed,
    /// What was used up: it gets less or more.
    Amount,
    /// The same, counted once and not sampled: its ratio is what it is, without an interval.
    Counted,
    /// A quantile read from a histogram's buckets: it is known to its bucket only, so the samples
    /// make no interval.
    InBuckets,
}

/// A sample, with its round where it has one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sample {
    /// The round.
    pub round: Option<usize>,
    /// What was measured.
    pub value: f64,
}

/// A quantity of an arm at a place.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// The arm, as its result calls it.
    pub arm: String,
    /// Where.
    pub at: Vec<Place>,
    /// What.
    pub quantity: Quantity,
    /// How much, in the order it was taken; nothing where the arm was not had.
    pub samples: Vec<Sample>,
    /// What a reader must know of this row: not had, not seen to be on its pages.
    pub note: Option<String>,
}

impl Row {
    fn values(&self) -> Vec<f64> {
        self.samples.iter().map(|sample| sample.value).collect()
    }

    fn is_same_as(&self, other: &Row) -> bool {
        self.at == other.at && self.quantity.name == other.quantity.name
    }
}

/// What is asked of a comparison.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Asked {
    /// What counts as equal: a ratio within so much of 1.
    pub equal: f64,
}

/// Two results, or two arms, held against each other.
#[derive(Debug, Clone, PartialEq)]
pub struct Compared {
    /// The two arms, where arms are compared.
    pub arms: Option<[String; 2]>,
    /// Whether both are of one file.
    pub is_within: bool,
    /// What differs otherwise, and what a reader must know; rows name these by their index.
    pub notes: Vec<Note>,
    /// What must be known of all of it, a sentence each.
    pub caveats: Vec<String>,
    /// The rows.
    pub rows: Vec<ComparedRow>,
    /// What counted as equal: a ratio within so much of 1.
    pub equal: f64,
}

/// What bears on some rows.
#[derive(Debug, Clone, PartialEq)]
pub enum Note {
    /// A circumstance that differs.
    Differs {
        /// Its name, as in the file.
        name: String,
        /// In A; missing where A does not tell.
        a: Option<Value>,
        /// In B, likewise.
        b: Option<Value>,
    },
    /// A sentence.
    Says(String),
}

/// A row of both.
#[derive(Debug, Clone, PartialEq)]
pub struct ComparedRow {
    /// The arm; missing where two arms are compared.
    pub arm: Option<String>,
    /// Where.
    pub at: Vec<Place>,
    /// What.
    pub quantity: Quantity,
    /// In A; missing where A does not have it.
    pub a: Option<Side>,
    /// In B, likewise.
    pub b: Option<Side>,
    /// B over A: the medians' ratio, or that of the interval where there is one. Missing where one
    /// of them is not above 0.
    pub ratio: Option<f64>,
    /// B over A with its interval; missing where there are too few samples.
    pub effect: Option<Effect>,
    /// What that says; missing where only one has it.
    pub verdict: Option<Verdict>,
    /// Which of the notes bear on it.
    pub notes: Vec<usize>,
}

/// One of the two.
#[derive(Debug, Clone, PartialEq)]
pub struct Side {
    /// Its samples.
    pub samples: Vec<f64>,
    /// Their median.
    pub spread: Spread,
}

impl Side {
    fn of(row: &Row) -> Option<Side> {
        let samples = row.values();
        let spread = Spread::of(&samples, CONFIDENCE)?;
        Some(Side { samples, spread })
    }
}

/// Why there is no comparison.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CompareError {
    /// They measure different things.
    #[error("A measures {a} and B {b}: these are not comparable")]
    Different {
        /// Name, unit and direction of the one.
        a: String,
        /// And of the other.
        b: String,
    },
    /// An arm that is not there.
    #[error("{side} has no arm '{arm}'; it has {}", had.join(", "))]
    NoSuchArm {
        /// `A` or `B`.
        side: char,
        /// What was asked for.
        arm: String,
        /// What there is.
        had: Vec<String>,
    },
    /// No row is in both.
    #[error("A and B have no row in common: A has {a}; B has {b}")]
    NothingInCommon {
        /// Arms of the one.
        a: String,
        /// And of the other.
        b: String,
    },
}

impl CompareError {
    /// What to do next.
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

/// Rows of the same name in two files.
///
/// # Errors
/// [`CompareError`].
pub fn files(a: &Measured, b: &Measured, asked: Asked) -> Result<Compared, CompareError> {
    let (of_a, of_b) = (rows::with_gains(&a.rows), rows::with_gains(&b.rows));
    let mut builder = Builder::new(a, b, asked)?;
    for row in &of_a {
        let other = of_b.iter().find(|o| o.arm == row.arm && o.is_same_as(row));
        builder.pair(Some(row.arm.clone()), Some(row), other);
    }
    for row in &of_b {
        if !of_a.iter().any(|o| o.arm == row.arm && o.is_same_as(row)) {
            builder.pair(Some(row.arm.clone()), None, Some(row));
        }
    }
    builder.done(None)
}

/// Two arms: `names[0]` of A and `names[1]` of B. Where both are of one file, `b` is `None`.
///
/// # Errors
/// [`CompareError`].
pub fn arms(
    a: &Measured,
    b: Option<&Measured>,
    names: &[String; 2],
    asked: Asked,
) -> Result<Compared, CompareError> {
    let of = |side: char, measured: &Measured, arm: &String| -> Result<Vec<Row>, CompareError> {
        let had = measured.arms();
        match had.contains(arm) {
            true => Ok((measured.rows.iter())
                .filter(|row| row.arm == *arm)
                .cloned()
                .collect()),
            false => Err(CompareError::NoSuchArm {
                side,
                arm: arm.clone(),
                had,
            }),
        }
    };
    let other = b.unwrap_or(a);
    let of_a = of('A', a, &names[0])?;
    let of_b = of(if b.is_some() { 'B' } else { 'A' }, other, &names[1])?;
    let mut builder = Builder::new(a, other, asked)?;
    builder.compared.is_within = b.is_none();
    for row in &of_a {
        let other = of_b.iter().find(|other| other.is_same_as(row));
        builder.pair(None, Some(row), other);
    }
    for row in of_b
        .iter()
        .filter(|r| !of_a.iter().any(|o| o.is_same_as(r)))
    {
        builder.pair(None, None, Some(row));
    }
    builder.done(Some(names.clone()))
}

/// A comparison while it is made.
struct Builder<'a> {
    a: &'a Measured,
    b: &'a Measured,
    /// Which notes bear on every row.
    on_all: Vec<usize>,
    compared: Compared,
}

impl<'a> Builder<'a> {
    fn new(a: &'a Measured, b: &'a Measured, asked: Asked) -> Result<Builder<'a>, CompareError> {
        if (&a.name, &a.unit, a.better) != (&b.name, &b.unit, b.better) {
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
                notes: facts::differences(&a.facts, &b.facts),
                caveats: caveats(a, b),
                rows: Vec::new(),
                equal: asked.equal,
            },
        };
        builder.on_all = (0..builder.compared.notes.len()).collect();
        let interrupted: Vec<&str> = [(a, "A"), (b, "B")]
            .into_iter()
            .filter_map(|(of, name)| of.is_interrupted.then_some(name))
            .collect();
        for name in interrupted {
            let note = format!("{name} was interrupted: what it has is of fewer rounds than asked");
            let at = builder.note(note);
            if !builder.on_all.contains(&at) {
                builder.on_all.push(at);
            }
        }
        Ok(builder)
    }

    /// The index of a note, which is there once.
    fn note(&mut self, text: String) -> usize {
        let note = Note::Says(text);
        let notes = &mut self.compared.notes;
        if let Some(at) = notes.iter().position(|n| *n == note) {
            return at;
        }
        notes.push(note);
        notes.len() - 1
    }

    fn pair(&mut self, arm: Option<String>, a: Option<&Row>, b: Option<&Row>) {
        let Some(row) = a.or(b) else {
            return;
        };
        let sides = [a.and_then(Side::of), b.and_then(Side::of)];
        // Neither has it: an arm that both did not have. Its note is one of the file.
        let mut notes = self.on_all.clone();
        for (name, row) in [("A", a), ("B", b)] {
            let within = self.compared.is_within;
            if let Some(said) = row.and_then(|row| Some((row.note.as_ref()?, &row.arm))) {
                let text = match within {
                    true => format!("{}: {}", said.1, said.0),
                    false => format!("{name}, {}: {}", said.1, said.0),
                };
                notes.push(self.note(text));
            }
        }
        let [side_a, side_b] = &sides;
        if side_a.is_none() && side_b.is_none() {
            return;
        }
        let is_lone = side_a.is_none() || side_b.is_none();
        if is_lone && row.quantity.is_main {
            let who = if side_a.is_some() { "A" } else { "B" };
            let text = format!("only {who} has samples of {}", row.arm);
            notes.push(self.note(text));
        }
        let between = a.zip(b).filter(|_| !is_lone);
        let interval = between.and_then(|(a, b)| self.interval(a, b));
        let ratio = interval.map(|i| i.center.exp()).or_else(|| {
            let (a, b) = (side_a.as_ref()?, side_b.as_ref()?);
            log_ratio(a.spread.median, b.spread.median).map(f64::exp)
        });
        let verdict = (!is_lone).then(|| self.verdict(&sides, row, ratio, interval.as_ref()));
        let is_sampled = !matches!(row.quantity.sort, Sort::Counted | Sort::InBuckets);
        if row.quantity.sort == Sort::InBuckets && verdict.is_some() {
            notes.push(self.note(
                "a quantile read from buckets is known to its bucket only: compare means of the \
                 same observations, --metric 'http://…#mean(NAME)'"
                    .to_owned(),
            ));
        }
        if verdict.is_some() && interval.is_none() && ratio.is_some() && is_sampled {
            notes.push(self.note(
                "too few samples for an interval: it takes 4 on each side, or 6 pairs".to_owned(),
            ));
        }
        let [a, b] = sides;
        self.compared.rows.push(ComparedRow {
            arm,
            at: row.at.clone(),
            quantity: row.quantity.clone(),
            a,
            b,
            ratio,
            effect: interval.map(|i| Effect::of(&i, CONFIDENCE)),
            verdict,
            notes,
        });
    }

    /// Of one file by the rounds that both have; else by rank.
    fn interval(&self, a: &Row, b: &Row) -> Option<LogInterval> {
        if matches!(a.quantity.sort, Sort::Counted | Sort::InBuckets) {
            return None;
        }
        let has_rounds = |row: &Row| row.samples.iter().all(|sample| sample.round.is_some());
        if self.compared.is_within && has_rounds(a) && has_rounds(b) {
            let of_a = |round| a.samples.iter().find(|sample| sample.round == round);
            let logs: Vec<f64> = (b.samples.iter())
                .filter_map(|b| log_ratio(of_a(b.round)?.value, b.value))
                .collect();
            return signed_rank_interval(&logs, CONFIDENCE);
        }
        let logs = |row: &Row| -> Option<Vec<f64>> {
            let values = row.samples.iter();
            values.map(|sample| log_ratio(1.0, sample.value)).collect()
        };
        rank_sum_interval(&logs(a)?, &logs(b)?, CONFIDENCE)
    }

    fn verdict(
        &self,
        sides: &[Option<Side>; 2],
        row: &Row,
        ratio: Option<f64>,
        interval: Option<&LogInterval>,
    ) -> Verdict {
        let [a, b] = sides
            .each_ref()
            .map(|side| side.as_ref().map(|s| &s.samples));
        let is_zero = |samples: Option<&Vec<f64>>| {
            samples.is_some_and(|samples| samples.iter().all(|value| *value == 0.0))
        };
        if row.quantity.sort == Sort::InBuckets {
            return Verdict::Unclear;
        }
        if is_zero(a) && is_zero(b) {
            return Verdict::Same;
        }
        let exact = |ratio: f64| LogInterval {
            center: ratio.ln(),
            low: ratio.ln(),
            high: ratio.ln(),
            method: crate::stats::Method::RankSum,
        };
        let judged = |interval: &LogInterval| {
            judge(interval, self.compared.equal.ln_1p(), row.quantity.better)
        };
        match (row.quantity.sort, ratio, interval) {
            (Sort::Counted, Some(ratio), _) => judged(&exact(ratio)),
            (_, _, Some(interval)) => judged(interval),
            _ => Verdict::Unclear,
        }
    }

    fn done(mut self, arms: Option<[String; 2]>) -> Result<Compared, CompareError> {
        if !self.compared.rows.iter().any(|row| row.verdict.is_some()) {
            return Err(CompareError::NothingInCommon {
                a: self.a.arms().join(", "),
                b: self.b.arms().join(", "),
            });
        }
        if !self.compared.is_within {
            self.compared.caveats.push(
                "A and B were measured one after the other: what drifted between them is in the \
                 ratios. For what page sizes bring, measure them in one run and compare its arms."
                    .to_owned(),
            );
        }
        self.compared.arms = arms;
        Ok(self.compared)
    }
}

/// What both say once, what one says with its name.
fn caveats(a: &Measured, b: &Measured) -> Vec<String> {
    let of_b = b.caveats.iter().filter(|c| !a.caveats.contains(c));
    let of_a = a.caveats.iter().map(|c| match b.caveats.contains(c) {
        true => c.clone(),
        false => format!("A: {c}"),
    });
    of_a.chain(of_b.map(|c| format!("B: {c}"))).collect()
}

#[cfg(test)]
mod tests;
