//! Experiments on a clock of the test's, and metrics of real servers.

#![allow(clippy::unwrap_used)] // a panic is how a test fails, in its helpers too

mod engine;
mod metrics;
