//! Result of a scan: the input of the policy. Values only, no readers.

use std::time::Duration;

use hugeleaf_host::ForkTreeId;
use hugeleaf_mover::ProcessRanges;
use hugeleaf_sys::Pid;
use hugeleaf_units::Bytes;
use serde::{Deserialize, Serialize};

/// A running process tree: a process and all processes forked from it without an execve, which share its memory.
#[derive(Debug, Clone, PartialEq)]
pub struct ObservedTree {
    pub id: ForkTreeId,
    pub pids: Vec<Pid>,
    /// Command name (`comm`) of the first process.
    pub name: String,
    /// Last part of the program's path, if it differs from `name`.
    pub program_name: Option<String>,
    pub unit: Option<String>,
    pub cgroup: Option<String>,
    pub pod: Option<String>,
    pub uid: u32,
    pub user: Option<String>,
    pub is_own: bool,
    pub age: Duration,
    /// Processors used since the previous scan; `None` at the first scan.
    pub cpu: Option<f64>,
    /// Upper bound of the resident memory: the sum over processes, in which shared memory counts several times.
    pub resident: Bytes,
    /// Result of a detailed scan, if one was made.
    pub closer: Option<TreeDetail>,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct TreeDetail {
    /// Memory on pages smaller than a huge page; memory shared by its processes counts once.
    pub small: Bytes,
    pub large: Bytes,
    /// The part of `small` that no promotion can move: shared memory whose address and offset differ modulo the huge page.
    #[serde(default)]
    pub misaligned: Bytes,
    pub page_tables: Bytes,
    /// True if it disabled THP for itself, or was started with THP disabled.
    pub thp_disabled: bool,
    /// True if a running process forked it recently and keeps writing: a save.
    pub saving: bool,
    /// Memory left below its cgroup's limit; `None` without a limit.
    pub room: Option<Bytes>,
    pub file: Option<FileId>,
    /// Bytes of base-page memory touched per second, if sampled.
    pub touched: Option<f64>,
    /// Memory that the guard promoted and that is still mapped; `None` if it promoted none.
    #[serde(skip)]
    pub moved: Option<Vec<ProcessRanges>>,
    pub unreadable: Option<String>,
}

impl TreeDetail {
    pub fn held(&self) -> Bytes {
        self.small + self.large
    }
}

/// Identity of a program file; differs after an upgrade.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileId {
    pub device: u64,
    pub inode: u64,
    /// Time of the last change, in seconds since 1970.
    pub changed: i64,
}

/// State of the host in a scan. Values that the host does not report are `None`.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct HostSnapshot {
    /// Share of time since the last scan in which some task stalled for memory (PSI).
    pub stalled: Option<f64>,
    /// Share of time in which some task waited for a processor (PSI).
    pub waiting: Option<f64>,
    pub no_psi: bool,
    /// Pages scanned by direct reclaim since the last scan, on hosts without PSI.
    pub reclaimed: Option<u64>,
    pub is_short: bool,
    pub counts: bool,
    pub unable: Option<String>,
    pub kernel: String,
    pub huge: Bytes,
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct Observation {
    pub host: HostSnapshot,
    /// The process trees, unordered.
    pub programs: Vec<ObservedTree>,
}

/// The time by three clocks, passed to the policy, which reads no clock itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Now {
    /// Time since boot including suspend; never goes back.
    pub since_boot: Duration,
    /// Seconds since 1970 by the host's clock, which may jump.
    pub wall: i64,
    /// Minute of the day in local time, 0 to 1439.
    pub minute: u16,
}

/// Returns the UID of a cgroup's Kubernetes pod (kubelet's `podUID`). Kubelet names cgroups in two forms: with
/// systemd (`…-pod12ab_34….slice`) and without (`/kubepods/burstable/pod12ab-34…`). Below the first of them, and
/// below a service or a scope, users and containers name cgroups as they like.
pub fn pod_of(cgroup: &str) -> Option<String> {
    in_pod(cgroup).map(|(uid, _)| uid)
}

/// Returns the UID of a cgroup's pod, and the names of the cgroups below the pod's.
fn in_pod(cgroup: &str) -> Option<(String, impl Iterator<Item = &str>)> {
    let is_unit = |part: &&str| part.ends_with(".service") || part.ends_with(".scope");
    let mut parts = cgroup.split('/');
    let uid = parts
        .by_ref()
        .take_while(|part| !is_unit(part))
        .find_map(pod_in)?;
    Some((uid, parts))
}

/// Returns the ID of the container in a pod's cgroup, as the runtime knows it; `None` for other cgroups. The runtime names the
/// cgroup directly below the pod's `cri-containerd-ID.scope`, `crio-ID.scope` or `ID`. Its own helpers (`crio-conmon-ID.scope`)
/// are no containers.
pub fn container_of(cgroup: &str) -> Option<String> {
    let (_, mut below) = in_pod(cgroup)?;
    let name = below.next()?;
    let name = name.strip_suffix(".scope").unwrap_or(name);
    let (runtime, id) = name.rsplit_once('-').unwrap_or(("", name));
    let is_id = id.len() == 64 && id.chars().all(|c| matches!(c, '0'..='9' | 'a'..='f'));
    (is_id && !runtime.ends_with("conmon")).then(|| id.to_owned())
}

fn pod_in(part: &str) -> Option<String> {
    let name = part.strip_suffix(".slice").unwrap_or(part);
    let uid = &name[name.rfind("pod")? + 3..];
    let uid = uid.replace('_', "-");
    // 8-4-4-4-12 hexadecimal digits; static pods have 32 digits without separators.
    let digits = uid.chars().filter(|c| *c != '-').count();
    let is_uid = digits == 32 && uid.chars().all(|c| c == '-' || c.is_ascii_hexdigit());
    is_uid.then_some(uid)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn pods() {
        let uid = "0b3c5a6e-1111-2222-3333-444455556666";
        let slice = "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod0b3c5a6e_1111_2222_3333_444455556666.slice/cri-containerd-9f.scope";
        assert_eq!(pod_of(slice).as_deref(), Some(uid));
        let plain = format!("/kubepods/besteffort/pod{uid}/9f");
        assert_eq!(pod_of(&plain).as_deref(), Some(uid));
        let below = format!("{plain}/kubepods/pod4a3b2c1d00112233445566778899aabb");
        assert_eq!(pod_of(&below).as_deref(), Some(uid));
        let fixed = "/kubepods/pod4a3b2c1d00112233445566778899aabb/x";
        assert!(pod_of(fixed).is_some());
        for text in [
            "",
            "/system.slice/podman.service",
            "/machine.slice/libpod-12.scope",
            "/pod",
            &format!("/user.slice/user-7.slice/user@7.service/kubepods/pod{uid}"),
        ] {
            assert_eq!(pod_of(text), None, "{text}");
        }
    }

    /// Cgroups as containerd, CRI-O and Docker name them, with systemd and without, and as a pod with a cgroup namespace of
    /// its own sees them.
    #[test]
    fn containers() {
        let id = "9f".repeat(32);
        let slice = "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod0b3c5a6e_1111_2222_3333_444455556666.slice";
        let plain = "/kubepods/besteffort/pod0b3c5a6e-1111-2222-3333-444455556666";
        for cgroup in [
            format!("{slice}/cri-containerd-{id}.scope"),
            format!("{slice}/crio-{id}.scope/container"),
            format!("{slice}/docker-{id}.scope/init/worker"),
            format!("/../..{slice}/cri-containerd-{id}.scope"),
            format!("{plain}/{id}"),
        ] {
            assert_eq!(container_of(&cgroup), Some(id.clone()), "{cgroup}");
        }
        for cgroup in [
            slice.to_owned(),
            format!("{slice}/crio-conmon-{id}.scope"),
            format!("{slice}/cri-containerd-9f.scope"),
            format!("{plain}/{}", id.to_uppercase()),
            // A name inside the container is the container's own.
            format!("{plain}/other/{id}"),
            format!("/system.slice/docker-{id}.scope"),
            format!("/user.slice/user@7.service{plain}/{id}"),
        ] {
            assert_eq!(container_of(&cgroup), None, "{cgroup}");
        }
    }

    proptest! {
        #[test]
        fn never_panics(text in ".*", tail in "[a-z/._-]*pod[0-9a-f_-]*(.slice)?/?") {
            let _ = (pod_of(&text), pod_of(&tail), container_of(&text), container_of(&tail));
        }
    }
}
