//! Judges one rung of a ladder on the host: available, or unavailable with the reason.

use hugeleaf_host::{
    Host, HugetlbLimitKind, PageSizeAvailability, Pool, RunMemoryKind, RunPageKind, ThpMemoryKind,
};
use hugeleaf_units::{Bytes, Failure, PageKind, PageSize, Pages, Rung};

use crate::advice::{self, ChangeScope, Setting, SettingChange, of_container};
use crate::eligible::huge_page as pmd;
use crate::list;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RungAvailability {
    /// The library tries these, in this order.
    Ways(Vec<RunPageKind>),
    /// The kernel does it automatically. No action is needed, and the result is not guaranteed.
    Automatic,
    /// Base pages. Later rungs are never reached.
    Base,
    Unavailable(Failure),
}

pub fn judge(host: &Host, role: RunMemoryKind, rung: Rung) -> RungAvailability {
    let size = rung.size;
    if size == host.base_page && rung.kind != Some(PageKind::Hugetlb) {
        return RungAvailability::Base;
    }
    if size < host.base_page {
        return RungAvailability::Unavailable(Failure::missing(
            format!("the smallest page here is {}", host.base_page),
            "# use sizes that the host has: hugeleaf status",
        ));
    }
    let pool_may_serve = match rung.kind {
        Some(kind) => kind == PageKind::Hugetlb,
        None => role == RunMemoryKind::Shm,
    };
    let thp_may_serve = rung.kind != Some(PageKind::Hugetlb);
    let pool = pool_may_serve.then(|| from_pool(host, role, size));
    let thp = thp_may_serve.then(|| as_thp(host, role, size));
    match (pool, thp) {
        // An empty pool may be filled before the program creates its segment.
        (Some(_), Some(Ok(RungAvailability::Ways(more)))) if host.pool(size).is_some() => {
            RungAvailability::Ways([vec![RunPageKind::Hugetlb(size)], more].concat())
        }
        (Some(Ok(way)), _) => RungAvailability::Ways(vec![way]),
        (_, Some(Ok(judged))) => judged,
        // Report the pool for a size that only a pool can have, otherwise THP.
        (Some(Err(lack)), Some(Err(_))) if !is_of_thp(host, role, size) => {
            RungAvailability::Unavailable(lack)
        }
        (_, Some(Err(lack))) | (Some(Err(lack)), None) => RungAvailability::Unavailable(lack),
        (None, None) => RungAvailability::Base,
    }
}

/// True if THP of a size exist on this host for a role, on or off.
fn is_of_thp(host: &Host, role: RunMemoryKind, size: PageSize) -> bool {
    let order = host.thp.known().and_then(|thp| thp.order(size));
    let own = order.is_some_and(|order| !order.own_setting(thp_use(role)).is_absent());
    own || Some(size) == pmd(host)
}

pub const fn thp_use(role: RunMemoryKind) -> ThpMemoryKind {
    match role {
        RunMemoryKind::Shm => ThpMemoryKind::Shared,
        _ => ThpMemoryKind::Private,
    }
}

pub fn private_setting(host: &Host) -> Option<&str> {
    pmd(host)?;
    host.thp_setting(ThpMemoryKind::Private).1.text()
}

pub fn shared_setting(host: &Host) -> Option<&str> {
    // The top-level knob can forbid or force, regardless of a size's knob.
    let top = host.thp.known()?.shmem_enabled.text();
    match top {
        Some("deny" | "force") => top,
        _ => pmd(host).and(host.thp_setting(ThpMemoryKind::Shared).1.text()),
    }
}

pub fn full_thp(host: &Host, role: RunMemoryKind) -> Result<RunPageKind, Failure> {
    if pmd(host).is_none() {
        return Err(Failure::missing(
            "this kernel has no transparent huge pages",
            "# boot a kernel with CONFIG_TRANSPARENT_HUGEPAGE",
        ));
    }
    if role == RunMemoryKind::Shm && shared_setting(host) == Some("deny") {
        return Err(Failure::missing(
            "shmem_enabled is deny, which forbids huge pages in all shared memory",
            SettingChange::new(Setting::file(ThpMemoryKind::Shared.file()), "advise").command(host),
        ));
    }
    Ok(RunPageKind::Thp)
}

fn as_thp(host: &Host, role: RunMemoryKind, size: PageSize) -> Result<RungAvailability, Failure> {
    let full = full_thp(host, role)?;
    match pmd(host) {
        Some(pmd) if role == RunMemoryKind::Text && size < pmd => Err(Failure::missing(
            format!("code can be promoted to {pmd} pages only"),
            format!("hugeleaf run --text {pmd} ..."),
        )),
        Some(pmd) if size == pmd => Ok(RungAvailability::Ways(vec![full])),
        Some(pmd) if size > pmd => Err(Failure::missing(
            format!("the largest transparent huge page is {pmd}"),
            format!("hugeleaf run --{role} hugetlb:{size} ...    # from a pool"),
        )),
        _ => smaller_thp(host, role, size),
    }
}

/// Judges a size below the PMD size, which the kernel provides automatically or not at all.
fn smaller_thp(
    host: &Host,
    role: RunMemoryKind,
    size: PageSize,
) -> Result<RungAvailability, Failure> {
    let none = || {
        Failure::missing(
            format!("this kernel has no transparent huge pages of {size}"),
            "# use sizes that the host has: hugeleaf status",
        )
    };
    let thp = host.thp.known().ok_or_else(none)?;
    let order = thp.order(size).ok_or_else(none)?;
    let of = thp_use(role);
    let (name, own) = (of.knob(), order.own_setting(of));
    match order.effective(thp, of) {
        Some("always" | "within_size" | "force") => Ok(RungAvailability::Automatic),
        // An unreadable setting is unknown, so report nothing.
        None if !own.is_absent() => Ok(RungAvailability::Automatic),
        None => Err(none()),
        Some(word) => {
            let knob = format!("hugepages-{}kB/{name}", size.bytes().get() / 1024);
            let because = match own.text() {
                Some("inherit") => format!("{knob} is inherit, and {name} is {word}"),
                _ => format!("{knob} is {word}"),
            };
            let command = SettingChange::new(Setting::file(order.file(of)), "always").command(host);
            Err(Failure::missing(because, command))
        }
    }
}

/// Returns the pages available in a pool; `None` if unknown.
pub fn left_in_pool(host: &Host, size: PageSize) -> Option<&PageSizeAvailability> {
    host.page_sizes
        .iter()
        .find(|info| info.kind == PageKind::Hugetlb && info.size == size)
        .and_then(|info| info.available.known())
}

fn from_pool(host: &Host, role: RunMemoryKind, size: PageSize) -> Result<RunPageKind, Failure> {
    if role == RunMemoryKind::Text {
        return Err(Failure::missing(
            "code comes from a file, which pool pages cannot hold",
            "# omit --text, or give it a THP size",
        ));
    }
    if host.pool(size).is_none() {
        let has = list(host.totals().map(|pool| pool.size));
        let because = match has.as_str() {
            "" => "this kernel has no hugetlb".to_owned(),
            has => format!("this host has no pool of {size} pages, only of {has}"),
        };
        return Err(Failure::missing(because, "hugeleaf status"));
    }
    match left_in_pool(host, size) {
        Some(left) if left.bytes < size.bytes() => Err(pool_short(host, size, None)),
        _ => Ok(RunPageKind::Hugetlb(size)),
    }
}

/// Reports a pool that is too small for `needed` bytes, if known.
pub fn pool_short(host: &Host, size: PageSize, needed: Option<Bytes>) -> Failure {
    let left = left_in_pool(host, size);
    let left_bytes = left.map_or(Bytes::ZERO, |left| left.bytes);
    if let Some(cgroup) = left.and_then(|left| left.limited_by.strip_prefix("cgroup ")) {
        return cgroup_short(host, size, cgroup, needed);
    }
    let total = host.pool(size).map_or(Pages(0), Pool::all);
    let Some(needed) = needed else {
        let because = match total.get() {
            0 => format!("the pool of {size} pages is empty"),
            n => format!("none of the {n} pages of {size} in the pool is free"),
        };
        return Failure::missing(because, advice::some_pages(host, size));
    };
    let short = size.pages_for(needed - left_bytes);
    Failure::missing(
        format!(
            "the pool has {} free pages of {size}, {short} too few",
            left_bytes.get() / size.bytes().get()
        ),
        SettingChange::new(Setting::pool(size, None), total + short)
            .from(total)
            .command(host),
    )
}

fn cgroup_short(host: &Host, size: PageSize, path: &str, needed: Option<Bytes>) -> Failure {
    let because = match needed {
        Some(needed) => format!("the limit of cgroup {path} leaves less than {needed}"),
        None => format!("the limit of cgroup {path} leaves none"),
    };
    let mut cgroups = host.cgroups.entries().iter();
    let command = match cgroups.find(|cgroup| cgroup.path == path) {
        Some(_) if host.is_in_container => of_container(size, needed, ""),
        Some(cgroup) => {
            let most = if cgroup.version == 1 { "-1" } else { "max" };
            let file = cgroup.limit_file(size, HugetlbLimitKind::Faults);
            let raised = SettingChange::new(Setting::file(file), most);
            raised.in_scope(ChangeScope::Cgroup).command(host)
        }
        None => "hugeleaf status".to_owned(),
    };
    Failure::missing(because, command)
}
