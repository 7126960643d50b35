//! What a person types after `--metric`, parsed by the table of metrics. No input or output.

use std::fmt;

use hugeleaf_sys::Pid;

use super::shown::kind as kind_of;
use super::{METRICS, Metric, MetricError};
use crate::stats::Better;

/// A kind of metric: all that help, documents and errors say of it, and its parser.
#[derive(Debug)]
pub struct MetricKind {
    /// What stands before the colon; the first is its name, the others are taken as well.
    pub names: &'static [&'static str],
    /// How it is written, as in `postgres:DSN`.
    pub form: &'static str,
    /// What it measures, in Markdown without a full stop.
    pub help: &'static str,
    /// One that parses.
    pub example: &'static str,
    /// Whether something has to follow behind a colon.
    pub needs_address: bool,
    /// Whether `gauge:lower:` and `gauge:higher:` may stand before it.
    pub can_be_gauge: bool,
    pub(super) parse: fn(&Typed<'_>) -> Result<MetricSpec, SpecError>,
}

impl MetricKind {
    fn name(&self) -> String {
        let colon = if self.needs_address { ":" } else { "" };
        format!("{}{colon}", self.names[0])
    }
}

/// Connects; given are the processes of the target, for hardware counters.
type Open = Box<dyn Fn(&[Pid]) -> Result<Box<dyn Metric>, MetricError> + Send + Sync>;

/// A metric as it was asked for.
pub struct MetricSpec {
    shown: String,
    open: Open,
}

impl MetricSpec {
    pub(super) fn new(
        shown: String,
        open: impl Fn(&[Pid]) -> Result<Box<dyn Metric>, MetricError> + Send + Sync + 'static,
    ) -> MetricSpec {
        let open = Box::new(open);
        MetricSpec { shown, open }
    }

    /// It as it may be shown: without passwords.
    pub fn shown(&self) -> &str {
        &self.shown
    }

    /// Connects. `pids` are the processes of the target, for hardware counters.
    ///
    /// # Errors
    /// [`MetricError::Unreachable`], [`MetricError::NoCounter`], and [`MetricError::Garbage`] where
    /// what is there is no such metric.
    pub fn open(&self, pids: &[Pid]) -> Result<Box<dyn Metric>, MetricError> {
        (self.open)(pids)
    }
}

impl fmt::Debug for MetricSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("MetricSpec").field(&self.shown).finish()
    }
}

/// What was typed, taken apart.
pub(super) struct Typed<'a> {
    /// All of it.
    pub text: &'a str,
    /// What stands before the colon.
    pub name: &'a str,
    /// What stands behind it; empty where there is none.
    pub rest: &'a str,
    /// Which way a gauge gets better; `None` for a rising counter.
    pub gauge: Option<Better>,
}

impl Typed<'_> {
    /// The address: what stands behind the colon, or all of `postgres://…`, which is one by itself.
    pub fn address(&self) -> String {
        match self.rest.starts_with("//") {
            true => format!("{}:{}", self.name, self.rest),
            false => self.rest.to_owned(),
        }
    }

    /// `gauge:lower:` where that was typed, in either order.
    pub fn gauge_prefix(&self) -> &'static str {
        match self.gauge {
            Some(Better::Lower) => "gauge:lower:",
            Some(Better::Higher) => "gauge:higher:",
            None | Some(Better::Neither) => "",
        }
    }

    pub fn malformed(&self, why: impl fmt::Display) -> SpecError {
        SpecError::Malformed(kind_of(self.text), why.to_string())
    }
}

/// Why a text names no metric. The first of each is the text, as far as it may be shown.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SpecError {
    /// It starts with no kind known.
    #[error(
        "--metric '{0}': not one of {known}, gauge:lower:…, gauge:higher:…",
        known = names_of(|_| true).join(", ")
    )]
    UnknownKind(String),
    /// Nothing after the colon.
    #[error("--metric {0} lacks what comes after the colon, as in {1}")]
    Empty(String, &'static str),
    /// `gauge:` without the direction.
    #[error("--metric {0}: a gauge needs a direction: gauge:lower:… or gauge:higher:…")]
    NoDirection(String),
    /// `gauge:` before something that has its own direction.
    #[error(
        "--metric {0}: only {which} can be gauges",
        which = names_of(|kind| kind.can_be_gauge).join(" and ")
    )]
    NotAGauge(String),
    /// What follows the kind is not what it takes.
    #[error("--metric {0}: {1}")]
    Malformed(String, String),
}

/// The names of some kinds, as they are typed.
pub(super) fn names_of(which: impl Fn(&MetricKind) -> bool) -> Vec<String> {
    let some = METRICS.iter().filter(|kind| which(kind));
    some.map(MetricKind::name).collect()
}

/// How each metric is written and what it measures, in Markdown, for help and documents.
pub fn forms_and_help() -> Vec<(String, String)> {
    let row = |kind: &MetricKind| {
        let example = match kind.example == kind.names[0] {
            true => String::new(),
            false => format!("; as in `{}`", kind.example),
        };
        (kind.form.to_owned(), format!("{}{example}", kind.help))
    };
    let gauge = format!(
        "a value instead of a rising counter, better when lower; `gauge:higher:…` the other way \
         round. Before {}",
        names_of(|kind| kind.can_be_gauge)
            .iter()
            .map(|name| format!("`{name}`"))
            .collect::<Vec<_>>()
            .join(" and ")
    );
    let rows = METRICS.iter().map(row);
    rows.chain([("gauge:lower:…".to_owned(), gauge)]).collect()
}

impl std::str::FromStr for MetricSpec {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<MetricSpec, SpecError> {
        let text = text.trim();
        let (inner, gauge) = match text.strip_prefix("gauge:") {
            Some(rest) => {
                let found = direction(rest);
                let (inner, better) = found.ok_or_else(|| SpecError::NoDirection(kind_of(text)))?;
                (inner, Some(better))
            }
            None => (text, None),
        };
        let (name, rest) = match inner.split_once(':') {
            Some((name, rest)) => (name, Some(rest)),
            None => (inner, None),
        };
        let kind = METRICS.iter().find(|kind| kind.names.contains(&name));
        let kind = kind.filter(|kind| rest.is_some() || !kind.needs_address);
        let kind = match (kind, gauge) {
            (Some(kind), None) => kind,
            (Some(kind), Some(_)) if kind.can_be_gauge => kind,
            (_, Some(_)) => return Err(SpecError::NotAGauge(kind_of(text))),
            (None, None) => return Err(SpecError::UnknownKind(kind_of(text))),
        };
        if rest.is_some_and(|rest| rest.trim().is_empty()) {
            return Err(SpecError::Empty(kind_of(text), kind.example));
        }
        let rest = rest.unwrap_or_default();
        (kind.parse)(&Typed {
            text,
            name,
            rest,
            gauge,
        })
    }
}

/// Of `lower:cmd:…` what stands behind the direction; `cmd:…:lower` means the same.
fn direction(text: &str) -> Option<(&str, Better)> {
    let words = [("lower", Better::Lower), ("higher", Better::Higher)];
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn reads_what_people_type() {
        for (text, shown) in [
            (
                "postgres:host=/run/pg dbname=a",
                "postgres:host=/run/pg dbname=a",
            ),
            ("postgres://u:p@h/db", "postgres:host=h user=u dbname=db"),
            ("redis:localhost:6379", "redis://localhost:6379"),
            ("redis:/run/redis.sock", "unix:///run/redis.sock"),
            ("redis://h:1/0", "redis://h:1"),
            ("redis:redis://h:1", "redis://h:1"),
            ("mysql:root@h:3306", "mysql://root@h"),
            ("mysql://root@h/x", "mysql://root@h/x"),
            (
                "mysql:/run/my.sock#Com_commit+Com_rollback",
                "mysql://localhost?socket=/run/my.sock#Com_commit+Com_rollback",
            ),
            ("cmd:cat /tmp/n", "cmd:cat /tmp/n"),
            ("cpi", "cpi"),
            ("walk-cycles", "walk-cycles"),
            ("walk-cycles:r1001008", "walk-cycles:r1001008"),
            ("http://h:9/metrics#a_total", "http://h:9/metrics#a_total"),
            ("http:h:9/metrics#a_total", "http://h:9/metrics#a_total"),
            (
                "http:http://h:9/metrics#a_total",
                "http://h:9/metrics#a_total",
            ),
        ] {
            let spec: MetricSpec = text.parse().unwrap();
            assert_eq!(spec.shown(), shown, "{text}");
        }
    }

    #[test]
    fn gauges_have_a_direction_in_either_order() {
        for (text, better) in [
            ("gauge:lower:cmd:echo 1", Better::Lower),
            ("gauge:cmd:echo 1; : a:b:lower", Better::Lower),
            ("gauge:higher:cmd:echo 1", Better::Higher),
        ] {
            let spec: MetricSpec = text.parse().unwrap();
            let mut metric = spec.open(&[]).unwrap();
            assert_eq!(metric.better(), better, "{text}");
            assert_eq!(
                metric.read(),
                Ok(super::super::Reading::Gauge(1.0)),
                "{text}"
            );
        }
    }

    #[test]
    fn refuses_the_rest_by_name() {
        for (text, want) in [
            ("", "not one of"),
            ("tps", "not one of postgres:, redis:, "),
            ("oracle:x", "not one of"),
            ("redis", "not one of"),
            ("cmd:", "lacks what comes after the colon, as in cmd:"),
            ("gauge:cmd:x", "direction"),
            ("gauge:lower:redis:x", "only cmd: and http: can be gauges"),
            ("gauge:lower:cmd:", "lacks"),
            ("http://h/metrics", "which metric"),
            ("http://#a", "address"),
            ("https://h/metrics#a", "https"),
            ("http:https://h/metrics#a", "https"),
            ("cpi:x", "nothing"),
            ("walk-cycles:x", "raw event"),
            ("mysql:h#a;b", "status variable"),
        ] {
            let e = text.parse::<MetricSpec>().unwrap_err().to_string();
            assert!(e.contains(want), "{text}: {e}");
        }
    }

    #[test]
    fn every_kind_has_an_example_that_is_of_its_form() {
        for kind in METRICS {
            let form: String = kind.form.chars().take_while(|c| *c != '[').collect();
            let start = form.split_inclusive(':').next().unwrap();
            assert!(kind.example.starts_with(start), "{kind:?}");
            assert!(
                kind.names.contains(&start.trim_end_matches(':')),
                "{kind:?}"
            );
            assert!(kind.example.parse::<MetricSpec>().is_ok(), "{kind:?}");
        }
    }

    /// `HUGELEAF_BLESS=1` writes the tables of the documents anew.
    #[test]
    fn documents_list_these_metrics() {
        const HEAD: &str = "| `--metric` | measures |\n|---|---|\n";
        let cell = |text: &str| text.replace('|', "\\|");
        let rows = forms_and_help().into_iter();
        let table: String = rows
            .map(|(form, help)| format!("| `{}` | {} |\n", cell(&form), cell(&help)))
            .collect();
        for name in ["reference/commands.md", "guide/prove.md"] {
            let path = format!("{}/../../docs/{name}", env!("CARGO_MANIFEST_DIR"));
            let text = std::fs::read_to_string(&path).unwrap();
            let (before, rest) = text.split_once(HEAD).expect("a table of metrics");
            let (_, after) = rest.split_once("\n\n").unwrap();
            let want = format!("{before}{HEAD}{table}\n{after}");
            if std::env::var_os("HUGELEAF_BLESS").is_some() {
                std::fs::write(&path, &want).unwrap();
            }
            assert!(
                text == want || std::env::var_os("HUGELEAF_BLESS").is_some(),
                "{name} lists other metrics; HUGELEAF_BLESS=1 writes it anew"
            );
        }
    }

    proptest! {
        #[test]
        fn never_panics(text in ".*", kind in "(postgres|redis|mysql|cmd|http|gauge|walk-cycles):.*") {
            let _ = text.parse::<MetricSpec>();
            let _ = kind.parse::<MetricSpec>();
        }
    }
}
