//! Settings of transparent huge pages and of cgroups: proposed only where a service of the plan
//! gains, each with what it risks.

use std::path::{Path, PathBuf};

use hugeleaf_host::demand::{Place, Service, ServiceKind};
use hugeleaf_host::{Fact, Host, Thp, ThpOrder};
use hugeleaf_units::{Bytes, PageSize};

use super::model::{ForService, Knob, Plan};
use crate::ends::ends;
use crate::findings::{thp_file, thp_size_file};

const SHMMAX: &str = "/proc/sys/kernel/shmmax";
const SHMALL: &str = "/proc/sys/kernel/shmall";

/// What a knob that a plan may set has now; nothing of one that the model does not know.
pub(super) fn knob_now(host: &Host, path: &Path) -> Option<String> {
    let path = path.to_str()?;
    match path {
        SHMMAX => return Some(host.limits.shmmax.get()?.get().to_string()),
        SHMALL => return Some(host.limits.shmall.get()?.to_string()),
        _ => {}
    }
    if let Some(limit) = limit_now(host, path) {
        return limit;
    }
    let thp = host.thp.known()?;
    let scan_sleep = thp_file("khugepaged/scan_sleep_millisecs");
    let top = [
        (thp_file("enabled"), &thp.enabled),
        (thp_file("shmem_enabled"), &thp.shmem_enabled),
    ];
    if path == scan_sleep {
        return Some(thp.khugepaged.scan_sleep_millis.get()?.to_string());
    }
    if let Some((_, fact)) = top.iter().find(|(file, _)| file == path) {
        return fact.known().cloned();
    }
    thp.orders.iter().find_map(|order| {
        let own = [("enabled", &order.anon), ("shmem_enabled", &order.shmem)];
        let found = own
            .iter()
            .find(|(name, _)| thp_size_file(order.size, name) == path);
        found.and_then(|(_, fact)| fact.known().cloned())
    })
}

/// All settings of THP that a service gains from.
pub(super) fn thp_knobs(host: &Host, plan: &Plan) -> Vec<Knob> {
    let Fact::Known(thp) = &host.thp else {
        return Vec::new();
    };
    let services = plan.services.as_slice();
    let mut knobs = Vec::new();
    knobs.extend(shmem(host, thp, services));
    knobs.extend(anon(host, thp, services));
    knobs.extend(stacks(host, thp, plan));
    knobs.extend(pace(host, thp, services));
    let for_ends = ends_of_mappings(host, services);
    let is_new = |knob: &Knob| knobs.iter().all(|k: &Knob| k.path != knob.path);
    let for_ends = for_ends.filter(is_new);
    knobs.extend(for_ends);
    knobs
}

fn full_size<'a>(host: &Host, thp: &'a Thp) -> Option<&'a ThpOrder> {
    let pmd = host.pmd_page.get()?;
    thp.orders.iter().find(|order| order.size == pmd)
}

fn is_off(setting: Option<&str>) -> bool {
    matches!(setting, Some("never" | "deny"))
}

/// The knob in force of a full huge page and what it says: its own, or the one above it.
fn in_force<'a>(
    order: Option<&'a ThpOrder>,
    own: impl Fn(&'a ThpOrder) -> &'a Fact<String>,
    name: &str,
    top: &'a Fact<String>,
) -> Option<(String, &'a str)> {
    match order.map(|order| (order.size, own(order).known())) {
        Some((size, Some(word))) if word != "inherit" => {
            Some((thp_size_file(size, name), word.as_str()))
        }
        _ => Some((thp_file(name), top.known()?.as_str())),
    }
}

/// Shared memory that the pool does not hold can be promoted only where this was on when it was
/// mapped: only then does the kernel align it.
fn shmem(host: &Host, thp: &Thp, services: &[ForService]) -> Option<Knob> {
    let is_shared = |kind| {
        use ServiceKind::{Container, Other, PostgreSql, SysV};
        matches!(kind, PostgreSql | SysV | Container | Other)
    };
    let on_base = |service: &&ForService| {
        let left = |d: &super::ForDemand| match d.from {
            Place::Pool => !d.missing.is_empty(),
            Place::Thp => matches!(service.kind, ServiceKind::PostgreSql | ServiceKind::SysV),
        };
        is_shared(service.kind) && service.demands.iter().any(left)
    };
    let gain: Vec<String> = services
        .iter()
        .filter(on_base)
        .map(|s| s.name.clone())
        .collect();
    let order = full_size(host, thp);
    let (path, was) = in_force(order, |o| &o.shmem, "shmem_enabled", &thp.shmem_enabled)?;
    if gain.is_empty() || !is_off(Some(was)) {
        return None;
    }
    Some(Knob {
        path: PathBuf::from(path),
        was: Some(was.to_owned()),
        now: "advise".to_owned(),
        why: format!(
            "shared memory of {} that the pool cannot hold is then aligned, and `hugeleaf promote` \
             can move it to large pages",
            gain.join(", ")
        ),
        risk: "programs that ask for huge pages in shared memory get them, and may hold more \
               memory than they touch"
            .to_owned(),
        restart: running(&gain, services),
    })
}

/// Services with private memory.
fn on_thp(services: &[ForService]) -> Vec<&ForService> {
    let wants = |service: &&ForService| service.demands.iter().any(|d| d.from == Place::Thp);
    services.iter().filter(wants).collect()
}

/// Those of them that run now: what starts later finds the setting.
fn running(names: &[String], services: &[ForService]) -> Vec<String> {
    let running = services
        .iter()
        .filter(|s| s.runs && names.contains(&s.name));
    let known_as = |s: &ForService| s.unit.clone().unwrap_or_else(|| s.name.clone());
    running.map(known_as).collect()
}

fn names(services: &[&ForService]) -> Vec<String> {
    services.iter().map(|s| s.name.clone()).collect()
}

fn anon(host: &Host, thp: &Thp, services: &[ForService]) -> Option<Knob> {
    let gain = on_thp(services);
    let order = full_size(host, thp);
    let (path, was) = in_force(order, |o| &o.anon, "enabled", &thp.enabled)?;
    if gain.is_empty() || !is_off(Some(was)) {
        return None;
    }
    Some(Knob {
        path: PathBuf::from(path),
        was: Some(was.to_owned()),
        now: "madvise".to_owned(),
        why: format!(
            "private memory of {} can be on huge pages where the program or `hugeleaf run` asks",
            names(&gain).join(", ")
        ),
        risk: "other programs that ask with madvise get huge pages too, and may hold more memory \
               than they touch"
            .to_owned(),
        restart: running(&names(&gain), services),
    })
}

/// Stacks gain from pages of sixteen base pages: hardware that joins neighbouring pages joins so
/// many, and a stack is too small for a full huge page.
const STACK_HOLDS: u64 = 16;

fn stacks(host: &Host, thp: &Thp, plan: &Plan) -> Option<Knob> {
    let services = plan.services.as_slice();
    let is_run = |s: &ForService| {
        let mut units = plan.units.iter().filter(|u| u.exec_start.is_some());
        units.any(|u| Some(&u.unit) == s.unit.as_ref())
    };
    let takes = |s: &&ForService| is_run(s) || s.kind == ServiceKind::Mover;
    let gain: Vec<&ForService> = services.iter().filter(takes).collect();
    let is_for_stacks = |o: &&ThpOrder| o.size.holds(host.base_page) == STACK_HOLDS;
    let order = thp.orders.iter().find(is_for_stacks)?;
    let was = order.anon.known()?;
    if gain.is_empty() || was != "never" {
        return None;
    }
    Some(Knob {
        path: PathBuf::from(thp_size_file(order.size, "enabled")),
        was: Some(was.clone()),
        now: "madvise".to_owned(),
        why: format!(
            "stacks of {} can be on pages of {} with `hugeleaf run --stack {}`",
            names(&gain).join(", "),
            order.size,
            order.size
        ),
        risk: format!(
            "every program that asks with madvise gets pages of {} where a full huge page does not \
             fit: a little more memory for sparse ones",
            order.size
        ),
        restart: running(&names(&gain), services),
    })
}

/// Where a full huge page is tens of megabytes, the ends of mappings come to much, and a smaller size
/// that the processor translates as one serves them.
fn ends_of_mappings(host: &Host, services: &[ForService]) -> Option<Knob> {
    let gain = on_thp(services);
    let (ends, pmd) = (ends(host)?, host.pmd_page.get()?);
    let now = ends.better?;
    if gain.is_empty() {
        return None;
    }
    let size = ends.size;
    Some(Knob {
        path: PathBuf::from(ends.path),
        was: Some(ends.setting),
        now: now.to_owned(),
        why: format!(
            "up to {pmd} at each end of a mapping of {} cannot be on {pmd} pages; pages of {size} \
             serve them, which this processor translates as one",
            names(&gain).join(", ")
        ),
        risk: format!(
            "programs for which THP is on get pages of {size} where no full huge page fits, and may \
             hold more memory than they touch"
        ),
        restart: running(&names(&gain), services),
    })
}

/// khugepaged needs longer than this for all of it: its pace is then worth a change.
const TOO_LONG_SECONDS: f64 = 3600.0;
const PACE_MILLIS: u64 = 1000;

fn pace(host: &Host, thp: &Thp, services: &[ForService]) -> Option<Knob> {
    let gain = on_thp(services);
    let wanted: Bytes = gain
        .iter()
        .flat_map(|s| &s.demands)
        .filter(|d| d.from == Place::Thp)
        .map(|d| super::arithmetic::bytes_of(&d.pieces))
        .sum();
    let k = &thp.khugepaged;
    let round = k.pages_to_scan.get()?.of(host.base_page);
    let sleep = k.scan_sleep_millis.get()?;
    if sleep <= PACE_MILLIS || round.is_zero() {
        return None;
    }
    // The kernel sleeps so long between two rounds.
    #[allow(clippy::cast_precision_loss)]
    let seconds = wanted.as_f64() / round.as_f64() * sleep as f64 / 1000.0;
    if seconds <= TOO_LONG_SECONDS {
        return None;
    }
    let hours = seconds / TOO_LONG_SECONDS;
    Some(Knob {
        path: PathBuf::from(thp_file("khugepaged/scan_sleep_millisecs")),
        was: Some(sleep.to_string()),
        now: PACE_MILLIS.to_string(),
        why: format!(
            "khugepaged needs {hours:.0} hours for {wanted} of {} at {round} every {} s",
            names(&gain).join(", "),
            sleep / 1000
        ),
        risk: format!(
            "khugepaged takes up to {} times the CPU time, and programs whose memory it moves \
             stall for the moment of the copy",
            sleep / PACE_MILLIS
        ),
        restart: Vec::new(),
    })
}

/// SysV segments are limited in size, one by one and together.
pub(super) fn shm_knobs(host: &Host, services: &[Service]) -> Vec<Knob> {
    let pieces = || {
        let sysv = services.iter().filter(|s| s.kind == ServiceKind::SysV);
        sysv.flat_map(|s| &s.demands).flat_map(|d| &d.pieces)
    };
    let largest = pieces().map(|p| p.bytes).max().unwrap_or_default();
    let together: Bytes = pieces()
        .map(|p| Bytes(p.bytes.get().saturating_mul(p.count)))
        .sum();
    let knob = |path: &str, was: String, now: String, what: &str| Knob {
        path: PathBuf::from(path),
        was: Some(was),
        now,
        why: format!("the kernel refuses {what} otherwise"),
        risk: "none known: the limit only guards against mistakes".to_owned(),
        restart: Vec::new(),
    };
    let mut knobs = Vec::new();
    if let Some(most) = host.limits.shmmax.get()
        && most < largest
    {
        let what = format!("a SysV segment of {largest}");
        let (was, now) = (most.get().to_string(), largest.get().to_string());
        knobs.push(knob(SHMMAX, was, now, &what));
    }
    if let Some(most) = host.limits.shmall.get() {
        let needed = host.base_page.pages_for(together);
        if most < needed {
            let what = format!("SysV segments of {together} together");
            knobs.push(knob(SHMALL, most.to_string(), needed.to_string(), &what));
        }
    }
    knobs
}

/// How cgroups call a page size in the names of their files: `2MB`.
pub(super) fn cgroup_size(size: PageSize) -> String {
    format!("{size}B")
}

/// The two files of a cgroup that limit pages of a size: on faults, and on reservations.
fn limit_files(version: u8, folder: &str, size: PageSize) -> [String; 2] {
    let size = cgroup_size(size);
    let ends = match version {
        1 => ["limit_in_bytes", "rsvd.limit_in_bytes"],
        _ => ["max", "rsvd.max"],
    };
    ends.map(|end| format!("{folder}/hugetlb.{size}.{end}"))
}

/// What a cgroup's limit is now; the outer nothing where the path is none.
fn limit_now(host: &Host, path: &str) -> Option<Option<String>> {
    let groups = host.cgroups.known()?;
    groups.iter().find_map(|group| {
        group.hugetlb.iter().find_map(|limit| {
            let files = limit_files(group.version, &group.folder, limit.size);
            let at = files.iter().position(|file| file == path)?;
            let fact = [&limit.fault_limit, &limit.reservation_limit][at];
            let text = |most: Option<Bytes>| most.map_or("max".to_owned(), |b| b.get().to_string());
            Some(fact.get().map(text))
        })
    })
}

/// Limits of the cgroups that a service is in, where they are below what is planned for it.
pub(super) fn cgroup_knobs(host: &Host, service: &Service, planned: &ForService) -> Vec<Knob> {
    let Some(path) = &service.cgroup else {
        return Vec::new();
    };
    let groups = host.cgroups.known().map(Vec::as_slice).unwrap_or_default();
    let above = groups.iter().filter(|g| {
        let inside = path.strip_prefix(g.path.trim_end_matches('/'));
        inside.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    });
    let mut knobs = Vec::new();
    for group in above {
        for limit in &group.hugetlb {
            let needed: Bytes = planned
                .demands
                .iter()
                .flat_map(|d| &d.pages)
                .filter(|p| p.page == limit.size)
                .map(|p| p.bytes())
                .sum();
            let files = limit_files(group.version, &group.folder, limit.size);
            for (file, fact) in files
                .into_iter()
                .zip([&limit.fault_limit, &limit.reservation_limit])
            {
                let Some(most) = fact.get().flatten().filter(|most| *most < needed) else {
                    continue;
                };
                knobs.push(Knob {
                    path: PathBuf::from(file),
                    was: Some(most.get().to_string()),
                    now: needed.get().to_string(),
                    why: format!(
                        "the cgroup {} allows {most} on pages of {}, and {} needs {needed}",
                        group.path, limit.size, planned.name
                    ),
                    risk: "whatever else is in the cgroup may take them first; whoever made the \
                           cgroup may set the limit again"
                        .to_owned(),
                    restart: Vec::new(),
                });
            }
        }
    }
    knobs
}
