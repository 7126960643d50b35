//! `hugeleaf status --json`.

use hugeleaf_host::{
    Cgroup, Fact, FreeBlocks, Host, HugetlbLimit, Khugepaged, Limits, MemoryLimit, PageSizeInfo,
    Pool, Thp, at_most,
};
use hugeleaf_units::{Bytes, PageKind, Pages};
use hugeleaf_verdict::findings::{Finding, Holder, by_name};
use serde_json::Value;

use crate::json::Object;

/// The whole answer. A limit that is not set is missing, as all that is absent.
pub fn status(host: &Host, findings: &[Finding]) -> String {
    let mut answer = Object::answer();
    answer.put("host", host_json(host));
    answer.put("findings", findings.iter().map(finding).collect::<Value>());
    answer.render()
}

pub(crate) fn finding(finding: &Finding) -> Value {
    let mut object = Object::new();
    object
        .put("id", finding.id)
        .put("severity", finding.severity.name())
        .put("text", finding.text.clone())
        .put("command", finding.command.clone());
    object.build()
}

/// A knob's word.
fn word<T: AsRef<str>>(text: &T) -> Value {
    Value::from(text.as_ref())
}

fn number(bytes: &Bytes) -> u64 {
    bytes.get()
}

fn pages(pages: &Pages) -> u64 {
    pages.get()
}

fn host_json(host: &Host) -> Value {
    let m = &host.memory;
    let mut object = Object::new();
    object
        .put_fact("kernel", &host.kernel, word)
        .put_fact("arch", &host.arch, word)
        .put_bytes("base_page_bytes", host.base_page.bytes())
        .put_fact("pmd_page_bytes", &host.pmd_page, |size| size.bytes().get())
        .put("nodes", host.nodes.clone());
    let memory = [
        ("memory_bytes", &m.total),
        ("free_bytes", &m.free),
        ("available_bytes", &m.available),
        ("page_tables_bytes", &m.page_tables),
        ("private_bytes", &m.anon),
        ("private_huge_bytes", &m.anon_huge),
        ("shared_bytes", &m.shmem),
        ("shared_huge_bytes", &m.shmem_huge),
        ("shared_pmd_mapped_bytes", &m.shmem_pmd_mapped),
        ("page_cache_bytes", &m.cached),
        ("page_cache_huge_bytes", &m.file_huge),
        ("page_cache_pmd_mapped_bytes", &m.file_pmd_mapped),
        ("locked_bytes", &m.locked),
        ("unevictable_bytes", &m.unevictable),
        ("hugetlb_bytes", &m.hugetlb),
        ("swap_bytes", &m.swap_total),
        ("swap_free_bytes", &m.swap_free),
    ];
    for (name, fact) in memory {
        object.put_fact(name, fact, number);
    }
    object
        .put_fact(
            "default_hugetlb_page_bytes",
            &m.default_hugetlb_page,
            |size| size.bytes().get(),
        )
        .put(
            "page_sizes",
            host.page_sizes
                .iter()
                .map(|i| page_size(host, i))
                .collect::<Value>(),
        )
        .put("pools", host.pools.iter().map(pool).collect::<Value>())
        .put_fact("thp", &host.thp, thp)
        .put_fact("free_blocks", &host.buddy, |buddy| {
            buddy.zones.iter().map(free_blocks).collect::<Value>()
        })
        .put("limits", limits(&host.limits))
        .put_fact("cgroups", &host.cgroups, |all| {
            all.iter().map(cgroup).collect::<Value>()
        })
        .put("memory_limits", memory_limits(host))
        .put(
            "holders",
            by_name(&host.owners).iter().map(holder).collect::<Value>(),
        )
        .put_fact("kernel_log", &host.kernel_log, |lines| {
            Value::from(lines.clone())
        });
    object.build()
}

fn page_size(host: &Host, info: &PageSizeInfo) -> Value {
    let mut object = Object::new();
    object
        .put_bytes("page_bytes", info.size.bytes())
        .put("kind", info.kind.name())
        .put("enabled", info.enabled)
        .put("how", info.how.clone())
        .put_fact("could_be_had_bytes", &info.could_be_had, |had| {
            had.bytes.get()
        })
        .put_some(
            "limited_by",
            info.could_be_had.known().map(|had| had.limited_by.clone()),
        )
        .put_fact("at_most_bytes", &at_most(host, info), number)
        .put_some(
            "sysv_without_privilege_bytes",
            sysv_without_privilege(host, info),
        );
    object.build()
}

/// What a SysV segment on hugetlb pages can have without CAP_IPC_LOCK and without being in the
/// group `hugetlb_shm_group`: memlock bounds it (fs/hugetlbfs, user_shm_lock).
fn sysv_without_privilege(host: &Host, info: &PageSizeInfo) -> Option<u64> {
    let had = info
        .could_be_had
        .known()
        .filter(|_| info.kind == PageKind::Hugetlb)?;
    Some(had.bytes.min(host.limits.memlock.get()?).get())
}

/// The total of a size has no `node`.
fn pool(pool: &Pool) -> Value {
    let mut object = Object::new();
    object
        .put_bytes("page_bytes", pool.size.bytes())
        .put_some("node", pool.node);
    let facts = [
        ("total", &pool.total),
        ("free", &pool.free),
        ("reserved", &pool.reserved),
        ("surplus", &pool.surplus),
        ("overcommit", &pool.overcommit),
    ];
    for (name, fact) in facts {
        object.put_fact(name, fact, pages);
    }
    object.build()
}

fn thp(thp: &Thp) -> Value {
    let sizes = thp.orders.iter().map(|order| {
        let mut object = Object::new();
        object
            .put_bytes("page_bytes", order.size.bytes())
            .put_fact("private", &order.anon, word)
            .put_fact("shared", &order.shmem, word)
            .put_some("private_in_force", order.anon_in_force(thp))
            .put_some("shared_in_force", order.shmem_in_force(thp));
        object.build()
    });
    let mut object = Object::new();
    object
        .put_fact("enabled", &thp.enabled, word)
        .put_fact("shmem_enabled", &thp.shmem_enabled, word)
        .put_fact("defrag", &thp.defrag, word)
        .put_fact("use_zero_page", &thp.use_zero_page, |on| *on)
        .put_fact("shrink_underused", &thp.shrink_underused, |on| *on)
        .put("sizes", sizes.collect::<Value>())
        .put("khugepaged", khugepaged(&thp.khugepaged));
    object.build()
}

fn khugepaged(k: &Khugepaged) -> Value {
    #[allow(clippy::cast_precision_loss)] // A sleep of 2^53 ms is no sleep.
    let seconds = |millis: &u64| *millis as f64 / 1000.0;
    let mut object = Object::new();
    object
        .put_fact("defrag", &k.defrag, |on| *on)
        .put_fact("pages_to_scan", &k.pages_to_scan, pages)
        .put_fact("scan_sleep_seconds", &k.scan_sleep_millis, seconds)
        .put_fact("alloc_sleep_seconds", &k.alloc_sleep_millis, seconds)
        .put_fact("max_ptes_none", &k.max_ptes_none, pages)
        .put_fact("max_ptes_swap", &k.max_ptes_swap, pages)
        .put_fact("max_ptes_shared", &k.max_ptes_shared, pages)
        .put_fact("pages_collapsed", &k.pages_collapsed, |n| *n)
        .put_fact("full_scans", &k.full_scans, |n| *n)
        .put("makes_smaller_sizes", k.makes_smaller);
    object.build()
}

fn limits(l: &Limits) -> Value {
    let unlimited = l.memlock == Fact::Known(Bytes(u64::MAX));
    let memlock = if unlimited { &Fact::Absent } else { &l.memlock };
    let mut object = Object::new();
    object
        .put_fact("memlock_bytes", memlock, number)
        .put_fact("hugetlb_shm_group", &l.hugetlb_shm_group, |group| *group)
        .put_fact("shmmax_bytes", &l.shmmax, number)
        .put_fact("shmall_pages", &l.shmall, pages)
        .put_fact("min_free_bytes", &l.min_free, number)
        .put_fact("overcommit_memory", &l.overcommit_memory, |mode| *mode)
        .put_fact(
            "compaction_proactiveness",
            &l.compaction_proactiveness,
            |n| *n,
        )
        .put_fact("boot", &l.boot, word)
        .put_fact("sysctl", &l.sysctl, |all| {
            let one = |s: &hugeleaf_host::Sysctl| {
                let mut object = Object::new();
                object.put("path", s.path.clone()).put("key", s.key.clone());
                object.put("value", s.value.clone());
                object.build()
            };
            all.iter().map(one).collect::<Value>()
        });
    object.build()
}

fn cgroup(cgroup: &Cgroup) -> Value {
    let mut object = Object::new();
    object
        .put("version", cgroup.version)
        .put("path", cgroup.path.clone())
        .put(
            "hugetlb",
            cgroup.hugetlb.iter().map(hugetlb_limit).collect::<Value>(),
        );
    object.build()
}

fn hugetlb_limit(limit: &HugetlbLimit) -> Value {
    // `None` is "no limit": absent.
    let set = |limit: &Fact<Option<Bytes>>| limit.clone().and_then(Fact::from);
    let mut object = Object::new();
    object
        .put_bytes("page_bytes", limit.size.bytes())
        .put_fact("fault_limit_bytes", &set(&limit.fault_limit), number)
        .put_fact("fault_usage_bytes", &limit.fault_usage, number)
        .put_fact(
            "reservation_limit_bytes",
            &set(&limit.reservation_limit),
            number,
        )
        .put_fact("reservation_usage_bytes", &limit.reservation_usage, number)
        .put_fact("hits", &limit.hits, |hits| *hits);
    object.build()
}

fn free_blocks(zone: &FreeBlocks) -> Value {
    let mut object = Object::new();
    object.put("node", zone.node).put("zone", zone.zone.clone());
    object.put("counts", zone.counts.clone());
    object.build()
}

fn memory_limits(host: &Host) -> Value {
    host.memory_limits.iter().map(memory_limit).collect()
}

fn memory_limit(limit: &MemoryLimit) -> Value {
    let mut object = Object::new();
    object
        .put("version", limit.version)
        .put("path", limit.path.clone())
        .put_bytes("limit_bytes", limit.limit)
        .put_bytes("usage_bytes", limit.usage)
        .put_bytes("unused_cache_bytes", limit.unused_cache)
        .put_bytes("used_cache_bytes", limit.used_cache)
        .put_bytes("room_bytes", limit.room_at_most());
    object.build()
}

fn holder(holder: &Holder) -> Value {
    let mut object = Object::new();
    object
        .put("name", holder.name.clone())
        .put("processes", holder.processes)
        .put_bytes("page_tables_bytes", holder.page_tables)
        .put_bytes("hugetlb_bytes", holder.hugetlb);
    object.build()
}
