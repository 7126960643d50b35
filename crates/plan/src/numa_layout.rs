//! Places pages on nodes: evenly, and never fewer than are in use on a node. Pure.

use std::collections::BTreeMap;

use hugeleaf_host::{Host, Pool};
use hugeleaf_units::{PageSize, Pages};

use super::model::PoolPlan;

/// Returns the pools of one size, one per node, or the total on a host that only counts totals.
pub(super) fn by_node(host: &Host, size: PageSize) -> Vec<&Pool> {
    let of_size = || host.pools.iter().filter(|p| p.size == size);
    let nodes: Vec<&Pool> = of_size().filter(|p| p.node.is_some()).collect();
    match nodes.is_empty() {
        true => of_size().collect(),
        false => nodes,
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NodePool {
    /// The node; `None` on a host that only counts pools of all nodes together.
    pub node: Option<u32>,
    /// Pages that stay in the pool. Surplus pages leave it when freed.
    pub lasting: u64,
    pub used: u64,
}

impl NodePool {
    pub fn of(pool: &Pool) -> NodePool {
        NodePool {
            node: pool.node,
            lasting: pool.persistent().get(),
            used: pool.used().get(),
        }
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct NodeDemand {
    pub free: u64,
    /// Pages of services bound to one node, by node.
    pub bound: BTreeMap<u32, u64>,
    /// Pages that these services hold now, by the node to which they are bound. Some may be on other nodes.
    pub held: BTreeMap<u32, u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NodePlacement {
    pub pages: u64,
    pub idle: u64,
}

/// Spreads the wanted pages over the nodes. Existing idle pages serve only users that may take them. Those on
/// one node are useless to a service bound to another, and stay in place, because a service that starts later
/// may need them. Missing pages are spread evenly. With `may_shrink`, idle pages are removed.
pub(super) fn place(
    nodes: &[NodePool],
    wants: &NodeDemand,
    may_shrink: bool,
) -> Vec<NodePlacement> {
    let of = |map: &BTreeMap<u32, u64>, node: &NodePool| {
        node.node
            .and_then(|n| map.get(&n).copied())
            .unwrap_or_default()
    };
    let known = |node: &u32| nodes.iter().any(|n| n.node == Some(*node));
    // The node does not exist, so its pages may be anywhere.
    let lost = wants.bound.iter().filter(|(node, _)| !known(node));
    let free = lost.fold(wants.free, |sum, (_, n)| sum.saturating_add(*n));
    let bound: Vec<u64> = nodes.iter().map(|n| of(&wants.bound, n)).collect();
    // Pages that a bound service holds on other nodes move to its node at a restart. Counting them twice would
    // take memory from base pages.
    let mut stray: u64 = nodes
        .iter()
        .map(|n| of(&wants.held, n).saturating_sub(n.used))
        .sum();
    let mut least = Vec::new();
    let mut floor = Vec::new();
    for (node, bound) in nodes.iter().zip(&bound) {
        let theirs = node.used.saturating_sub(of(&wants.held, node));
        let gone = stray.min(theirs);
        stray -= gone;
        least.push(theirs - gone);
        let used = bound.saturating_add(theirs - gone);
        let now = node.lasting.saturating_sub(gone);
        floor.push(match (may_shrink, *bound) {
            (true, _) => used,
            (false, 0) => now,
            (false, _) => now.max(used),
        });
    }
    let room: Vec<u64> = floor
        .iter()
        .zip(&bound)
        .map(|(f, b)| f.saturating_sub(*b))
        .collect();
    let room = spread(free, &room);
    let mine = spread_below(free, &least, &room);
    let each = bound.iter().zip(&room).zip(mine);
    each.map(|((bound, room), mine)| NodePlacement {
        pages: bound.saturating_add(*room),
        idle: room.saturating_sub(mine),
    })
    .collect()
}

#[derive(Debug, Clone)]
pub(super) struct PoolDemand {
    pub size: PageSize,
    pub others: u64,
    /// Pages that no running process holds. They stay until the file or segment is removed, and no file requests
    /// them at boot.
    pub left_over: u64,
    pub promised: u64,
    pub services: Vec<String>,
    pub wants: NodeDemand,
    /// Pages that files of other owners request at boot.
    pub configured: u64,
    pub may_shrink: bool,
}

impl PoolDemand {
    /// Returns the pages by node, or in total on a host that only counts totals.
    pub fn layout(&self, host: &Host) -> Vec<PoolPlan> {
        let pools = by_node(host, self.size);
        let now: Vec<NodePool> = pools.iter().map(|pool| NodePool::of(pool)).collect();
        let mut on = place(&now, &self.wants, self.may_shrink);
        let mut left_over = self.left_over;
        for on in &mut on {
            let here = left_over.min(on.pages - on.idle);
            on.idle += here;
            left_over -= here;
        }
        self.keep_configured(&mut on);
        let mut found = Vec::new();
        let mut left = (self.others, self.promised);
        for ((pool, now), on) in pools.iter().zip(&now).zip(&on) {
            // The owners of the pages in use are unknown, so these may be others'.
            let others = left.0.min(now.used).min(on.pages - on.idle);
            left.0 -= others;
            found.push(PoolPlan {
                page: self.size,
                node: pool.node,
                was: pool.total.get().map(|_| pool.persistent()),
                pages: Pages(on.pages),
                services: self.services.clone(),
                others: Pages(others),
                promised: Pages(0),
                idle: Pages(on.idle),
                give_back: false,
            });
        }
        // Reserved and promised pages are not on a node yet.
        for entry in &mut found {
            let room = |entry: &PoolPlan| {
                entry.lasting().get() - entry.others.get() - entry.promised.get()
            };
            let more = left.0.min(room(entry));
            entry.others = Pages(entry.others.get() + more);
            let promised = left.1.min(room(entry));
            entry.promised = Pages(promised);
            left = (left.0 - more, left.1 - promised);
        }
        found
    }

    /// Keeps idle pages that a file of another owner requests at each boot. They are intended, and hugeleaf's
    /// file, which is read later, must not remove them.
    fn keep_configured(&self, on: &mut [NodePlacement]) {
        let lasting: u64 = on.iter().map(|n| n.pages - n.idle).sum();
        let idle: Vec<u64> = on.iter().map(|n| n.idle).collect();
        let keep = self.configured.saturating_sub(lasting);
        let none = vec![0; on.len()];
        for (node, keep) in on.iter_mut().zip(spread_below(keep, &none, &idle)) {
            node.idle -= keep;
        }
    }
}

/// Spreads `total` over `least.len()` nodes, each of which gets at least its entry. If the sum of the entries
/// exceeds `total`, returns the entries. The first nodes get the remainder.
fn spread(total: u64, least: &[u64]) -> Vec<u64> {
    let mut given = least.to_vec();
    let fixed: u64 = least.iter().sum();
    let mut left = total.saturating_sub(fixed);
    // Raise the lowest together, level by level, in at most one round per node.
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

/// Like [`spread`], but limited by `most` on each node; the excess is dropped. `least` must not exceed `most`.
fn spread_below(total: u64, least: &[u64], most: &[u64]) -> Vec<u64> {
    let mut given: Vec<u64> = least.iter().zip(most).map(|(l, m)| *l.min(m)).collect();
    // Each round fills at least one node, or is the last.
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
            // Nodes above their minimum differ by at most one page.
            let raised: Vec<u64> = given.iter().zip(&least).filter(|(g, l)| g > l).map(|(g, _)| *g).collect();
            if let (Some(max), Some(min)) = (raised.iter().max(), given.iter().min()) {
                prop_assert!(max - min <= 1, "{:?}", given);
            }
        }
    }
}
