//! Captures the host in the state of a test. Fixtures are made of the captures of guests
//! (fixtures/README.md).

use std::fs::File;
use std::path::{Path, PathBuf};

use hugeleaf_host::process::pagemap_text::write_pages;
use hugeleaf_sys::{Kernel, PageScanDetail};
use hugeleaf_units::Range;

use crate::kernel::{smaps, text};

/// Captured folders of the host, and single files.
const FOLDERS: [&str; 2] = [
    "sys/kernel/mm/transparent_hugepage",
    "sys/kernel/mm/hugepages",
];
const FILES: [&str; 19] = [
    "proc/buddyinfo",
    "proc/cmdline",
    "proc/meminfo",
    "proc/self/auxv",
    "proc/self/cgroup",
    "proc/self/limits",
    "proc/self/mounts",
    "proc/sys/kernel/arch",
    "proc/sys/kernel/osrelease",
    "proc/sys/kernel/shmall",
    "proc/sys/kernel/shmmax",
    "proc/sys/vm/compaction_proactiveness",
    "proc/sys/vm/hugetlb_shm_group",
    "proc/sys/vm/min_free_kbytes",
    "proc/sys/vm/overcommit_memory",
    "proc/sys/vm/overcommit_ratio",
    "sys/devices/system/node/has_memory",
    "sys/devices/system/node/online",
    "sys/fs/cgroup/cgroup.controllers",
];
/// Files in those folders that hugeleaf does not read.
const UNREAD: [&str; 4] = ["stats", "demote", "demote_size", "nr_hugepages_mempolicy"];
/// Captured files of a process.
const OF_PROCESS: [&str; 7] = [
    "cgroup",
    "cmdline",
    "limits",
    "mountinfo",
    "smaps",
    "stat",
    "status",
];

/// Captures the host as `name`, with these processes, if a guest requests it.
pub fn capture(name: &str, pids: &[u32]) {
    let Some(folder) = std::env::var_os("HUGELEAF_CAPTURES") else {
        return;
    };
    let captured = Captured(PathBuf::from(folder).join(name));
    FILES.iter().for_each(|file| captured.file(file));
    FOLDERS.iter().for_each(|folder| captured.folder(folder));
    for node in crate::kernel::nodes() {
        captured.folder(&format!("sys/devices/system/node/node{node}/hugepages"));
    }
    captured.groups(Path::new("/sys/fs/cgroup"), pids);
    pids.iter().for_each(|pid| captured.process(*pid));
}

struct Captured(PathBuf);

impl Captured {
    fn write(&self, relative: &str, bytes: &[u8]) {
        let to = self.0.join(relative);
        std::fs::create_dir_all(to.parent().unwrap()).unwrap();
        std::fs::write(to, bytes).unwrap();
    }

    /// Captures a file if it is readable: some can only be written.
    fn file(&self, relative: &str) {
        if let Ok(bytes) = std::fs::read(Path::new("/").join(relative)) {
            self.write(relative, &without_repository(bytes));
        }
    }

    /// Captures all files of a folder that hugeleaf reads.
    fn folder(&self, relative: &str) {
        let Ok(entries) = std::fs::read_dir(Path::new("/").join(relative)) else {
            return;
        };
        for entry in entries.flatten() {
            let name = entry.file_name().into_string().unwrap();
            let inside = format!("{relative}/{name}");
            match entry.file_type().unwrap().is_dir() {
                _ if UNREAD.contains(&name.as_str()) => {}
                true => self.folder(&inside),
                false => self.file(&inside),
            }
        }
    }

    /// Captures the limits of control groups: of the processes' groups, or of all without processes.
    fn groups(&self, folder: &Path, pids: &[u32]) {
        let Ok(entries) = std::fs::read_dir(folder) else {
            return;
        };
        for entry in entries.flatten() {
            let path = entry.path();
            let name = entry.file_name().into_string().unwrap();
            if entry.file_type().unwrap().is_dir() {
                if pids.is_empty() || pids.iter().any(|pid| is_inside(*pid, &path)) {
                    self.groups(&path, pids);
                }
            } else if name.starts_with("hugetlb.") || name == "cgroup.subtree_control" {
                self.file(path.strip_prefix("/").unwrap().to_str().unwrap());
            }
        }
    }

    fn process(&self, pid: u32) {
        let folder = format!("proc/{pid}");
        for name in OF_PROCESS {
            self.file(&format!("{folder}/{name}"));
        }
        for task in std::fs::read_dir(format!("/{folder}/task"))
            .into_iter()
            .flatten()
            .flatten()
        {
            let task = task.file_name().into_string().unwrap();
            self.file(&format!("{folder}/task/{task}/children"));
        }
        self.write(&format!("{folder}/pages"), pages(pid).as_bytes());
    }
}

/// Removes the path of this repository from a capture.
fn without_repository(bytes: Vec<u8>) -> Vec<u8> {
    match String::from_utf8(bytes) {
        Ok(text) => {
            let lab = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
            let repository = lab.parent().unwrap().to_str().unwrap();
            text.replace(repository, "/hugeleaf").into_bytes()
        }
        Err(binary) => binary.into_bytes(),
    }
}

/// Returns true if a process is in a control group or in one below it.
fn is_inside(pid: u32, group: &Path) -> bool {
    let inside = group.strip_prefix("/sys/fs/cgroup").unwrap();
    let own = text(format!("/proc/{pid}/cgroup"));
    let mut paths = own.lines().filter_map(|line| line.rsplit(':').next());
    paths.any(|path| Path::new(path.trim_start_matches('/')).starts_with(inside))
}

/// Returns the page map as text.
fn pages(pid: u32) -> String {
    let file = File::open(format!("/proc/{pid}/pagemap")).unwrap();
    let kernel = Kernel::new();
    let maps = smaps(pid).into_iter().filter_map(|mapping| {
        let range = Range::new(mapping.start, mapping.end).ok()?;
        kernel
            .page_map(&file, range, PageScanDetail::Exclusive)
            .ok()
    });
    write_pages(&maps.flat_map(|map| map.runs).collect::<Vec<_>>())
}
