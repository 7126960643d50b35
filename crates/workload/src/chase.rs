//! `chase`: reads of which each names the address of the next, so that nothing can be read before
//! its time: the latency of memory, one access after the other.
//!
//! The path is one cycle through every cache line of the working set, one read a line, in an order
//! that no prefetcher follows (see [`Cycle`]). It is in memory on pages of one size
//! ([`ChaseMemory::take`]); where the kernel gave other pages, the caller reads it back
//! ([`ChaseMemory::pages`]) and says so.

mod cycle;
mod memory;
mod walk;

pub use cycle::Cycle;
pub use memory::{AskedPages, ChaseMemory, PageArm, ParsePageArmError};
pub use memory::{is_on, small_mappings};
pub use walk::Walk;
