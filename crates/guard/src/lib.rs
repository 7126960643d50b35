//! The guard: a daemon that keeps memory on huge pages by rules.
//!
//! A pure policy (`policy::decide`) decides from rules ([`Config`]), from the stored state ([`State`]) and from a
//! scan (`seen`). A loop around it scans through `hugeleaf-host`, acts through `hugeleaf-change` and measures
//! through `hugeleaf-proof`. [`balance`] divides one memory target among servers, by `hugeleaf-balance`.
//!
//! This crate must not render. The daemon's knowledge is a value ([`status`]), which the command line passes to
//! `hugeleaf-report`.
//!
//! Main types: [`Config`], [`State`], [`Guard`], [`Status`].

#![cfg_attr(not(test), warn(clippy::disallowed_macros, clippy::disallowed_methods))]

mod allowance;
mod alone;
pub mod balance;
mod balancing;
pub mod client;
mod config;
mod daemon;
pub mod evidence;
mod fault;
mod files;
mod keep;
mod limits;
mod log;
mod observe;
pub mod once;
mod pace;
mod policy;
mod pool_watch;
mod pools;
mod rule;
mod seen;
pub mod serve;
mod state;
pub mod status;
#[cfg(test)]
mod tests;
mod why;
mod work;

pub use allowance::Allowance;
pub use alone::NoLock;
pub use balancing::balance_lock;
pub use config::{Action, Config, ConfigError, Keep};
pub use daemon::{Guard, GuardError, Order, Orders, Places, Views};
pub use evidence::{Evidence, Proven};
pub use files::Files;
pub use log::Entry;
pub use pools::PoolFinding;
pub use state::{Counts, Proof, Remembered, State};
pub use status::Status;
pub use why::{Stand, Standing};
