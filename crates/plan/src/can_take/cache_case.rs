//! A request on a host, with its parts and usable page sizes.

use hugeleaf_host::demand::CacheShare;
use hugeleaf_units::{Bytes, Rung};

use super::model::{CacheFacts, CacheRequest};
use super::placement::{Bound, Placement, Rooms, place};

pub(super) struct CacheCase<'a> {
    pub facts: &'a CacheFacts<'a>,
    pub request: &'a CacheRequest,
    /// The rungs that this kernel has.
    pub rungs: Vec<Rung>,
    pub shares: Vec<CacheShare>,
}

impl CacheCase<'_> {
    pub fn ranks(&self) -> u64 {
        self.shares.iter().map(|share| share.ranks).sum()
    }

    /// Returns the memory of a rank in whole pages.
    pub fn rank_bytes(&self, whole: &Placement) -> Bytes {
        Bytes(whole.placed().get() / self.ranks().max(1))
    }

    pub fn place(&self, bounds: &[Bound]) -> Placement {
        let rooms = Rooms::new(self.facts, self.request, bounds);
        place(&self.shares, &self.rungs, rooms)
    }
}
