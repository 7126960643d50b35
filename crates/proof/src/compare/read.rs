//! A result's file as a list of rows.

use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::facts::{Fact, Value, facts};
use super::{Row, rows};
use crate::bench::chase::ChaseResult;
use crate::bench::mover::MoverResult;
use crate::bench::oltp::OltpResult;
use crate::bench::pagetables::PageTablesResult;
use crate::bench::pin::PinResult;
use crate::bench::{About, BenchEnding};
use crate::result::{Ending, HostFingerprint, ResultFile};
use crate::stats::Better;

/// The schema that is read here.
const SCHEMA: u64 = 1;

/// A result of any kind.
#[derive(Debug, Clone, PartialEq)]
pub struct Measured {
    /// Name of the experiment: `oltp`, `chase`; of `prove` the metric's.
    pub name: String,
    /// Unit of its samples.
    pub unit: String,
    /// Which way it gets better.
    pub better: Better,
    /// When it began (RFC 3339, UTC).
    pub started: String,
    /// Whether it was ended before it was done.
    pub is_interrupted: bool,
    /// The exact command.
    pub command: Vec<String>,
    /// The machine.
    pub host: HostFingerprint,
    /// What was measured, arm by arm in the order of the file.
    pub rows: Vec<Row>,
    /// On what and with what.
    pub facts: Vec<Fact>,
    /// What a reader must know before believing it.
    pub caveats: Vec<String>,
}

/// Why a text is no result.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotAResult {
    /// It ends too early.
    #[error("it ends in the middle (line {line}): it was not written to its end, or cut")]
    Truncated {
        /// Where.
        line: usize,
    },
    /// It is no JSON.
    #[error("it is no JSON: {0}")]
    NotJson(String),
    /// It is JSON, and no result.
    #[error("it has no '{0}': it is no result of prove or bench")]
    Lacks(&'static str),
    /// It is written by another version.
    #[error("it has schema {0}, and this program reads {SCHEMA}")]
    OtherSchema(String),
    /// Its experiment is not known here.
    #[error("it is of an experiment '{0}', which this program does not know")]
    UnknownExperiment(String),
    /// It is of a known kind, and does not read.
    #[error("it does not read as a result of {kind}: {reason}")]
    Malformed {
        /// Of which kind.
        kind: String,
        /// Why.
        reason: String,
    },
    /// It holds nothing.
    #[error("it holds no samples: {0}")]
    Empty(&'static str),
}

impl NotAResult {
    /// What to do next.
    pub fn next(&self) -> String {
        match self {
            NotAResult::Truncated { .. } => "copy it again, or measure again",
            NotAResult::NotJson(_) | NotAResult::Lacks(_) => {
                "name a file that --output wrote: hugeleaf bench --help; two traces go to: hugeleaf \
                 trace diff"
            }
            NotAResult::OtherSchema(_) | NotAResult::UnknownExperiment(_) => {
                "compare with the version of hugeleaf that wrote it, or measure again"
            }
            NotAResult::Malformed { .. } => "measure again: the file was changed or is damaged",
            NotAResult::Empty(_) => "measure again, and let it end",
        }
        .to_owned()
    }
}

/// What tells the kinds of results apart.
#[derive(Debug, Deserialize)]
struct Head {
    name: String,
    /// `prove` has one.
    #[serde(default)]
    design: Option<serde_json::Value>,
}

impl Measured {
    /// Reads the text of a result's file.
    ///
    /// # Errors
    /// [`NotAResult`].
    pub fn read(text: &str) -> Result<Measured, NotAResult> {
        let whole: serde_json::Value =
            serde_json::from_str(text).map_err(|e| match e.is_eof() {
                true => NotAResult::Truncated { line: e.line() },
                false => NotAResult::NotJson(e.to_string()),
            })?;
        match whole.get("schema") {
            None => return Err(NotAResult::Lacks("schema")),
            Some(schema) if schema.as_u64() != Some(SCHEMA) => {
                return Err(NotAResult::OtherSchema(schema.to_string()));
            }
            Some(_) => {}
        }
        let head = whole
            .get("experiment")
            .ok_or(NotAResult::Lacks("experiment"))?;
        let head = Head::deserialize(head).map_err(|_| NotAResult::Lacks("experiment.name"))?;
        let measured = match (head.name.as_str(), head.design) {
            (_, Some(_)) => of_prove(typed(whole, "prove")?),
            ("chase", None) => of_chase(typed(whole, "bench chase")?),
            ("pagetables", None) => of_pagetables(typed(whole, "bench pagetables")?),
            ("mover", None) => of_mover(typed(whole, "bench mover")?),
            ("pin", None) => of_pin(typed(whole, "bench pin")?),
            ("oltp", None) => of_oltp(typed(whole, "bench oltp")?),
            (name, None) => return Err(NotAResult::UnknownExperiment(name.to_owned())),
        };
        if measured.rows.iter().all(|row| row.samples.is_empty()) {
            return Err(NotAResult::Empty(match measured.is_interrupted {
                true => "it was interrupted before anything was measured",
                false => "none of its arms was had",
            }));
        }
        Ok(measured)
    }

    /// Its arms, in its order.
    pub fn arms(&self) -> Vec<String> {
        let mut arms: Vec<String> = Vec::new();
        for row in &self.rows {
            if !arms.contains(&row.arm) {
                arms.push(row.arm.clone());
            }
        }
        arms
    }

    /// `chase (ns, lower is better)`.
    pub fn in_words(&self) -> String {
        let better = match self.better {
            Better::Higher => "higher",
            Better::Lower => "lower",
        };
        format!("{} ({}, {better} is better)", self.name, self.unit)
    }

    fn of_bench(about: About, host: HostFingerprint, rows: Vec<Row>) -> Measured {
        Measured {
            name: about.name,
            unit: about.unit,
            better: about.better,
            started: about.started,
            is_interrupted: about.ending == BenchEnding::Interrupted,
            command: Vec::new(),
            facts: facts("host", &host),
            host,
            rows,
            caveats: Vec::new(),
        }
    }

    fn with(mut self, facts: Vec<Fact>, command: Vec<String>, caveats: Vec<String>) -> Measured {
        self.facts.extend(facts);
        self.command = command;
        self.caveats = caveats;
        self
    }
}

fn typed<T: DeserializeOwned>(whole: serde_json::Value, kind: &str) -> Result<T, NotAResult> {
    serde_json::from_value(whole).map_err(|e| NotAResult::Malformed {
        kind: kind.to_owned(),
        reason: e.to_string(),
    })
}

fn of_chase(result: ChaseResult) -> Measured {
    let rows = rows::chase(&result);
    Measured::of_bench(result.experiment, result.host, rows).with(
        facts("settings", &result.settings),
        result.command,
        result.caveats,
    )
}

fn of_pagetables(result: PageTablesResult) -> Measured {
    let rows = rows::pagetables(&result);
    Measured::of_bench(result.experiment, result.host, rows).with(
        facts("settings", &result.settings),
        result.command,
        result.caveats,
    )
}

fn of_mover(result: MoverResult) -> Measured {
    let rows = rows::mover(&result);
    Measured::of_bench(result.experiment, result.host, rows).with(
        facts("settings", &result.settings),
        result.command,
        result.caveats,
    )
}

fn of_pin(result: PinResult) -> Measured {
    let rows = rows::pin(&result);
    Measured::of_bench(result.experiment, result.host, rows).with(
        facts("settings", &result.settings),
        result.command,
        result.caveats,
    )
}

fn of_oltp(result: OltpResult) -> Measured {
    let rows = rows::oltp(&result);
    let mut all = facts("database", &result.database);
    all.extend(facts("settings", &result.settings));
    Measured::of_bench(result.experiment, result.host, rows).with(
        all,
        result.command,
        result.caveats,
    )
}

fn of_prove(result: ResultFile) -> Measured {
    let rows = rows::prove(&result);
    let about = result.experiment;
    let mut all = facts("host", &result.host);
    all.push(Fact {
        name: "experiment.target".to_owned(),
        value: Value::Text(about.target),
    });
    all.extend(facts("settings", &result.settings));
    Measured {
        name: about.name,
        unit: about.unit,
        better: about.better,
        started: about.started,
        is_interrupted: about.ending == Ending::Interrupted,
        command: result.command,
        host: result.host,
        rows,
        facts: all,
        caveats: result.caveats,
    }
}
