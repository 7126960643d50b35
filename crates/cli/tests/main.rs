//! The real binary: one test program, one module a command or a promise.
//!
//! A test that changes the host, or needs it as it is, holds it: `hugeleaf_testkit::host`.

// A panic is how a test fails, in its helpers too.
#![allow(clippy::unwrap_used)]

mod common;

mod advice;
mod apply;
mod badinput;
mod balance;
mod bench;
mod check;
mod cli;
mod compare;
mod guard;
mod guard_servers;
mod guest;
mod hostile;
mod lab;
mod mem;
mod oltp;
mod others;
mod pictures;
mod plan;
mod plan_sizes;
mod predict;
mod promote;
mod prove;
mod run;
mod run_compat;
mod run_knobs;
mod run_report;
mod run_sqlite;
mod servers;
mod signals;
mod status;
mod tidy;
mod top;
mod trace;
mod trace_show;
mod try_;
mod verify;
mod why;
