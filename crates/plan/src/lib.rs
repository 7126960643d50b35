//! Plans the host's huge pages, applies a plan, verifies it, and undoes it.
//!
//! [`build_plan`] creates a [`Plan`] from demand and a host, [`write`](write()) writes it as an editable TOML file, and
//! [`parse`] reads that file. A plan holds intents: [`steps`] derives the files and the values of knobs, so an edited
//! number cannot disagree with a file. [`check`] compares a plan with the host to which it will be applied,
//! and [`tighten`] creates a smaller plan from the use observed over a time.
//!
//! [`host`] inspects, applies and undoes steps, with a journal. [`verify`] judges a host by the plans in force, and
//! [`current_state`] reads what that judgement needs. Only these two, [`host`] and [`current_state`], name a kernel or the root of a host:
//! all other modules are pure, without I/O, clock or system call.
//!
//! This crate must not move memory of processes (`hugeleaf-mover` does) and must not print.
//!
//! Main types: [`Plan`], [`Step`], [`verify::VerifyReport`], [`host::ApplyOutcome`].

#![cfg_attr(not(test), warn(clippy::disallowed_macros, clippy::disallowed_methods))]
#![cfg_attr(not(test), warn(clippy::disallowed_types))]

mod allowlist;
mod arithmetic;
mod budget;
mod build;
mod check;
#[allow(clippy::disallowed_types)] // reads the host
pub mod current_state;
mod derive;
mod facts;
mod file;
mod files;
#[allow(clippy::disallowed_types)] // reads and writes the host
pub mod host;
mod knobs;
mod merge;
mod model;
mod name_syntax;
mod notes;
mod numa_layout;
mod promise;
mod read;
mod rights;
mod rightsize;
mod service_hints;
mod step;
mod validate;
pub mod verify;
mod write;

#[cfg(test)]
mod tests;

pub use allowlist::hides as hidden_by_mount;
pub use arithmetic::{all_pages_text, base as base_lines, demand as demand_lines, sum_pages};
pub use build::build_plan;
pub use check::{CurrentHost, check};
pub use derive::{pool_path, steps};
pub use facts::{InForce, PlanFacts, PlanOptions};
pub use file::{PlanError, parse};
pub use files::{FILES, GRUB, OURS};
pub use hugeleaf_verdict::reservation::Margin;
pub use merge::keep;
pub use model::{
    BasePages, Boot, DemandPlan, KeptLines, Knob, Mount, PageCount, Plan, PoolPlan, Promise,
    ServicePlan, ShmGroupSetting, TargetHost, Unit, UserMemlock,
};
pub use promise::{Promised, can_be_found, is_same, is_same_place, pages_of, promised};
pub use read::SCHEMA;
pub use rightsize::{PoolSample, sample, tighten};
pub use step::{Needs, Step, StepAction};
pub use write::{needs, write};
