//! Metrics: numbers that a server, a command or the hardware provides.
//!
//! [`metrics`] returns all of them. A metric is a module with a [`MetricKind`], and an entry in the table of
//! `addressed_metrics.rs` or among the CPU's counters. [`MetricSpec`] is the parsed text of a user; [`MetricSpec::open`]
//! connects. Each reader keeps its parser separate from its input and output. A reader subtracts its own load on the
//! server (its transactions, its commands) from the counts.

mod addressed_metrics;
mod command;
mod http;
mod mysql;
mod perf;
mod postgres;
pub mod prometheus;
mod reading;
mod redact;
mod redis;
mod spec;

pub use command::last_number;
pub use perf::{TranslationCounters, TranslationTotals, cpi, walk_cycles};
pub use reading::{MeasuredValue, Metric, MetricError, Reading, ReadingKind, between, measured};
pub use redact::redact;
pub use spec::{MetricKind, MetricSpec, MetricSpecError};

use addressed_metrics::{SERVERS, names};
use redact::kind as kind_of;
use spec::MetricArgument;

use crate::stats::BetterDirection;

/// Returns all metrics in the order of help and documents.
pub fn metrics() -> impl Iterator<Item = &'static MetricKind> {
    SERVERS.iter().chain(perf::KINDS)
}

/// Returns form and help of each metric in Markdown, for help and documents.
pub fn forms_and_help() -> Vec<(String, String)> {
    let row = |kind: &MetricKind| {
        let example = match kind.example == kind.names[0] {
            true => String::new(),
            false => format!("; e.g. `{}`", kind.example),
        };
        (kind.form.to_owned(), format!("{}{example}", kind.help))
    };
    let gauge = format!(
        "a gauge instead of a counter, of which lower values are better; with `gauge:higher:…`, \
         higher values. Allowed before {}",
        names(metrics().filter(|kind| kind.can_be_gauge))
            .iter()
            .map(|name| format!("`{name}`"))
            .collect::<Vec<_>>()
            .join(" and ")
    );
    let rows = metrics().map(row);
    rows.chain([("gauge:lower:…".to_owned(), gauge)]).collect()
}

impl std::str::FromStr for MetricSpec {
    type Err = MetricSpecError;

    fn from_str(text: &str) -> Result<MetricSpec, MetricSpecError> {
        let text = text.trim();
        let wrong = |why: String| MetricSpecError(format!("{}: {why}", kind_of(text)));
        let (inner, gauge) = match text.strip_prefix("gauge:") {
            Some(rest) => {
                let found = direction(rest);
                let (inner, better) = found.ok_or_else(|| {
                    wrong("a gauge needs a direction: gauge:lower:… or gauge:higher:…".to_owned())
                })?;
                (inner, Some(better))
            }
            None => (text, None),
        };
        let (name, rest) = match inner.split_once(':') {
            Some((name, rest)) => (name, Some(rest)),
            None => (inner, None),
        };
        let kind = metrics().find(|kind| kind.names.contains(&name));
        let kind = kind.filter(|kind| rest.is_some() || !kind.needs_address);
        let kind = match (kind, gauge) {
            (Some(kind), None) => kind,
            (Some(kind), Some(_)) if kind.can_be_gauge => kind,
            (_, Some(_)) => {
                let gauges = names(metrics().filter(|kind| kind.can_be_gauge));
                return Err(wrong(format!(
                    "only {} can be gauges",
                    gauges.join(" and ")
                )));
            }
            (None, None) => {
                let known = names(metrics()).join(", ");
                return Err(MetricSpecError(format!(
                    "'{}': not one of {known}, gauge:lower:…, gauge:higher:…",
                    kind_of(text)
                )));
            }
        };
        if rest.is_some_and(|rest| rest.trim().is_empty()) {
            return Err(MetricSpecError(format!(
                "{} lacks a value after the colon, as in {}",
                kind_of(text),
                kind.example
            )));
        }
        let rest = rest.unwrap_or_default();
        (kind.parse)(&MetricArgument {
            text,
            name,
            rest,
            gauge,
        })
    }
}

/// Splits a direction off `lower:cmd:…`, or off `cmd:…:lower`, which means the same.
fn direction(text: &str) -> Option<(&str, BetterDirection)> {
    let words = [
        ("lower", BetterDirection::Lower),
        ("higher", BetterDirection::Higher),
    ];
    words.into_iter().find_map(|(word, better)| {
        let inner = text
            .strip_prefix(word)
            .and_then(|rest| rest.strip_prefix(':'))
            .or_else(|| {
                text.strip_suffix(word)
                    .and_then(|rest| rest.strip_suffix(':'))
            })?;
        Some((inner, better))
    })
}

/// Returns a metric for display, from the text that a user typed after `--metric`.
pub fn shown(text: &str) -> String {
    text.parse::<MetricSpec>()
        .map_or_else(|_| kind_of(text), |spec| spec.shown().to_owned())
}

/// Returns the words of a command line for display and storage.
pub fn shown_command(words: &[String]) -> Vec<String> {
    let mut is_value = false;
    let mut shown_word = |word: &String| {
        let is_metric = std::mem::replace(&mut is_value, is_address(word));
        match word.split_once('=') {
            _ if is_metric => shown(word),
            Some((flag, value)) if is_address(flag) => format!("{flag}={}", shown(value)),
            _ => redact(word),
        }
    };
    words.iter().map(&mut shown_word).collect()
}

fn is_address(flag: &str) -> bool {
    matches!(flag, "--metric" | "--database")
}

#[cfg(test)]
mod tests;
