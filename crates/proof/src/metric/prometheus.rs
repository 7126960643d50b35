//! The Prometheus text format, and selection from it. Pure.
//!
//! Rules: the exposition format as Prometheus documents it (text format 0.0.4), with the additions
//! of OpenMetrics (`# EOF`, exemplars, `_total` separate from the family's name).

use std::collections::BTreeMap;
use std::str::FromStr;

#[derive(Debug, Clone, PartialEq)]
pub struct MetricSample {
    /// The name, suffix included.
    pub name: String,
    pub labels: Vec<(String, String)>,
    pub value: f64,
}

/// The type of a family of samples, by its `# TYPE` line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetricFamilyType {
    /// Rises only.
    Counter,
    Gauge,
    Histogram,
    Summary,
    Untyped,
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct Exposition {
    pub types: BTreeMap<String, MetricFamilyType>,
    pub samples: Vec<MetricSample>,
}

pub fn parse(text: &str) -> Result<Exposition, String> {
    let mut page = Exposition::default();
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        if let Some(comment) = line.strip_prefix('#') {
            note_type(comment, &mut page.types);
        } else if !line.is_empty() {
            let start = || line.chars().take(60).collect::<String>();
            let wrong = || format!("line {} is not a metric: {:?}", number + 1, start());
            page.samples.push(sample(line).ok_or_else(wrong)?);
        }
    }
    Ok(page)
}

fn note_type(comment: &str, types: &mut BTreeMap<String, MetricFamilyType>) {
    let mut words = comment.split_whitespace();
    if words.next() != Some("TYPE") {
        return;
    }
    if let (Some(name), Some(kind)) = (words.next(), words.next()) {
        let kind = match kind {
            "counter" => MetricFamilyType::Counter,
            "gauge" => MetricFamilyType::Gauge,
            "histogram" => MetricFamilyType::Histogram,
            "summary" => MetricFamilyType::Summary,
            _ => MetricFamilyType::Untyped,
        };
        types.insert(name.to_owned(), kind);
    }
}

fn is_name(text: &str) -> bool {
    let ok = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    !text.is_empty() && !text.starts_with(|c: char| c.is_ascii_digit()) && text.chars().all(ok)
}

fn sample(line: &str) -> Option<MetricSample> {
    let end = line.find(|c: char| c == '{' || c.is_whitespace())?;
    let (name, rest) = line.split_at(end);
    if !is_name(name) {
        return None;
    }
    let (labels, rest) = match rest.strip_prefix('{') {
        Some(inner) => labels(inner)?,
        None => (Vec::new(), rest),
    };
    // A timestamp may follow the value, and after a # an exemplar.
    let value = rest.split_whitespace().next()?;
    Some(MetricSample {
        name: name.to_owned(),
        labels,
        value: value.parse().ok()?,
    })
}

/// Parses labels including the closing brace, and returns the rest.
fn labels(mut rest: &str) -> Option<(Vec<(String, String)>, &str)> {
    let mut labels = Vec::new();
    loop {
        rest = rest.trim_start();
        if let Some(after) = rest.strip_prefix('}') {
            return Some((labels, after));
        }
        let (name, after) = rest.split_once('=')?;
        let name = name.trim();
        if !is_name(name) {
            return None;
        }
        let (value, after) = quoted(after.trim_start().strip_prefix('"')?)?;
        labels.push((name.to_owned(), value));
        rest = after.trim_start();
        rest = rest.strip_prefix(',').unwrap_or(rest);
    }
}

/// Parses up to the closing quote, with the escapes `\\`, `\"` and `\n`.
fn quoted(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Some((value, &text[at + 1..])),
            '\\' => match chars.next()?.1 {
                'n' => value.push('\n'),
                c => value.push(c),
            },
            c => value.push(c),
        }
    }
    None
}

/// The part of an address after `#`: `name`, `name{label="x"}`, `p99(name{label="x"})`,
/// `mean(name)`.
#[derive(Debug, Clone, PartialEq)]
pub struct MetricSelector {
    /// The requested quantile of a histogram, above 0 and below 1.
    pub quantile: Option<f64>,
    /// True for the mean: the rise of `name_sum` over that of `name_count`.
    pub mean: bool,
    pub name: String,
    pub labels: Vec<(String, String)>,
}

impl FromStr for MetricSelector {
    type Err = String;

    fn from_str(text: &str) -> Result<MetricSelector, String> {
        let forms = "NAME, NAME{LABEL=\"VALUE\"}, p99(NAME) or mean(NAME)";
        parse_selector(text.trim()).ok_or_else(|| format!("'{text}' is not {forms}"))
    }
}

fn parse_selector(text: &str) -> Option<MetricSelector> {
    let mut mean = false;
    let (quantile, inner) = match text.strip_suffix(')').and_then(|t| t.split_once('(')) {
        Some(("mean", inner)) => {
            mean = true;
            (None, inner)
        }
        Some((p, inner)) => {
            // p99 is 0.99, p999 is 0.999, p5 is 0.5.
            let digits = p.strip_prefix('p').filter(|d| !d.is_empty())?;
            let all_digits = digits.bytes().all(|b| b.is_ascii_digit());
            let quantile: f64 = format!("0.{digits}").parse().ok()?;
            if !all_digits || quantile <= 0.0 || quantile >= 1.0 {
                return None;
            }
            (Some(quantile), inner)
        }
        None => (None, text),
    };
    let (name, labels) = match inner.split_once('{') {
        Some((name, rest)) => {
            let (labels, after) = labels(rest)?;
            if !after.trim().is_empty() {
                return None;
            }
            (name, labels)
        }
        None => (inner, Vec::new()),
    };
    is_name(name.trim()).then(|| MetricSelector {
        quantile,
        mean,
        name: name.trim().to_owned(),
        labels,
    })
}

impl std::fmt::Display for MetricSelector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let labels: Vec<String> = self
            .labels
            .iter()
            .map(|(n, v)| format!("{n}={v:?}"))
            .collect();
        let inner = match labels.is_empty() {
            true => self.name.clone(),
            false => format!("{}{{{}}}", self.name, labels.join(",")),
        };
        match (self.quantile, self.mean) {
            (Some(q), _) => write!(f, "p{}({inner})", &q.to_string()[2..]),
            (None, true) => write!(f, "mean({inner})"),
            (None, false) => f.write_str(&inner),
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub enum SelectedValue {
    Counter(f64),
    Gauge(f64),
    /// A histogram's cumulative counts by upper bound; several series are summed.
    Buckets(Vec<(f64, f64)>),
    /// Sum and number of the observations in a histogram or a summary.
    Mean {
        /// `_sum`; several series are summed.
        sum: f64,
        /// `_count`, likewise.
        count: f64,
    },
}

/// Selects from a page. `as_gauge` makes an untyped series a gauge.
pub fn select(
    page: &Exposition,
    selector: &MetricSelector,
    as_gauge: bool,
) -> Result<SelectedValue, String> {
    let name = &selector.name;
    let of = |suffix: &str| -> Vec<&MetricSample> {
        let series = format!("{name}{suffix}");
        let labels = |s: &MetricSample| selector.labels.iter().all(|l| s.labels.contains(l));
        let found = page.samples.iter();
        found.filter(|s| s.name == series && labels(s)).collect()
    };
    let sum = |found: &[&MetricSample]| found.iter().map(|s| s.value).sum();
    if selector.quantile.is_some() {
        let none = || format!("{name} is not a histogram: the page has no {name}_bucket");
        return buckets(&of("_bucket"))
            .map(SelectedValue::Buckets)
            .ok_or_else(none);
    }
    if selector.mean {
        let (sums, counts) = (of("_sum"), of("_count"));
        if sums.is_empty() || counts.is_empty() {
            return Err(format!(
                "the page has no {name}_sum and {name}_count for a mean"
            ));
        }
        let (sum, count) = (sum(&sums), sum(&counts));
        return Ok(SelectedValue::Mean { sum, count });
    }
    let (kind, found) = (type_of(page, name), of(""));
    let is_gauge = match kind {
        MetricFamilyType::Gauge | MetricFamilyType::Summary => true,
        MetricFamilyType::Counter | MetricFamilyType::Histogram => false,
        MetricFamilyType::Untyped => as_gauge,
    };
    match (found.as_slice(), is_gauge) {
        ([], _) if kind == MetricFamilyType::Histogram => Err(format!(
            "{name} is a histogram: use mean({name}), a quantile as in p99({name}), or {name}_count"
        )),
        ([], _) => Err(format!("the page has no series {selector}")),
        (all, false) => Ok(SelectedValue::Counter(sum(all))),
        ([one], true) => Ok(SelectedValue::Gauge(one.value)),
        // A sum of gauges is meaningless.
        ([first, ..], true) => {
            let labels = first.labels.iter().map(|(n, v)| format!("{n}={v:?}"));
            let labels = labels.collect::<Vec<_>>().join(",");
            let count = found.len();
            Err(format!(
                "{count} series match {selector}, such as {{{labels}}}"
            ))
        }
    }
}

/// Returns the type of a series' family. `_count`, `_sum` and `_bucket` of a histogram and of a
/// summary are counters, and OpenMetrics types `x_total` under `x`.
fn type_of(page: &Exposition, name: &str) -> MetricFamilyType {
    if let Some(kind) = page.types.get(name) {
        return *kind;
    }
    for (suffix, families) in [
        ("_total", &[MetricFamilyType::Counter][..]),
        ("_bucket", &[MetricFamilyType::Histogram]),
        (
            "_count",
            &[MetricFamilyType::Histogram, MetricFamilyType::Summary],
        ),
        (
            "_sum",
            &[MetricFamilyType::Histogram, MetricFamilyType::Summary],
        ),
    ] {
        let family = name.strip_suffix(suffix).and_then(|f| page.types.get(f));
        if family.is_some_and(|f| families.contains(f)) {
            return MetricFamilyType::Counter;
        }
    }
    MetricFamilyType::Untyped
}

/// Returns the cumulative counts of histogram series, summed by bound; `None` without any.
fn buckets(samples: &[&MetricSample]) -> Option<Vec<(f64, f64)>> {
    let mut counts: Vec<(f64, f64)> = Vec::new();
    for s in samples {
        let le = s.labels.iter().find(|(n, _)| n == "le")?;
        let bound = le.1.parse().ok().filter(|b: &f64| !b.is_nan())?;
        match counts.iter_mut().find(|(b, _)| *b == bound) {
            Some((_, count)) => *count += s.value,
            None => counts.push((bound, s.value)),
        }
    }
    counts.sort_by(|a, b| a.0.total_cmp(&b.0));
    (!counts.is_empty()).then_some(counts)
}

/// The location of a quantile: buckets tell only which of them holds it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LocatedQuantile {
    /// Interpolated within the bucket as by Prometheus (`histogram_quantile`); beyond the last
    /// finite edge it is that edge. This is a guess: all observations of a bucket may be at one
    /// end.
    pub value: f64,
    /// The bucket's lower edge: 0 for a first bucket that ends above 0.
    pub low: f64,
    /// Its upper edge; infinite for the last bucket.
    pub high: f64,
}

/// Locates the quantile of observations counted cumulatively by upper bound. `None` without
/// observations.
pub fn locate(q: f64, counts: &[(f64, f64)]) -> Option<LocatedQuantile> {
    let all = counts.last()?.1;
    if all.is_nan() || all <= 0.0 {
        return None;
    }
    let rank = q * all;
    let at = counts.iter().position(|(_, c)| *c >= rank)?;
    let (bound, count) = counts[at];
    let (low, below) = match at {
        0 if bound > 0.0 => (0.0, 0.0),
        0 => (f64::NEG_INFINITY, 0.0),
        _ => counts[at - 1],
    };
    let inside = count - below;
    let value = match () {
        () if bound.is_infinite() && at == 0 => return None,
        () if bound.is_infinite() => low,
        () if low.is_infinite() || inside <= 0.0 => bound,
        () => low + (bound - low) * (rank - below) / inside,
    };
    Some(LocatedQuantile {
        value,
        low,
        high: bound,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PAGE: &str = r#"
# HELP http_requests_total The total number of HTTP requests.
# TYPE http_requests_total counter
http_requests_total{method="post",code="200"} 1027 1395066363000
http_requests_total{method="post",code="400"}    3 1395066363000
# Escaping:
msdos_file_access_time_seconds{path="C:\\DIR\\FILE.TXT",error="Cannot find file:\n\"FILE.TXT\""} 1.458255915e9
# TYPE temperature gauge
temperature{room="a"} 20.5
temperature{room="b",} -3
metric_without_timestamp_and_labels 12.47
# TYPE latency_seconds histogram
latency_seconds_bucket{le="0.1"} 50
latency_seconds_bucket{le="0.2"} 90 # {trace_id="x"} 0.15
latency_seconds_bucket{le="+Inf"} 100
latency_seconds_sum 12
latency_seconds_count 100
# TYPE rpc summary
rpc{quantile="0.99"} 0.5
rpc_count 7
# TYPE jobs counter
jobs_total 5
weird NaN
# EOF
"#;

    fn pick(selector: &str, as_gauge: bool) -> Result<SelectedValue, String> {
        select(&parse(PAGE).unwrap(), &selector.parse().unwrap(), as_gauge)
    }

    #[test]
    fn picks_by_type_and_label() {
        use SelectedValue::{Buckets, Counter, Gauge};
        assert_eq!(pick("http_requests_total", false), Ok(Counter(1030.0)));
        let one = r#"http_requests_total{code="400"}"#;
        assert_eq!(pick(one, false), Ok(Counter(3.0)));
        assert_eq!(pick(r#"temperature{room="b"}"#, false), Ok(Gauge(-3.0)));
        assert_eq!(pick("latency_seconds_count", false), Ok(Counter(100.0)));
        assert_eq!(pick("jobs_total", true), Ok(Counter(5.0)));
        assert_eq!(pick("rpc_count", false), Ok(Counter(7.0)));
        assert_eq!(pick(r#"rpc{quantile="0.99"}"#, false), Ok(Gauge(0.5)));
        let untyped = "metric_without_timestamp_and_labels";
        assert_eq!(pick(untyped, false), Ok(Counter(12.47)));
        assert_eq!(pick(untyped, true), Ok(Gauge(12.47)));
        let counts = vec![(0.1, 50.0), (0.2, 90.0), (f64::INFINITY, 100.0)];
        assert_eq!(pick("p99(latency_seconds)", false), Ok(Buckets(counts)));
    }

    #[test]
    fn says_what_a_page_lacks() {
        for (selector, says) in [
            ("nope", "the page has no series nope"),
            (
                "temperature",
                "2 series match temperature, such as {room=\"a\"}",
            ),
            (
                "p99(jobs)",
                "jobs is not a histogram: the page has no jobs_bucket",
            ),
            (
                "latency_seconds",
                "latency_seconds is a histogram: use mean(",
            ),
            ("mean(jobs)", "the page has no jobs_sum and jobs_count"),
        ] {
            let error = pick(selector, false).unwrap_err();
            assert!(error.starts_with(says), "{error}");
        }
        let error = parse("good 1\nbad\n").unwrap_err();
        assert_eq!(error, "line 2 is not a metric: \"bad\"");
        for bad in [
            "a{b} 1",
            "a{b=\"c} 1",
            "1a 1",
            "a x",
            "<html>",
            "a{b=\"c\" 1",
        ] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn quantiles_as_prometheus_makes_them() {
        let counts = [(0.1, 50.0), (0.2, 90.0), (f64::INFINITY, 100.0)];
        let near = |q, v: f64| assert!((locate(q, &counts).unwrap().value - v).abs() < 1e-12);
        near(0.25, 0.05);
        near(0.5, 0.1);
        near(0.7, 0.15);
        near(0.99, 0.2);
        assert_eq!(locate(0.5, &[(1.0, 0.0), (f64::INFINITY, 0.0)]), None);
        assert_eq!(locate(0.5, &[]), None);
        assert_eq!(locate(0.5, &[(f64::INFINITY, 5.0)]), None);
    }

    #[test]
    fn the_bucket_of_a_quantile() {
        let counts = [(0.1, 50.0), (0.2, 90.0), (f64::INFINITY, 100.0)];
        let edges = |q| locate(q, &counts).map(|l| (l.low, l.high)).unwrap();
        assert_eq!(edges(0.25), (0.0, 0.1));
        assert_eq!(edges(0.7), (0.1, 0.2));
        assert_eq!(edges(0.99), (0.2, f64::INFINITY));
        let below_zero = locate(0.5, &[(-1.0, 5.0), (f64::INFINITY, 5.0)]).unwrap();
        assert_eq!(
            (below_zero.low, below_zero.value, below_zero.high),
            (f64::NEG_INFINITY, -1.0, -1.0)
        );
    }

    #[test]
    fn means() {
        let page = parse(PAGE).unwrap();
        let of = |text: &str| select(&page, &text.parse().unwrap(), false);
        assert_eq!(
            of("mean(latency_seconds)"),
            Ok(SelectedValue::Mean {
                sum: 12.0,
                count: 100.0
            })
        );
    }

    #[test]
    fn selectors_print_as_they_are_written() {
        for text in [
            "a",
            r#"a{b="c",d="e f"}"#,
            "p99(a)",
            r#"p999(a{b="}"})"#,
            r#"mean(a{b="c"})"#,
        ] {
            assert_eq!(text.parse::<MetricSelector>().unwrap().to_string(), text);
        }
        for bad in [
            "",
            "p99()",
            "p(a)",
            "pxx(a)",
            "p00(a)",
            "a{b=c}",
            "a{b=\"c\"}x",
            "a b",
        ] {
            assert!(bad.parse::<MetricSelector>().is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn never_panics(text in ".*", line in "[a-z_]{0,5}[{ ][a-z=\",}\\\\ 0-9+.]*") {
            let _ = parse(&text);
            let _ = parse(&line);
            let _ = text.parse::<MetricSelector>();
        }

        #[test]
        fn what_is_written_is_read(name in "[a-z_:][a-z0-9_:]{0,8}", label in "[a-z_][a-z0-9_]{0,5}",
            value in "[^\\\\\"\n]*", number in -1e9f64..1e9)
        {
            let page = parse(&format!("{name}{{{label}=\"{value}\"}} {number}")).unwrap();
            prop_assert_eq!(&page.samples[0].name, &name);
            prop_assert_eq!(&page.samples[0].labels[0], &(label, value));
            prop_assert_eq!(page.samples[0].value, number);
        }

        #[test]
        fn quantiles_lie_within_the_bounds(counts in prop::collection::vec(0u32..100, 1..8), q in 0.01f64..0.99) {
            let mut sum = 0.0;
            let mut all: Vec<(f64, f64)> = counts.iter().enumerate().map(|(i, c)| {
                sum += f64::from(*c);
                (f64::from(u32::try_from(i).unwrap() + 1), sum)
            }).collect();
            all.push((f64::INFINITY, sum));
            if let Some(found) = locate(q, &all) {
                let v = found.value;
                prop_assert!(found.low <= v && v <= found.high);
                prop_assert!((0.0..=f64::from(u32::try_from(counts.len()).unwrap())).contains(&v));
            }
        }
    }
}
