//! Experiments on a simulated clock, and metrics of real servers.

#![allow(clippy::unwrap_used)] // a panic is how a test fails, in its helpers too

mod engine;
mod metrics;
