//! `hugeleaf top`: a live terminal view of a host and its programs by page size.
//!
//! A thread scans the host once a second and makes a `HostSample`. A state machine (`app`) takes samples and keys and returns
//! effects. Pure functions (`draw`) put its state on a screen of cells. So everything but the terminal itself ([`run`])
//! is tested without one. A recording (`recording`) is samples in a file.
//!
//! `scan_schedule` decides whose page tables are read, within a share of a CPU (pure). `event_loop` has the threads and the terminal, which
//! `raw_terminal` restores in all cases. This crate writes to the terminal itself, so names go through `report::terminal_text::clean`.
//!
//! This crate must not judge and must not promote memory itself. Verdicts come from `hugeleaf-verdict`, promotions are
//! made by `hugeleaf-mover`, and their pages are those of `hugeleaf-report`.
//!
//! Main types: [`TopSettings`], [`run`].

// The crate is not published, so self-explanatory names need no comment.
#![cfg_attr(not(test), warn(clippy::disallowed_macros, clippy::disallowed_methods))]

mod actions;
mod app;
mod draw;
mod event_loop;
mod history;
mod model;
mod pane;
mod raw_terminal;
mod recording;
mod scan_schedule;
mod scanner;
mod table;
#[cfg(test)]
mod tests;

pub use actions::ActionContext;
pub use app::AppConfig;
pub use event_loop::{TopSettings, run};
