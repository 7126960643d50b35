//! Everything that changes the host rather than a process: `apply`, `undo`, and the journal
//! between them.
//!
//! [`look`] reads what each step of a plan would change and says what stands in the way: nothing is
//! touched. [`apply`] makes the steps, one by one: each is written into the journal, with what was
//! there before, and on disk before the change is made. [`undo`] goes the other way by what the
//! journal says alone. [`applied`] hands the journal on as facts.
//!
//! All changes go through [`Kernel::change`]. Nothing here knows plans, and nothing prints.

mod advice;
mod apply;
mod block;
mod error;
mod journal;
mod knob;
mod lock;
mod look;
mod make;
mod outcome;
mod place;
mod pool;
mod record;
mod resize;
mod shortage;
mod undo;

pub use apply::{ApplyOptions, Request, apply};
pub use error::{HostError, Obstacle};
pub use journal::{Applied, AppliedStep, JOURNAL, applied};
pub use look::{Looked, look, mount_point};
pub use outcome::{ApplyOutcome, State, StepOutcome, StopReason, UndoOutcome};
pub use place::{Content, Place};
pub use pool::POOL_ATTEMPTS;
pub use record::{Damage, Record, line as record_line, parse_records};
pub use resize::{Resized, resize_pool};
pub use shortage::Shortage;
pub use undo::{UndoOptions, Which, undo};

use std::sync::atomic::AtomicBool;

use hugeleaf_host::Root;
use hugeleaf_sys::Kernel;

pub struct ChangeContext<'a> {
    pub root: &'a Root,
    pub kernel: &'a Kernel,
    /// Becomes true when the person wants it to end: it ends between two steps.
    pub stop: &'a AtomicBool,
    pub progress: &'a mut dyn FnMut(&str),
}

/// The first line of every file that hugeleaf writes begins with this, and of every block the line
/// that opens it.
pub const OWNED: &str = "# written by hugeleaf";

fn time() -> String {
    let now = jiff::Timestamp::now();
    now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
