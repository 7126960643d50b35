//! Sums over processes in which a shared page counts once. Pure.

use std::collections::BTreeMap;

use hugeleaf_sys::Pid;
use hugeleaf_units::{Bytes, PageKind, Range};

use crate::model::{Host, PageUsage, Process, ProcessMapping, SharedMemoryObject};

/// Returns the memory of a host's processes by page size, each page once. Uses the kernel's own counters
/// (`/proc/meminfo` and the pools), not the sum over processes.
pub fn host_memory(host: &Host) -> Vec<PageUsage> {
    let m = &host.memory;
    let known = |f: &crate::Fact<Bytes>| f.get().unwrap_or_default();
    let pmd_mapped = known(&m.anon_huge) + known(&m.shmem_pmd_mapped) + known(&m.file_pmd_mapped);
    let on_base = known(&m.anon) + known(&m.mapped) - pmd_mapped;
    let mut table = Vec::new();
    PageUsage::add(&mut table, host.base_page, PageKind::Base, on_base);
    if let Some(pmd) = host.pmd_page.get() {
        PageUsage::add(&mut table, pmd, PageKind::Thp, pmd_mapped);
    }
    for pool in host.pools.iter().filter(|p| p.node.is_none()) {
        if let (Some(total), Some(free)) = (pool.total.get(), pool.free.get()) {
            let used = total.in_bytes(pool.size) - free.in_bytes(pool.size);
            PageUsage::add(&mut table, pool.size, PageKind::Hugetlb, used);
        }
    }
    table
}

/// Returns the memory of some processes together, by page size, from their segments, each page once (see
/// [`counted`]).
pub fn process_memory(processes: &[Process]) -> Vec<PageUsage> {
    let all: Vec<&Process> = processes.iter().collect();
    let mut table = Vec::new();
    for (process, counts) in processes.iter().zip(counted(&all)) {
        for (segment, counts) in process.segments.iter().zip(counts) {
            PageUsage::add_all(&mut table, part_of(segment, counts.resident));
        }
    }
    table
}

/// Returns the memory of a group of processes by page size, from a scan of the whole host (`read_all_processes`), which has
/// no segments. A page of a shared object counts once. That scan does not tell which other pages are shared, those of
/// libraries and those shared since a fork, so they count in each process.
pub fn of_group(processes: &[&Process], shared: &[SharedMemoryObject]) -> Vec<PageUsage> {
    // The parts of the processes' memory in shared objects, in each of them and counted once.
    let (mut in_each, mut counted_once, mut table) = (Vec::new(), Vec::new(), Vec::new());
    for object in shared {
        let views = processes.iter().filter_map(|p| table_in(object, p.pid));
        let best = views.max_by_key(|held| {
            (
                PageUsage::total(held) - PageUsage::on_base(held),
                PageUsage::total(held),
            )
        });
        PageUsage::add_all(&mut counted_once, best.unwrap_or_default());
    }
    for process in processes {
        let mut objects = Vec::new();
        for held in shared.iter().filter_map(|o| table_in(o, process.pid)) {
            PageUsage::add_all(&mut objects, held);
        }
        // A process may have touched a part of the objects only.
        let whole = PageUsage::total(&objects);
        let touched = process.resident_shmem + process.resident_file + process.hugetlb;
        let touched = touched.min(whole);
        for held in process.by_page_size.known().into_iter().flatten() {
            let common = of_size(&objects, held)
                .scaled(touched, whole)
                .min(held.bytes);
            PageUsage::add(&mut in_each, held.size, held.kind, common);
            PageUsage::add(&mut table, held.size, held.kind, held.bytes - common);
        }
    }
    for held in &in_each {
        let common = of_size(&counted_once, held).min(held.bytes);
        PageUsage::add(&mut table, held.size, held.kind, common);
    }
    table
}

/// Returns an object's memory by page size as one of its processes maps it; `None` if that process does not attach it.
fn table_in(object: &SharedMemoryObject, pid: Pid) -> Option<&[PageUsage]> {
    // Attached processes are in order of their ids.
    object.attached.binary_search(&pid).ok()?;
    let worse = object.worse.iter().find(|(worse, _)| *worse == pid);
    Some(worse.map_or(object.by_page_size.as_slice(), |(_, held)| held.as_slice()))
}

/// Returns the bytes of a table on pages of the same size and kind.
fn of_size(table: &[PageUsage], like: &PageUsage) -> Bytes {
    let same = table
        .iter()
        .find(|h| (h.size, h.kind) == (like.size, like.kind));
    same.map_or(Bytes::ZERO, |held| held.bytes)
}

/// The counted part of a segment if its processes are summed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CountedMemory {
    /// Counted resident bytes.
    pub resident: Bytes,
    /// Counted bytes in swap.
    pub swapped: Bytes,
}

/// Returns the counted part of each segment of some processes. A page that several of them map, or that
/// one maps at several addresses, counts once. One entry per process and segment, in their order.
///
/// The kernel reports the part of a segment that is mapped elsewhere too (`Shared_*`), and its
/// proportional share (`Pss`: a page mapped `m` times counts 1/`m` in each; proc(5)). Take `k` views of
/// the same memory here. A shared page counts 1/`m` in each if all `m` mappings are among the `k`, and
/// 1/`k` if it has others too. That is never less than the share, and each page counts once. For hugetlb
/// pages `Pss` reports nothing, so the largest shared view counts. The view with the most memory counts
/// in full, and the rest is divided among the others.
pub fn counted(processes: &[&Process]) -> Vec<Vec<CountedMemory>> {
    let mut counts: Vec<Vec<CountedMemory>> = processes
        .iter()
        .map(|p| vec![CountedMemory::default(); p.segments.len()])
        .collect();
    for mut views in spaces(processes).into_values() {
        views.sort_by_key(|v| (v.start, v.end));
        for group in groups(&views) {
            let deepest = depth(group);
            for (view, resident) in group.iter().zip(shares(group, deepest)) {
                counts[view.at.0][view.at.1] = CountedMemory {
                    resident,
                    swapped: view.swapped_share(deepest),
                };
            }
        }
    }
    counts
}

/// Returns the total length of ranges. Overlaps count once.
pub fn union_len(mut ranges: Vec<Range>) -> Bytes {
    ranges.sort_unstable_by_key(|range| range.start());
    let (mut sum, mut end) = (Bytes::ZERO, 0);
    for range in ranges {
        sum += Bytes(range.end().saturating_sub(range.start().max(end)));
        end = end.max(range.end());
    }
    sum
}

/// A segment as a view of memory that other segments may map too.
#[derive(Debug, Clone, Copy)]
struct SegmentSpan<'a> {
    at: (usize, usize),
    segment: &'a ProcessMapping,
    /// Offset in the object. The address for private anonymous memory, which stays the same after fork.
    start: u64,
    end: u64,
}

/// Device and inode, and zeroes for private anonymous memory. Each private mapping of a file part is a
/// space of its own. A library's parts overlap by a page at their ends, but are not the same memory.
type SharedObjectId = ((u32, u32, u64), Option<u64>);

fn spaces<'a>(processes: &[&'a Process]) -> BTreeMap<SharedObjectId, Vec<SegmentSpan<'a>>> {
    let mut spaces: BTreeMap<SharedObjectId, Vec<SegmentSpan<'a>>> = BTreeMap::new();
    for (p, process) in processes.iter().enumerate() {
        for (n, segment) in process.segments.iter().enumerate() {
            let start = match segment.object {
                (0, 0, 0) => segment.range.start(),
                _ => segment.offset,
            };
            let of_file = segment.object != (0, 0, 0) && !segment.shared;
            let is_part = of_file && segment.request.hugetlb.is_none();
            let space = (segment.object, is_part.then_some(start));
            spaces.entry(space).or_default().push(SegmentSpan {
                at: (p, n),
                segment,
                start,
                end: start.saturating_add(segment.range.len().get()),
            });
        }
    }
    spaces
}

/// Groups views, sorted by start, that overlap directly or through others.
fn groups<'a, 'b>(views: &'b [SegmentSpan<'a>]) -> Vec<&'b [SegmentSpan<'a>]> {
    let (mut groups, mut from, mut end) = (Vec::new(), 0, 0);
    for (i, view) in views.iter().enumerate() {
        if i > from && view.start >= end {
            groups.push(&views[from..i]);
            from = i;
        }
        end = view.end.max(end);
    }
    groups.push(&views[from..]);
    groups
}

/// Returns the maximum number of views that contain the same byte.
fn depth(group: &[SegmentSpan<'_>]) -> u64 {
    let starts = group.iter().map(|v| (v.start, 1));
    let ends = group.iter().map(|v| (v.end, -1));
    let mut steps: Vec<(u64, i64)> = starts.chain(ends).collect();
    steps.sort_unstable();
    let (mut now, mut most) = (0, 1);
    for (_, step) in steps {
        now += step;
        most = most.max(now);
    }
    most.unsigned_abs()
}

impl SegmentSpan<'_> {
    fn resident(&self) -> Bytes {
        self.segment.resident
    }

    fn shared(&self) -> Bytes {
        self.segment.shared_with_others.min(self.segment.resident)
    }

    fn private(&self) -> Bytes {
        self.resident() - self.shared()
    }

    fn huge(&self) -> Bytes {
        self.resident() - PageUsage::on_base(&self.segment.by_page_size)
    }

    /// Returns the counted part of pages that are mapped elsewhere too.
    fn shared_part(&self, views: u64) -> Bytes {
        let proportional = self.segment.pss - self.private();
        proportional
            .max(Bytes(self.shared().get() / views))
            .min(self.shared())
    }

    fn swapped_share(&self, views: u64) -> Bytes {
        let swapped = self.segment.swapped;
        // The kernel reports no proportional share of swapped shared memory.
        self.segment
            .swapped_pss
            .max(Bytes(swapped.get() / views))
            .min(swapped)
    }
}

/// Returns the counted resident bytes of each view of a group.
fn shares(group: &[SegmentSpan<'_>], deepest: u64) -> Vec<Bytes> {
    let is_pool = group.iter().any(|v| v.segment.request.hugetlb.is_some());
    let common = match is_pool {
        true => group
            .iter()
            .map(SegmentSpan::shared)
            .max()
            .unwrap_or_default(),
        false => group.iter().map(|v| v.shared_part(deepest)).sum(),
    };
    let own: Bytes = group.iter().map(SegmentSpan::private).sum();
    let order = |i: &usize| {
        (
            group[*i].resident(),
            group[*i].huge(),
            std::cmp::Reverse(*i),
        )
    };
    let holder = (0..group.len()).max_by_key(order).unwrap_or(0);
    let rest = (own + common) - group[holder].resident();
    let others = || group.iter().enumerate().filter(|(i, _)| *i != holder);
    let own_of_others: Bytes = others().map(|(_, v)| v.private()).sum();
    let common_of_others: Bytes = others().map(|(_, v)| v.shared()).sum();
    // Private memory counts first, then a part of the shared memory.
    let of_own = rest.min(own_of_others);
    let of_common = rest - of_own;
    let share = |(i, view): (usize, &SegmentSpan<'_>)| match i == holder {
        true => view.resident(),
        false => {
            view.private().scaled(of_own, own_of_others)
                + view.shared().scaled(of_common, common_of_others)
        }
    };
    group.iter().enumerate().map(share).collect()
}

/// Divides the counted bytes of a segment by page size. Private memory counts from the smallest pages up,
/// because pages written since fork were copied one by one.
fn part_of(segment: &ProcessMapping, counted: Bytes) -> Vec<PageUsage> {
    let mut left = counted;
    let mut table = Vec::new();
    for held in &segment.by_page_size {
        let bytes = match segment.shared {
            true => held.bytes.scaled(counted, segment.resident),
            false => held.bytes.min(left),
        };
        left = left - bytes;
        PageUsage::add(&mut table, held.size, held.kind, bytes);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fact::Fact;
    use crate::model::{MappingRole, MappingSettings, VmFlags};
    use hugeleaf_units::{PageSize, Range};
    use proptest::prelude::*;

    const PAGE: u64 = 4096;

    fn base() -> PageSize {
        PageSize::new(Bytes(PAGE)).unwrap()
    }

    /// Makes a segment from page `start`, with the number of mappings of each page. 0 is not resident.
    fn segment(start: u64, mappings: &[u64]) -> ProcessMapping {
        let bytes = |n: usize| Bytes(n as u64 * PAGE);
        let resident: Vec<u64> = mappings.iter().copied().filter(|n| *n > 0).collect();
        let shared = resident.iter().filter(|n| **n > 1).count();
        let pss: u64 = resident.iter().map(|n| PAGE / n).sum();
        let mut by_page_size = Vec::new();
        PageUsage::add(
            &mut by_page_size,
            base(),
            PageKind::Base,
            bytes(resident.len()),
        );
        ProcessMapping {
            range: Range::new(start * PAGE, start * PAGE + mappings.len() as u64 * PAGE).unwrap(),
            role: MappingRole::Anon,
            name: String::new(),
            permissions: [true, true, false],
            shared: false,
            offset: 0,
            object: (0, 0, 0),
            request: MappingSettings::default(),
            flags: VmFlags::default(),
            thp_eligible: Fact::Absent,
            collapses: Fact::Absent,
            resident: bytes(resident.len()),
            pss: Bytes(pss),
            anonymous: bytes(resident.len()),
            shared_with_others: bytes(shared),
            locked: Bytes::ZERO,
            swapped: Bytes::ZERO,
            swapped_pss: Bytes::ZERO,
            merged: Bytes::ZERO,
            by_page_size,
            pages: Fact::Absent,
            file_system: None,
            mount_huge: None,
        }
    }

    fn process(segments: Vec<ProcessMapping>) -> Process {
        Process {
            segments,
            ..Process::default()
        }
    }

    fn total(processes: &[Process]) -> Bytes {
        process_memory(processes).iter().map(|h| h.bytes).sum()
    }

    #[test]
    fn an_object_at_three_addresses_of_one_process_counts_once() {
        let view = |start: u64| {
            let mut view = segment(start, &[3; 100]);
            (view.shared, view.object) = (true, (0, 1, 9));
            view
        };
        let alone = process(vec![view(1000), view(2000), view(3000)]);
        assert_eq!(total(std::slice::from_ref(&alone)), Bytes(100 * PAGE));
        // A process outside does not reduce the total.
        let mut outside = alone.clone();
        outside.segments.truncate(1);
        assert_eq!(total(&[outside]), Bytes(100 * PAGE));
        // Two mappings of neighbouring parts share nothing.
        let (mut low, mut high) = (segment(0, &[1; 50]), segment(0, &[1; 50]));
        (low.object, high.object, high.offset) = ((0, 1, 9), (0, 1, 9), 50 * PAGE);
        assert_eq!(
            total(&[process(vec![low]), process(vec![high])]),
            Bytes(100 * PAGE)
        );
    }

    /// Three processes share an object of 800 pages. One has touched all of it, one a part, one maps it on base pages.
    #[test]
    fn an_object_of_a_group_counts_once() {
        let large: PageSize = "2M".parse().unwrap();
        let held = |size, kind, pages: u64| PageUsage {
            size,
            kind,
            bytes: Bytes(pages * PAGE),
        };
        let on_large = |pages| held(large, PageKind::Thp, pages);
        let on_base = |pages| held(base(), PageKind::Base, pages);
        let object = SharedMemoryObject {
            object: (0, 1, 9),
            name: "shared".to_owned(),
            by_page_size: vec![on_large(800)],
            attached: vec![Pid(1), Pid(2), Pid(3)],
            misaligned: vec![Pid(3)],
            worse: vec![(Pid(3), vec![on_base(800)])],
        };
        let one = |pid, touched: u64, table: Vec<PageUsage>| Process {
            pid: Pid(pid),
            resident_shmem: Bytes(touched * PAGE),
            by_page_size: Fact::Known(table),
            ..Process::default()
        };
        let first = one(1, 800, vec![on_base(10), on_large(800)]);
        let part = one(2, 200, vec![on_base(20), on_large(200)]);
        let other = one(3, 800, vec![on_base(830)]);
        let objects = [object];
        let group = |processes: &[&Process]| of_group(processes, &objects);
        assert_eq!(group(&[&first, &part]), [on_base(30), on_large(800)]);
        assert_eq!(
            group(&[&first, &part, &other]),
            [on_base(60), on_large(800)]
        );
        assert_eq!(group(&[&other, &other]), [on_base(860)]);
        assert_eq!(
            of_group(&[&first, &part], &[]),
            [on_base(30), on_large(1000)]
        );
    }

    /// A library is mapped in parts that overlap by a page, and by many processes that are not included.
    #[test]
    fn parts_of_a_file_that_others_map_too_count_in_full() {
        let part = |offset: u64, pages: usize| {
            let mut part = segment(offset + 100, &vec![50; pages]);
            (part.object, part.offset) = ((8, 1, 9), offset * PAGE);
            part
        };
        let one = process(vec![part(0, 10), part(9, 100), part(108, 5)]);
        assert_eq!(total(std::slice::from_ref(&one)), Bytes(115 * PAGE));
        assert_eq!(total(&[one.clone(), one]), Bytes(115 * PAGE));
    }

    /// The kernel reports no proportional share of hugetlb pages.
    #[test]
    fn pool_pages_of_a_forked_tree_count_once() {
        let pool = |shared: usize, own: usize| {
            let mut segment = segment(0, &[vec![2; shared], vec![1; own]].concat());
            segment.object = (0, 1, 9);
            segment.request.hugetlb = Some(base());
            segment.pss = segment.resident;
            process(vec![segment])
        };
        // The parent has 16, and each of 4 children has written to 4 of them.
        let tree = [vec![pool(16, 0)], vec![pool(12, 4); 4]].concat();
        assert_eq!(total(&tree), Bytes(32 * PAGE));
        assert_eq!(total(&tree[..1]), Bytes(16 * PAGE));
        assert_eq!(total(&tree[1..2]), Bytes(16 * PAGE));
    }

    #[test]
    fn swapped_pages_of_a_forked_tree_count_once() {
        let half = |pss: u64| {
            let mut segment = segment(0, &[1; 8]);
            (segment.swapped, segment.swapped_pss) = (Bytes(8 * PAGE), Bytes(pss * PAGE));
            process(vec![segment])
        };
        let sum = |tree: &[&Process]| -> Bytes {
            counted(tree).iter().flatten().map(|c| c.swapped).sum()
        };
        assert_eq!(sum(&[&half(4), &half(4)]), Bytes(8 * PAGE));
        assert_eq!(sum(&[&half(4)]), Bytes(8 * PAGE));
        assert_eq!(sum(&[&half(8), &half(8)]), Bytes(16 * PAGE));
    }

    proptest! {
        /// Checks a forked family. Each process has each page from the parent, has written to it since,
        /// or has freed it. The total is the number of existing pages.
        #[test]
        fn each_page_of_a_forked_tree_counts_once(
            tree in prop::collection::vec(prop::collection::vec(0u8..3, 40), 1..9),
            moved in prop::collection::vec(0u64..20, 9),
        ) {
            let sharers = |page: usize| tree.iter().filter(|p| p[page] == 1).count() as u64;
            let of_one = |(n, pages): (usize, &Vec<u8>)| {
                let mappings: Vec<u64> = pages.iter().enumerate().map(|(at, state)| match state {
                    0 => 0,
                    1 => sharers(at),
                    _ => 1,
                }).collect();
                // A mapping that grew at its end after fork is still the same memory.
                let grown = [mappings, vec![1; usize::try_from(moved[n]).unwrap()]].concat();
                process(vec![segment(100, &grown)])
            };
            let processes: Vec<Process> = tree.iter().enumerate().map(of_one).collect();
            let once = (0..40).filter(|at| sharers(*at) > 0).count() as u64;
            let own = tree.iter().flatten().filter(|state| **state == 2).count() as u64;
            let grown: u64 = moved[..tree.len()].iter().sum();
            let truth = (once + own + grown) * PAGE;
            // The kernel rounds each share down by less than a byte per page and sharer.
            let got = total(&processes).get();
            prop_assert!(got <= truth && got + 9 * 40 * 9 >= truth, "{got} of {truth}");
            let all: Vec<&Process> = processes.iter().collect();
            for (process, counts) in processes.iter().zip(counted(&all)) {
                prop_assert!(counts[0].resident <= process.segments[0].resident);
            }
        }
    }
}
