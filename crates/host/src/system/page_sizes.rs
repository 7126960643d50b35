//! Every page size of every kind, with its settings and the memory available now.

use hugeleaf_units::{Bytes, PageKind, PageSize, Pages};

use crate::fact::Fact;
use crate::model::{
    Host, HugetlbLimitKind, PageSizeAvailability, PageSizeInfo, Pool, ProcessMemoryLimits, Thp,
    ThpMemoryKind, ThpSizeSettings, thp_is_on,
};

/// Name of the limiting factor for sizes that need contiguous free memory.
const FREE_BLOCKS: &str = "free blocks";

/// Returns the page sizes of a host whose other facts are read, for a process with these limits.
pub fn page_sizes(host: &Host, own: &ProcessMemoryLimits) -> Vec<PageSizeInfo> {
    let mut sizes = vec![PageSizeInfo {
        size: host.base_page,
        kind: PageKind::Base,
        enabled: true,
        how: "always".to_owned(),
        available: host
            .memory
            .available
            .clone()
            .map(|bytes| PageSizeAvailability {
                bytes: Bytes(host.base_page.round_down(bytes.get())),
                limited_by: "memory".to_owned(),
            }),
        if_defragmented: Fact::Absent,
        sysv_without_privilege: None,
    }];
    if let Some(thp) = host.thp.known() {
        sizes.extend(thp.orders.iter().map(|order| thp_size(host, thp, order)));
    }
    let totals = host.totals();
    sizes.extend(totals.map(|pool| hugetlb_size(host, pool, own)));
    for info in &mut sizes {
        info.if_defragmented = if_defragmented(host, info);
        info.sysv_without_privilege = sysv_without_privilege(host, info);
    }
    sizes.sort_by_key(|info| (info.size, info.kind));
    sizes
}

fn thp_size(host: &Host, thp: &Thp, order: &ThpSizeSettings) -> PageSizeInfo {
    let anon = order.effective(thp, ThpMemoryKind::Private);
    let shmem = order.effective(thp, ThpMemoryKind::Shared);
    let mut how: Vec<String> = Vec::new();
    if !order.anon.is_absent() {
        how.push(anon.unwrap_or("unknown").to_owned());
    }
    if !order.shmem.is_absent() {
        how.push(format!("shmem {}", shmem.unwrap_or("unknown")));
    }
    PageSizeInfo {
        size: order.size,
        kind: PageKind::Thp,
        enabled: thp_is_on(anon) || thp_is_on(shmem),
        how: how.join("; "),
        available: free_blocks(host, order.size).map(|bytes| PageSizeAvailability {
            bytes,
            limited_by: FREE_BLOCKS.to_owned(),
        }),
        if_defragmented: Fact::Absent,
        sysv_without_privilege: None,
    }
}

/// Returns the free bytes in blocks that hold a page of `size`.
fn free_blocks(host: &Host, size: PageSize) -> Fact<Bytes> {
    let buddy = host.buddy.clone();
    buddy.map(|buddy| buddy.free_for(size, host.base_page))
}

fn hugetlb_size(host: &Host, pool: &Pool, own: &ProcessMemoryLimits) -> PageSizeInfo {
    let count = |fact: &Fact<Pages>| fact.get().map_or("unknown".to_owned(), |n| n.to_string());
    PageSizeInfo {
        size: pool.size,
        kind: PageKind::Hugetlb,
        enabled: pool.gives_any(),
        how: format!(
            "pool {}, overcommit {}",
            count(&pool.total),
            count(&pool.overcommit)
        ),
        available: from_pool(host, pool).map(|had| within_cgroups(pool.size, had, own)),
        if_defragmented: Fact::Absent,
        sysv_without_privilege: None,
    }
}

/// Returns the available pages of the pool, and those that overcommit may add from free contiguous memory.
fn from_pool(host: &Host, pool: &Pool) -> Fact<PageSizeAvailability> {
    for fact in [
        &pool.total,
        &pool.free,
        &pool.reserved,
        &pool.surplus,
        &pool.overcommit,
    ] {
        if let Some(error) = fact.error() {
            return Fact::Unreadable(error.clone());
        }
    }
    if pool.free.is_absent() {
        return Fact::Absent;
    }
    let (left, may_add) = (
        pool.available().in_bytes(pool.size),
        pool.may_add().in_bytes(pool.size),
    );
    let can_add = free_blocks(host, pool.size).or_default();
    let limited_by = if may_add > can_add {
        FREE_BLOCKS
    } else {
        "pool"
    };
    Fact::Known(PageSizeAvailability {
        bytes: left + may_add.min(can_add),
        limited_by: limited_by.to_owned(),
    })
}

/// Reduces the available memory to the room in the cgroups of the process. A fault limit and a reservation limit
/// both apply.
fn within_cgroups(
    size: PageSize,
    mut had: PageSizeAvailability,
    own: &ProcessMemoryLimits,
) -> PageSizeAvailability {
    for of in [HugetlbLimitKind::Faults, HugetlbLimitKind::Reservations] {
        let Some((cgroup, limit)) = own.tightest(size, of) else {
            continue;
        };
        if let Some(left) = limit.room(of).filter(|left| *left < had.bytes) {
            had.bytes = left;
            had.limited_by = format!("cgroup {}", cgroup.path);
        }
    }
    had
}

fn if_defragmented(host: &Host, info: &PageSizeInfo) -> Fact<Bytes> {
    let idle = match (info.kind, host.pool(info.size)) {
        (PageKind::Hugetlb, Some(pool)) => pool.available().in_bytes(info.size),
        _ => Bytes::ZERO,
    };
    let whole = |bytes: Bytes| Bytes(info.size.round_down(bytes.get()));
    host.memory
        .available
        .clone()
        .map(|available| whole(available) + idle)
}

fn sysv_without_privilege(host: &Host, info: &PageSizeInfo) -> Option<Bytes> {
    let had = info.available.known()?;
    let memlock = host.limits.memlock.get()?;
    (info.kind == PageKind::Hugetlb).then(|| had.bytes.min(memlock))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::root::Root;
    use hugeleaf_sys::Kernel;
    use std::io::ErrorKind;

    fn fixture(name: &str) -> Root {
        Root::at(format!(
            "{}/../../fixtures/{name}",
            env!("CARGO_MANIFEST_DIR")
        ))
    }

    fn had(root: &Root, kind: PageKind, size: &str) -> (Fact<PageSizeAvailability>, Fact<Bytes>) {
        let host = crate::read_host(root, &Kernel::new()).unwrap();
        let wanted = size.parse().unwrap();
        let mut sizes = host.page_sizes.iter();
        let info = sizes
            .find(|info| info.size == wanted && info.kind == kind)
            .unwrap();
        (info.available.clone(), info.if_defragmented.clone())
    }

    fn known(bytes: u64, limited_by: &str) -> Fact<PageSizeAvailability> {
        let limited_by = limited_by.to_owned();
        Fact::Known(PageSizeAvailability {
            bytes: Bytes(bytes),
            limited_by,
        })
    }

    #[test]
    fn a_pool_gives_what_is_not_reserved_and_what_overcommit_may_add() {
        let root = fixture("x86-4k-two-nodes");
        let (now, most) = had(&root, PageKind::Hugetlb, "2M");
        assert_eq!(now, known((6000 - 1200 + 512 - 128) << 21, "pool"));
        assert_eq!(most, Fact::Known(Bytes((96 << 30) + (4800 << 21))));
        assert_eq!(had(&root, PageKind::Hugetlb, "1G").0, known(0, "pool"));
        // All pages are reserved.
        assert_eq!(
            had(&fixture("no-thp"), PageKind::Hugetlb, "2M").0,
            known(0, "pool")
        );
    }

    #[test]
    fn overcommit_adds_no_more_than_is_free_in_one_piece() {
        let root = fixture("arm64-64k");
        assert_eq!(
            had(&root, PageKind::Hugetlb, "2M").0,
            known(2 << 30, "pool")
        );
        let dir = tempfile::tempdir().unwrap();
        let write = |file: &str, text: &str| {
            let path = dir.path().join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        let pool = "sys/kernel/mm/hugepages/hugepages-2048kB";
        write(&format!("{pool}/nr_hugepages"), "0");
        write(&format!("{pool}/free_hugepages"), "0");
        write(&format!("{pool}/nr_overcommit_hugepages"), "9");
        write("proc/1/smaps", "KernelPageSize: 4 kB\n");
        write(
            "proc/buddyinfo",
            "Node 0, zone Normal 7 7 7 7 7 7 7 7 7 2 0\n",
        );
        let now = had(&Root::at(dir.path()), PageKind::Hugetlb, "2M").0;
        assert_eq!(now, known(4 << 20, FREE_BLOCKS));
    }

    #[test]
    fn the_own_cgroup_bounds_what_the_pool_has() {
        let own = "cgroup /hugeleaf-test-limited";
        for (host, size, page) in [
            ("arm64-16k", "32M", 32 << 20),
            ("x86-6.1-cgroup-v1", "2M", 2 << 20),
        ] {
            let root = fixture(host);
            let now = had(&root, PageKind::Hugetlb, size).0;
            assert_eq!(now, known(4 * page, own), "{host}");
            // Outside that cgroup the whole pool is available.
            let root = root.failing("proc/self/cgroup", ErrorKind::NotFound);
            let now = had(&root, PageKind::Hugetlb, size).0;
            assert_eq!(now, known(6 * page, "pool"), "{host}");
        }
    }

    #[test]
    fn thp_is_bound_by_free_blocks_and_unknown_without_them() {
        let root = fixture("arm64-64k");
        let now = had(&root, PageKind::Thp, "512M").0;
        assert_eq!(now, known(161 << 29, FREE_BLOCKS));
        let root = root.failing("proc/buddyinfo", ErrorKind::PermissionDenied);
        assert!(had(&root, PageKind::Thp, "512M").0.error().unwrap().denied);
    }
}
