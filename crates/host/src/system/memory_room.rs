//! How much memory this very process may still take before a memory cgroup stops it
//! (Documentation/admin-guide/cgroup-v2.rst, cgroup-v1/memory.rst).

use std::path::Path;

use hugeleaf_units::Bytes;

use super::cgroups::{Mount, below, mounts_with, own_with};
use crate::fact::Fact;
use crate::parse::{ParseError, number};
use crate::root::Root;

/// What the tightest cgroup above this process leaves of its limit. Absent where none limits it.
pub fn memory_room(root: &Root) -> Fact<Bytes> {
    let mounts = root.read("proc/self/mounts");
    let own = root.read("proc/self/cgroup");
    let (Some(mounts), Some(own)) = (mounts.known(), own.known()) else {
        return Fact::Absent;
    };
    let own = own_with(own, "memory");
    let rooms = mounts_with(mounts, "memory").into_iter().flat_map(|mount| {
        let mine = own
            .iter()
            .filter(move |(version, _)| *version == mount.version);
        mine.flat_map(|(_, path)| rooms_above(root, &mount, path))
            .collect::<Vec<_>>()
    });
    rooms.min().into()
}

/// The rooms of a cgroup and all above it, where they have a limit. In a container the path may
/// be that of the host, and only the top is there.
fn rooms_above(root: &Root, mount: &Mount, path: &str) -> Vec<Bytes> {
    let (limit, usage, cache) = match mount.version {
        2 => ("memory.max", "memory.current", "inactive_file "),
        _ => (
            "memory.limit_in_bytes",
            "memory.usage_in_bytes",
            "total_inactive_file ",
        ),
    };
    let room = |cgroup: &Path| {
        let cgroup = cgroup.to_str()?.trim_end_matches('/');
        let limit = root
            .parse(below(&mount.at, cgroup, limit), limit_of)
            .get()
            .flatten()?;
        let usage = root.parse(below(&mount.at, cgroup, usage), number).get()?;
        // The usage counts the page cache too; what of it nobody has used lately is given up
        // before a limit is felt.
        let stat = root.read(below(&mount.at, cgroup, "memory.stat"));
        let cache = stat.known().and_then(|text| {
            let line = text.lines().find_map(|line| line.strip_prefix(cache))?;
            line.trim().parse().ok()
        });
        Some(limit - Bytes(usage.saturating_sub(cache.unwrap_or(0))))
    };
    Path::new(path).ancestors().filter_map(room).collect()
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

    fn host(files: &[(&str, &str)]) -> (tempfile::TempDir, Root) {
        let dir = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = dir.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let root = Root::at(dir.path());
        (dir, root)
    }

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
