//! Cgroups with limits: on memory in version 1 or 2, and of any controller in version 1.

use std::ffi::CString;
use std::path::{Path, PathBuf};

use hugeleaf_host::MountLine;
use hugeleaf_host::limits::mounts_in;
use hugeleaf_units::Bytes;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

use crate::{eventually, not_run};

/// Source in `/proc/self/mountinfo` of a hierarchy that a test has mounted.
const SOURCE: &str = "hugeleaf-test";

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

/// A version 1 cgroup; removed when dropped, with its hierarchy if that was mounted for it.
pub struct ControllerCgroup {
    folder: PathBuf,
    mounted: Option<tempfile::TempDir>,
}

impl ControllerCgroup {
    /// Creates a cgroup in the mounted hierarchy of a controller, or mounts one. Returns `None`, and prints the reason, where
    /// that is not possible.
    pub fn new(test: &str, controller: &str) -> Option<ControllerCgroup> {
        let mounts = mounts_in(&mountinfo(), controller);
        let known = mounts.into_iter().find(|mount| mount.version == 1);
        let mut mounted = None;
        let top = match known {
            Some(known) => PathBuf::from(known.at),
            None => {
                let folder = tempfile::tempdir().unwrap();
                let options = CString::new(controller).unwrap();
                let flags = MountFlags::empty();
                if mount(SOURCE, folder.path(), "cgroup", flags, options.as_c_str()).is_err() {
                    not_run(
                        test,
                        &format!("needs the {controller} controller, version 1"),
                    );
                    return None;
                }
                mounted.insert(folder).path().to_owned()
            }
        };
        let folder = top.join(format!("{SOURCE}-{}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        Some(ControllerCgroup { folder, mounted })
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    pub fn set(&self, file: &str, value: u64) {
        std::fs::write(self.folder.join(file), value.to_string()).unwrap();
    }

    pub fn read(&self, file: &str) -> String {
        std::fs::read_to_string(self.folder.join(file)).unwrap()
    }
}

impl Drop for ControllerCgroup {
    fn drop(&mut self) {
        // Its last process may still be exiting.
        eventually(|| {
            std::fs::remove_dir(&self.folder).map_err(|e| format!("{}: {e}", self.folder.display()))
        });
        if let Some(folder) = self.mounted.take() {
            unmount(folder.path(), UnmountFlags::empty()).unwrap();
        }
    }
}

/// Removes the hierarchies that killed tests have left. The caller holds the host alone.
pub(crate) fn remove_leftovers() {
    for at in leftovers() {
        for group in std::fs::read_dir(&at).into_iter().flatten().flatten() {
            if group.path().is_dir() {
                let _ = std::fs::remove_dir(group.path());
            }
        }
        let _ = unmount(&at, UnmountFlags::empty());
        let _ = std::fs::remove_dir(&at);
    }
}

/// Returns the mount points of the hierarchies that tests have mounted.
fn leftovers() -> Vec<String> {
    let text = mountinfo();
    let lines = text.lines().filter_map(MountLine::parse);
    let ours = lines.filter(|line| line.source == SOURCE);
    ours.map(|line| line.at.to_owned()).collect()
}

fn mountinfo() -> String {
    std::fs::read_to_string("/proc/self/mountinfo").unwrap()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hierarchy_of_a_killed_test_is_removed() {
        let test = "the_hierarchy_of_a_killed_test_is_removed";
        let Some(_alone) = crate::host_lock::alone_as_root(test) else {
            return;
        };
        let Some(cgroup) = ControllerCgroup::new(test, "hugetlb") else {
            return;
        };
        if leftovers().is_empty() {
            return not_run(test, "needs a controller that is not mounted");
        }
        std::mem::forget(cgroup);
        remove_leftovers();
        assert_eq!(leftovers(), [""; 0]);
    }
}
