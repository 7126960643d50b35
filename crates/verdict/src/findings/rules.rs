//! All rules about a host, and their findings.

use hugeleaf_host::{self as host};

use super::{Finding, cgroups, dead, memory, pools, thp, unreadable};

/// A rule about a host, or about each pool over all its nodes.
enum Rule {
    Host(fn(&host::Host) -> Option<Finding>),
    Pool(fn(&host::Host, &host::Pool) -> Option<Finding>),
}
use Rule::{Host, Pool};

const RULES: &[Rule] = &[
    Host(cgroups::faults_only),
    Host(cgroups::kubelet),
    Host(cgroups::resized_pod),
    Host(cgroups::limit_hit),
    Pool(pools::short),
    Host(pools::kernel_log),
    Host(memory::page_tables),
    Host(memory::shmem_on_base),
    Host(memory::fragmented),
    Host(pools::leftovers),
    Pool(pools::idle),
    Pool(pools::uneven),
    Pool(pools::surplus),
    Host(dead::boot),
    Host(dead::sysctl),
    Host(dead::anon_top),
    Host(dead::shmem_top),
    Host(dead::inherit_private),
    Host(dead::inherit_shared),
    Host(dead::defrag),
    Host(dead::khugepaged),
    Host(dead::shm_group),
    Host(dead::max_ptes_none),
    Host(thp::compaction),
    Host(thp::large),
    Host(memory::private_on_base),
    Host(thp::off),
    Host(thp::none),
    Host(unreadable::facts),
];

/// Returns all findings about a host, the worst first.
pub fn findings(host: &host::Host) -> Vec<Finding> {
    let by = |rule: &Rule| -> Vec<Finding> {
        match rule {
            Host(rule) => rule(host).into_iter().collect(),
            Pool(rule) => host.totals().filter_map(|pool| rule(host, pool)).collect(),
        }
    };
    super::on_one_screen(RULES.iter().flat_map(by).collect())
}
