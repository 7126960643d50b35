//! The guard: larger pages kept, by rule, all the time.
//!
//! A pure policy ([`policy::decide`]) says what to do from rules ([`config`]), from what is known ([`state`]) and from
//! what was seen ([`seen`]); a loop around it looks through `hugeleaf-host`, acts through `hugeleaf-change` and
//! measures through `hugeleaf-proof`. [`balance`] divides one memory target among servers, by `hugeleaf-balance`.
//!
//! This crate must not draw: what the daemon knows is a value ([`status`]), which the command line hands to
//! `hugeleaf-report`.
//!
//! Main types: [`Config`], [`State`], [`Observation`], [`Decision`].

#![cfg_attr(not(test), warn(clippy::disallowed_macros, clippy::disallowed_methods))]

mod alone;
pub mod balance;
mod balancing;
pub mod client;
pub mod config;
mod daemon;
mod files;
mod keep;
mod limits;
pub mod log;
mod observe;
pub mod once;
mod pace;
pub mod policy;
mod pool_watch;
pub mod pools;
pub mod rule;
pub mod seen;
pub mod serve;
pub mod state;
pub mod status;
#[cfg(test)]
mod testing;
pub mod why;
mod work;

pub use balancing::{NoLock, balance_lock};
pub use config::{Action, Config, ConfigError};
pub use daemon::{Guard, GuardError, Order, Orders, Places, Views};
pub use files::Files;
pub use observe::Observer;
pub use policy::{Came, Decision, Job, decide, learn, needs_closer};
pub use seen::{Now, Observation, ProgramId, Seen};
pub use state::State;
pub use status::Status;
pub use why::{Stand, Standing, WhyNot};
pub use work::{Tools, work};
