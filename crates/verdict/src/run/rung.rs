//! One rung of a ladder, held against the host: had, or not and why.

use hugeleaf_host::system::cgroups;
use hugeleaf_host::{Available, Fact, Host, Pool, RunRole, RunWay, Thp, ThpOrder};
use hugeleaf_units::{Bytes, PageKind, PageSize, Rung};

use crate::findings::{pool_file, shell_word, thp_file, thp_size_file};

/// What a rung comes to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Judged {
    /// The library tries these, in this order.
    Ways(Vec<RunWay>),
    /// The kernel does it by itself: nothing is to be done, and nothing can be made sure of.
    ByItself,
    /// Base pages: whatever follows in the ladder is never reached.
    Base,
    /// Not had.
    Not(Lack),
}

/// Why something is unavailable, and what would change that.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lack {
    /// In words.
    pub because: String,
    /// One command; begins with `#` where there is nothing to type.
    pub command: String,
}

impl Lack {
    pub fn new(because: impl Into<String>, command: impl Into<String>) -> Lack {
        Lack {
            because: because.into(),
            command: command.into(),
        }
    }
}

/// Judges a rung for a role.
pub fn judge(host: &Host, role: RunRole, rung: Rung) -> Judged {
    let size = rung.size;
    if size == host.base_page && rung.kind != Some(PageKind::Hugetlb) {
        return Judged::Base;
    }
    if size < host.base_page {
        return Judged::Not(Lack::new(
            format!("the smallest page here is {}", host.base_page),
            "# write sizes that the host has: hugeleaf status",
        ));
    }
    let pool_may_serve = match rung.kind {
        Some(kind) => kind == PageKind::Hugetlb,
        None => role == RunRole::Shm,
    };
    let thp_may_serve = rung.kind != Some(PageKind::Hugetlb);
    let pool = pool_may_serve.then(|| from_pool(host, role, size));
    let thp = thp_may_serve.then(|| as_thp(host, role, size));
    match (pool, thp) {
        // A pool that is empty now may be filled before the program makes its segment.
        (Some(Err(_)), Some(Ok(Judged::Ways(more)))) if self::pool(host, size).is_some() => {
            Judged::Ways([vec![RunWay::Hugetlb(size)], more].concat())
        }
        (Some(Ok(way)), Some(Ok(Judged::Ways(more)))) => Judged::Ways([vec![way], more].concat()),
        (Some(Ok(way)), _) => Judged::Ways(vec![way]),
        (_, Some(Ok(judged))) => judged,
        // A size that only a pool can have is short in the pool; one that THP has, in THP.
        (Some(Err(lack)), Some(Err(_))) if !is_of_thp(host, role, size) => Judged::Not(lack),
        (_, Some(Err(lack))) | (Some(Err(lack)), None) => Judged::Not(lack),
        (None, None) => Judged::Base,
    }
}

/// The size of a full THP.
pub fn pmd(host: &Host) -> Option<PageSize> {
    host.thp.known().and(host.pmd_page.get())
}

/// Whether transparent huge pages of a size exist here for a role, on or off.
fn is_of_thp(host: &Host, role: RunRole, size: PageSize) -> bool {
    let order = host.thp.known().and_then(|thp| order(thp, size));
    let own = order.is_some_and(|order| match role {
        RunRole::Shm => !order.shmem.is_absent(),
        _ => !order.anon.is_absent(),
    });
    own || Some(size) == pmd(host)
}

fn order(thp: &Thp, size: PageSize) -> Option<&ThpOrder> {
    thp.orders.iter().find(|order| order.size == size)
}

/// The setting that decides on private memory of full THPs.
pub fn private_setting(host: &Host) -> Option<&str> {
    let thp = host.thp.known()?;
    let own = order(thp, pmd(host)?).and_then(|order| order.anon_in_force(thp));
    own.or(thp.enabled.known().map(String::as_str))
}

/// The setting that decides on shared memory of full THPs.
pub fn shared_setting(host: &Host) -> Option<&str> {
    let thp = host.thp.known()?;
    // The knob for all sizes can forbid (or force) what that of a size allows.
    let top = thp.shmem_enabled.known().map(String::as_str);
    if matches!(top, Some("deny" | "force")) {
        return top;
    }
    let own = order(thp, pmd(host)?).and_then(|order| order.shmem_in_force(thp));
    own.or(top)
}

/// A full THP for a role.
pub fn full_thp(host: &Host, role: RunRole) -> Result<RunWay, Lack> {
    if pmd(host).is_none() {
        return Err(Lack::new(
            "this kernel has no transparent huge pages",
            "# boot a kernel with CONFIG_TRANSPARENT_HUGEPAGE",
        ));
    }
    if role == RunRole::Shm && shared_setting(host) == Some("deny") {
        return Err(Lack::new(
            "shmem_enabled is deny, which forbids them in all shared memory",
            format!("echo advise > {}", thp_file("shmem_enabled")),
        ));
    }
    Ok(RunWay::Thp)
}

fn as_thp(host: &Host, role: RunRole, size: PageSize) -> Result<Judged, Lack> {
    let full = full_thp(host, role)?;
    match pmd(host) {
        Some(pmd) if role == RunRole::Text && size < pmd => Err(Lack::new(
            format!("code can be moved to pages of {pmd} only"),
            format!("hugeleaf run --text {pmd} ..."),
        )),
        Some(pmd) if size == pmd => Ok(Judged::Ways(vec![full])),
        Some(pmd) if size > pmd => Err(Lack::new(
            format!("transparent huge pages end at {pmd}"),
            format!("hugeleaf run --{role} hugetlb:{size} ...    # from a pool"),
        )),
        _ => smaller_thp(host, role, size),
    }
}

/// A size below the PMD's: the kernel gives it by itself, or not at all.
fn smaller_thp(host: &Host, role: RunRole, size: PageSize) -> Result<Judged, Lack> {
    let none = || {
        Lack::new(
            format!("this kernel has no transparent huge pages of {size}"),
            "# write sizes that the host has: hugeleaf status",
        )
    };
    let thp = host.thp.known().ok_or_else(none)?;
    let order = order(thp, size).ok_or_else(none)?;
    let (name, own, in_force) = match role {
        RunRole::Shm => ("shmem_enabled", &order.shmem, order.shmem_in_force(thp)),
        _ => ("enabled", &order.anon, order.anon_in_force(thp)),
    };
    match in_force {
        Some("always" | "within_size" | "force") => Ok(Judged::ByItself),
        // Unreadable: nothing is known, so nothing is said.
        None if !own.is_absent() => Ok(Judged::ByItself),
        None => Err(none()),
        Some(word) => {
            let knob = format!("hugepages-{}kB/{name}", size.bytes().get() / 1024);
            let because = match own.known().map(String::as_str) {
                Some("inherit") => format!("{knob} is inherit, and {name} is {word}"),
                _ => format!("{knob} is {word}"),
            };
            let command = format!("echo always > {}", thp_size_file(size, name));
            Err(Lack::new(because, command))
        }
    }
}

/// The pool of a size, all nodes together.
pub fn pool(host: &Host, size: PageSize) -> Option<&Pool> {
    host.pools
        .iter()
        .find(|pool| pool.node.is_none() && pool.size == size)
}

/// What a pool could give now; `None` where that cannot be determined.
pub fn left_in_pool(host: &Host, size: PageSize) -> Option<&Available> {
    host.page_sizes
        .iter()
        .find(|info| info.kind == PageKind::Hugetlb && info.size == size)
        .and_then(|info| info.available.known())
}

fn from_pool(host: &Host, role: RunRole, size: PageSize) -> Result<RunWay, Lack> {
    if role == RunRole::Text {
        return Err(Lack::new(
            "code comes from a file, and a pool's pages hold none",
            "# leave --text out, or write --text with a size of THP",
        ));
    }
    if pool(host, size).is_none() {
        let has: Vec<String> = host
            .pools
            .iter()
            .filter(|pool| pool.node.is_none())
            .map(|pool| pool.size.to_string())
            .collect();
        let because = match has.as_slice() {
            [] => "this kernel has no hugetlb".to_owned(),
            has => format!(
                "this host has no pool of {size} pages, only of {}",
                has.join(", ")
            ),
        };
        return Err(Lack::new(because, "hugeleaf status"));
    }
    match left_in_pool(host, size) {
        Some(left) if left.bytes < size.bytes() => Err(pool_short(host, size, None)),
        _ => Ok(RunWay::Hugetlb(size)),
    }
}

/// A pool that has not got enough: `needed` bytes, where that is known.
pub fn pool_short(host: &Host, size: PageSize, needed: Option<Bytes>) -> Lack {
    let left = left_in_pool(host, size);
    let left_bytes = left.map_or(Bytes::ZERO, |left| left.bytes);
    if let Some(cgroup) = left.and_then(|left| left.limited_by.strip_prefix("cgroup ")) {
        return cgroup_short(host, size, cgroup, needed);
    }
    let total = pool(host, size)
        .and_then(|pool| pool.total.get())
        .unwrap_or_default();
    let file = pool_file(size, "nr_hugepages");
    let Some(needed) = needed else {
        let because = match total.get() {
            0 => format!("the pool of {size} pages is empty"),
            n => format!("none of the {n} pages of {size} in the pool is free"),
        };
        let beside = match total.get() {
            0 => String::new(),
            n => format!("{n} and "),
        };
        let command = format!("echo N > {file}    # N: {beside}as many as the program needs");
        return Lack::new(because, command);
    };
    let short = size.pages_for(needed - left_bytes);
    Lack::new(
        format!(
            "the pool has {} free pages of {size}, {short} too few",
            left_bytes.get() / size.bytes().get()
        ),
        format!("echo {} > {file}", total.get() + short.get()),
    )
}

fn cgroup_short(host: &Host, size: PageSize, path: &str, needed: Option<Bytes>) -> Lack {
    let because = match needed {
        Some(needed) => format!("the limit of cgroup {path} leaves less than {needed}"),
        None => format!("the limit of cgroup {path} leaves none"),
    };
    let found = match &host.cgroups {
        Fact::Known(cgroups) => cgroups.iter().find(|cgroup| cgroup.path == path),
        _ => None,
    };
    let command = match found {
        Some(cgroup) => {
            let (value, file) = match cgroup.version {
                1 => ("-1", "limit_in_bytes"),
                _ => ("max", "max"),
            };
            let name = format!(
                "{}/hugetlb.{}.{file}",
                cgroup.folder,
                cgroups::name_of(size)
            );
            format!("echo {value} > {}", shell_word(&name))
        }
        None => "hugeleaf status".to_owned(),
    };
    Lack::new(because, command)
}
