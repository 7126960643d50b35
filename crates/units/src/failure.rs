//! The error of an operation whose caller only reports it.

/// A failed operation, its remedy, and the exit status of a command that it ends.
///
/// Use it where callers print an error and stop. Where a caller decides by the kind of failure,
/// use an enum.
///
/// ```
/// use hugeleaf_units::Failure;
///
/// let failure = Failure::missing("pool of 2M: 12 of 20 pages free", "hugeleaf plan");
/// assert_eq!(failure.to_string(), "pool of 2M: 12 of 20 pages free");
/// assert_eq!((&*failure.remedy, failure.status), ("hugeleaf plan", 3));
/// ```
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    /// The failure, with the object and the value.
    pub message: String,
    /// The next step: a command where there is one.
    pub remedy: String,
    /// The exit status.
    pub status: u8,
}

impl Failure {
    fn new(status: u8, what: impl Into<String>, next: impl Into<String>) -> Failure {
        Failure {
            message: what.into(),
            remedy: next.into(),
            status,
        }
    }

    /// Returns a failure for an attempt with a negative result (exit status 1).
    pub fn no(what: impl Into<String>, next: impl Into<String>) -> Failure {
        Failure::new(1, what, next)
    }

    /// Returns a failure for wrong usage (exit status 2).
    pub fn usage(what: impl Into<String>, next: impl Into<String>) -> Failure {
        Failure::new(2, what, next)
    }

    /// Returns a failure for a missing precondition (exit status 3).
    pub fn missing(what: impl Into<String>, next: impl Into<String>) -> Failure {
        Failure::new(3, what, next)
    }

    /// Returns the failure with another exit status.
    #[must_use]
    pub fn with_status(self, status: u8) -> Failure {
        Failure { status, ..self }
    }
}
