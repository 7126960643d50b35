//! Explains why shared memory is not on the pages of a configured pool.

use hugeleaf_host::{HugetlbLimitKind, Pool, ProcessMapping, RunMemoryKind, RunPageKind};
use hugeleaf_units::{PageSize, Pages};

use crate::eligible::is_on_pool;
use crate::pool_programs::{self, PoolProgram};

use super::{ProcessContext, Reason};

/// CAP_IPC_LOCK (include/uapi/linux/capability.h).
const CAP_IPC_LOCK: u32 = 14;

/// True if the process uses pools, or its program can. Other processes never request hugetlb pages, even if a pool
/// has free ones.
fn asks(case: &ProcessContext<'_>) -> bool {
    let process = case.process;
    let is_hugetlb = |way: &RunPageKind| matches!(way, RunPageKind::Hugetlb(_));
    PoolProgram::of(&process.name).is_some()
        || process.segments.iter().any(is_on_pool)
        || process
            .run
            .known()
            .is_some_and(|run| run.policy(RunMemoryKind::Shm).ways.iter().any(is_hugetlb))
}

/// Returns the reason why a segment is not on the pool, in the order of the kernel's checks (`hugetlb_file_setup`,
/// then `hugetlb_reserve_pages`, then the fault). `None` if this host has no pool for a page of the segment, or the
/// program requests none.
pub fn reason(case: &ProcessContext<'_>, segment: &ProcessMapping) -> Option<Reason> {
    let pool = pool(case, segment).filter(|_| asks(case))?;
    if let Some(reason) = no_right(case, segment) {
        return Some(reason);
    }
    let short = |of: HugetlbLimitKind| {
        let room = case
            .process
            .limits
            .tightest(pool.size, of)
            .and_then(|(_, limit)| limit.room(of));
        room.is_some_and(|room| room < segment.range.len())
    };
    if short(HugetlbLimitKind::Reservations) {
        return Some(Reason::CgroupReservation);
    }
    if self::short(pool, segment) > Pages(0) {
        return Some(Reason::PoolShort);
    }
    if short(HugetlbLimitKind::Faults) {
        return Some(Reason::CgroupFault);
    }
    Some(Reason::PoolUnused)
}

/// Returns the pool for the segment. The pool of the size that the program requests takes precedence, if it has pages
/// or may allocate some. Otherwise a pool with enough pages that the program can use, by default or by a setting
/// ([`size_setting`]).
pub fn pool<'a>(case: &ProcessContext<'a>, segment: &ProcessMapping) -> Option<&'a Pool> {
    let fits = |p: &&Pool| p.gives_any() && p.size.bytes() <= segment.range.len();
    let filled = || case.host.totals().filter(fits);
    let asked = pool_programs::requested_page_size(case.host, None);
    let can_take = |p: &&Pool| match PoolProgram::of(&case.process.name) {
        Some(program) if program.takes_any_size() => true,
        Some(program) => program.size_setting(p.size).is_some() && short(p, segment) == Pages(0),
        // The page size of a program that has hugetlb pages, or was started for them, is unknown.
        None => true,
    };
    filled()
        .find(|p| Some(p.size) == asked)
        .or_else(|| filled().filter(can_take).max_by_key(|p| p.size))
}

/// Returns the additional setting that makes the program request pages of this size.
pub fn size_setting(case: &ProcessContext<'_>, size: PageSize) -> Option<String> {
    let is_other = pool_programs::requested_page_size(case.host, None) != Some(size);
    PoolProgram::of(&case.process.name)?
        .size_setting(size)
        .filter(|_| is_other)
}

/// Returns the number of free unreserved pages, including overcommit.
pub fn available(pool: &Pool) -> Pages {
    pool.available() + pool.may_add()
}

/// Returns the number of pages that a segment needs beyond those available in the pool.
pub fn short(pool: &Pool, segment: &ProcessMapping) -> Pages {
    pool.size.pages_for(segment.range.len()) - available(pool)
}

/// Returns the missing permission. SysV segments with SHM_HUGETLB need CAP_IPC_LOCK, the group, or room under the
/// memlock limit (with a kernel log warning). Memory from mmap needs none of them.
fn no_right(case: &ProcessContext<'_>, segment: &ProcessMapping) -> Option<Reason> {
    let process = case.process;
    let group = case.host.limits.hugetlb_shm_group.get();
    let allowed = !segment.name.starts_with("/SYSV")
        || process.capabilities >> CAP_IPC_LOCK & 1 == 1
        || group.is_none_or(|g| process.groups.contains(&g))
        || process
            .limits
            .memlock
            .get()
            .is_none_or(|limit| limit >= segment.range.len());
    match (allowed, group) {
        (true, _) => None,
        // Group 0 is the kernel's default, not a configured group.
        (false, Some(0)) => Some(Reason::Memlock),
        (false, _) => Some(Reason::ShmGroup),
    }
}
