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
//! Next to it stand workloads that measure memory itself: [`chase`], the latency of a read that
//! depends on the one before; [`pagetables`], processes that attach one region; [`mover`], a backup
//! server's data path; [`pin`], the cost of keeping a buffer where it is; [`keyed`], reads by key
//! on a server; and [`described`], any program that a file describes.
//!
//! Main types: [`Oltp`], [`Settings`], [`Stats`], [`serve`] is the other side;
//! [`Walk`], [`ChaseMemory`], [`PageArm`]; [`Attachers`].

#![cfg_attr(not(test), warn(clippy::disallowed_macros, clippy::disallowed_methods))]

pub mod chase;
pub mod child;
mod client;
mod database;
pub mod described;
mod kernel;
pub mod keyed;
pub mod mover;
mod oltp;
pub mod pagetables;
pub mod pin;
pub mod protocol;
mod serve;
mod times;
pub mod tpcc;

pub use chase::{AskedPages, ChaseMemory, PageArm, Walk};
pub use child::{ChildError, Program};
pub use client::Client;
pub use database::{Database, Row};
pub use oltp::{Oltp, default_cache};
pub use pagetables::{Attachers, Turn};
pub use protocol::{Progress, Ready, Settings, Stage, Stats};
pub use serve::serve;
