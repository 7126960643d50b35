//! `hugeleaf top`: a host and its programs by page size, live on a terminal.
//!
//! A thread looks once a second and makes a `Sample`; a state machine (`app`) takes samples and keys and says
//! what is to be done; pure functions (`draw`) put its state on a screen of cells. So everything but the terminal
//! itself ([`run`]) is tested without one. A recording (`record`) is samples in a file.
//!
//! This crate must not judge and must not move memory by itself: verdicts come from `hugeleaf-verdict`, moves are made by
//! `hugeleaf-change`, and their pages are those of `hugeleaf-report`.
//!
//! Main types: [`Settings`], [`run`].

// Not published: a name that says it all needs no comment.
#![cfg_attr(not(test), warn(clippy::disallowed_macros, clippy::disallowed_methods))]

mod act;
mod app;
mod draw;
mod history;
mod look;
mod model;
mod pane;
mod record;
mod run;
mod screen;
mod table;
#[cfg(test)]
mod tests;
mod turn;

pub use act::Tools;
pub use app::Config;
pub use run::{Settings, TopError, run};
