//! States of a component, and problems of all components, with their texts.

use std::fmt;
use std::time::Duration;

use hugeleaf_units::Bytes;
use serde::Serialize;

/// Deviation of a component from its order.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "trouble", rename_all = "snake_case")]
pub enum OrderFailure {
    /// It refused.
    Refused {
        /// Its own reason.
        why: String,
    },
    /// It changed by less than ordered.
    Short {
        /// Ordered change.
        asked_bytes: Bytes,
        /// Actual change.
        done_bytes: Bytes,
    },
    /// It grew beyond its allowed size.
    TookMore {
        /// Allowed size.
        allowed_bytes: Bytes,
        /// Actual size.
        bytes: Bytes,
    },
    /// It did not answer in time.
    NoAnswer,
    /// It reports one size and holds another.
    Lies {
        /// Reported size.
        said_bytes: Bytes,
        /// Measured memory.
        measured_bytes: Bytes,
    },
}

impl fmt::Display for OrderFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OrderFailure::Refused { why } => write!(f, "refused: {why}"),
            OrderFailure::Short {
                asked_bytes,
                done_bytes,
            } => write!(f, "resized by {done_bytes} of {asked_bytes}"),
            OrderFailure::TookMore {
                allowed_bytes,
                bytes,
            } => write!(f, "grew to {bytes}, allowed {allowed_bytes}"),
            OrderFailure::NoAnswer => f.write_str("no answer in time"),
            OrderFailure::Lies {
                said_bytes,
                measured_bytes,
            } => write!(f, "reports {said_bytes}, holds {measured_bytes}"),
        }
    }
}

/// State of a component, as of the last scan.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
#[serde(tag = "standing", rename_all = "snake_case")]
pub enum ComponentState {
    /// It gives and receives memory.
    #[default]
    Ready,
    /// It is being resized.
    Resizing {
        /// Ordered size.
        goal_bytes: Bytes,
    },
    /// It took part in a move that is not yet judged.
    Judged,
    /// It must not be resized now.
    Fixed,
    /// Its size was set by hand, which is respected for a while.
    ByHand {
        /// Size before.
        from_bytes: Bytes,
        /// Size since then.
        to_bytes: Bytes,
        /// Remaining time.
        left_seconds: f64,
    },
    /// It did not obey an order, and is skipped for a while.
    LetBe {
        /// Its deviation.
        #[serde(flatten)]
        trouble: OrderFailure,
        /// Number of consecutive failures.
        times: u32,
        /// Remaining time; 0 until it changes.
        left_seconds: f64,
    },
}

impl ComponentState {
    /// Returns true if it is excluded for a while, by its own behaviour or a change by hand.
    pub const fn is_excluded(&self) -> bool {
        matches!(
            self,
            ComponentState::ByHand { .. } | ComponentState::LetBe { .. }
        )
    }
}

impl fmt::Display for ComponentState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ComponentState::Ready => f.write_str("ready"),
            ComponentState::Resizing { goal_bytes } => write!(f, "resizing to {goal_bytes}"),
            ComponentState::Judged => f.write_str("just resized; effect being measured"),
            ComponentState::Fixed => f.write_str("not resizable now"),
            ComponentState::ByHand {
                from_bytes,
                to_bytes,
                left_seconds,
            } => write!(
                f,
                "resized by hand from {from_bytes} to {to_bytes}; unchanged for {left_seconds:.0} s more"
            ),
            ComponentState::LetBe {
                trouble,
                left_seconds,
                ..
            } if *left_seconds <= 0.0 => write!(f, "{trouble}; skipped until that changes"),
            ComponentState::LetBe {
                trouble,
                times,
                left_seconds,
            } => write!(
                f,
                "{trouble} ({times} in a row); skipped for {left_seconds:.0} s more"
            ),
        }
    }
}

/// Problem of all components together.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "problem", rename_all = "snake_case")]
pub enum TargetProblem {
    /// The floors of all components exceed the target, which is not reached.
    FloorsAboveTarget {
        /// Sum of their minimums.
        least_bytes: Bytes,
        /// The target.
        target_bytes: Bytes,
    },
    /// They hold more than the target.
    AboveTarget {
        /// Memory held.
        held_bytes: Bytes,
        /// The target.
        target_bytes: Bytes,
    },
    /// Two components have the same name: nothing moves.
    SameName {
        /// The name.
        name: String,
    },
}

impl fmt::Display for TargetProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TargetProblem::FloorsAboveTarget {
                least_bytes,
                target_bytes,
            } => write!(
                f,
                "minimum sizes add up to {least_bytes}, more than the target of {target_bytes}; components stay at their minimums: lower one, or raise the target"
            ),
            TargetProblem::AboveTarget {
                held_bytes,
                target_bytes,
            } => write!(f, "{held_bytes} held, above the target of {target_bytes}"),
            TargetProblem::SameName { name } => {
                write!(f, "two components are named '{name}': nothing is resized")
            }
        }
    }
}

/// Returns the seconds left until a time.
pub(crate) fn seconds_until(until: Duration, now: Duration) -> f64 {
    until.saturating_sub(now).as_secs_f64()
}
