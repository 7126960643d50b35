//! The guard: larger pages kept, by rule, all the time.
//!
//! A pure policy ([`policy::decide`]) says what to do from rules ([`config`]), from what is known ([`state`]) and from
//! what was seen ([`seen`]); a loop around it looks through `hugeleaf-host`, acts through `hugeleaf-change` and
//! measures through `hugeleaf-proof`.
//!
//! This crate must not draw: what the daemon knows is a value ([`status`]), which the command line hands to
//! `hugeleaf-report`.
//!
//! Main types: [`Config`], [`State`], [`Observation`], [`Decision`].

pub mod config;
pub mod policy;
pub mod rule;
pub mod seen;
pub mod state;
#[cfg(test)]
mod testing;
pub mod why;

pub use config::{Action, Config, ConfigError};
pub use policy::{Came, Decision, Job, decide, learn, needs_closer};
pub use seen::{Now, Observation, ProgramId, Seen};
pub use state::State;
pub use why::{Stand, Standing, WhyNot};
