//! Which pages lie on which node. Pure.

use std::collections::BTreeMap;

use hugeleaf_host::demand::Service;
use hugeleaf_host::{Fact, Host, Pool};
use hugeleaf_units::{PageSize, Pages};

use super::model::{ForPool, Plan};
use super::room::Ledger;
use super::spread::spread;

/// The pools that services of the plan take from, node by node.
pub(super) fn pools(
    host: &Host,
    ledger: &Ledger,
    plan: &Plan,
    services: &[Service],
) -> Vec<ForPool> {
    let mut found = Vec::new();
    for (size, _) in ledger.planned.iter().rev().filter(|(_, n)| **n > 0) {
        let takes = |s: &&super::ForService| {
            let mut pages = s.demands.iter().flat_map(|d| &d.pages);
            pages.any(|p| p.page == *size)
        };
        let whom = plan.services.iter().filter(takes);
        let wanted = Wanted {
            size: *size,
            target: ledger.target(*size),
            needed: ledger.needed(*size),
            others: ledger.others.get(size).copied().unwrap_or_default(),
            whom: whom.map(|s| s.name.clone()).collect(),
            bound: bound(plan, services, *size),
        };
        found.extend(wanted.layout(host));
    }
    found
}

/// Pages of services that may take memory from one node only.
fn bound(plan: &Plan, services: &[Service], size: PageSize) -> BTreeMap<u32, u64> {
    let mut bound = BTreeMap::new();
    for (service, planned) in services.iter().zip(&plan.services) {
        let Some(node) = service.node else { continue };
        let pages = planned.demands.iter().flat_map(|d| &d.pages);
        let pages: u64 = pages
            .filter(|p| p.page == size)
            .map(|p| p.pages.get())
            .sum();
        *bound.entry(node).or_default() += pages;
    }
    bound
}

fn count(fact: &Fact<Pages>) -> u64 {
    fact.get().unwrap_or_default().get()
}

/// The pages of a pool that stay in it.
pub(super) fn lasting(pool: &Pool) -> Pages {
    Pages(count(&pool.total).saturating_sub(count(&pool.surplus)))
}

fn in_use(pool: &Pool) -> u64 {
    count(&pool.total).saturating_sub(count(&pool.free))
}

/// What the pools of one size should come to.
#[derive(Debug, Clone)]
pub(super) struct Wanted {
    pub size: PageSize,
    /// Pages on all nodes.
    pub target: u64,
    /// Those of them that somebody needs: the others stand idle.
    pub needed: u64,
    /// Those of them that somebody else holds.
    pub others: u64,
    /// Names of the services that take from them.
    pub whom: Vec<String>,
    /// Pages of services that are bound to a node, by node.
    pub bound: BTreeMap<u32, u64>,
}

impl Wanted {
    fn pool(&self, now: Option<&Pool>, pages: u64, others: u64) -> ForPool {
        let known = now.filter(|p| p.total.get().is_some());
        ForPool {
            page: self.size,
            node: now.and_then(|p| p.node),
            was: known.map(lasting),
            pages: Pages(pages),
            services: self.whom.clone(),
            others: Pages(others),
        }
    }

    /// The pages, node by node; on a host that counts its pools for all nodes together, at once.
    pub fn layout(&self, host: &Host) -> Vec<ForPool> {
        let of_size = || host.pools.iter().filter(|p| p.size == self.size);
        let nodes: Vec<&Pool> = of_size().filter(|p| p.node.is_some()).collect();
        if nodes.is_empty() {
            return vec![self.pool(of_size().next(), self.target, self.others)];
        }
        let mut left = self.others;
        let mut found = Vec::new();
        for (node, pages) in nodes.iter().zip(self.by_node(&nodes)) {
            // Which of the pages in use are others' is not known: those here may be theirs.
            let theirs = left.min(in_use(node)).min(pages);
            left -= theirs;
            found.push(self.pool(Some(node), pages, theirs));
        }
        // Pages that are promised lie on no node yet.
        for entry in &mut found {
            let more = left.min(entry.pages.get() - entry.others.get());
            entry.others = Pages(entry.others.get() + more);
            left -= more;
        }
        found
    }

    /// Evenly, but on no node fewer than there are; idle pages may be somebody's who starts later.
    /// Where a service is bound its own lie there, and elsewhere there are at least as many as are
    /// in use. So it is too where the pool is to be smaller.
    fn by_node(&self, nodes: &[&Pool]) -> Vec<u64> {
        let here = |p: &&Pool| p.node.and_then(|n| self.bound.get(&n).copied());
        let bound: Vec<u64> = nodes.iter().map(|p| here(p).unwrap_or_default()).collect();
        let now: Vec<u64> = nodes.iter().map(|p| lasting(p).get()).collect();
        if bound.iter().all(|n| *n == 0) && self.target >= now.iter().sum() {
            return spread(self.target, &now);
        }
        let used = nodes.iter().zip(&bound);
        let least: Vec<u64> = used.map(|(p, n)| in_use(p).saturating_sub(*n)).collect();
        let free = self.needed.saturating_sub(bound.iter().sum());
        let mut given = spread(free, &least);
        // Pages that a bound service holds elsewhere today go there when it restarts: counted in
        // both places they would be taken from base pages.
        let all: u64 = given.iter().chain(&bound).sum();
        let mut over = all.saturating_sub(self.target);
        for pages in &mut given {
            let less = over.min(*pages);
            *pages -= less;
            over -= less;
        }
        let mut idle = self.target.saturating_sub(all);
        let mut sum: Vec<u64> = given.iter().zip(&bound).map(|(a, b)| a + b).collect();
        for (pages, now) in sum.iter_mut().zip(&now) {
            let stay = idle.min(now.saturating_sub(*pages));
            *pages += stay;
            idle -= stay;
        }
        sum
    }
}
