//! Holds one module per command, with its flags and the calls it makes.

pub mod apply;
pub mod balance;
pub mod bench;
pub mod check;
pub mod compare;
pub mod completions;
pub mod guard;
pub mod mem;
pub mod metrics;
pub mod plan;
pub mod predict;
pub mod promote;
pub mod prove;
mod read_results;
pub mod run;
pub mod status;
pub mod top;
pub mod trace;
pub mod try_;
pub mod undo;
pub mod verify;
pub mod warm;
pub mod why;
pub mod workload;
