//! Causes of a pool that is too small, each found by placing the cache as if the cause were gone.

use hugeleaf_units::{Bytes, PageSize, Rung};

use super::cache_case::CacheCase;
use super::model::{CheckId, pool_sizes};
use super::placement::{Bound, Placement, Rooms, place};

/// A cause without which the cache would fit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Cause {
    Rounding,
    /// The pool of this size has the pages.
    OtherSize(PageSize),
    Leftovers,
    Overcommit,
}

impl CacheCase<'_> {
    /// Returns the first cause without which the cache would fit in the pools.
    pub(super) fn cause(&self) -> Option<Cause> {
        let pools = match self.request.nodes {
            hugeleaf_host::demand::CacheNodes::Any => vec![Bound::Free, Bound::Reserved],
            _ => vec![Bound::Free, Bound::Reserved, Bound::Node],
        };
        let with = |more| {
            let bounds: Vec<Bound> = pools.iter().copied().chain([more]).collect();
            self.place(&bounds).short.is_zero()
        };
        let cause = if self.fits_unrounded(&pools) {
            Cause::Rounding
        } else if with(Bound::LeftoversFreed) {
            Cause::Leftovers
        } else if let Some(size) = self.other_pool(&pools) {
            Cause::OtherSize(size)
        } else if with(Bound::SurplusAdded) {
            Cause::Overcommit
        } else {
            return None;
        };
        Some(cause)
    }

    /// True if only the rounding of each rank to whole pages is too much.
    fn fits_unrounded(&self, pools: &[Bound]) -> bool {
        let rooms = Rooms::new(self.facts, self.request, pools);
        self.ranks() > 1
            && rooms.most(&self.rungs, &self.shares) >= self.request.bytes
            && self.waste(&self.place(&[])) >= self.place(pools).short
    }

    /// Returns the memory that rounding adds.
    pub(super) fn waste(&self, whole: &Placement) -> Bytes {
        whole.placed() - self.request.bytes
    }

    /// Returns a pool of a size that was not requested, in which the cache would fit. The default size comes first.
    fn other_pool(&self, pools: &[Bound]) -> Option<PageSize> {
        let host = self.facts.host;
        let default = host.memory.default_hugetlb_page.get();
        let asked: Vec<PageSize> = pool_sizes(&self.request.sizes).collect();
        let others = host.totals().map(|pool| pool.size);
        let mut others: Vec<PageSize> = others.filter(|size| !asked.contains(size)).collect();
        others.sort_by_key(|size| (Some(*size) != default, *size));
        others.into_iter().find(|size| {
            let rung = Rung {
                size: *size,
                kind: None,
            };
            let rooms = Rooms::new(self.facts, self.request, pools);
            place(&self.shares, &[rung], rooms).short.is_zero()
        })
    }

    pub(super) fn id_of(&self, cause: &Cause) -> CheckId {
        match cause {
            Cause::Rounding => CheckId::Rounding,
            Cause::Leftovers => CheckId::Leftovers,
            Cause::Overcommit => CheckId::Overcommit,
            Cause::OtherSize(size) => {
                let default = self.facts.host.memory.default_hugetlb_page.get();
                match Some(*size) == default {
                    true => CheckId::DefaultSize,
                    false => CheckId::OtherSize,
                }
            }
        }
    }
}
