//! A cache, the facts that it is judged by, and the answer. Plain data, and look-ups in it.

use hugeleaf_host::demand::CacheNodes;
use hugeleaf_host::{Fact, Host, HugetlbfsMount, MemoryLimit, ProcessMemoryLimits};
use hugeleaf_units::{Bytes, Failure, PageKind, PageSize, Pages, Rung};
use hugeleaf_verdict::findings::AdvisedCommand;
use hugeleaf_verdict::reservation::Margin;
use serde::Serialize;

/// A cache to judge.
#[derive(Debug, Clone)]
pub struct CacheRequest {
    /// Size of all ranks together.
    pub bytes: Bytes,
    /// Page sizes, from the first to the last. A size without a kind means pages of a pool.
    pub sizes: Vec<Rung>,
    pub nodes: CacheNodes,
    /// Number of processes that share it out; `None` is one, or one per node.
    pub ranks: Option<u64>,
    /// The ranks pin their memory for a device or io_uring.
    pub pin: Option<Pinning>,
    /// The hugetlbfs that holds the cache's files.
    pub mount: Option<String>,
    /// Memory that stays free besides transparent huge pages. Default: that of plans.
    pub margin: Option<Margin>,
}

/// Registration of the memory of a rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pinning {
    /// All of it in one call.
    Whole,
    /// In calls of this size.
    Pieces(Bytes),
}

/// Facts of the host and of the processes that will use the cache.
#[derive(Debug, Clone, Copy)]
pub struct CacheFacts<'a> {
    /// With [`Host::leftovers`].
    pub host: &'a Host,
    pub limits: &'a ProcessMemoryLimits,
    /// CAP_IPC_LOCK: the memlock limit does not bind.
    pub ipc_lock: bool,
    pub mounts: &'a [HugetlbfsMount],
}

hugeleaf_units::named! {
    /// The numbers that are compared, and causes of a shortage.
    pub enum CheckId {
        /// The kernel has a pool of the requested sizes.
        PageSize = "page-size",
        /// Free pages of the pools.
        Free = "free",
        /// Free pages without those that other processes have reserved.
        Reserved = "reserved",
        /// Pages on the requested nodes.
        Node = "node",
        /// Option `size=` of the hugetlbfs.
        MountSize = "mount-size",
        /// cgroup limit on reservations (`rsvd.max`): mmap(2) fails.
        CgroupReservations = "cgroup-reservations",
        /// cgroup limit on faults (`max`): SIGBUS.
        CgroupFaults = "cgroup-faults",
        /// Available memory without the margin, for transparent huge pages.
        AvailableMemory = "available-memory",
        /// Limit of the memory cgroup.
        CgroupMemory = "cgroup-memory",
        /// CommitLimit under strict overcommit, for transparent huge pages.
        CommitLimit = "commit-limit",
        /// Limit of a process's address space (RLIMIT_AS).
        AddressSpace = "address-space",
        /// Limit of locked memory (RLIMIT_MEMLOCK).
        Memlock = "memlock",
        /// Size of one registration with a driver.
        Registration = "registration",
        /// Memory on base pages for the rest of the host.
        HostMemory = "host-memory",
        /// Cause: each rank is rounded up to whole pages.
        Rounding = "rounding",
        /// Cause: the pages are in the pool of the default size.
        DefaultSize = "default-size",
        /// Cause: the pages are in the pool of another size.
        OtherSize = "other-size",
        /// Cause: no running process holds some pages.
        Leftovers = "leftovers",
        /// Cause: only surplus pages of overcommit would suffice, which are not guaranteed.
        Overcommit = "overcommit",
    }
}

/// A number that the cache needs, and what the host has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CapacityCheck {
    pub id: CheckId,
    pub ok: bool,
    #[serde(rename = "need_bytes")]
    pub need: Bytes,
    #[serde(rename = "have_bytes")]
    pub have: Bytes,
    /// Origin of the number, as in `cgroup /kubepods/a`.
    pub source: String,
}

impl CapacityCheck {
    pub fn short(&self) -> Bytes {
        self.need - self.have
    }
}

/// The number that decides, with its explanation.
#[derive(Debug, Clone, Serialize)]
pub struct DecidingNumber {
    pub id: CheckId,
    #[serde(rename = "need_bytes")]
    pub need: Bytes,
    #[serde(rename = "have_bytes")]
    pub have: Bytes,
    #[serde(rename = "short_bytes")]
    pub short: Bytes,
    pub text: String,
    #[serde(skip)]
    pub next: Option<AdvisedCommand>,
}

/// Pages of one size that the cache takes on a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct PlacedPages {
    #[serde(rename = "page_bytes")]
    pub page: PageSize,
    pub kind: PageKind,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<u32>,
    pub pages: Pages,
}

impl PlacedPages {
    pub fn bytes(&self) -> Bytes {
        self.pages.in_bytes(self.page)
    }
}

/// The answer.
#[derive(Debug, Clone, Serialize)]
pub struct CanTake {
    pub can_take: bool,
    /// Size of the request.
    #[serde(rename = "asked_bytes")]
    pub asked: Bytes,
    pub ranks: u64,
    /// Memory of each rank, in whole pages.
    #[serde(rename = "rank_bytes")]
    pub rank: Bytes,
    pub decides: DecidingNumber,
    pub checks: Vec<CapacityCheck>,
    /// Pages that the cache would take.
    pub pages: Vec<PlacedPages>,
    pub notes: Vec<String>,
}

pub(super) fn pool_sizes(rungs: &[Rung]) -> impl Iterator<Item = PageSize> {
    let of_pool = rungs.iter().filter(|r| is_of_pool(r));
    of_pool.map(|rung| rung.size)
}

pub(super) fn is_of_pool(rung: &Rung) -> bool {
    rung.kind != Some(PageKind::Thp)
}

/// Returns the rungs that this kernel has.
pub(super) fn usable(host: &Host, rungs: &[Rung]) -> Vec<Rung> {
    let has = |rung: &&Rung| match is_of_pool(rung) {
        true => host.pool(rung.size).is_some(),
        false => {
            let full = host.pmd_page.get() == Some(rung.size);
            let setting = host.thp_setting(hugeleaf_host::ThpMemoryKind::Private).1;
            full && setting.text().is_some_and(|word| word != "never")
        }
    };
    rungs.iter().filter(has).copied().collect()
}

/// Returns the mount that the request names.
pub(super) fn find_mount<'a>(
    facts: &'a CacheFacts<'_>,
    request: &CacheRequest,
) -> Result<Option<&'a HugetlbfsMount>, Failure> {
    let Some(path) = &request.mount else {
        return Ok(None);
    };
    let named = path.trim_end_matches('/');
    let mut mounts = facts.mounts.iter().rev();
    let found = mounts.find(|mount| mount.path.trim_end_matches('/') == named);
    let Some(mount) = found else {
        return Err(Failure::usage(
            format!("{path}: no hugetlbfs is mounted here"),
            "grep hugetlbfs /proc/mounts    # lists them",
        ));
    };
    match &mount.usage {
        Fact::Unreadable(error) => Err(error.clone().into()),
        _ => Ok(Some(mount)),
    }
}

/// Returns the memory limit with the least room that fails allocations.
pub(super) fn tightest_memory(limits: &ProcessMemoryLimits) -> Option<&MemoryLimit> {
    let hard = limits.memory.iter().filter(|limit| !limit.only_throttles);
    hard.min_by_key(|limit| limit.room_at_most())
}
