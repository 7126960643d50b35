//! Parses workload files: TOML, schema 1. docs/reference/workload-file.md describes the format.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

use hugeleaf_units::deserialize::time;
use hugeleaf_units::line_and_column;
use regex::Regex;
use serde::{Deserialize, Deserializer};
use toml::Spanned;

use super::needs::Needs;
use super::size::{SizeSpec, SpannedError, wrong};

pub const SCHEMA: u64 = 1;

/// Default time limit of a command.
const fn usual_limit() -> Duration {
    Duration::from_secs(600)
}

const fn server_limit() -> Duration {
    Duration::from_secs(60)
}

/// Reserved variable names: they are set by the caller or have a meaning to the shell.
pub(super) const RESERVED_NAMES: [&str; 4] = ["work", "files", "pages", "round"];

#[derive(Debug, Clone)]
pub struct WorkloadSpec {
    /// Name of the workload: the file's name without `.toml`.
    pub name: String,
    pub title: String,
    /// Effect of page sizes that the workload shows, in a sentence.
    pub effect: String,
    /// Kind of real workload, as in `Java` or `decision support`; may be empty.
    pub kind: String,
    pub needs: Needs,
    /// Variables of its commands. An arm may override them.
    pub set: BTreeMap<String, String>,
    /// Variables that are sizes: a fraction of the memory, or bytes.
    pub sizes: BTreeMap<String, SizeSpec>,
    /// Small files that are written next to the commands, by name.
    pub files: BTreeMap<String, String>,
    pub prepare: Option<Script>,
    /// The server, started on the pages of an arm. Without one, the load itself is.
    pub server: Option<ServerSpec>,
    pub load: LoadSpec,
    /// The figures; arms are compared by the first.
    pub measures: Vec<WorkloadMetric>,
    pub check: Option<Script>,
    /// Variables with several values. Each combination is measured on each arm.
    pub matrix: BTreeMap<String, Vec<String>>,
    /// Arms that the file defines, each with the variables that it sets. They are the default if no pages are requested.
    pub arms: Vec<ArmSpec>,
    /// Unsupported kinds of pages (`hugetlb`, `thp`, `promoted`, `run`), with the reason.
    pub unfit: BTreeMap<String, String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArmSpec {
    pub name: String,
    pub set: Vec<(String, String)>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Script {
    /// The script, for `sh -eu`.
    #[serde(deserialize_with = "command")]
    pub run: String,
    #[serde(default = "usual_limit", deserialize_with = "time")]
    pub limit: Duration,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServerSpec {
    /// The script that becomes the server; it ends with `exec PROGRAM`.
    #[serde(deserialize_with = "command")]
    pub run: String,
    #[serde(deserialize_with = "command")]
    pub ready: String,
    /// Script that fills the server after each start; optional.
    pub fill: Option<Script>,
    /// Time limit for the first answer, and for the end.
    #[serde(default = "server_limit", deserialize_with = "time")]
    pub limit: Duration,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadSpec {
    pub script: Script,
    /// Script that runs before the load, unmeasured.
    pub warm: Option<Script>,
    pub looped: LoopKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LoopKind {
    /// Sends a request after the previous answer. The result is throughput.
    #[default]
    Closed,
    /// Sends requests at a fixed rate. The result is latency, or CPU time per request.
    Open,
}

#[derive(Debug, Clone)]
pub struct WorkloadMetric {
    pub name: String,
    pub unit: String,
    /// Better direction; `None` for neutral quantities.
    pub better: Option<MetricDirection>,
    pub source: MetricSource,
    pub factor: f64,
    /// The measure to divide by, as for CPU time per request.
    pub per: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MetricDirection {
    Higher,
    Lower,
}

#[derive(Debug, Clone)]
pub enum MetricSource {
    /// The last match of an expression in the load's output: its first group without commas.
    Text(Regex),
    /// A pointer (RFC 6901) into JSON in the load's output.
    Json(String),
    /// Duration of the load in seconds.
    Seconds,
    /// A counter during the load: `cpu` (seconds of all processes), `faults`, or `vmstat:NAME`.
    Counter(String),
    /// A percentile of a histogram; the expression takes a value and a count from each line.
    Histogram(Regex, f64),
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}:{line}:{column}: {what}", path.display())]
pub struct WorkloadFileError {
    pub path: PathBuf,
    /// Line number, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    pub what: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct WorkloadToml {
    schema: Spanned<u64>,
    title: String,
    #[serde(default)]
    effect: String,
    #[serde(default)]
    kind: String,
    #[serde(default)]
    needs: Needs,
    #[serde(default)]
    set: BTreeMap<Spanned<String>, TomlScalar>,
    #[serde(default)]
    sizes: BTreeMap<Spanned<String>, SizeSpec>,
    #[serde(default)]
    files: BTreeMap<Spanned<String>, String>,
    prepare: Option<Script>,
    server: Option<ServerSpec>,
    load: LoadToml,
    measure: Spanned<Vec<Spanned<MeasureToml>>>,
    check: Option<Script>,
    #[serde(default)]
    matrix: BTreeMap<Spanned<String>, Spanned<Vec<TomlScalar>>>,
    #[serde(default)]
    arm: Vec<Spanned<ArmToml>>,
    #[serde(default)]
    unfit: BTreeMap<Spanned<String>, String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ArmToml {
    name: String,
    set: BTreeMap<Spanned<String>, TomlScalar>,
}

/// A value of a variable: a text or a number.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
enum TomlScalar {
    Whole(i64),
    Number(f64),
    Text(String),
}

impl TomlScalar {
    fn text(self) -> String {
        match self {
            TomlScalar::Whole(n) => n.to_string(),
            TomlScalar::Number(n) => n.to_string(),
            TomlScalar::Text(text) => text,
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct LoadToml {
    #[serde(deserialize_with = "command")]
    run: String,
    #[serde(default = "usual_limit", deserialize_with = "time")]
    limit: Duration,
    warm: Option<Script>,
    #[serde(default, rename = "loop")]
    looped: LoopKind,
    rate: Option<Spanned<Vec<TomlScalar>>>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct MeasureToml {
    name: String,
    #[serde(default)]
    unit: String,
    better: Option<MetricDirection>,
    regex: Option<Spanned<String>>,
    json: Option<Spanned<String>>,
    #[serde(default)]
    seconds: bool,
    counter: Option<Spanned<String>>,
    histogram: Option<Spanned<String>>,
    percentile: Option<Spanned<f64>>,
    factor: Option<Spanned<f64>>,
    per: Option<Spanned<String>>,
}

fn command<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    let text = String::deserialize(from)?;
    match text.trim().is_empty() {
        true => Err(serde::de::Error::custom("the command is empty")),
        false => Ok(text),
    }
}

impl WorkloadSpec {
    pub fn parse(path: &Path, text: &str) -> Result<WorkloadSpec, WorkloadFileError> {
        let error = |(span, what): SpannedError| {
            let (line, column) = line_and_column(text, span.start);
            WorkloadFileError {
                path: path.to_owned(),
                line,
                column,
                what,
            }
        };
        let file: WorkloadToml = toml::from_str(text)
            .map_err(|e| error((e.span().unwrap_or(0..0), e.message().trim().to_owned())))?;
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        file.described(name.into_owned()).map_err(error)
    }

    /// Returns all commands in order of execution, each with its role, for the person who decides whether to run them.
    pub fn commands(&self) -> Vec<(&'static str, &str)> {
        let mut all = Vec::new();
        all.extend(self.prepare.as_ref().map(|s| ("prepare", s.run.as_str())));
        if let Some(server) = &self.server {
            all.push(("server", server.run.as_str()));
            all.push(("ready", server.ready.as_str()));
            all.extend(server.fill.as_ref().map(|s| ("fill", s.run.as_str())));
        }
        all.extend(self.load.warm.as_ref().map(|s| ("warm", s.run.as_str())));
        all.push(("load", self.load.script.run.as_str()));
        all.extend(self.check.as_ref().map(|s| ("check", s.run.as_str())));
        all
    }

    /// Returns every combination of the matrix, with variables in order of name; one empty combination without a matrix.
    pub fn points(&self) -> Vec<Vec<(String, String)>> {
        let mut points = vec![Vec::new()];
        for (name, values) in &self.matrix {
            for point in std::mem::take(&mut points) {
                for value in values {
                    let mut point: Vec<(String, String)> = point.clone();
                    point.push((name.clone(), value.clone()));
                    points.push(point);
                }
            }
        }
        points
    }

    pub fn main(&self) -> &WorkloadMetric {
        &self.measures[0]
    }
}

impl WorkloadToml {
    fn described(self, name: String) -> Result<WorkloadSpec, SpannedError> {
        if *self.schema.get_ref() != SCHEMA {
            let found = self.schema.get_ref();
            let what = format!("this version reads schema {SCHEMA}, not {found}");
            return wrong(self.schema.span(), what);
        }
        let mut files_needed = self.needs.files.iter();
        if let Some(file) = files_needed.find(|file| file.get_ref().is_relative()) {
            let what = "write the whole path of the file";
            return wrong(file.span(), what);
        }
        let variables = Variables::new(self.set, self.sizes, self.matrix, self.load.rate.clone())?;
        let is_rated = self.load.rate.is_some();
        if (self.load.looped == LoopKind::Open) != is_rated {
            let what = "an open loop, and no other, needs rates (load.rate = [100, 200])";
            return wrong(self.measure.span(), what);
        }
        let unfit = unfit(self.unfit)?;
        let arms = arms(self.arm, |name| variables.may_be_set(name))?;
        Ok(WorkloadSpec {
            name,
            title: self.title,
            effect: self.effect,
            kind: self.kind,
            needs: self.needs,
            set: variables.set,
            sizes: variables.sizes,
            matrix: variables.matrix,
            files: files(self.files)?,
            prepare: self.prepare,
            server: self.server,
            load: LoadSpec {
                script: Script {
                    run: self.load.run,
                    limit: self.load.limit,
                },
                warm: self.load.warm,
                looped: self.load.looped,
            },
            measures: measures(self.measure)?,
            check: self.check,
            arms,
            unfit,
        })
    }
}

/// All variables of a file; no name occurs twice.
struct Variables {
    set: BTreeMap<String, String>,
    sizes: BTreeMap<String, SizeSpec>,
    matrix: BTreeMap<String, Vec<String>>,
}

impl Variables {
    fn new(
        set: BTreeMap<Spanned<String>, TomlScalar>,
        sizes: BTreeMap<Spanned<String>, SizeSpec>,
        matrix: BTreeMap<Spanned<String>, Spanned<Vec<TomlScalar>>>,
        rate: Option<Spanned<Vec<TomlScalar>>>,
    ) -> Result<Variables, SpannedError> {
        let mut all = Variables {
            set: BTreeMap::new(),
            sizes: BTreeMap::new(),
            matrix: BTreeMap::new(),
        };
        for (name, value) in set {
            let name = all.new_name(&name)?;
            all.set.insert(name, value.text());
        }
        for (name, size) in sizes {
            let name = all.new_name(&name)?;
            all.sizes.insert(name, size);
        }
        let rate = rate.map(|values| (Spanned::new(values.span(), "rate".into()), values));
        for (name, values) in matrix.into_iter().chain(rate) {
            let values = list(values)?;
            let name = all.new_name(&name)?;
            all.matrix.insert(name, values);
        }
        Ok(all)
    }

    fn new_name(&self, name: &Spanned<String>) -> Result<String, SpannedError> {
        check_name(name)?;
        let text = name.get_ref();
        match self.may_be_set(text) || self.matrix.contains_key(text) {
            true => wrong(name.span(), format!("'{text}' is defined twice")),
            false => Ok(text.clone()),
        }
    }

    fn may_be_set(&self, name: &str) -> bool {
        self.set.contains_key(name) || self.sizes.contains_key(name)
    }
}

/// Parses the values of a variable of the matrix, which must be distinct.
fn list(values: Spanned<Vec<TomlScalar>>) -> Result<Vec<String>, SpannedError> {
    let span = values.span();
    let texts: Vec<String> = values
        .into_inner()
        .into_iter()
        .map(TomlScalar::text)
        .collect();
    if texts.is_empty() {
        return wrong(span, "the list has no values");
    }
    match texts.iter().collect::<BTreeSet<_>>().len() < texts.len() {
        true => wrong(span, "the list has a value twice"),
        false => Ok(texts),
    }
}

/// Parses the small files; their names must stay in their folder.
fn files(
    written: BTreeMap<Spanned<String>, String>,
) -> Result<BTreeMap<String, String>, SpannedError> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    let mut all = BTreeMap::new();
    for (name, text) in written {
        let plain = name.get_ref();
        if plain.is_empty() || plain.starts_with('.') || !plain.chars().all(is_plain) {
            let what = format!("'{plain}' is not a plain name of a file");
            return wrong(name.span(), what);
        }
        all.insert(name.into_inner(), text);
    }
    Ok(all)
}

/// Checks a variable's name: a shell name in lower case, because the system's own names are in upper case.
fn check_name(name: &Spanned<String>) -> Result<(), SpannedError> {
    let text = name.get_ref();
    let is_part = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    let begins = text.starts_with(|c: char| c.is_ascii_lowercase());
    if !begins || !text.chars().all(is_part) {
        let what = format!("'{text}' is not a variable's name: use small letters, digits and _");
        return wrong(name.span(), what);
    }
    if RESERVED_NAMES.contains(&text.as_str()) {
        return wrong(name.span(), format!("'{text}' is set by hugeleaf"));
    }
    Ok(())
}

fn arms(
    written: Vec<Spanned<ArmToml>>,
    is_variable: impl Fn(&str) -> bool,
) -> Result<Vec<ArmSpec>, SpannedError> {
    let mut all: Vec<ArmSpec> = Vec::new();
    for arm in written {
        let span = arm.span();
        let arm = arm.into_inner();
        if arm.name.is_empty() || all.iter().any(|known| known.name == arm.name) {
            let what = format!("'{}' names no arm, or two", arm.name);
            return wrong(span, what);
        }
        let mut set = Vec::new();
        for (name, value) in arm.set {
            if !is_variable(name.get_ref()) {
                let what = format!("there is no variable '{}' in set or sizes", name.get_ref());
                return wrong(name.span(), what);
            }
            set.push((name.into_inner(), value.text()));
        }
        all.push(ArmSpec {
            name: arm.name,
            set,
        });
    }
    Ok(all)
}

fn unfit(
    written: BTreeMap<Spanned<String>, String>,
) -> Result<BTreeMap<String, String>, SpannedError> {
    const KINDS: [&str; 4] = ["hugetlb", "thp", "promoted", "run"];
    let mut all = BTreeMap::new();
    for (kind, reason) in written {
        if !KINDS.contains(&kind.get_ref().as_str()) {
            let what = format!("'{}' is not one of {}", kind.get_ref(), KINDS.join(", "));
            return wrong(kind.span(), what);
        }
        all.insert(kind.into_inner(), reason);
    }
    Ok(all)
}

fn measures(
    written: Spanned<Vec<Spanned<MeasureToml>>>,
) -> Result<Vec<WorkloadMetric>, SpannedError> {
    let span = written.span();
    let mut measures: Vec<WorkloadMetric> = Vec::new();
    for one in written.into_inner() {
        let at = one.span();
        let one = one.into_inner();
        if one.name.trim().is_empty() {
            return wrong(at, "the measure has no name");
        }
        if measures.iter().any(|known| known.name == one.name) {
            return wrong(at, format!("'{}' is defined twice", one.name));
        }
        if let Some(per) = &one.per
            && measures.iter().all(|known| known.name != *per.get_ref())
        {
            let what = format!("no measure '{}' before this one", per.get_ref());
            return wrong(per.span(), what);
        }
        let factor = match &one.factor {
            Some(factor) if !factor.get_ref().is_finite() || *factor.get_ref() == 0.0 => {
                return wrong(factor.span(), "the factor must be a number, not 0");
            }
            factor => factor.as_ref().map_or(1.0, |factor| *factor.get_ref()),
        };
        measures.push(WorkloadMetric {
            source: source(&one, at)?,
            name: one.name,
            unit: one.unit,
            better: one.better,
            factor,
            per: one.per.map(Spanned::into_inner),
        });
    }
    match measures.first() {
        None => wrong(span, "the workload is without a measure"),
        Some(first) if first.better.is_none() => wrong(
            span,
            "state which way is better for the first measure: better = \"higher\" or \"lower\"",
        ),
        Some(_) => Ok(measures),
    }
}

fn source(one: &MeasureToml, at: Range<usize>) -> Result<MetricSource, SpannedError> {
    const ONE: &str = "a measure needs one of regex, json, seconds = true, counter, histogram";
    let mut sources = Vec::new();
    if let Some(regex) = &one.regex {
        sources.push(MetricSource::Text(compiled(regex, 1)?));
    }
    if let Some(pointer) = &one.json {
        if !pointer.get_ref().starts_with('/') {
            return wrong(pointer.span(), "a JSON pointer begins with / (RFC 6901)");
        }
        sources.push(MetricSource::Json(pointer.get_ref().clone()));
    }
    if one.seconds {
        sources.push(MetricSource::Seconds);
    }
    if let Some(counter) = &one.counter {
        let name = counter.get_ref();
        if !matches!(name.as_str(), "cpu" | "faults") && !name.starts_with("vmstat:") {
            let what = format!("'{name}' is not one of cpu, faults, vmstat:NAME");
            return wrong(counter.span(), what);
        }
        sources.push(MetricSource::Counter(name.clone()));
    }
    if let Some(regex) = &one.histogram {
        let Some(percentile) = &one.percentile else {
            return wrong(
                regex.span(),
                "state the percentile of the histogram: percentile = 99.0",
            );
        };
        if !(0.0..=100.0).contains(percentile.get_ref()) {
            return wrong(percentile.span(), "the percentile must be from 0 to 100");
        }
        sources.push(MetricSource::Histogram(
            compiled(regex, 2)?,
            *percentile.get_ref(),
        ));
    } else if let Some(percentile) = &one.percentile {
        return wrong(percentile.span(), "percentile without a histogram");
    }
    match (sources.pop(), sources.is_empty()) {
        (Some(source), true) => Ok(source),
        _ => wrong(at, ONE),
    }
}

/// Compiles an expression with a minimum number of groups. Matching takes linear time, which bounds untrusted expressions.
fn compiled(text: &Spanned<String>, groups: usize) -> Result<Regex, SpannedError> {
    const LARGEST: usize = 1 << 20;
    let built = regex::RegexBuilder::new(text.get_ref())
        .multi_line(true)
        .size_limit(LARGEST)
        .build();
    let regex = built.map_err(|e| {
        let last = e.to_string();
        let last = last.lines().last().unwrap_or_default().trim().to_owned();
        (text.span(), format!("not a regular expression: {last}"))
    })?;
    match regex.captures_len() > groups {
        true => Ok(regex),
        false => {
            let what =
                format!("the expression needs {groups} group(s) in parentheses, for the numbers");
            wrong(text.span(), what)
        }
    }
}
