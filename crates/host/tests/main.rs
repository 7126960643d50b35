//! Facts of the running host and of real processes, and what is asked of them.

#![allow(clippy::unwrap_used)] // a panic is how a test fails, in its helpers too

mod demand;
mod shared;
