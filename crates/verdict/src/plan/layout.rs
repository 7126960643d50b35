//! Which pages lie on which node. Pure.

use std::collections::BTreeMap;

use hugeleaf_host::{Host, Pool};
use hugeleaf_units::{PageSize, Pages};

use super::model::ForPool;
use super::spread::{spread, spread_below};

/// The pools of one size, one a node; the one over all nodes on a host that counts them together.
pub(super) fn by_node(host: &Host, size: PageSize) -> Vec<&Pool> {
    let of_size = || host.pools.iter().filter(|p| p.size == size);
    let nodes: Vec<&Pool> = of_size().filter(|p| p.node.is_some()).collect();
    match nodes.is_empty() {
        true => of_size().collect(),
        false => nodes,
    }
}

/// What the pool of one size holds on one node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NodeNow {
    /// The node; none on a host that counts its pools for all nodes together.
    pub node: Option<u32>,
    /// Pages that stay in it: surplus pages go when they are freed.
    pub lasting: u64,
    /// Pages in use.
    pub used: u64,
}

impl NodeNow {
    pub fn of(pool: &Pool) -> NodeNow {
        NodeNow {
            node: pool.node,
            lasting: pool.lasting().get(),
            used: pool.used().get(),
        }
    }
}

/// Who wants pages of one size, and where.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Wants {
    /// Pages that may lie on any node.
    pub free: u64,
    /// Pages of services that may take memory from one node only, by node.
    pub bound: BTreeMap<u32, u64>,
    /// Pages that those hold now, by the node that they are bound to; some of them may lie elsewhere.
    pub held: BTreeMap<u32, u64>,
}

/// Pages of a pool on one node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct OnNode {
    /// Pages that the pool is to have.
    pub pages: u64,
    /// Those of them that nobody wants.
    pub idle: u64,
}

/// Spreads what is wanted over the nodes. Idle pages that are there already serve those who may
/// take them, and no others: those on one node are of no use to a service that is bound to another,
/// and stay where they are, since they may be somebody's who starts later. What is missing is spread
/// evenly. With `may_shrink` idle pages go.
pub(super) fn place(nodes: &[NodeNow], wants: &Wants, may_shrink: bool) -> Vec<OnNode> {
    let of = |map: &BTreeMap<u32, u64>, node: &NodeNow| {
        node.node
            .and_then(|n| map.get(&n).copied())
            .unwrap_or_default()
    };
    let known = |node: &u32| nodes.iter().any(|n| n.node == Some(*node));
    // A node that is not there: its pages may lie anywhere.
    let lost = wants.bound.iter().filter(|(node, _)| !known(node));
    let free = lost.fold(wants.free, |sum, (_, n)| sum.saturating_add(*n));
    let bound: Vec<u64> = nodes.iter().map(|n| of(&wants.bound, n)).collect();
    // Pages that a bound service holds elsewhere today go there when it restarts: counted in both
    // places they would be taken from base pages.
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
    each.map(|((bound, room), mine)| OnNode {
        pages: bound.saturating_add(*room),
        idle: room.saturating_sub(mine),
    })
    .collect()
}

/// What the pools of one size should come to.
#[derive(Debug, Clone)]
pub(super) struct Wanted {
    pub size: PageSize,
    /// Pages that somebody else holds.
    pub others: u64,
    /// Pages that plans in force promise to others.
    pub promised: u64,
    /// Names of the services that take from them.
    pub whom: Vec<String>,
    /// All who want some, those others included.
    pub wants: Wants,
    /// Pages that files which are not ours ask for at boot.
    pub configured: u64,
    /// Whether idle pages may go.
    pub may_shrink: bool,
}

impl Wanted {
    /// The pages, node by node; on a host that counts its pools for all nodes together, at once.
    pub fn layout(&self, host: &Host) -> Vec<ForPool> {
        let pools = by_node(host, self.size);
        let now: Vec<NodeNow> = pools.iter().map(|pool| NodeNow::of(pool)).collect();
        let mut on = place(&now, &self.wants, self.may_shrink);
        self.keep_configured(&mut on);
        let mut found = Vec::new();
        let mut left = (self.others, self.promised);
        for ((pool, now), on) in pools.iter().zip(&now).zip(&on) {
            // Which of the pages in use are others' is not known: those here may be theirs.
            let others = left.0.min(now.used).min(on.pages - on.idle);
            left.0 -= others;
            found.push(ForPool {
                page: self.size,
                node: pool.node,
                was: pool.total.get().map(|_| pool.lasting()),
                pages: Pages(on.pages),
                services: self.whom.clone(),
                others: Pages(others),
                promised: Pages(0),
                idle: Pages(on.idle),
            });
        }
        // Pages that are reserved or promised lie on no node yet.
        for entry in &mut found {
            let room =
                |entry: &ForPool| entry.lasting().get() - entry.others.get() - entry.promised.get();
            let more = left.0.min(room(entry));
            entry.others = Pages(entry.others.get() + more);
            let promised = left.1.min(room(entry));
            entry.promised = Pages(promised);
            left = (left.0 - more, left.1 - promised);
        }
        found
    }

    /// Idle pages that a file of somebody else asks for at each boot are no accident of today: our
    /// own file, read after it, must not take them away.
    fn keep_configured(&self, on: &mut [OnNode]) {
        let lasting: u64 = on.iter().map(|n| n.pages - n.idle).sum();
        let idle: Vec<u64> = on.iter().map(|n| n.idle).collect();
        let keep = self.configured.saturating_sub(lasting);
        let none = vec![0; on.len()];
        for (node, keep) in on.iter_mut().zip(spread_below(keep, &none, &idle)) {
            node.idle -= keep;
        }
    }
}
