//! Preconditions that this machine lacks for running guests. They have an error type of their own,
//! so that a test prints "not run" for a missing precondition, and fails for an error.

/// A precondition that this machine lacks, and its remedy.
#[derive(Debug, thiserror::Error)]
#[error("{what}; {remedy}")]
pub struct MissingPrecondition {
    pub what: String,
    pub remedy: String,
}

pub fn missing(what: impl Into<String>, remedy: impl Into<String>) -> anyhow::Error {
    anyhow::Error::new(MissingPrecondition {
        what: what.into(),
        remedy: remedy.into(),
    })
}
