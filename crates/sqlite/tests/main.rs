//! The cache in real processes. SQLite takes one cache a process, before its first use: what needs another
//! state of SQLite, or a cache that no other test uses, runs in a process of its own (`apart`).

// A panic is how a test fails, also in its helpers.
#![allow(clippy::unwrap_used)]

mod cache;
mod differential;
mod faults;
mod guests;
mod in_use;
mod kills;
mod small;
mod support;
