//! Tests of the crate on the running host, and on a host that fails on demand.

// A panic is a test failure, also in helpers.
#![allow(clippy::unwrap_used)]

mod host;
