//! Preconditions that this machine lacks for running guests. They have an error type of their own,
//! so that a test prints "not run" for a missing precondition, and fails for an error.

use std::fmt;

/// A precondition that this machine lacks, and its remedy.
#[derive(Debug)]
pub struct Missing {
    pub what: String,
    pub remedy: String,
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.what, self.remedy)
    }
}

impl std::error::Error for Missing {}

pub fn missing(what: impl Into<String>, remedy: impl Into<String>) -> anyhow::Error {
    anyhow::Error::new(Missing {
        what: what.into(),
        remedy: remedy.into(),
    })
}
