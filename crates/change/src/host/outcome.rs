//! What came of a change of the host. Values in here were read back.

use std::path::PathBuf;

use hugeleaf_sys::Errno;
use hugeleaf_verdict::plan::Needs;
use serde::{Deserialize, Serialize};

use super::place::{self, Place};
use super::shortage::Shortage;

hugeleaf_units::named! {
    #[derive(Deserialize)]
    pub enum State {
        WouldChange = "would-change",
        /// It was so before: nothing was done.
        Already = "already",
        Done = "done",
        Short = "short",
        /// The pool was made smaller, and programs still hold pages beyond its size: those go when the
        /// programs let go.
        InUse = "in-use",
        /// The kernel took the value and shows another.
        Differs = "differs",
        /// It means nothing on this host: a unit's setting where systemd does not run.
        NotApplicable = "not-applicable",
        /// Begun, and not known to be made: a crash fell in between.
        Begun = "begun",
        Failed = "failed",
        /// Not begun: an earlier step failed, or the person stopped it.
        NotReached = "not-reached",
        Restored = "restored",
        /// Nothing to undo: it is as it was before.
        AsBefore = "as-before",
        ChangedSince = "changed-since",
        Busy = "busy",
    }
}

impl State {
    pub const fn is_good(self) -> bool {
        matches!(
            self,
            State::WouldChange
                | State::Already
                | State::Done
                | State::NotApplicable
                | State::Restored
                | State::AsBefore
        )
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct StepOutcome {
    pub id: String,
    /// What it does, in a word: `knob`, `pool`, `file`, `block`, `folder`, `mount`.
    pub what: String,
    pub path: PathBuf,
    pub why: String,
    pub verify: String,
    pub needs: Needs,
    /// What stood there; `None` where it was not looked at.
    #[serde(serialize_with = "place::as_value")]
    pub before: Option<Place>,
    #[serde(skip)]
    pub wanted: Option<Place>,
    /// What stands there now, read back; `None` where nothing was done.
    #[serde(serialize_with = "place::as_value")]
    pub after: Option<Place>,
    pub state: State,
    pub note: Option<String>,
    /// For a pool that is short: what is missing, and what holds the memory.
    pub shortage: Option<Box<Shortage>>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "reason", rename_all = "snake_case")]
pub enum StopReason {
    Failed {
        step: String,
        error: String,
        #[serde(skip)]
        errno: Option<Errno>,
        /// Whether it was the journal that could not be written.
        #[serde(skip)]
        journal: bool,
    },
    Signal,
    /// A pool was short, and nothing short of everything was wanted.
    Short,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApplyOutcome {
    /// The number that `undo` knows it by; `None` where nothing had to be changed.
    pub id: Option<u32>,
    /// The earlier apply that this one goes on with: undone together.
    pub continues: Option<u32>,
    pub steps: Vec<StepOutcome>,
    pub stopped: Option<StopReason>,
    pub taken_back: Option<Box<UndoOutcome>>,
    pub systemd: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct UndoOutcome {
    pub id: u32,
    pub time: String,
    /// The steps that had been begun, in the order in which they were undone: newest first.
    #[serde(skip)]
    pub steps: Vec<StepOutcome>,
    pub damage: Vec<String>,
    /// Whether all steps were seen to, so that it does not count as applied any more. What somebody
    /// else changed, and was left alone for that, counts as seen to.
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
