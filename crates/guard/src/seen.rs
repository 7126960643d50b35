//! What a look at the host finds: the input of the policy. Values, no readers.

use std::time::Duration;

use hugeleaf_change::Memory;
use hugeleaf_sys::Pid;
use hugeleaf_units::Bytes;
use serde::{Deserialize, Serialize};

/// What distinguishes a program that runs from all others, those that get its process id later included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ProgramId {
    pub pid: u32,
    /// When that one started, in clock ticks since boot.
    pub start_ticks: u64,
}

/// A program that runs: a process and all that were forked from it without an execve, which share its memory.
#[derive(Debug, Clone, PartialEq)]
pub struct Seen {
    pub id: ProgramId,
    pub pids: Vec<Pid>,
    /// Name of the command (`comm`) of the first one.
    pub name: String,
    /// The last part of the program's path, where that differs from `name`.
    pub program_name: Option<String>,
    pub unit: Option<String>,
    pub cgroup: Option<String>,
    pub pod: Option<String>,
    pub uid: u32,
    pub user: Option<String>,
    pub is_own: bool,
    pub age: Duration,
    /// How much of one processor it used since the look before; `None` at the first look.
    pub cpu: Option<f64>,
    /// What its processes have resident, added up; what they share counts in each. Not more than a bound.
    pub resident: Bytes,
    /// What a closer look found, where one was taken at this look.
    pub closer: Option<Closer>,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Closer {
    /// Its memory on pages smaller than a huge page; what its processes share counts once.
    pub small: Bytes,
    pub large: Bytes,
    pub page_tables: Bytes,
    /// Whether it switched THP off for itself, or was started like that.
    pub thp_disabled: bool,
    /// Whether it was forked a short while ago by a process that goes on writing: a save.
    pub saving: bool,
    /// What its cgroup's memory limit leaves; `None` without a limit.
    pub room: Option<Bytes>,
    pub file: Option<FileId>,
    /// Bytes of it on base pages that it touches a second, where that was sampled.
    pub touched: Option<f64>,
    /// Memory that the guard moved and that is still mapped; `None` where it moved none.
    #[serde(skip)]
    pub moved: Option<Vec<Memory>>,
    pub unreadable: Option<String>,
}

impl Closer {
    pub fn held(&self) -> Bytes {
        self.small + self.large
    }
}

/// A program file: another one after an upgrade.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileId {
    pub device: u64,
    pub inode: u64,
    /// When it was changed, in seconds since 1970.
    pub changed: i64,
}

/// What a look says of the host itself. `None` of what this host does not report.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct HostSeen {
    /// The part of the time since the last look in which some task stalled for memory (PSI).
    pub stalled: Option<f64>,
    /// The same for the processor.
    pub waiting: Option<f64>,
    pub no_psi: bool,
    /// Pages scanned by direct reclaim since the last look, where there is no PSI.
    pub reclaimed: Option<u64>,
    pub is_short: bool,
    pub counts: bool,
    pub unable: Option<String>,
    pub kernel: String,
    pub huge: Bytes,
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct Observation {
    pub host: HostSeen,
    /// The programs, in no order.
    pub programs: Vec<Seen>,
}

/// The time, by three clocks that the policy is handed and never reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Now {
    /// Since the host was started, suspended time included: it never goes back.
    pub since_boot: Duration,
    /// Seconds since 1970, as the host has it: it may jump.
    pub wall: i64,
    /// The minute of the day in local time, 0 to 1439.
    pub minute: u16,
}

/// The UID of the Kubernetes pod of a cgroup (kubelet's `podUID`): both ways in which kubelet names cgroups, with
/// systemd (`…-pod12ab_34….slice`) and without (`/kubepods/burstable/pod12ab-34…`).
pub fn pod_of(cgroup: &str) -> Option<String> {
    let part = cgroup.split('/').rev().find(|part| part.contains("pod"))?;
    let name = part.strip_suffix(".slice").unwrap_or(part);
    let uid = &name[name.rfind("pod")? + 3..];
    let uid = uid.replace('_', "-");
    // 8-4-4-4-12 hexadecimal digits; static pods have 32 digits in a row.
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
        let fixed = "/kubepods/pod4a3b2c1d00112233445566778899aabb/x";
        assert!(pod_of(fixed).is_some());
        for text in [
            "",
            "/system.slice/podman.service",
            "/machine.slice/libpod-12.scope",
            "/pod",
        ] {
            assert_eq!(pod_of(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn never_panics(text in ".*", tail in "[a-z/._-]*pod[0-9a-f_-]*(.slice)?/?") {
            let _ = (pod_of(&text), pod_of(&tail));
        }
    }
}
