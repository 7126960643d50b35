//! Processor time as a share of elapsed time. Pure.

use std::time::Duration;

/// Processor time that may still be used: earned as time passes, and spent by work. It counts processor time only,
/// because waiting for a processor costs others nothing. One piece of work may overspend; later work then waits.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CpuTokenBucket {
    /// Share of one processor.
    share: f64,
    /// Upper bound of `left`, in seconds; `debt` is the lower bound.
    most: f64,
    debt: f64,
    left: f64,
}

impl CpuTokenBucket {
    /// `most` is the maximum saved, and the initial value, so that idle time does not cause a burst. `debt` is the
    /// maximum owed, so that one long piece of work does not block others for minutes.
    pub fn new(share: f64, most: Duration, debt: Duration) -> CpuTokenBucket {
        CpuTokenBucket {
            share,
            most: most.as_secs_f64(),
            debt: debt.as_secs_f64(),
            left: most.as_secs_f64(),
        }
    }

    pub fn earn(&mut self, passed: Duration) {
        self.left = (self.left + passed.as_secs_f64() * self.share).min(self.most);
    }

    pub fn spend(&mut self, took: Duration) {
        self.left = (self.left - took.as_secs_f64()).max(-self.debt);
    }

    pub fn is_left(&self) -> bool {
        self.left > 0.0
    }

    /// Returns the time until the debt is earned.
    pub fn wait(&self) -> Duration {
        Duration::from_secs_f64((-self.left / self.share).max(0.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_share_is_kept(share in 0.001..1.0, most in 1u64..300, each in 1u64..50, step in 10u64..2000) {
            let (most, each, step) = (Duration::from_millis(most), Duration::from_millis(each), Duration::from_millis(step));
            let mut allowance = CpuTokenBucket::new(share, most, most.max(each));
            let mut spent = Duration::ZERO;
            for _ in 0..1000 {
                allowance.earn(step);
                while allowance.is_left() {
                    allowance.spend(each);
                    spent += each;
                }
            }
            let earned = (step * 1000).mul_f64(share);
            prop_assert!(spent <= earned + most + each);
            // The time earned in one step is bounded.
            let lost = (step.mul_f64(share)).saturating_sub(most) * 1000;
            prop_assert!(spent + each >= earned.saturating_sub(lost));
        }
    }

    #[test]
    fn a_long_piece_of_work_makes_others_wait() {
        let ms = Duration::from_millis;
        let mut allowance = CpuTokenBucket::new(0.005, ms(20), ms(150));
        allowance.spend(ms(120));
        assert_eq!(allowance.wait(), Duration::from_secs(20));
        allowance.earn(Duration::from_secs(19));
        assert!(!allowance.is_left());
        allowance.earn(Duration::from_secs(3));
        assert!(allowance.is_left() && allowance.wait().is_zero());
        // A long idle time does not accumulate.
        allowance.earn(Duration::from_secs(36_000));
        allowance.spend(ms(20));
        assert!(!allowance.is_left());
        // Debt is bounded.
        allowance.spend(Duration::from_secs(60));
        assert_eq!(allowance.wait(), Duration::from_secs(30));
    }
}
