//! Questions to servers. Every question ends: each answer has one deadline and a bounded length, so a server can neither
//! hang this process nor fill it.
//!
//! This crate must not judge an answer. Main types: [`Place`], [`Wire`], [`Unanswered`].

#![cfg_attr(not(test), warn(clippy::disallowed_macros, clippy::disallowed_methods))]

mod place;
pub mod redis;
mod wire;

pub use place::Place;
pub use wire::{LONGEST, Wire};

use serde::{Deserialize, Serialize};

/// Why a server did not do what it was asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[error("{what}")]
pub struct Unanswered {
    /// What failed, without a password.
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
