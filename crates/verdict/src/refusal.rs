//! Why something is not done, as every judge says it.

/// Why a plan is not made or applied, or a program not started: what is wrong, and what to do next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// What is wrong, with the value.
    pub what: String,
    /// The next thing to do, as a command where there is one.
    pub next: String,
}

impl Refusal {
    /// What is wrong, and what to do next.
    pub fn new(what: impl Into<String>, next: impl Into<String>) -> Refusal {
        Refusal {
            what: what.into(),
            next: next.into(),
        }
    }
}
