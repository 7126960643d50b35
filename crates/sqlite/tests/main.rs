//! The cache in real processes. SQLite takes one cache per process, before its first use. Tests that need another state
//! of SQLite, or a cache of their own, run in a separate process (`apart`).

// Tests and their helpers fail by a panic.
#![allow(clippy::unwrap_used)]

mod cache;
mod differential;
mod faults;
mod guests;
mod in_use;
mod kills;
mod small;
mod support;
