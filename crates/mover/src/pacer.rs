//! Implements the stall budget as a duty cycle: the amount of work per call, and the pause after it. Pure.
//!
//! While a call moves a page, a thread that touches this page waits for it. During a call, any task that changes the
//! process's memory map (`mmap`, `munmap`) waits, even if the call itself waits for others. So the whole call counts as
//! a stall. A pause of nine times its length limits calls to a tenth of the process's time, at any machine speed.
//!
//! A call first drains the lists of new pages on all processors, which takes long if many tasks wait for processors.
//! `PromotionRun::fetch` drains them before the call, so one huge page per call is enough.

use std::time::Duration;

use hugeleaf_units::time::seconds;
use hugeleaf_units::{Bytes, PageSize};
use serde::{Deserialize, Serialize};

use crate::options::{Percent, StallLimits};

/// Copy rate of one processor onto huge pages per second, for an estimate before the first call. A 2-core virtual
/// machine reaches 1.1 to 2 GiB once the memory is warm.
pub const ASSUMED_BYTES_A_SECOND: Bytes = Bytes(1 << 30);

/// Time to split a huge page, with a margin; 0.13 ms on a 2-core virtual machine.
const ASSUMED_SPLIT: Duration = Duration::from_micros(500);

/// Maximum bytes per call without a budget. Large enough to make the fixed cost of a call negligible, small enough to
/// react to Ctrl-C at once.
const LARGEST_CALL: Bytes = Bytes(64 << 20);

/// Number of huge pages that one call maps into another process that shares them. Nothing is copied.
const MAP_ONLY_PER_CALL: u64 = 16;

/// Returns the pause after a call of length `took`, so that calls use `budget` of the time.
pub fn pause_after(took: Duration, budget: Percent) -> Duration {
    let budget = u32::from(budget.get());
    took.saturating_mul(100 - budget) / budget
}

/// Stall statistics of one piece of work. A call holds up the process for at most its own length.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct StallStats {
    #[serde(rename = "calls")]
    pub count: u64,
    #[serde(rename = "call_seconds", alias = "moving_seconds", with = "seconds")]
    pub total: Duration,
    #[serde(rename = "longest_stall_seconds", with = "seconds")]
    pub longest: Duration,
    /// Calls longer than [`StallLimits::longest_stall`]; 0 without that bound.
    #[serde(rename = "calls_over_bound")]
    pub over: u64,
    /// Calls longer than twice that bound.
    #[serde(rename = "calls_over_twice_bound")]
    pub over_twice: u64,
}

impl StallStats {
    /// Counts a call.
    pub fn add(&mut self, took: Duration, pace: StallLimits) {
        let is_over = |n: u32| pace.longest_stall.is_some_and(|most| took > most * n);
        self.join(&StallStats {
            count: 1,
            total: took,
            longest: took,
            over: u64::from(is_over(1)),
            over_twice: u64::from(is_over(2)),
        });
    }

    /// Adds the calls of other work.
    pub fn join(&mut self, other: &StallStats) {
        self.count += other.count;
        self.total = self.total.saturating_add(other.total);
        self.longest = self.longest.max(other.longest);
        self.over += other.over;
        self.over_twice += other.over_twice;
    }
}

/// Returns how much memory one call may move: one huge page if a budget or a longest stall is set.
pub fn bytes_a_call(pace: StallLimits, huge: PageSize) -> Bytes {
    match (pace.budget, pace.longest_stall) {
        (Percent::ALL, None) => Bytes(huge.round_down(LARGEST_CALL.get())).max(huge.bytes()),
        _ => huge.bytes(),
    }
}

/// Returns how much memory one call may map into a process that shares huge pages with another.
pub fn map_only_per_call(pace: StallLimits, huge: PageSize) -> Bytes {
    let pages = if pace.longest_stall.is_some() {
        1
    } else {
        MAP_ONLY_PER_CALL
    };
    Bytes(huge.bytes().get().saturating_mul(pages))
        .min(Bytes(1 << 30))
        .max(huge.bytes())
}

/// Returns how many huge pages one call splits. A call could take 1024. But memory that a split removes is restored
/// after each call, and must not be missing for long, or permanently if this program is killed meanwhile.
pub fn splits_a_call(pace: StallLimits) -> usize {
    within(pace, 4)
}

/// Returns how many huge pages one write to `split_huge_pages` covers. The process's memory map is locked for reading
/// during the write, and Ctrl-C waits for it.
pub fn splits_a_write(pace: StallLimits) -> usize {
    within(pace, if pace.budget == Percent::ALL { 32 } else { 4 })
}

/// Returns how many splits fit into the longest stall, at most `most`.
fn within(pace: StallLimits, most: usize) -> usize {
    let Some(longest) = pace.longest_stall else {
        return most;
    };
    let fit = longest.as_nanos() / ASSUMED_SPLIT.as_nanos();
    usize::try_from(fit).map_or(most, |fit| fit.clamp(1, most))
}

/// Estimates the time to move `bytes`, in seconds.
pub fn estimate_seconds(bytes: Bytes, budget: Percent) -> f64 {
    bytes.as_f64() / ASSUMED_BYTES_A_SECOND.as_f64() * 100.0 / f64::from(budget.get())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn percent(n: u8) -> Percent {
        Percent::new(n).unwrap()
    }

    fn bounded(longest: Duration) -> StallLimits {
        StallLimits {
            longest_stall: Some(longest),
            ..StallLimits::default()
        }
    }

    #[test]
    fn pauses_keep_the_budget() {
        let took = Duration::from_millis(2);
        assert_eq!(pause_after(took, percent(10)), Duration::from_millis(18));
        assert_eq!(pause_after(took, percent(50)), took);
        assert_eq!(pause_after(took, Percent::ALL), Duration::ZERO);
        for budget in 1..=100 {
            let pause = pause_after(took, percent(budget)).as_secs_f64();
            let share = took.as_secs_f64() / (took.as_secs_f64() + pause);
            assert!(
                (share * 100.0 - f64::from(budget)).abs() < 0.01,
                "{budget}: {share}"
            );
        }
        pause_after(Duration::MAX, percent(1)); // Does not overflow.
    }

    #[test]
    fn stalls_are_counted_against_their_bound() {
        let mut stalls = StallStats::default();
        let ms = Duration::from_millis;
        for took in [ms(1), ms(5), ms(6), ms(10), ms(11)] {
            stalls.add(took, bounded(ms(5)));
        }
        stalls.add(ms(20), StallLimits::default());
        let is = (stalls.count, stalls.total, stalls.longest);
        assert_eq!(is, (6, ms(53), ms(20)));
        assert_eq!((stalls.over, stalls.over_twice), (3, 1));
    }

    #[test]
    fn one_huge_page_a_call_unless_all_time_is_given() {
        let (small, large) = ("2M".parse().unwrap(), "512M".parse::<PageSize>().unwrap());
        let (most, any) = (
            StallLimits::from(percent(99)),
            StallLimits::from(Percent::ALL),
        );
        let millisecond = StallLimits {
            longest_stall: Some(Duration::from_millis(1)),
            ..any
        };
        assert_eq!(bytes_a_call(most, small), Bytes(2 << 20));
        assert_eq!(bytes_a_call(any, small), LARGEST_CALL);
        assert_eq!(bytes_a_call(any, large), large.bytes());
        assert_eq!(bytes_a_call(millisecond, small), Bytes(2 << 20));
        assert_eq!(map_only_per_call(any, small), Bytes(32 << 20));
        assert_eq!(map_only_per_call(any, large), Bytes(1 << 30));
        assert_eq!(map_only_per_call(millisecond, small), Bytes(2 << 20));
        assert_eq!((splits_a_call(any), splits_a_write(any)), (4, 32));
        assert_eq!(
            (splits_a_call(millisecond), splits_a_write(millisecond)),
            (2, 2)
        );
        assert_eq!(splits_a_call(bounded(Duration::ZERO)), 1);
    }
}
