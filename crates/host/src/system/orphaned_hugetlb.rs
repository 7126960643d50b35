//! Pool pages that no running process holds: files left in a hugetlbfs, and SysV segments without attachments. They remain
//! until they are removed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;

use hugeleaf_sys::{Kernel, Pid};
use hugeleaf_units::{Bytes, PageKind, PageSize, Pages};

use super::hugetlbfs_mounts::mounts_in;
use crate::demand::{sysv, user_account};
use crate::fact::Fact;
use crate::model::{Host, OrphanKind, OrphanedHugetlb, PageUsage, Pool, Process};
use crate::process::maps::read_maps;
use crate::process::proc_parsers::parse_status;
use crate::process::{ReadDetail, read_process};
use crate::root::Root;
use crate::target::{all_pids, is_in_host_pid_namespace};

/// Maximum depth below a mount, and maximum number of files.
const DEEPEST: usize = 8;
const MOST_FILES: usize = 4000;
/// Maximum number of processes on pool pages that are summed.
const MOST_HOLDERS: usize = 256;

/// Returns the leftovers of this mount and IPC namespace, the largest first. Absent if the holders of pages are unknown
/// because other users' processes are hidden.
pub fn read_leftovers(root: &Root, kernel: &Kernel, host: &Host) -> Fact<Vec<OrphanedHugetlb>> {
    if host.totals().all(|pool| pool.used() == Pages(0)) {
        return Fact::Known(Vec::new());
    }
    // A capture is read as if on its own host.
    let files = match is_in_host_pid_namespace(root).unwrap_or(!root.is_live()) {
        true => files(root),
        false => Vec::new(),
    };
    let segments = sysv::read(root).or_default();
    let segments: Vec<sysv::SysvSegment> =
        segments.into_iter().filter(|s| s.attached == 0).collect();
    if files.is_empty() && segments.is_empty() {
        return Fact::Known(Vec::new());
    }
    let Some(held) = held(root) else {
        return Fact::Absent;
    };
    let mut found: Vec<OrphanedHugetlb> = files
        .into_iter()
        .filter(|file| !held.contains(&file.inode))
        .map(|file| file.leftover)
        .collect();
    for pool in host.totals() {
        found.extend(of_segments(
            root, kernel, host, pool.size, &segments, &found,
        ));
    }
    for one in &mut found {
        one.owner = user_account::of_uid(root, one.uid).name;
    }
    found.sort_by_key(|one| std::cmp::Reverse(one.bytes));
    Fact::Known(found)
}

/// Device and inode, as in `maps`.
type Inode = (u32, u32, u64);

fn inode_of(file: &Metadata) -> Inode {
    let (major, minor) = hugeleaf_sys::device_numbers(file.dev());
    (major, minor, file.ino())
}

struct OrphanFile {
    inode: Inode,
    leftover: OrphanedHugetlb,
}

/// Returns the files of hugetlbfs that have pages, each once.
#[expect(clippy::disallowed_methods, reason = "the kernel serves hugetlbfs")]
fn files(root: &Root) -> Vec<OrphanFile> {
    let mounts = root.read("proc/self/mountinfo");
    let mounts = mounts.map(|text| mounts_in(&text)).or_default();
    let mounts = mounts.into_iter().map(|mount| (mount.path, mount.page));
    let (mut found, mut seen) = (Vec::new(), BTreeSet::new());
    for (at, size) in mounts {
        let mut folders = vec![(at, 0)];
        while let Some((folder, depth)) = folders.pop() {
            for name in root.list(folder.trim_start_matches('/')).or_default() {
                let path = format!("{}/{name}", folder.trim_end_matches('/'));
                let of = root.path(path.trim_start_matches('/'));
                // Links are not followed, because any user with write access can make one.
                let Ok(file) = std::fs::symlink_metadata(of) else {
                    continue;
                };
                // A captured file has no pool pages, so its length is used.
                let bytes = match root.is_live() {
                    true => Bytes(file.blocks() * 512),
                    false => Bytes(file.len()),
                };
                if file.is_dir() && depth < DEEPEST {
                    folders.push((path, depth + 1));
                } else if file.is_file()
                    && bytes >= size.bytes()
                    && found.len() < MOST_FILES
                    && seen.insert(inode_of(&file))
                {
                    found.push(OrphanFile {
                        inode: inode_of(&file),
                        leftover: OrphanedHugetlb {
                            size,
                            bytes,
                            uid: file.uid(),
                            owner: None,
                            kind: OrphanKind::File { path },
                        },
                    });
                }
            }
        }
    }
    found
}

/// Returns the files that running processes map or have open. `None` if a process is not accessible.
fn held(root: &Root) -> Option<BTreeSet<Inode>> {
    let mut held = BTreeSet::new();
    for pid in all_pids(root) {
        match root.parse_lines(format!("proc/{pid}/maps"), read_maps) {
            Fact::Known(maps) => held.extend(maps.iter().map(|map| map.object)),
            Fact::Absent => continue,
            Fact::Unreadable(_) if has_pages(root, pid) => return None,
            Fact::Unreadable(_) => continue,
        }
        let folder = format!("proc/{pid}/fd");
        for fd in root.list(&folder).or_default() {
            let link = format!("{folder}/{fd}");
            // Links of pipes, sockets and devices point to no file.
            let is_file = std::fs::read_link(root.path(&link))
                .is_ok_and(|to| to.is_absolute() && !to.starts_with("/dev"));
            if (is_file || !root.is_live())
                && let Ok(file) = root.metadata(&link)
            {
                held.insert(inode_of(&file));
            }
        }
    }
    Some(held)
}

/// Returns true if a process with unreadable mappings has pool pages, or if that is unknown too.
fn has_pages(root: &Root, pid: Pid) -> bool {
    let status = root.parse(format!("proc/{pid}/status"), parse_status);
    status
        .known()
        .is_none_or(|status| status.hugetlb != Some(Bytes::ZERO))
}

/// Returns the segments without attachments on pages of a size. The kernel does not report a segment's page size. Candidates
/// have whole pages of the size, as long as the pool has that many in use that no process and no file holds.
fn of_segments(
    root: &Root,
    kernel: &Kernel,
    host: &Host,
    size: PageSize,
    segments: &[sysv::SysvSegment],
    files: &[OrphanedHugetlb],
) -> Vec<OrphanedHugetlb> {
    let candidates = segments.iter().filter_map(|segment| {
        let resident = resident(segment, size, host.base_page);
        let is_whole = resident >= size.bytes() && size.divides(resident.get());
        is_whole.then_some((segment, resident))
    });
    let candidates: Vec<(&sysv::SysvSegment, Bytes)> = candidates.collect();
    let used = host.pool(size).map_or(Pages(0), Pool::used);
    if candidates.is_empty() {
        return Vec::new();
    }
    let Some(by_processes) = held_by_processes(root, kernel, host, size) else {
        return Vec::new();
    };
    let of_files = files.iter().filter(|file| file.size == size);
    let of_files: Bytes = of_files.map(|file| file.bytes).sum();
    let mut left = used.in_bytes(size) - of_files - by_processes;
    let mut found = Vec::new();
    for (segment, resident) in candidates {
        if resident > left {
            continue;
        }
        left = left - resident;
        found.push(OrphanedHugetlb {
            size,
            bytes: resident,
            uid: segment.uid,
            owner: None,
            kind: OrphanKind::SysV { id: segment.id },
        });
    }
    found
}

/// Returns the memory of a segment, assuming pages of a size. Some kernels count each base page of a huge page as a huge
/// page (from 6.7; `shm_add_rss_swap`, ipc/shm.c).
fn resident(segment: &sysv::SysvSegment, size: PageSize, base: PageSize) -> Bytes {
    let most = size.pages_for(segment.bytes).in_bytes(size);
    match segment.resident > most {
        true => Bytes(segment.resident.get() / size.ratio_to(base).max(1)),
        false => segment.resident,
    }
}

/// Returns the bytes of a size that processes hold. Shared memory counts once, as the largest part that one of them has.
fn held_by_processes(root: &Root, kernel: &Kernel, host: &Host, size: PageSize) -> Option<Bytes> {
    let owners = super::read_owners(root).or_default();
    let holders = owners.into_iter().filter(|owner| !owner.hugetlb.is_zero());
    let holders: Vec<Pid> = holders.map(|owner| owner.pid).collect();
    if holders.len() > MOST_HOLDERS {
        return None;
    }
    let read = |pid: &Pid| read_process(root, kernel, host, *pid, ReadDetail::Segments).ok();
    let processes: Vec<Process> = holders.iter().filter_map(read).collect();
    let of_size = |held: &&PageUsage| held.kind == PageKind::Hugetlb && held.size == size;
    let mut shared = BTreeMap::new();
    let mut private = Bytes::ZERO;
    for segment in processes.iter().flat_map(|p| &p.segments) {
        let bytes: Bytes = segment
            .by_page_size
            .iter()
            .filter(of_size)
            .map(|h| h.bytes)
            .sum();
        match segment.shared {
            true => {
                let most: &mut Bytes = shared.entry(segment.object).or_default();
                *most = bytes.max(*most);
            }
            false => private += bytes,
        }
    }
    Some(private + shared.into_values().sum())
}

#[cfg(test)]
mod tests {
    use crate::process::maps::parse_map_line;

    #[test]
    fn a_mapped_file_is_known_by_device_and_inode() {
        let line = "7f00-7f40 rw-s 00000000 00:27 1234                       /dev/hugepages/a b";
        let mapped = |line| parse_map_line(1, line).unwrap().object;
        assert_eq!(mapped(line), (0, 0x27, 1234));
        assert_eq!(mapped("7f00-7f40 rw-p 00000000 00:00 0 "), (0, 0, 0));
    }
}
