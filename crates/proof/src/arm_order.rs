//! The order of the arms in a pair: random, in balanced blocks. Pure.
//!
//! A fair coin for every pair is lopsided now and then (12 of 12 with the huge arm first was seen),
//! and a drift is then part of the effect. So the orders are drawn in shuffled blocks of [`BLOCK`]
//! pairs, half of which begin with each arm. Wherever an experiment stops, one order is at most
//! [`BLOCK`] / 2 pairs ahead of the other.

use fastrand::Rng;

use crate::subject::Arm;

/// Pairs of a block; the stopping rule checks at its ends ([`crate::stopping_rule::StoppingRule::is_interim`]).
pub const BLOCK: usize = 4;

#[derive(Debug, Clone)]
pub struct PermutedBlocks {
    rng: Rng,
    /// The rest of the block, the next one last.
    block: Vec<Arm>,
    /// Number of remaining pairs if fixed: the last block may be of two.
    to_come: Option<usize>,
}

impl PermutedBlocks {
    /// Creates orders; the same seed gives the same ones.
    pub fn new(seed: u64, pairs: Option<usize>) -> PermutedBlocks {
        PermutedBlocks {
            rng: Rng::with_seed(seed),
            block: Vec::with_capacity(BLOCK),
            to_come: pairs,
        }
    }

    /// Returns the first arm of the next pair.
    pub fn draw(&mut self) -> Arm {
        if self.block.is_empty() {
            let halves = match self.to_come {
                Some(few) if few < BLOCK => 1,
                _ => BLOCK / 2,
            };
            self.block.extend([Arm::Base, Arm::Large].repeat(halves));
            self.rng.shuffle(&mut self.block);
        }
        self.to_come = self.to_come.map(|n| n.saturating_sub(1));
        self.block.pop().unwrap_or(Arm::Base)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ahead(orders: &[Arm]) -> usize {
        let large = orders.iter().filter(|a| **a == Arm::Large).count();
        large.abs_diff(orders.len() - large)
    }

    proptest! {
        #[test]
        fn no_order_is_ever_far_ahead(seed in any::<u64>(), pairs in 1usize..100, fixed in any::<bool>()) {
            let mut orders = PermutedBlocks::new(seed, fixed.then_some(pairs));
            let drawn: Vec<Arm> = (0..pairs).map(|_| orders.draw()).collect();
            for end in 0..=pairs {
                prop_assert!(ahead(&drawn[..end]) <= BLOCK / 2, "{drawn:?}");
                if end % BLOCK == 0 {
                    prop_assert_eq!(ahead(&drawn[..end]), 0);
                }
            }
            if fixed {
                prop_assert_eq!(ahead(&drawn), pairs % 2);
            }
        }
    }

    #[test]
    fn every_order_of_a_block_comes() {
        let blocks: std::collections::HashSet<Vec<Arm>> = (0..200)
            .map(|seed| {
                let mut orders = PermutedBlocks::new(seed, None);
                (0..BLOCK).map(|_| orders.draw()).collect()
            })
            .collect();
        assert_eq!(blocks.len(), 6);
    }
}
