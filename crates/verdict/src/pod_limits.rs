//! Hugetlb limits that a kubelet sets, and the remedy for a program that they stop.
//!
//! The kubelet limits each pod and container to the pages that it requests, and for a minute after its start the cgroup of all
//! pods to the pools that it found then (`enforceNodeAllocatable`, kubernetes #72307). Without a request, the limit is 0.

use hugeleaf_host::{Host, HugetlbCgroup, HugetlbLimit, ProcessMemoryLimits};
use hugeleaf_units::{Bytes, PageSize, Pages};

use crate::advice;

/// Returns all limits on pages of a size, with their cgroups.
fn of_size(
    cgroups: &[HugetlbCgroup],
    size: PageSize,
) -> impl Iterator<Item = (&HugetlbCgroup, &HugetlbLimit)> {
    let limits = move |cgroup| of_cgroup(cgroup, size).map(|limit| (cgroup, limit));
    cgroups.iter().filter_map(limits)
}

fn of_cgroup(cgroup: &HugetlbCgroup, size: PageSize) -> Option<&HugetlbLimit> {
    cgroup.hugetlb.iter().find(|limit| limit.size == size)
}

/// True if the limit allows neither faults nor reservations.
pub(crate) fn is_shut(limit: &HugetlbLimit) -> bool {
    let none = |limit: Option<Option<Bytes>>| limit.flatten() == Some(Bytes::ZERO);
    none(limit.fault_limit.get())
        && (none(limit.reservation_limit.get()) || limit.reservation_limit.is_absent())
}

/// True for the cgroup of all pods.
pub(crate) fn is_of_all_pods(cgroup: &HugetlbCgroup) -> bool {
    let name = cgroup.path.rsplit('/').next().unwrap_or_default();
    let name = name.trim_end_matches(".slice");
    name == "kubepods" || name.ends_with("-kubepods")
}

/// Returns the cgroup of all pods and its limit, if it is below the pool: 0 although pages are free, or less than the pool
/// has.
pub fn below_pool(host: &Host, size: PageSize) -> Option<(&HugetlbCgroup, Bytes)> {
    let pool = host.pool(size)?;
    let limit_of = |(cgroup, limit): (_, &HugetlbLimit)| {
        let allowed = limit.fault_limit.get().flatten()?;
        let is_below = match allowed {
            Bytes::ZERO => is_shut(limit) && pool.available() > Pages(0),
            some => some < pool.persistent().in_bytes(size),
        };
        is_below.then_some((cgroup, allowed))
    };
    let cgroups = host.cgroups.entries();
    let mut all = of_size(cgroups, size).filter(|(cgroup, _)| is_of_all_pods(cgroup));
    all.find_map(limit_of)
}

/// The reason why the kubelet's limits stop a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PodLimitCause {
    /// An in-place resize has set the pod's limits to 0 (kubernetes #141991). The containers may have this much.
    Resized(Bytes),
    /// The pod requests too few pages, and the kubelet started before the pool had its present size.
    BeforePool,
    /// The pod requests no page of this size.
    NoRequest,
    /// The pod requests too few pages.
    SmallRequest,
}

impl PodLimitCause {
    /// Returns the cause, given the limits of a process from its own cgroup up.
    pub fn of(host: &Host, limits: &ProcessMemoryLimits, size: PageSize) -> PodLimitCause {
        let own = of_size(&limits.hugetlb, size).collect::<Vec<_>>();
        let shut = own.iter().position(|(_, limit)| is_shut(limit));
        let below = &own[..shut.unwrap_or(0)];
        let given = below
            .iter()
            .filter_map(|(_, limit)| limit.fault_limit.get().flatten());
        let given = given.filter(|given| *given > Bytes::ZERO);
        match (given.min(), shut) {
            (Some(given), Some(at)) if !is_of_all_pods(own[at].0) => PodLimitCause::Resized(given),
            _ if below_pool(host, size).is_some() || host.unseen_by_kubelet.contains(&size) => {
                PodLimitCause::BeforePool
            }
            (_, None) if !has_zero_faults(&own) => PodLimitCause::SmallRequest,
            _ => PodLimitCause::NoRequest,
        }
    }

    /// Describes the cause, as the end of a sentence about a limit that is too low.
    pub const fn text(self) -> &'static str {
        match self {
            PodLimitCause::Resized(_) => "an in-place resize of the pod set its limits to 0",
            PodLimitCause::BeforePool => {
                "the pod requests too few pages, and the kubelet started before the pool had its \
                 present size"
            }
            PodLimitCause::NoRequest => "the pod requests no pages of this size",
            PodLimitCause::SmallRequest => "the pod requests fewer pages",
        }
    }

    /// Returns the remedy, with the line of the pod's YAML. The program needs that much.
    pub fn remedy(self, size: PageSize, needs: Bytes, program: &str) -> String {
        match self {
            PodLimitCause::Resized(given) => advice::of_resized_pod(size, given),
            PodLimitCause::BeforePool => format!(
                "# on the node: systemctl restart kubelet; then {}",
                advice::of_container(size, Some(needs), program).trim_start_matches("# ")
            ),
            PodLimitCause::NoRequest | PodLimitCause::SmallRequest => {
                advice::of_container(size, Some(needs), program)
            }
        }
    }
}

fn has_zero_faults(limits: &[(&HugetlbCgroup, &HugetlbLimit)]) -> bool {
    let mut limits = limits.iter();
    limits.any(|(_, limit)| limit.fault_limit.get().flatten() == Some(Bytes::ZERO))
}
