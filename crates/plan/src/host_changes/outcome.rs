//! Outcome of a change of the host. The values were read back.

use std::path::PathBuf;

use crate::FollowUp;
use hugeleaf_sys::Errno;
use serde::ser::SerializeMap;
use serde::{Deserialize, Serialize, Serializer};

use super::path_state::{self, PathState};
use super::shortage::Shortage;

hugeleaf_units::named! {
    #[derive(Deserialize)]
    pub enum StepState {
        WouldChange = "would-change",
        /// The place already had the wanted state, and nothing was done.
        Already = "already",
        Done = "done",
        Short = "short",
        /// The pool was reduced, but programs still hold surplus pages, which go when the programs
        /// free them.
        InUse = "in-use",
        /// The kernel accepted the value but shows another.
        Differs = "differs",
        /// The step has no effect on this host, e.g. a unit's setting without systemd.
        NotApplicable = "not-applicable",
        /// Begun but not known to be done, because of a crash.
        Begun = "begun",
        Failed = "failed",
        /// Not begun, because an earlier step failed or the user stopped it.
        NotReached = "not-reached",
        Restored = "restored",
        /// The place already has its previous state, so there is nothing to undo.
        AsBefore = "as-before",
        ChangedSince = "changed-since",
        Busy = "busy",
    }
}

impl StepState {
    pub const fn is_good(self) -> bool {
        matches!(
            self,
            StepState::WouldChange
                | StepState::Already
                | StepState::Done
                | StepState::NotApplicable
                | StepState::Restored
                | StepState::AsBefore
        )
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct StepOutcome {
    pub id: String,
    /// The kind of the step: `knob`, `pool`, `file`, `block`, `folder`, `mount`.
    pub what: String,
    pub path: PathBuf,
    pub why: String,
    pub verify: String,
    #[serde(serialize_with = "as_entries")]
    pub needs: FollowUp,
    /// State before the step; `None` if it was not read.
    #[serde(serialize_with = "path_state::as_value")]
    pub before: Option<PathState>,
    #[serde(skip)]
    pub wanted: Option<PathState>,
    /// State after the step, read back; `None` if nothing was done. In a dry run of an undo, the state that would result.
    #[serde(serialize_with = "path_state::as_value")]
    pub after: Option<PathState>,
    pub state: StepState,
    pub note: Option<String>,
    /// For a pool that is short: the missing pages, and the holders of the memory.
    pub shortage: Option<Box<Shortage>>,
}

/// Serializes as `restart[]`, `reboot` and `first`, or `login`.
fn as_entries<S: Serializer>(needs: &FollowUp, to: S) -> Result<S::Ok, S::Error> {
    if *needs == FollowUp::Nothing {
        return to.serialize_none();
    }
    let mut map = to.serialize_map(None)?;
    match needs {
        FollowUp::Nothing => {}
        FollowUp::Restart(services) => map.serialize_entry("restart", services)?,
        FollowUp::Reboot { first } => {
            map.serialize_entry("reboot", &true)?;
            map.serialize_entry("first", first)?;
        }
        FollowUp::Login => map.serialize_entry("login", &true)?,
    }
    map.end()
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "reason", rename_all = "snake_case")]
pub enum StopReason {
    Failed {
        step: String,
        error: String,
        #[serde(skip)]
        errno: Option<Errno>,
        /// True if the journal itself could not be written.
        #[serde(skip)]
        journal: bool,
    },
    Signal,
    /// A pool was short, and `all_or_nothing` was set.
    Short,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ApplyOutcome {
    /// The number for `undo`; `None` if nothing had to be changed.
    pub id: Option<u32>,
    /// The earlier apply that this one continues; both are undone together.
    pub continues: Option<u32>,
    pub steps: Vec<StepOutcome>,
    pub stopped: Option<StopReason>,
    pub reverted: Option<Box<UndoOutcome>>,
    pub systemd: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct UndoOutcome {
    pub id: u32,
    pub time: String,
    /// The steps that had been begun, in the order of their undo: newest first.
    #[serde(skip)]
    pub steps: Vec<StepOutcome>,
    pub damage: Vec<String>,
    /// True if all steps were handled, so that the apply is no longer in force. Steps that others
    /// changed, and that were left alone for that, count as handled.
    pub finished: bool,
    pub unjournaled: bool,
    #[serde(skip)]
    pub systemd: bool,
}

impl ApplyOutcome {
    pub fn is_good(&self) -> bool {
        self.stopped.is_none() && self.steps.iter().all(|step| step.state.is_good())
    }
}

impl UndoOutcome {
    pub fn is_good(&self) -> bool {
        self.finished && self.steps.iter().all(|step| step.state.is_good())
    }
}
