//! What is asked of a region.

use hugeleaf_sys::{Memory, NodePolicy, Sharing};
use hugeleaf_units::{Bytes, Ladder};

/// What is asked of a [`crate::Region`]: [`RegionOptions::new`], then what is to differ from the default.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct RegionOptions {
    /// How long; a multiple of the base page, of a mandatory ladder's smallest page.
    pub length: Bytes,
    /// The page sizes to try, from large to small.
    pub ladder: Ladder,
    /// Private to this process, or attachable by others and inherited by children.
    pub sharing: Sharing,
    /// The nodes its pages come from.
    pub nodes: NodePolicy,
    /// How many threads populate it; `None` for one a processor.
    pub threads: Option<usize>,
    /// Whether it is locked in memory. Reserved pages always are, and count for no limit.
    pub locked: bool,
    /// The calls it is made with: tests put a gate before them.
    pub(crate) memory: Memory,
}

impl RegionOptions {
    /// Private memory of that length on that ladder, from all nodes, not locked.
    pub fn new(length: Bytes, ladder: Ladder) -> RegionOptions {
        RegionOptions {
            length,
            ladder,
            sharing: Sharing::Private,
            nodes: NodePolicy::Inherit,
            threads: None,
            locked: false,
            memory: Memory::new(),
        }
    }

    /// Memory that other processes can attach and children inherit.
    #[must_use]
    pub fn shared(self) -> RegionOptions {
        self.sharing(Sharing::Shared)
    }

    /// Private or shared; private by default.
    #[must_use]
    pub fn sharing(self, sharing: Sharing) -> RegionOptions {
        RegionOptions { sharing, ..self }
    }

    /// The nodes its pages come from; by default as the calling thread's own policy says
    /// (set_mempolicy(2)).
    #[must_use]
    pub fn nodes(self, nodes: NodePolicy) -> RegionOptions {
        RegionOptions { nodes, ..self }
    }

    /// How many threads populate it, at least 1; one per processor by default.
    #[must_use]
    pub fn threads(self, threads: usize) -> RegionOptions {
        RegionOptions {
            threads: Some(threads),
            ..self
        }
    }

    /// Whether it is locked in memory (mlock(2)), within RLIMIT_MEMLOCK; not by default.
    #[must_use]
    pub fn locked(self, locked: bool) -> RegionOptions {
        RegionOptions { locked, ..self }
    }
}
