//! Processor time as a share of the time that passes. Pure.

use std::time::Duration;

/// Processor time that may still be used: earned as time passes, spent by work. It is processor time: work that waits
/// for a processor takes none from others. One piece of work can spend more than there is; what comes after it waits.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Allowance {
    /// Part of a processor.
    share: f64,
    /// Bounds of `left`, in seconds.
    most: f64,
    debt: f64,
    left: f64,
}

impl Allowance {
    /// `most` is saved up, and there at the beginning: idle time is not made good in one go. `debt` is owed at most:
    /// one long piece of work does not hold up others for minutes.
    pub fn new(share: f64, most: Duration, debt: Duration) -> Allowance {
        Allowance {
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

    /// Returns the time until what is owed is earned.
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
            let mut allowance = Allowance::new(share, most, most.max(each));
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
            // Time earned in one go is bounded.
            let lost = (step.mul_f64(share)).saturating_sub(most) * 1000;
            prop_assert!(spent + each >= earned.saturating_sub(lost));
        }
    }

    #[test]
    fn a_long_piece_of_work_makes_others_wait() {
        let ms = Duration::from_millis;
        let mut allowance = Allowance::new(0.005, ms(20), ms(150));
        allowance.spend(ms(120));
        assert_eq!(allowance.wait(), Duration::from_secs(20));
        allowance.earn(Duration::from_secs(19));
        assert!(!allowance.is_left());
        allowance.earn(Duration::from_secs(3));
        assert!(allowance.is_left() && allowance.wait().is_zero());
        // A night of sleep is not made good.
        allowance.earn(Duration::from_secs(36_000));
        allowance.spend(ms(20));
        assert!(!allowance.is_left());
        // Debt is bounded.
        allowance.spend(Duration::from_secs(60));
        assert_eq!(allowance.wait(), Duration::from_secs(30));
    }
}
