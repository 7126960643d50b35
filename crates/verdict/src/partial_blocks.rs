//! Promotions that grow a process: partly resident blocks, and the minimum residence at which a block is promoted. All
//! commands use this module, so they name the same percentage for the same blocks.

use std::collections::BTreeMap;

use hugeleaf_units::Bytes;

use crate::eligible::{Reason, Remedy};

/// Partly resident blocks, by their resident share.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PartialBlocks {
    /// By whole percent of residence: resident bytes, and missing bytes that promotion would add.
    by_percent: BTreeMap<u8, (Bytes, Bytes)>,
}

/// A lower residence limit, the memory that it promotes, and the memory that it adds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MinResidentProposal {
    pub percent: u8,
    pub takes: Bytes,
    pub adds: Bytes,
}

impl PartialBlocks {
    /// Adds a skipped block if a lower limit would include it.
    pub fn add(&mut self, reason: Reason, there: Bytes, missing: Bytes) {
        if reason.remedy() != Remedy::PromoteAndGrow {
            return;
        }
        let percent = Bytes(100).scaled(there, there + missing).get();
        self.put(u8::try_from(percent).unwrap_or(100), there, missing);
    }

    fn put(&mut self, percent: u8, there: Bytes, missing: Bytes) {
        let sum = self.by_percent.entry(percent).or_default();
        *sum = (sum.0 + there, sum.1 + missing);
    }

    pub fn join(&mut self, other: &PartialBlocks) {
        for (percent, (there, missing)) in &other.by_percent {
            self.put(*percent, *there, *missing);
        }
    }

    /// Scales the blocks to a part of their memory.
    pub(crate) fn scale(&mut self, part: Bytes, whole: Bytes) {
        for (there, missing) in self.by_percent.values_mut() {
            *there = there.scaled(part, whole);
            *missing = missing.scaled(part, whole);
        }
    }

    /// Returns the highest multiple of 10 % that promotes half of the bytes, or 1 %. `None` if 1 % promotes nothing.
    pub fn growth(&self) -> Option<MinResidentProposal> {
        let takes = |percent: u8| {
            let those = || self.by_percent.range(percent..);
            MinResidentProposal {
                percent,
                takes: those().map(|(_, held)| held.0).sum(),
                adds: those().map(|(_, held)| held.1).sum(),
            }
        };
        let half = takes(1).takes.get().div_ceil(2);
        let mut tens = (1..10).rev().map(|n| n * 10).chain([1]).map(takes);
        tens.find(|growth| growth.takes.get() >= half && half > 0)
    }
}

impl MinResidentProposal {
    pub fn command(&self, target: &str) -> String {
        let (takes, adds) = (self.takes, self.adds);
        let promote = promotion(target, self.percent);
        format!("{promote}    # promotes {takes} of it, and adds {adds}")
    }
}

/// Returns the promotion command for blocks with at least `percent` residence.
pub fn promotion(target: &str, percent: u8) -> String {
    format!("hugeleaf promote --min-resident {percent}% {target}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lower_limit_is_advised_where_it_takes_something() {
        const M: u64 = 1 << 20;
        let growth = |percent, takes, adds| {
            let (takes, adds) = (Bytes(takes), Bytes(adds));
            Some(MinResidentProposal {
                percent,
                takes,
                adds,
            })
        };
        let mut holes = PartialBlocks::default();
        let add = |holes: &mut PartialBlocks, there: u64| {
            holes.add(Reason::PartlyResident, Bytes(there), Bytes(2 * M - there));
        };
        assert_eq!(holes.growth(), None);
        // Less than 1 % is resident, so a limit of 1 % would not include it.
        add(&mut holes, 8192);
        holes.add(Reason::Sparse, Bytes(M), Bytes(M));
        assert_eq!(holes.growth(), None);
        add(&mut holes, 65536);
        assert_eq!(holes.growth(), growth(1, 65536, 2 * M - 65536));
        for _ in 0..3 {
            add(&mut holes, M);
        }
        assert_eq!(holes.growth(), growth(50, 3 * M, 3 * M));
        let mut more = PartialBlocks::default();
        for _ in 0..9 {
            add(&mut more, 2 * M - 4096);
        }
        more.join(&holes);
        assert_eq!(more.growth(), growth(90, 18 * M - 9 * 4096, 9 * 4096));
    }
}
