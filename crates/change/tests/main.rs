//! The crate on real processes and on the running host, and on a kernel and a host that fail on order.

// A panic is how a test fails, in its helpers too.
#![allow(clippy::unwrap_used)]

mod host;
mod processes;
