//! Traces: CPU time, faults, locks and I/O of a host, collected from perf events, tracepoints and
//! `/proc`.
//!
//! [`model::Trace`] holds everything collected, as stored in the file; [`mod@file`] writes and
//! reads such files. `hugeleaf-verdict` judges a trace and `hugeleaf-report` draws it, on any
//! machine.
//!
//! `collect` opens events on every CPU, empties their rings, reads intervals from `/proc`, and names functions
//! at the end. Locks are summed up while collecting, because a lock-heavy load makes 100,000 events
//! a second. What is too expensive to watch all the time (calls that lock memory, TLB flushes, page
//! faults) is on for a part of it and scaled up. A tracefs that is not mounted is opened without attaching it.
//!
//! This crate must not judge or change the host: it opens events and reads.
//!
//! Main types: [`Trace`], [`CollectOptions`], [`TraceFileError`].

// The crate is not published, so self-explanatory names need no comments.
#![cfg_attr(not(test), warn(clippy::disallowed_macros, clippy::disallowed_methods))]

pub mod collect;
pub mod file;
pub mod model;
pub mod tables;

pub use collect::{CollectOptions, CollectStage, collect, ring_memory};
pub use file::{TraceFileError, check_writable, read_trace, write_trace};
pub use model::Trace;
