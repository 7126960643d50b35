//! Extracts the figures of a run from its output and its counters. Pure.

use std::collections::BTreeMap;

use regex::Regex;
use serde_json::Value as Json;

use super::spec::{MetricSource, WorkloadMetric};

#[derive(Debug, Clone, Default, PartialEq)]
pub struct LoadOutput {
    pub printed: String,
    pub seconds: f64,
    pub counted: BTreeMap<String, f64>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct MetricValue {
    pub name: String,
    pub value: f64,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("measure '{name}' has no value: {reason}")]
pub struct MissingMetric {
    pub name: String,
    pub reason: String,
}

/// Returns all figures of a run, in the order of the measures.
///
/// # Errors
/// The first figure that is missing or not a number; such a run is no sample.
pub fn figures(
    measures: &[WorkloadMetric],
    ran: &LoadOutput,
) -> Result<Vec<MetricValue>, MissingMetric> {
    let mut all: Vec<MetricValue> = Vec::new();
    for measure in measures {
        let none = |reason: String| MissingMetric {
            name: measure.name.clone(),
            reason,
        };
        let raw = read_source(&measure.source, ran).map_err(none)?;
        let per = match &measure.per {
            None => 1.0,
            Some(name) => {
                let known = all.iter().find(|known| known.name == *name);
                known.map_or(1.0, |known| known.value)
            }
        };
        let value = raw * measure.factor / per;
        if !value.is_finite() || value < 0.0 {
            return Err(none(format!("{value} is not a valid value")));
        }
        // A value of 0 has no ratio.
        if value == 0.0 && all.is_empty() {
            let why = "0 cannot compare arms; the main measure must be above 0";
            return Err(none(why.to_owned()));
        }
        all.push(MetricValue {
            name: measure.name.clone(),
            value,
        });
    }
    Ok(all)
}

fn read_source(source: &MetricSource, ran: &LoadOutput) -> Result<f64, String> {
    match source {
        MetricSource::Text(regex) => text(regex, &ran.printed),
        MetricSource::Json(pointer) => json(pointer, &ran.printed),
        MetricSource::Seconds => Ok(ran.seconds),
        MetricSource::Counter(name) => {
            let known = ran.counted.get(name).copied();
            known.ok_or_else(|| format!("{name} is not counted here"))
        }
        MetricSource::Histogram(regex, percentile) => histogram(regex, *percentile, &ran.printed),
    }
}

/// Parses a number with thousands separators: `1,234.5`.
fn number(text: &str) -> Option<f64> {
    text.trim().replace(',', "").parse().ok()
}

fn text(regex: &Regex, printed: &str) -> Result<f64, String> {
    let last = regex.captures_iter(printed).last();
    let group = last.and_then(|captures| captures.get(1));
    let group = group.ok_or_else(|| format!("no output matches {regex}{}", end_of(printed)))?;
    number(group.as_str()).ok_or_else(|| format!("'{}' is not a number", group.as_str()))
}

/// Returns the last line of the output for an error message.
fn end_of(printed: &str) -> String {
    const SHOWN: usize = 160;
    let last = printed.lines().rfind(|line| !line.trim().is_empty());
    last.map_or("; there was no output".to_owned(), |line| {
        let shown: String = line.trim().chars().take(SHOWN).collect();
        format!("; its last line: {shown}")
    })
}

/// Reads a value from JSON, which may follow other lines.
fn json(pointer: &str, printed: &str) -> Result<f64, String> {
    let starts = printed.match_indices(['{', '[']).map(|(at, _)| at);
    let first = starts.take(LOOKED_AT).find_map(|at| {
        let mut values = serde_json::Deserializer::from_str(&printed[at..]).into_iter::<Json>();
        values.next()?.ok()
    });
    let value = first.ok_or_else(|| format!("no JSON in the output{}", end_of(printed)))?;
    let found = value
        .pointer(pointer)
        .ok_or_else(|| format!("the JSON has no {pointer}"))?;
    let text = found.as_str().and_then(number);
    found
        .as_f64()
        .or(text)
        .ok_or_else(|| format!("{pointer} is {found}, not a number"))
}

/// Maximum number of braces and brackets tried as the start of JSON.
const LOOKED_AT: usize = 16;

/// Returns the smallest value whose cumulative count reaches the percentile.
fn histogram(regex: &Regex, percentile: f64, printed: &str) -> Result<f64, String> {
    let mut values: Vec<(f64, f64)> = Vec::new();
    for captures in regex.captures_iter(printed) {
        let group = |n| captures.get(n).and_then(|group| number(group.as_str()));
        let (Some(value), Some(count)) = (group(1), group(2)) else {
            return Err(format!("'{}' is not a value and a count", &captures[0]));
        };
        values.push((value, count));
    }
    values.sort_by(|a, b| a.0.total_cmp(&b.0));
    let all: f64 = values.iter().map(|(_, count)| count).sum();
    if all <= 0.0 {
        return Err(format!("no output matches {regex}{}", end_of(printed)));
    }
    let mut below = 0.0;
    let reached = values.iter().find(|(_, count)| {
        below += count;
        below >= all * percentile / 100.0
    });
    let last = values.last().map_or(0.0, |(value, _)| *value);
    Ok(reached.map_or(last, |(value, _)| *value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload_file::WorkloadSpec;
    use std::path::Path;

    fn measured(measures: &str, printed: &str) -> Result<Vec<f64>, MissingMetric> {
        let text = format!("schema = 1\ntitle = 'x'\nload.run = 'x'\nmeasure = [{measures}]");
        let file = WorkloadSpec::parse(Path::new("x.toml"), &text).unwrap();
        let ran = LoadOutput {
            printed: printed.into(),
            seconds: 2.0,
            counted: BTreeMap::from([("cpu".to_owned(), 3.0)]),
        };
        let all = figures(&file.measures, &ran)?;
        Ok(all.into_iter().map(|figure| figure.value).collect())
    }

    #[test]
    fn figures_come_from_texts_json_counters_and_times() {
        let text = r"{name='a', better='higher', regex='^rate: (.*)$'}";
        assert_eq!(
            measured(text, "rate: 1\nrate: 1,234.5\nend"),
            Ok(vec![1234.5])
        );
        let json = r"{name='a', better='lower', json='/jobs/0/iops', factor=0.5}";
        assert_eq!(
            measured(json, "warning: {x}\n{\"jobs\": [{\"iops\": 8}]}\n"),
            Ok(vec![4.0])
        );
        let more = r"{name='t', better='lower', seconds=true}, {name='c', counter='cpu', per='t', factor=1000}";
        assert_eq!(measured(more, ""), Ok(vec![2.0, 1500.0]));
    }

    #[test]
    fn percentiles_are_of_counts() {
        let of = |percentile: &str| {
            let measure = format!(
                r"{{name='p', better='lower', histogram='^(\S+) us: (\d+)$', percentile={percentile}}}"
            );
            measured(&measure, "10 us: 90\n30 us: 1\n20 us: 9\n").unwrap()[0]
        };
        assert_eq!(
            (of("0"), of("50"), of("90"), of("90.5")),
            (10.0, 10.0, 10.0, 20.0)
        );
        assert_eq!((of("99"), of("100")), (20.0, 30.0));
    }

    #[test]
    fn a_driver_that_prints_no_figure_is_no_sample() {
        let text = r"{name='a', better='higher', regex='rate: (.*)'}";
        for (printed, word) in [
            ("", "no output"),
            ("error: connection refused", "refused"),
            ("rate: many", "many"),
            ("rate: -1", "-1"),
            ("rate: 0", "above 0"),
            ("rate: inf", "inf"),
            ("rate: NaN", "NaN"),
        ] {
            let error = measured(text, printed).unwrap_err().to_string();
            assert!(error.contains(word), "{printed}: {error}");
        }
        let json = r"{name='a', better='lower', json='/x'}";
        for (printed, word) in [
            ("none", "no JSON"),
            ("{}", "has no /x"),
            ("{\"x\":[]}", "not a number"),
        ] {
            let error = measured(json, printed).unwrap_err().to_string();
            assert!(error.contains(word), "{printed}: {error}");
        }
        let histogram = r"{name='a', better='lower', histogram='(\d+) (\d+)', percentile=99}";
        assert!(
            measured(histogram, "0 0")
                .unwrap_err()
                .to_string()
                .contains("matches")
        );
        let counter = r"{name='a', better='lower', counter='vmstat:none'}";
        assert!(
            measured(counter, "")
                .unwrap_err()
                .to_string()
                .contains("not counted")
        );
        // A share of nothing has no value.
        let none = r"{name='a', better='higher', regex='(\d)'}, {name='b', counter='cpu', per='a'}";
        assert!(measured(none, "0").is_err());
    }
}
