//! What a machine lacks for running guests: an error of its own, so that a test says "not run"
//! where something cannot be installed, and fails where something is wrong.

use std::fmt;

/// Something that is not on this machine, and how to get it.
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
