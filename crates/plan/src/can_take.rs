//! Judges whether this host can give a cache its huge pages now, before a program spends hours on finding out. Pure.
//!
//! Bounds are added one by one (`judge`), and the cache is placed within them each time (`placement`). The first bound
//! within which it does not fit decides. A pool that is too small for one reason that a person can change is explained
//! by it (`causes`).

mod cache_case;
mod causes;
mod explanation;
mod judge;
mod model;
mod placement;
mod process_checks;

pub use judge::can_take;
pub use model::{
    CacheFacts, CacheRequest, CanTake, CapacityCheck, CheckId, DecidingNumber, Pinning, PlacedPages,
};
pub(crate) use process_checks::REGISTRATION;

#[cfg(test)]
mod tests;
