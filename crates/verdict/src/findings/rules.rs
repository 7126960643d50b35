//! All rules about a host, and their findings.

use hugeleaf_host::Host;

use super::{Finding, cgroups, dead, memory, pools, thp, unreadable};

/// All findings about a host, the worst first.
pub fn findings(host: &Host) -> Vec<Finding> {
    const RULES: &[fn(&Host) -> Vec<Finding>] = &[
        cgroups::faults_only,
        cgroups::limit_hit,
        pools::short,
        pools::kernel_log,
        memory::page_tables,
        memory::shmem_on_base,
        memory::fragmented,
        pools::idle,
        pools::uneven,
        pools::surplus,
        dead::boot,
        dead::sysctl,
        dead::anon_top,
        dead::shmem_top,
        dead::inherit,
        dead::defrag,
        dead::khugepaged,
        dead::shm_group,
        memory::private_on_base,
        thp::off,
        thp::none,
        unreadable::facts,
    ];
    let mut all: Vec<Finding> = RULES.iter().flat_map(|rule| rule(host)).collect();
    all.sort_by_key(|finding| finding.severity);
    all
}
