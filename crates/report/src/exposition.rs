//! Metrics for Prometheus: OpenMetrics by `prometheus-client`, and the older text format, which node_exporter's
//! textfile collector and `promtool check metrics` read.
//!
//! Names follow Prometheus's conventions: base units (bytes, seconds), `_total` for counters, `_info` for text, and
//! states of one object that add up.
//!
//! Labels hold names of processes and units, which are untrusted. [`MetricFamily::add`] is the only entry. It escapes
//! characters that control a terminal (`label`), so both formats are valid at every receiver, and printing escapes
//! nothing further.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

use crate::terminal_escape::clean;

pub const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
pub const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";

#[derive(Debug, Clone)]
pub struct MetricFamily {
    name: &'static str,
    help: &'static str,
    kind: MetricType,
    samples: Vec<(Vec<(&'static str, String)>, SampleValue)>,
}

/// The value of a sample. Whole numbers are written without a decimal point.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum SampleValue {
    Whole(u64),
    Real(f64),
}

impl From<u64> for SampleValue {
    fn from(value: u64) -> SampleValue {
        SampleValue::Whole(value)
    }
}

impl From<f64> for SampleValue {
    fn from(value: f64) -> SampleValue {
        SampleValue::Real(value)
    }
}

impl MetricFamily {
    /// Creates a counter; `name` excludes the suffix `_total`.
    pub const fn counter(name: &'static str, help: &'static str) -> MetricFamily {
        MetricFamily::new(name, help, MetricType::Counter)
    }

    pub const fn gauge(name: &'static str, help: &'static str) -> MetricFamily {
        MetricFamily::new(name, help, MetricType::Gauge)
    }

    pub const fn name(&self) -> &'static str {
        self.name
    }

    const fn new(name: &'static str, help: &'static str, kind: MetricType) -> MetricFamily {
        MetricFamily {
            name,
            help,
            kind,
            samples: Vec::new(),
        }
    }

    /// Adds a sample; a value that is not a number is omitted.
    pub fn add<const N: usize>(
        &mut self,
        labels: [(&'static str, &str); N],
        value: impl Into<SampleValue>,
    ) -> &mut MetricFamily {
        let value = value.into();
        if !matches!(value, SampleValue::Real(real) if !real.is_finite()) {
            let labels = labels.iter().map(|(name, text)| (*name, label(text)));
            self.samples.push((labels.collect(), value));
        }
        self
    }

    #[must_use]
    pub fn with_sample<const N: usize>(
        mut self,
        labels: [(&'static str, &str); N],
        value: impl Into<SampleValue>,
    ) -> MetricFamily {
        self.add(labels, value);
        self
    }
}

/// Escapes characters that control a terminal. Different texts must stay different, or two series would merge. So
/// backslashes are doubled where the text contains an escape such as `\u001b`.
fn label(text: &str) -> String {
    match text.contains("\\u") || clean(text) != text {
        true => clean(&text.replace('\\', "\\\\")),
        false => text.to_owned(),
    }
}

#[derive(Debug)]
struct FamilyCollector(Vec<MetricFamily>);

impl Collector for FamilyCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        for family in self.0.iter().filter(|family| !family.samples.is_empty()) {
            let MetricFamily {
                name, help, kind, ..
            } = family;
            let mut metric = encoder.encode_descriptor(name, help, None, *kind)?;
            let encode = |to: MetricEncoder<'_>, value: SampleValue| match (kind, value) {
                (MetricType::Counter, SampleValue::Whole(value)) => {
                    ConstCounter::new(value).encode(to)
                }
                (MetricType::Counter, SampleValue::Real(value)) => {
                    ConstCounter::new(value).encode(to)
                }
                (_, SampleValue::Whole(value)) => ConstGauge::new(value).encode(to),
                (_, SampleValue::Real(value)) => ConstGauge::new(value).encode(to),
            };
            match family.samples.as_slice() {
                [(labels, value)] if labels.is_empty() => encode(metric, *value)?,
                samples => {
                    for (labels, value) in samples {
                        encode(metric.encode_family(labels)?, *value)?;
                    }
                }
            }
        }
        Ok(())
    }
}

pub fn open_metrics(families: Vec<MetricFamily>) -> String {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(FamilyCollector(families)));
    let mut text = String::new();
    // Writing to a String cannot fail.
    let _ = encode(&mut text, &registry);
    text
}

/// Formats the older text format, in which a counter's type line has the full sample name with `_total`.
pub fn text(families: Vec<MetricFamily>) -> String {
    let counters: Vec<&'static str> = (families.iter())
        .filter(|family| matches!(family.kind, MetricType::Counter))
        .map(|family| family.name)
        .collect();
    let open = open_metrics(families);
    let mut text = String::with_capacity(open.len());
    for line in open.lines().filter(|line| *line != "# EOF") {
        let comment = line
            .strip_prefix("# HELP ")
            .or_else(|| line.strip_prefix("# TYPE "));
        match comment.and_then(|rest| rest.split_once(' ')) {
            Some((name, rest)) if counters.contains(&name) => {
                text.push_str(&line[..7]);
                text.push_str(name);
                text.push_str("_total ");
                text.push_str(rest);
            }
            _ => text.push_str(line),
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::terminal_escape::screen;
    use proptest::prelude::*;

    fn families() -> Vec<MetricFamily> {
        let mut by_unit = MetricFamily::gauge("a_bytes", "What is held");
        by_unit
            .add([("unit", "a\"b\\c\nd")], 1024.0)
            .add([("unit", "x")], f64::NAN);
        vec![
            by_unit,
            MetricFamily::counter("b_moves", "Moves").with_sample([], 3.0),
            MetricFamily::gauge("c", "Nothing"),
        ]
    }

    #[test]
    fn two_formats_of_the_same() {
        let open = open_metrics(families());
        assert_eq!(
            open,
            "# HELP a_bytes What is held\n# TYPE a_bytes gauge\na_bytes{unit=\"a\\\"b\\\\\\\\c\\\\u000ad\"} 1024.0\n\
             # HELP b_moves Moves\n# TYPE b_moves counter\nb_moves_total 3.0\n# EOF\n"
        );
        let old = text(families());
        assert!(
            old.contains("# TYPE b_moves_total counter\nb_moves_total 3.0\n"),
            "{old}"
        );
        assert!(!old.contains("EOF"));
    }

    /// Returns the value of the only label of the only sample by the rules of both formats: within quotes, a backslash
    /// escapes itself, a quote or an `n`.
    fn value(text: &str) -> Option<String> {
        let mut samples = text.lines().filter(|line| !line.starts_with('#'));
        let (line, None) = (samples.next()?, samples.next()) else {
            return None;
        };
        let mut chars = line.strip_prefix("a{unit=\"")?.chars();
        let mut value = String::new();
        loop {
            match chars.next()? {
                '"' => break,
                '\\' => value.push(match chars.next()? {
                    'n' => '\n',
                    c @ ('\\' | '"') => c,
                    _ => return None,
                }),
                c => value.push(c),
            }
        }
        (chars.as_str() == "} 1").then_some(value)
    }

    fn of_one(name: &str) -> Vec<MetricFamily> {
        vec![MetricFamily::gauge("a", "One").with_sample([("unit", name)], 1)]
    }

    fn name() -> impl Strategy<Value = String> {
        let odd = prop::sample::select(vec![
            "\\", "\\u", "\\u001b", "\u{1b}", "\n", "\r", "\"", "\u{202e}", "} 1\n",
        ]);
        let part = prop_oneof![odd.prop_map(str::to_owned), "(?s).{0,3}"];
        prop::collection::vec(part, 0..5).prop_map(|parts| parts.concat())
    }

    proptest! {
        /// Any process name gives one sample, identical on a terminal and in a file.
        #[test]
        fn any_name_is_valid_in_both_formats(name in name()) {
            for text in [text(of_one(&name)), open_metrics(of_one(&name))] {
                prop_assert_eq!(value(&text), Some(label(&name)), "{}", text);
                prop_assert_eq!(screen(&text), text.as_str());
            }
        }

        #[test]
        fn names_that_differ_stay_different(one in name(), other in name()) {
            prop_assert_eq!(label(&one) == label(&other), one == other);
        }
    }

    #[test]
    fn a_usual_name_is_kept() {
        for name in ["redis-server", "dev-disk-by\\x2duuid", "Ärger 漢字", "a\"b"] {
            assert_eq!(label(name), name);
        }
    }
}
