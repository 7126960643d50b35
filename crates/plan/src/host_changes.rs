//! Changes the host rather than a process: `apply`, `undo`, and the journal between them.
//!
//! [`inspect`] reads the current state that each step of a plan would change, and reports obstacles;
//! it changes nothing. [`apply`] executes the steps in order. Each step and the state before it are
//! written to the journal and synced to disk before the change. [`undo`] reverts the steps from the
//! journal alone. [`applied`] returns the journal as facts.
//!
//! All changes go through [`Kernel::change`]. This module knows no plans, and prints nothing.

mod apply;
mod apply_step;
mod config_block;
mod error;
mod journal;
mod lock;
mod outcome;
mod path_state;
mod preview;
mod record;
mod remedies;
mod resize_outside_apply;
mod set_pool_size;
mod setting_values;
mod shortage;
mod undo;

pub use apply::{ApplyOptions, ApplyRequest, apply};
pub use error::{HostChangeError, Obstacle};
pub use journal::{AppliedStep, JOURNAL, JournaledApply, applied, history};
pub use outcome::{ApplyOutcome, StepOutcome, StepState, StopReason, UndoOutcome};
pub use path_state::{FileContent, PathState};
pub use preview::{StepPreview, inspect, mount_point};
pub use record::{JournalDamage, JournalRecord, line as record_line, parse_records};
pub use resize_outside_apply::{PoolResizeResult, resize_pool};
pub use set_pool_size::POOL_ATTEMPTS;
pub use shortage::Shortage;
pub use undo::{UndoOptions, UndoSelection, undo};

use std::sync::atomic::AtomicBool;

use hugeleaf_host::Root;
use hugeleaf_sys::Kernel;

pub struct ChangeContext<'a> {
    pub root: &'a Root,
    pub kernel: &'a Kernel,
    /// Set to true to stop; the work then ends between two steps.
    pub stop: &'a AtomicBool,
    pub progress: &'a mut dyn FnMut(&str),
}

/// Marker at the start of the first line of every file that hugeleaf writes, and of the first line
/// of every block.
pub const OWNED: &str = "# written by hugeleaf";

fn time() -> String {
    let now = jiff::Timestamp::now();
    now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
