//! The stall budget as a duty cycle: how much to do in one call, and how long to pause after it.
//! Pure.
//!
//! While a call moves a page, whoever touches that page waits for it, and the thread that moves
//! takes one processor. A pause of nine times what the call had of a processor keeps both below a tenth of the
//! victim's time, whatever the machine's speed, and also when a call is slow because the kernel
//! has to compact memory first. What a call waits for others stops nobody but who changes the victim's memory
//! map (`mmap`, `munmap`): that is kept to a quarter of the time.

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

/// How much longer calls may wait for others than they may work.
const WAITING_OVER_WORKING: u32 = 3;

/// How long to pause after a call that had a processor for `busy` and waited for `waited`: the work takes `budget` of
/// the time at most, and the whole call a quarter where that is a tenth.
pub fn pause_after(busy: Duration, waited: Duration, budget: Percent) -> Duration {
    let budget = u32::from(budget.get());
    let weighed = busy.max(waited / WAITING_OVER_WORKING);
    weighed.saturating_mul(100 - budget) / budget
}

/// The most that one call moves where a budget is to be kept.
const MOST_PAGES: u64 = 64;

/// How many huge pages to move in one call under a budget: one, unless calls wait for much longer than they copy.
///
/// Every call first has all processors empty their lists of new pages (`lru_add_drain_all`), with the victim's memory
/// map locked for reading. That is work for a kernel thread of each processor, which waits for its turn as everybody does:
/// 0.05 ms on an idle host, 10 ms where two processors are busy, and up to 450 ms where many tasks wait for them, against
/// 1 ms for copying a page (traced; docs/internals/kernel-notes.md). So a call moves as many pages as take as long to
/// copy as it waits for: half of its time is then of use, and the victim's map is locked less often for the same memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Step {
    /// What a call waited for, and what a page took of a processor's time, smoothed; nothing before the first call.
    known: Option<(Duration, Duration)>,
}

impl Step {
    /// Huge pages for the next call; 1 to 64.
    pub fn pages(self) -> u64 {
        let Some((wait, copy)) = self.known else {
            return 1;
        };
        let pages = wait.as_nanos() / copy.as_nanos().max(1);
        u64::try_from(pages)
            .unwrap_or(u64::MAX)
            .clamp(1, MOST_PAGES)
    }

    /// Learns from a call that moved so many huge pages, took so long, and had a processor for `busy` of that.
    pub fn learn(&mut self, pages: u64, took: Duration, busy: Duration) {
        let pages = u32::try_from(pages.max(1)).unwrap_or(u32::MAX);
        let (wait, copy) = (took.saturating_sub(busy), busy / pages);
        self.known = Some(match self.known {
            Some((waited, copied)) => (waited / 2 + wait / 2, copied / 2 + copy / 2),
            None => (wait, copy),
        });
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
        let (took, none) = (Duration::from_millis(2), Duration::ZERO);
        assert_eq!(
            pause_after(took, none, percent(10)),
            Duration::from_millis(18)
        );
        assert_eq!(pause_after(took, none, percent(50)), took);
        assert_eq!(pause_after(took, took, Percent::ALL), Duration::ZERO);
        // Waiting counts for a third, and only where it is the longer of both then.
        assert_eq!(
            pause_after(took, took * 2, percent(10)),
            Duration::from_millis(18)
        );
        assert_eq!(
            pause_after(none, took * 6, percent(10)),
            Duration::from_millis(36)
        );
        for budget in 1..=100 {
            let pause = pause_after(took, none, percent(budget)).as_secs_f64();
            let share = took.as_secs_f64() / (took.as_secs_f64() + pause);
            assert!(
                (share * 100.0 - f64::from(budget)).abs() < 0.01,
                "{budget}: {share}"
            );
        }
        pause_after(Duration::MAX, Duration::MAX, percent(1)); // Does not overflow.
    }

    /// The pages of each of so many calls that wait so long and copy so long a page.
    fn calls(step: &mut Step, count: usize, wait: u64, copy: u64) -> Vec<u64> {
        let one = |_| {
            let pages = step.pages();
            let busy = Duration::from_micros(copy * pages);
            step.learn(pages, Duration::from_micros(wait) + busy, busy);
            pages
        };
        (0..count).map(one).collect()
    }

    #[test]
    fn steps_grow_only_where_calls_wait_longer_than_they_copy() {
        let mut step = Step::default();
        assert!(
            calls(&mut step, 100, 50, 1000)
                .iter()
                .all(|pages| *pages == 1)
        );
        let waiting = calls(&mut step, 20, 12_000, 1000);
        assert!(
            waiting[5..].iter().all(|pages| (8..=12).contains(pages)),
            "{waiting:?}"
        );
        let waiting = calls(&mut step, 20, 450_000, 1000);
        assert!(
            waiting[5..].iter().all(|pages| *pages == MOST_PAGES),
            "{waiting:?}"
        );
        let copying = calls(&mut step, 20, 50, 1000);
        assert!(copying[12..].iter().all(|pages| *pages == 1), "{copying:?}");
    }

    #[test]
    fn steps_take_any_time() {
        let mut step = Step::default();
        for took in [Duration::ZERO, Duration::MAX, Duration::MAX, Duration::ZERO] {
            for busy in [Duration::ZERO, Duration::MAX] {
                for pages in [0, 1, 2, 8, 500, u64::MAX] {
                    step.learn(pages, took, busy);
                    assert!((1..=MOST_PAGES).contains(&step.pages()));
                }
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
