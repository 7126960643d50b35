//! Plan files: text in, a plan or an error with line and column out. TOML, read by the library
//! `toml`; what is no nonsense to it but is to us is found by [`sense`] and located here.

use hugeleaf_units::line_and_column;
use std::fmt;
use std::ops::Range;

use toml::de::DeTable;

use super::model::Plan;
use super::read::check;
use super::sense::{Nonsense, sense};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlanError {
    /// Where, counted from 1; 0 where it is not known.
    pub line: usize,
    /// The character in the line, counted from 1; 0 where it is not known.
    pub column: usize,
    pub what: String,
}

impl fmt::Display for PlanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}", self.what),
            line => write!(f, "line {line}, column {}: {}", self.column, self.what),
        }
    }
}

impl std::error::Error for PlanError {}

pub fn parse(text: &str) -> Result<Plan, PlanError> {
    let read = |e: toml::de::Error| at(text, e.span(), one_line(e.message()));
    let table = DeTable::parse(text).map_err(read)?;
    let values = table.get_ref().iter();
    for (key, value) in values {
        check(key.get_ref(), value).map_err(|(span, what)| at(text, Some(span), what))?;
    }
    let plan: Plan = toml::from_str(text).map_err(read)?;
    match sense(&plan).into_iter().next() {
        None => Ok(plan),
        Some(Nonsense { at: path, what }) => Err(at(text, span(text, &path), what)),
    }
}

/// Messages of the library may have several lines; a failure has one for what and one for next.
fn one_line(message: &str) -> String {
    message.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn at(text: &str, span: Option<Range<usize>>, what: String) -> PlanError {
    let (line, column) = span.map_or((0, 0), |span| line_and_column(text, span.start));
    PlanError { line, column, what }
}

/// Where a value stands in a text; of one that is not there, the last that is on the way to it.
fn span(text: &str, path: &str) -> Option<Range<usize>> {
    let root = DeTable::parse(text).ok()?;
    let mut keys = path.split('.');
    let Some(mut value) = root.get_ref().get(keys.next()?) else {
        return Some(0..0);
    };
    for key in keys {
        let next = match key.parse::<usize>() {
            Ok(index) => value.get_ref().get(index),
            Err(_) => value.get_ref().get(key),
        };
        match next {
            Some(next) => value = next,
            None => break,
        }
    }
    Some(value.span())
}
