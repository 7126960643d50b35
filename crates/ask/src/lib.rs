//! Queries to servers. Every query ends: an exchange has one deadline ([`hugeleaf_sys::Deadline`]) and a bounded length, so a server can
//! neither hang this process nor fill its memory. [`http`], [`mysql`], [`postgres`] and [`redis`] implement as much of these protocols as a
//! query for a few numbers needs. They log in and read texts, without TLS.
//!
//! Metrics and the balancer use it. It replaced libraries. The maintained ones bring 90 crates, two of them an asynchronous runtime, and trust the
//! length that a server announces. The small ones (`postgres_sync`, `connxt-mysql`) know no Unix sockets.
//!
//! This crate must not judge an answer. Main types: [`Endpoint`], [`Transport`], [`Exchange`], [`QueryError`].

#![cfg_attr(not(test), warn(clippy::disallowed_macros, clippy::disallowed_methods))]

mod base64;
mod endpoint;
pub mod http;
pub mod mysql;
mod percent_encoding;
pub mod postgres;
pub mod redis;
mod transport;

pub use endpoint::Endpoint;
pub use transport::{DEFAULT_MAX_BYTES, Exchange, Transport};

/// The reason why a server did not answer a request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what}")]
pub struct QueryError {
    pub what: String,
    /// True if no answer came in time. The server may still execute the request.
    pub timed_out: bool,
}

impl QueryError {
    /// Creates the error of a refusal or an invalid answer.
    pub fn new(what: impl Into<String>) -> QueryError {
        QueryError {
            what: what.into(),
            timed_out: false,
        }
    }

    /// Creates the error of a missed deadline.
    pub fn timeout(what: impl Into<String>) -> QueryError {
        QueryError {
            what: what.into(),
            timed_out: true,
        }
    }
}
