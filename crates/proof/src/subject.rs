//! The subject of an experiment: memory that can be on base pages or on huge pages.

use std::sync::atomic::AtomicBool;

use hugeleaf_host::{PageUsage, ProcessError};
use hugeleaf_mover::{PreconditionError, StallStats};
use hugeleaf_sys::Pid;
use hugeleaf_units::{Bytes, Failure};
use serde::Deserialize;

hugeleaf_units::named! {
    #[derive(Deserialize)]
    pub enum Arm {
        Base = "base",
        /// The same memory on huge pages.
        Large = "large",
    }
}

impl Arm {
    /// Returns the word for its pages in messages: "base" or "huge".
    pub const fn pages(self) -> &'static str {
        match self {
            Arm::Base => "base",
            Arm::Large => "huge",
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
pub struct SelectedMemory {
    pub began: Arm,
    pub bytes: Bytes,
    /// Reason why the memory cannot be demoted; `None` if it can.
    pub one_way: Option<String>,
    /// Remarks for the reader of the result, a sentence each.
    pub notes: Vec<String>,
}

/// Quantities that may change with the page size, read at both ends of every interval.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct SideMetrics {
    pub resident: Option<Bytes>,
    pub page_tables: Option<Bytes>,
    /// CPU time in user mode so far, in seconds.
    pub user_seconds: Option<f64>,
    /// CPU time in the kernel so far, in seconds.
    pub system_seconds: Option<f64>,
    /// Number of waits for compaction on this host so far (`compact_stall`).
    pub compaction_stalls: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum SubjectError {
    #[error("{0}")]
    Change(#[from] PreconditionError),
    #[error("{0}")]
    Process(#[from] ProcessError),
    #[error("process {pid} ended during the experiment")]
    Ended { pid: Pid },
    #[error("{0}")]
    Failed(#[from] Failure),
}

impl SubjectError {
    /// Returns the remedy. For [`SubjectError::Change`] and [`SubjectError::Process`] the caller should
    /// use the remedies of the crates that they come from.
    pub fn next(&self) -> String {
        match self {
            SubjectError::Change(_) | SubjectError::Process(_) => {
                "run as root on the host itself; for details: hugeleaf why TARGET".into()
            }
            SubjectError::Ended { .. } => {
                "start it again, put load on it, and run the experiment again".into()
            }
            SubjectError::Failed(failure) => failure.remedy.clone(),
        }
    }
}

/// Memory that can be promoted and demoted while it is in use.
pub trait Subject {
    fn name(&self) -> String;

    /// Returns the command name of its processes; `None` before [`Subject::prepare`], or if they differ.
    fn process_name(&self) -> Option<String> {
        None
    }

    /// Inspects the memory without any change.
    fn prepare(&mut self) -> Result<SelectedMemory, SubjectError>;

    /// Promotes or demotes the memory to the arm's pages. May end early once `stop` is set. The caller
    /// checks the outcome by [`Subject::coverage`].
    fn apply_arm(&mut self, arm: Arm, stop: &AtomicBool) -> Result<(), SubjectError>;

    /// Makes further calls of [`Subject::apply_arm`] as fast as possible, because a stop waits for the last
    /// one.
    fn use_full_budget(&mut self) {}

    /// Returns the share of resident memory on huge pages, 0.0 to 1.0.
    ///
    /// # Errors
    /// [`SubjectError`]; [`SubjectError::Ended`] if it is gone.
    fn coverage(&mut self) -> Result<f64, SubjectError>;

    fn page_sizes(&mut self) -> Result<Vec<PageUsage>, SubjectError>;

    /// Returns its processes' resident memory at the last [`Subject::coverage`], with shared memory
    /// counted once. `None` if [`Subject::side_metrics`] has it.
    fn resident(&mut self) -> Option<Bytes> {
        None
    }

    /// Returns its processes' mapped memory, if demoting unmaps memory until it is touched again.
    /// `None` if it does not.
    fn mapped(&mut self) -> Option<Bytes> {
        None
    }

    /// Returns its processes' stalls by promoting and demoting so far; `None` if it changes its own
    /// memory.
    fn stalls(&self) -> Option<StallStats> {
        None
    }

    fn side_metrics(&mut self) -> SideMetrics;
}
