//! The Kubernetes form of a plan: what pods request, and a plan that the chart's pool setter applies on any node of a group.
//!
//! Pure. Requests follow the API: request and limit of huge pages are equal, and each page size is a resource of its own
//! (`hugepages-2Mi`). The kubelet reserves no huge pages for the host: `systemReserved` and `kubeReserved` refuse them, and
//! `reservedMemory` may not exceed those two (Kubernetes 1.37, `parseResourceList` and `validateReservedMemory`).

use std::path::PathBuf;

use hugeleaf_host::demand::Service;
use hugeleaf_units::{Bytes, PageSize, Pages};
use hugeleaf_verdict::advice::pod_line;
use hugeleaf_verdict::free_name;

use super::model::{PageCount, Plan, ServicePlan};
use super::notes::command_line;
use super::page_counts::sum_pages;
use super::plan_steps::boot_arguments;

/// Maximum length of a plan's name in the chart's values.
const LONGEST_PLAN: usize = 16;
/// Maximum length of a pod's or a container's name (RFC 1123 label).
const LONGEST_LABEL: usize = 63;

/// The command after which a node offers a changed pool to pods.
pub const RESTART_KUBELET: &str = "systemctl restart kubelet";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KubernetesPlan {
    /// The name of the plan in the chart's values, and the value of the node label.
    pub name: String,
    /// The plan for every node of the group: without the identity and the previous values of this host.
    pub for_nodes: Plan,
    pub pods: Vec<PodRequest>,
    /// Pages of each size in the pools of a node.
    pub pools: Vec<PageCount>,
    /// Pages that programs outside this plan hold on this host. The kubelet offers them to pods too.
    pub of_others: Vec<PageCount>,
    /// The kernel command line, one text per size that needs it.
    pub boot_arguments: Vec<String>,
    /// Parts of the plan that a container cannot set: for the administrator of the node.
    pub left_out: Vec<String>,
}

/// The request of one service as a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodRequest {
    /// The service's name in the plan.
    pub service: String,
    /// The name of the pod and its container.
    pub name: String,
    pub pages: Vec<PageCount>,
    /// The memory limit of its cgroup at the time of planning. Pages of a pool do not count in it.
    pub memory: Option<Bytes>,
    /// Folders with files on huge pages, and their page size.
    pub mounts: Vec<(PathBuf, PageSize)>,
    /// Settings of the program itself.
    pub ways: Vec<String>,
}

impl KubernetesPlan {
    /// Converts a plan of these services. `name` is the one that the user gave.
    pub fn new(plan: &Plan, services: &[Service], name: Option<&str>) -> KubernetesPlan {
        let only = match plan.services.as_slice() {
            [only] => Some(only.name.as_str()),
            _ => None,
        };
        let mut for_nodes = plan.clone();
        let left_out = leave_out(&mut for_nodes);
        make_general(&mut for_nodes);
        let all = |of: fn(&super::PoolPlan) -> Pages| {
            let counts = for_nodes
                .pools
                .iter()
                .map(|p| PageCount::new(p.page, of(p)));
            sum_pages(counts.filter(|count| count.pages > Pages(0)))
        };
        KubernetesPlan {
            name: label(name.or(only).unwrap_or_default(), "pools", LONGEST_PLAN),
            pods: pods(plan, services),
            pools: all(|pool| pool.pages),
            of_others: all(|pool| pool.others + pool.promised),
            boot_arguments: boot_arguments(&for_nodes),
            left_out,
            for_nodes,
        }
    }
}

/// Converts a name to lower-case letters, digits and single dashes.
fn label(name: &str, otherwise: &str, longest: usize) -> String {
    let lower = name.to_ascii_lowercase();
    let words = lower.split(|c: char| !c.is_ascii_alphanumeric());
    let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
    let mut label = words.join("-");
    label.truncate(longest);
    match label.trim_end_matches('-') {
        "" => otherwise.to_owned(),
        label => label.to_owned(),
    }
}

fn pods(plan: &Plan, services: &[Service]) -> Vec<PodRequest> {
    /// Room for the number of a second pod of the same name.
    const NUMBER: usize = 4;
    let mut found: Vec<PodRequest> = Vec::new();
    for (planned, service) in plan.services.iter().zip(services) {
        let pages = sum_pages(planned.pages());
        if pages.is_empty() {
            continue;
        }
        let name = label(&planned.name, "service", LONGEST_LABEL - NUMBER);
        let mounts = plan
            .mounts
            .iter()
            .filter(|mount| pages.iter().any(|p| p.page == mount.page));
        found.push(PodRequest {
            service: planned.name.clone(),
            name: free_name(&name, |name| found.iter().any(|pod| pod.name == name)),
            mounts: mounts
                .map(|mount| (mount.path.clone(), mount.page))
                .collect(),
            pages,
            memory: service.limits.memory_limit(),
            ways: without_pod_lines(planned),
        });
    }
    found
}

/// Returns the manual steps without those about the pod, which the request itself has.
fn without_pod_lines(planned: &ServicePlan) -> Vec<String> {
    let ways = planned.ways.iter();
    ways.filter(|way| !way.starts_with("pod, "))
        .cloned()
        .collect()
}

/// Removes what a container cannot set, and describes it.
fn leave_out(plan: &mut Plan) -> Vec<String> {
    let mut lines = Vec::new();
    let is_of_pods = |path: &std::path::Path| path.starts_with("/sys/kernel/mm");
    let (kept, others) = std::mem::take(&mut plan.knobs)
        .into_iter()
        .partition(|knob| is_of_pods(&knob.path));
    plan.knobs = kept;
    let others: Vec<super::Knob> = others;
    lines.extend(
        others
            .iter()
            .map(|knob| format!("{} = {}", knob.path.display(), knob.now)),
    );
    let group = plan.group.take();
    lines.extend(group.map(|group| format!("vm.hugetlb_shm_group = {}", group.gid)));
    let limits = std::mem::take(&mut plan.limits);
    lines.extend(
        limits
            .iter()
            .map(|limit| format!("memlock limit of user {}", limit.user)),
    );
    let units = std::mem::take(&mut plan.units);
    lines.extend(
        units
            .iter()
            .map(|unit| format!("settings of unit {}", unit.unit)),
    );
    // A volume of the pod takes its place.
    plan.mounts.clear();
    lines
}

/// Removes what only this host is or has: its identity, earlier values and their lines, pages that stay only until its next
/// boot, and memory that its running services give up.
fn make_general(plan: &mut Plan) {
    plan.made = None;
    (plan.host.name, plan.host.id, plan.host.kernel) = (None, None, None);
    plan.kept.clear();
    plan.base.used = plan.base.used - plan.base.moves;
    plan.base.moves = Bytes::ZERO;
    for pool in &mut plan.pools {
        pool.was = None;
        pool.pages = pool.lasting();
        pool.idle = Pages(0);
    }
    for knob in &mut plan.knobs {
        knob.was = None;
    }
    if let Some(boot) = &mut plan.boot {
        // A container has no access to the boot loader.
        boot.grub_drop_in = false;
    }
    for service in &mut plan.services {
        (service.unit, service.user, service.configured_by) = (None, None, None);
        (service.runs, service.restart) = (false, false);
        let line =
            |p: &PageCount| format!("pod, resources.limits: {}", pod_line(p.page, p.bytes()));
        service.ways = sum_pages(service.pages()).iter().map(line).collect();
    }
    plan.notes = vec![format!(
        "restart the kubelet, so that the node offers the pages to pods: {RESTART_KUBELET}"
    )];
    plan.notes.extend(command_line(plan));
}
