//! What is experimented on: memory that can be on base pages and on large ones.

use std::sync::atomic::AtomicBool;

use hugeleaf_change::{ChangeError, Stalls};
use hugeleaf_host::{Held, ProcessError};
use hugeleaf_sys::Pid;
use hugeleaf_units::{Bytes, Failure};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Arm {
    Base,
    /// The same memory on large pages.
    Large,
}

/// Both, in the order of a result.
pub const ARMS: [Arm; 2] = [Arm::Base, Arm::Large];

impl Arm {
    pub const fn name(self) -> &'static str {
        match self {
            Arm::Base => "base",
            Arm::Large => "large",
        }
    }

    #[must_use]
    pub const fn other(self) -> Arm {
        match self {
            Arm::Base => Arm::Large,
            Arm::Large => Arm::Base,
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct Prepared {
    pub began: Arm,
    pub bytes: Bytes,
    /// Why it cannot be moved back to base pages; `None` where it can.
    pub one_way: Option<String>,
    /// What a reader of the result should know, a sentence each.
    pub notes: Vec<String>,
}

/// What else moves when pages change: read at both ends of every interval.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct SideMetrics {
    pub resident: Option<Bytes>,
    pub page_tables: Option<Bytes>,
    /// CPU time in user mode so far, in seconds.
    pub user_seconds: Option<f64>,
    /// CPU time in the kernel so far, in seconds.
    pub system_seconds: Option<f64>,
    /// How often a task on this host waited for compaction so far (`compact_stall`).
    pub compaction_stalls: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum SubjectError {
    #[error("{0}")]
    Change(#[from] ChangeError),
    #[error("{0}")]
    Process(#[from] ProcessError),
    #[error("process {pid}: it ended during the experiment")]
    Ended { pid: Pid },
    #[error("{0}")]
    Failed(#[from] Failure),
}

impl SubjectError {
    /// What to do about it. For [`SubjectError::Change`] and [`SubjectError::Process`] the caller
    /// knows better: they come from other crates with remedies of their own.
    pub fn next(&self) -> String {
        match self {
            SubjectError::Change(_) | SubjectError::Process(_) => {
                "run as root on the host itself; hugeleaf why TARGET says more".into()
            }
            SubjectError::Ended { .. } => {
                "start it again, put load on it, and run the experiment again".into()
            }
            SubjectError::Failed(failure) => failure.next.clone(),
        }
    }
}

/// Memory that can be moved between page sizes while somebody uses it.
pub trait Subject {
    fn name(&self) -> String;

    /// Looks, and changes nothing.
    fn prepare(&mut self) -> Result<Prepared, SubjectError>;

    /// Moves the memory to the arm's pages. May end early once `stop` is set; what came of it is
    /// asked of [`Subject::coverage`], never believed.
    fn go_to(&mut self, arm: Arm, stop: &AtomicBool) -> Result<(), SubjectError>;

    /// From now on moves take as little time as they can: whoever asked to stop waits for the last one.
    fn hurry(&mut self) {}

    /// The part of its resident memory that is on pages larger than the base page, 0.0 to 1.0.
    ///
    /// # Errors
    /// [`SubjectError`]; [`SubjectError::Ended`] where it is gone.
    fn coverage(&mut self) -> Result<f64, SubjectError>;

    fn page_sizes(&mut self) -> Result<Vec<Held>, SubjectError>;

    /// What its processes have resident, as of the last [`Subject::coverage`]; what they share
    /// counts once. `None` where [`Subject::side_metrics`] says it.
    fn resident(&mut self) -> Option<Bytes> {
        None
    }

    /// How much its processes have mapped, where a move to base pages unmaps memory that they map
    /// again as they touch it; `None` where it does not.
    fn mapped(&mut self) -> Option<Bytes> {
        None
    }

    /// Returns the stalls of its processes by moves so far; `None` where it moves its own memory.
    fn stalls(&self) -> Option<Stalls> {
        None
    }

    fn side_metrics(&mut self) -> SideMetrics;
}
