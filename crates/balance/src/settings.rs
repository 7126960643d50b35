//! Settings for the speed and caution of moves.

use std::time::Duration;

/// Speed and caution of moves: start with [`Settings::in_process`] or [`Settings::servers`], and change single fields.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// Moves per second in the long run; reductions for a lower target count too.
    pub moves_per_second: f64,
    /// Time for which a move must look worthwhile before it begins.
    pub persist: Duration,
    /// Time after which a move is judged by its gain; long enough for a new size to show.
    pub check_after: Duration,
    /// Minimum relative excess of the gain over the loss.
    pub margin: f64,
    /// Minimum part of the expected gain; a move with less is reverted, unless it certainly saves more than it costs.
    pub min_gain_ratio: f64,
    /// Minimum net gain of a move, in seconds per second.
    pub least_worth: f64,
    /// Divisor of a component's size for the maximum taken by one move; a granule is always allowed.
    pub largest_part: u64,
    /// Longest time of an order before its component is skipped.
    pub patience: Duration,
    /// Time for which a size set by hand is respected.
    pub by_hand: Duration,
    /// First and longest wait after a component disobeyed an order; doubled each time.
    pub retry: (Duration, Duration),
    /// First and longest wait after a wrong move between a pair of components.
    pub pair_retry: (Duration, Duration),
    /// Time within which a move in the other direction means that the first was wrong.
    pub reversal: Duration,
    /// Interval between tries with unknown gain (by a granule); twice that after each try without gain.
    pub probe_every: Duration,
    /// Minimum loss of a component for a try, in seconds per second.
    pub probe_pressure: f64,
}

impl Settings {
    /// Returns settings for components of one process: a resize takes milliseconds, and its effect shows within a
    /// second.
    pub fn in_process() -> Settings {
        Settings {
            moves_per_second: 4.0,
            persist: Duration::from_secs(1),
            check_after: Duration::from_secs(1),
            margin: 0.1,
            min_gain_ratio: 0.25,
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

    /// Returns settings for servers: a resize takes seconds, and a buffer pool fills for a while before its counters
    /// show it.
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
