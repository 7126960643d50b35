//! Resolves a policy on a host.

use hugeleaf_host::{
    Host, RunMemoryKind, RunPageKind, RunPolicy, RunSettings, ThpMemoryKind, thp_is_on,
};
use hugeleaf_units::{Bytes, Failure, Ladder, PageSize};
use serde::Serialize;

use super::rung_availability::{RungAvailability, full_thp, judge, left_in_pool, pool_short};
use super::rung_availability::{private_setting, shared_setting};
use super::{PagePolicy, RunFlags};
use crate::advice::{Setting, SettingChange};
use crate::eligible::huge_page as pmd;
use crate::list;

/// Minimum number of full THPs before `auto` changes private memory and stacks. A small program would
/// use more memory without a gain.
const AUTO_AFTER: u64 = 16;

/// Maximum number of pool sizes per role in the library. No kernel has more sizes than page-table
/// levels.
const MOST_POOLS: usize = 4;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResolvedPolicy {
    pub settings: RunSettings,
    /// Named requests that are known to be unavailable.
    pub missing: Vec<UnavailableRequest>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct UnavailableRequest {
    /// The request as typed: `--shm 1G`.
    pub asked: String,
    pub reason: String,
    pub command: String,
}

/// Resolves a policy on a host. `room` is the memory that a cgroup limit leaves this process, if any.
///
/// # Errors
/// A mandatory request is unavailable, or the policy names something that does not exist.
pub fn resolve(
    policy: &RunFlags,
    host: &Host,
    room: Option<Bytes>,
) -> Result<ResolvedPolicy, Failure> {
    check_nodes(policy, host)?;
    let mut missing = Vec::new();
    let mut rungs: [RunPolicy; 4] = Default::default();
    for role in RunMemoryKind::ALL {
        let ladder = match policy.want(role) {
            PagePolicy::Auto => auto(host, role),
            PagePolicy::Base => RunPolicy::default(),
            PagePolicy::Ladder(ladder) => {
                let (rungs, lacks) = resolve_ladder(host, role, ladder)?;
                missing.extend(lacks);
                rungs
            }
        };
        rungs[role as usize] = RunPolicy {
            typed: policy.want(role).to_string(),
            ..ladder
        };
    }
    if let Some(reserve) = policy.reserve {
        let data = &rungs[RunMemoryKind::Data as usize];
        missing.extend(check_reserve(host, room, reserve, data)?);
    }
    let after = |role: RunMemoryKind| after(host, policy.want(role), &rungs[role as usize], role);
    let settings = RunSettings {
        base: Some(host.base_page),
        pmd: pmd(host),
        data_after: after(RunMemoryKind::Data),
        shm_after: after(RunMemoryKind::Shm),
        stack_after: after(RunMemoryKind::Stack),
        touch: matches!(private_setting(host), Some("always" | "madvise")),
        shmem_touch: thp_is_on(shared_setting(host)),
        reserve: policy.reserve,
        only: policy.only.clone(),
        report: None,
        roles: rungs,
    };
    Ok(ResolvedPolicy { settings, missing })
}

/// Returns the attempts of `auto`: THP for data and stacks, a pool and then THP for shared memory,
/// nothing for code.
fn auto(host: &Host, role: RunMemoryKind) -> RunPolicy {
    let mut ways = match role {
        RunMemoryKind::Text => return RunPolicy::default(),
        RunMemoryKind::Shm => pools_to_try(host),
        RunMemoryKind::Data | RunMemoryKind::Stack => Vec::new(),
    };
    ways.extend(full_thp(host, role).ok());
    RunPolicy {
        ways,
        ..RunPolicy::default()
    }
}

/// Returns the pools that `auto` tries. The pool of PMD size comes first even if it is empty, because
/// it may be filled before the program creates its segment. Others only if they alone have pages.
fn pools_to_try(host: &Host) -> Vec<RunPageKind> {
    let has_free =
        |size: PageSize| left_in_pool(host, size).is_none_or(|had| had.bytes >= size.bytes());
    let usual = pmd(host).or(host.memory.default_hugetlb_page.get());
    let usual = usual.filter(|size| host.pool(*size).is_some());
    let mut others: Vec<PageSize> = host
        .totals()
        .filter(|pool| Some(pool.size) != usual && has_free(pool.size))
        .map(|pool| pool.size)
        .collect();
    others.sort_unstable_by(|a, b| b.cmp(a));
    match usual {
        Some(size) if has_free(size) => vec![RunPageKind::Hugetlb(size)],
        usual => {
            let all = others.into_iter().chain(usual);
            all.take(MOST_POOLS).map(RunPageKind::Hugetlb).collect()
        }
    }
}

/// Resolves a ladder rung by rung. Returns the usable ways and the missing rungs.
fn resolve_ladder(
    host: &Host,
    role: RunMemoryKind,
    ladder: &Ladder,
) -> Result<(RunPolicy, Vec<UnavailableRequest>), Failure> {
    let mandatory = ladder.is_mandatory();
    let mut ways: Vec<RunPageKind> = Vec::new();
    let mut lacks: Vec<(PageSize, Failure)> = Vec::new();
    let mut had = false;
    for rung in ladder.rungs() {
        match judge(host, role, *rung) {
            RungAvailability::Ways(more) => {
                had = true;
                for way in more {
                    if !ways.contains(&way) {
                        ways.push(way);
                    }
                }
            }
            RungAvailability::Automatic if mandatory => {
                let because = format!("the kernel does not guarantee pages of {}", rung.size);
                lacks.push((rung.size, Failure::missing(because, "# omit the !")));
            }
            RungAvailability::Automatic => had = true,
            RungAvailability::Base => {
                had = true;
                break;
            }
            // A better rung is available, so this fallback is not needed yet.
            RungAvailability::Unavailable(_) if had => {}
            RungAvailability::Unavailable(lack) => lacks.push((rung.size, lack)),
        }
    }
    let pools = ways.iter().filter(|way| **way != RunPageKind::Thp).count();
    if pools > MOST_POOLS {
        return Err(Failure::missing(
            format!("run: --{role} {ladder} names {pools} pools; the maximum is {MOST_POOLS}"),
            "omit the least important sizes",
        ));
    }
    if mandatory
        && role != RunMemoryKind::Shm
        && ways == [RunPageKind::Thp]
        && let Some(lack) = first_touch(host)
    {
        had = false;
        lacks.push(lack);
    }
    if mandatory && !had {
        let none = || (host.base_page, Failure::missing("there is none", ""));
        let (_, lack) = lacks.pop().unwrap_or_else(none);
        return Err(unavailable(&format!("--{role} {ladder}"), lack));
    }
    let missing = |(size, lack)| missing_of(format!("--{role} {size}"), lack);
    let rungs = RunPolicy {
        mandatory: mandatory && !ways.is_empty(),
        ways,
        ..RunPolicy::default()
    };
    Ok((rungs, lacks.into_iter().map(missing).collect()))
}

/// Memory that must be huge on first touch cannot wait for a collapse.
fn first_touch(host: &Host) -> Option<(PageSize, Failure)> {
    let size = pmd(host)?;
    let word = private_setting(host).filter(|word| *word == "never")?;
    let own = host
        .full_thp()
        .filter(|order| order.anon.text() == Some("never"));
    let of = ThpMemoryKind::Private;
    let file = own.map_or_else(|| of.file(), |order| order.file(of));
    Some((
        size,
        Failure::missing(
            format!("{file} is {word}, so memory is never on huge pages at first touch"),
            SettingChange::new(Setting::file(&*file), "madvise").command(host),
        ),
    ))
}

fn after(host: &Host, want: &PagePolicy, rungs: &RunPolicy, role: RunMemoryKind) -> Option<Bytes> {
    let smallest = rungs.ways.iter().map(|way| match way {
        RunPageKind::Thp => pmd(host),
        RunPageKind::Hugetlb(size) => Some(*size),
    });
    let unit = smallest.flatten().min()?.bytes();
    match (want, role) {
        (PagePolicy::Auto, RunMemoryKind::Data | RunMemoryKind::Stack) => {
            Some(Bytes(unit.get().saturating_mul(AUTO_AFTER)))
        }
        _ => Some(unit),
    }
}

fn check_nodes(policy: &RunFlags, host: &Host) -> Result<(), Failure> {
    if let Some(numa) = &policy.numa
        && let Some(node) = numa.nodes().iter().find(|n| !host.nodes.contains(n))
    {
        return Err(Failure::missing(
            format!("run: --numa {numa}: this host has no node {node} with memory"),
            format!("name nodes that it has: {}", list(&host.nodes)),
        ));
    }
    Ok(())
}

/// Checks that the reserve is available. It is allocated and touched at once, so a request beyond
/// available memory would trigger the OOM killer.
fn check_reserve(
    host: &Host,
    room: Option<Bytes>,
    reserve: Bytes,
    data: &RunPolicy,
) -> Result<Option<UnavailableRequest>, Failure> {
    let asked = format!("--reserve {reserve}");
    let mut lack = None;
    for way in &data.ways {
        match way {
            RunPageKind::Hugetlb(size) => match left_in_pool(host, *size) {
                Some(left) if left.bytes < reserve => {
                    lack = Some(pool_short(host, *size, Some(reserve)));
                }
                _ => return Ok(None),
            },
            RunPageKind::Thp => {
                check_memory(host, room, reserve, &asked)?;
                return Ok(lack.map(|lack| missing_of(asked, lack)));
            }
        }
    }
    match lack {
        Some(lack) if data.mandatory => Err(unavailable(&asked, lack)),
        Some(lack) => Ok(Some(missing_of(asked, lack))),
        None => Err(Failure::missing(
            format!("run: {asked} reserves huge pages for data, but data stays on base pages"),
            "choose pages for data, as in --data 2M, or omit --reserve",
        )),
    }
}

fn unavailable(asked: &str, lack: Failure) -> Failure {
    Failure::missing(
        format!("run: {asked} is required but unavailable: {}", lack.message),
        lack.remedy,
    )
}

fn missing_of(asked: String, lack: Failure) -> UnavailableRequest {
    UnavailableRequest {
        asked,
        reason: lack.message,
        command: lack.remedy,
    }
}

fn check_memory(
    host: &Host,
    room: Option<Bytes>,
    reserve: Bytes,
    asked: &str,
) -> Result<(), Failure> {
    if let Some(room) = room.filter(|room| *room < reserve) {
        return Err(Failure::missing(
            format!("run: {asked}: the memory cgroup of this process has room for {room}"),
            "reserve less, or raise the limit of the cgroup (memory.max)",
        ));
    }
    match host.memory.available.get() {
        Some(available) if available < reserve => Err(Failure::missing(
            format!("run: {asked}: only {available} of memory is available"),
            "reserve less, or free memory: hugeleaf mem    # lists its users",
        )),
        _ => Ok(()),
    }
}
