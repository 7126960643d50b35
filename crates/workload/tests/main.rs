//! Workloads for real: the embedded database in a process of its own, and programs that files describe.

#![allow(clippy::unwrap_used)] // a panic is how a test fails, in its helpers too

mod described;
mod oltp;
mod shipped;
