//! A result: rows, and on what, with what and how they came about.
//!
//! A row is a quantity of an arm at a place (a working set, a number of threads), with its samples. A ratio, its
//! interval, a table by arm and a chart by place follow from rows alone, so whatever measures writes a [`Results`],
//! and whatever compares or draws reads one and knows no experiment by name.
//!
//! A file is somebody else's input: [`Results::read`] refuses what contradicts itself.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use hugeleaf_host::Held;
use hugeleaf_units::{Bytes, Failure, PageKind, PageSize};
use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Map, Value as Json};

use crate::spread::Spread;
use crate::stats::{Better, log_ratio};

pub const SCHEMA: u64 = 2;
/// Bound on the arms of a result, and on those that were unavailable. Rows and samples are bounded by the length of its file alone.
const MOST_ARMS: usize = 10_000;
/// Each kind of place is a column.
const MOST_PLACES: usize = 64;
/// The schema before, of which each experiment had a format of its own.
const OLD_SCHEMA: u64 = 1;

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Results {
    /// [`SCHEMA`].
    pub schema: u64,
    pub experiment: Experiment,
    /// What was compared; others are compared with the first.
    pub arms: Vec<ArmAbout>,
    /// What was measured, in the order in which it is to be shown.
    pub rows: Vec<Row>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub layouts: Vec<Layout>,
    /// What the host could not give.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unavailable: Vec<Unavailable>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rejected: Vec<Json>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub charts: Vec<Chart>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub remarks: Vec<String>,
    /// What a reader must know before believing it, a sentence each.
    #[serde(default)]
    pub caveats: Vec<String>,
    pub host: Map<String, Json>,
    pub settings: Map<String, Json>,
    #[serde(default)]
    pub command: Vec<String>,
    /// What an experiment says of its rows itself: the verdict and the pairs of `prove`, the summary of a benchmark.
    #[serde(flatten)]
    pub analysis: Map<String, Json>,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Experiment {
    /// `chase`; of `prove` the metric's name.
    pub name: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub title: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub how: String,
    pub target: Option<String>,
    /// When it began (RFC 3339, UTC).
    pub started: String,
    /// How long it took, taking memory included; missing where that is not known.
    pub duration_seconds: Option<f64>,
    /// Why it ended: `done`, `interrupted`; `prove` has more.
    pub ending: String,
    /// What `prove` also says of its experiment.
    #[serde(flatten)]
    pub more: Map<String, Json>,
}

impl Experiment {
    /// Whether it was ended before it was done.
    pub fn is_interrupted(&self) -> bool {
        self.ending == "interrupted"
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ArmAbout {
    /// As its flag names it: `base`, `thp:2M`.
    pub name: String,
    pub page_bytes: Option<PageSize>,
    pub kind: Option<PageKind>,
}

impl ArmAbout {
    pub fn named(name: impl Into<String>) -> ArmAbout {
        ArmAbout {
            name: name.into(),
            page_bytes: None,
            kind: None,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
    pub arm: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty", with = "places")]
    pub at: Vec<Place>,
    pub quantity: Quantity,
    /// How much, in the order it was taken.
    pub samples: Vec<Sample>,
    /// Whether its memory was seen not to be, or not seen to be, on the pages of its arm.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub doubtful: bool,
    /// What a reader must know of this row.
    pub note: Option<String>,
}

impl Row {
    pub fn new(arm: &str, at: Vec<Place>, quantity: Quantity, samples: Vec<Sample>) -> Row {
        Row {
            arm: arm.to_owned(),
            at,
            quantity,
            samples,
            doubtful: false,
            note: None,
        }
    }

    pub fn values(&self) -> Vec<f64> {
        self.samples.iter().map(|sample| sample.value).collect()
    }

    /// Their median; `None` of nothing.
    pub fn spread(&self) -> Option<Spread> {
        Spread::of(&self.values())
    }

    /// Whether the other is of the same quantity at the same place.
    pub fn is_same_as(&self, other: &Row) -> bool {
        self.at == other.at && self.quantity.name == other.quantity.name
    }

    /// The sentence on it, with whether it was seen to be on its pages.
    pub fn said(&self) -> Option<String> {
        const NOT_SEEN: &str = "not all of it was seen to be on these pages";
        match (self.doubtful, &self.note) {
            (false, note) => note.clone(),
            (true, None) => Some(NOT_SEEN.to_owned()),
            (true, Some(note)) => Some(format!("{NOT_SEEN}: {note}")),
        }
    }

    fn place_names(&self) -> impl Iterator<Item = &str> {
        self.at.iter().map(|place| place.name.as_str())
    }

    /// Key of a row of an arm: quantity and place.
    pub fn key(&self) -> String {
        let at = self.at.iter();
        let at = at.map(|place| format!("{}={}\n", place.name, place.value.to_json()));
        format!("{}\n{}", self.quantity.name, at.collect::<String>())
    }

    /// The logarithm of each sample.
    ///
    /// # Errors
    /// A sample is not above 0: the row has no ratio to another, and leaving such samples out would hide them.
    pub fn logs(&self) -> Result<Vec<f64>, NotCompared> {
        let logs = self.samples.iter().map(|s| log_ratio(1.0, s.value));
        let logs: Vec<f64> = logs.flatten().collect();
        let (good, all) = (logs.len(), self.samples.len());
        match all - good {
            0 => Ok(logs),
            bad => Err(NotCompared(format!(
                "{bad} of {all} samples of {} on {} are not above 0",
                self.quantity.name, self.arm
            ))),
        }
    }

    /// The logarithms of this over another, of each round that both have.
    ///
    /// # Errors
    /// As for [`Row::logs`].
    pub fn logs_over(&self, other: &Row) -> Result<Vec<(usize, f64)>, NotCompared> {
        let logs = |row: &Row| -> Result<Vec<(Option<usize>, f64)>, NotCompared> {
            let rounds = row.samples.iter().map(|sample| sample.round);
            Ok(rounds.zip(row.logs()?).collect())
        };
        let below: HashMap<Option<usize>, f64> = logs(other)?.into_iter().collect();
        let over = |(round, log): (Option<usize>, f64)| Some((round?, log - below.get(&round)?));
        Ok(logs(self)?.into_iter().filter_map(over).collect())
    }
}

/// Why two rows could not be compared. That is never "no difference".
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize)]
#[error("{0}")]
pub struct NotCompared(pub String);

/// Pairing of the samples of two rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pairing {
    /// Those of one round are a pair.
    Rounds,
    /// None belongs to one of the other row.
    Ranks,
}

/// Where within an experiment something was measured: `working_set_bytes`, `threads`, `mode`.
#[derive(Debug, Clone, PartialEq)]
pub struct Place {
    /// As the file calls it; of bytes it ends so.
    pub name: String,
    pub value: Value,
}

impl Place {
    /// A count, or bytes, by its name.
    pub fn number(name: &str, value: u64) -> Place {
        Place {
            name: name.to_owned(),
            value: Value::named(name, value),
        }
    }

    pub fn text(name: &str, value: &str) -> Place {
        Place {
            name: name.to_owned(),
            value: Value::Text(value.to_owned()),
        }
    }

    /// Its name for a reader: `working set`.
    pub fn head(&self) -> String {
        self.name.trim_end_matches("_bytes").replace('_', " ")
    }
}

#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    Bytes(Bytes),
    Number(f64),
    Text(String),
}

impl Value {
    /// Bytes where the name says so, else a count.
    pub fn named(name: &str, n: u64) -> Value {
        match name.ends_with("_bytes") {
            true => Value::Bytes(Bytes(n)),
            false => Value::Number(n as f64),
        }
    }

    pub fn as_f64(&self) -> Option<f64> {
        match self {
            Value::Bytes(bytes) => Some(bytes.as_f64()),
            Value::Number(number) => Some(*number),
            Value::Text(_) => None,
        }
    }

    pub fn to_json(&self) -> Json {
        match self {
            Value::Bytes(bytes) => bytes.get().into(),
            Value::Number(number) if number.fract() == 0.0 && number.abs() < 2f64.powi(53) => {
                #[allow(clippy::cast_possible_truncation)]
                let whole = *number as i64;
                whole.into()
            }
            Value::Number(number) => (*number).into(),
            Value::Text(text) => text.clone().into(),
        }
    }

    /// From a field of a file; `None` of what is neither a number nor a word (or several).
    pub fn of_json(field: &str, value: &Json) -> Option<Value> {
        match value {
            Json::Null | Json::Object(_) => None,
            Json::Number(n) => match n.as_u64() {
                Some(n) => Some(Value::named(field, n)),
                None => n.as_f64().map(Value::Number),
            },
            Json::String(text) => Some(Value::Text(text.clone())),
            Json::Bool(is) => Some(Value::Text(if *is { "yes" } else { "no" }.to_owned())),
            Json::Array(all) => {
                let all = all.iter().map(|v| v.as_str().map(str::to_owned));
                let all: Option<Vec<String>> = all.collect();
                Some(Value::Text(all?.join(", ")))
            }
        }
    }
}

impl Serialize for Value {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.to_json().serialize(to)
    }
}

impl std::fmt::Display for Value {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Value::Bytes(bytes) => f.pad(&bytes.to_string()),
            Value::Number(number) if number.abs() >= 1e15 => f.pad(&format!("{number:.2e}")),
            Value::Number(number) if number.fract() == 0.0 || number.abs() < 0.001 => {
                f.pad(&number.to_string())
            }
            Value::Number(number) => {
                let text = format!("{number:.4}");
                f.pad(text.trim_end_matches('0'))
            }
            Value::Text(text) => f.pad(text),
        }
    }
}

pub(crate) mod places {
    use serde::de::Error as _;
    use serde::{Deserialize, Deserializer, Serializer};

    use super::{Json, Map, Place, Value};

    pub fn serialize<S: Serializer>(at: &[Place], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(at.iter().map(|place| (&place.name, place.value.to_json())))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Place>, D::Error> {
        let place = |(name, value): (String, Json)| {
            let is_one = value.is_number() || value.is_string();
            match Value::of_json(&name, &value).filter(|_| is_one) {
                Some(value) => Ok(Place { name, value }),
                None => Err(D::Error::custom(format!(
                    "at.{name} is no number and no word"
                ))),
            }
        };
        Map::deserialize(from)?.into_iter().map(place).collect()
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Quantity {
    /// `NOTPM`, `New-Order p99`, `page tables`.
    pub name: String,
    /// Its unit: `ns`, `seconds`, `bytes`, nothing for a plain number.
    #[serde(default)]
    pub unit: String,
    pub better: Better,
    #[serde(default)]
    pub kind: Kind,
    /// Whether the experiment was made for it; the others were also measured.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub main: bool,
}

impl Quantity {
    pub fn rate(name: &str, unit: &str) -> Quantity {
        Quantity {
            name: name.to_owned(),
            unit: unit.to_owned(),
            better: Better::Higher,
            kind: Kind::Speed,
            main: false,
        }
    }

    pub fn time(name: &str, unit: &str) -> Quantity {
        Quantity {
            better: Better::Lower,
            ..Quantity::rate(name, unit)
        }
    }

    pub fn amount(name: &str, unit: &str) -> Quantity {
        Quantity {
            kind: Kind::Amount,
            ..Quantity::time(name, unit)
        }
    }

    /// What is neither good nor bad: how long was measured, how often.
    pub fn plain(name: &str, unit: &str) -> Quantity {
        Quantity {
            better: Better::Neither,
            ..Quantity::amount(name, unit)
        }
    }

    /// By its unit alone: times and bytes are better the less, what is a second the more.
    pub fn of_unit(name: &str, unit: &str) -> Quantity {
        match unit {
            "seconds" | "ns" | "µs" => Quantity::time(name, unit),
            "bytes" => Quantity::amount(name, unit),
            unit if unit.ends_with("/s") => Quantity::rate(name, unit),
            _ => Quantity::plain(name, unit),
        }
    }

    /// The same, counted once.
    #[must_use]
    pub fn counted(self) -> Quantity {
        Quantity {
            kind: Kind::Counted,
            ..self
        }
    }

    /// The same, as what the experiment is made for.
    #[must_use]
    pub fn main(self) -> Quantity {
        Quantity { main: true, ..self }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    Speed,
    #[default]
    Amount,
    /// The same, counted once and not sampled: its ratio is what it is, without an interval.
    Counted,
    /// A quantile read from a histogram's buckets: it is known to its bucket only, so the samples
    /// make no interval.
    InBuckets,
}

#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Sample {
    pub round: Option<usize>,
    pub value: f64,
    /// When, since the beginning.
    pub at_seconds: Option<f64>,
    pub coverage: Option<[f64; 2]>,
    /// Of a quantile: the edges of the bucket that holds it, missing where open.
    pub bucket: Option<[Option<f64>; 2]>,
}

impl Sample {
    pub fn of(round: usize, value: f64) -> Sample {
        Sample {
            round: Some(round),
            value,
            ..Sample::default()
        }
    }

    pub fn alone(values: impl IntoIterator<Item = f64>) -> Vec<Sample> {
        values.into_iter().map(Sample::from).collect()
    }
}

impl From<f64> for Sample {
    fn from(value: f64) -> Sample {
        Sample {
            value,
            ..Sample::default()
        }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Layout {
    pub arm: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty", with = "places")]
    pub at: Vec<Place>,
    /// `before` or `after` the samples, or the `end` of a round.
    pub when: String,
    pub round: Option<usize>,
    pub pages: Vec<Held>,
    pub extents_a_block: Option<f64>,
    /// Whether all of it was seen to be as its arm says; missing where that is said of the rows.
    pub verified: Option<bool>,
    /// Why not.
    pub note: Option<String>,
}

impl Layout {
    pub fn new(arm: &str, at: &[Place], when: &str, pages: Vec<Held>) -> Layout {
        Layout {
            arm: arm.to_owned(),
            at: at.to_vec(),
            when: when.to_owned(),
            round: None,
            pages,
            extents_a_block: None,
            verified: None,
            note: None,
        }
    }
}

/// What the host could not give.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Unavailable {
    pub arm: String,
    /// Where within the experiment; everywhere where it says nothing.
    #[serde(default, skip_serializing_if = "Vec::is_empty", with = "places")]
    pub at: Vec<Place>,
    /// From this length on there was none.
    pub from_bytes: u64,
    pub reason: String,
    /// What to do, with which the largest that was asked for is available.
    pub next: String,
}

/// The axis of samples that say when they were taken.
pub const TIME: &str = "at_seconds";

/// What is to be drawn: a quantity by place, a curve an arm; or a bar an arm. Of rows at several words (a mode, a
/// method) each word has a chart of its own.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Chart {
    pub title: String,
    /// The place along the axis, or [`TIME`]; bars where it is missing.
    pub x: Option<String>,
    pub y: String,
    /// Whether it is drawn over the first arm, as a ratio.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub over_first: bool,
    /// What others published, to stand below bars: a name and a value in the unit of the chart each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub published: Vec<(String, f64)>,
}

impl Chart {
    pub fn by(x: &str, y: &str, title: &str) -> Chart {
        Chart {
            title: title.to_owned(),
            x: Some(x.to_owned()),
            y: y.to_owned(),
            over_first: false,
            published: Vec::new(),
        }
    }

    /// The samples of a quantity by when they were taken, a curve an arm.
    pub fn over_time(y: &str, title: &str) -> Chart {
        Chart::by(TIME, y, title)
    }

    pub fn bars(y: &str, title: &str) -> Chart {
        Chart {
            x: None,
            ..Chart::by("", y, title)
        }
    }

    #[must_use]
    pub fn over_first(self) -> Chart {
        Chart {
            over_first: true,
            ..self
        }
    }

    /// The same with what others published.
    #[must_use]
    pub fn published(self, all: &[(&str, f64)]) -> Chart {
        let all = all.iter().map(|(name, value)| ((*name).to_owned(), *value));
        Chart {
            published: all.collect(),
            ..self
        }
    }
}

impl Results {
    pub fn read(text: &str) -> Result<Results, Failure> {
        const OTHER: &str = "name a file that --output wrote: hugeleaf bench --help; two traces go to: hugeleaf trace diff";
        const DAMAGED: &str = "measure again: the file was changed or is damaged";
        let lacks = |field| {
            Failure::new(
                format!("it has no '{field}': it is no result of prove or bench"),
                OTHER,
            )
        };
        let malformed =
            |why: String| Failure::new(format!("it does not read as a result: {why}"), DAMAGED);
        let whole: Json = serde_json::from_str(text).map_err(|e| match (e.is_eof(), e.line()) {
            (true, line) => Failure::new(
                format!(
                    "it ends in the middle (line {line}): it was not written to its end, or cut"
                ),
                "copy it again, or measure again",
            ),
            (false, _) => Failure::new(format!("it is no JSON: {e}"), OTHER),
        })?;
        let schema = whole.get("schema").ok_or_else(|| lacks("schema"))?;
        match schema.as_u64() {
            Some(SCHEMA) => {}
            Some(OLD_SCHEMA) => {
                return Err(Failure::new(
                    format!(
                        "it has schema {OLD_SCHEMA}: an older hugeleaf wrote it, and this one reads schema {SCHEMA}"
                    ),
                    "measure again, or compare two files of that version with the hugeleaf that wrote them",
                ));
            }
            _ => {
                return Err(Failure::new(
                    format!("it has schema {schema}, and this program reads {SCHEMA}"),
                    "compare with the version of hugeleaf that wrote it, or measure again",
                ));
            }
        }
        for field in ["experiment", "arms", "rows"] {
            whole.get(field).ok_or_else(|| lacks(field))?;
        }
        let results: Results =
            serde_json::from_value(whole).map_err(|e| malformed(e.to_string()))?;
        results.check().map_err(malformed)?;
        if results.rows.iter().all(|row| row.samples.is_empty()) {
            let why = match results.experiment.is_interrupted() {
                true => "it was interrupted before anything was measured",
                false => "none of its arms was available",
            };
            let next = "measure again, and let it end";
            return Err(Failure::new(format!("it holds no samples: {why}"), next));
        }
        Ok(results)
    }

    /// Refuses what contradicts itself: two arms or two rows of one name, a row of no arm, a round twice, one quantity in
    /// two units.
    fn check(&self) -> Result<(), String> {
        let mut arms = BTreeSet::new();
        for arm in &self.arms {
            if !arms.insert(arm.name.as_str()) {
                return Err(format!("two arms are called '{}'", arm.name));
            }
        }
        let mut seen = BTreeSet::new();
        let mut quantities = BTreeMap::new();
        let places: BTreeSet<&str> = self.rows.iter().flat_map(Row::place_names).collect();
        for (most, is, what) in [
            (MOST_ARMS, self.arms.len(), "arms"),
            (MOST_ARMS, self.unavailable.len(), "unavailable arms"),
            (MOST_PLACES, places.len(), "kinds of places"),
        ] {
            if is > most {
                return Err(format!("it has {is} {what}, and at most {most} are read"));
            }
        }
        for row in &self.rows {
            let (arm, name) = (&row.arm, &row.quantity.name);
            let mut rounds = BTreeSet::new();
            let of_rounds = row.samples.iter().filter_map(|sample| sample.round);
            let wrong = if !arms.contains(arm.as_str()) {
                format!("a row of '{name}' is of '{arm}', which is no arm")
            } else if !seen.insert((arm, row.key())) {
                format!("two rows are '{name}' of {arm} at the same place")
            } else if *quantities.entry(name).or_insert(&row.quantity) != &row.quantity {
                format!("'{name}' is two different quantities")
            } else if !of_rounds.into_iter().all(|round| rounds.insert(round)) {
                format!("'{name}' of {arm} has a round twice")
            } else {
                continue;
            };
            return Err(wrong);
        }
        Ok(())
    }

    /// The names of the arms that are compared, in order: those of which there is what the experiment is made for, where
    /// it is made for something.
    pub fn arm_names(&self) -> Vec<String> {
        let main = self.rows.iter().filter(|row| row.quantity.main);
        let measured: BTreeSet<&str> = main.map(|row| row.arm.as_str()).collect();
        let has = |arm: &&ArmAbout| measured.is_empty() || measured.contains(arm.name.as_str());
        let arms = self.arms.iter().filter(has);
        arms.map(|arm| arm.name.clone()).collect()
    }

    /// One without any row, of an experiment that ended as it should.
    pub fn empty(name: &str, started: &str) -> Results {
        Results {
            schema: SCHEMA,
            experiment: Experiment {
                name: name.to_owned(),
                started: started.to_owned(),
                ending: "done".to_owned(),
                ..Experiment::default()
            },
            ..Results::default()
        }
    }

    /// Adds a sample to the row of a quantity of an arm at a place.
    pub fn add(&mut self, arm: &str, at: &[Place], quantity: Quantity, sample: Sample) {
        let mut rows = self.rows.iter_mut();
        let is_it = |r: &&mut Row| r.arm == arm && r.at == at && r.quantity.name == quantity.name;
        match rows.find(is_it) {
            Some(row) => row.samples.push(sample),
            None => {
                let row = Row::new(arm, at.to_vec(), quantity, vec![sample]);
                self.rows.push(row);
            }
        }
    }

    /// What a reader must know of a row: why its arm is unavailable, or what was seen of its memory.
    pub fn said_of(&self, row: &Row) -> Option<String> {
        if !row.samples.is_empty() {
            return row.said();
        }
        let is_of = |not: &&Unavailable| {
            not.arm == row.arm && not.at.iter().all(|place| row.at.contains(place))
        };
        let not = self.unavailable.iter().find(is_of);
        not.map(|not| format!("unavailable: {}", not.reason))
            .or_else(|| row.said())
    }

    pub fn row(&self, arm: &str, at: &[Place], quantity: &str) -> Option<&Row> {
        let mut rows = self.rows.iter();
        rows.find(|row| row.arm == arm && row.at == at && row.quantity.name == quantity)
    }

    /// What the experiment is made for; of a result without any row nothing.
    pub fn main(&self) -> Option<&Quantity> {
        let rows = || self.rows.iter().map(|row| &row.quantity);
        rows()
            .find(|quantity| quantity.main)
            .or_else(|| rows().next())
    }

    /// `chase (ns, lower is better)`.
    pub fn in_words(&self) -> String {
        let name = &self.experiment.name;
        match self.main() {
            Some(q) if q.better == Better::Neither => format!("{name} ({})", q.unit),
            Some(q) => format!("{name} ({}, {} is better)", q.unit, q.better),
            None => name.clone(),
        }
    }

    pub fn to_json(&self) -> String {
        to_json(self)
    }
}

/// The text of a result's file: readable, a row a line. What is absent is left out.
pub fn to_json(result: &impl Serialize) -> String {
    let fields = fields(result);
    let order = ["schema", "experiment", "arms", "rows"];
    let rest = fields.keys().filter(|key| !order.contains(&key.as_str()));
    let keys = order.into_iter().chain(rest.map(String::as_str));
    let line = |key| {
        Some(format!(
            "  {}: {}",
            Json::from(key),
            in_lines(fields.get(key)?)
        ))
    };
    let lines: Vec<String> = keys.filter_map(line).collect();
    format!("{{\n{}\n}}\n", lines.join(",\n"))
}

/// Lists and objects with an element a line.
fn in_lines(value: &Json) -> String {
    let (open, close, lines): (_, _, Vec<String>) = match value {
        Json::Array(all) => ('[', ']', all.iter().map(|v| format!("    {v}")).collect()),
        Json::Object(all) => {
            let line =
                |(key, v): (&String, &Json)| format!("    {}: {v}", Json::from(key.as_str()));
            ('{', '}', all.iter().map(line).collect())
        }
        other => return other.to_string(),
    };
    match lines.is_empty() {
        true => format!("{open}{close}"),
        false => format!("{open}\n{}\n  {close}", lines.join(",\n")),
    }
}

/// The fields of a struct, as a result keeps them: what is absent is left out.
pub fn fields(of: &impl Serialize) -> Map<String, Json> {
    match serde_json::to_value(of).map(without_nulls) {
        Ok(Json::Object(fields)) => fields,
        _ => Map::new(),
    }
}

/// In a list a null stands for something, as an open edge of a bucket.
fn without_nulls(value: Json) -> Json {
    match value {
        Json::Object(fields) => {
            let fields = fields.into_iter().filter(|(_, value)| !value.is_null());
            Json::Object(
                fields
                    .map(|(key, value)| (key, without_nulls(value)))
                    .collect(),
            )
        }
        Json::Array(all) => all.into_iter().map(without_nulls).collect(),
        one => one,
    }
}
