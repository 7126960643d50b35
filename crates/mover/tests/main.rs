//! Tests of the crate on real processes, and on a kernel that fails on demand.

// A panic is a test failure, also in helpers.
#![allow(clippy::unwrap_used)]

mod processes;
