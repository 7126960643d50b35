//! The amount of memory that a benchmark may take.

use hugeleaf_host::Root;
use hugeleaf_host::limits;
use hugeleaf_host::system::available;
use hugeleaf_units::Bytes;

/// Returns half of the memory available without reclaim, and of the room in the tightest memory
/// cgroup. `None` if unknown. Reserved huge pages are excluded.
pub fn memory_limit(root: &Root) -> Option<Bytes> {
    let available = available(root).get()?;
    let within = limits::read_limits(root, "self")
        .memory_room()
        .get()
        .unwrap_or(available);
    Some(Bytes(available.min(within).get() / 2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_the_less() {
        let dir = tempfile::tempdir().unwrap();
        let put = |path: &str, text: &str| {
            let path = dir.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        let root = Root::at(dir.path());
        assert_eq!(memory_limit(&root), None);
        put("proc/meminfo", "MemAvailable:  1024 kB\n");
        assert_eq!(memory_limit(&root), Some(Bytes::from_kib(512)));
        put("proc/self/mounts", "cgroup2 /cg cgroup2 rw 0 0\n");
        put("proc/self/cgroup", "0::/a\n");
        put("cg/a/memory.max", "204800\n");
        put("cg/a/memory.current", "0\n");
        assert_eq!(memory_limit(&root), Some(Bytes::from_kib(100)));
    }
}
