//! Options of a region.

use hugeleaf_sys::{MemorySyscalls, NodePolicy, Sharing};
use hugeleaf_units::{Bytes, Ladder};

/// Options of a [`crate::Region`]: [`RegionOptions::new`] sets defaults, each method changes one.
///
/// ```
/// use hugeleaf::{Bytes, Region, RegionOptions};
///
/// // Shared memory for the processes of a server, populated by two threads.
/// let options = RegionOptions::new(Bytes::from_mib(4), "2M".parse()?).shared().threads(2);
/// let region = Region::new(&options)?;
/// assert_eq!(region.len(), options.length);
///
/// // A log buffer that is never swapped out needs a limit of locked memory (RLIMIT_MEMLOCK).
/// let log = RegionOptions::new(Bytes::from_mib(2), "2M".parse()?).locked(true);
/// assert!(log.locked);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct RegionOptions {
    /// Length in bytes. A multiple of the base page, or of the smallest page of a mandatory ladder.
    pub length: Bytes,
    /// Page sizes to try, from largest to smallest.
    pub ladder: Ladder,
    /// Private to this process, or shared: attachable by other processes and inherited by children.
    pub sharing: Sharing,
    /// NUMA nodes from which the pages come.
    pub nodes: NodePolicy,
    /// Number of threads that populate the region; `None` for one per processor.
    pub threads: Option<usize>,
    /// The region is locked in memory. Reserved pages always are, and count towards no limit.
    pub locked: bool,
    /// System calls used for the region. Tests put a gate before them.
    pub(crate) memory: MemorySyscalls,
}

impl RegionOptions {
    /// Returns options for private, unlocked memory from all nodes, with this length and ladder.
    pub fn new(length: Bytes, ladder: Ladder) -> RegionOptions {
        RegionOptions {
            length,
            ladder,
            sharing: Sharing::Private,
            nodes: NodePolicy::Inherit,
            threads: None,
            locked: false,
            memory: MemorySyscalls::new(),
        }
    }

    /// Makes the region shared: other processes can attach it and children inherit it.
    #[must_use]
    pub fn shared(self) -> RegionOptions {
        self.sharing(Sharing::Shared)
    }

    /// Sets private or shared; private by default.
    #[must_use]
    pub fn sharing(self, sharing: Sharing) -> RegionOptions {
        RegionOptions { sharing, ..self }
    }

    /// Sets the NUMA nodes of the pages. The default is the policy of the calling thread
    /// (set_mempolicy(2)).
    #[must_use]
    pub fn nodes(self, nodes: NodePolicy) -> RegionOptions {
        RegionOptions { nodes, ..self }
    }

    /// Sets the number of populating threads, at least 1. The default is one per processor.
    #[must_use]
    pub fn threads(self, threads: usize) -> RegionOptions {
        RegionOptions {
            threads: Some(threads),
            ..self
        }
    }

    /// Locks the region in memory (mlock(2)) within RLIMIT_MEMLOCK if true; false by default.
    #[must_use]
    pub fn locked(self, locked: bool) -> RegionOptions {
        RegionOptions { locked, ..self }
    }
}
