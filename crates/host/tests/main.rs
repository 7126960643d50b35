//! Facts of the running host and of real processes, and of programs that are queried.

#![allow(clippy::unwrap_used)] // a panic is how a test fails, in its helpers too

mod demand;
mod shared;
