//! `bench`: costs and gains of each page size, measured on memory of this process. On hosts without counters, other
//! reports quote these as calibration.
//!
//! [`chase`] is the latency of a dependent read by working set; [`workload_file`] is any program that a file describes. The
//! lab (`lab/`) has more experiments; all are built on [`BenchRun`]. Arms are page sizes. An unavailable arm is in the
//! result with reason and remedy; the host is never changed to provide it.

mod bench_run;
pub mod chase;
mod memory_limit;
mod page_check;
mod run_and_promote;
pub mod workload_file;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use hugeleaf::MemoryError;
use hugeleaf_host::{Host, Root};
use hugeleaf_units::{Bytes, Failure};

use crate::experiment::Provenance;

pub use bench_run::BenchRun;
pub use memory_limit::memory_limit;
pub use page_check::{held_by_folio, page_mismatch};
pub use run_and_promote::{
    NoPromotionReason, lacks_pool, page_tables, promote, refusal, under_run,
};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MissingPages {
    /// Smallest unavailable length (of the working set or region).
    pub from: Bytes,
    pub reason: String,
    /// Remedy that makes the largest requested length available.
    pub next: String,
}

#[derive(Debug)]
pub struct BenchContext<'a> {
    pub root: &'a Root,
    pub host: &'a Host,
    pub circumstances: &'a Provenance,
    /// Maximum memory that may be taken, hugetlb pools excluded.
    pub most: Bytes,
    /// Path of hugeleaf, which starts servers by `run` and promotes them.
    pub program: &'a Path,
    pub stop: &'a Arc<AtomicBool>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum BenchEvent {
    /// Memory is being allocated, or processes are being started.
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
    #[error("none of the requested pages is available; {arm}: {reason}")]
    NoData {
        arm: String,
        reason: String,
        next: String,
    },
    #[error("{0}")]
    Memory(#[from] MemoryError),
    /// A part of an experiment failed; the experiment's name is prepended.
    #[error("{0}")]
    Part(Failure),
    #[error("{0}")]
    Unreadable(#[from] hugeleaf_host::ReadError),
    #[error("{0}")]
    Refused(#[from] Failure),
    /// The host lacks the pages of an arm; the others continue.
    #[error("{}", .0.reason)]
    PagesMissing(MissingPages),
    #[error("stopped on request")]
    Stopped,
}

impl BenchError {
    pub fn next(&self) -> String {
        match self {
            BenchError::TooLarge { most, .. } => {
                format!("request at most {most} in total, or free memory: hugeleaf mem")
            }
            BenchError::NoData { next, .. } => next.clone(),
            BenchError::Memory(e) => e.next(),
            BenchError::Part(e) | BenchError::Refused(e) => e.remedy.clone(),
            BenchError::PagesMissing(e) => e.next.clone(),
            BenchError::Unreadable(_) => "hugeleaf status    # shows readable files".to_owned(),
            BenchError::Stopped => "run it again".to_owned(),
        }
    }

    /// A failed attempt (exit status 1).
    pub fn no(what: impl Into<String>, next: impl Into<String>) -> BenchError {
        Failure::no(what, next).into()
    }

    /// Wrong usage (exit status 2).
    pub fn usage(what: impl Into<String>, next: impl Into<String>) -> BenchError {
        Failure::usage(what, next).into()
    }

    /// A missing precondition (exit status 3).
    pub fn missing(what: impl Into<String>, next: impl Into<String>) -> BenchError {
        Failure::missing(what, next).into()
    }
}

/// True if memory was unavailable because the host lacks such pages, which makes an arm unavailable. Any other error
/// ends the run.
pub fn is_unavailable(error: &MemoryError) -> bool {
    matches!(
        error,
        MemoryError::Short { .. }
            | MemoryError::NoSuchSize(_)
            | MemoryError::NotAMultiple { .. }
            | MemoryError::TooLarge { .. }
    )
}
