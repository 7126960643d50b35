//! The guard: a daemon that keeps memory on huge pages by rules.
//!
//! A pure policy (`policy::decide`) decides from rules ([`Config`]), from the stored state ([`GuardState`]) and from a
//! scan (`observation`). A loop around it scans through `hugeleaf-host`, acts through `hugeleaf-mover` and measures
//! through `hugeleaf-proof`. `balancing` divides memory targets among servers, by `hugeleaf-balancer`.
//!
//! `config` and `rule` read and match rules. `state` is the guard's memory, and `tree_state` gives each process tree its state and
//! reason. `observer` scans through `host::watch` (one small file per process, more if the policy asks). `run_job` acts through
//! `mover` and measures through `proof`. `serve` is a small HTTP server with bounds on everything, `daemon` the loop. Pages
//! and metrics are drawn by `hugeleaf-report`, which the daemon gets as `Views`. A fault ends the part that has it (`hugeleaf_units::panic`):
//! the loop's ends the process, others start anew.
//!
//! This crate must not render. The daemon's knowledge is a value ([`status`]), which the command line passes to
//! `hugeleaf-report`.
//!
//! Main types: [`Config`], [`GuardState`], [`Guard`], [`GuardStatus`].

#![cfg_attr(not(test), warn(clippy::disallowed_macros, clippy::disallowed_methods))]

mod allowance;
mod balancing;
pub mod client;
mod config;
mod daemon;
pub mod evidence;
mod fault;
mod files;
mod instance_lock;
mod limits;
mod log;
mod observation;
mod observer;
pub mod one_shot;
mod policy;
mod pool_watch;
mod pools;
mod rule;
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

pub use allowance::Allowance;
pub use balancing::balance_lock;
pub use config::{Action, Config, ConfigError, Keep};
pub use daemon::{ControlCommand, ControlSender, Guard, GuardError, Places, Views};
pub use evidence::{Evidence, Proven};
pub use files::Files;
pub use instance_lock::NoLock;
pub use log::LogEntry;
pub use pools::PoolFinding;
pub use state::{CoverageAt, GuardState, PromotionCounts, Proof, Remembered};
pub use status::GuardStatus;
pub use tree_state::{TreeState, TreeStatus};
