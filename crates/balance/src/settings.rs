//! How fast and how carefully memory moves.

use std::time::Duration;

/// How fast and how carefully memory moves: [`Settings::in_process`] or [`Settings::servers`], then what is to differ.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// So many moves begin a second, in the long run; what takes memory for a target that fell counts too.
    pub moves_per_second: f64,
    /// A move must look worth it for this long before it begins.
    pub persist: Duration,
    /// After this long a move is judged by what it brought: long enough for a new size to show.
    pub check_after: Duration,
    /// What is gained must be more than what is lost by this part of it.
    pub margin: f64,
    /// A move that brought less than this part of what was expected is taken back.
    pub kept: f64,
    /// A move that brings less than so many seconds a second in all is not made.
    pub least_worth: f64,
    /// No move takes more than one part in so many from a component; a granule is always possible.
    pub largest_part: u64,
    /// How long an order may take before the component is let be.
    pub patience: Duration,
    /// How long a size that somebody else set is respected.
    pub by_hand: Duration,
    /// A component that did not do what it was asked is let be for the first time, doubled each time up to the second.
    pub retry: (Duration, Duration),
    /// The same of a pair of components, of which a move was wrong.
    pub pair_retry: (Duration, Duration),
    /// A move the other way within this time means that the first was wrong.
    pub reversal: Duration,
    /// What is unknown of a component is tried once in this time (by a granule), and in twice that after each try
    /// that brought nothing.
    pub probe_every: Duration,
    /// A component that loses less than so many seconds a second is not tried.
    pub probe_pressure: f64,
}

impl Settings {
    /// For components of one process: resizing takes milliseconds, and what it did shows within a second.
    pub fn in_process() -> Settings {
        Settings {
            moves_per_second: 4.0,
            persist: Duration::from_secs(1),
            check_after: Duration::from_secs(1),
            margin: 0.1,
            kept: 0.25,
            least_worth: 1e-5,
            largest_part: 4,
            patience: Duration::from_secs(5),
            by_hand: Duration::from_secs(600),
            retry: (Duration::from_secs(30), Duration::from_secs(3600)),
            pair_retry: (Duration::from_secs(2), Duration::from_secs(3600)),
            reversal: Duration::from_secs(30),
            probe_every: Duration::from_secs(30),
            probe_pressure: 1e-3,
        }
    }

    /// For servers: resizing takes seconds, and a buffer pool fills for a while before its counters show it.
    pub fn servers() -> Settings {
        Settings {
            moves_per_second: 0.5,
            persist: Duration::from_secs(2),
            check_after: Duration::from_secs(4),
            largest_part: 2,
            margin: 0.15,
            least_worth: 1e-4,
            patience: Duration::from_secs(60),
            by_hand: Duration::from_secs(3600),
            retry: (Duration::from_secs(60), Duration::from_secs(4 * 3600)),
            pair_retry: (Duration::from_secs(30), Duration::from_secs(4 * 3600)),
            reversal: Duration::from_secs(300),
            probe_every: Duration::from_secs(120),
            ..Settings::in_process()
        }
    }
}
