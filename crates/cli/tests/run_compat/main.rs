//! What must not break: real programs under `hugeleaf run` with every role on, and once as it is
//! without flags, compared with the same program started bare: exit status, output, and where a test
//! says so also memory. `c/` has the programs that are compiled for it.
//!
//! A program that finds no huge pages under it where it should ends with an error (COMPAT_LARGE, see
//! `c/check.h`): a library that stands aside breaks nothing and would pass all of this.

// A panic is how a test fails, in its helpers too.
#![allow(clippy::unwrap_used)]

#[path = "../cli_support/mod.rs"]
mod cli_support;
#[path = "../support/mod.rs"]
#[allow(dead_code)] // what stands there is shared by tests that each use a part
mod support;

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
mod under;
