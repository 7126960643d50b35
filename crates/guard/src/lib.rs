//! The guard: a daemon that keeps memory on huge pages by rules.
//!
//! A pure policy (`policy::decide`) decides from rules ([`Config`]), from the stored state ([`GuardState`]) and from a
//! scan (`observation`). A loop around it scans through `hugeleaf-host`, acts through `hugeleaf-mover` and measures
//! through `hugeleaf-proof`. `balancer_supervisor` divides memory targets among servers, by `hugeleaf-balancer`.
//!
//! `config` and `rule` read and match rules. `state` is the guard's memory, and `tree_state` gives each process tree its state and
//! reason. `observer` scans through `host::process_scanner` (one small file per process, more if the policy asks). `run_job` acts through
//! `mover` and measures through `proof`. `serve` is a small HTTP server with bounds on everything, `daemon` the loop. Pages
//! and metrics are drawn by `hugeleaf-report`, which the daemon gets as `StatusRenderer`. A fault ends the part that has it
//! (`hugeleaf_units::panic_containment`): the loop's ends the process, others start anew.
//!
//! This crate must not render. The daemon's knowledge is a value ([`status`]), which the command line passes to
//! `hugeleaf-report`.
//!
//! Main types: [`Config`], [`GuardState`], [`Guard`], [`GuardStatus`].

#![cfg_attr(not(test), warn(clippy::disallowed_macros, clippy::disallowed_methods))]

mod balancer_supervisor;
pub mod client;
mod config;
mod config_files;
mod cpu_token_bucket;
mod daemon;
pub mod evidence;
mod instance_lock;
mod log;
mod observation;
mod observer;
pub mod one_shot;
mod panic_failure;
mod policy;
mod pool_policy;
mod pool_watch;
mod rule;
mod rule_settings;
mod run_job;
mod scan_interval;
pub mod serve;
mod state;
mod state_store;
pub mod status;
#[cfg(test)]
mod tests;
mod textfile;
mod tree_state;

pub use balancer_supervisor::balance_lock;
pub use config::{Config, ConfigError, KeepCondition, RuleAction};
pub use config_files::ConfigFiles;
pub use cpu_token_bucket::CpuTokenBucket;
pub use daemon::{ControlCommand, ControlSender, Guard, GuardPaths, StatusRenderer};
pub use evidence::{Evidence, TestVerdict};
pub use instance_lock::InstanceLockError;
pub use log::LogEntry;
pub use pool_policy::PoolFinding;
pub use state::{CoverageAt, GuardCounters, GuardState, Proof, RememberedVerdict};
pub use status::GuardStatus;
pub use tree_state::{TreeState, TreeStatus};
