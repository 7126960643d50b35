//! Limits of memory cgroups, versions 1 and 2, and what they leave
//! (Documentation/admin-guide/cgroup-v2.rst, cgroup-v1/memory.rst).

use hugeleaf_sys::Pid;
use hugeleaf_units::Bytes;

use super::cgroups::{Mount, below, each_below, mounts_with, own_and_above, own_with};
use crate::fact::Fact;
use crate::model::MemoryLimit;
use crate::parse::{ParseError, number};
use crate::root::Root;

/// What the tightest cgroup above this process leaves of its limit: what may be taken before any
/// page that somebody uses has to go. Absent where none limits it.
pub fn memory_room(root: &Root) -> Fact<Bytes> {
    let limits = above(root, "proc/self/cgroup");
    limits.iter().map(MemoryLimit::room).min().into()
}

/// The limits that a process is under: its cgroup's and those of all above it that have one, from its
/// own up. In a container the path may be that of the host, and only the top is there.
pub fn memory_limits_of(root: &Root, pid: Pid) -> Vec<MemoryLimit> {
    above(root, &format!("proc/{pid}/cgroup"))
}

/// Every cgroup of the host that limits memory, by path.
pub fn read_memory_limits(root: &Root) -> Vec<MemoryLimit> {
    let mut found = Vec::new();
    for mount in mounts(root) {
        each_below(root, &mount, "memory", &mut |path| {
            found.extend(limit(root, &mount, path));
        });
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    found
}

fn mounts(root: &Root) -> Vec<Mount> {
    let mounts = root.read("proc/self/mounts");
    mounts.map(|text| mounts_with(&text, "memory")).or_default()
}

fn above(root: &Root, file: &str) -> Vec<MemoryLimit> {
    let own = root.read(file).map(|text| own_with(&text, "memory"));
    let own = own.or_default();
    let mut limits = Vec::new();
    for mount in mounts(root) {
        limits.extend(own_and_above(&mount, &own).filter_map(|path| limit(root, &mount, &path)));
    }
    limits
}

/// The limit of one cgroup; `None` of one that has none, or whose files cannot be read.
fn limit(root: &Root, mount: &Mount, path: &str) -> Option<MemoryLimit> {
    let (limit, usage, caches) = match mount.version {
        2 => (
            "memory.max",
            "memory.current",
            ["inactive_file ", "active_file "],
        ),
        _ => (
            "memory.limit_in_bytes",
            "memory.usage_in_bytes",
            ["total_inactive_file ", "total_active_file "],
        ),
    };
    let file = |name: &str| below(&mount.at, path, name);
    let most = root.parse(file(limit), limit_of).get().flatten()?;
    let usage = root.parse(file(usage), number).get()?;
    let stat = root.read(file("memory.stat"));
    let [unused_cache, used_cache] = caches.map(|name| {
        let bytes = stat.known().and_then(|text| {
            let line = text.lines().find_map(|line| line.strip_prefix(name))?;
            line.trim().parse().ok()
        });
        Bytes(bytes.unwrap_or(0))
    });
    Some(MemoryLimit {
        version: mount.version,
        path: if path.is_empty() { "/" } else { path }.to_owned(),
        file: format!("{}{path}/{limit}", mount.at),
        limit: most,
        usage: Bytes(usage),
        unused_cache,
        used_cache,
    })
}

/// `max` is unlimited, and so is version 1's largest number, which no machine has in memory.
fn limit_of(text: &str) -> Result<Option<Bytes>, ParseError> {
    const NO_MACHINE: u64 = 1 << 60;
    match text.trim() {
        "max" => Ok(None),
        _ => Ok(Some(Bytes(number(text)?)).filter(|b| b.get() < NO_MACHINE)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::host;

    #[test]
    fn the_tightest_above_counts() {
        let (_dir, root) = host(&[
            (
                "proc/self/mounts",
                "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n",
            ),
            ("proc/self/cgroup", "0::/a/b\n"),
            ("sys/fs/cgroup/a/b/memory.max", "max\n"),
            ("sys/fs/cgroup/a/b/memory.current", "10\n"),
            ("sys/fs/cgroup/a/memory.max", "1000\n"),
            ("sys/fs/cgroup/a/memory.current", "400\n"),
        ]);
        assert_eq!(memory_room(&root), Fact::Known(Bytes(600)));
    }

    #[test]
    fn cache_that_nobody_uses_is_room() {
        let (_dir, root) = host(&[
            (
                "proc/self/mounts",
                "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n",
            ),
            ("proc/self/cgroup", "0::/a\n"),
            ("sys/fs/cgroup/a/memory.max", "1000\n"),
            ("sys/fs/cgroup/a/memory.current", "900\n"),
            (
                "sys/fs/cgroup/a/memory.stat",
                "anon 300\ninactive_file 500\nactive_file 100\n",
            ),
        ]);
        assert_eq!(memory_room(&root), Fact::Known(Bytes(600)));
    }

    #[test]
    fn all_limits_of_a_host_and_those_of_a_process() {
        let (_dir, root) = host(&[
            ("proc/self/mounts", "cgroup2 /cg cgroup2 rw 0 0\n"),
            ("proc/7/cgroup", "0::/a/b\n"),
            ("cg/cgroup.subtree_control", "memory\n"),
            ("cg/a/cgroup.subtree_control", "cpu memory\n"),
            ("cg/a/memory.max", "1000\n"),
            ("cg/a/memory.current", "900\n"),
            ("cg/a/memory.stat", "inactive_file 50\nactive_file 20\n"),
            ("cg/a/b/memory.max", "2000\n"),
            ("cg/a/b/memory.current", "800\n"),
            ("cg/a/c/memory.max", "max\n"),
            ("cg/d/memory.max", "3000\n"),
            ("cg/d/memory.current", "1\n"),
        ]);
        let shown = |limits: &[MemoryLimit]| -> Vec<(String, u64)> {
            let one = |l: &MemoryLimit| (l.path.clone(), l.room_at_most().get());
            limits.iter().map(one).collect()
        };
        let [a, b, d] = [("/a", 170), ("/a/b", 1200), ("/d", 2999)].map(|(p, r)| (p.to_owned(), r));
        assert_eq!(
            shown(&memory_limits_of(&root, Pid(7))),
            [b.clone(), a.clone()]
        );
        assert_eq!(shown(&read_memory_limits(&root)), [a, b, d]);
        assert_eq!(memory_limits_of(&root, Pid(8)), []);
    }

    #[test]
    fn version_1_and_no_limit() {
        let files = [
            (
                "proc/self/mounts",
                "cgroup /cg/memory cgroup rw,memory 0 0\n",
            ),
            ("proc/self/cgroup", "5:memory:/x\n"),
            ("cg/memory/x/memory.limit_in_bytes", "9223372036854771712\n"),
            ("cg/memory/x/memory.usage_in_bytes", "400\n"),
        ];
        assert_eq!(memory_room(&host(&files).1), Fact::Absent);
        assert_eq!(memory_room(&host(&[]).1), Fact::Absent);
        let (_dir, limited) = host(&[
            files[0],
            files[1],
            ("cg/memory/x/memory.limit_in_bytes", "300\n"),
            files[3],
        ]);
        // Over its limit: no room, not a huge one.
        assert_eq!(memory_room(&limited), Fact::Known(Bytes::ZERO));
    }
}
