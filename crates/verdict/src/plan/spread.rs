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

/// The same, but nowhere more than `most` has room for; what fits nowhere is left out. `least` must
/// be no more than `most`.
pub(super) fn spread_below(total: u64, least: &[u64], most: &[u64]) -> Vec<u64> {
    let mut given: Vec<u64> = least.iter().zip(most).map(|(l, m)| *l.min(m)).collect();
    // Each round fills one node up at least, or is the last.
    for _ in 0..=given.len() {
        let open: Vec<usize> = (0..given.len()).filter(|i| given[*i] < most[*i]).collect();
        let left = total.saturating_sub(given.iter().sum());
        if left == 0 || open.is_empty() {
            break;
        }
        let here: Vec<u64> = open.iter().map(|i| given[*i]).collect();
        let raised = spread(here.iter().sum::<u64>() + left, &here);
        for (i, raised) in open.into_iter().zip(raised) {
            given[i] = raised.min(most[i]);
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

    #[test]
    fn no_more_than_there_is_room_for() {
        assert_eq!(spread_below(10, &[0, 0], &[3, 20]), [3, 7]);
        assert_eq!(spread_below(10, &[1, 0], &[100, 100]), [5, 5]);
        assert_eq!(spread_below(10, &[0, 0], &[3, 4]), [3, 4]);
        assert_eq!(spread_below(1, &[4, 0], &[4, 9]), [4, 0]);
    }

    proptest! {
        #[test]
        fn room_is_used_and_no_more(
            total in 0u64..10_000,
            nodes in prop::collection::vec((0u64..3_000, 0u64..3_000), 1..6),
        ) {
            let least: Vec<u64> = nodes.iter().map(|n| n.0).collect();
            let most: Vec<u64> = nodes.iter().map(|n| n.0 + n.1).collect();
            let given = spread_below(total, &least, &most);
            let room: u64 = most.iter().sum();
            prop_assert_eq!(given.iter().sum::<u64>(), total.clamp(least.iter().sum(), room));
            prop_assert!(given.iter().zip(&most).all(|(g, m)| g <= m));
            prop_assert!(given.iter().zip(&least).all(|(g, l)| g >= l));
        }

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
