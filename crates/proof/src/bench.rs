//! `bench`: what pages of each size cost and gain, measured on memory of this very program. Where
//! a host has no counters, other reports quote these as calibration.
//!
//! [`chase`] is the latency of a dependent read by working set; [`pagetables`] what it costs that
//! many processes attach one region; [`mover`] the data path of a backup server;
//! [`pin`] what it costs to pin a buffer; [`oltp`] orders a minute on a database. Arms are page sizes. Those that are unavailable are in the
//! result with the reason and what to do; nothing of the host is changed to get them.

pub mod chase;
pub mod mover;
pub mod oltp;
pub mod pagetables;
pub mod pin;
mod processors;
mod room;
mod spaces;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use hugeleaf::MemoryError;
use hugeleaf_host::{Host, Root};
use hugeleaf_units::Bytes;
use hugeleaf_workload::ChildError;
use hugeleaf_workload::mover::MoverError;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::result::{HostFingerprint, Knob};
use crate::rows::{self, ArmAbout, Place, Quantity, Results, Row, Unavailable};

pub use crate::spread::{CONFIDENCE, Spread, effect_by_round, median_interval};
pub use processors::ProcessorTimes;
pub use room::room;

/// What a result begins with.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct About {
    /// `chase` or `pagetables`.
    pub name: String,
    /// When it began (RFC 3339, UTC).
    pub started: String,
    /// How long it took, taking memory included.
    pub duration_seconds: f64,
    /// Why it ended.
    pub ending: BenchEnding,
}

/// Why a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BenchEnding {
    /// All of it was measured.
    Done,
    /// Ctrl-C.
    Interrupted,
}

/// An arm, or a part of one, that was unavailable.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shortage {
    /// From this length on (the working set, the region) there was none.
    pub from_bytes: u64,
    /// Why.
    pub reason: String,
    /// What to do, with which the largest that was asked for is available.
    pub next: String,
}

impl Shortage {
    /// As a result keeps it.
    fn of(&self, arm: &str, at: Vec<Place>) -> Unavailable {
        Unavailable {
            arm: arm.to_owned(),
            at,
            from_bytes: self.from_bytes,
            reason: self.reason.clone(),
            next: self.next.clone(),
        }
    }

    /// Another length that was unavailable either: from the smallest on, with the reason and the way of
    /// the largest.
    fn join(had: &mut Option<Shortage>, length: Bytes, error: &MemoryError) {
        let from = had.as_ref().map_or(u64::MAX, |n| n.from_bytes);
        *had = Some(Shortage {
            from_bytes: from.min(length.get()),
            reason: error.to_string(),
            next: error.next(),
        });
    }
}

/// What the host was like.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Circumstances {
    /// The machine.
    pub host: HostFingerprint,
    /// Knobs in force.
    pub knobs: Vec<Knob>,
    /// The exact command.
    pub command: Vec<String>,
    /// When it began (RFC 3339, UTC).
    pub started: String,
}

impl From<crate::Circumstances> for Circumstances {
    fn from(other: crate::Circumstances) -> Circumstances {
        Circumstances {
            host: other.host,
            knobs: other.knobs,
            command: other.command,
            started: other.started,
        }
    }
}

/// Where it runs.
#[derive(Debug)]
pub struct Machine<'a> {
    /// Where the host is read.
    pub root: &'a Root,
    /// The host.
    pub host: &'a Host,
    /// What a result says of it.
    pub circumstances: &'a Circumstances,
    /// The most ordinary memory that may be taken.
    pub most: Bytes,
    /// Set from outside to end early.
    pub stop: &'a Arc<AtomicBool>,
}

/// What is happening, for whoever watches.
#[derive(Debug, Clone, PartialEq)]
pub enum BenchEvent {
    /// Memory of a length is being taken, or processes are being started.
    Taking(String),
    /// So many of so many samples are there.
    At {
        /// How many.
        done: u64,
        /// Of how many.
        of: u64,
        /// Which one comes next.
        what: String,
    },
    /// What has to be known of what follows.
    Note(String),
    /// An arm that was unavailable.
    Unavailable {
        /// The arm, as its flag names it.
        arm: String,
        /// Why.
        reason: String,
    },
}

/// Why there is no result.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// More memory than may be taken.
    #[error("{what} takes {asked}, and at most {most} may be taken (half of what is available)")]
    TooLarge {
        /// What takes it.
        what: String,
        /// How much.
        asked: Bytes,
        /// What may be taken.
        most: Bytes,
    },
    /// None of the arms were available.
    #[error("none of the pages asked for is available; {arm}: {reason}")]
    NothingHad {
        /// The first of them.
        arm: String,
        /// Why not.
        reason: String,
        /// What to do.
        next: String,
    },
    /// Memory, for a reason that is not the page size's.
    #[error("{0}")]
    Memory(#[from] MemoryError),
    /// Processes that attach.
    #[error("{0}")]
    Attach(#[from] ChildError),
    /// Blocks that could not be moved.
    #[error("{0}")]
    Mover(#[from] MoverError),
    /// The host could not be read.
    #[error("{0}")]
    Unreadable(#[from] hugeleaf_host::ReadError),
    /// It was stopped before there was anything to tell.
    #[error("stopped on request")]
    Stopped,
}

impl BenchError {
    /// What to do next.
    pub fn next(&self) -> String {
        match self {
            BenchError::TooLarge { most, .. } => {
                format!("ask for less than {most} in all, or free memory: hugeleaf mem")
            }
            BenchError::NothingHad { next, .. } => next.clone(),
            BenchError::Memory(e) => e.next(),
            BenchError::Attach(e) => e.next(),
            BenchError::Mover(e) => e.next(),
            BenchError::Unreadable(_) => "hugeleaf status    # what can be read here".to_owned(),
            BenchError::Stopped => "run it again".to_owned(),
        }
    }
}

/// What was measured of arms, before it is rows.
#[derive(Debug)]
struct Measured<'a, S, A> {
    settings: &'a S,
    circumstances: Circumstances,
    experiment: About,
    arms: Vec<A>,
    caveats: Vec<String>,
}

impl<'a, S, A> Measured<'a, S, A> {
    fn new(
        name: &str,
        settings: &'a S,
        arms: Vec<A>,
        circumstances: &Circumstances,
        (duration, ending): (Duration, BenchEnding),
    ) -> Self {
        Measured {
            settings,
            circumstances: circumstances.clone(),
            experiment: About {
                name: name.to_owned(),
                started: circumstances.started.clone(),
                duration_seconds: duration.as_secs_f64(),
                ending,
            },
            arms,
            caveats: Vec::new(),
        }
    }

    /// A result without rows; `settings` are those of this workload.
    fn results(&self, title: String, how: String, settings: &serde_json::Value) -> Results {
        let mut settings = rows::fields(settings);
        settings.insert("confidence".to_owned(), CONFIDENCE.into());
        settings.insert("knobs".to_owned(), json!(self.circumstances.knobs));
        settings.insert("version".to_owned(), env!("CARGO_PKG_VERSION").into());
        Parts {
            about: &self.experiment,
            title,
            how,
            host: &self.circumstances.host,
            settings,
            caveats: &self.caveats,
            command: &self.circumstances.command,
        }
        .results()
    }
}

/// What every result has in addition to its arms and rows.
struct Parts<'a> {
    about: &'a About,
    title: String,
    how: String,
    host: &'a HostFingerprint,
    settings: serde_json::Map<String, serde_json::Value>,
    caveats: &'a [String],
    command: &'a [String],
}

impl Parts<'_> {
    fn results(self) -> Results {
        let mut results = Results::empty(&self.about.name, &self.about.started);
        let about = &mut results.experiment;
        about.title = self.title;
        about.how = self.how;
        about.duration_seconds = Some(self.about.duration_seconds);
        if self.about.ending == BenchEnding::Interrupted {
            "interrupted".clone_into(&mut about.ending);
        }
        results.caveats = self.caveats.to_vec();
        results.host = rows::fields(self.host);
        results.settings = self.settings;
        results.command = self.command.to_vec();
        results
    }
}

/// Puts an arm into a result, once, and what was unavailable of it at a place.
fn add_arm(results: &mut Results, arm: ArmAbout, at: &[Place], shortage: Option<&Shortage>) {
    let not = shortage.map(|not| not.of(&arm.name, at.to_vec()));
    results.unavailable.extend(not);
    if results.arms.iter().all(|known| known.name != arm.name) {
        results.arms.push(arm);
    }
}

/// The row of an arm that there is nothing of.
fn without_samples(arm: &str, at: Vec<Place>, quantity: Quantity) -> Row {
    Row::new(arm, at, quantity, Vec::new())
}

/// Why there is nothing to tell: of the first arm that was unavailable, if any. Each is a label and why
/// it was unavailable.
fn nothing<'a>(arms: impl IntoIterator<Item = (&'a str, &'a Option<Shortage>)>) -> BenchError {
    let mut arms = arms.into_iter();
    match arms.find_map(|(arm, shortage)| Some((arm, shortage.as_ref()?))) {
        Some((arm, why)) => BenchError::NothingHad {
            arm: arm.to_owned(),
            reason: why.reason.clone(),
            next: why.next.clone(),
        },
        None => BenchError::Stopped,
    }
}

/// Whether the reason why memory was unavailable is that there are no such pages: then an arm is
/// unavailable. Anything else ends the run.
pub fn is_unavailable(error: &MemoryError) -> bool {
    matches!(
        error,
        MemoryError::Short { .. }
            | MemoryError::NoSuchSize(_)
            | MemoryError::NotAMultiple { .. }
            | MemoryError::TooLarge { .. }
    )
}
