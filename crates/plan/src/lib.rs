//! Plans the host's huge pages, applies a plan, verifies it, and undoes it.
//!
//! [`build_plan`] creates a [`Plan`] from demand and a host, [`write`](write()) writes it as an editable TOML file, and
//! [`parse`] reads that file. A plan holds intents: [`steps`] derives the files and the values of knobs, so an edited
//! number cannot disagree with a file. [`check`] compares a plan with the host to which it will be applied,
//! and [`tighten`] creates a smaller plan from the use observed over a time.
//!
//! [`can_take::can_take`] judges whether a cache fits into the pools as they are. [`host_changes`] inspects, applies and undoes steps, with a journal. [`verify`] judges a host by the plans in force,
//! and [`applied_plans`] reads what that judgement needs. Only these two, [`host_changes`] and [`applied_plans`], name a
//! kernel or the root of a host: all other modules are pure, without I/O, clock or system call.
//!
//! This crate must not move memory of processes (`hugeleaf-mover` does) and must not print.
//!
//! Main types: [`Plan`], [`Step`], [`verify::VerifyReport`], [`host_changes::ApplyOutcome`].

#![cfg_attr(not(test), warn(clippy::disallowed_macros, clippy::disallowed_methods))]
#![cfg_attr(not(test), warn(clippy::disallowed_types))]

mod allowlist;
#[allow(clippy::disallowed_types)] // reads the host
pub mod applied_plans;
mod budget;
pub mod can_take;
#[allow(clippy::disallowed_types)] // reads and writes the host
pub mod host_changes;
mod knobs;
mod kubernetes;
mod managed_files;
mod merge_existing;
mod model;
mod name_syntax;
mod notes;
mod numa_layout;
mod page_counts;
mod page_promises;
mod parse_plan;
mod plan_input;
mod plan_steps;
mod planner;
mod preflight;
mod rightsize;
mod service_hints;
mod shm_permissions;
mod step;
mod validate;
mod value_checks;
pub mod verify;
mod write_plan;

#[cfg(test)]
mod tests;

pub use allowlist::hides as hidden_by_mount;
pub use hugeleaf_verdict::reservation::Margin;
pub use kubernetes::{KubernetesPlan, PodRequest, RESTART_KUBELET};
pub use managed_files::{FILES, GRUB, OURS};
pub use merge_existing::{complete, keep};
pub use model::{
    BaseMemory, BootPools, DemandPlan, KeptLines, Knob, Mount, PageCount, Plan, PoolPlan,
    PromisedPages, ServicePlan, ShmGroupSetting, TargetHost, UnitDropIn, UserMemlock,
};
pub use page_counts::{all_pages_text, base as base_lines, demand as demand_lines, sum_pages};
pub use page_promises::{
    PromisedService, can_be_found, is_same, is_same_place, pages_of, promised,
};
pub use parse_plan::{PlanFileError, parse};
pub use plan_input::{PlanFacts, PlanInForce, PlanOptions};
pub use plan_steps::{pool_path, steps};
pub use planner::build_plan;
pub use preflight::{CurrentHost, check};
pub use rightsize::{PoolSample, sample, tighten};
pub use step::{FollowUp, Step, StepAction};
pub use value_checks::SCHEMA;
pub use write_plan::{needs, write};
