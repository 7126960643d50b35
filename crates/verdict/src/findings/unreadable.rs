//! Facts that could not be read.

use hugeleaf_host::{Fact, Host, HugetlbLimit, KernelLimits, Memory, ReadError, Thp};

use super::Finding;

/// Reports all unreadable facts in one finding. An unknown value is not "none".
pub fn facts(host: &Host) -> Option<Finding> {
    let mut errors: Vec<&ReadError> = errors(host);
    errors.dedup();
    let first = errors.first()?;
    let more = match errors.len() {
        1 => String::new(),
        n => format!(" (and {} more)", n - 1),
    };
    let command = match errors.iter().any(|error| error.denied) {
        true => "sudo hugeleaf status",
        false => "hugeleaf status --json | grep _error",
    };
    Some(Finding::note(
        "unreadable",
        format!("Some facts could not be read: {first}{more}. They are unknown."),
        command,
    ))
}

type FactError<'a> = Option<&'a ReadError>;

/// Returns every error in the host's facts, in screen order.
fn errors(host: &Host) -> Vec<&ReadError> {
    let mut errors = vec![
        host.kernel.error(),
        host.arch.error(),
        host.pmd_page.error(),
    ];
    errors.extend(of_memory(&host.memory));
    for pool in &host.pools {
        let facts = [
            &pool.total,
            &pool.free,
            &pool.reserved,
            &pool.surplus,
            &pool.overcommit,
        ];
        errors.extend(facts.map(Fact::error));
    }
    errors.push(host.thp.error());
    errors.extend(host.thp.known().map(of_thp).unwrap_or_default());
    errors.extend([
        host.buddy.error(),
        host.cgroups.error(),
        host.kernel_log.error(),
    ]);
    let machine = &host.virtual_machine;
    errors.extend([
        machine.is_guest.error(),
        machine.vendor.error(),
        machine.product.error(),
        machine.balloon.error(),
        machine.page_reporting_order.error(),
    ]);
    let limits = host
        .cgroups
        .entries()
        .iter()
        .flat_map(|cgroup| &cgroup.hugetlb);
    errors.extend(limits.flat_map(of_limit));
    errors.extend(of_limits(&host.limits));
    errors.into_iter().flatten().collect()
}

fn of_memory(m: &Memory) -> impl Iterator<Item = FactError<'_>> {
    let bytes = [
        &m.total,
        &m.free,
        &m.available,
        &m.page_tables,
        &m.anon,
        &m.anon_huge,
        &m.shmem,
        &m.shmem_huge,
        &m.shmem_pmd_mapped,
        &m.file_huge,
        &m.file_pmd_mapped,
        &m.locked,
        &m.unevictable,
        &m.cached,
        &m.hugetlb,
        &m.swap_total,
        &m.swap_free,
    ];
    bytes
        .into_iter()
        .map(Fact::error)
        .chain([m.default_hugetlb_page.error()])
}

fn of_thp(thp: &Thp) -> Vec<FactError<'_>> {
    let k = &thp.khugepaged;
    let mut errors = vec![
        thp.enabled.error(),
        thp.defrag.error(),
        thp.shmem_enabled.error(),
    ];
    errors.extend([&thp.use_zero_page, &thp.shrink_underused, &k.defrag].map(Fact::error));
    errors.extend(
        thp.orders
            .iter()
            .flat_map(|o| [o.anon.error(), o.shmem.error()]),
    );
    let pages = [
        &k.pages_to_scan,
        &k.max_ptes_none,
        &k.max_ptes_swap,
        &k.max_ptes_shared,
    ];
    errors.extend(pages.map(Fact::error));
    let numbers = [
        &k.scan_sleep_millis,
        &k.alloc_sleep_millis,
        &k.pages_collapsed,
        &k.full_scans,
    ];
    errors.extend(numbers.map(Fact::error));
    errors
}

fn of_limit(limit: &HugetlbLimit) -> [FactError<'_>; 5] {
    [
        limit.fault_limit.error(),
        limit.fault_usage.error(),
        limit.reservation_limit.error(),
        limit.reservation_usage.error(),
        limit.hits.error(),
    ]
}

fn of_limits(l: &KernelLimits) -> [FactError<'_>; 11] {
    [
        l.memlock.error(),
        l.hugetlb_shm_group.error(),
        l.shmmax.error(),
        l.shmall.error(),
        l.min_free.error(),
        l.overcommit_memory.error(),
        l.overcommit_ratio.error(),
        l.compaction_proactiveness.error(),
        l.ksm_run.error(),
        l.boot.error(),
        l.sysctl.error(),
    ]
}

#[cfg(test)]
mod tests {
    use super::super::tests::testing::healthy;
    use super::*;

    #[test]
    fn absent_is_quiet_and_unreadable_is_not() {
        let mut host = healthy();
        host.kernel_log = Fact::Absent;
        assert_eq!(facts(&host), None);
        let error = ReadError {
            path: "kernel log".into(),
            reason: "Operation not permitted".to_owned(),
            denied: true,
        };
        host.kernel_log = Fact::Unreadable(error);
        let found = facts(&host).unwrap();
        assert!(
            found
                .text
                .contains("kernel log: Operation not permitted. They")
        );
        assert_eq!(found.command, "sudo hugeleaf status");
    }
}
