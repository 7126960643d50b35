//! All rules about a host, and their findings.

use hugeleaf_host::{self as host, ThpMemoryKind};

use super::{
    Finding, cgroups, ineffective_settings, memory, pools, thp, unreadable, virtual_machine,
};

/// A rule about a host, or about each pool over all its nodes.
enum FindingRule {
    Host(fn(&host::Host) -> Option<Finding>),
    Pool(fn(&host::Host, &host::Pool) -> Option<Finding>),
}
use FindingRule::{Host, Pool};

const RULES: &[FindingRule] = &[
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
    Host(ineffective_settings::boot),
    Host(ineffective_settings::sysctl),
    Host(ineffective_settings::anon_top),
    Host(ineffective_settings::shmem_top),
    Host(|host| ineffective_settings::inherit(host, ThpMemoryKind::Private, "madvise")),
    Host(|host| ineffective_settings::inherit(host, ThpMemoryKind::Shared, "advise")),
    Host(ineffective_settings::defrag),
    Host(ineffective_settings::khugepaged),
    Host(ineffective_settings::shm_group),
    Host(ineffective_settings::max_ptes_none),
    Host(thp::compaction),
    Host(thp::large),
    Host(memory::private_on_base),
    Host(thp::off),
    Host(thp::none),
    Host(virtual_machine::guest_pages),
    Host(unreadable::facts),
];

/// Returns all findings about a host, the worst first.
pub fn findings(host: &host::Host) -> Vec<Finding> {
    let by = |rule: &FindingRule| -> Vec<Finding> {
        match rule {
            Host(rule) => rule(host).into_iter().collect(),
            Pool(rule) => host.totals().filter_map(|pool| rule(host, pool)).collect(),
        }
    };
    super::on_one_screen(RULES.iter().flat_map(by).collect())
}
