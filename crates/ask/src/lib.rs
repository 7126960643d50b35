//! Questions to servers. Every question ends: an exchange has one deadline ([`hugeleaf_sys::Question`]) and a bounded
//! length, so a server can neither hang this process nor fill it. [`http`], [`mysql`], [`postgres`] and [`redis`] speak as much of these protocols as a query for a few
//! numbers needs: they log in and read texts, without TLS.
//!
//! This crate must not judge an answer. Main types: [`Place`], [`Wire`], [`Exchange`], [`Unanswered`].

#![cfg_attr(not(test), warn(clippy::disallowed_macros, clippy::disallowed_methods))]

mod base64;
pub mod http;
pub mod mysql;
mod percent;
mod place;
pub mod postgres;
pub mod redis;
mod wire;

pub use place::Place;
pub use wire::{Exchange, LONGEST, Wire};

/// Why a server did not do what it was asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what}")]
pub struct Unanswered {
    pub what: String,
    /// Whether there was no answer in time. The server may still do what it was asked.
    pub is_late: bool,
}

impl Unanswered {
    /// The server refused, or its answer makes no sense.
    pub fn new(what: impl Into<String>) -> Unanswered {
        Unanswered {
            what: what.into(),
            is_late: false,
        }
    }

    /// No answer came in time.
    pub fn late(what: impl Into<String>) -> Unanswered {
        Unanswered {
            what: what.into(),
            is_late: true,
        }
    }
}
