//! The error of an operation whose caller only reports it.

/// A failed operation and its remedy.
///
/// Use it where callers print an error and stop. Where a caller decides by the kind of failure,
/// use an enum.
///
/// ```
/// let failure = hugeleaf_units::Failure::new("pool of 2M: 12 of 20 pages free", "hugeleaf plan");
/// assert_eq!(failure.to_string(), "pool of 2M: 12 of 20 pages free");
/// assert_eq!(failure.remedy, "hugeleaf plan");
/// ```
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    /// The failure, with the object and the value.
    pub message: String,
    /// The next step: a command where there is one.
    pub remedy: String,
}

impl Failure {
    /// Creates a failure with its remedy.
    pub fn new(what: impl Into<String>, next: impl Into<String>) -> Failure {
        Failure {
            message: what.into(),
            remedy: next.into(),
        }
    }
}
