//! What memory is worth to sorts and hash joins, from what they wrote to disk for the lack of it.

use std::time::Duration;

use hugeleaf_units::Bytes;

use crate::component::{Benefit, Granule};
use crate::rate::Window;

/// How long until what was counted counts half.
const HALF_LIFE: Duration = Duration::from_secs(10);

/// One sort or hash join that has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ran {
    /// The memory that would have kept all of it.
    pub needed: Bytes,
    /// What it had.
    pub granted: Bytes,
    /// What it wrote to disk and read again.
    pub spilled: Bytes,
}

/// What sorts and hash joins would have kept in memory with a granule more, and would have spilled with a granule less.
///
/// Those that run share the component's memory, so a granule more is not one for each: each gets more in proportion to
/// what it had of all. What kept spilling all (an external sort) is only counted as saved where all of it fits.
#[derive(Debug, Clone)]
pub struct Spills {
    granule: Granule,
    seconds_per_byte: f64,
    size: Bytes,
    saved: Count,
    lost: Count,
    window: Window,
}

/// Bytes, and of how many operations.
#[derive(Debug, Clone, Copy, Default)]
struct Count {
    bytes: f64,
    operations: f64,
}

impl Count {
    fn add(&mut self, bytes: Bytes) {
        if !bytes.is_zero() {
            self.bytes += bytes.as_f64();
            self.operations += 1.0;
        }
    }

    fn pass(&mut self, left: f64) {
        self.bytes *= left;
        self.operations *= left;
    }
}

impl Spills {
    /// Of a component of that size, where a byte that is spilled costs so many seconds (written and read again).
    pub fn new(granule: Granule, size: Bytes, seconds_per_byte: f64) -> Spills {
        Spills {
            granule,
            seconds_per_byte: seconds_per_byte.max(0.0),
            size,
            saved: Count::default(),
            lost: Count::default(),
            window: Window::new(HALF_LIFE),
        }
    }

    /// The component has another size.
    pub fn set_size(&mut self, size: Bytes) {
        self.size = size;
    }

    /// A sort or hash join has ended.
    pub fn ran(&mut self, ran: Ran) {
        self.saved.add(self.kept_with_more(ran));
        self.lost.add(self.spilled_with_less(ran));
    }

    /// Its part of a granule.
    fn share(&self, ran: Ran) -> Bytes {
        let granule = self.granule.bytes();
        granule.scaled(ran.granted.min(self.size), self.size)
    }

    fn kept_with_more(&self, ran: Ran) -> Bytes {
        let share = self.share(ran);
        let lacking = ran.needed - ran.granted;
        if ran.granted + share >= ran.needed {
            return ran.spilled;
        }
        match ran.spilled <= lacking {
            true => share.min(ran.spilled),
            // It spills all as long as it does not fit.
            false => Bytes::ZERO,
        }
    }

    fn spilled_with_less(&self, ran: Ran) -> Bytes {
        let share = self.share(ran);
        let lacking = ran.needed - (ran.granted - share);
        match ran.spilled > ran.needed - ran.granted {
            // All of it is on disk already.
            true => Bytes::ZERO,
            false => (lacking - ran.spilled).min(share),
        }
    }

    /// Time has passed: at each look, before [`Spills::benefit`].
    pub fn pass(&mut self, elapsed: Duration) {
        let left = self.window.pass(elapsed);
        self.saved.pass(left);
        self.lost.pass(left);
    }

    /// What a granule more or less is worth; nothing is known before any time has passed.
    pub fn benefit(&self) -> Benefit {
        let estimate = |count: &Count| {
            let seconds = count.bytes * self.seconds_per_byte;
            self.window.estimate(seconds, count.operations)
        };
        Benefit {
            more: estimate(&self.saved),
            less: estimate(&self.lost),
            pressure: 0.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mib(n: u64) -> Bytes {
        Bytes::from_mib(n)
    }

    /// After one operation in a second: what a granule of 2M more saves and less costs, in MiB/s.
    fn of(needed: u64, granted: u64, spilled: u64) -> (f64, f64) {
        let granule = Granule::new(mib(2)).unwrap();
        let mut spills = Spills::new(granule, mib(64), 1.0 / mib(1).as_f64());
        spills.ran(Ran {
            needed: mib(needed),
            granted: mib(granted),
            spilled: mib(spilled),
        });
        spills.pass(Duration::from_secs(1));
        let benefit = spills.benefit();
        (benefit.more.unwrap().value, benefit.less.unwrap().value)
    }

    #[test]
    fn a_granule_saves_what_it_would_have_kept() {
        // A hash join over all of the memory, spilling what does not fit.
        assert_eq!(of(100, 64, 36), (2.0, 2.0));
        // One of four: a quarter of a granule is its own.
        assert_eq!(of(100, 16, 84), (0.5, 0.5));
        // An external sort spills all: a granule more saves nothing, until it fits.
        assert_eq!(of(100, 64, 100), (0.0, 0.0));
        assert_eq!(of(65, 64, 65), (65.0, 0.0));
        // One that fits barely, and one that fits easily.
        assert_eq!(of(64, 64, 0), (0.0, 2.0));
        assert_eq!(of(10, 64, 0), (0.0, 0.0));
    }

    #[test]
    fn no_memory_and_no_time_are_no_benefit() {
        let granule = Granule::new(mib(2)).unwrap();
        let mut spills = Spills::new(granule, Bytes::ZERO, f64::NAN);
        assert_eq!(spills.benefit(), Benefit::default());
        let all = Bytes(u64::MAX);
        spills.ran(Ran {
            needed: all,
            granted: all,
            spilled: all,
        });
        spills.pass(Duration::from_secs(1));
        assert_eq!(spills.benefit().more.unwrap().low(), 0.0);
    }
}
