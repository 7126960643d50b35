//! cgroups that limit hugetlb pages.

use hugeleaf_host::{Fact, Host, HugetlbCgroup, HugetlbLimit, HugetlbLimitKind, Pool};
use hugeleaf_units::Bytes;

use super::{AdvisedCommand, Finding, shell_word};
use crate::advice::{ChangeScope, Setting, SettingChange, of_container, of_resized_pod};
use crate::pod_limits::{below_pool, is_of_all_pods, is_shut};

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
    // The kubelet sets the limits of pods, also seen from their node.
    let is_pod = cgroup.path.contains("kubepods");
    let next: AdvisedCommand = if host.is_in_container || is_pod {
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

/// Finds a Kubernetes node that offers pods fewer pages of a size than the pool has. The kubelet reads the pools only once, at
/// its start (kubernetes #72307). Without any pages, pods with a request cannot start.
///
/// The limit of all pods shows that for at most a minute: then the kubelet raises it to 2^62 (its `setHugePagesConfig`). After
/// that, only hugeleaf's own journal tells that a pool has changed since.
pub fn kubelet(host: &Host) -> Option<Finding> {
    let offers = host.totals().filter_map(|pool| {
        let (cgroup, allowed) = below_pool(host, pool.size)?;
        Some((pool, cgroup, allowed))
    });
    let restart = "systemctl restart kubelet";
    let Some((pool, cgroup, allowed)) = offers.min_by_key(|(_, _, allowed)| *allowed) else {
        let size = host.unseen_by_kubelet.first()?;
        let text = format!(
            "The kubelet started before hugeleaf changed the pool of {size}, and reads pools only at \
             its start. It offers pods the pages that the pool had then."
        );
        return Some(Finding::warning("kubelet-before-pool", text, restart));
    };
    let (path, size) = (&cgroup.path, pool.size);
    if allowed.is_zero() {
        let free = pool.available();
        let text = format!(
            "Both limits of cgroup {path} forbid pages of {size}, although the pool has {free} \
             free. The kubelet started before the pool was created, and offers none to pods."
        );
        return Some(Finding::problem("kubelet-before-pool", text, restart));
    }
    let has = pool.persistent();
    let more = has.in_bytes(size) - allowed;
    let text = format!(
        "Cgroup {path} allows all pods {allowed} on pages of {size}, but the pool has {has} pages. \
         The kubelet started before the pool grew, and offers the other {more} to no pod."
    );
    Some(Finding::warning("kubelet-before-pool", text, restart))
}

/// Finds a pod with limit 0 and a container that may have pages. An in-place resize sets the pod's limits to 0 (kubernetes
/// #141991); the kernel refuses that (EBUSY) while the pod uses pages. Where the runtime does not limit containers
/// (`disable_hugetlb_controller`, the default of containerd), such a pod looks like one without a request.
pub fn resized_pod(host: &Host) -> Option<Finding> {
    let (pod, limit, given) = limits(host).find_map(|(pod, limit)| {
        let is_pod = pod.path.split('/').skip(2).any(|part| part.contains("pod"));
        if !is_pod || !pod.path.contains("kubepods") || is_of_all_pods(pod) || !is_shut(limit) {
            return None;
        }
        let inside = format!("{}/", pod.path);
        let of_size = limits(host).filter(|(_, l)| l.size == limit.size);
        let containers = of_size.filter_map(|(cgroup, limit)| {
            let name = cgroup.path.strip_prefix(&inside)?;
            let allowed = limit.fault_limit.get().flatten();
            allowed.filter(|_| !name.contains('/'))
        });
        let given: Bytes = containers.sum();
        (given > Bytes::ZERO).then_some((pod, limit, given))
    })?;
    Some(Finding::problem(
        "pod-limits-zero",
        format!(
            "Both limits of cgroup {} forbid more pages of {}, although its containers were given \
             {given}. An in-place resize of a pod sets the limits to 0.",
            pod.path, limit.size
        ),
        of_resized_pod(limit.size, given),
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
    use hugeleaf_units::Pages;

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
        // A pod's own cgroup, the limit of the whole pool, and a pool without free pages.
        let whole = size("2M").bytes() * host.pools[0].all().get();
        for near in [
            cgroup("/kubepods.slice/kubepods-pod1.slice", 0, 0),
            cgroup("/kubepods", whole.get(), 0),
        ] {
            host.cgroups = Fact::Known(vec![near]);
            assert_eq!(kubelet(&host), None);
        }
        host.cgroups = Fact::Known(vec![cgroup("/kubepods", 0, 0)]);
        host.pools[0].free = Fact::Known(Pages(0));
        assert_eq!(kubelet(&host), None);
    }

    #[test]
    fn a_pool_that_grew_after_the_kubelet_started() {
        let mut host = healthy();
        let whole = size("2M").bytes() * host.pools[0].all().get();
        let page = size("2M").bytes();
        host.cgroups = Fact::Known(vec![cgroup("/kubepods.slice", (whole - page).get(), 0)]);
        let found = kubelet(&host).unwrap();
        assert_eq!(found.severity, super::super::Severity::Warning);
        assert!(found.text.contains("the other 2M"), "{}", found.text);
        // Surplus pages come and go.
        host.pools[0].surplus = Fact::Known(Pages(1));
        assert_eq!(kubelet(&host), None);
        // The pool of a size without any page for pods comes first.
        host.pools[0].surplus = Fact::Known(Pages(0));
        let none = cgroup("/kubepods", 0, 0);
        host.pools[0].free = Fact::Known(Pages(600));
        host.cgroups = Fact::Known(vec![none]);
        assert_eq!(
            kubelet(&host).unwrap().severity,
            super::super::Severity::Problem
        );
    }

    #[test]
    fn a_pool_that_the_kubelet_has_not_seen() {
        let mut host = healthy();
        host.unseen_by_kubelet = vec![size("2M")];
        let found = kubelet(&host).unwrap();
        assert_eq!(found.severity, super::super::Severity::Warning);
        assert!(found.text.contains("the pool of 2M"), "{}", found.text);
    }

    #[test]
    fn a_pod_that_was_resized_in_place() {
        let mut host = healthy();
        let pod = "/kubepods.slice/kubepods-pod1.slice";
        let container = cgroup(&format!("{pod}/cri-1.scope"), 4 << 20, 0);
        host.cgroups = Fact::Known(vec![cgroup(pod, 0, 0), container]);
        let found = resized_pod(&host).unwrap();
        assert_eq!(found.id, "pod-limits-zero");
        assert!(
            found.command.ends_with(": hugepages-2Mi: 4Mi"),
            "{}",
            found.command
        );
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
