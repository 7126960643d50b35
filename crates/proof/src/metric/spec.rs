//! What a kind of metric is, and what a person types after `--metric` for it. No input or output.

use std::fmt;
use std::sync::atomic::AtomicBool;

use hugeleaf_sys::{Pid, Question};

use super::reading::{Metric, MetricError, PATIENCE};
use super::shown::kind as kind_of;
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
    pub example: &'static str,
    pub needs_address: bool,
    /// Whether `gauge:lower:` and `gauge:higher:` may stand before it.
    pub can_be_gauge: bool,
    pub(super) parse: fn(&Typed<'_>) -> Result<MetricSpec, SpecError>,
}

impl MetricKind {
    pub(super) fn name(&self) -> String {
        let colon = if self.needs_address { ":" } else { "" };
        format!("{}{colon}", self.names[0])
    }
}

/// Connects; given are the processes of the target, for hardware counters.
type Open = Box<dyn Fn(&[Pid], Question<'_>) -> Result<Metric, MetricError> + Send + Sync>;

pub struct MetricSpec {
    shown: String,
    open: Open,
}

impl MetricSpec {
    pub(super) fn new(
        shown: String,
        open: impl Fn(&[Pid], Question<'_>) -> Result<Metric, MetricError> + Send + Sync + 'static,
    ) -> MetricSpec {
        let open = Box::new(open);
        MetricSpec { shown, open }
    }

    /// It as it may be shown: without passwords.
    pub fn shown(&self) -> &str {
        &self.shown
    }

    /// Connects, within a few seconds and until `stop` is set. `pids` are the processes of the target, for hardware counters.
    pub fn open(&self, pids: &[Pid], stop: &AtomicBool) -> Result<Metric, MetricError> {
        (self.open)(pids, Question::new(PATIENCE).or_by(stop))
    }
}

impl fmt::Debug for MetricSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("MetricSpec").field(&self.shown).finish()
    }
}

pub(super) struct Typed<'a> {
    pub text: &'a str,
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
        SpecError(format!("{}: {why}", kind_of(self.text)))
    }
}

/// Why a text names no metric, with as much of the text as may be shown.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("--metric {0}")]
pub struct SpecError(pub(super) String);
