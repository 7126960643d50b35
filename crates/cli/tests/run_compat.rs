//! Compatibility tests: real programs under `hugeleaf run` with every role, and with no flags. They compare exit status and output, and in
//! some tests memory, with the bare program. `c/` has the programs that are compiled for them.
//!
//! A program that finds no huge pages where it should ends with an error (COMPAT_LARGE, see `c/check.h`). Otherwise an inactive library
//! would pass all tests.

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
