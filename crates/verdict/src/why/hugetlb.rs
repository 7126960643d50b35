//! Why shared memory is not on pages of a pool that somebody filled.

use hugeleaf_host::{Limited, Pool, RunRole, RunWay, Segment};
use hugeleaf_units::Pages;

use crate::eligible::is_on_pool;

use super::{Case, Reason};

/// CAP_IPC_LOCK (include/uapi/linux/capability.h).
const CAP_IPC_LOCK: u32 = 14;

/// Programs that can take shared memory from a pool, by how their names begin, with the setting that makes them, and the
/// one by which they leave it.
pub const ASKING: &[(&str, &str, &str)] = &[
    ("postgres", "huge_pages = on", "huge_pages = off"),
    ("mysqld", "large-pages", "skip-large-pages"),
    ("mariadbd", "large-pages", "skip-large-pages"),
    ("java", "-XX:+UseLargePages", "-XX:-UseLargePages"),
    (
        "oracle",
        "use_large_pages = only",
        "use_large_pages = false",
    ),
    ("ora_", "use_large_pages = only", "use_large_pages = false"),
    ("db2sysc", "DB2_LARGE_PAGE_MEM=DB", "DB2_LARGE_PAGE_MEM="),
];

/// What is known of a program that can take shared memory from a pool.
pub fn asking(name: &str) -> Option<&'static (&'static str, &'static str, &'static str)> {
    ASKING.iter().find(|(begins, ..)| name.starts_with(begins))
}

/// Whether the process takes memory from pools, or is of a program that can. Others never ask,
/// however many pages there are.
fn asks(case: &Case<'_>) -> bool {
    let process = case.process;
    let is_hugetlb = |way: &RunWay| matches!(way, RunWay::Hugetlb(_));
    asking(&process.name).is_some()
        || process.segments.iter().any(is_on_pool)
        || process
            .run
            .known()
            .is_some_and(|run| run.of(RunRole::Shm).ways.iter().any(is_hugetlb))
}

/// What stands between a segment and the pool, in the order in which the kernel would stop
/// (`hugetlb_file_setup`, then `hugetlb_reserve_pages`, then the fault). `None` where this host has
/// no pool that would hold a page of the segment, or the program asks for none.
pub fn reason(case: &Case<'_>, segment: &Segment) -> Option<Reason> {
    let pool = pool(case, segment).filter(|_| asks(case))?;
    if let Some(reason) = no_right(case, segment) {
        return Some(reason);
    }
    let short = |of: Limited| {
        let room = case
            .process
            .limits
            .tightest(pool.size, of)
            .and_then(|(_, limit)| limit.room(of));
        room.is_some_and(|room| room < segment.range.len())
    };
    if short(Limited::Reservations) {
        return Some(Reason::CgroupReservation);
    }
    if self::short(pool, segment) > Pages(0) {
        return Some(Reason::PoolShort);
    }
    if short(Limited::Faults) {
        return Some(Reason::CgroupFault);
    }
    Some(Reason::PoolUnused)
}

/// The pool that the segment would be on: the default size where that has pages or may take some,
/// else the largest size that fits.
pub fn pool<'a>(case: &Case<'a>, segment: &Segment) -> Option<&'a Pool> {
    let fits = |p: &&Pool| p.gives_any() && p.size.bytes() <= segment.range.len();
    let filled = || case.host.totals().filter(fits);
    let default = case.host.memory.default_hugetlb_page.get();
    filled()
        .find(|p| Some(p.size) == default)
        .or_else(|| filled().max_by_key(|p| p.size))
}

/// How many pages of the pool nobody has or was promised, overcommit included.
pub fn available(pool: &Pool) -> Pages {
    pool.available() + pool.may_add()
}

/// How many pages a segment needs beyond what the pool can give.
pub fn short(pool: &Pool, segment: &Segment) -> Pages {
    pool.size.pages_for(segment.range.len()) - available(pool)
}

/// SysV segments with SHM_HUGETLB need CAP_IPC_LOCK, or the group, or, with a warning in the kernel
/// log, room under the memlock limit. Memory from mmap needs none of them.
fn no_right(case: &Case<'_>, segment: &Segment) -> Option<Reason> {
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
        // Group 0 is the kernel's default, not somebody's choice.
        (false, Some(0)) => Some(Reason::Memlock),
        (false, _) => Some(Reason::ShmGroup),
    }
}
