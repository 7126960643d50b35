//! Pages over nodes: evenly, and nowhere fewer than are in use there.

/// Spreads `total` over as many nodes as `least` has entries, each of which gets at least its
/// entry. Where the entries alone are more than `total`, they are what comes out. What cannot be
/// divided goes to the first nodes.
pub(super) fn spread(total: u64, least: &[u64]) -> Vec<u64> {
    let mut given = least.to_vec();
    let fixed: u64 = least.iter().sum();
    let mut left = total.saturating_sub(fixed);
    // The lowest are raised together, level by level: at most one round a node.
    for _ in 0..least.len() {
        let Some(lowest) = given.iter().copied().min() else {
            break;
        };
        let next = given.iter().copied().filter(|n| *n > lowest).min();
        let low: Vec<usize> = (0..given.len()).filter(|i| given[*i] == lowest).collect();
        let count = low.len() as u64;
        let rise = next.map_or(u64::MAX, |next| next - lowest);
        let each = rise.min(left / count);
        for i in &low {
            given[*i] += each;
        }
        left -= each * count;
        if each < rise {
            let rest = usize::try_from(left).unwrap_or(usize::MAX);
            for i in low.into_iter().take(rest) {
                given[i] += 1;
            }
            break;
        }
    }
    given
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn evenly() {
        assert_eq!(spread(10, &[0, 0]), [5, 5]);
        assert_eq!(spread(11, &[0, 0]), [6, 5]);
        assert_eq!(spread(1, &[0, 0, 0]), [1, 0, 0]);
        assert_eq!(spread(7, &[]), [0u64; 0]);
    }

    #[test]
    fn nowhere_fewer_than_are_in_use() {
        assert_eq!(spread(10, &[8, 0]), [8, 2]);
        assert_eq!(spread(20, &[8, 0]), [10, 10]);
        assert_eq!(spread(5, &[8, 0]), [8, 0]);
        assert_eq!(spread(13, &[8, 1, 0]), [8, 3, 2]);
    }

    proptest! {
        #[test]
        fn nothing_is_lost(total in 0u64..10_000, least in prop::collection::vec(0u64..5_000, 1..6)) {
            let given = spread(total, &least);
            let fixed: u64 = least.iter().sum();
            prop_assert_eq!(given.iter().sum::<u64>(), total.max(fixed));
            for (got, least) in given.iter().zip(&least) {
                prop_assert!(got >= least);
            }
            // Those that were raised above their least differ by at most one.
            let raised: Vec<u64> = given.iter().zip(&least).filter(|(g, l)| g > l).map(|(g, _)| *g).collect();
            if let (Some(max), Some(min)) = (raised.iter().max(), given.iter().min()) {
                prop_assert!(max - min <= 1, "{:?}", given);
            }
        }
    }
}
