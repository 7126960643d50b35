//! Scans a host repeatedly, for views and daemons. A scan reads one small file per process. A page-table walk is
//! done only for processes that a caller names.
//!
//! `target` and `process` read exact values and cost milliseconds per process. A scan here costs about 20 µs per
//! process. Processes forked from one another without an execve are one [`ForkTree`]. They share memory, and are
//! promoted together.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use hugeleaf_sys::{Kernel, PageScanDetail, PageState, Pid, ticks_per_second};
use hugeleaf_units::{Bytes, PageSize, Range};
use serde::{Deserialize, Serialize};

use crate::fact::{Fact, ReadError};
use crate::limits::{self, placement};
use crate::memory_totals::union_len;
use crate::model::Host;
use crate::process::file_of;
use crate::process::maps::{MapLine, SmapsEntry, read_maps, read_smaps_lines};
use crate::process::proc_parsers::{ProcessStat, parse_stat, parse_status, unit_of};
use crate::root::Root;
use crate::system::counters::read_uptime;
use crate::target::all_pids;

/// Number of scans after which a kernel thread is read again, because its id may have been reused.
const KERNEL_THREADS_EVERY: u32 = 12;
/// Maximum length of a command line that is read for the program's name.
const COMMAND: Bytes = Bytes::from_kib(4);

/// State kept from one scan to the next.
#[derive(Debug, Default)]
pub struct ProcessScanner {
    known: BTreeMap<Pid, KnownProcess>,
    /// Time of the last scan, since boot.
    at: Option<Duration>,
    scans: u32,
}

#[derive(Debug)]
struct KnownProcess {
    stat: ProcessStat,
    resident: Bytes,
    /// Processor time up to the previous scan, in ticks. `None` at the first.
    before: Option<u64>,
    info: Option<Arc<ProgramInfo>>,
}

/// Identifies a running process tree, distinct from later ones with the same process id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ForkTreeId {
    pub pid: u32,
    /// Start time of the process, in clock ticks since boot.
    pub start_ticks: u64,
}

#[derive(Debug, Clone, PartialEq)]
pub struct ForkTree {
    /// Its first process, whose parent runs another program.
    pub leader: Pid,
    /// Start time of the leader, in clock ticks since boot.
    pub start_ticks: u64,
    pub pids: Vec<Pid>,
    /// Name of the leader's command (`comm`).
    pub name: String,
    pub age: Duration,
    /// Share of one processor used since the previous scan. `None` at its first scan.
    pub cpu: Option<f64>,
    /// Resident memory summed over its processes. Shared memory counts in each.
    pub resident: Bytes,
    pub threads: u64,
    /// Owner and names. `None` for programs smaller than the requested minimum.
    pub info: Option<Arc<ProgramInfo>>,
}

/// Properties that do not change while a program runs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ProgramInfo {
    /// The last part of the first argument, if it differs from the name of the command.
    pub program_name: Option<String>,
    pub cgroup: Option<String>,
    pub unit: Option<String>,
    pub uid: u32,
}

impl ProcessScanner {
    /// Scans once, and returns the programs of this host and the time since boot. `page` is the host's base page
    /// size. Only programs with at least `least` resident are read from more than one file.
    ///
    /// # Errors
    /// If `/proc/uptime` cannot be read, since no rate can be computed without it.
    pub fn scan(
        &mut self,
        root: &Root,
        page: PageSize,
        least: Bytes,
    ) -> Result<(Vec<ForkTree>, Duration), ReadError> {
        let now = match since_boot(root) {
            // A captured host may lack it, and no time passes there.
            Err(_) if !root.is_live() => Duration::ZERO,
            now => now?,
        };
        let passed = self.at.map(|at| now.saturating_sub(at));
        self.at = Some(now);
        self.scans = self.scans.wrapping_add(1);
        let all = self.scans % KERNEL_THREADS_EVERY == 1;
        let mut before = std::mem::take(&mut self.known);
        for pid in all_pids(root) {
            let is_kernel_thread = before.get(&pid).is_some_and(|k| k.stat.is_kernel_thread());
            if is_kernel_thread && !all {
                self.known.extend(before.remove_entry(&pid));
                continue;
            }
            // A process that ended meanwhile is skipped.
            let Fact::Known(stat) = root.parse(file_of(pid, "stat"), parse_stat) else {
                continue;
            };
            let old = before_of(&mut before, pid, &stat);
            self.known.insert(pid, KnownProcess::new(stat, page, old));
        }
        Ok((self.programs(root, least, now, passed), now))
    }

    fn programs(
        &mut self,
        root: &Root,
        least: Bytes,
        now: Duration,
        passed: Option<Duration>,
    ) -> Vec<ForkTree> {
        let mut leaders: BTreeMap<Pid, Vec<Pid>> = BTreeMap::new();
        for (pid, known) in &self.known {
            if !known.stat.is_kernel_thread() && !matches!(known.stat.state, 'Z' | 'X') {
                leaders.entry(self.leader_of(*pid)).or_default().push(*pid);
            }
        }
        let ticks = ticks_per_second().max(1);
        let mut programs = Vec::with_capacity(leaders.len());
        for (leader, pids) in leaders {
            let of = |pid: &Pid| &self.known[pid];
            let resident: Bytes = pids.iter().map(|pid| of(pid).resident).sum();
            if resident >= least {
                let known = self.known.get_mut(&leader);
                if let Some(known) = known.filter(|known| known.info.is_none()) {
                    known.info = read_program_info(root, leader, &known.stat.name).map(Arc::new);
                }
            }
            let of = |pid: &Pid| &self.known[pid];
            let first = of(&leader);
            let seconds = |ticks_used: u64| ticks_used as f64 / ticks as f64;
            let used = pids.iter().filter_map(|pid| of(pid).used());
            let cpu = match (first.before, passed) {
                (Some(_), Some(passed)) if !passed.is_zero() => {
                    Some(seconds(used.sum()) / passed.as_secs_f64())
                }
                _ => None,
            };
            let started = Duration::from_secs_f64(seconds(first.stat.start_ticks));
            programs.push(ForkTree {
                leader,
                start_ticks: first.stat.start_ticks,
                name: first.stat.name.clone(),
                age: now.saturating_sub(started),
                cpu,
                resident,
                threads: pids.iter().map(|pid| of(pid).stat.threads).sum(),
                info: first.info.clone(),
                pids,
            });
        }
        programs
    }

    /// Returns the oldest ancestor that runs the same program at the same addresses, so all were forked without an execve.
    fn leader_of(&self, pid: Pid) -> Pid {
        let mut leader = pid;
        // Ids that were read at different times could form a circle. The number of processes bounds a chain.
        for _ in 0..self.known.len() {
            let child = &self.known[&leader].stat;
            let parent = Pid(child.parent);
            match self.known.get(&parent) {
                Some(known) if is_fork(&known.stat, child) => leader = parent,
                _ => break,
            }
        }
        leader
    }
}

/// True if a child still runs its parent's program. If a reader may not see addresses, the kernel reports 1 or 0 (`do_task_stat`,
/// fs/proc/array.c), which identifies nothing.
fn is_fork(parent: &ProcessStat, child: &ProcessStat) -> bool {
    child.image[0] > 1 && parent.image == child.image && !matches!(parent.state, 'Z' | 'X')
}

fn before_of(
    before: &mut BTreeMap<Pid, KnownProcess>,
    pid: Pid,
    now: &ProcessStat,
) -> Option<KnownProcess> {
    let old = before.remove(&pid)?;
    (old.stat.start_ticks == now.start_ticks && old.stat.image == now.image).then_some(old)
}

impl KnownProcess {
    fn new(stat: ProcessStat, page: PageSize, old: Option<KnownProcess>) -> KnownProcess {
        let (before, about) = match old {
            Some(old) => (Some(old.stat.user_ticks + old.stat.system_ticks), old.info),
            None => (None, None),
        };
        KnownProcess {
            resident: Bytes(stat.resident_pages.saturating_mul(page.bytes().get())),
            stat,
            before,
            info: about,
        }
    }

    /// Returns the processor time since the previous scan, in ticks.
    fn used(&self) -> Option<u64> {
        let now = self.stat.user_ticks + self.stat.system_ticks;
        Some(now.saturating_sub(self.before?))
    }
}

/// Returns the time since this host was booted, suspended time included (`/proc/uptime`). It never decreases.
///
/// # Errors
/// If it cannot be read.
pub fn since_boot(root: &Root) -> Result<Duration, ReadError> {
    match read_uptime(root) {
        Fact::Known(time) => Ok(time),
        Fact::Unreadable(error) => Err(error),
        Fact::Absent => Err(ReadError::new(root.path("proc/uptime"), "no such file")),
    }
}

fn read_program_info(root: &Root, pid: Pid, name: &str) -> Option<ProgramInfo> {
    let status = root.parse(file_of(pid, "status"), parse_status);
    let cgroup = root.read(file_of(pid, "cgroup"));
    let cgroup = cgroup
        .text()
        .and_then(|text| placement::of_process(root, text));
    let command = root.beginning(file_of(pid, "cmdline"), COMMAND);
    let program = command.known().and_then(|line| {
        line.split(['\0', ' '])
            .next()?
            .rsplit('/')
            .next()
            .filter(|p| !p.is_empty() && *p != name)
    });
    Some(ProgramInfo {
        program_name: program.map(str::to_owned),
        unit: cgroup.as_deref().and_then(unit_of),
        cgroup,
        uid: status.known()?.uid,
    })
}

/// Memory of a program, from a page-table walk. Memory that its processes share counts once.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TreeMemory {
    /// Anonymous and shared memory on base pages that could be on huge pages.
    pub base: Bytes,
    /// Memory on huge pages, of THP and of pools.
    pub huge: Bytes,
    /// The part of `base` that no promotion can move: shared memory whose address and offset differ modulo the huge page.
    pub misaligned: Bytes,
    /// Page tables of all its processes.
    pub page_tables: Bytes,
    /// True if THP is disabled for its first process (`THP_enabled: 0`).
    pub thp_disabled: bool,
    /// True while a process forked from the first one saves its memory: see `is_save`.
    pub saving: bool,
    /// Room below the tightest memory limit of its cgroups, if page cache is reclaimed. `None` without a limit.
    pub room: Option<Bytes>,
    /// Device, inode and modification time of the program file of the first process.
    pub file: Option<(u64, u64, i64)>,
}

/// Minimum private memory of a program whose fork may be a save.
const SAVE: Bytes = Bytes::from_mib(64);
/// Maximum duration of a save.
const LONGEST_SAVE: Duration = Duration::from_secs(3600);

/// Facts of a process that decide if it saves.
#[derive(Debug, Clone, Copy, Default)]
struct ForkedMemory {
    age: Duration,
    /// Its private memory.
    anon: Bytes,
    /// The part of it that is shared since a fork.
    shared: Bytes,
}

/// Returns true if one of the processes forked from the first one saves its memory, as in Redis. It alone has at
/// least half as much private memory as the first one, still shares some of it, and started late. Workers of a
/// server are several, or have existed for most of its life.
fn is_save(first: &ForkedMemory, forked: &[ForkedMemory]) -> bool {
    let holds = |kin: &&ForkedMemory| kin.anon >= Bytes(first.anon.get() / 2);
    let mut holders = forked.iter().filter(holds);
    let (Some(one), None) = (holders.next(), holders.next()) else {
        return false;
    };
    let is_late = one.age < (first.age / 2).min(LONGEST_SAVE);
    first.anon >= SAVE && !one.shared.is_zero() && is_late
}

/// Walks the memory of a program's processes.
///
/// # Errors
/// The reason why the first process's memory cannot be read. [`Fact::Absent`] if it has ended.
pub fn walk_pages(
    root: &Root,
    kernel: &Kernel,
    host: &Host,
    pids: &[Pid],
    leader: Pid,
) -> Fact<TreeMemory> {
    let status = |pid: Pid| root.parse(file_of(pid, "status"), parse_status);
    let first = match status(leader) {
        Fact::Known(status) => status,
        Fact::Absent => return Fact::Absent,
        Fact::Unreadable(error) => return Fact::Unreadable(error),
    };
    let Some(pmd) = host.pmd_page.get() else {
        return Fact::Absent;
    };
    let mut holding = TreeMemory {
        page_tables: first.page_tables.unwrap_or_default(),
        huge: first.hugetlb.unwrap_or_default(),
        thp_disabled: first.thp_enabled == Some(false),
        room: limits::read_limits(root, leader).memory_room_at_most(),
        file: file_of_program(root, leader),
        ..TreeMemory::default()
    };
    let mut all = vec![(leader, first)];
    for pid in pids.iter().filter(|pid| **pid != leader) {
        // A process that ended meanwhile is skipped.
        if let Fact::Known(status) = status(*pid) {
            holding.page_tables += status.page_tables.unwrap_or_default();
            all.push((*pid, status));
        }
    }
    // Shared memory is walked in the process that has touched most of it. A server's first process often has touched hardly any.
    all.sort_by_key(|(pid, status)| (Reverse(status.resident_shmem), *pid));
    let mut walk = TreeWalk {
        root,
        kernel,
        pmd,
        detail: match all.len() {
            1 => PageScanDetail::Sizes,
            _ => PageScanDetail::Exclusive,
        },
        objects: BTreeMap::new(),
        shared: RangesBySize::default(),
    };
    let now = since_boot(root).unwrap_or_default();
    let (mut first, mut forked) = (ForkedMemory::default(), Vec::new());
    for (pid, status) in &all {
        let found = match walk.process(*pid) {
            Fact::Known(found) => found,
            Fact::Unreadable(error) if *pid == leader => return Fact::Unreadable(error),
            Fact::Absent if *pid == leader => return Fact::Absent,
            // It ended between two files.
            Fact::Absent | Fact::Unreadable(_) => continue,
        };
        holding.base += found.base;
        holding.huge += found.huge;
        let kin = ForkedMemory {
            age: age_of(root, *pid, now),
            anon: status.resident_anon.unwrap_or_default(),
            shared: found.shared,
        };
        match *pid == leader {
            true => first = kin,
            false => forked.push(kin),
        }
    }
    for object in walk.objects.into_values() {
        holding.base += object.base;
        holding.huge += object.huge;
        if object.is_misaligned {
            holding.misaligned += object.base;
        }
    }
    let large = union_len(walk.shared.huge.clone());
    let of_all = union_len([walk.shared.base, walk.shared.huge].concat());
    holding.base += of_all - large;
    holding.huge += large;
    holding.saving = is_save(&first, &forked);
    Fact::Known(holding)
}

fn age_of(root: &Root, pid: Pid, now: Duration) -> Duration {
    let stat = root.parse(file_of(pid, "stat"), parse_stat);
    let ticks = stat.known().map_or(0, |stat| stat.start_ticks);
    let started = ticks as f64 / ticks_per_second().max(1) as f64;
    now.saturating_sub(Duration::from_secs_f64(started))
}

/// Shared objects by device and inode.
type SharedObjects = BTreeMap<(u32, u32, u64), SharedObjectMemory>;

/// Memory of a shared object, as the process that has it maps it.
#[derive(Debug, Clone, Copy, Default)]
struct SharedObjectMemory {
    base: Bytes,
    huge: Bytes,
    /// True if its mappings cannot hold huge pages.
    is_misaligned: bool,
}

/// Memory ranges by page size.
#[derive(Default)]
struct RangesBySize {
    base: Vec<Range>,
    huge: Vec<Range>,
}

/// Private memory of a process that could be on huge pages.
#[derive(Debug, Clone, Copy, Default)]
struct EligibleMemory {
    base: Bytes,
    huge: Bytes,
    /// Memory shared since a fork, which is in neither of the two.
    shared: Bytes,
}

/// The walk over the processes of a program.
struct TreeWalk<'a> {
    root: &'a Root,
    kernel: &'a Kernel,
    pmd: PageSize,
    detail: PageScanDetail,
    /// Shared objects, each by the first process that has it.
    objects: SharedObjects,
    /// Private memory that several processes share since a fork. It is at the same addresses and counts once.
    shared: RangesBySize,
}

impl TreeWalk<'_> {
    fn process(&mut self, pid: Pid) -> Fact<EligibleMemory> {
        let (root, kernel, detail) = (self.root, self.kernel, self.detail);
        let maps = match root.parse_lines(file_of(pid, "maps"), read_maps) {
            Fact::Known(maps) => maps,
            Fact::Absent => return Fact::Absent,
            Fact::Unreadable(error) => return Fact::Unreadable(error),
        };
        let Ok(pagemap) = root.open(file_of(pid, "pagemap")) else {
            return by_smaps(root, pid, self.pmd, &mut self.objects);
        };
        let mut found = EligibleMemory::default();
        for map in maps.iter().filter(|map| can_be_huge(map, self.pmd)) {
            if map.shared && self.objects.contains_key(&map.object) {
                continue;
            }
            let detail = if map.shared {
                PageScanDetail::Sizes
            } else {
                detail
            };
            let pages = kernel.page_map(&pagemap, map.range, detail);
            let Some(pages) = pages.ok().filter(|pages| pages.huge_known) else {
                // The kernel is older than PAGEMAP_SCAN.
                return by_smaps(root, pid, self.pmd, &mut self.objects);
            };
            for run in pages.runs {
                let (state, len) = (run.state, run.range.len());
                if !state.has(PageState::PRESENT) || state.has(PageState::ZERO) {
                    continue;
                }
                let is_large = state.has(PageState::HUGE);
                if map.shared {
                    let object = self.objects.entry(map.object).or_default();
                    object.is_misaligned = is_misaligned(map, self.pmd);
                    *(if is_large {
                        &mut object.huge
                    } else {
                        &mut object.base
                    }) += len;
                } else if detail == PageScanDetail::Sizes || state.has(PageState::EXCLUSIVE) {
                    match is_large {
                        true => found.huge += len,
                        false => found.base += len,
                    }
                } else {
                    found.shared += len;
                    match is_large {
                        true => self.shared.huge.push(run.range),
                        false => self.shared.base.push(run.range),
                    }
                }
            }
        }
        Fact::Known(found)
    }
}

/// True for anonymous memory, and for shared memory without a file, that has room for a huge page.
fn can_be_huge(map: &MapLine, pmd: PageSize) -> bool {
    let (start, end) = (map.range.start(), map.range.end());
    let size = pmd.bytes().get();
    let fits = start
        .checked_next_multiple_of(size)
        .is_some_and(|at| at.saturating_add(size) <= end);
    let is_memory = match map.shared {
        // Devices without a driver (major 0) are those of shared memory and of file systems without a disk. File systems on a disk have
        // another.
        true => map.object.0 == 0 && map.object.2 != 0,
        false => map.object.2 == 0,
    };
    fits && is_memory && map.permissions[1] && map.name != "[vsyscall]"
}

/// True for shared memory whose address and offset differ modulo the huge page. The kernel finds no place for a huge page then.
const fn is_misaligned(map: &MapLine, pmd: PageSize) -> bool {
    map.shared && !pmd.divides(map.range.start().wrapping_sub(map.offset))
}

fn by_smaps(
    root: &Root,
    pid: Pid,
    pmd: PageSize,
    objects: &mut SharedObjects,
) -> Fact<EligibleMemory> {
    let entries = root.parse_lines(file_of(pid, "smaps"), read_smaps_lines);
    let Fact::Known(entries) = entries else {
        return entries.map(|_| EligibleMemory::default());
    };
    let mut found = EligibleMemory::default();
    let mut seen: Vec<(u32, u32, u64)> = Vec::new();
    for SmapsEntry { map, counts, .. } in entries.iter().filter(|e| can_be_huge(&e.map, pmd)) {
        let (small, large) = (counts.resident - counts.pmd_mapped, counts.pmd_mapped);
        let is_new = !objects.contains_key(&map.object) || seen.contains(&map.object);
        match map.shared {
            true if is_new => {
                seen.push(map.object);
                let sum = objects.entry(map.object).or_default();
                sum.base += small;
                sum.huge += large;
                sum.is_misaligned = is_misaligned(map, pmd);
            }
            true => {}
            // Shared memory counts by the kernel's shares.
            false => {
                found.base += small.scaled(counts.pss, counts.resident);
                found.huge += large.scaled(counts.pss, counts.resident);
                found.shared += counts.shared;
            }
        }
    }
    Fact::Known(found)
}

fn file_of_program(root: &Root, pid: Pid) -> Option<(u64, u64, i64)> {
    use std::os::unix::fs::MetadataExt;
    let file = root.metadata(file_of(pid, "exe")).ok()?;
    Some((file.dev(), file.ino(), file.mtime()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use hugeleaf_sys::Kernel;

    #[test]
    fn this_program_and_what_it_forks() {
        let root = Root::live();
        let mut watch = ProcessScanner::default();
        let own = hugeleaf_sys::own_pid();
        let page = Kernel::new().base_page();
        let (programs, first) = watch.scan(&root, page, Bytes::ZERO).unwrap();
        let me = programs.iter().find(|p| p.pids.contains(&own)).unwrap();
        assert!(me.cpu.is_none() && !me.resident.is_zero() && me.threads > 0);
        assert!(
            me.info
                .as_ref()
                .is_some_and(|a| a.uid == hugeleaf_sys::effective_uid())
        );
        // Uses processor time.
        let mut x = 1u64;
        while since_boot(&root).unwrap() < first + Duration::from_millis(300) {
            x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        }
        std::hint::black_box(x);
        let (programs, second) = watch.scan(&root, page, Bytes::ZERO).unwrap();
        let me = programs.iter().find(|p| p.pids.contains(&own)).unwrap();
        assert!(second > first && me.cpu.is_some_and(|cpu| cpu > 0.0));
    }

    #[test]
    fn memory_is_seen_by_size() {
        // Other tests of this process free memory meanwhile.
        if !hugeleaf_testkit::in_own_process("process_scanner::tests::memory_is_seen_by_size") {
            return;
        }
        let root = Root::live();
        let kernel = Kernel::new();
        let host = crate::system::read_host(&root, &kernel).unwrap();
        let Some(pmd) = host.pmd_page.get() else {
            return;
        };
        let own = hugeleaf_sys::own_pid();
        let held = || match walk_pages(&root, &kernel, &host, &[own], own) {
            Fact::Known(holding) => holding,
            other => panic!("{other:?}"),
        };
        let before = held();
        let much = usize::try_from(pmd.bytes().get() * 16).unwrap();
        let memory = vec![1u8; much];
        let after = held();
        std::hint::black_box(&memory);
        let grown = (after.base + after.huge) - (before.base + before.huge);
        assert!(
            grown.get() >= pmd.bytes().get() * 14,
            "{before:?} {after:?}"
        );
        assert!(after.file.is_some());
    }

    #[test]
    fn only_shared_memory_is_misaligned() {
        use crate::process::maps::parse_map_line;
        let pmd: PageSize = "2M".parse().unwrap();
        for (line, misaligned) in [
            (
                "7f0000200000-7f0020200000 rw-s 00000000 00:01 1029 /dev/zero (deleted)",
                false,
            ),
            (
                "7f0000203000-7f0020203000 rw-s 00003000 00:01 1029 /dev/zero (deleted)",
                false,
            ),
            (
                "7f0000003000-7f0020006000 rw-s 00000000 00:01 1029 /dev/zero (deleted)",
                true,
            ),
            ("7f0000003000-7f0020006000 rw-p 00000000 00:00 0", false),
        ] {
            let map = parse_map_line(1, line).unwrap();
            assert_eq!(is_misaligned(&map, pmd), misaligned, "{line}");
            assert!(can_be_huge(&map, pmd));
        }
    }

    /// Tests Redis during a save, and servers that fork workers at start, later, or just one.
    #[test]
    fn a_save_is_told_from_workers() {
        let kin = |minutes: u64, mib, common| ForkedMemory {
            age: Duration::from_secs(minutes * 60),
            anon: Bytes::from_mib(mib),
            shared: Bytes::from_mib(common),
        };
        let first = kin(100, 1000, 500);
        for (forked, saves) in [
            (vec![kin(1, 1000, 900)], true),
            (vec![kin(1, 1000, 900), kin(99, 10, 5)], true),
            (vec![kin(1, 400, 400)], false),
            (vec![kin(1, 1000, 0)], false),
            (vec![kin(99, 1030, 900)], false),
            (vec![kin(60, 1000, 900)], false),
            (vec![kin(2, 1030, 900); 4], false),
            (Vec::new(), false),
        ] {
            assert_eq!(is_save(&first, &forked), saves, "{forked:?}");
        }
        assert!(!is_save(&kin(100, 60, 50), &[kin(1, 60, 50)]));
        assert!(!is_save(&kin(10_000, 1000, 50), &[kin(61, 1000, 50)]));
    }

    #[test]
    fn a_fork_is_told_by_its_addresses() {
        let stat = |image: [u64; 4], state| ProcessStat {
            image,
            state,
            ..ProcessStat::default()
        };
        assert!(is_fork(&stat([6, 2, 3, 4], 'S'), &stat([6, 2, 3, 4], 'R')));
        assert!(!is_fork(&stat([6, 2, 3, 5], 'S'), &stat([6, 2, 3, 4], 'R')));
        assert!(!is_fork(&stat([0; 4], 'S'), &stat([0; 4], 'S')));
        assert!(!is_fork(&stat([1, 1, 0, 0], 'S'), &stat([1, 1, 0, 0], 'S')));
    }
}
