//! Tests of the crate on real processes and the running host, and on a kernel and a host that fail on
//! demand.

// A panic is a test failure, also in helpers.
#![allow(clippy::unwrap_used)]

mod host;
mod processes;
