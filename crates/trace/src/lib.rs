//! Traces: where time goes on a host, collected from perf events, tracepoints and `/proc`.
//!
//! [`model::Trace`] is everything that was collected, as the file holds it; [`mod@file`] writes and
//! reads such files. A trace is judged by `hugeleaf-verdict` and drawn by `hugeleaf-report`, on any
//! machine.
//!
//! This crate must not judge, and must not change anything on the host: it opens events and reads.
//!
//! Main types: [`Trace`], [`Options`], [`CollectError`], [`TraceFileError`].

// Not published: a name that says it all needs no comment.
#![cfg_attr(not(test), warn(clippy::disallowed_macros, clippy::disallowed_methods))]

pub mod collect;
pub mod file;
pub mod model;
pub mod tables;

pub use collect::{CollectError, Options, Progress, collect};
pub use file::{TraceFileError, check_writable, read_trace, write_trace};
pub use model::Trace;
