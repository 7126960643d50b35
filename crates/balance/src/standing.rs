//! Where a component stands, and what is wrong with all of them, in words.

use std::fmt;
use std::time::Duration;

use hugeleaf_units::Bytes;
use serde::Serialize;

/// What a component did instead of what it was asked.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "trouble", rename_all = "snake_case")]
pub enum Trouble {
    /// It said no.
    Refused {
        /// In its own words.
        why: String,
    },
    /// It changed by less than asked.
    Short {
        /// What was asked.
        asked_bytes: Bytes,
        /// What it did.
        done_bytes: Bytes,
    },
    /// It became larger than it was allowed.
    TookMore {
        /// The size it was allowed.
        allowed_bytes: Bytes,
        /// What it took.
        bytes: Bytes,
    },
    /// It did not answer in time.
    NoAnswer,
    /// It says one size and holds another.
    Lies {
        /// The size that it says.
        said_bytes: Bytes,
        /// What was found.
        measured_bytes: Bytes,
    },
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Trouble::Refused { why } => write!(f, "it refused: {why}"),
            Trouble::Short {
                asked_bytes,
                done_bytes,
            } => write!(f, "it changed by {done_bytes} of {asked_bytes}"),
            Trouble::TookMore {
                allowed_bytes,
                bytes,
            } => write!(f, "it was allowed {allowed_bytes} and took {bytes}"),
            Trouble::NoAnswer => f.write_str("it did not answer in time"),
            Trouble::Lies {
                said_bytes,
                measured_bytes,
            } => write!(f, "it says {said_bytes} and holds {measured_bytes}"),
        }
    }
}

/// Where a component stands, as of the last look.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
#[serde(tag = "standing", rename_all = "snake_case")]
pub enum Standing {
    /// It gives and takes.
    #[default]
    Ready,
    /// It is being resized.
    Resizing {
        /// To this size.
        goal_bytes: Bytes,
    },
    /// It took part in a move that has not been judged yet.
    Judged,
    /// It may not be resized now.
    Fixed,
    /// Somebody else set its size, which is respected for a while.
    ByHand {
        /// The size before.
        from_bytes: Bytes,
        /// The size since.
        to_bytes: Bytes,
        /// For how long still.
        left_seconds: f64,
    },
    /// It did not do what it was asked, and is let be for a while.
    LetBe {
        /// What it did.
        #[serde(flatten)]
        trouble: Trouble,
        /// How often in a row.
        times: u32,
        /// For how long still; 0 until it changes.
        left_seconds: f64,
    },
}

impl Standing {
    /// Whether it takes no part for a while, because of what it or somebody else did.
    pub const fn is_apart(&self) -> bool {
        matches!(self, Standing::ByHand { .. } | Standing::LetBe { .. })
    }
}

impl fmt::Display for Standing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Standing::Ready => f.write_str("gives and takes"),
            Standing::Resizing { goal_bytes } => write!(f, "is being resized to {goal_bytes}"),
            Standing::Judged => {
                f.write_str("was just resized; what that brought is being measured")
            }
            Standing::Fixed => f.write_str("may not be resized now"),
            Standing::ByHand {
                from_bytes,
                to_bytes,
                left_seconds,
            } => write!(
                f,
                "was set from {from_bytes} to {to_bytes} by somebody else, which is respected for {left_seconds:.0} s more"
            ),
            Standing::LetBe {
                trouble,
                left_seconds,
                ..
            } if *left_seconds <= 0.0 => write!(f, "{trouble}; it is let be until that changes"),
            Standing::LetBe {
                trouble,
                times,
                left_seconds,
            } => write!(
                f,
                "{trouble} ({times} in a row); it is let be for {left_seconds:.0} s more"
            ),
        }
    }
}

/// What is wrong with all of them together.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "problem", rename_all = "snake_case")]
pub enum Problem {
    /// The floors of all components are above the target, which is not reached.
    FloorsAboveTarget {
        /// The sum of what they have at least.
        least_bytes: Bytes,
        /// The target.
        target_bytes: Bytes,
    },
    /// They hold more than the target.
    AboveTarget {
        /// What they hold.
        held_bytes: Bytes,
        /// The target.
        target_bytes: Bytes,
    },
    /// Two have one name: nothing moves.
    SameName {
        /// The name.
        name: String,
    },
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Problem::FloorsAboveTarget {
                least_bytes,
                target_bytes,
            } => write!(
                f,
                "components have {least_bytes} at least, more than the target of {target_bytes}; they are made no smaller than that until one of them is lowered or the target is raised"
            ),
            Problem::AboveTarget {
                held_bytes,
                target_bytes,
            } => write!(
                f,
                "{held_bytes} are held, above the target of {target_bytes}"
            ),
            Problem::SameName { name } => {
                write!(f, "two components are called '{name}'; nothing moves")
            }
        }
    }
}

/// What is left until a time, in seconds.
pub(crate) fn seconds_until(until: Duration, now: Duration) -> f64 {
    until.saturating_sub(now).as_secs_f64()
}
