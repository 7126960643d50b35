//! This process as a guest in somebody else's cgroup: what it may take there before the kernel ends a process for it.

use hugeleaf_sys::{Pid, own_pid};
use hugeleaf_units::Bytes;

use crate::limits;
use crate::model::MemoryLimit;
use crate::parse;
use crate::root::Root;

/// A memory limit that this process shares with others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Guest {
    pub limit: MemoryLimit,
    /// Whether the end of one process for lack of memory is the end of all (`memory.oom.group`).
    pub all_end_together: bool,
}

impl Guest {
    /// What may be taken where page cache is given up for it.
    pub fn room(&self) -> Bytes {
        self.limit.room_at_most()
    }
}

/// The tightest memory limit that this process shares with others; `None` where there is none.
pub fn read_guest(root: &Root) -> Option<Guest> {
    let limits = limits::of(root, own_pid()).memory;
    let ends = limits.iter().filter(|limit| !limit.only_throttles);
    let shared = ends.filter(|limit| is_shared(root, limit));
    let limit = shared.min_by_key(|limit| limit.room_at_most())?.clone();
    let all_end_together = folders(root, &limit).any(|folder| {
        let group = root.parse(format!("{folder}/memory.oom.group"), parse::number);
        group.get() == Some(1)
    });
    Some(Guest {
        limit,
        all_end_together,
    })
}

/// The folder of a limit's cgroup, below the root.
fn folder_of(limit: &MemoryLimit) -> &str {
    let folder = limit.file.rsplit_once('/').map_or("", |(folder, _)| folder);
    folder.trim_start_matches('/')
}

/// The folders of the cgroups between this process and a limit, the limit's included.
fn folders(root: &Root, limit: &MemoryLimit) -> impl Iterator<Item = String> {
    let own = root.read("proc/self/cgroup").or_default();
    let path = own.lines().find_map(|line| line.strip_prefix("0::"));
    // In a container the path may be that of the host, and then only the limit's own folder is there.
    let rest = path.and_then(|path| path.strip_prefix(limit.path.trim_end_matches('/')));
    let at = folder_of(limit).to_owned();
    let parts = rest
        .unwrap_or_default()
        .split('/')
        .filter(|p| !p.is_empty());
    let below = parts.scan(at.clone(), |folder, part| {
        *folder = format!("{folder}/{part}");
        Some(folder.clone())
    });
    std::iter::once(at.clone()).chain(below.collect::<Vec<_>>())
}

/// Whether other processes are under a limit too: it is that of a cgroup above, or others are in it.
fn is_shared(root: &Root, limit: &MemoryLimit) -> bool {
    let processes = root.read(format!("{}/cgroup.procs", folder_of(limit)));
    let processes = processes.or_default();
    let mut pids = processes.lines().filter_map(|line| line.parse().ok());
    !pids.any(|pid| Pid(pid) == own_pid()) || processes.lines().count() > 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::host;

    /// A limit of 1000 bytes of `/a`, this process in `/a/b` or `/a`, and what else there is.
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
        let found = read_guest(&host(&files).1);
        found.map(|guest| (guest.room().get(), guest.all_end_together))
    }

    #[test]
    fn who_shares_a_limit_is_a_guest() {
        let me = own_pid();
        let alone = format!("{me}\n");
        let with_others = format!("1\n{me}\n");
        let procs = "cg/a/cgroup.procs";
        assert_eq!(guest("/a", &[(procs, &alone)]), None);
        assert_eq!(guest("/a", &[(procs, &with_others)]), Some((170, false)));
        // A limit of a cgroup above, and nobody knows who else is below that.
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
            // Above the limit it is another limit's.
            ("cg/memory.oom.group", "1\n", false),
        ] {
            let found = guest("/a/b", &[procs, (file, value)]);
            assert_eq!(found, Some((170, together)), "{file} {value}");
        }
    }
}
