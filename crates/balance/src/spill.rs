//! Benefit of memory to sorts and hash joins, from the bytes they spilled to disk.

use std::time::Duration;

use hugeleaf_units::Bytes;

use crate::component::{Benefit, Granule};
use crate::decayed_rate::DecayWindow;

/// Half-life of the counts.
const HALF_LIFE: Duration = Duration::from_secs(10);

/// One completed sort or hash join.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WorkAreaOperation {
    /// Memory that would have avoided the spill.
    pub needed: Bytes,
    /// Memory granted to it.
    pub granted: Bytes,
    /// Bytes that it wrote to disk and read again.
    pub spilled: Bytes,
}

/// Counts bytes that sorts and hash joins would keep in memory with one granule more, and spill with one granule less.
///
/// Running operations share the component's memory. So each gets a part of a further granule, in proportion to its
/// memory. An operation that spills all its data (an external sort) saves only if all of it fits.
#[derive(Debug, Clone)]
pub struct Spills {
    granule: Granule,
    seconds_per_byte: f64,
    size: Bytes,
    saved: SpillCount,
    lost: SpillCount,
    window: DecayWindow,
}

/// Bytes, and the number of operations.
#[derive(Debug, Clone, Copy, Default)]
struct SpillCount {
    bytes: f64,
    operations: f64,
}

impl SpillCount {
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
    /// Creates the counts for a component of that size. `seconds_per_byte` is the cost of a spilled byte (written and
    /// read again).
    pub fn new(granule: Granule, size: Bytes, seconds_per_byte: f64) -> Spills {
        Spills {
            granule,
            seconds_per_byte: seconds_per_byte.max(0.0),
            size,
            saved: SpillCount::default(),
            lost: SpillCount::default(),
            window: DecayWindow::new(HALF_LIFE),
        }
    }

    /// Sets the component's size.
    pub fn set_size(&mut self, size: Bytes) {
        self.size = size;
    }

    /// Records a completed sort or hash join.
    pub fn ran(&mut self, ran: WorkAreaOperation) {
        self.saved.add(self.kept_with_more(ran));
        self.lost.add(self.spilled_with_less(ran));
    }

    /// Returns its part of a granule.
    fn share(&self, ran: WorkAreaOperation) -> Bytes {
        let granule = self.granule.bytes();
        granule.scaled(ran.granted.min(self.size), self.size)
    }

    fn kept_with_more(&self, ran: WorkAreaOperation) -> Bytes {
        let share = self.share(ran);
        let lacking = ran.needed - ran.granted;
        if ran.granted + share >= ran.needed {
            return ran.spilled;
        }
        match ran.spilled <= lacking {
            true => share.min(ran.spilled),
            // It spills all data unless it fits completely.
            false => Bytes::ZERO,
        }
    }

    fn spilled_with_less(&self, ran: WorkAreaOperation) -> Bytes {
        let share = self.share(ran);
        let lacking = ran.needed - (ran.granted - share);
        match ran.spilled > ran.needed - ran.granted {
            // All of it is on disk already.
            true => Bytes::ZERO,
            false => (lacking - ran.spilled).min(share),
        }
    }

    /// Advances the time; call it in each scan, before [`Spills::benefit`].
    pub fn pass(&mut self, elapsed: Duration) {
        let left = self.window.pass(elapsed);
        self.saved.pass(left);
        self.lost.pass(left);
    }

    /// Returns the benefit of a granule; unknown before any time has passed.
    pub fn benefit(&self) -> Benefit {
        let estimate = |count: &SpillCount| {
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

    /// Returns saving and cost of a granule of 2M after one operation per second, in MiB/s.
    fn of(needed: u64, granted: u64, spilled: u64) -> (f64, f64) {
        let granule = Granule::new(mib(2)).unwrap();
        let mut spills = Spills::new(granule, mib(64), 1.0 / mib(1).as_f64());
        spills.ran(WorkAreaOperation {
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
        // A hash join over all of the memory spills the part that does not fit.
        assert_eq!(of(100, 64, 36), (2.0, 2.0));
        // One of four operations: it gets a quarter of a granule.
        assert_eq!(of(100, 16, 84), (0.5, 0.5));
        // An external sort spills all data: a granule more saves nothing until it fits.
        assert_eq!(of(100, 64, 100), (0.0, 0.0));
        assert_eq!(of(65, 64, 65), (65.0, 0.0));
        // One that barely fits, and one that fits easily.
        assert_eq!(of(64, 64, 0), (0.0, 2.0));
        assert_eq!(of(10, 64, 0), (0.0, 0.0));
    }

    #[test]
    fn no_memory_and_no_time_are_no_benefit() {
        let granule = Granule::new(mib(2)).unwrap();
        let mut spills = Spills::new(granule, Bytes::ZERO, f64::NAN);
        assert_eq!(spills.benefit(), Benefit::default());
        let all = Bytes(u64::MAX);
        spills.ran(WorkAreaOperation {
            needed: all,
            granted: all,
            spilled: all,
        });
        spills.pass(Duration::from_secs(1));
        assert_eq!(spills.benefit().more.unwrap().low(), 0.0);
    }
}
