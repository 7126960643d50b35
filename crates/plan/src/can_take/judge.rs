//! Adds the bounds one by one, and finds the one that decides.

use std::collections::BTreeSet;

use hugeleaf_host::demand::{CacheNodes, cache_shares};
use hugeleaf_host::{HugetlbLimitKind, ReadError};
use hugeleaf_units::{Bytes, Failure, PageSize};
use hugeleaf_verdict::list;
use hugeleaf_verdict::reservation::{Margin, used};

use super::cache_case::CacheCase;
use super::model::{
    CacheFacts, CacheRequest, CanTake, CapacityCheck, CheckId, find_mount, is_of_pool, pool_sizes,
    tightest_memory, usable,
};
use super::placement::{Bound, Placement, Rooms};

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
    let case = CacheCase {
        facts,
        request,
        rungs: usable(facts.host, &request.sizes),
        shares,
    };
    case.answer()
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
    let failed = |error: &ReadError| Failure::missing(error.to_string(), next);
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

impl CacheCase<'_> {
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
            let pools = format!("pool of {}", list(&sizes));
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
        let (total, _) = used(self.facts.host)?;
        let margin = self.request.margin;
        Ok(margin.map_or(Margin::usual(total), |margin| margin.resolve(total)))
    }

    /// Checks that the rest of the host keeps enough base pages. Pools do not grow here, so the check is against the
    /// minimum of a forced plan: less is a host that kills programs, whoever reserved the pools.
    fn host_memory(&self, last: &Placement) -> Result<Option<CapacityCheck>, Failure> {
        let (total, _) = used(self.facts.host)?;
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
