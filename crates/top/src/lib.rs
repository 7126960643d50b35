//! `hugeleaf top`: a host and its programs by page size, live on a terminal.
//!
//! A thread looks once a second and makes a [`Sample`]; a state machine ([`app`]) takes samples and keys and says
//! what is to be done; pure functions ([`draw`]) put its state on a screen of cells. So everything but the terminal
//! itself ([`run`]) is tested without one. A recording ([`record`]) is samples in a file.
//!
//! This crate must not judge and must not move memory by itself: verdicts come from `hugeleaf-verdict`, moves are made by
//! `hugeleaf-change`, and their pages are those of `hugeleaf-report`.
//!
//! Main types: [`Sample`], [`app::App`], [`Settings`], [`run`].

#![cfg_attr(not(test), warn(clippy::disallowed_macros, clippy::disallowed_methods))]

pub mod act;
pub mod app;
pub mod draw;
pub mod history;
pub mod look;
pub mod model;
pub mod pane;
pub mod record;
mod run;
mod screen;
pub mod table;
#[cfg(test)]
mod testing;
pub mod turn;

pub use act::{Refusal, Tools};
pub use model::Sample;
pub use record::{Recorder, Recording, RecordingError};
pub use run::{Settings, TopError, run};
