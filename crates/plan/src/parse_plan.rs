//! Plan files: text in, a plan or an error with line and column out. The library `toml` reads the
//! TOML. [`contradictions`] finds contradictory plans, and this module locates them in the text.

use hugeleaf_units::line_and_column;
use std::ops::Range;

use toml::de::DeTable;

use super::model::Plan;
use super::validate::{Contradiction, contradictions};
use super::value_checks::check;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}{what}", if *line == 0 { String::new() } else { format!("line {line}, column {column}: ") })]
pub struct PlanFileError {
    /// The line, from 1; 0 if unknown.
    pub line: usize,
    /// The character in the line, from 1; 0 if unknown.
    pub column: usize,
    pub what: String,
}

pub fn parse(text: &str) -> Result<Plan, PlanFileError> {
    let read = |e: toml::de::Error| at(text, e.span(), one_line(e.message()));
    let table = DeTable::parse(text).map_err(read)?;
    let values = table.get_ref().iter();
    for (key, value) in values {
        check(key.get_ref(), value).map_err(|(span, what)| at(text, Some(span), what))?;
    }
    let plan: Plan = toml::from_str(text).map_err(read)?;
    match contradictions(&plan).into_iter().next() {
        None => Ok(plan),
        Some(Contradiction { at: path, what }) => Err(at(text, span(text, &path), what)),
    }
}

/// Joins the lines of a library message, because a failure has one line for each part.
fn one_line(message: &str) -> String {
    message.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn at(text: &str, span: Option<Range<usize>>, what: String) -> PlanFileError {
    let (line, column) = span.map_or((0, 0), |span| line_and_column(text, span.start));
    PlanFileError { line, column, what }
}

/// Returns the position of a value in a text, or of its closest existing parent.
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
