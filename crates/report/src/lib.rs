//! Views: from models to text, JSON and HTML.
//!
//! Every function takes a model and returns a text. Width, colour and time are arguments, so that
//! tests can compare whole screens.
//!
//! One module per command, and one for all of `bench`, from rows alone. A screen is a `document::Document` of typed cells, tables,
//! notes and charts. Renderers draw it for a terminal, as painted lines for a screen of cells, or as HTML. Models write their
//! own JSON: `json::answer` leaves out absent values and gives the reason for unreadable ones, and `json::merge_fields` adds the
//! fields of a view. `terminal_text` escapes terminal control characters.
//!
//! This crate is pure: it must not read, write or measure, and shows only the content of its models.
//!
//! Main types: [`document::Document`], [`document::TextOptions`]; one module a command.

// The crate is not published, so self-explanatory names need no comments.
#![cfg_attr(not(test), warn(clippy::disallowed_macros, clippy::disallowed_methods))]
#![cfg_attr(not(test), warn(clippy::disallowed_types))]

pub mod apply;
pub mod balance;
pub mod bench;
pub mod can_take;
pub mod chart;
pub mod check;
pub mod compare;
pub mod document;
pub mod exposition;
pub mod flame_graph;
pub mod guard;
pub mod json;
pub mod mem;
pub mod plan;
pub mod predict;
pub mod promote;
pub mod prove;
pub mod run;
pub mod run_preview;
pub mod run_roles;
pub mod status;
pub mod terminal_escape;
pub mod trace;
pub mod try_;
pub mod verify;
pub mod warm;
pub mod why;
pub mod workload_file;
pub(crate) mod yaml;
