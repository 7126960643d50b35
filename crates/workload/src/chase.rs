//! `chase`: measures memory latency by dependent reads, each of which holds the address of the
//! next. No read can start before the previous one ends.
//!
//! The path is one cycle through every cache line of the working set, one read per line, in an
//! order that no prefetcher predicts (see [`ChaseCycle`]). Its memory is on pages of one size
//! ([`ChaseMemory::take`]). The kernel may give other pages, so the caller reads them back
//! ([`ChaseMemory::pages`]) and reports them.

mod cycle;
mod memory;
mod walk;

pub use cycle::ChaseCycle;
pub use memory::{AskedPages, ChaseMemory, PageArm, ParsePageArmError};
pub use memory::{is_on, small_mappings};
pub use walk::ChaseWalk;
