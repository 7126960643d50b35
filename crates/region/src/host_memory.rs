//! Memory that this host can still give to this process.

use hugeleaf_host::{Fact, Host, Root};
use hugeleaf_sys::{Kernel, NodePolicy};
use hugeleaf_units::{Bytes, Ladder, PageKind, PageSize, Rung};

use crate::error::MemoryError;

/// Memory left to other processes in any case: the kernel kills processes when it runs out.
const HEADROOM: Bytes = Bytes::from_mib(64);
/// Part of a memory cgroup's limit that is left to page tables, thread stacks and the kernel's
/// per-CPU charges. It has a fixed part and a proportional part.
const CGROUP_HEADROOM: Bytes = Bytes::from_mib(8);
const CGROUP_HEADROOM_DIVISOR: u64 = 256;

pub(crate) struct HostMemory {
    pub(crate) host: Host,
}

impl HostMemory {
    pub(crate) fn read() -> Result<HostMemory, MemoryError> {
        let host = hugeleaf_host::read_memory_facts(&Root::live(), &Kernel::new())?;
        Ok(HostMemory { host })
    }

    /// Returns the memory available outside the pools, and the limit that applies. `None` if it
    /// cannot be determined.
    pub(crate) fn available() -> Option<(Bytes, String)> {
        let root = Root::live();
        let free = hugeleaf_host::system::available(&root).get()?;
        let free = (Bytes(free.get().saturating_sub(HEADROOM.get())), "memory");
        let limit = hugeleaf_host::limits::read_limits(&root, "self")
            .memory_room()
            .get();
        let limit = limit.map(|bytes| {
            let left = CGROUP_HEADROOM + Bytes(bytes.get() / CGROUP_HEADROOM_DIVISOR);
            (bytes - left, "the memory cgroup")
        });
        let (bytes, limited_by) = match limit {
            Some(limit) if limit.0 < free.0 => limit,
            _ => free,
        };
        Some((bytes, limited_by.to_owned()))
    }

    /// Returns the most memory on these page sizes that this process can ever have. `None` if it
    /// cannot be determined.
    pub(crate) fn most(ladder: &Ladder) -> Option<Bytes> {
        let root = Root::live();
        let own = hugeleaf_host::limits::read_limits(&root, "self");
        let limit = own.memory_limit();
        let host = hugeleaf_host::read_start_facts_within(&root, &Kernel::new(), own).ok()?;
        // Memory cgroups do not count pages of a pool.
        let is_of_pool = |rung: &Rung| {
            let is_it = |kind: PageKind| kind == PageKind::Hugetlb;
            let mut pools = host.page_sizes.iter().filter(|info| is_it(info.kind));
            rung.kind.is_none_or(is_it) && pools.any(|pool| pool.size == rung.size && pool.enabled)
        };
        let limit = limit.filter(|_| !ladder.rungs().iter().any(is_of_pool));
        [host.memory.total.get(), limit].into_iter().flatten().min()
    }

    /// Returns what a pool could provide when the facts were read, and the limit that applies.
    pub(crate) fn pool(&self, size: PageSize) -> (Fact<Bytes>, String) {
        let info = self
            .host
            .page_sizes
            .iter()
            .find(|info| info.size == size && info.kind == PageKind::Hugetlb);
        match info.map(|info| &info.available) {
            Some(Fact::Known(had)) => (Fact::Known(had.bytes), had.limited_by.clone()),
            _ => (Fact::Absent, "pool".to_owned()),
        }
    }

    /// Refuses a policy that the kernel would apply only in part. The kernel skips nodes without
    /// memory if another node has some (mm/mempolicy.c, mpol_set_nodemask).
    pub(crate) fn check_nodes(&self, policy: &NodePolicy) -> Result<(), MemoryError> {
        let nodes = match policy {
            NodePolicy::Inherit | NodePolicy::Local => return Ok(()),
            NodePolicy::Bind(nodes) | NodePolicy::Interleave(nodes) => nodes,
        };
        if nodes.is_empty() {
            return Err(MemoryError::NoNodes);
        }
        let missing = nodes.iter().find(|node| !self.host.nodes.contains(node));
        missing.map_or(Ok(()), |node| Err(MemoryError::NoSuchNode { node: *node }))
    }

    /// Refuses a request that memory outside the pools cannot hold.
    pub(crate) fn check(asked: Bytes) -> Result<(), MemoryError> {
        match HostMemory::available() {
            Some((available, limited_by)) if asked > available => Err(MemoryError::TooLarge {
                asked,
                available,
                limited_by,
            }),
            _ => Ok(()),
        }
    }
}
