//! The committed runs, and figures in them.

use std::path::Path;

use hugeleaf_proof::compare::{ComparedRow, SideSamples, arms};
use hugeleaf_proof::result_format::Results;
use hugeleaf_report::compare::three;
use serde_json::Value;

use hugeleaf_testkit::files_below;

/// A run.
pub struct Run {
    /// Its folder: a date and a host.
    pub folder: String,
    /// Its file name.
    pub name: String,
    /// Its content.
    pub value: Value,
    /// Its content as rows, if it is a result.
    pub results: Option<Results>,
}

impl Run {
    /// Returns its path below bench/runs.
    pub fn path(&self) -> String {
        format!("{}/{}", self.folder, self.name)
    }

    /// Returns a link for the page with its whole path below bench/runs, because names recur on other days and hosts.
    pub fn link(&self) -> String {
        let path = self.path();
        format!("[{path}](../bench/runs/{path})")
    }

    /// Returns a number of its summary.
    pub fn figure(&self, key: &str) -> Option<f64> {
        self.value["summary"].get(key)?.as_f64()
    }

    /// Returns lower end, median and upper end in its summary, for an arm if one is named.
    pub fn three(&self, arm: Option<&str>, key: &str) -> Option<[f64; 3]> {
        let summary = &self.value["summary"];
        let of = arm
            .map_or(Some(summary), |arm| summary.get(arm))?
            .get(key)?;
        Some([of[0].as_f64()?, of[1].as_f64()?, of[2].as_f64()?])
    }

    /// Returns the command that made it.
    pub fn command(&self) -> String {
        match &self.value["command"] {
            Value::String(command) => command.clone(),
            Value::Array(words) => {
                let words = words.iter().filter_map(Value::as_str);
                let mut words: Vec<String> = words.map(quoted).collect();
                if let Some(program) = words.first_mut().filter(|word| word.ends_with("hugeleaf")) {
                    "hugeleaf".clone_into(program);
                }
                words.join(" ")
            }
            _ => String::new(),
        }
    }
}

/// Quotes a word for a shell.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "-_./:,=%@+".contains(c);
    match word.chars().all(is_plain) && !word.is_empty() {
        true => word.to_owned(),
        false => format!("'{word}'"),
    }
}

/// All runs, by path.
pub struct Runs {
    /// The runs in order.
    pub all: Vec<Run>,
}

impl Runs {
    /// Reads the folders of runs.
    pub fn read(folder: &Path) -> Runs {
        let mut all = Vec::new();
        for path in files_below(folder) {
            if path.extension().is_none_or(|e| e != "json") {
                continue;
            }
            let text = std::fs::read_to_string(folder.join(&path)).unwrap();
            let value = serde_json::from_str(&text)
                .unwrap_or_else(|e| panic!("bench/runs/{}: {e}", path.display()));
            all.push(Run {
                folder: path.parent().unwrap().display().to_string(),
                name: path.file_name().unwrap().to_string_lossy().into_owned(),
                value,
                results: Results::read(&text).ok(),
            });
        }
        Runs { all }
    }

    /// Returns the newest run of a name.
    pub fn find(&self, name: &str) -> Option<&Run> {
        let name = format!("{name}.json");
        self.all.iter().rev().find(|run| run.name == name)
    }

    /// Returns all runs whose name has this beginning.
    pub fn named<'a>(&'a self, begin: &'a str) -> impl Iterator<Item = &'a Run> + 'a {
        self.all
            .iter()
            .filter(move |run| run.name.starts_with(begin))
    }
}

/// Largest difference that counts as equal.
pub const EQUAL: f64 = 0.02;

/// Returns the rows of one arm relative to another, of one result.
pub fn over(run: &Run, large: &str, small: &str) -> Vec<ComparedRow> {
    let Some(measured) = &run.results else {
        return Vec::new();
    };
    let names = [small.to_owned(), large.to_owned()];
    let compared = arms(measured, None, &names, EQUAL);
    let mut rows = compared.map_or_else(|_| Vec::new(), |compared| compared.rows);
    for row in &mut rows {
        row.ratio = row.ratio.or_else(|| of_medians(row));
    }
    rows
}

/// Returns the ratio of medians, for runs with too few rounds for an interval. The pages keep such measurements, and
/// say that there were one or two rounds.
fn of_medians(row: &ComparedRow) -> Option<f64> {
    let median = |side: &Option<SideSamples>| side.as_ref().map(|side| side.spread.median);
    let ratio = median(&row.b)? / median(&row.a)?;
    (ratio.is_finite() && ratio > 0.0).then_some(ratio)
}

/// Formats a ratio with its interval: `1.481 [1.420, 1.570]`.
pub fn ratio(row: &ComparedRow) -> String {
    match (&row.effect, row.ratio) {
        (Some(e), _) => interval([e.low, e.ratio, e.high]),
        (None, Some(ratio)) => three(ratio),
        (None, None) => "-".to_owned(),
    }
}

/// Formats lower end, middle and upper end.
pub fn interval([low, middle, high]: [f64; 3]) -> String {
    format!("{} [{}, {}]", three(middle), three(low), three(high))
}

/// Formats a part of all: `99.2 %`.
pub fn share(part: f64) -> String {
    format!("{:.1} %", part * 100.0)
}

/// A table of the page.
pub struct Table(String);

impl Table {
    /// Makes a table with these columns.
    pub fn new(heads: &[&str]) -> Table {
        let rule = "|---".repeat(heads.len());
        Table(format!("| {} |\n{rule}|\n", heads.join(" | ")))
    }

    /// Adds a row.
    pub fn row<S: AsRef<str>>(&mut self, cells: &[S]) {
        let cells: Vec<&str> = cells.iter().map(AsRef::as_ref).collect();
        self.0.push_str(&format!("| {} |\n", cells.join(" | ")));
    }

    /// Returns its text, with an empty line after it.
    pub fn text(self) -> String {
        self.0 + "\n"
    }
}
