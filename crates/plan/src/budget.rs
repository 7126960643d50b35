//! The memory that a plan may still reserve, by page size.

use std::collections::BTreeMap;

use hugeleaf_host::Host;
use hugeleaf_units::{Bytes, Failure, PageSize, Pages};
use hugeleaf_verdict::reservation::{Margin, most_in_pools};

use crate::model::PageCount;
use crate::numa_layout::{NodeDemand, NodePlacement, NodePool, place};

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct CurrentPool {
    pub total: u64,
    /// Pages that stay in the pool. Surplus pages leave it when freed.
    pub lasting: u64,
    pub taken: u64,
}

/// Returns the current pools.
///
/// # Errors
/// A count could not be read, so the pages of others would be a guess.
pub(super) fn pools_now(host: &Host) -> Result<BTreeMap<PageSize, CurrentPool>, Failure> {
    let mut found = BTreeMap::new();
    for pool in host.totals() {
        for fact in [&pool.total, &pool.free, &pool.reserved, &pool.surplus] {
            if let Some(error) = fact.error() {
                return Err(Failure::missing(
                    error.to_string(),
                    "run as root: hugeleaf plan needs the page counts of every pool",
                ));
            }
        }
        let taken = pool.used() + pool.reserved.get().unwrap_or_default();
        let now = CurrentPool {
            total: pool.all().get(),
            lasting: pool.persistent().get(),
            taken: taken.min(pool.all()).get(),
        };
        found.insert(pool.size, now);
    }
    Ok(found)
}

#[derive(Debug, Clone, Default)]
pub(super) struct PoolBudget {
    pub now: CurrentPool,
    pub nodes: Vec<NodePool>,
    pub others: u64,
    /// Pages that no running process holds. They stay until the file or segment is removed.
    pub left_over: u64,
    pub promised: u64,
    /// Pages that files of other owners request at boot.
    pub configured: u64,
    pub planned: u64,
    /// The planned and promised pages that are bound to a node, by node.
    pub bound: BTreeMap<u32, u64>,
    pub held: BTreeMap<u32, u64>,
}

impl PoolBudget {
    pub fn wants(&self) -> NodeDemand {
        let all = [self.others, self.left_over, self.promised, self.planned];
        let all = all.into_iter().fold(0, u64::saturating_add);
        NodeDemand {
            free: self
                .bound
                .values()
                .fold(all, |left, n| left.saturating_sub(*n)),
            held: self.held.clone(),
            bound: self.bound.clone(),
        }
    }

    /// Returns the pages of a pool for all of these, at least the current number. A service that starts later may need
    /// the idle ones.
    fn placed(&self) -> Vec<NodePlacement> {
        place(&self.nodes, &self.wants(), false)
    }

    pub fn idle(&self) -> u64 {
        self.placed().iter().map(|on| on.idle).sum()
    }

    /// Returns the resulting size of a pool. A pool without planned pages does not change.
    fn resulting_pages(&self) -> u64 {
        match self.planned {
            0 => self.now.lasting.max(self.now.taken),
            _ => self
                .placed()
                .iter()
                .fold(0, |sum, on| sum.saturating_add(on.pages)),
        }
    }

    pub fn bind(&mut self, node: u32, pages: u64) {
        let bound = self.bound.entry(node).or_default();
        *bound = bound.saturating_add(pages);
    }
}

#[derive(Debug, Clone)]
pub(super) struct MemoryBudget {
    pub total: Bytes,
    pub used: Bytes,
    pub margin: Bytes,
    pub moves: Bytes,
    /// The maximum size of all pools under strict overcommit, if that bounds them.
    pub by_commit: Option<Bytes>,
    pub sizes: BTreeMap<PageSize, PoolBudget>,
    /// True if the plan may use the margin, down to [`Margin::forced_minimum`].
    pub forced: bool,
}

impl MemoryBudget {
    fn in_pools(&self) -> Bytes {
        self.sizes
            .iter()
            .map(|(size, book)| Pages(book.resulting_pages()).in_bytes(*size))
            .sum()
    }

    fn most_in_pools(&self, by_commit: Option<Bytes>) -> Bytes {
        let margin = match self.forced {
            true => Margin::forced_minimum(self.total).min(self.margin),
            false => self.margin,
        };
        most_in_pools(self.total, self.used - self.moves, margin, by_commit)
    }

    fn fits(&self) -> bool {
        // An unchanged pool takes no more memory, whatever the margin is.
        self.in_pools() <= self.most_in_pools(self.by_commit) || self.grows_by().is_zero()
    }

    /// True if strict overcommit leaves less for the pools than memory does.
    pub fn is_bound_by_commit(&self) -> bool {
        self.most_in_pools(self.by_commit) < self.most_in_pools(None)
    }

    pub fn grows_by(&self) -> Bytes {
        let sizes = self.sizes.iter();
        let now = sizes.map(|(size, book)| Pages(book.now.total).in_bytes(*size));
        self.in_pools() - now.sum()
    }

    /// Plans these pages if they fit, on `node` if their user is bound to it. `moves` is the base-page memory that the
    /// user gives up.
    pub fn take(&mut self, pages: &[PageCount], node: Option<u32>, moves: Bytes) -> bool {
        let before = self.clone();
        for more in pages {
            let book = self.sizes.entry(more.page).or_default();
            book.planned = book.planned.saturating_add(more.pages.get());
            if let Some(node) = node {
                book.bind(node, more.pages.get());
            }
        }
        self.moves = (self.moves + moves).min(self.used);
        let fits = self.fits();
        if !fits {
            *self = before;
        }
        fits
    }

    /// Plans these pages as often as they fit, at most `most` times, and returns the number.
    pub fn take_most(&mut self, each: PageCount, node: Option<u32>, most: u64) -> u64 {
        let (mut low, mut high) = (0, most);
        while low < high {
            let middle = high - (high - low) / 2;
            let fits = self.clone().take(&[each.times(middle)], node, Bytes::ZERO);
            if fits {
                low = middle;
            } else {
                high = middle - 1;
            }
        }
        self.take(&[each.times(low)], node, Bytes::ZERO);
        low
    }
}
