//! Two results held against each other, row by row. Pure: texts of files in, a comparison out.
//!
//! [`files`] compares rows of two files that have the same name; [`arms`] two arms, of one file by the rounds that both have, of two files
//! by rank. What makes two results differ otherwise (host, kernel, settings) is listed, and each
//! row says what of that bears on it.
//!
//! This module must not decide what a difference comes from: it lists what differs.

mod facts;
mod note;

pub use note::Note;

use crate::result::Effect;
use crate::rows::{Kind, Place, Quantity, Results, Row, Sample};
use crate::spread::{CONFIDENCE, Spread};
use crate::stats::{
    LogInterval, Verdict, judge, log_ratio, rank_sum_interval, signed_rank_interval,
};

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
pub fn files(a: &Results, b: &Results, asked: Asked) -> Result<Compared, CompareError> {
    let (of_a, of_b) = (with_gains(&a.rows), with_gains(&b.rows));
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
    a: &Results,
    b: Option<&Results>,
    names: &[String; 2],
    asked: Asked,
) -> Result<Compared, CompareError> {
    let of = |side: char, measured: &Results, arm: &String| -> Result<Vec<Row>, CompareError> {
        let had = measured.arm_names();
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
    a: &'a Results,
    b: &'a Results,
    /// Which notes bear on every row.
    on_all: Vec<usize>,
    compared: Compared,
}

impl<'a> Builder<'a> {
    fn new(a: &'a Results, b: &'a Results, asked: Asked) -> Result<Builder<'a>, CompareError> {
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
                notes: facts::differences(&facts::of(a), &facts::of(b)),
                caveats: caveats(a, b),
                rows: Vec::new(),
                equal: asked.equal,
            },
        };
        builder.on_all = (0..builder.compared.notes.len()).collect();
        let interrupted: Vec<&str> = [(a, "A"), (b, "B")]
            .into_iter()
            .filter_map(|(of, name)| of.experiment.is_interrupted().then_some(name))
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
        for (name, of, row) in [("A", self.a, a), ("B", self.b, b)] {
            let within = self.compared.is_within;
            if let Some((said, arm)) = row.and_then(|row| Some((of.said_of(row)?, &row.arm))) {
                let text = match within {
                    true => format!("{arm}: {said}"),
                    false => format!("{name}, {arm}: {said}"),
                };
                notes.push(self.note(text));
            }
        }
        let [side_a, side_b] = &sides;
        if side_a.is_none() && side_b.is_none() {
            return;
        }
        let is_lone = side_a.is_none() || side_b.is_none();
        if is_lone && row.quantity.main {
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
        let is_sampled = !matches!(row.quantity.kind, Kind::Counted | Kind::InBuckets);
        if row.quantity.kind == Kind::InBuckets && verdict.is_some() {
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
        if matches!(a.quantity.kind, Kind::Counted | Kind::InBuckets) {
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
        if row.quantity.kind == Kind::InBuckets {
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
        match (row.quantity.kind, ratio, interval) {
            (Kind::Counted, Some(ratio), _) => judged(&exact(ratio)),
            (_, _, Some(interval)) => judged(interval),
            _ => Verdict::Unclear,
        }
    }

    fn done(mut self, arms: Option<[String; 2]>) -> Result<Compared, CompareError> {
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
        self.compared.arms = arms;
        Ok(self.compared)
    }
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
        let of_first = |round: Option<usize>| {
            round?;
            first.samples.iter().find(|sample| sample.round == round)
        };
        let gain = |own: &Sample| {
            let log = log_ratio(of_first(own.round)?.value, own.value)?;
            Some(Sample::of(own.round?, log.exp()))
        };
        let samples: Vec<Sample> = row.samples.iter().filter_map(gain).collect();
        if !samples.is_empty() {
            let quantity = Quantity {
                better: row.quantity.better,
                ..Quantity::amount(&format!("{} over {}", row.quantity.name, first.arm), "×")
            };
            all.push(Row {
                quantity,
                samples,
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
