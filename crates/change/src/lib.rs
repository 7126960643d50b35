//! Promotes memory of running processes to huge pages, demotes it, and applies the steps of a plan to
//! the host ([`host`]). No other crate writes. [`drift`] compares the host with what was applied, and
//! [`start`] starts programs on huge pages.
//!
//! Promotion and demotion have three stages, each in a module of its own. [`blocks`] selects the blocks
//! that may be promoted and names the reason for each other block (pure). [`pacer`] computes the pause
//! after a call from its length (pure). The mover makes all calls in one place (`work`) and reads back
//! their effect, because the kernel's return values are not reliable.
//!
//! `memory` has everything remembered about a process: its identity ([`ProcessIdentity`]), ranges that are valid only with it
//! ([`Memory`]), and what blocks held when they were split ([`HeldBeforeSplit`]). The mover announces the memory before the
//! first call (`Progress::planned`), and the guard writes it to its state.
//!
//! [`host`] is given steps (`hugeleaf_verdict::plan`) and knows no plans. It checks each step, writes it into the journal with the
//! value found, makes it, and reads it back. `undo` uses the journal alone, so it works after a kill at any
//! call. `promote` and `demote` write no journal: they change a process, and the change ends with it.
//!
//! This crate must not judge why memory is on its pages (`hugeleaf-verdict` does) and must not print. It
//! acts on a process only while the pidfd, the start time and the program's image identify the process
//! of the plan.
//!
//! Main types: [`promote`], [`demote`], [`PromoteOptions`], [`DemoteOptions`], [`Outcome`],
//! [`PreconditionError`].

#![cfg_attr(not(test), warn(clippy::disallowed_macros, clippy::disallowed_methods))]

pub mod blocks;
mod demote;
pub mod drift;
mod finish;
pub mod host;
mod identity;
mod memory;
mod mover;
mod options;
mod outcome;
pub mod pacer;
mod precondition;
mod prefault;
pub mod pressure;
mod privilege;
mod readback;
mod refusals;
mod split;
pub mod start;
mod totals;
mod work;
mod working_set;
mod zeros;

pub use demote::demote;
pub use finish::Outcome;
pub use memory::{HeldBeforeSplit, Memory, ProcessIdentity};
pub use mover::promote;
pub use options::{DemoteOptions, Pace, Percent, PromoteOptions};
pub use outcome::{
    DoneBy, Ended, Method, Part, ProcessOutcome, Progress, Reason, RoleOutcome, Skipped, Stage,
    StoppedBy,
};
pub use pacer::Stalls;
pub use precondition::PreconditionError;
pub use refusals::{NoSplit, NoZeros};
pub use split::can_split_shared;
pub use totals::Totals;
pub use working_set::{Look, MAX_LOCK_TIME, Touched, Watch, may_walk, sample, touched, walk_time};
