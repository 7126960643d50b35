//! cgroups that limit hugetlb pages.

use hugeleaf_host::{Cgroup, Fact, Host, HugetlbLimit, Limited, Pool};
use hugeleaf_units::Bytes;

use super::{Finding, shell_word};

fn limits(host: &Host) -> impl Iterator<Item = (&Cgroup, &HugetlbLimit)> {
    let cgroups = host.cgroups.entries().iter();
    cgroups.flat_map(|cgroup| cgroup.hugetlb.iter().map(move |limit| (cgroup, limit)))
}

/// One finding for many cgroups: `cgroup A` or `cgroup A and 3 others`.
fn names(cgroups: &[(&Cgroup, &HugetlbLimit)]) -> String {
    let first = cgroups.first().map_or("", |(cgroup, _)| &cgroup.path);
    match cgroups.len() {
        0 | 1 => format!("cgroup {first}"),
        2 => format!("cgroup {first} and one other"),
        n => format!("cgroup {first} and {} others", n - 1),
    }
}

/// A limit on faults without one on reservations that is at least as low: mmap succeeds, and the
/// first touch of a page past the limit kills with SIGBUS. Where there are no pages available, mmap
/// fails by itself.
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
    let command = if limit.reservation_limit.is_absent() {
        // The kernel has no reservation limits (before Linux 5.7): only seeing it is left.
        format!("cat {}", file(cgroup, limit, "failcnt", "events"))
    } else {
        let file = cgroup.limit_file(limit.size, Limited::Reservations);
        format!("echo {allowed:#} > {}", shell_word(&file))
    };
    Some(Finding::problem(
        "cgroup-faults-only",
        format!(
            "In {} hugetlb memory is limited where it is touched ({allowed} of {} pages) and less, \
             or not at all, where it is reserved: mmap succeeds past the limit, and touching it \
             kills with SIGBUS.",
            names(&open),
            limit.size
        ),
        command,
    ))
}

fn file(cgroup: &Cgroup, limit: &HugetlbLimit, v1: &str, v2: &str) -> String {
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
        n => format!(" ({} more ran into theirs)", n - 1),
    };
    let seen = file(cgroup, limit, "max_usage_in_bytes", "current");
    Some(Finding::warning(
        "cgroup-limit-hit",
        format!(
            "cgroup {} ran into its limit on pages of {} {} times (faults {}, reservations \
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
    ) -> Fact<Vec<Cgroup>> {
        Fact::Known(vec![Cgroup {
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
        // Without a single page in the pool mmap fails by itself.
        host.pools[0] = pool("2M", None, 0);
        assert_eq!(faults_only(&host), None);
    }

    #[test]
    fn an_old_kernel_cannot_limit_reservations() {
        let mut host = healthy();
        host.cgroups = limited(Some(0), Fact::Absent, 0);
        assert!(faults_only(&host).unwrap().command.starts_with("cat "));
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
