//! Reads every process of the host, in summary, at a cost that does not grow with the number of processes
//! that share memory.
//!
//! Walking the page tables of each process (`smaps`, `smaps_rollup`) costs time in proportion to the mapped
//! memory, times the processes that map it. Here a shared-memory object is walked in one process only.
//! Every other process is compared by the size of its own page tables. Each page mapped by a base entry
//! needs that entry. Page tables too small for "all on base pages", or too large for "all on huge pages",
//! reveal a process that differs, and only that one is walked too. A process that attached at a misaligned
//! address is known from its map alone.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::sync::{Mutex, PoisonError};

use hugeleaf_sys::{Kernel, PageScanDetail, PageState, Pid};
use hugeleaf_units::{Bytes, PageKind, PageSize, Range};

use crate::fact::{Fact, ReadError};
use crate::model::{Host, PageUsage, Process, ProcessKind, SharedMemoryObject};
use crate::process::file_of;
use crate::process::maps::{MapLine, SmapsEntry, read_maps};
use crate::process::read::{SmapsPageSizes, read_basics, read_smaps};
use crate::root::Root;
use crate::target::all_pids;

type ObjectId = (u32, u32, u64);

/// Memory of a process in each object, by page size.
type ObjectPageUsage = BTreeMap<ObjectId, Vec<PageUsage>>;

/// A process with its map, before its page tables are read.
struct ScannedProcess {
    process: Process,
    /// Its mappings of shared objects, by object. Only the first of an object keeps the name, because a
    /// process may have any number of mappings, and those of all processes are held at once.
    maps: Vec<MapLine>,
    private: Vec<Range>,
    pagemap: Option<File>,
    smaps: Vec<SmapsEntry>,
}

/// Reads all processes that have memory of their own.
pub fn read_all_processes(
    root: &Root,
    kernel: &Kernel,
    host: &Host,
) -> (Vec<Process>, Vec<SharedMemoryObject>) {
    let pids = all_pids(root);
    let pmd = SmapsPageSizes::from_host(host).pmd();
    let mut seen: Vec<ScannedProcess> = in_parallel(&pids, 1, |pid| scan_process(root, *pid, pmd))
        .into_iter()
        .flatten()
        .filter(|s| s.process.kind == ProcessKind::User)
        .collect();
    let objects = objects(&seen);
    let walker = PageTableWalker {
        tables: Mutex::new(None),
        root,
        host,
        kernel,
        base: host.base_page,
        pmd,
    };
    let mut shared: Vec<SharedMemoryObject> = objects
        .iter()
        .map(|(id, attached)| walker.read_object(*id, attached, &seen))
        .collect();
    let tables = in_parallel(&seen, 1, |s| walker.table_of(s, &shared));
    for (s, table) in seen.iter_mut().zip(tables) {
        s.process.set_table(table);
    }
    for object in &mut shared {
        object.worse = walker.worse(object, &seen);
    }
    (seen.into_iter().map(|s| s.process).collect(), shared)
}

fn scan_process(root: &Root, pid: Pid, pmd: PageSize) -> Option<ScannedProcess> {
    let mut process = read_basics(root, pid).ok()?;
    if process.kind != ProcessKind::User {
        return None;
    }
    let (maps, smaps, pagemap) = if root.is_live() {
        let maps = match root.parse_lines(file_of(pid, "maps"), read_maps) {
            Fact::Known(maps) => maps,
            Fact::Unreadable(error) if error.denied => {
                process.by_page_size = Fact::Unreadable(error);
                Vec::new()
            }
            // It exited between two files.
            Fact::Absent | Fact::Unreadable(_) => return None,
        };
        (maps, Vec::new(), root.open(file_of(pid, "pagemap")).ok())
    } else {
        let smaps = read_smaps(root, &process).ok()?;
        let maps = smaps.iter().map(|entry| entry.map.clone()).collect();
        (maps, smaps, None)
    };
    Some(ScannedProcess {
        process,
        private: private_ranges(&maps, pmd),
        maps: of_objects(maps, pmd),
        pagemap,
        smaps,
    })
}

/// Returns the mappings of shared objects. Only the first of each object keeps the name.
fn of_objects(maps: Vec<MapLine>, pmd: PageSize) -> Vec<MapLine> {
    let mut named = BTreeSet::new();
    let mut kept = Vec::new();
    for mut map in maps.into_iter().filter(|map| is_object(map, pmd)) {
        if !named.insert(map.object) {
            map.name = String::new();
        }
        kept.push(map);
    }
    kept.sort_by_key(|map| map.object);
    kept
}

impl ScannedProcess {
    /// Returns its mappings of one object, which may be many.
    fn of(&self, id: ObjectId) -> &[MapLine] {
        let from = self.maps.partition_point(|map| map.object < id);
        let to = self.maps.partition_point(|map| map.object <= id);
        &self.maps[from..to]
    }
}

/// Runs `f` over all items on one thread per CPU, each with at least `at_least` items. Returns the results
/// in the items' order.
pub(crate) fn in_parallel<T: Sync, R: Send>(
    items: &[T],
    at_least: usize,
    f: impl Fn(&T) -> R + Sync,
) -> Vec<R> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let share = items.len().div_ceil(threads).max(at_least);
    std::thread::scope(|scope| {
        let workers: Vec<_> = items
            .chunks(share)
            .map(|chunk| scope.spawn(|| chunk.iter().map(&f).collect::<Vec<R>>()))
            .collect();
        workers
            .into_iter()
            .flat_map(|w| w.join().unwrap_or_else(|e| std::panic::resume_unwind(e)))
            .collect()
    })
}

/// True if a mapping is of an object that others may attach and that could be on huge pages.
fn is_object(map: &MapLine, pmd: PageSize) -> bool {
    map.shared && map.object.2 != 0 && map.range.len() >= pmd.bytes()
}

/// Returns the shared objects, each with the indices of the processes that attach it.
fn objects(seen: &[ScannedProcess]) -> BTreeMap<ObjectId, Vec<usize>> {
    let mut objects: BTreeMap<ObjectId, Vec<usize>> = BTreeMap::new();
    for (i, s) in seen.iter().enumerate() {
        for map in &s.maps {
            let attached = objects.entry(map.object).or_default();
            if attached.last() != Some(&i) {
                attached.push(i);
            }
        }
    }
    objects
}

struct PageTableWalker<'a> {
    /// Memory in each object of the last process whose `smaps` was read. The next query mostly concerns the
    /// same process.
    tables: Mutex<Option<(Pid, ObjectPageUsage)>>,
    root: &'a Root,
    host: &'a Host,
    kernel: &'a Kernel,
    base: PageSize,
    pmd: PageSize,
}

/// Result of a walk: bytes present, and bytes of those mapped by huge entries.
#[derive(Clone, Copy, Default)]
struct WalkedBytes {
    present: Bytes,
    huge: Bytes,
}

impl PageTableWalker<'_> {
    fn walk(&self, pagemap: &File, ranges: impl Iterator<Item = Range>) -> Option<WalkedBytes> {
        let mut walked = WalkedBytes::default();
        for range in ranges {
            let map = self.kernel.page_map(pagemap, range, PageScanDetail::Sizes);
            for run in map.ok().filter(|map| map.huge_known)?.runs {
                if !run.state.has(PageState::PRESENT) || run.state.has(PageState::ZERO) {
                    continue;
                }
                walked.present += run.range.len();
                if run.state.has(PageState::HUGE) {
                    walked.huge += run.range.len();
                }
            }
        }
        Some(walked)
    }

    fn walk_object(&self, s: &ScannedProcess, id: ObjectId) -> Option<WalkedBytes> {
        if !s.smaps.is_empty() {
            return Some(walked_by_kernel(&s.smaps, id));
        }
        let pagemap = s.pagemap.as_ref()?;
        self.walk(pagemap, s.of(id).iter().map(|map| map.range))
    }

    /// Walks an object in the process that shows most of it: one that attached it aligned, and among those
    /// the one with most shared memory resident.
    fn read_object(
        &self,
        id: ObjectId,
        attached: &[usize],
        seen: &[ScannedProcess],
    ) -> SharedMemoryObject {
        // Huge pages can be mapped whole if address and offset agree modulo their size.
        let is_aligned = |m: &MapLine| self.pmd.divides(m.range.start().wrapping_sub(m.offset));
        let aligned = |i: usize| seen[i].of(id).iter().all(is_aligned);
        let best = attached.iter().copied().max_by_key(|i| {
            let p = &seen[*i].process;
            (aligned(*i), p.resident_shmem + p.resident_file + p.hugetlb)
        });
        let by_page_size = best.map(|i| self.table_of_object(&seen[i], id));
        let name = attached
            .first()
            .and_then(|i| seen[*i].of(id).first())
            .map(|m| m.name.clone());
        let misaligned = attached
            .iter()
            .filter(|i| !aligned(**i))
            .map(|i| seen[*i].process.pid)
            .collect();
        SharedMemoryObject {
            object: id,
            name: name.unwrap_or_default(),
            by_page_size: by_page_size.unwrap_or_default(),
            attached: attached.iter().map(|i| seen[*i].process.pid).collect(),
            misaligned,
            worse: Vec::new(),
        }
    }

    /// Returns a process's memory in an object. Only `smaps` reports the size of hugetlb pages, and on
    /// kernels before PAGEMAP_SCAN only it shows huge pages at all.
    fn table_of_object(&self, s: &ScannedProcess, id: ObjectId) -> Vec<PageUsage> {
        if s.smaps.is_empty()
            && s.process.hugetlb.is_zero()
            && let Some(walked) = self.walk_object(s, id)
        {
            return self.held(walked);
        }
        let mut last = self.tables.lock().unwrap_or_else(PoisonError::into_inner);
        if last.as_ref().is_none_or(|(pid, _)| *pid != s.process.pid) {
            *last = Some((s.process.pid, self.tables_of(s)));
        }
        let tables = last.as_ref().and_then(|(_, tables)| tables.get(&id));
        tables.cloned().unwrap_or_default()
    }

    /// Returns a process's memory in each object, from `smaps`.
    fn tables_of(&self, s: &ScannedProcess) -> ObjectPageUsage {
        let read = match s.smaps.is_empty() {
            true => read_smaps(self.root, &s.process).unwrap_or_default(),
            false => Vec::new(),
        };
        let mut tables = ObjectPageUsage::new();
        for entry in read.iter().chain(&s.smaps) {
            let table = tables.entry(entry.map.object).or_default();
            SmapsPageSizes::from_host(self.host).add(table, &entry.counts);
        }
        tables
    }

    fn held(&self, walked: WalkedBytes) -> Vec<PageUsage> {
        let (mut table, on_base) = (Vec::new(), walked.present - walked.huge);
        PageUsage::add(&mut table, self.base, PageKind::Base, on_base);
        PageUsage::add(&mut table, self.pmd, PageKind::Thp, walked.huge);
        table
    }

    fn table_of(&self, s: &ScannedProcess, shared: &[SharedMemoryObject]) -> Fact<Vec<PageUsage>> {
        if s.process.by_page_size.error().is_some() {
            return s.process.by_page_size.clone();
        }
        // Only smaps reports the size of hugetlb pages, and walking those costs little.
        let huge = if s.process.hugetlb.is_zero() {
            self.huge_bytes(s, shared)
        } else {
            None
        };
        match huge {
            Some(huge) => {
                let present = s.process.resident;
                let huge = huge.min(present);
                Fact::Known(self.held(WalkedBytes { present, huge }))
            }
            None => table_from_smaps(self.root, self.host, &s.process),
        }
    }

    /// Returns the bytes that huge entries map in a process. `None` if the kernel cannot scan them.
    fn huge_bytes(&self, s: &ScannedProcess, shared: &[SharedMemoryObject]) -> Option<Bytes> {
        let pagemap = s.pagemap.as_ref()?;
        let private = self.walk(pagemap, s.private.iter().copied())?;
        Some(private.huge + self.huge_of_objects(s, shared)?)
    }

    /// Returns the bytes of shared objects that huge entries map in this process. Uses the walk in another
    /// process if this one's page tables agree with it, else walks this one.
    fn huge_of_objects(&self, s: &ScannedProcess, shared: &[SharedMemoryObject]) -> Option<Bytes> {
        let mine: Vec<&SharedMemoryObject> = shared
            .iter()
            // Processes are in order of their ids.
            .filter(|o| o.attached.binary_search(&s.process.pid).is_ok())
            .collect();
        if mine.is_empty() {
            return Some(Bytes::ZERO);
        }
        let process = &s.process;
        let resident = process.resident_shmem;
        let tables = process.page_tables.as_f64();
        // Eight bytes an entry, on every 64-bit architecture.
        let if_on_base = resident.as_f64() / self.base.bytes().as_f64() * 8.0;
        let coverage =
            |o: &&SharedMemoryObject| PageUsage::coverage(&o.by_page_size).unwrap_or(0.0);
        let fits = |o: &&SharedMemoryObject| !o.misaligned.contains(&process.pid);
        if !mine.iter().any(fits) {
            return Some(Bytes::ZERO);
        }
        let none_large = mine.iter().all(|o| coverage(o) == 0.0);
        if none_large && tables >= if_on_base * 0.9 {
            return Some(Bytes::ZERO);
        }
        let all_large = mine.iter().all(|o| coverage(o) > 0.98 && fits(o));
        if all_large && tables < if_on_base * 0.5 {
            return Some(Bytes(self.pmd.round_down(resident.get())));
        }
        mine.iter().try_fold(Bytes::ZERO, |sum, o| {
            Some(sum + self.walk_object(s, o.object)?.huge)
        })
    }

    /// Returns the processes that hold an object on smaller pages than the best one.
    fn worse(
        &self,
        object: &SharedMemoryObject,
        seen: &[ScannedProcess],
    ) -> Vec<(Pid, Vec<PageUsage>)> {
        if PageUsage::coverage(&object.by_page_size).unwrap_or(0.0) == 0.0 {
            return Vec::new();
        }
        seen.iter()
            .filter(|s| object.attached.binary_search(&s.process.pid).is_ok())
            .filter(|s| {
                // Walks again only processes whose table was not derived from the best one's.
                object.misaligned.contains(&s.process.pid)
                    || s.process.coverage().unwrap_or(0.0) < 0.9
            })
            .filter_map(|s| Some((s.process.pid, self.walk_object(s, object.object)?)))
            .filter(|(_, w)| w.huge < w.present)
            .map(|(pid, w)| (pid, self.held(w)))
            .collect()
    }
}

fn walked_by_kernel(smaps: &[SmapsEntry], id: ObjectId) -> WalkedBytes {
    let counts = smaps
        .iter()
        .filter(|e| e.map.object == id)
        .map(|e| e.counts);
    counts.fold(WalkedBytes::default(), |sum, c| WalkedBytes {
        present: sum.present + c.resident + c.hugetlb,
        huge: sum.huge + c.pmd_mapped + c.hugetlb,
    })
}

/// Returns the parts of an address space between shared objects, as few as possible, for one walk each.
fn private_ranges(maps: &[MapLine], pmd: PageSize) -> Vec<Range> {
    let mut ranges: Vec<Range> = Vec::new();
    let mut open: Option<Range> = None;
    for map in maps {
        // The kernel's own page at the top is no part of the process.
        if map.name == "[vsyscall]" {
            continue;
        }
        if is_object(map, pmd) {
            ranges.extend(open.take());
            continue;
        }
        open = match open {
            Some(range) => Range::new(range.start(), map.range.end()).ok(),
            None => Some(map.range),
        };
    }
    ranges.extend(open);
    ranges
}

fn table_from_smaps(root: &Root, host: &Host, process: &Process) -> Fact<Vec<PageUsage>> {
    match read_smaps(root, process) {
        Ok(entries) => Fact::Known(SmapsPageSizes::from_host(host).table(&entries)),
        Err(e) => Fact::Unreadable(ReadError {
            path: root.path(file_of(process.pid, "smaps")),
            reason: e.to_string(),
            denied: matches!(e, crate::process::ProcessError::Denied { .. }),
        }),
    }
}
