//! `bench`: what pages of each size cost and gain, measured on memory of this very program. Where
//! a host has no counters, other reports quote these as calibration.
//!
//! [`chase`] is the latency of a dependent read by working set; [`described`] any program that a file describes. The lab
//! (`lab/`) has more experiments; [`Measuring`] is what all of them are made with. Arms are page sizes. Those that are
//! unavailable are in the result with the reason and what to do; nothing of the host is changed to get them.

pub mod chase;
pub mod described;
mod layout;
mod measuring;
mod room;
mod started;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use hugeleaf::MemoryError;
use hugeleaf_host::{Host, Root};
use hugeleaf_units::Bytes;

use crate::experiment::Circumstances;

pub use layout::{astray, held_by_folio};
pub use measuring::Measuring;
pub use room::room;
pub use started::{MovedNone, lacks_pool, page_tables, promote, refusal, under_run};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shortage {
    /// From this length on (the working set, the region) there is none.
    pub from: Bytes,
    pub reason: String,
    /// What to do, with which the largest that was asked for is available.
    pub next: String,
}

#[derive(Debug)]
pub struct Machine<'a> {
    pub root: &'a Root,
    pub host: &'a Host,
    pub circumstances: &'a Circumstances,
    /// The most ordinary memory that may be taken.
    pub most: Bytes,
    /// The program hugeleaf: servers are started under its `run`, and promoted by it.
    pub program: &'a Path,
    pub stop: &'a Arc<AtomicBool>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum BenchEvent {
    /// Memory of a length is being taken, or processes are being started.
    Taking(String),
    At {
        done: u64,
        of: u64,
        what: String,
    },
    Note(String),
    Unavailable {
        arm: String,
        reason: String,
    },
}

#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    #[error("{what} takes {asked}, and at most {most} may be taken (half of what is available)")]
    TooLarge {
        what: String,
        asked: Bytes,
        most: Bytes,
    },
    #[error("none of the pages asked for is available; {arm}: {reason}")]
    NothingHad {
        arm: String,
        reason: String,
        next: String,
    },
    #[error("{0}")]
    Memory(#[from] MemoryError),
    /// A part of an experiment failed; the name of the experiment is put before it.
    #[error("{0}")]
    Part(Refusal),
    #[error("{0}")]
    Unreadable(#[from] hugeleaf_host::ReadError),
    #[error("{0}")]
    Refused(Refusal),
    /// The host lacks the pages of an arm; the others go on.
    #[error("{}", .0.reason)]
    Lacking(Shortage),
    #[error("stopped on request")]
    Stopped,
}

impl BenchError {
    pub fn next(&self) -> String {
        match self {
            BenchError::TooLarge { most, .. } => {
                format!("ask for less than {most} in all, or free memory: hugeleaf mem")
            }
            BenchError::NothingHad { next, .. } => next.clone(),
            BenchError::Memory(e) => e.next(),
            BenchError::Part(e) | BenchError::Refused(e) => e.next.clone(),
            BenchError::Lacking(e) => e.next.clone(),
            BenchError::Unreadable(_) => "hugeleaf status    # what can be read here".to_owned(),
            BenchError::Stopped => "run it again".to_owned(),
        }
    }
}

/// Why there is no result: what failed, what to do next, and the exit status.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what}")]
pub struct Refusal {
    pub what: String,
    pub next: String,
    /// 1: it was tried; 2: wrong usage; 3: a precondition is missing.
    pub status: u8,
}

impl BenchError {
    pub fn of(status: u8, what: impl Into<String>, next: impl Into<String>) -> BenchError {
        BenchError::Refused(Refusal {
            what: what.into(),
            next: next.into(),
            status,
        })
    }

    /// It was tried and the answer is no (exit status 1).
    pub fn no(what: impl Into<String>, next: impl Into<String>) -> BenchError {
        BenchError::of(1, what, next)
    }

    /// Wrong usage (exit status 2).
    pub fn usage(what: impl Into<String>, next: impl Into<String>) -> BenchError {
        BenchError::of(2, what, next)
    }

    /// A precondition is missing (exit status 3).
    pub fn missing(what: impl Into<String>, next: impl Into<String>) -> BenchError {
        BenchError::of(3, what, next)
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
