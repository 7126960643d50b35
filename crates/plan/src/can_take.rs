//! Judges whether this host can give a cache its huge pages now, before a program spends hours on finding out. Pure.
//!
//! Bounds are added one by one, in the order in which the kernel applies them, and the cache is placed within them each
//! time (`placement`). The first bound within which it does not fit decides. A pool that is too small for one reason
//! that a person can change (`causes`) is explained by it.

mod causes;
mod explanation;
mod placement;
mod process_checks;

use std::collections::BTreeSet;

use hugeleaf_host::demand::{CacheNodes, CacheShare, cache_shares};
use hugeleaf_host::{
    Fact, Host, HugetlbLimitKind, HugetlbfsMount, MemoryLimit, ProcessMemoryLimits,
};
use hugeleaf_units::{Bytes, Failure, PageKind, PageSize, Pages, Rung};
use hugeleaf_verdict::findings::AdvisedCommand;
use hugeleaf_verdict::reservation::Margin;
use serde::Serialize;

use self::placement::{Bound, Placement, Rooms};
pub(crate) use self::process_checks::REGISTRATION;

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

/// Judges a request.
///
/// # Errors
/// A node does not exist, a mount has other pages, or a number is unreadable.
pub fn can_take(facts: &CacheFacts<'_>, request: &CacheRequest) -> Result<CanTake, Failure> {
    check_request(facts, request)?;
    let shares = cache_shares(
        request.bytes,
        request.ranks,
        request.nodes,
        &facts.host.nodes,
    );
    let judge = Judge {
        facts,
        request,
        rungs: usable(facts.host, &request.sizes),
        shares,
    };
    judge.answer()
}

/// Refuses requests that cannot be meant, and facts without which the answer would be a guess.
fn check_request(facts: &CacheFacts<'_>, request: &CacheRequest) -> Result<(), Failure> {
    let host = facts.host;
    if request.bytes.is_zero() {
        return Err(Failure::usage(
            "a cache of 0 bytes: nothing to judge",
            "hugeleaf verify --can-take 512G --sizes 2M",
        ));
    }
    if let CacheNodes::One(node) = request.nodes
        && !host.nodes.contains(&node)
    {
        return Err(Failure::usage(
            format!("--node {node}: this host has no node {node} with memory"),
            "ls /sys/devices/system/node    # lists them",
        ));
    }
    readable(facts, request)
}

/// Returns the first unreadable number of the requested sizes as an error.
fn readable(facts: &CacheFacts<'_>, request: &CacheRequest) -> Result<(), Failure> {
    let sizes: BTreeSet<PageSize> = pool_sizes(&request.sizes).collect();
    let next = "run as root: the answer needs the page counts of every pool, and every limit";
    let failed = |error: &hugeleaf_host::ReadError| Failure::missing(error.to_string(), next);
    for pool in facts.host.pools.iter().filter(|p| sizes.contains(&p.size)) {
        for fact in [&pool.total, &pool.free, &pool.reserved, &pool.surplus] {
            if let Some(error) = fact.error() {
                return Err(failed(error));
            }
        }
    }
    let of_groups = facts.limits.hugetlb.iter().flat_map(|g| &g.hugetlb);
    for limit in of_groups.filter(|limit| sizes.contains(&limit.size)) {
        for fact in [&limit.fault_limit, &limit.reservation_limit] {
            if let Some(error) = fact.error() {
                return Err(failed(error));
            }
        }
        for fact in [&limit.fault_usage, &limit.reservation_usage] {
            if let Some(error) = fact.error() {
                return Err(failed(error));
            }
        }
    }
    Ok(())
}

fn pool_sizes(rungs: &[Rung]) -> impl Iterator<Item = PageSize> {
    let of_pool = rungs.iter().filter(|r| is_of_pool(r));
    of_pool.map(|rung| rung.size)
}

fn is_of_pool(rung: &Rung) -> bool {
    rung.kind != Some(PageKind::Thp)
}

/// Returns the rungs that this kernel has.
fn usable(host: &Host, rungs: &[Rung]) -> Vec<Rung> {
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

struct Judge<'a> {
    facts: &'a CacheFacts<'a>,
    request: &'a CacheRequest,
    /// The rungs that this kernel has.
    rungs: Vec<Rung>,
    shares: Vec<CacheShare>,
}

impl Judge<'_> {
    fn answer(&self) -> Result<CanTake, Failure> {
        let whole = self.place(&[]);
        let (mut checks, last) = self.capacity(&whole)?;
        checks.extend(self.of_processes(&whole)?);
        checks.extend(self.host_memory(&last)?);
        let failed = checks.iter().find(|check| !check.ok);
        let decides = match failed {
            Some(check) => self.decides_no(check),
            None => self.decides_yes(&checks),
        };
        Ok(CanTake {
            can_take: failed.is_none(),
            asked: self.request.bytes,
            ranks: self.ranks(),
            rank: self.rank_bytes(&whole),
            decides,
            notes: self.notes(&whole, &last),
            pages: last.pages,
            checks,
        })
    }

    fn ranks(&self) -> u64 {
        self.shares.iter().map(|share| share.ranks).sum()
    }

    /// Returns the memory of a rank in whole pages.
    fn rank_bytes(&self, whole: &Placement) -> Bytes {
        Bytes(whole.placed().get() / self.ranks().max(1))
    }

    fn place(&self, bounds: &[Bound]) -> Placement {
        let rooms = Rooms::new(self.facts, self.request, bounds);
        placement::place(&self.shares, &self.rungs, rooms)
    }

    /// Adds the bounds one by one. Returns a check for each, and the placement within all of them.
    fn capacity(&self, whole: &Placement) -> Result<(Vec<CapacityCheck>, Placement), Failure> {
        let need = whole.placed();
        if self.rungs.is_empty() {
            let check = CapacityCheck {
                id: CheckId::PageSize,
                ok: false,
                need: self.request.bytes,
                have: Bytes::ZERO,
                source: "the kernel's page sizes".to_owned(),
            };
            return Ok((vec![check], whole.clone()));
        }
        let (mut bounds, mut checks) = (Vec::new(), Vec::new());
        let mut last = whole.clone();
        for (id, bound, source) in self.bounds()? {
            bounds.push(bound);
            last = self.place(&bounds);
            checks.push(CapacityCheck {
                id,
                ok: last.short.is_zero(),
                need,
                have: need - last.short,
                source,
            });
            if last.short.is_zero() {
                let more = self.spare(&bounds, need);
                if let Some(check) = checks.last_mut() {
                    check.have = need + more;
                }
            }
        }
        Ok((checks, last))
    }

    /// Returns the memory by which a cache that fits could grow within these bounds.
    fn spare(&self, bounds: &[Bound], need: Bytes) -> Bytes {
        let sum = |rooms: &Rooms| rooms.most(&self.rungs, &self.shares);
        let rooms = Rooms::new(self.facts, self.request, bounds);
        sum(&rooms) - need
    }

    /// Returns the bounds that exist here, in the order of the answer.
    fn bounds(&self) -> Result<Vec<(CheckId, Bound, String)>, Failure> {
        let facts = self.facts;
        let mut found = Vec::new();
        let sizes: Vec<PageSize> = pool_sizes(&self.rungs).collect();
        if !sizes.is_empty() {
            let pools = format!("pool of {}", hugeleaf_verdict::list(&sizes));
            found.push((CheckId::Free, Bound::Free, pools.clone()));
            found.push((CheckId::Reserved, Bound::Reserved, pools));
            if self.request.nodes != CacheNodes::Any {
                self.pools_by_node(&sizes)?;
                found.push((CheckId::Node, Bound::Node, "pools of the nodes".to_owned()));
            }
            found.extend(self.mount_bound(&sizes)?);
            for (id, kind) in [
                (CheckId::CgroupReservations, HugetlbLimitKind::Reservations),
                (CheckId::CgroupFaults, HugetlbLimitKind::Faults),
            ] {
                let tightest = |size: &PageSize| facts.limits.tightest(*size, kind);
                let group = sizes.iter().find_map(tightest);
                let source = group.map(|(group, _)| format!("cgroup {}", group.path));
                found.extend(source.map(|source| (id, Bound::Cgroup(kind), source)));
            }
        }
        let is_charged = facts.limits.memory_counts_pools && !sizes.is_empty();
        let has_thp = self.rungs.iter().any(|rung| !is_of_pool(rung));
        if has_thp {
            let margin = self.margin()?;
            let source = format!("MemAvailable without a margin of {margin}");
            found.push((CheckId::AvailableMemory, Bound::Available(margin), source));
        }
        let group = tightest_memory(facts.limits).filter(|_| has_thp || is_charged);
        found.extend(group.map(|limit| {
            let source = format!("memory cgroup {}", limit.path);
            (CheckId::CgroupMemory, Bound::Memory, source)
        }));
        if has_thp && facts.host.limits.overcommit_memory.get() == Some(2) {
            let source = "CommitLimit without Committed_AS".to_owned();
            found.push((CheckId::CommitLimit, Bound::Commit, source));
        }
        Ok(found)
    }

    fn mount_bound(&self, sizes: &[PageSize]) -> Result<Option<(CheckId, Bound, String)>, Failure> {
        let Some(mount) = find_mount(self.facts, self.request)? else {
            return Ok(None);
        };
        if !sizes.contains(&mount.page) {
            return Err(Failure::usage(
                format!("{}: a hugetlbfs with pages of {}", mount.path, mount.page),
                format!("name its size: --sizes {}", mount.page),
            ));
        }
        let bound = (
            CheckId::MountSize,
            Bound::Mount,
            format!("size= of {}", mount.path),
        );
        Ok(mount.limit.map(|_| bound))
    }

    /// Checks that the pools of single nodes are known.
    fn pools_by_node(&self, sizes: &[PageSize]) -> Result<(), Failure> {
        let pools = &self.facts.host.pools;
        let nodes = self.shares.iter().filter_map(|share| share.node);
        for node in nodes {
            let has = |size: &PageSize| {
                let mut of_node = pools.iter().filter(|p| p.node == Some(node));
                of_node.any(|pool| pool.size == *size)
            };
            let is_only = self.facts.host.nodes.len() == 1;
            if let (Some(size), false) = (sizes.iter().find(|size| !has(size)), is_only) {
                return Err(Failure::missing(
                    format!("the pool of {size} on node {node} is unknown"),
                    format!("ls /sys/devices/system/node/node{node}/hugepages"),
                ));
            }
        }
        Ok(())
    }

    fn margin(&self) -> Result<Bytes, Failure> {
        let (total, _) = hugeleaf_verdict::reservation::used(self.facts.host)?;
        let margin = self.request.margin;
        Ok(margin.map_or(Margin::usual(total), |margin| margin.resolve(total)))
    }

    /// Checks that the rest of the host keeps enough base pages. Pools do not grow here, so the check is against the
    /// minimum of a forced plan: less is a host that kills programs, whoever reserved the pools.
    fn host_memory(&self, last: &Placement) -> Result<Option<CapacityCheck>, Failure> {
        let (total, _) = hugeleaf_verdict::reservation::used(self.facts.host)?;
        let available = self.facts.host.memory.available.get().unwrap_or_default();
        let need = Margin::forced_minimum(total);
        let have = available - last.on_thp();
        Ok(Some(CapacityCheck {
            id: CheckId::HostMemory,
            ok: have >= need,
            need,
            have,
            source: "MemAvailable on base pages".to_owned(),
        }))
    }
}

/// Returns the mount that the request names.
fn find_mount<'a>(
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
fn tightest_memory(limits: &ProcessMemoryLimits) -> Option<&MemoryLimit> {
    let hard = limits.memory.iter().filter(|limit| !limit.only_throttles);
    hard.min_by_key(|limit| limit.room_at_most())
}

#[cfg(test)]
mod tests;
