//! Kinds of metrics, and the text that a user types after `--metric`. No input or output.

use std::fmt;
use std::sync::atomic::AtomicBool;

use hugeleaf_sys::{Deadline, Pid};

use super::reading::{Metric, MetricError, PATIENCE};
use super::redact::kind as kind_of;
use crate::stats::BetterDirection;

/// A kind of metric: its texts in help, documents and errors, and its parser.
#[derive(Debug)]
pub struct MetricKind {
    /// Texts before the colon; the first is the name, the others are aliases.
    pub names: &'static [&'static str],
    /// The form, such as `postgres:DSN`.
    pub form: &'static str,
    /// The measured quantity, in Markdown without a full stop.
    pub help: &'static str,
    pub example: &'static str,
    pub needs_address: bool,
    /// True if `gauge:lower:` and `gauge:higher:` may precede it.
    pub can_be_gauge: bool,
    pub(super) parse: fn(&MetricArgument<'_>) -> Result<MetricSpec, MetricSpecError>,
}

impl MetricKind {
    pub(super) fn name(&self) -> String {
        let colon = if self.needs_address { ":" } else { "" };
        format!("{}{colon}", self.names[0])
    }
}

/// Connects; the PIDs of the target are for hardware counters.
type MetricOpener = Box<dyn Fn(&[Pid], Deadline<'_>) -> Result<Metric, MetricError> + Send + Sync>;

pub struct MetricSpec {
    shown: String,
    open: MetricOpener,
}

impl MetricSpec {
    pub(super) fn new(
        shown: String,
        open: impl Fn(&[Pid], Deadline<'_>) -> Result<Metric, MetricError> + Send + Sync + 'static,
    ) -> MetricSpec {
        let open = Box::new(open);
        MetricSpec { shown, open }
    }

    /// Returns the metric for display, without passwords.
    pub fn shown(&self) -> &str {
        &self.shown
    }

    /// Connects, within a few seconds and until `stop` is set. `pids` are the target's processes, for hardware counters.
    pub fn open(&self, pids: &[Pid], stop: &AtomicBool) -> Result<Metric, MetricError> {
        (self.open)(pids, Deadline::new(PATIENCE).with_stop(stop))
    }
}

impl fmt::Debug for MetricSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("MetricSpec").field(&self.shown).finish()
    }
}

pub(super) struct MetricArgument<'a> {
    pub text: &'a str,
    pub name: &'a str,
    /// The text after the colon; empty without one.
    pub rest: &'a str,
    /// The better direction of a gauge; `None` for a rising counter.
    pub gauge: Option<BetterDirection>,
}

impl MetricArgument<'_> {
    /// Returns the address: the text after the colon, or all of `postgres://…`, which is an address itself.
    pub fn address(&self) -> String {
        match self.rest.starts_with("//") {
            true => format!("{}:{}", self.name, self.rest),
            false => self.rest.to_owned(),
        }
    }

    /// Returns `gauge:lower:` if typed, in either order.
    pub fn gauge_prefix(&self) -> &'static str {
        match self.gauge {
            Some(BetterDirection::Lower) => "gauge:lower:",
            Some(BetterDirection::Higher) => "gauge:higher:",
            None | Some(BetterDirection::Neither) => "",
        }
    }

    pub fn malformed(&self, why: impl fmt::Display) -> MetricSpecError {
        MetricSpecError(format!("{}: {why}", kind_of(self.text)))
    }
}

/// The reason why a text names no metric, with its displayable part.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("--metric {0}")]
pub struct MetricSpecError(pub(super) String);
