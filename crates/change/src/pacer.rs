//! The stall budget as a duty cycle: how much to do in one call, and how long to pause after it.
//! Pure.
//!
//! While a call moves a page, whoever touches that page waits for it, and the thread that moves
//! takes one processor. A pause of nine times the call's length keeps both below a tenth of the
//! victim's time, whatever the machine's speed, and also when a call is slow because the kernel
//! has to compact memory first.

use std::time::Duration;

use hugeleaf_units::{Bytes, PageSize};

use crate::options::Percent;

/// What one processor copies onto huge pages in a second, for an estimate before the first call.
/// A 2-core virtual machine does 1.1 to 2 GiB once the memory is warm.
pub const ASSUMED_BYTES_A_SECOND: Bytes = Bytes(1 << 30);

/// The most that one call moves where there is no budget to keep: long enough that what a call
/// costs in addition to the copying does not count, short enough that Ctrl-C is answered at once.
const LARGEST_CALL: Bytes = Bytes(64 << 20);

/// Huge pages that one call maps into a further process that shares them. Nothing is copied there.
const ATTACHED_A_CALL: u64 = 16;

/// How long to pause after a call that took `took`, so that calls take `budget` of the time.
pub fn pause_after(took: Duration, budget: Percent) -> Duration {
    let budget = u32::from(budget.get());
    took.saturating_mul(100 - budget) / budget
}

/// The sizes of calls where a budget is to be kept: 1, 2, 4 and 8 huge pages.
const SIZES: usize = 4;
/// So many calls of one size, then one of the next larger or smaller.
const TRY_EVERY: u32 = 4;

/// How many huge pages to move in one call under a budget: one, unless calls cost much more than
/// the copying.
///
/// Every call first has all processors empty their lists of new pages, with the victim's memory
/// map locked for reading. On a busy host that wait is several times as long as copying a page
/// (tried: 14 ms against 1 ms, and 50 ms where tasks wait for processors), so there a call that moves more pages
/// stalls the victim less often. What calls cost changes with what else goes on, so other sizes are tried now and then.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Step {
    /// Calls move 2 to the power of this.
    at: usize,
    /// What a page took in calls of each size, smoothed; nothing where none was made.
    each: [Option<Duration>; SIZES],
    /// Calls since another size was tried.
    calls: u32,
    /// Whether the smaller one is tried next.
    down: bool,
}

impl Step {
    /// Huge pages for the next call; 1 to 8.
    pub fn pages(self) -> u64 {
        let (smaller, larger) = (self.at.saturating_sub(1), (self.at + 1).min(SIZES - 1));
        let size = match (self.calls >= TRY_EVERY, self.down && self.at > 0) {
            (false, _) => self.at,
            (true, true) => smaller,
            (true, false) => larger,
        };
        1 << size
    }

    /// Learns from a call that moved so many huge pages.
    pub fn learn(&mut self, pages: u64, took: Duration) {
        let pages = u32::try_from(pages.max(1)).unwrap_or(u32::MAX);
        let size = usize::try_from(pages.ilog2()).unwrap_or(0).min(SIZES - 1);
        let each = took / pages;
        self.each[size] = match self.each[size] {
            Some(before) if size == self.at => {
                // What the others cost was under other conditions.
                if each < before / 2 || each / 2 > before {
                    self.each = [None; SIZES];
                }
                Some(before / 2 + each / 2)
            }
            _ => Some(each),
        };
        self.calls += 1;
        if self.calls > TRY_EVERY {
            (self.calls, self.down) = (0, !self.down);
        }
        self.choose();
    }

    /// A larger call must bring a quarter, a smaller one may cost a tenth: the fewest pages at a time that do.
    fn choose(&mut self) {
        let Some(here) = self.each[self.at] else {
            return;
        };
        let of = |size: Option<usize>| *self.each.get(size?)?;
        let is_better = |larger: Duration| larger < here / 4 * 3;
        let is_as_good = |smaller: Duration| smaller <= here.saturating_add(here / 10);
        if of(self.at.checked_add(1)).is_some_and(is_better) {
            // And on in that direction.
            (self.at, self.calls, self.down) = (self.at + 1, TRY_EVERY - 1, false);
        } else if of(self.at.checked_sub(1)).is_some_and(is_as_good) {
            (self.at, self.calls, self.down) = (self.at - 1, TRY_EVERY - 1, true);
        }
    }
}

/// How much memory one call may move: one huge page where a budget is to be kept.
pub fn bytes_a_call(budget: Percent, huge: PageSize) -> Bytes {
    match budget {
        Percent::ALL => Bytes(huge.round_down(LARGEST_CALL.get())).max(huge.bytes()),
        _ => huge.bytes(),
    }
}

/// How much memory one call may map into a process that shares huge pages with another.
pub fn attached_a_call(huge: PageSize) -> Bytes {
    Bytes(huge.bytes().get().saturating_mul(ATTACHED_A_CALL))
        .min(Bytes(1 << 30))
        .max(huge.bytes())
}

/// How many huge pages one call splits (splitting one took 0.13 ms on a 2-core virtual machine). A call
/// takes 1024, but what a split takes away is restored after each call, and the process should not be
/// without it for long, nor for good where this program is killed in between.
pub const SPLITS_A_CALL: usize = 4;

/// How many huge pages one write to the kernel's file for splitting covers. The process's memory
/// map is locked for reading as long as that lasts, and Ctrl-C waits for it.
pub const fn splits_a_write(budget: Percent) -> usize {
    if budget.get() == 100 { 32 } else { 4 }
}

/// An estimate of the time to move `bytes`, in seconds.
pub fn estimate_seconds(bytes: Bytes, budget: Percent) -> f64 {
    bytes.as_f64() / ASSUMED_BYTES_A_SECOND.as_f64() * 100.0 / f64::from(budget.get())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn percent(n: u8) -> Percent {
        Percent::new(n).unwrap()
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

    /// The pages of each of so many calls that cost so much each and a page.
    fn calls(step: &mut Step, count: usize, call: u64, page: u64) -> Vec<u64> {
        let one = |_| {
            let pages = step.pages();
            step.learn(pages, Duration::from_millis(call + page * pages));
            pages
        };
        (0..count).map(one).collect()
    }

    #[test]
    fn steps_grow_only_where_calls_cost_more_than_copying() {
        let mut step = Step::default();
        let ones = |pages: &[u64]| pages.iter().filter(|pages| **pages == 1).count();
        let copying = calls(&mut step, 100, 0, 1);
        assert!(ones(&copying) >= 80 && copying.iter().all(|pages| *pages <= 2));
        // Now each call waits 12 ms before it copies 1 ms a page.
        let waiting = calls(&mut step, 100, 12, 1);
        assert!(waiting[60..].iter().sum::<u64>() >= 40 * 6, "{waiting:?}");
        let copying = calls(&mut step, 100, 0, 1);
        assert!(ones(&copying[60..]) >= 32, "{copying:?}");
        // Also where no call was ever quick.
        let mut step = Step::default();
        let waiting = calls(&mut step, 100, 50, 1);
        assert!(waiting[60..].iter().sum::<u64>() >= 40 * 6, "{waiting:?}");
    }

    #[test]
    fn steps_take_any_time() {
        let mut step = Step::default();
        for took in [Duration::ZERO, Duration::MAX, Duration::MAX, Duration::ZERO] {
            for pages in [0, 1, 2, 8, 500, u64::MAX] {
                step.learn(pages, took);
                assert!((1..=8).contains(&step.pages()));
            }
        }
    }

    #[test]
    fn one_huge_page_a_call_unless_all_time_is_given() {
        let (small, large) = ("2M".parse().unwrap(), "512M".parse::<PageSize>().unwrap());
        assert_eq!(bytes_a_call(percent(99), small), Bytes(2 << 20));
        assert_eq!(bytes_a_call(Percent::ALL, small), LARGEST_CALL);
        assert_eq!(bytes_a_call(Percent::ALL, large), large.bytes());
        assert_eq!(attached_a_call(small), Bytes(32 << 20));
        assert_eq!(attached_a_call(large), Bytes(1 << 30));
    }
}
