//! Tests with real workloads: the embedded database in a separate process, and programs described by files.

#![allow(clippy::unwrap_used)] // a panic is how a test fails, in its helpers too

mod described;
mod oltp;
mod shipped;
