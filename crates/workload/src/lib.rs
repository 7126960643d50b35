//! What hugeleaf measures when nobody brings a server: `oltp`, an SQLite database held wholly in
//! its page cache, read and updated by random keys, in a process of its own.
//!
//! The page cache is one private anonymous mapping ([`Ready::segment`]), populated on base pages
//! and aligned so that whole large pages fit: the kind of memory that a running database server
//! has. One thread works on one connection, because connections of an in-memory database share
//! pages only through SQLite's shared cache, whose table locks would be measured instead of
//! memory; and because one busy thread leaves the other processors to whoever moves the memory.
//!
//! The process is steered over its standard input, a Unix socket whose other end the parent holds
//! (see [`protocol`]). When that end closes, however that happens, the process ends: it never
//! outlives its parent.
//!
//! This crate must not judge or draw anything, and knows nothing of experiments: `hugeleaf-proof`
//! measures it as it measures any server. Of files it reads what its workloads are made of and what their processes used:
//! what it must know of the host, its caller tells it.
//!
//! Next to it are [`chase`], which measures the latency of a read that depends on the one before, and
//! [`described`], which runs any program that a file describes. Larger workloads are in the lab (`lab/`).
//!
//! Main types: [`Oltp`], [`Settings`], [`Stats`]; [`serve`] is the other side;
//! [`Walk`], [`ChaseMemory`], [`PageArm`].

// Not published: a name that says it all needs no comment.
#![cfg_attr(not(test), warn(clippy::disallowed_macros, clippy::disallowed_methods))]

mod cache;
pub mod chase;
pub mod child;
mod client;
mod database;
pub mod described;
mod kernel;
mod oltp;
pub mod protocol;
mod serve;
pub mod times;

pub use cache::{CacheError, DATABASE_PAGE, SqliteCache};
pub use chase::{AskedPages, ChaseMemory, PageArm, Walk};
pub use child::{ChildError, Program};
pub use client::Client;
pub use database::{Database, Row};
pub use oltp::{Oltp, default_cache};
pub use protocol::{Progress, Ready, Settings, Stage, Stats};
pub use serve::serve;
