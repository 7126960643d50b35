//! Promotes memory of running processes to huge pages, and demotes it. No other crate moves memory of other processes.
//!
//! Promotion and demotion have three stages, each in a module of its own. [`block_plan`] selects the blocks
//! that may be promoted and names the reason for each other block (pure). [`pacer`] computes the pause
//! after a call from its length (pure). `job` makes all calls in one place and reads back
//! their effect, because the kernel's return values are not reliable.
//!
//! `process_memory` has everything remembered about a process: its identity ([`ProcessIdentity`]), ranges that are valid only with it
//! ([`ProcessRanges`]), and what blocks held when they were split ([`HeldBeforeSplit`]). The memory is announced before the
//! first call (`Progress::planned`), and the guard writes it to its state. There is no journal: a move
//! changes a process, and the change ends with it.
//!
//! This crate must not judge why memory is on its pages (`hugeleaf-verdict` does) and must not print. It
//! acts on a process only while the pidfd, the start time and the program's image identify the process
//! for which the move was planned.
//!
//! Main types: [`promote`], [`demote`], [`PromoteOptions`], [`DemoteOptions`], [`Outcome`],
//! [`PreconditionError`].

#![cfg_attr(not(test), warn(clippy::disallowed_macros, clippy::disallowed_methods))]

pub mod block_plan;
mod coverage_target;
mod debugfs_split;
mod demote;
mod finish;
mod free_page_prefault;
mod job;
mod options;
mod outcome;
mod outcome_totals;
pub mod pacer;
mod precondition;
pub mod pressure;
mod privilege;
mod process_handle;
mod process_memory;
mod promote;
mod readback;
mod restore_after_split;
mod split_refusals;
mod working_set;

pub use coverage_target::LAST_ROUND_AFTER;
pub use debugfs_split::can_split_shared;
pub use demote::demote;
pub use finish::Outcome;
pub use options::{DemoteOptions, Percent, PromoteOptions, StallLimits};
pub use outcome::{
    BytesByMethod, BytesByReason, CoverageTarget, EligibleShare, Method, ProcessOutcome, Progress,
    RoleOutcome, SkippedProcess, Stage, StoppedBy, TargetLoss, UnchangedReason,
};
pub use outcome_totals::OutcomeTotals;
pub use pacer::StallStats;
pub use precondition::PreconditionError;
pub use process_memory::{HeldBeforeSplit, ProcessIdentity, ProcessRanges};
pub use promote::promote;
pub use split_refusals::{SplitRefusal, ZeroRestoreError};
pub use working_set::{
    AccessSample, MAX_LOCK_TIME, TouchRate, WorkingSetOptions, may_walk, measure_touch_rate,
    sample, walk_time,
};
