//! Reads one process.

use std::collections::BTreeMap;
use std::io::ErrorKind;

use hugeleaf_sys::{Errno, Kernel, LONGEST_UNSCANNED, PageMap, PageScanDetail, Pid};
use hugeleaf_units::{Bytes, PageKind, PageSize, Range};

use crate::fact::{Fact, ReadError};
use crate::limits::{self, placement};
use crate::model::{
    Host, MappingRole, MappingSettings, PageUsage, Process, ProcessKind, ProcessMapping, ThpAdvice,
};
use crate::parse_helpers::MountLine;
use crate::process::guest_memory::{guest_ram, parse_guest_backends};
use crate::process::io_uring_buffers::read_registered;
use crate::process::mapping_role::role_of;
use crate::process::maps::{
    MapLine, SmapsCounts, SmapsEntry, mappings, parse_policies, read_smaps_lines,
};
use crate::process::pagemap_text::{parse_pages, part_of};
use crate::process::proc_parsers::{ProcessStat, parse_stat, parse_status, unit_of};
use crate::process::run_settings::read_run_settings;
use crate::process::{ProcessError, ReadDetail, file_of};
use crate::root::Root;
use crate::target::hides_processes;

/// Reads one process in the detail given by `looking`.
///
/// # Errors
/// [`ProcessError`] if it is gone, denied, without memory of its own, or not parsable.
pub fn read_process(
    root: &Root,
    kernel: &Kernel,
    host: &Host,
    pid: Pid,
    looking: ReadDetail,
) -> Result<Process, ProcessError> {
    let mut process = read_basics(root, pid)?;
    match process.kind {
        ProcessKind::Kernel => {
            return Err(ProcessError::KernelThread {
                pid,
                name: process.name,
            });
        }
        ProcessKind::Zombie => {
            return Err(ProcessError::Zombie {
                pid,
                name: process.name,
            });
        }
        ProcessKind::User => {}
    }
    // Both walks over the page tables run in parallel, since each takes tens of milliseconds per GB.
    let (entries, pages) = std::thread::scope(|scope| {
        let pages = (looking >= ReadDetail::Pages)
            .then(|| scope.spawn(|| read_pages(root, kernel, pid, &large_ranges(root, host, pid))));
        let entries = read_smaps(root, &process);
        let pages = pages.map(|p| p.join().unwrap_or_else(|e| std::panic::resume_unwind(e)));
        (entries, pages.unwrap_or_default())
    });
    let entries = entries?;
    let sizes = SmapsPageSizes::from_host(host);
    let counts = entries.iter().map(|e| e.counts);
    process.pss = Fact::Known(counts.map(|c| c.pss + c.hugetlb).sum());
    process.set_table(Fact::Known(sizes.table(&entries)));
    process.children = children(root, pid);
    if looking >= ReadDetail::Segments {
        process.segments = segments(root, host, pid, &entries);
        let backends = parse_guest_backends(&command_line(root, pid));
        process.guest_ram = guest_ram(&backends, entries.iter().map(|entry| &entry.map));
        process.run = read_run_settings(root, pid);
        process.limits = limits::read_limits(root, pid);
    }
    if looking >= ReadDetail::Pages {
        attach_pages(root, kernel, host, &mut process, pages);
        process.registered = read_registered(root, pid);
        ask_of_files(root, kernel, host, &mut process);
    }
    Ok(process)
}

/// Returns the start time and image of a process, which identify a running program. Costs one read of
/// `/proc/PID/stat`.
///
/// # Errors
/// [`ProcessError::Gone`] if it does not exist any more.
pub fn identity(root: &Root, pid: Pid) -> Result<(u64, [u64; 4]), ProcessError> {
    let stat = read_stat(root, pid)?;
    Ok((stat.start_ticks, stat.image))
}

/// Maximum length of a command line kept per process. There may be tens of thousands of processes, and a program can
/// make its own command line arbitrarily long.
const LONGEST_COMMAND: Bytes = Bytes(16 << 10);

/// Returns the arguments of a process, each followed by a zero byte.
fn command_line(root: &Root, pid: Pid) -> String {
    let arguments = root.beginning(file_of(pid, "cmdline"), LONGEST_COMMAND);
    arguments.or_default()
}

pub(super) fn gone_error(root: &Root, pid: Pid) -> ProcessError {
    ProcessError::Gone {
        pid,
        hidden_possible: hides_processes(root),
    }
}

pub(super) fn read_stat(root: &Root, pid: Pid) -> Result<ProcessStat, ProcessError> {
    known(root, pid, root.parse(file_of(pid, "stat"), parse_stat))
}

/// Returns a value that every process has. If it is absent, the process has ended.
fn known<T>(root: &Root, pid: Pid, fact: Fact<T>) -> Result<T, ProcessError> {
    match fact {
        Fact::Known(value) => Ok(value),
        Fact::Absent => Err(gone_error(root, pid)),
        Fact::Unreadable(error) => Err(ProcessError::Read(error)),
    }
}

/// Reads the cheap files `stat`, `status`, `cmdline` and `cgroup`, without a page-table walk.
pub(crate) fn read_basics(root: &Root, pid: Pid) -> Result<Process, ProcessError> {
    let stat = read_stat(root, pid)?;
    let status = known(root, pid, root.parse(file_of(pid, "status"), parse_status))?;
    let command_line = command_line(root, pid);
    let command_line = command_line.trim_end_matches('\0').replace('\0', " ");
    let cgroup = root
        .read(file_of(pid, "cgroup"))
        .text()
        .and_then(|text| placement::of_process(root, text));
    let kind = if stat.is_kernel_thread() {
        ProcessKind::Kernel
    } else if matches!(stat.state, 'Z' | 'X') || status.resident.is_none() {
        ProcessKind::Zombie
    } else {
        ProcessKind::User
    };
    let hugetlb = status.hugetlb.unwrap_or_default();
    Ok(Process {
        pid,
        parent: Pid(stat.parent),
        name: stat.name,
        command_line,
        kind,
        uid: status.uid,
        start_ticks: stat.start_ticks,
        image: stat.image,
        unit: cgroup.as_deref().and_then(unit_of),
        cgroup,
        threads: stat.threads,
        thp_disabled: Fact::from(status.thp_enabled).map(|enabled| !enabled),
        resident: status.resident.unwrap_or_default() + hugetlb,
        resident_anon: status.resident_anon.unwrap_or_default(),
        resident_file: status.resident_file.unwrap_or_default(),
        resident_shmem: status.resident_shmem.unwrap_or_default(),
        hugetlb,
        locked: status.locked.unwrap_or_default(),
        pinned: status.pinned.unwrap_or_default(),
        swapped: status.swapped.unwrap_or_default(),
        page_tables: status.page_tables.unwrap_or_default(),
        groups: status.groups,
        capabilities: status.capabilities,
        by_page_size: Fact::Known(Vec::new()),
        ..Process::default()
    })
}

/// Reads `smaps`. Denied if the process is another user's.
pub(crate) fn read_smaps(root: &Root, process: &Process) -> Result<Vec<SmapsEntry>, ProcessError> {
    let pid = process.pid;
    match root.parse_lines(file_of(pid, "smaps"), read_smaps_lines) {
        Fact::Unreadable(error) if error.denied => Err(ProcessError::Denied {
            pid,
            name: process.name.clone(),
            uid: process.uid,
            error,
        }),
        // The file of a process that exits is empty, because it has no mappings any more.
        Fact::Known(entries) if entries.is_empty() => Err(gone_error(root, pid)),
        fact => known(root, pid, fact),
    }
}

/// The page sizes that the counters of `smaps` refer to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SmapsPageSizes {
    base: PageSize,
    pmd: PageSize,
}

impl SmapsPageSizes {
    pub(crate) fn from_host(host: &Host) -> SmapsPageSizes {
        let base = host.base_page;
        SmapsPageSizes {
            base,
            pmd: host
                .pmd_page
                .get()
                .unwrap_or_else(|| generic_pmd_page(base)),
        }
    }

    pub(crate) const fn pmd(self) -> PageSize {
        self.pmd
    }

    pub(crate) fn table<'a>(
        self,
        entries: impl IntoIterator<Item = &'a SmapsEntry>,
    ) -> Vec<PageUsage> {
        let mut table = Vec::new();
        for entry in entries {
            self.add(&mut table, &entry.counts);
        }
        table
    }

    pub(crate) fn add(self, table: &mut Vec<PageUsage>, c: &SmapsCounts) {
        // Counters of a changing mapping may disagree, so huge memory is limited to resident memory.
        let large = c.pmd_mapped.min(c.resident);
        PageUsage::add(table, self.base, PageKind::Base, c.resident - large);
        PageUsage::add(table, self.pmd, PageKind::Thp, large);
        let size = PageSize::new(c.kernel_page).unwrap_or(self.base);
        PageUsage::add(table, size, PageKind::Hugetlb, c.hugetlb);
    }
}

/// Returns the default size of a page middle directory entry. One table of 8-byte entries fills a base page on every
/// architecture with THP, and each entry maps a base page.
fn generic_pmd_page(base: PageSize) -> PageSize {
    let entries = base.bytes().get() / 8;
    PageSize::new(Bytes(base.bytes().get().saturating_mul(entries))).unwrap_or(base)
}

fn segments(root: &Root, host: &Host, pid: Pid, entries: &[SmapsEntry]) -> Vec<ProcessMapping> {
    // With one node a policy changes nothing, and reading it walks every page.
    let policies = match host.nodes.len() {
        0 | 1 => BTreeMap::new(),
        _ => {
            let text = root.read(file_of(pid, "numa_maps")).or_default();
            parse_policies(&text).into_iter().collect()
        }
    };
    let mounts = root.read(file_of(pid, "mountinfo")).or_default();
    let mounts: BTreeMap<(u32, u32), MountFileSystem> =
        parse_mountinfo(&mounts).into_iter().rev().collect();
    let mut before: Option<&MapLine> = None;
    entries
        .iter()
        .map(|entry| {
            let start = entry.map.range.start();
            let policy = policies.get(&start).cloned();
            let device = (entry.map.object.0, entry.map.object.1);
            let mount = mounts.get(&device).cloned();
            let segment = segment(host, entry, before, policy, mount);
            before = Some(&entry.map);
            segment
        })
        .collect()
}

fn segment(
    host: &Host,
    entry: &SmapsEntry,
    before: Option<&MapLine>,
    policy: Option<String>,
    file_system: Option<MountFileSystem>,
) -> ProcessMapping {
    let (map, c) = (&entry.map, &entry.counts);
    let advised = if entry.flags.has("hg") {
        ThpAdvice::Huge
    } else if entry.flags.has("nh") {
        ThpAdvice::NoHuge
    } else {
        ThpAdvice::Nothing
    };
    let hugetlb = entry
        .flags
        .has("ht")
        .then(|| PageSize::new(c.kernel_page).ok())
        .flatten();
    ProcessMapping {
        range: map.range,
        role: role_of(map, before, &entry.flags),
        name: map.name.clone(),
        permissions: map.permissions,
        shared: map.shared,
        offset: map.offset,
        object: map.object,
        request: MappingSettings {
            advised,
            hugetlb,
            policy,
        },
        flags: entry.flags.clone(),
        thp_eligible: entry.thp_eligible.into(),
        collapses: Fact::Absent,
        resident: c.resident + c.hugetlb,
        pss: c.pss + c.hugetlb,
        anonymous: c.anonymous,
        shared_with_others: c.shared + c.hugetlb_shared,
        locked: c.locked,
        swapped: c.swapped,
        swapped_pss: c.swapped_pss,
        // The kernel does not report it, so shared pages of a mergeable mapping are counted.
        merged: match c.merged {
            None if entry.flags.has("mg") => c.shared,
            merged => merged.unwrap_or_default(),
        },
        by_page_size: SmapsPageSizes::from_host(host).table([entry]),
        pages: Fact::Absent,
        file_system: file_system.as_ref().map(|mount| mount.file_system.clone()),
        mount_huge: file_system.and_then(|mount| mount.huge),
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountFileSystem {
    pub file_system: String,
    /// The file system's option `huge=`, which tmpfs shows unless it is `never`.
    pub huge: Option<String>,
}

/// Parses mounts by device (proc(5), `/proc/PID/mountinfo`). Skips lines of another form.
pub fn parse_mountinfo(text: &str) -> Vec<((u32, u32), MountFileSystem)> {
    text.lines()
        .filter_map(|line| {
            let line = MountLine::parse(line)?;
            let (major, minor) = line.device.split_once(':')?;
            let mut options = line.file_system_options.split(',');
            let huge = options.find_map(|option| option.strip_prefix("huge="));
            let mount = MountFileSystem {
                file_system: line.file_system.to_owned(),
                huge: huge.map(str::to_owned),
            };
            Some(((major.parse().ok()?, minor.parse().ok()?), mount))
        })
        .collect()
}

/// Returns the smallest huge page size of this host. Smaller segments never have one.
fn smallest_large_page(host: &Host) -> PageSize {
    let sizes = host.page_sizes.iter().map(|p| p.size);
    let smallest = sizes.filter(|size| *size > host.base_page).min();
    smallest.unwrap_or_else(|| SmapsPageSizes::from_host(host).pmd)
}

/// Assigns each segment its pages. Reads a mapping again if it grew, or merged with its neighbour, between the two
/// walks.
fn attach_pages(
    root: &Root,
    kernel: &Kernel,
    host: &Host,
    process: &mut Process,
    mut pages: BTreeMap<Range, Fact<PageMap>>,
) {
    let smallest = smallest_large_page(host).bytes();
    let changed: Vec<Range> = process
        .segments
        .iter()
        .filter(|s| {
            s.range.len() >= smallest && !s.resident.is_zero() && s.role != MappingRole::Vdso
        })
        .map(|s| s.range)
        .filter(|range| !pages.contains_key(range))
        .collect();
    if !changed.is_empty() {
        pages.extend(read_pages(root, kernel, process.pid, &changed));
    }
    for segment in &mut process.segments {
        if let Some(pages) = pages.remove(&segment.range) {
            segment.pages = pages;
        }
    }
}

/// Asks the kernel which files it can collapse. That depends on its configuration, on the file system, and on writers
/// of the file. The call examines only the mapping, takes a microsecond and promotes nothing.
fn ask_of_files(root: &Root, kernel: &Kernel, host: &Host, process: &mut Process) {
    let Some(huge) = host.pmd_page.get() else {
        return;
    };
    // The kernel refuses all mappings of a process that disabled THP.
    if !root.is_live() || process.thp_disabled == Fact::Known(true) {
        return;
    }
    let is_asked = |s: &&mut ProcessMapping| {
        let copies = s.permissions[1] && !s.shared;
        let is_file = s.role != MappingRole::Shm && s.file_system.as_deref() != Some("tmpfs");
        s.object.2 != 0 && is_file && !copies && !s.resident.is_zero() && s.is_aligned_to(huge)
    };
    let mut files = process.segments.iter_mut().filter(is_asked).peekable();
    if files.peek().is_none() {
        return;
    }
    let Ok(fd) = kernel.pidfd_open(process.pid) else {
        return;
    };
    for file in files {
        let block = file.range.aligned_inside(huge);
        file.collapses = block.and_then(|b| kernel.can_collapse(&fd, b).ok()).into();
    }
}

/// Returns the mappings that could hold a huge page.
fn large_ranges(root: &Root, host: &Host, pid: Pid) -> Vec<Range> {
    let smallest = smallest_large_page(host).bytes();
    let maps = mappings(root, pid);
    maps.entries()
        .iter()
        .filter(|m| m.range.len() >= smallest && !m.name.starts_with("[v"))
        .map(|m| m.range)
        .collect()
}

fn read_pages(
    root: &Root,
    kernel: &Kernel,
    pid: Pid,
    ranges: &[Range],
) -> BTreeMap<Range, Fact<PageMap>> {
    let ranges = ranges.iter().copied();
    if !root.is_live() {
        let runs = root.parse(file_of(pid, "pages"), parse_pages);
        return ranges
            .map(|range| (range, runs.clone().map(|runs| part_of(&runs, range))))
            .collect();
    }
    let path = root.path(file_of(pid, "pagemap"));
    let pagemap = root.open(file_of(pid, "pagemap"));
    let unreadable = |reason: String, denied: bool| {
        Fact::Unreadable(ReadError {
            path: path.clone(),
            reason,
            denied,
        })
    };
    // Without a kernel scan, pages are read one by one, up to a limit for the whole process.
    let mut left = None;
    ranges
        .map(|range| {
            let pages = match &pagemap {
                Ok(_) if left.is_some_and(|left| left < range.len()) => {
                    unreadable(too_long(), false)
                }
                Ok(file) => match kernel.page_map(file, range, PageScanDetail::Exclusive) {
                    Ok(map) => {
                        if !map.huge_known {
                            left = Some(left.unwrap_or(LONGEST_UNSCANNED) - range.len());
                        }
                        Fact::Known(map)
                    }
                    Err(e) if e.errno == Errno::TOOBIG => unreadable(too_long(), false),
                    Err(e) => unreadable(e.to_string(), false),
                },
                Err(e) => unreadable(e.to_string(), e.kind() == ErrorKind::PermissionDenied),
            };
            (range, pages)
        })
        .collect()
}

fn too_long() -> String {
    format!(
        "more than {LONGEST_UNSCANNED} of addresses, which this kernel can only read page by page \
        (PAGEMAP_SCAN is in Linux 6.7)"
    )
}

fn children(root: &Root, pid: Pid) -> Vec<Pid> {
    let tasks = root.list(file_of(pid, "task")).or_default();
    let of_task = |task: &String| {
        let text = root.read(file_of(pid, &format!("task/{task}/children")));
        let pids = text.or_default();
        let pids = pids.split_ascii_whitespace();
        pids.filter_map(|n| n.parse().ok().map(Pid))
            .collect::<Vec<_>>()
    };
    let mut found: Vec<Pid> = tasks.iter().flat_map(of_task).collect();
    found.sort_unstable();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_say_their_file_system_and_its_huge_pages() {
        let text = "\
36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue
25 1 0:21 / /dev/shm rw,nosuid shared:3 - tmpfs tmp\\040fs rw,size=100k,huge=advise
26 1 0:22 / /run rw - tmpfs tmpfs rw,size=100k
nonsense
";
        let mount = |file_system: &str, huge: Option<&str>| MountFileSystem {
            file_system: file_system.to_owned(),
            huge: huge.map(str::to_owned),
        };
        assert_eq!(
            parse_mountinfo(text),
            [
                ((98, 0), mount("ext3", None)),
                ((0, 21), mount("tmpfs", Some("advise"))),
                ((0, 22), mount("tmpfs", None)),
            ]
        );
    }
}
