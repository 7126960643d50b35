//! What `hugeleaf run` asks for, and what of it this host can give.
//!
//! [`Policy`] is what a person typed, [`ldr_cntrl`] what an AIX administrator would have typed.
//! [`settle`] holds a policy against a host: out come the settings of the library that is loaded
//! into the program, and what is known to be unavailable. [`obstacle`] says of a program's file why the
//! library cannot be loaded into it.
//!
//! Nothing here starts anything or looks at the host: facts come in as values.

pub mod ldr_cntrl;
mod obstacle;
mod policy;
pub(crate) mod rung;
mod settle;
#[cfg(test)]
mod tests;

pub use hugeleaf_host::RunRole;
pub use obstacle::{Obstacle, SANITIZER_OPTION, obstacle};
pub use policy::{Numa, Policy, Want};
pub use settle::{Missing, Settled, settle};
