//! Places the parts of a cache on pages, within a set of bounds.

use std::collections::BTreeMap;

use hugeleaf_host::demand::CacheShare;
use hugeleaf_host::{HugetlbLimitKind, Pool};
use hugeleaf_units::{Bytes, PageKind, PageSize, Pages, Rung};

use super::model::{
    CacheFacts, CacheRequest, PlacedPages, find_mount, is_of_pool, tightest_memory,
};

/// A limit of the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Bound {
    Free,
    /// Pages that others have reserved are not free.
    Reserved,
    Node,
    Mount,
    Cgroup(HugetlbLimitKind),
    /// Memory available besides this margin.
    Available(Bytes),
    Memory,
    Commit,
    /// As if pages without an owner were free.
    LeftoversFreed,
    /// As if overcommit added all surplus pages that it may.
    SurplusAdded,
}

/// Pages that are available within some bounds. `u64::MAX` is unlimited.
#[derive(Debug, Clone)]
pub(super) struct Rooms {
    /// Pages of each pool.
    pools: BTreeMap<PageSize, u64>,
    /// Pages of each pool on each node, if nodes count.
    nodes: Option<BTreeMap<(PageSize, u32), u64>>,
    /// Bytes on transparent huge pages.
    thp: u64,
    /// Bytes that the memory cgroup may still take.
    charged: u64,
    counts_pools: bool,
}

impl Rooms {
    pub fn new(facts: &CacheFacts<'_>, request: &CacheRequest, bounds: &[Bound]) -> Rooms {
        let has = |bound| bounds.contains(&bound);
        let (leftovers, surplus) = (has(Bound::LeftoversFreed), has(Bound::SurplusAdded));
        let mut rooms = Rooms {
            pools: BTreeMap::new(),
            nodes: has(Bound::Node).then(BTreeMap::new),
            thp: u64::MAX,
            charged: u64::MAX,
            counts_pools: facts.limits.memory_counts_pools,
        };
        for pool in facts.host.totals() {
            let size = pool.size;
            let reserved = match has(Bound::Reserved) {
                true => pool.reserved.get().unwrap_or_default().get(),
                false => 0,
            };
            let mut more = 0;
            if leftovers {
                more += facts.host.leftover_pages(size).get().min(pool.used().get());
            }
            if surplus {
                more += pool.may_add().get();
            }
            let most = match has(Bound::Free) {
                true => free(pool).saturating_add(more).saturating_sub(reserved),
                false => u64::MAX,
            };
            let room = rooms.pools.entry(size).or_insert(most);
            for bound in bounds {
                *room = (*room).min(pages_within(*bound, size, facts, request));
            }
            rooms.add_nodes(facts, size, reserved, more);
        }
        for bound in bounds {
            rooms.bound_memory(*bound, facts);
        }
        rooms
    }

    /// Adds the pages of each node. The kernel does not say on which node others will take what they reserved, so no
    /// node is sure of it. Pages that would be added may come to any node.
    fn add_nodes(&mut self, facts: &CacheFacts<'_>, size: PageSize, reserved: u64, more: u64) {
        let Some(nodes) = &mut self.nodes else {
            return;
        };
        let host = facts.host;
        let of_size = |node: u32| {
            let of_node = |p: &&Pool| p.size == size && p.node == Some(node);
            host.pools.iter().find(of_node).or(match host.nodes.len() {
                1 => host.pool(size),
                _ => None,
            })
        };
        for node in &host.nodes {
            let free = of_size(*node).map_or(0, free);
            let room = free.saturating_add(more).saturating_sub(reserved);
            nodes.insert((size, *node), room);
        }
    }

    fn bound_memory(&mut self, bound: Bound, facts: &CacheFacts<'_>) {
        let memory = &facts.host.memory;
        match bound {
            Bound::Available(margin) => {
                let available = memory.available.get().unwrap_or_default();
                self.thp = self.thp.min((available - margin).get());
            }
            Bound::Memory => {
                let limit = tightest_memory(facts.limits);
                let room = limit.map(|limit| limit.room_at_most().get());
                self.charged = room.unwrap_or(u64::MAX);
            }
            Bound::Commit => {
                let limit = memory.commit_limit.get().unwrap_or_default();
                let left = limit - memory.committed.get().unwrap_or_default();
                self.thp = self.thp.min(left.get());
            }
            _ => {}
        }
    }

    /// Returns the number of pages of a rung that a rank may take.
    fn room(&self, rung: &Rung, node: Option<u32>) -> u64 {
        let page = rung.size.bytes().get();
        if !is_of_pool(rung) {
            return self.thp.min(self.charged) / page;
        }
        let all = self.pools.get(&rung.size).copied().unwrap_or_default();
        let of_node = match (&self.nodes, node) {
            (Some(nodes), Some(node)) => nodes.get(&(rung.size, node)).copied(),
            _ => None,
        };
        let charged = match (self.counts_pools, self.charged) {
            (false, _) | (_, u64::MAX) => u64::MAX,
            (true, bytes) => bytes / page,
        };
        all.min(of_node.unwrap_or(u64::MAX)).min(charged)
    }

    fn take(&mut self, rung: &Rung, node: Option<u32>, pages: u64) {
        let less = |room: &mut u64, by: u64| {
            if *room != u64::MAX {
                *room -= by.min(*room);
            }
        };
        let bytes = Pages(pages).in_bytes(rung.size).get();
        if !is_of_pool(rung) || self.counts_pools {
            less(&mut self.charged, bytes);
        }
        if !is_of_pool(rung) {
            less(&mut self.thp, bytes);
            return;
        }
        if let Some(room) = self.pools.get_mut(&rung.size) {
            less(room, pages);
        }
        if let (Some(nodes), Some(node)) = (&mut self.nodes, node)
            && let Some(room) = nodes.get_mut(&(rung.size, node))
        {
            less(room, pages);
        }
    }

    /// Returns the most memory that these ranks could take on these rungs. Rungs without a limit do not count.
    pub fn most(&self, rungs: &[Rung], shares: &[CacheShare]) -> Bytes {
        let of_rung = |rung: &Rung| {
            let all = self.room(rung, None);
            let nodes = shares.iter().map(|share| self.room(rung, share.node));
            let nodes = nodes.fold(0_u64, u64::saturating_add);
            match all.min(nodes) {
                u64::MAX => Bytes::ZERO,
                pages => Pages(pages).in_bytes(rung.size),
            }
        };
        let sum: Bytes = rungs.iter().map(of_rung).sum();
        match self.counts_pools {
            true => sum.min(Bytes(self.charged)),
            false => sum,
        }
    }
}

fn free(pool: &Pool) -> u64 {
    pool.free.get().unwrap_or_default().get()
}

/// Returns the pages of a pool within a bound that is not the pool itself.
fn pages_within(
    bound: Bound,
    size: PageSize,
    facts: &CacheFacts<'_>,
    request: &CacheRequest,
) -> u64 {
    let pages = |bytes: Bytes| bytes.get() / size.bytes().get();
    match bound {
        Bound::Cgroup(kind) => {
            let tightest = facts.limits.tightest(size, kind);
            let room = tightest.and_then(|(_, limit)| limit.room(kind));
            room.map_or(u64::MAX, pages)
        }
        Bound::Mount => {
            let mount = find_mount(facts, request).ok().flatten();
            let mount = mount.filter(|mount| mount.page == size);
            let left =
                mount.and_then(|mount| Some(mount.limit? - mount.usage.get().unwrap_or_default()));
            left.map_or(u64::MAX, pages)
        }
        _ => u64::MAX,
    }
}

/// Pages of all ranks, and the memory for which there were none.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Placement {
    pub pages: Vec<PlacedPages>,
    pub short: Bytes,
}

impl Placement {
    pub fn placed(&self) -> Bytes {
        self.pages.iter().map(PlacedPages::bytes).sum()
    }

    pub fn on_thp(&self) -> Bytes {
        let thp = self.pages.iter().filter(|p| p.kind == PageKind::Thp);
        thp.map(PlacedPages::bytes).sum()
    }
}

/// Places each rank: on each rung as many whole pages as fit, and the rest on the last, rounded up.
pub(super) fn place(shares: &[CacheShare], rungs: &[Rung], mut rooms: Rooms) -> Placement {
    let mut found: BTreeMap<(usize, Option<u32>), u64> = BTreeMap::new();
    let mut short = Bytes::ZERO;
    for share in shares {
        for _ in 0..share.ranks {
            let mut left = share.bytes;
            for (at, rung) in rungs.iter().enumerate() {
                let is_last = at + 1 == rungs.len();
                let wanted = match is_last {
                    true => rung.size.pages_for(left).get(),
                    false => left.get() / rung.size.bytes().get(),
                };
                let got = wanted.min(rooms.room(rung, share.node));
                rooms.take(rung, share.node, got);
                *found.entry((at, share.node)).or_default() += got;
                left = match (is_last, got == wanted) {
                    (true, true) => Bytes::ZERO,
                    (true, false) => Pages(wanted - got).in_bytes(rung.size),
                    (false, _) => left - Pages(got).in_bytes(rung.size),
                };
            }
            short += left;
        }
    }
    let pages = found.into_iter().filter(|(_, pages)| *pages > 0);
    let placed = |((at, node), pages): ((usize, Option<u32>), u64)| PlacedPages {
        page: rungs[at].size,
        kind: match is_of_pool(&rungs[at]) {
            true => PageKind::Hugetlb,
            false => PageKind::Thp,
        },
        node,
        pages: Pages(pages),
    };
    Placement {
        pages: pages.map(placed).collect(),
        short,
    }
}
