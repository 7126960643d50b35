//! Memory that this process may take in a cgroup it shares, before the kernel kills a process there.

use hugeleaf_sys::{Pid, own_pid};
use hugeleaf_units::Bytes;

use super::cgroup_paths::{below, mounts};
use super::memory;
use super::placement::own_and_above;
use crate::model::MemoryLimit;
use crate::parse_helpers::number;
use crate::root::Root;

/// A memory limit that this process shares with others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SharedLimit {
    pub limit: MemoryLimit,
    /// True if the OOM killer kills all processes of the cgroup together (`memory.oom.group`).
    pub oom_group: bool,
}

impl SharedLimit {
    /// Returns the memory that may be taken if page cache is reclaimed for it.
    pub fn room(&self) -> Bytes {
        self.limit.room_at_most()
    }
}

/// Returns the tightest memory limit that this process shares with others. `None` if there is none.
pub fn read_shared_limit(root: &Root) -> Option<SharedLimit> {
    let text = root.read("proc/self/cgroup").or_default();
    let mut guests: Vec<SharedLimit> = Vec::new();
    for mount in mounts(root, "memory") {
        let mut oom_group = false;
        for path in own_and_above(root, &mount, &text, "memory") {
            let group = root.parse(below(&mount.at, &path, "memory.oom.group"), number);
            oom_group |= group.get() == Some(1);
            let limits = memory::of_cgroup(root, &mount, &path).into_iter();
            let ends = limits.filter(|limit| !limit.only_throttles);
            let shared = ends.filter(|_| is_shared(root, &below(&mount.at, &path, "cgroup.procs")));
            guests.extend(shared.map(|limit| SharedLimit { limit, oom_group }));
        }
    }
    guests.into_iter().min_by_key(SharedLimit::room)
}

/// Returns true if a cgroup has other processes too. It also does if it does not list this process, as one above its own.
fn is_shared(root: &Root, processes: &str) -> bool {
    let processes = root.read(processes).or_default();
    let mut pids = processes.lines().filter_map(|line| line.parse().ok());
    !pids.any(|pid| Pid(pid) == own_pid()) || processes.lines().count() > 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::host;

    /// Returns the guest for a limit of 1000 bytes on `/a`, with this process in `own` and `more` files.
    fn guest(own: &str, more: &[(&str, &str)]) -> Option<(u64, bool)> {
        let me = own_pid().0;
        let (cgroup, own) = (format!("proc/{me}/cgroup"), format!("0::{own}\n"));
        let mut files = vec![
            ("proc/self/mounts", "cgroup2 /cg cgroup2 rw 0 0\n"),
            ("proc/self/cgroup", own.as_str()),
            (&cgroup, &own),
            ("cg/a/memory.max", "1000\n"),
            ("cg/a/memory.current", "900\n"),
            ("cg/a/memory.stat", "inactive_file 50\nactive_file 20\n"),
        ];
        files.extend(more);
        let found = read_shared_limit(&host(&files).1);
        found.map(|guest| (guest.room().get(), guest.oom_group))
    }

    #[test]
    fn who_shares_a_limit_is_a_guest() {
        let me = own_pid();
        let alone = format!("{me}\n");
        let with_others = format!("1\n{me}\n");
        let procs = "cg/a/cgroup.procs";
        assert_eq!(guest("/a", &[(procs, &alone)]), None);
        assert_eq!(guest("/a", &[(procs, &with_others)]), Some((170, false)));
        // The limit is of a cgroup above, and the processes below it are unknown.
        let deeper = ("cg/a/b/cgroup.procs", alone.as_str());
        assert_eq!(guest("/a/b", &[deeper, (procs, "")]), Some((170, false)));
        assert_eq!(guest("/", &[]), None);
    }

    #[test]
    fn a_group_ends_together() {
        let procs = ("cg/a/cgroup.procs", "1\n2\n");
        for (file, value, together) in [
            ("cg/a/memory.oom.group", "1\n", true),
            ("cg/a/memory.oom.group", "0\n", false),
            ("cg/a/b/memory.oom.group", "1\n", true),
            // A file above the limit belongs to another limit.
            ("cg/memory.oom.group", "1\n", false),
        ] {
            let found = guest("/a/b", &[procs, (file, value)]);
            assert_eq!(found, Some((170, together)), "{file} {value}");
        }
    }
}
