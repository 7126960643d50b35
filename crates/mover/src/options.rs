//! Options of promotion and demotion.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use hugeleaf_units::{Bytes, Range};

use crate::process_memory::{HeldBeforeSplit, ProcessIdentity, ProcessRanges};

/// A whole percentage from 1 to 100.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Percent(u8);

impl Percent {
    pub const ALL: Percent = Percent(100);

    pub fn new(percent: u8) -> Result<Percent, String> {
        if (1..=100).contains(&percent) {
            Ok(Percent(percent))
        } else {
            Err(bad_percent(&percent.to_string()))
        }
    }

    pub const fn get(self) -> u8 {
        self.0
    }
}

impl fmt::Display for Percent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}%", self.0)
    }
}

fn bad_percent(text: &str) -> String {
    format!("'{text}' is not a percentage; write a whole number from 1% to 100%")
}

impl FromStr for Percent {
    type Err = String;

    fn from_str(text: &str) -> Result<Percent, String> {
        let bad = || bad_percent(text);
        let digits = text.trim();
        let digits = digits.strip_suffix('%').unwrap_or(digits);
        let percent: u8 = digits.parse().map_err(|_| bad())?;
        Percent::new(percent).map_err(|_| bad())
    }
}

/// Limits on stalls: by all calls together, and by each call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StallLimits {
    /// Share of the time that calls may take, waiting included; 100% never pauses.
    pub budget: Percent,
    /// Longest time that one call should take; `None` for the fastest promotion. It is met by fewer huge pages per call. A
    /// call for one huge page cannot be divided: [`crate::StallStats`] counts those that took longer.
    pub longest_stall: Option<Duration>,
}

impl Default for StallLimits {
    /// Limits calls to a tenth of the process's time.
    fn default() -> StallLimits {
        Percent(10).into()
    }
}

impl From<Percent> for StallLimits {
    fn from(budget: Percent) -> StallLimits {
        StallLimits {
            budget,
            longest_stall: None,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PromoteOptions {
    pub pace: StallLimits,
    /// Part of a block that must be resident for promotion. Below 100% promotion fills the block, which grows the process:
    /// [`crate::ProcessOutcome::grown`] counts the growth.
    pub min_resident: Percent,
    /// Number of attempts on a block that the kernel reports as busy, including the first; at least 1.
    pub passes: u32,
    /// Stops when the host's available memory would fall below this; `None` for a floor derived from the host
    /// ([`crate::pressure::floor_of`]).
    pub keep_available: Option<Bytes>,
    /// Only blocks inside these ranges; `None` for all eligible blocks.
    pub only: Option<Vec<ProcessRanges>>,
    /// Memory that blocks held when they were split. A block is promoted while it still holds as much, regardless of
    /// `min_resident`, so that it regains its former size and does not grow beyond.
    pub held: Option<HeldBeforeSplit>,
    /// Switches THP on first for a process that has disabled it for itself ([`hugeleaf_sys::Kernel::switch_thp_on`]).
    pub switch_thp_on: bool,
    /// Repeats until this share of the eligible memory is on huge pages, until a repetition gains nothing, or until
    /// [`crate::LAST_ROUND_AFTER`]; `None` for one round.
    pub at_least: Option<Percent>,
    pub dry_run: bool,
}

impl Default for PromoteOptions {
    /// A tenth of the process's time, fully resident blocks, five passes.
    fn default() -> PromoteOptions {
        PromoteOptions {
            pace: StallLimits::default(),
            min_resident: Percent::ALL,
            passes: 5,
            keep_available: None,
            only: None,
            held: None,
            switch_thp_on: false,
            at_least: None,
            dry_run: false,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DemoteOptions {
    pub pace: StallLimits,
    /// Only huge pages inside these ranges, e.g. [`crate::ProcessOutcome::moved`] of a promotion to be reverted; `None` for
    /// all huge pages.
    pub only: Option<Vec<ProcessRanges>>,
    /// Records the memory that blocks hold when they are split ([`PromoteOptions::held`]).
    pub record_held: bool,
    pub dry_run: bool,
}

/// Returns the ranges given for a process. `None` means no restriction; an empty list means that the restriction does not
/// name this process.
pub(crate) fn ranges_of(
    only: Option<&[ProcessRanges]>,
    who: ProcessIdentity,
) -> Option<Vec<Range>> {
    only.map(|list| {
        let named = list.iter().filter(|memory| memory.who == who);
        named.flat_map(|memory| memory.ranges.clone()).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentages() {
        for (text, percent) in [("10%", 10), ("10", 10), ("100%", 100), (" 1% ", 1)] {
            assert_eq!(text.parse::<Percent>().unwrap().get(), percent, "{text}");
        }
        for text in ["", "%", "0%", "101%", "1.5%", "-1", "ten", "10%%"] {
            let error = text.parse::<Percent>().unwrap_err();
            assert!(error.to_string().contains(text), "{error}");
        }
        assert_eq!(Percent(10).to_string(), "10%");
    }
}
