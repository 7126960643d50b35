//! Computes the wait until the next scan. Pure.

use std::time::Duration;

use hugeleaf_units::Share;

/// Maximum factor by which scans become rarer while nothing changes.
const QUIETEST: u32 = 3;
/// Number of scans without change after which the wait grows.
const QUIET_AFTER: u32 = 12;
/// Longest wait for any scan cost, because a growing service must not wait for half an hour.
const LONGEST: Duration = Duration::from_secs(300);

#[derive(Debug, Clone, Copy, Default)]
pub struct ScanInterval {
    /// Processor time of a scan: a moving average with weight 1/4 for the newest.
    cost: Option<Duration>,
    quiet: u32,
}

impl ScanInterval {
    /// Returns the wait before the next scan: `every`, longer while nothing changes, and long enough to keep
    /// scans within `budget`. `cost` is the scan's processor time; `None` if concurrent work hides it. `changed`
    /// is true if the scan caused work.
    pub fn next(
        &mut self,
        every: Duration,
        budget: Share,
        cost: Option<Duration>,
        changed: bool,
    ) -> Duration {
        if let Some(cost) = cost {
            self.cost = Some(self.cost.map_or(cost, |before| (before * 3 + cost) / 4));
        }
        self.quiet = match changed {
            true => 0,
            false => self.quiet.saturating_add(1),
        };
        let times = (1 + self.quiet / QUIET_AFTER).min(QUIETEST);
        let least = self.cost.map_or(Duration::ZERO, |cost| {
            let part = budget.0.max(0.0001);
            Duration::try_from_secs_f64(cost.as_secs_f64() / part).unwrap_or(LONGEST)
        });
        (every * times).max(least).min(LONGEST.max(every))
    }

    pub fn cost(&self) -> Duration {
        self.cost.unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVERY: Duration = Duration::from_secs(5);
    const ONE: Share = Share(0.01);

    fn millis(n: u64) -> Option<Duration> {
        Some(Duration::from_millis(n))
    }

    #[test]
    fn what_looks_cost_stays_within_the_budget() {
        let mut pace = ScanInterval::default();
        assert_eq!(pace.next(EVERY, ONE, millis(20), true), EVERY);
        // A cost of 200 ms at 1 % means one scan per 20 s.
        for _ in 0..40 {
            pace.next(EVERY, ONE, millis(200), true);
        }
        let wait = pace.next(EVERY, ONE, None, true);
        assert!(
            wait.abs_diff(EVERY * 4) < Duration::from_millis(200),
            "{wait:?}"
        );
        for _ in 0..40 {
            pace.next(EVERY, ONE, millis(60_000), true);
        }
        assert_eq!(pace.next(EVERY, ONE, None, true), LONGEST);
    }

    #[test]
    fn quiet_hosts_are_looked_at_less_often() {
        let mut pace = ScanInterval::default();
        let waits: Vec<u64> = (0..40)
            .map(|_| pace.next(EVERY, ONE, None, false).as_secs())
            .collect();
        assert_eq!((waits[0], waits[11], waits[23], waits[39]), (5, 10, 15, 15));
        assert_eq!(pace.next(EVERY, ONE, None, true), EVERY);
    }
}
