//! Generates one cycle through all numbers below a count, in pseudo-random order. Pure.

/// A permutation of the numbers below `count` that forms a single cycle. From any number, [`ChaseCycle::after`] visits all others before it
/// returns to the first.
///
/// A counter is scattered by a bijection drawn from a seed. A cycle of any length therefore needs no memory beside the working set, and it
/// is laid out from front to back. (A shuffled list of lines takes an eighth of the working set, and writing it in random order takes
/// minutes for a few gigabytes.)
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChaseCycle {
    count: u64,
    mask: u64,
    shift: u32,
    rounds: [BijectionRound; 3],
}

/// One round of the bijection: multiply by an odd number, add a number, XOR high bits into low ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct BijectionRound {
    times: u64,
    back: u64,
    plus: u64,
}

impl ChaseCycle {
    /// Returns the cycle of the numbers below `count` for a seed. A count of 0 is taken as 1.
    pub fn new(count: u64, seed: u64) -> ChaseCycle {
        let count = count.max(1);
        let bits = u64::BITS - (count - 1).leading_zeros();
        let mut random = fastrand::Rng::with_seed(seed);
        let rounds = [(); 3].map(|()| {
            let times = random.u64(..) | 1;
            BijectionRound {
                times,
                back: inverse(times),
                plus: random.u64(..),
            }
        });
        ChaseCycle {
            count,
            mask: u64::MAX.checked_shr(u64::BITS - bits).unwrap_or(0),
            // With a shift of at least half the bits, the XOR shift is its own inverse.
            shift: bits.div_ceil(2).max(1),
            rounds,
        }
    }

    /// Returns the number that follows `at` in the cycle.
    pub fn after(&self, at: u64) -> u64 {
        let mut step = self.gather(at);
        // The bijection covers a power of two; results not below the count are skipped.
        loop {
            step = step.wrapping_add(1) & self.mask;
            let next = self.scatter(step);
            if next < self.count {
                return next;
            }
        }
    }

    fn scatter(&self, step: u64) -> u64 {
        self.rounds.iter().fold(step, |x, round| {
            let x = x.wrapping_mul(round.times).wrapping_add(round.plus) & self.mask;
            x ^ (x >> self.shift)
        })
    }

    fn gather(&self, at: u64) -> u64 {
        self.rounds.iter().rev().fold(at, |x, round| {
            let x = x ^ (x >> self.shift);
            x.wrapping_sub(round.plus).wrapping_mul(round.back) & self.mask
        })
    }
}

/// Returns the inverse of an odd number modulo 2^64 by Newton's method. Each step doubles the number of correct bits, and `x` itself is
/// correct in three.
fn inverse(x: u64) -> u64 {
    (0..5).fold(x, |inverse, _| {
        inverse.wrapping_mul(2u64.wrapping_sub(x.wrapping_mul(inverse)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn length(cycle: &ChaseCycle) -> u64 {
        let mut at = 0;
        for hops in 1.. {
            at = cycle.after(at);
            if at == 0 {
                return hops;
            }
        }
        unreachable!()
    }

    #[test]
    fn small_ones_are_whole() {
        for count in 1..70 {
            for seed in 0..5 {
                assert_eq!(
                    length(&ChaseCycle::new(count, seed)),
                    count,
                    "{count} {seed}"
                );
            }
        }
    }

    /// Distances are neither short nor regular: nearly all leave their page, and none repeats often.
    #[test]
    fn no_prefetcher_follows_it() {
        const COUNT: u64 = 1 << 16;
        const LINES_A_PAGE: u64 = 64;
        let cycle = ChaseCycle::new(COUNT, 7);
        let mut distances = std::collections::BTreeMap::new();
        let mut in_page = 0;
        for at in 0..COUNT {
            let next = cycle.after(at);
            *distances.entry(next.wrapping_sub(at)).or_insert(0u64) += 1;
            in_page += u64::from(next / LINES_A_PAGE == at / LINES_A_PAGE);
        }
        assert!(in_page < COUNT / 100, "{in_page} hops stay in their page");
        let most = distances.values().max().unwrap();
        assert!(*most < COUNT / 100, "{most} hops go the same way");
    }

    #[test]
    fn a_seed_is_an_order() {
        assert_eq!(ChaseCycle::new(1000, 1), ChaseCycle::new(1000, 1));
        let order = |seed| {
            let cycle = ChaseCycle::new(1000, seed);
            (0..20).map(|at| cycle.after(at)).collect::<Vec<_>>()
        };
        assert_ne!(order(1), order(2));
    }

    proptest! {
        #[test]
        fn any_length_is_one_cycle(count in 1u64..20_000, seed: u64) {
            prop_assert_eq!(length(&ChaseCycle::new(count, seed)), count);
        }

        #[test]
        fn scattering_is_undone(at: u64, count in 1u64.., seed: u64) {
            let cycle = ChaseCycle::new(count, seed);
            let at = at & cycle.mask;
            prop_assert_eq!(cycle.gather(cycle.scatter(at)), at);
        }
    }
}
