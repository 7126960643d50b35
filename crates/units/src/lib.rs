//! The units of hugeleaf: bytes, pages, page sizes, address ranges and ladders.
//!
//! Each unit has one parser and one printer, so that a size is read and written the same way on
//! every screen, in every flag and in every file. Multiples are powers of 1024: `64K`, `2M`, `1G`.
//!
//! This crate must not read anything, and knows no page size of any machine. The available sizes are
//! a fact about a host (see `hugeleaf-host`).
//!
//! Main types: [`Bytes`], [`PageSize`], [`Pages`], [`Range`], [`PageKind`], [`Ladder`], [`Failure`].

#![warn(missing_docs)] // other programs use it
#![cfg_attr(not(test), warn(clippy::disallowed_macros, clippy::disallowed_methods))]
#![cfg_attr(not(test), warn(clippy::disallowed_types))]

mod bytes;
pub mod deserialize;
mod failure;
mod ladder;
mod named_enum;
mod page;
pub mod panic_containment;
mod parse_error;
mod range;
mod share;
mod text_position;
pub mod time;

pub use bytes::Bytes;
pub use failure::Failure;
pub use ladder::{Ladder, Rung};
pub use page::{PageKind, PageSize, Pages};
pub use parse_error::ParseError;
pub use range::{EmptyRangeError, Range};
pub use share::Share;
pub use text_position::line_and_column;
pub use time::parse_time;
