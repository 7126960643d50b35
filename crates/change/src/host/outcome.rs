//! What came of a change of the host. Values in here were read back.

use std::path::PathBuf;

use hugeleaf_sys::Errno;
use hugeleaf_verdict::plan::Needs;
use serde::{Deserialize, Serialize};

use super::place::{self, Place};
use super::shortage::Shortage;

hugeleaf_units::named! {
    /// How a step stands.
    #[derive(Deserialize)]
    pub enum State {
        /// It is to be made.
        WouldChange = "would-change",
        /// It was so before: nothing was done.
        Already = "already",
        /// Made, and seen to be so.
        Done = "done",
        /// The pool got fewer pages than were asked for.
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
        /// It could not be made.
        Failed = "failed",
        /// Not begun: an earlier step failed, or the person stopped it.
        NotReached = "not-reached",
        /// Undone: as it was before.
        Restored = "restored",
        /// Nothing to undo: it is as it was before.
        AsBefore = "as-before",
        /// Left alone by undo: somebody else changed it meanwhile.
        ChangedSince = "changed-since",
        /// Left alone by undo: it is in use.
        Busy = "busy",
    }
}

impl State {
    /// Whether all is as it was meant to be.
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

/// What came of a step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct StepOutcome {
    /// Its id.
    pub id: String,
    /// What it does, in a word: `knob`, `pool`, `file`, `block`, `folder`, `mount`.
    pub what: String,
    /// The file, knob or mount point.
    pub path: PathBuf,
    /// Why, for a person.
    pub why: String,
    /// The command that shows that it is so.
    pub verify: String,
    /// What has to happen before it has its whole effect.
    pub needs: Needs,
    /// What stood there; `None` where it was not looked at.
    #[serde(serialize_with = "place::as_value")]
    pub before: Option<Place>,
    /// What was to stand there.
    #[serde(skip)]
    pub wanted: Option<Place>,
    /// What stands there now, read back; `None` where nothing was done.
    #[serde(serialize_with = "place::as_value")]
    pub after: Option<Place>,
    /// How it stands.
    pub state: State,
    /// What a person should know besides.
    pub note: Option<String>,
    /// For a pool that is short: what is missing, and what holds the memory.
    pub shortage: Option<Box<Shortage>>,
}

/// Why an apply ended before its last step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "reason", rename_all = "snake_case")]
pub enum StopReason {
    /// A step could not be made.
    Failed {
        /// Its id.
        step: String,
        /// The call that failed, or what stood in the way.
        error: String,
        /// The kernel's answer, where a call failed.
        #[serde(skip)]
        errno: Option<Errno>,
        /// Whether it was the journal that could not be written.
        #[serde(skip)]
        journal: bool,
    },
    /// The person wanted it to end.
    Signal,
    /// A pool was short, and nothing short of everything was wanted.
    Short,
}

/// What came of an apply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApplyOutcome {
    /// The number that `undo` knows it by; `None` where nothing had to be changed.
    pub id: Option<u32>,
    /// The earlier apply that this one goes on with: undone together.
    pub continues: Option<u32>,
    /// The steps, in order.
    pub steps: Vec<StepOutcome>,
    /// Why it ended early.
    pub stopped: Option<StopReason>,
    /// What taking everything back came to, where that was done.
    pub taken_back: Option<Box<UndoOutcome>>,
    /// Whether systemd runs this host.
    pub systemd: bool,
}

/// What came of undoing one apply.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct UndoOutcome {
    /// Which.
    pub id: u32,
    /// When it was applied.
    pub time: String,
    /// The steps that had been begun, in the order in which they were undone: newest first.
    #[serde(skip)]
    pub steps: Vec<StepOutcome>,
    /// What of its journal could not be read.
    pub damage: Vec<String>,
    /// Whether all steps were seen to, so that it does not count as applied any more. What somebody
    /// else changed, and was left alone for that, counts as seen to.
    pub finished: bool,
    /// Whether it ended early because its journal could not be written.
    pub unjournaled: bool,
    /// Whether systemd runs this host.
    #[serde(skip)]
    pub systemd: bool,
}

impl ApplyOutcome {
    /// Whether all is as it was planned.
    pub fn is_good(&self) -> bool {
        self.stopped.is_none() && self.steps.iter().all(|step| step.state.is_good())
    }
}

impl UndoOutcome {
    /// Whether all is as it was before the apply.
    pub fn is_good(&self) -> bool {
        self.finished && self.steps.iter().all(|step| step.state.is_good())
    }
}
