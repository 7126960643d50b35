//! A cgroup with a memory limit, in cgroup version 1 or 2.

use std::path::{Path, PathBuf};

use hugeleaf_units::Bytes;

/// A memory cgroup, removed when dropped; its processes return to the root cgroup.
pub struct MemoryCgroup {
    folder: PathBuf,
    top: PathBuf,
    limit: &'static str,
}

impl MemoryCgroup {
    /// Creates a cgroup with a limit; `None` without a memory controller.
    pub fn new(name: &str, limit: Bytes) -> Option<MemoryCgroup> {
        let first = Path::new("/sys/fs/cgroup/memory");
        let (top, file) = match first.is_dir() {
            true => (first, "memory.limit_in_bytes"),
            false => (Path::new("/sys/fs/cgroup"), "memory.max"),
        };
        let cgroup = MemoryCgroup {
            folder: top.join(name),
            top: top.to_owned(),
            limit: file,
        };
        let _ = std::fs::create_dir(&cgroup.folder);
        std::fs::write(cgroup.folder.join(file), limit.get().to_string()).ok()?;
        Some(cgroup)
    }

    pub fn add(&self, pid: u32) {
        std::fs::write(self.processes(), pid.to_string()).unwrap();
    }

    /// Returns the file to which a process writes `0` to join.
    pub fn processes(&self) -> PathBuf {
        self.folder.join("cgroup.procs")
    }

    /// Returns the file of the limit.
    pub fn limit(&self) -> PathBuf {
        self.folder.join(self.limit)
    }
}

impl Drop for MemoryCgroup {
    fn drop(&mut self) {
        let inside = std::fs::read_to_string(self.processes()).unwrap_or_default();
        for pid in inside.lines() {
            let _ = std::fs::write(self.top.join("cgroup.procs"), pid);
        }
        let _ = std::fs::remove_dir(&self.folder);
    }
}
