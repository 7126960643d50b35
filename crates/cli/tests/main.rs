//! Tests of the real binary: one test program, with one module per command or promise.
//!
//! A test that changes the host, or needs it unchanged, holds it: `hugeleaf_testkit::host_lock`.

// Tests and their helpers fail by panicking.
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
mod virtual_machine;
mod warm;
mod why;
