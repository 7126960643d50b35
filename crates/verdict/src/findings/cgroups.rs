//! cgroups that limit hugetlb pages.

use hugeleaf_host::{Fact, Host, HugetlbCgroup, HugetlbLimit, HugetlbLimitKind, Pool};
use hugeleaf_units::{Bytes, PageSize, Pages};

use super::{AdvisedCommand, Finding, shell_word};
use crate::advice::{ChangeScope, Setting, SettingChange, of_container};

fn limits(host: &Host) -> impl Iterator<Item = (&HugetlbCgroup, &HugetlbLimit)> {
    let cgroups = host.cgroups.entries().iter();
    cgroups.flat_map(|cgroup| cgroup.hugetlb.iter().map(move |limit| (cgroup, limit)))
}

/// Names many cgroups in one finding: `cgroup A` or `cgroup A and 3 others`.
fn names(cgroups: &[(&HugetlbCgroup, &HugetlbLimit)]) -> String {
    let first = cgroups.first().map_or("", |(cgroup, _)| &cgroup.path);
    match cgroups.len() {
        0 | 1 => format!("cgroup {first}"),
        2 => format!("cgroup {first} and one other"),
        n => format!("cgroup {first} and {} others", n - 1),
    }
}

/// Finds a limit on faults without an equal or lower limit on reservations. mmap succeeds, and the first access beyond the
/// limit ends in SIGBUS. Without available pages, mmap itself fails.
pub fn faults_only(host: &Host) -> Option<Finding> {
    let is_open = |limit: &HugetlbLimit| {
        let Some(fault) = limit.fault_limit.get().flatten() else {
            return false;
        };
        match limit.reservation_limit {
            Fact::Known(Some(reservation)) => reservation > fault,
            Fact::Known(None) | Fact::Absent => true,
            Fact::Unreadable(_) => false,
        }
    };
    let has_pages = |limit: &HugetlbLimit| host.pool(limit.size).is_some_and(Pool::gives_any);
    let open: Vec<_> = limits(host)
        .filter(|(_, l)| is_open(l) && has_pages(l))
        .collect();
    let (cgroup, limit) = open.first()?;
    let allowed = limit.fault_limit.get().flatten().unwrap_or_default();
    let next: AdvisedCommand = if host.is_in_container {
        of_container(limit.size, None, "").into()
    } else if limit.reservation_limit.is_absent() {
        // The kernel has no reservation limits (before Linux 5.7), so only reading the counter is left.
        format!("cat {}", file(cgroup, limit, "failcnt", "events")).into()
    } else {
        let file = cgroup.limit_file(limit.size, HugetlbLimitKind::Reservations);
        let change = SettingChange::new(Setting::file(file), format!("{allowed:#}"));
        change.in_scope(ChangeScope::Cgroup).check(host).into()
    };
    Some(Finding::problem(
        "cgroup-faults-only",
        format!(
            "In {}, faults on hugetlb memory are limited ({allowed} of {} pages), and \
             reservations are limited less or not at all. mmap succeeds beyond the limit, and \
             touching that memory ends in SIGBUS.",
            names(&open),
            limit.size
        ),
        next,
    ))
}

/// Finds a Kubernetes node whose pods may neither reserve nor use pages of a size, although the pool has free ones. The
/// kubelet reads the pools only once, at its start (kubernetes #72307).
pub fn kubelet(host: &Host) -> Option<Finding> {
    let (pool, cgroup) = host
        .totals()
        .find_map(|pool| Some((pool, without_pods(host, pool.size)?)))?;
    Some(Finding::problem(
        "kubelet-before-pool",
        format!(
            "Both limits of cgroup {} forbid pages of {}, although the pool has {} free. The \
             kubelet started before the pool was created, and offers none to pods.",
            cgroup.path,
            pool.size,
            pool.available()
        ),
        "systemctl restart kubelet",
    ))
}

/// Returns the cgroup of all pods if it may have no page of a size although the pool has free ones.
pub fn without_pods(host: &Host, size: PageSize) -> Option<&HugetlbCgroup> {
    let is_of_all_pods = |cgroup: &HugetlbCgroup| {
        let name = cgroup.path.rsplit('/').next().unwrap_or_default();
        let name = name.trim_end_matches(".slice");
        name == "kubepods" || name.ends_with("-kubepods")
    };
    let has_free = host.pool(size).is_some_and(|p| p.available() > Pages(0));
    let mut limits = limits(host)
        .filter(|(cgroup, limit)| limit.size == size && is_of_all_pods(cgroup) && is_shut(limit));
    limits.next().map(|(cgroup, _)| cgroup).filter(|_| has_free)
}

/// True if the limit allows neither faults nor reservations.
fn is_shut(limit: &HugetlbLimit) -> bool {
    let none = |limit: &Fact<Option<Bytes>>| limit.get().flatten() == Some(Bytes::ZERO);
    none(&limit.fault_limit)
        && (none(&limit.reservation_limit) || limit.reservation_limit.is_absent())
}

/// Finds a pod with limit 0 that has pages, or has a container that may have some. An in-place resize sets the pod's limits
/// to 0 (kubernetes #141991).
pub fn resized_pod(host: &Host) -> Option<Finding> {
    let (pod, limit) = limits(host).find(|(pod, limit)| {
        let is_pod = pod.path.split('/').skip(2).any(|part| part.contains("pod"));
        let inside = format!("{}/", pod.path);
        let mut of_size = limits(host).filter(|(_, l)| l.size == limit.size);
        let allows = |(c, l): (&HugetlbCgroup, &HugetlbLimit)| {
            c.path.starts_with(&inside) && l.fault_limit.get().flatten() > Some(Bytes::ZERO)
        };
        let uses = limit.usage(HugetlbLimitKind::Faults) > Bytes::ZERO;
        is_pod && pod.path.contains("kubepods") && is_shut(limit) && (uses || of_size.any(allows))
    })?;
    Some(Finding::problem(
        "pod-limits-zero",
        format!(
            "Both limits of cgroup {} forbid more pages of {}, although its containers were given \
             some. An in-place resize of a pod sets the limits to 0.",
            pod.path, limit.size
        ),
        "# delete the pod, so that it is recreated with its limits",
    ))
}

fn file(cgroup: &HugetlbCgroup, limit: &HugetlbLimit, v1: &str, v2: &str) -> String {
    let name = if cgroup.version == 1 { v1 } else { v2 };
    shell_word(&cgroup.file(limit.size, name))
}

pub fn limit_hit(host: &Host) -> Option<Finding> {
    let hit: Vec<_> = limits(host)
        .filter(|(_, l)| l.hits.get().is_some_and(|n| n > 0))
        .collect();
    let (cgroup, limit) = hit.iter().max_by_key(|(_, limit)| limit.hits.get())?;
    let allowed = |limit: &Fact<Option<Bytes>>| match limit.get().flatten() {
        Some(bytes) => bytes.to_string(),
        None => "unlimited".to_owned(),
    };
    let more = match hit.len() {
        1 => String::new(),
        n => format!(" ({} more reached theirs)", n - 1),
    };
    let seen = file(cgroup, limit, "max_usage_in_bytes", "current");
    Some(Finding::warning(
        "cgroup-limit-hit",
        format!(
            "cgroup {} reached its limit on pages of {} {} times (faults {}, reservations \
             {}){more}.",
            cgroup.path,
            limit.size,
            limit.hits.get().unwrap_or_default(),
            allowed(&limit.fault_limit),
            allowed(&limit.reservation_limit)
        ),
        format!("cat {seen}"),
    ))
}

#[cfg(test)]
mod tests {
    use super::super::tests::testing::{healthy, ids, pool, size};
    use super::*;

    fn limited(
        fault: Option<u64>,
        reservation: Fact<Option<Bytes>>,
        hits: u64,
    ) -> Fact<Vec<HugetlbCgroup>> {
        Fact::Known(vec![HugetlbCgroup {
            version: 2,
            path: "/db.slice".to_owned(),
            folder: "/sys/fs/cgroup/db.slice".to_owned(),
            hugetlb: vec![HugetlbLimit {
                size: size("2M"),
                fault_limit: Fact::Known(fault.map(Bytes)),
                fault_usage: Fact::Known(Bytes(0)),
                reservation_limit: reservation,
                reservation_usage: Fact::Known(Bytes(0)),
                hits: Fact::Known(hits),
            }],
        }])
    }

    #[test]
    fn a_fault_limit_alone_is_a_trap() {
        let mut host = healthy();
        host.cgroups = limited(Some(1 << 30), Fact::Known(Some(Bytes(1 << 30))), 0);
        assert_eq!(faults_only(&host), None);
        host.cgroups = limited(Some(1 << 30), Fact::Known(Some(Bytes(2 << 30))), 0);
        assert_eq!(ids(faults_only(&host)), ["cgroup-faults-only"]);
        host.cgroups = limited(None, Fact::Known(Some(Bytes(1 << 30))), 0);
        assert_eq!(faults_only(&host), None);
        host.cgroups = limited(Some(1 << 30), Fact::Known(None), 0);
        assert_eq!(
            faults_only(&host).unwrap().command,
            "echo 1073741824 > /sys/fs/cgroup/db.slice/hugetlb.2MB.rsvd.max"
        );
        // The container's manager sets its limits.
        host.is_in_container = true;
        let command = faults_only(&host).unwrap().command;
        assert!(
            command.starts_with("# the pod's resources.limits: hugepages-2Mi"),
            "{command}"
        );
        host.is_in_container = false;
        // If the pool has no page, mmap itself fails.
        host.pools[0] = pool("2M", None, 0);
        assert_eq!(faults_only(&host), None);
    }

    #[test]
    fn an_old_kernel_cannot_limit_reservations() {
        let mut host = healthy();
        host.cgroups = limited(Some(0), Fact::Absent, 0);
        assert!(faults_only(&host).unwrap().command.starts_with("cat "));
    }

    fn cgroup(path: &str, both: u64, used: u64) -> HugetlbCgroup {
        let mut groups = limited(Some(both), Fact::Known(Some(Bytes(both))), 0);
        let Fact::Known(groups) = &mut groups else {
            unreachable!()
        };
        let mut group = groups.remove(0);
        path.clone_into(&mut group.path);
        group.hugetlb[0].fault_usage = Fact::Known(Bytes(used));
        group
    }

    #[test]
    fn a_kubelet_that_was_started_before_the_pool() {
        let mut host = healthy();
        host.pools[0].free = Fact::Known(Pages(600));
        for path in [
            "/kubepods.slice",
            "/kubelet.slice/kubelet-kubepods.slice",
            "/kubepods",
        ] {
            host.cgroups = Fact::Known(vec![cgroup(path, 0, 0)]);
            let found = super::super::findings(&host);
            assert_eq!(ids(found), ["kubelet-before-pool"], "{path}");
        }
        // A pod's own cgroup, a nonzero limit, and a pool without free pages.
        for near in [
            cgroup("/kubepods.slice/kubepods-pod1.slice", 0, 0),
            cgroup("/kubepods", 2 << 20, 0),
        ] {
            host.cgroups = Fact::Known(vec![near]);
            assert_eq!(kubelet(&host), None);
        }
        host.cgroups = Fact::Known(vec![cgroup("/kubepods", 0, 0)]);
        host.pools[0].free = Fact::Known(Pages(0));
        assert_eq!(kubelet(&host), None);
    }

    #[test]
    fn a_pod_that_was_resized_in_place() {
        let mut host = healthy();
        let pod = "/kubepods.slice/kubepods-pod1.slice";
        let container = cgroup(&format!("{pod}/cri-1.scope"), 4 << 20, 0);
        host.cgroups = Fact::Known(vec![cgroup(pod, 0, 0), container]);
        assert_eq!(ids(resized_pod(&host)), ["pod-limits-zero"]);
        host.cgroups = Fact::Known(vec![cgroup(pod, 0, 2 << 20)]);
        assert_eq!(ids(resized_pod(&host)), ["pod-limits-zero"]);
        host.cgroups = Fact::Known(vec![cgroup(pod, 0, 0)]);
        assert_eq!(resized_pod(&host), None);
    }

    #[test]
    fn hits() {
        let mut host = healthy();
        host.cgroups = limited(Some(1 << 30), Fact::Known(Some(Bytes(1 << 30))), 0);
        assert_eq!(limit_hit(&host), None);
        host.cgroups = limited(Some(1 << 30), Fact::Known(Some(Bytes(1 << 30))), 2);
        assert_eq!(ids(limit_hit(&host)), ["cgroup-limit-hit"]);
    }
}
