//! Judgement: from a snapshot to verdicts and findings.
//!
//! Pure functions: no I/O, no clock, no system call. Whoever disagrees with a verdict can write
//! down the snapshot and show it in a test.
//!
//! This crate must not read the host and must not change it.
//!
//! Main types: [`why::Verdict`] and [`why::account`] for a process, [`findings::Finding`] and
//! [`findings::findings`] for a host.
//!
//! Main types: [`why::Verdict`], [`why::Account`], [`why::Summary`], [`findings::Finding`].

pub mod eligible;
pub mod ends;
pub mod findings;
pub mod plan;
mod refusal;
pub mod roles;
pub mod run;
pub mod trace;
pub mod verify;
pub mod why;
