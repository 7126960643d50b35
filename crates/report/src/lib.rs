//! Views: from models to text, JSON and HTML. Pure: a view never touches the system.
//!
//! Every function here takes a model and returns a text. Widths, colour and time come in as
//! arguments, so that what a person sees can be tested to the letter.
//!
//! This crate must not read, write or measure anything: it has nothing to say that is not in the
//! model it was given.
//!
//! Main types: [`page::Page`], [`page::View`]; one module a command.

// Not published: a name that says it all needs no comment.
#![cfg_attr(not(test), warn(clippy::disallowed_macros, clippy::disallowed_methods))]
#![cfg_attr(not(test), warn(clippy::disallowed_types))]

pub mod apply;
pub mod balance;
pub mod bench;
pub mod chart;
pub mod check;
pub mod compare;
pub mod described;
pub mod flame;
pub mod guard;
pub mod json;
pub mod mem;
pub mod metrics;
pub mod page;
pub mod plan;
pub mod predict;
pub mod promote;
pub mod prove;
pub mod roles;
pub mod run;
pub mod screen;
pub mod start;
pub mod status;
pub mod trace;
pub mod try_;
pub mod verify;
pub mod why;
