//! Workloads for measurements without a server. `oltp` is an SQLite database held wholly in its page cache, read and updated by random
//! keys, in a separate process.
//!
//! The page cache is one private anonymous mapping ([`ReadyMessage::segment`]), populated on base pages and aligned to whole huge pages. A running
//! database server has the same kind of memory. One thread works on one connection. Connections of an in-memory database share pages only
//! through SQLite's shared cache, and its table locks would distort the result. A single busy thread also leaves the other CPUs to
//! promotion.
//!
//! The parent controls the process over its standard input, a Unix socket (see [`protocol`]). When the other end closes for any reason, the
//! process ends, so it never outlives its parent.
//!
//! This crate must not judge or draw anything, and knows nothing of experiments: `hugeleaf-proof` measures it as it measures any server. It
//! reads only workload files and the resource usage of its processes. The caller provides all other facts of the host.
//!
//! The load of `hugeleaf try` (one table, nine reads to one update) fills a cache of any size to the page in seconds and holds
//! no file. An operation takes three microseconds, so half a second of it is a measurement. The lab's order-entry load takes 1.8
//! to 2.6 times as long to fill and was no shorter.
//!
//! [`chase`] measures the latency of dependent reads. [`workload_file`] runs any program that a file describes. Larger workloads are in the lab
//! (`lab/`).
//!
//! Main types: [`OltpProcess`], [`WorkloadSettings`], [`WorkloadStats`]; [`serve`] is the child's side; [`ChaseWalk`], [`ChaseMemory`], [`PageArm`].

// This crate is not published, so self-explanatory names need no comment.
#![cfg_attr(not(test), warn(clippy::disallowed_macros, clippy::disallowed_methods))]

pub mod chase;
pub mod child;
mod control_client;
mod database;
pub mod latency_histogram;
mod oltp;
pub mod protocol;
mod self_advice;
mod serve;
mod sqlite_cache;
pub mod workload_file;

pub use chase::{AskedPages, ChaseMemory, ChaseWalk, PageArm};
pub use child::{ChildCommand, ChildError};
pub use control_client::ControlClient;
pub use database::{Database, RowStatements};
pub use oltp::{OltpProcess, default_cache};
pub use protocol::{ReadyMessage, StartupProgress, StartupStage, WorkloadSettings, WorkloadStats};
pub use serve::serve;
pub use sqlite_cache::{CacheError, DATABASE_PAGE, SqlitePageCache};
