//! What must not break: real programs under `hugeleaf run` with every role on, and once as it is
//! without flags, compared with the same program started bare: exit status, output, and where a test
//! says so also memory. `c/` has the programs that are compiled for it.
//!
//! A program that finds no huge pages under it where it should ends with an error (COMPAT_LARGE, see
//! `c/check.h`): a library that stands aside breaks nothing and would pass all of this.

mod debuggers;
mod growth;
mod limits;
mod mandatory;
mod memory;
mod numbers;
mod pools;
mod postgresql;
mod processes;
mod python;
mod redis;
mod sandboxes;
mod servers;
mod started;
pub mod under;
