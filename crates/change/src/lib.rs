//! The only writer: moves memory of running processes onto larger pages and back, and makes the
//! steps of a plan on the host ([`host`]). [`standing`] says how it stands by them, and [`start`] starts
//! programs on larger pages.
//!
//! Moving goes in three steps, each in a module of its own. [`blocks`] looks at what was read
//! of the processes and says which blocks may be moved and why the others may not: pure. [`pacer`]
//! says how long to pause after a call of known length: pure. The mover makes the calls, all of them
//! in one place (`work`), and reads back what came of them: a return value of the kernel is never
//! believed.
//!
//! This crate must not judge why memory is where it is (`hugeleaf-verdict` does) and must not print.
//! It touches a process only while a pidfd, the start time and the program's image say that it is
//! still the one that was planned for.
//!
//! Main types: [`promote`], [`demote`], [`PromoteOptions`], [`DemoteOptions`], [`Outcome`],
//! [`ChangeError`].

#![cfg_attr(not(test), warn(clippy::disallowed_macros, clippy::disallowed_methods))]

pub mod blocks;
mod demote;
mod error;
mod fetch;
pub mod host;
mod identity;
mod memory;
mod mover;
mod options;
mod outcome;
pub mod pacer;
pub mod pressure;
mod privilege;
mod readback;
mod refusals;
mod split;
pub mod standing;
pub mod start;
mod totals;
mod touched;
mod whole;
mod work;
mod zeros;

pub use demote::demote;
pub use error::ChangeError;
pub use memory::{Footprint, Memory, Who};
pub use mover::promote;
pub use options::{DemoteOptions, Pace, Percent, PromoteOptions};
pub use outcome::{
    DoneBy, Ended, Method, Part, ProcessOutcome, Progress, Reason, RoleOutcome, Skipped, Stage,
    StoppedBy,
};
pub use pacer::Stalls;
pub use refusals::{NoSplit, NoZeros};
pub use split::can_split_shared;
pub use totals::Totals;
pub use touched::{Look, MOST_HELD, Touched, Watch, look, may_walk, touched, walk_time};
pub use whole::Outcome;
