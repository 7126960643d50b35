//! Settings of transparent huge pages and of cgroups. Each is proposed only if a service of the plan
//! gains, and comes with its risk.

use std::path::{Path, PathBuf};

use hugeleaf_host::demand::{PageSource, Service, ServiceKind};
use hugeleaf_host::{
    Host, HugetlbLimitKind, Thp, ThpMemoryKind, ThpSizeSettings, thp_file, thp_is_on,
};
use hugeleaf_units::Bytes;

use super::model::{Knob, Plan, ServicePlan};
use hugeleaf_verdict::advice::{self, Setting, SettingRequirement};
use hugeleaf_verdict::list;
use hugeleaf_verdict::unaligned_ends::ends;

const SHMMAX: &str = "/proc/sys/kernel/shmmax";
const SHMALL: &str = "/proc/sys/kernel/shmall";
const SCAN_SLEEP: &str = "khugepaged/scan_sleep_millisecs";

/// Returns the current value of a knob that plans may set; `None` for an unknown knob.
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
    if path == thp_file(SCAN_SLEEP) {
        return Some(thp.khugepaged.scan_sleep_millis.get()?.to_string());
    }
    [ThpMemoryKind::Private, ThpMemoryKind::Shared]
        .iter()
        .find_map(|of| {
            let mut orders = thp.orders.iter();
            let fact = match path == of.file() {
                true => thp.global_setting(*of),
                false => orders
                    .find(|order| path == order.file(*of))?
                    .own_setting(*of),
            };
            fact.known().cloned()
        })
}

pub(super) fn thp_knobs(host: &Host, plan: &Plan) -> Vec<Knob> {
    let Some(thp) = host.thp.known() else {
        return Vec::new();
    };
    let services = plan.services.as_slice();
    let mut knobs = Vec::new();
    knobs.extend(shmem(host, services));
    knobs.extend(anon(host, services));
    knobs.extend(stacks(host, thp, plan));
    knobs.extend(pace(host, thp, services));
    let for_ends = ends_of_mappings(host, services);
    let is_new = |knob: &Knob| knobs.iter().all(|k: &Knob| k.path != knob.path);
    let for_ends = for_ends.filter(is_new);
    knobs.extend(for_ends);
    knobs
}

/// Removes settings that contradict the wants of running programs. Returns a note on each.
pub(super) fn without_unwanted(host: &Host, plan: &mut Plan) -> Vec<String> {
    let mut notes = Vec::new();
    plan.knobs.retain(|knob| {
        let path = knob.path.to_string_lossy();
        let want = advice::unwanted(host, &Setting::file(&*path), &knob.now);
        notes.extend(want.map(|want| {
            let SettingRequirement { who, values, .. } = want;
            let now = &knob.now;
            format!("{path} is not set to {now}: {who} wants {values} (see hugeleaf check)")
        }));
        want.is_none()
    });
    notes
}

/// Proposes the shmem setting. Shared memory outside the pool can be promoted only if this was on
/// when it was mapped, because only then does the kernel align it.
fn shmem(host: &Host, services: &[ServicePlan]) -> Option<Knob> {
    let is_shared = |kind| {
        use ServiceKind::{Container, Other, PostgreSql, SysV};
        matches!(kind, PostgreSql | SysV | Container | Other)
    };
    let on_base = |service: &&ServicePlan| {
        let left = |d: &super::DemandPlan| match d.from {
            PageSource::Pool => !d.missing.is_empty(),
            PageSource::Thp => matches!(service.kind, ServiceKind::PostgreSql | ServiceKind::SysV),
        };
        is_shared(service.kind) && service.demands.iter().any(left)
    };
    let gain: Vec<&ServicePlan> = services.iter().filter(on_base).collect();
    let (path, was) = off(host, ThpMemoryKind::Shared).filter(|_| !gain.is_empty())?;
    Some(Knob {
        path: PathBuf::from(path),
        was: Some(was),
        now: "advise".to_owned(),
        why: format!(
            "aligns shared memory of {} outside the pool, so that `hugeleaf promote` can promote \
             it",
            names(&gain)
        ),
        risk: "programs that ask for huge pages in shared memory get them, and may hold more \
               memory than they touch"
            .to_owned(),
        restart: running(&gain),
    })
}

fn on_thp(services: &[ServicePlan]) -> Vec<&ServicePlan> {
    let wants = |service: &&ServicePlan| service.demands.iter().any(|d| d.from == PageSource::Thp);
    services.iter().filter(wants).collect()
}

/// Returns the running services. A service that starts later finds the new setting.
fn running(services: &[&ServicePlan]) -> Vec<String> {
    let running = services.iter().filter(|s| s.runs);
    running.map(|s| s.known_as().to_owned()).collect()
}

fn names(services: &[&ServicePlan]) -> String {
    list(services.iter().map(|s| &s.name))
}

/// Returns the effective knob of a full huge page and its value, if it is off.
fn off(host: &Host, of: ThpMemoryKind) -> Option<(String, String)> {
    let (path, word) = host.thp_setting(of);
    let word = word.text().filter(|word| !thp_is_on(Some(word)))?;
    Some((path, word.to_owned()))
}

fn anon(host: &Host, services: &[ServicePlan]) -> Option<Knob> {
    let gain = on_thp(services);
    let (path, was) = off(host, ThpMemoryKind::Private).filter(|_| !gain.is_empty())?;
    Some(Knob {
        path: PathBuf::from(path),
        was: Some(was),
        now: "madvise".to_owned(),
        why: format!(
            "private memory of {} can be on huge pages if the program or `hugeleaf run` asks",
            names(&gain)
        ),
        risk: "other programs that use madvise get huge pages too, and may hold more memory than \
               they touch"
            .to_owned(),
        restart: running(&gain),
    })
}

/// Size of stack pages in base pages. Processors that coalesce neighbouring pages coalesce this many,
/// and a stack is too small for a full huge page.
const STACK_HOLDS: u64 = 16;

fn stacks(host: &Host, thp: &Thp, plan: &Plan) -> Option<Knob> {
    let services = plan.services.as_slice();
    let is_run = |s: &ServicePlan| {
        let mut units = plan.units.iter().filter(|u| u.exec_start.is_some());
        units.any(|u| Some(&u.unit) == s.unit.as_ref())
    };
    let takes = |s: &&ServicePlan| is_run(s) || s.kind == ServiceKind::Mover;
    let gain: Vec<&ServicePlan> = services.iter().filter(takes).collect();
    let is_for_stacks = |o: &&ThpSizeSettings| o.size.ratio_to(host.base_page) == STACK_HOLDS;
    let order = thp.orders.iter().find(is_for_stacks)?;
    let was = order.anon.known()?;
    if gain.is_empty() || was != "never" {
        return None;
    }
    Some(Knob {
        path: PathBuf::from(order.file(ThpMemoryKind::Private)),
        was: Some(was.clone()),
        now: "madvise".to_owned(),
        why: format!(
            "stacks of {} can be on pages of {} with `hugeleaf run --stack {}`",
            names(&gain),
            order.size,
            order.size
        ),
        risk: format!(
            "every program that uses madvise gets pages of {} where no whole huge page fits; sparse \
             memory grows slightly",
            order.size
        ),
        restart: running(&gain),
    })
}

/// Proposes a smaller size for the ends of mappings, which add up if a full huge page is tens of
/// megabytes. The processor must translate the size with one TLB entry.
fn ends_of_mappings(host: &Host, services: &[ServicePlan]) -> Option<Knob> {
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
            "up to {pmd} at each end of a mapping of {} cannot be on {pmd} pages; pages of {size}, \
             one TLB entry each on this processor, can cover it",
            names(&gain)
        ),
        risk: format!(
            "programs for which THP is on get pages of {size} where no whole huge page fits, and may \
             hold more memory than they touch"
        ),
        restart: running(&gain),
    })
}

/// Time of khugepaged for all of the memory above which a faster pace is proposed.
const TOO_LONG_SECONDS: f64 = 3600.0;
const PACE_MILLIS: u64 = 1000;

fn pace(host: &Host, thp: &Thp, services: &[ServicePlan]) -> Option<Knob> {
    let gain = on_thp(services);
    let wanted: Bytes = gain
        .iter()
        .flat_map(|s| &s.demands)
        .filter(|d| d.from == PageSource::Thp)
        .map(|d| super::page_counts::bytes_of(&d.mappings))
        .sum();
    let k = &thp.khugepaged;
    let round = k.pages_to_scan.get()?.in_bytes(host.base_page);
    let sleep = k.scan_sleep_millis.get()?;
    if sleep <= PACE_MILLIS || round.is_zero() {
        return None;
    }
    // The kernel's sleep between two scans.
    let seconds = wanted.as_f64() / round.as_f64() * sleep as f64 / 1000.0;
    if seconds <= TOO_LONG_SECONDS {
        return None;
    }
    let hours = seconds / TOO_LONG_SECONDS;
    Some(Knob {
        path: PathBuf::from(thp_file(SCAN_SLEEP)),
        was: Some(sleep.to_string()),
        now: PACE_MILLIS.to_string(),
        why: format!(
            "khugepaged needs {hours:.0} hours for {wanted} of {} at {round} every {} s",
            names(&gain),
            sleep / 1000
        ),
        risk: format!(
            "khugepaged takes up to {} times the CPU time, and each promotion stalls the process \
             during the copy",
            sleep / PACE_MILLIS
        ),
        restart: Vec::new(),
    })
}

/// Proposes the limits of SysV segments, which apply to each segment and to their sum.
pub(super) fn shm_knobs(host: &Host, services: &[Service]) -> Vec<Knob> {
    let mappings = || {
        let sysv = services.iter().filter(|s| s.kind == ServiceKind::SysV);
        sysv.flat_map(|s| &s.demands).flat_map(|d| &d.mappings)
    };
    let largest = mappings().map(|p| p.bytes).max().unwrap_or_default();
    let together: Bytes = mappings().map(|p| p.bytes * p.count).sum();
    let knob = |path: &str, was: String, now: String, what: &str| Knob {
        path: PathBuf::from(path),
        was: Some(was),
        now,
        why: format!("otherwise the kernel refuses {what}"),
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

const LIMITED: [HugetlbLimitKind; 2] = [HugetlbLimitKind::Faults, HugetlbLimitKind::Reservations];

/// Returns the current limit of a cgroup. The outer `None` means that the path is not a limit file.
fn limit_now(host: &Host, path: &str) -> Option<Option<String>> {
    host.cgroups.entries().iter().find_map(|group| {
        group.hugetlb.iter().find_map(|limit| {
            let mut both = LIMITED.into_iter();
            let of = both.find(|of| group.limit_file(limit.size, *of) == path)?;
            let text = |most: Option<Bytes>| most.map_or("max".to_owned(), |b| b.get().to_string());
            Some(limit.limit(of).get().map(text))
        })
    })
}

/// Proposes cgroup limits that a service needs, if they are below its planned pages.
pub(super) fn cgroup_knobs(service: &Service, planned: &ServicePlan) -> Vec<Knob> {
    let mut knobs = Vec::new();
    // A container's manager sets its limits from its own configuration (`ways`).
    let groups = service.limits.hugetlb.iter();
    for group in groups.filter(|_| !service.limits.is_in_container) {
        for limit in &group.hugetlb {
            let needed = planned.pages_of(limit.size).in_bytes(limit.size);
            for of in LIMITED {
                let most = limit.limit(of).get().flatten();
                let Some(most) = most.filter(|most| *most < needed) else {
                    continue;
                };
                knobs.push(Knob {
                    path: group.limit_file(limit.size, of).into(),
                    was: Some(most.get().to_string()),
                    now: needed.get().to_string(),
                    why: format!(
                        "the cgroup {} allows {most} on pages of {}, but {} needs {needed}",
                        group.path, limit.size, planned.name
                    ),
                    risk: "other processes in the cgroup may take the pages first; the cgroup's \
                           manager may reset the limit"
                        .to_owned(),
                    restart: Vec::new(),
                });
            }
        }
    }
    knobs
}
