//! A result: rows with their host, settings and origin.
//!
//! A row is a quantity of an arm at a place (a working set, a number of threads), with its samples. A ratio, its interval, a table
//! by arm and a chart by place follow from rows alone. So experiments write [`Results`], and comparisons and charts read them
//! without knowing an experiment by name.
//!
//! A file is untrusted input: [`Results::read`] refuses contradictory contents.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use hugeleaf_host::PageUsage;
use hugeleaf_units::{Bytes, Failure, PageKind, PageSize};
use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Map, Value as Json};

use crate::median_interval::MedianInterval;
use crate::stats::{BetterDirection, log_ratio};

pub const SCHEMA: u64 = 2;
/// Maximum number of arms, and of unavailable arms. Only the length of the file bounds rows and samples.
const MOST_ARMS: usize = 10_000;
/// Maximum number of kinds of places, because each is a column.
const MOST_PLACES: usize = 64;
/// The previous schema, in which each experiment had its own format.
const OLD_SCHEMA: u64 = 1;

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Results {
    /// [`SCHEMA`].
    pub schema: u64,
    pub experiment: ExperimentInfo,
    /// The arms; the first is the baseline of the others.
    pub arms: Vec<ArmInfo>,
    /// The rows, in display order.
    pub rows: Vec<ResultRow>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub layouts: Vec<PageLayout>,
    /// Arms that the host could not provide.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unavailable: Vec<UnavailableArm>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rejected: Vec<Json>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub charts: Vec<Chart>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub remarks: Vec<String>,
    /// Caveats, a sentence each.
    #[serde(default)]
    pub caveats: Vec<String>,
    pub host: Map<String, Json>,
    pub settings: Map<String, Json>,
    #[serde(default)]
    pub command: Vec<String>,
    /// Analysis by the experiment itself: verdict and pairs of `prove`, the summary of a benchmark.
    #[serde(flatten)]
    pub analysis: Map<String, Json>,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct ExperimentInfo {
    /// Name of the experiment, such as `chase`; for `prove` the name of the metric.
    pub name: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub title: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub how: String,
    pub target: Option<String>,
    /// Start time (RFC 3339, UTC).
    pub started: String,
    /// Duration, allocation of memory included; `None` if unknown.
    pub duration_seconds: Option<f64>,
    /// Reason for the end: `done`, `interrupted`; `prove` has more.
    pub ending: String,
    /// Further fields of `prove`.
    #[serde(flatten)]
    pub more: Map<String, Json>,
}

impl ExperimentInfo {
    /// True if the experiment was ended early.
    pub fn is_interrupted(&self) -> bool {
        self.ending == "interrupted"
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ArmInfo {
    /// Its name as in a flag: `base`, `thp:2M`.
    pub name: String,
    pub page_bytes: Option<PageSize>,
    pub kind: Option<PageKind>,
}

impl ArmInfo {
    pub fn named(name: impl Into<String>) -> ArmInfo {
        ArmInfo {
            name: name.into(),
            page_bytes: None,
            kind: None,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ResultRow {
    pub arm: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty", with = "places")]
    pub at: Vec<Parameter>,
    pub quantity: Quantity,
    /// The samples in the order they were taken.
    pub samples: Vec<Sample>,
    /// True if its memory was not verified to be on the pages of its arm.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub doubtful: bool,
    /// A remark on this row.
    pub note: Option<String>,
}

impl ResultRow {
    pub fn new(
        arm: &str,
        at: Vec<Parameter>,
        quantity: Quantity,
        samples: Vec<Sample>,
    ) -> ResultRow {
        ResultRow {
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

    /// Returns the median of the samples; `None` without any.
    pub fn spread(&self) -> Option<MedianInterval> {
        MedianInterval::from_samples(&self.values())
    }

    /// Returns the remark on the row, including doubts about its pages.
    pub fn remark(&self) -> Option<String> {
        const NOT_SEEN: &str = "not verified to be on these pages";
        match (self.doubtful, &self.note) {
            (false, note) => note.clone(),
            (true, None) => Some(NOT_SEEN.to_owned()),
            (true, Some(note)) => Some(format!("{NOT_SEEN}: {note}")),
        }
    }

    fn place_names(&self) -> impl Iterator<Item = &str> {
        self.at.iter().map(|place| place.name.as_str())
    }

    /// Returns the key of a row within an arm: quantity and place.
    pub fn key(&self) -> String {
        let at = self.at.iter();
        let at = at.map(|place| format!("{}={}\n", place.name, place.value.to_json()));
        format!("{}\n{}", self.quantity.name, at.collect::<String>())
    }

    /// Returns the logarithm of each sample.
    ///
    /// # Errors
    /// A sample is not positive: the row has no ratio to another, and omitting such samples would hide them.
    pub fn logs(&self) -> Result<Vec<f64>, NotComparableReason> {
        let logs = self.samples.iter().map(|s| log_ratio(1.0, s.value));
        let logs: Vec<f64> = logs.flatten().collect();
        let (good, all) = (logs.len(), self.samples.len());
        match all - good {
            0 => Ok(logs),
            bad => Err(NotComparableReason(format!(
                "{bad} of {all} samples of {} on {} are not above 0",
                self.quantity.name, self.arm
            ))),
        }
    }

    /// Returns the log ratios of this row to another, for their common rounds.
    ///
    /// # Errors
    /// As for [`ResultRow::logs`].
    pub fn logs_over(&self, other: &ResultRow) -> Result<Vec<(usize, f64)>, NotComparableReason> {
        let logs = |row: &ResultRow| -> Result<Vec<(Option<usize>, f64)>, NotComparableReason> {
            let rounds = row.samples.iter().map(|sample| sample.round);
            Ok(rounds.zip(row.logs()?).collect())
        };
        let below: HashMap<Option<usize>, f64> = logs(other)?.into_iter().collect();
        let over = |(round, log): (Option<usize>, f64)| Some((round?, log - below.get(&round)?));
        Ok(logs(self)?.into_iter().filter_map(over).collect())
    }
}

/// The reason why two rows are not comparable. This never means "no difference".
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize)]
#[error("{0}")]
pub struct NotComparableReason(pub String);

/// Pairing of the samples of two rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pairing {
    /// Samples of one round form a pair.
    Rounds,
    /// Samples are independent of those of the other row.
    Ranks,
}

/// The place of a measurement within an experiment: `working_set_bytes`, `threads`, `mode`.
#[derive(Debug, Clone, PartialEq)]
pub struct Parameter {
    /// Its name in the file; it ends in `_bytes` for bytes.
    pub name: String,
    pub value: ParameterValue,
}

impl Parameter {
    /// Creates a count, or bytes, depending on the name.
    pub fn number(name: &str, value: u64) -> Parameter {
        Parameter {
            name: name.to_owned(),
            value: ParameterValue::named(name, value),
        }
    }

    pub fn text(name: &str, value: &str) -> Parameter {
        Parameter {
            name: name.to_owned(),
            value: ParameterValue::Text(value.to_owned()),
        }
    }

    /// Returns its name for display: `working set`.
    pub fn head(&self) -> String {
        self.name.trim_end_matches("_bytes").replace('_', " ")
    }
}

#[derive(Debug, Clone, PartialEq)]
pub enum ParameterValue {
    Bytes(Bytes),
    Number(f64),
    Text(String),
}

impl ParameterValue {
    /// Returns bytes if the name ends in `_bytes`, else a count.
    pub fn named(name: &str, n: u64) -> ParameterValue {
        match name.ends_with("_bytes") {
            true => ParameterValue::Bytes(Bytes(n)),
            false => ParameterValue::Number(n as f64),
        }
    }

    pub fn as_f64(&self) -> Option<f64> {
        match self {
            ParameterValue::Bytes(bytes) => Some(bytes.as_f64()),
            ParameterValue::Number(number) => Some(*number),
            ParameterValue::Text(_) => None,
        }
    }

    pub fn to_json(&self) -> Json {
        match self {
            ParameterValue::Bytes(bytes) => bytes.get().into(),
            ParameterValue::Number(number)
                if number.fract() == 0.0 && number.abs() < 2f64.powi(53) =>
            {
                #[allow(clippy::cast_possible_truncation)]
                let whole = *number as i64;
                whole.into()
            }
            ParameterValue::Number(number) => (*number).into(),
            ParameterValue::Text(text) => text.clone().into(),
        }
    }

    /// Parses a field of a file; `None` for an object, `null` or a list that is not all text.
    pub fn of_json(field: &str, value: &Json) -> Option<ParameterValue> {
        match value {
            Json::Null | Json::Object(_) => None,
            Json::Number(n) => match n.as_u64() {
                Some(n) => Some(ParameterValue::named(field, n)),
                None => n.as_f64().map(ParameterValue::Number),
            },
            Json::String(text) => Some(ParameterValue::Text(text.clone())),
            Json::Bool(is) => Some(ParameterValue::Text(
                if *is { "yes" } else { "no" }.to_owned(),
            )),
            Json::Array(all) => {
                let all = all.iter().map(|v| v.as_str().map(str::to_owned));
                let all: Option<Vec<String>> = all.collect();
                Some(ParameterValue::Text(all?.join(", ")))
            }
        }
    }
}

impl Serialize for ParameterValue {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.to_json().serialize(to)
    }
}

impl std::fmt::Display for ParameterValue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ParameterValue::Bytes(bytes) => f.pad(&bytes.to_string()),
            ParameterValue::Number(number) if number.abs() >= 1e15 => {
                f.pad(&format!("{number:.2e}"))
            }
            ParameterValue::Number(number) if number.fract() == 0.0 || number.abs() < 0.001 => {
                f.pad(&number.to_string())
            }
            ParameterValue::Number(number) => {
                let text = format!("{number:.4}");
                f.pad(text.trim_end_matches('0'))
            }
            ParameterValue::Text(text) => f.pad(text),
        }
    }
}

pub(crate) mod places {
    use serde::de::Error as _;
    use serde::{Deserialize, Deserializer, Serializer};

    use super::{Json, Map, Parameter, ParameterValue};

    pub fn serialize<S: Serializer>(at: &[Parameter], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(at.iter().map(|place| (&place.name, place.value.to_json())))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Parameter>, D::Error> {
        let place = |(name, value): (String, Json)| {
            let is_one = value.is_number() || value.is_string();
            match ParameterValue::of_json(&name, &value).filter(|_| is_one) {
                Some(value) => Ok(Parameter { name, value }),
                None => Err(D::Error::custom(format!(
                    "at.{name} is neither a number nor a string"
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
    /// Its unit: `ns`, `seconds`, `bytes`, empty for a plain number.
    #[serde(default)]
    pub unit: String,
    pub better: BetterDirection,
    #[serde(default)]
    pub kind: QuantityKind,
    /// True for the main quantity of the experiment; others are secondary.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub main: bool,
}

impl Quantity {
    pub fn rate(name: &str, unit: &str) -> Quantity {
        Quantity {
            name: name.to_owned(),
            unit: unit.to_owned(),
            better: BetterDirection::Higher,
            kind: QuantityKind::Speed,
            main: false,
        }
    }

    pub fn time(name: &str, unit: &str) -> Quantity {
        Quantity {
            better: BetterDirection::Lower,
            ..Quantity::rate(name, unit)
        }
    }

    pub fn amount(name: &str, unit: &str) -> Quantity {
        Quantity {
            kind: QuantityKind::Amount,
            ..Quantity::time(name, unit)
        }
    }

    /// Creates a quantity that is neither good nor bad, such as a duration or a count.
    pub fn plain(name: &str, unit: &str) -> Quantity {
        Quantity {
            better: BetterDirection::Neither,
            ..Quantity::amount(name, unit)
        }
    }

    /// Creates a quantity by its unit: less is better for times and bytes, more for rates.
    pub fn of_unit(name: &str, unit: &str) -> Quantity {
        match unit {
            "seconds" | "ns" | "µs" => Quantity::time(name, unit),
            "bytes" => Quantity::amount(name, unit),
            unit if unit.ends_with("/s") => Quantity::rate(name, unit),
            _ => Quantity::plain(name, unit),
        }
    }

    /// Returns the same quantity, counted once.
    #[must_use]
    pub fn counted(self) -> Quantity {
        Quantity {
            kind: QuantityKind::Counted,
            ..self
        }
    }

    /// Returns the same quantity as the main one.
    #[must_use]
    pub fn main(self) -> Quantity {
        Quantity { main: true, ..self }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum QuantityKind {
    Speed,
    #[default]
    Amount,
    /// Counted once, not sampled: its ratio is exact and has no interval.
    Counted,
    /// A quantile read from a histogram's buckets: only its bucket is known, so the samples give no interval.
    InBuckets,
}

#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Sample {
    pub round: Option<usize>,
    pub value: f64,
    /// Time since the start.
    pub at_seconds: Option<f64>,
    pub coverage: Option<[f64; 2]>,
    /// For a quantile: the edges of its bucket, `None` if open.
    pub bucket: Option<[Option<f64>; 2]>,
}

impl Sample {
    pub fn new(round: usize, value: f64) -> Sample {
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
pub struct PageLayout {
    pub arm: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty", with = "places")]
    pub at: Vec<Parameter>,
    /// `before` or `after` the samples, or the `end` of a round.
    pub when: String,
    pub round: Option<usize>,
    pub pages: Vec<PageUsage>,
    pub extents_a_block: Option<f64>,
    /// True if all memory was verified to be on the arm's pages; `None` if the rows state it.
    pub verified: Option<bool>,
    /// The reason for failed verification.
    pub note: Option<String>,
}

impl PageLayout {
    pub fn new(arm: &str, at: &[Parameter], when: &str, pages: Vec<PageUsage>) -> PageLayout {
        PageLayout {
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

/// An arm that the host could not provide.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct UnavailableArm {
    pub arm: String,
    /// The place within the experiment; empty for all places.
    #[serde(default, skip_serializing_if = "Vec::is_empty", with = "places")]
    pub at: Vec<Parameter>,
    /// Smallest unavailable length.
    pub from_bytes: u64,
    pub reason: String,
    /// Remedy that makes the largest requested length available.
    pub next: String,
}

/// The axis for samples with their time.
pub const TIME: &str = "at_seconds";

/// A chart: a quantity by place with a curve for each arm, or a bar for each arm. Each named place (a mode, a method) has a chart
/// of its own.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Chart {
    pub title: String,
    /// The place along the axis, or [`TIME`]; `None` for bars.
    pub x: Option<String>,
    pub y: String,
    /// True if values are ratios to the first arm.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub over_first: bool,
    /// Published values to show below the bars: a name and a value in the chart's unit each.
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

    /// Creates a chart of samples by time, with a curve for each arm.
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

    /// Adds published values.
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
        const OTHER: &str = "name a file that --output wrote: hugeleaf bench --help; for two traces: hugeleaf trace diff";
        const DAMAGED: &str = "measure again: the file was changed or is damaged";
        let lacks = |field| {
            Failure::no(
                format!("it has no '{field}': it is not a result of prove or bench"),
                OTHER,
            )
        };
        let malformed =
            |why: String| Failure::no(format!("it is not a valid result: {why}"), DAMAGED);
        let whole: Json = serde_json::from_str(text).map_err(|e| match (e.is_eof(), e.line()) {
            (true, line) => Failure::no(
                format!("it ends in the middle (line {line}): it is incomplete or truncated"),
                "copy it again, or measure again",
            ),
            (false, _) => Failure::no(format!("it is not JSON: {e}"), OTHER),
        })?;
        let schema = whole.get("schema").ok_or_else(|| lacks("schema"))?;
        match schema.as_u64() {
            Some(SCHEMA) => {}
            Some(OLD_SCHEMA) => {
                return Err(Failure::no(
                    format!(
                        "it has schema {OLD_SCHEMA}: an older hugeleaf wrote it, and this one reads schema {SCHEMA}"
                    ),
                    "measure again, or compare two files of that version with the hugeleaf that wrote them",
                ));
            }
            _ => {
                return Err(Failure::no(
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
            return Err(Failure::no(format!("it holds no samples: {why}"), next));
        }
        Ok(results)
    }

    /// Refuses contradictions: two arms or two rows of one name, a row without an arm, a repeated round, one quantity in two units.
    fn check(&self) -> Result<(), String> {
        let mut arms = BTreeSet::new();
        for arm in &self.arms {
            if !arms.insert(arm.name.as_str()) {
                return Err(format!("two arms are called '{}'", arm.name));
            }
        }
        let mut seen = BTreeSet::new();
        let mut quantities = BTreeMap::new();
        let places: BTreeSet<&str> = self.rows.iter().flat_map(ResultRow::place_names).collect();
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
                format!("a row of '{name}' has the unknown arm '{arm}'")
            } else if !seen.insert((arm, row.key())) {
                format!("'{name}' of {arm} has two rows at the same place")
            } else if *quantities.entry(name).or_insert(&row.quantity) != &row.quantity {
                format!("'{name}' names two different quantities")
            } else if !of_rounds.into_iter().all(|round| rounds.insert(round)) {
                format!("'{name}' of {arm} has a round twice")
            } else {
                continue;
            };
            return Err(wrong);
        }
        Ok(())
    }

    /// Returns the names of the compared arms in order: those with the main quantity, or all if there is none.
    pub fn arm_names(&self) -> Vec<String> {
        let main = self.rows.iter().filter(|row| row.quantity.main);
        let measured: BTreeSet<&str> = main.map(|row| row.arm.as_str()).collect();
        let has = |arm: &&ArmInfo| measured.is_empty() || measured.contains(arm.name.as_str());
        let arms = self.arms.iter().filter(has);
        arms.map(|arm| arm.name.clone()).collect()
    }

    /// Creates a result without rows, of an experiment that ended normally.
    pub fn empty(name: &str, started: &str) -> Results {
        Results {
            schema: SCHEMA,
            experiment: ExperimentInfo {
                name: name.to_owned(),
                started: started.to_owned(),
                ending: "done".to_owned(),
                ..ExperimentInfo::default()
            },
            ..Results::default()
        }
    }

    /// Adds a sample to the row of a quantity of an arm at a place.
    pub fn add(&mut self, arm: &str, at: &[Parameter], quantity: Quantity, sample: Sample) {
        let mut rows = self.rows.iter_mut();
        let is_it =
            |r: &&mut ResultRow| r.arm == arm && r.at == at && r.quantity.name == quantity.name;
        match rows.find(is_it) {
            Some(row) => row.samples.push(sample),
            None => {
                let row = ResultRow::new(arm, at.to_vec(), quantity, vec![sample]);
                self.rows.push(row);
            }
        }
    }

    /// Returns the remark on a row: why its arm is unavailable, or doubts about its memory.
    pub fn remark_of(&self, row: &ResultRow) -> Option<String> {
        if !row.samples.is_empty() {
            return row.remark();
        }
        let is_of = |not: &&UnavailableArm| {
            not.arm == row.arm && not.at.iter().all(|place| row.at.contains(place))
        };
        let not = self.unavailable.iter().find(is_of);
        not.map(|not| format!("unavailable: {}", not.reason))
            .or_else(|| row.remark())
    }

    pub fn row(&self, arm: &str, at: &[Parameter], quantity: &str) -> Option<&ResultRow> {
        let mut rows = self.rows.iter();
        rows.find(|row| row.arm == arm && row.at == at && row.quantity.name == quantity)
    }

    /// Returns the main quantity; `None` without rows.
    pub fn main(&self) -> Option<&Quantity> {
        let rows = || self.rows.iter().map(|row| &row.quantity);
        rows()
            .find(|quantity| quantity.main)
            .or_else(|| rows().next())
    }

    /// Formats the experiment: `chase (ns, lower is better)`.
    pub fn in_words(&self) -> String {
        let name = &self.experiment.name;
        match self.main() {
            Some(q) if q.better == BetterDirection::Neither => format!("{name} ({})", q.unit),
            Some(q) => format!("{name} ({}, {} is better)", q.unit, q.better),
            None => name.clone(),
        }
    }

    pub fn to_json(&self) -> String {
        to_json(self)
    }
}

/// Returns the text of a result file, with a row on each line and without absent values.
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

/// Formats lists and objects with one element on each line.
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

/// Returns the fields of a struct for a result, without absent values.
pub fn fields(of: &impl Serialize) -> Map<String, Json> {
    match serde_json::to_value(of).map(without_nulls) {
        Ok(Json::Object(fields)) => fields,
        _ => Map::new(),
    }
}

/// A null in a list is kept, because it has a meaning, such as an open edge of a bucket.
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
