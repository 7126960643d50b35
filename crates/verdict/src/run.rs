//! What `hugeleaf run` asks for, and what of it this host can give.
//!
//! [`Policy`] is what a person typed, [`ldr_cntrl`] what an AIX administrator would have typed.
//! [`settle`] holds a policy against a host: out come the settings of the library that is loaded
//! into the program, and what is known not to be had. [`obstacle`] says of a program's file why the
//! library cannot be loaded into it.
//!
//! Nothing here starts anything or looks at the host: facts come in as values.

pub mod ldr_cntrl;
mod obstacle;
mod policy;
pub(crate) mod rung;
mod settings;
mod settle;
#[cfg(test)]
mod tests;

pub use obstacle::{Obstacle, SANITIZER_OPTION, obstacle};
pub use policy::{Numa, ParsePolicyError, Policy, RunRole, Want};
pub use settings::{Rungs, Settings, Way};
pub use settle::{Missing, Settled, settle};

/// Why a program is not started: what is missing, and what to do next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// What is wrong, with the value.
    pub what: String,
    /// The next thing to do, as a command where there is one.
    pub next: String,
}

impl Refusal {
    fn new(what: impl Into<String>, next: impl Into<String>) -> Refusal {
        Refusal {
            what: what.into(),
            next: next.into(),
        }
    }
}
