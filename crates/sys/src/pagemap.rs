//! The state of each page of a range, from the kernel's page map.
#![allow(unsafe_code)]
//! # Safety
//! ioctl(PAGEMAP_SCAN) writes page regions into a vector whose length is passed with it. All other access is plain
//! reading.

use std::fs::File;
use std::os::fd::RawFd;
use std::os::unix::fs::FileExt;

use hugeleaf_units::{Bytes, PageSize, Range};

use crate::{Errno, SysError, errno_of, last_errno};

/// The known properties of a page, as a set of flags.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct PageState(u8);

impl PageState {
    pub const PRESENT: PageState = PageState(1);
    pub const SWAPPED: PageState = PageState(2);
    /// A page of a file or of shared memory, as opposed to private anonymous memory.
    pub const FILE: PageState = PageState(4);
    /// Mapped by an entry larger than a base page: a PMD-mapped THP, or hugetlb.
    pub const HUGE: PageState = PageState(8);
    /// The zero page. The process has not written to it yet.
    pub const ZERO: PageState = PageState(16);
    /// Mapped by this process only.
    pub const EXCLUSIVE: PageState = PageState(32);
    /// A guard page (MADV_GUARD_INSTALL, Linux 6.13).
    /// It holds no memory and an access ends in SIGSEGV. [`PageScanDetail::Sizes`] does not report it.
    pub const GUARD: PageState = PageState(64);

    /// Returns true if all flags of `other` are set.
    pub const fn has(self, other: PageState) -> bool {
        self.0 & other.0 == other.0
    }

    /// Returns the union of both sets.
    #[must_use]
    pub const fn with(self, other: PageState) -> PageState {
        PageState(self.0 | other.0)
    }

    /// Returns `self`, with `fact` added if `yes`.
    #[must_use]
    const fn when(self, yes: bool, fact: PageState) -> PageState {
        if yes { self.with(fact) } else { self }
    }
}

/// A range of populated pages in the same state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageRun {
    pub range: Range,
    pub state: PageState,
}

/// The pages of a range, in order of address.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PageMap {
    /// Runs of pages in the same state. Pages outside all runs are neither in memory nor in swap.
    pub runs: Vec<PageRun>,
    /// True if [`PageState::HUGE`] could be determined (PAGEMAP_SCAN, Linux 6.7).
    pub huge_known: bool,
    /// True if [`PageState::EXCLUSIVE`] was requested.
    pub exclusive_known: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PageScanDetail {
    /// Present, swapped and huge, as a table of page sizes needs.
    /// Reports nothing on kernels without PAGEMAP_SCAN (before Linux 6.7).
    Sizes,
    /// Also the pages that only this process maps, as promotion needs. Reads eight more bytes per base page.
    Exclusive,
    /// As [`PageScanDetail::Exclusive`].
    /// If only this process maps all pages in memory, it takes half the time but does not report sizes and zero pages.
    ExclusiveFirst,
}

pub(crate) fn read(
    fd: RawFd,
    file: &File,
    range: Range,
    base: PageSize,
    detail: PageScanDetail,
) -> Result<PageMap, SysError> {
    let mut runs = PageRunBuilder::default();
    if detail == PageScanDetail::ExclusiveFirst {
        entries(file, range, base, |page, state| runs.push(page, state))?;
        let alone = |run: &PageRun| {
            run.state.has(PageState::EXCLUSIVE) || !run.state.has(PageState::PRESENT)
        };
        if runs.0.iter().all(alone) {
            return Ok(PageMap {
                runs: runs.0,
                huge_known: false,
                exclusive_known: true,
            });
        }
        // The zero page is not exclusive either. Only a scan distinguishes it from a page shared with a child.
        runs = PageRunBuilder::default();
    }
    let scanned = match scan(fd, range, base) {
        Ok(scanned) => Some(scanned),
        // Kernels before 6.7 do not have this ioctl.
        Err(e) if e.errno == Errno::NOTTY || e.errno == Errno::INVAL => None,
        Err(e) => return Err(e),
    };
    match (scanned, detail) {
        (Some(runs), PageScanDetail::Sizes) => Ok(PageMap {
            runs,
            huge_known: true,
            exclusive_known: false,
        }),
        (Some(scanned), _) => {
            // Reading eight bytes per page for the holes of a large reservation would be wasteful.
            for part in spans(&scanned, base) {
                entries(file, part, base, |page, state| runs.push(page, state))?;
            }
            Ok(PageMap {
                runs: overlay(&runs.0, &scanned),
                huge_known: true,
                exclusive_known: true,
            })
        }
        // Without the ioctl, sizes are unknown. Reading entries would cost eight bytes per page of holes that can span the
        // address space.
        (None, PageScanDetail::Sizes) => Ok(PageMap::default()),
        (None, _) if range.len() > LONGEST_UNSCANNED => {
            Err(SysError::new("read", "pagemap", Errno::TOOBIG))
        }
        (None, _) => {
            entries(file, range, base, |page, state| runs.push(page, state))?;
            Ok(PageMap {
                runs: runs.0,
                huge_known: false,
                exclusive_known: true,
            })
        }
    }
}

/// Returns the populated parts of a range. Parts with a small hole between them are joined.
fn spans(runs: &[PageRun], base: PageSize) -> Vec<Range> {
    let near = base.bytes().get().saturating_mul(1024);
    let mut spans: Vec<Range> = Vec::new();
    for run in runs {
        match spans.last_mut() {
            Some(last) if run.range.start().saturating_sub(last.end()) <= near => {
                *last = Range::new(last.start(), run.range.end()).unwrap_or(*last);
            }
            _ => spans.push(run.range),
        }
    }
    spans
}

/// Collects pages in address order into runs of the same state.
#[derive(Default)]
struct PageRunBuilder(Vec<PageRun>);

impl PageRunBuilder {
    fn push(&mut self, page: Range, state: PageState) {
        if let Some(last) = self.0.last_mut()
            && last.state == state
            && last.range.end() == page.start()
            && let Ok(joined) = Range::new(last.range.start(), page.end())
        {
            last.range = joined;
            return;
        }
        self.0.push(PageRun { range: page, state });
    }
}

/// Splits the runs of `entries` at those of `scanned` and adds the flags that only the scan reports.
fn overlay(entries: &[PageRun], scanned: &[PageRun]) -> Vec<PageRun> {
    let mut out = PageRunBuilder::default();
    let mut at = 0;
    for entry in entries {
        while scanned
            .get(at)
            .is_some_and(|s| s.range.end() <= entry.range.start())
        {
            at += 1;
        }
        let mut done = entry.range.start();
        for s in &scanned[at..] {
            let Some(both) = s.range.intersect(entry.range) else {
                break;
            };
            if let Ok(gap) = Range::new(done, both.start()) {
                out.push(gap, entry.state);
            }
            let marks = entry
                .state
                .when(s.state.has(PageState::HUGE), PageState::HUGE)
                .when(s.state.has(PageState::ZERO), PageState::ZERO);
            out.push(both, marks);
            done = both.end();
        }
        if let Ok(rest) = Range::new(done, entry.range.end()) {
            out.push(rest, entry.state);
        }
    }
    out.0
}

/// Longest range whose entries are read individually on kernels without PAGEMAP_SCAN. Its entries take half a gigabyte
/// with 4K base pages. A program can map its whole address space, and reading that would take minutes.
pub const LONGEST_UNSCANNED: Bytes = Bytes(256 << 30);

/// Number of entries read from `/proc/PID/pagemap` at once.
const ENTRIES_A_READ: usize = 4 * 1024;

/// Maximum number of pages that one PAGEMAP_SCAN walks and finds. During a call, the kernel holds the lock on the address
/// space, so the process cannot map memory. Both together take less than 5 ms (kernel-notes.md).
const WALKED_A_SCAN: u64 = 1 << 18;
const FOUND_A_SCAN: u64 = 1 << 14;

/// Reads one 64-bit entry per base page (Documentation/admin-guide/mm/pagemap.rst).
///
/// Bit 56 means exclusive. Bit 61 means "file page or shared anonymous memory". Both were verified by experiment
/// (kernel-notes.md).
fn entries(
    file: &File,
    range: Range,
    base: PageSize,
    mut each: impl FnMut(Range, PageState),
) -> Result<(), SysError> {
    let page = base.bytes().get();
    let mut buffer = vec![0u8; ENTRIES_A_READ * 8];
    let mut at = base.round_down(range.start());
    while at < range.end() {
        let wanted = usize::try_from(base.pages_for(Bytes(range.end() - at)).get())
            .unwrap_or(ENTRIES_A_READ)
            .min(ENTRIES_A_READ);
        let got = file
            .read_at(&mut buffer[..wanted * 8], at / page * 8)
            .map_err(|e| SysError::new("read", "pagemap", errno_of(&e)))?;
        if got < 8 {
            break; // The process is gone, or the range is past its address space.
        }
        for entry in buffer[..got - got % 8].chunks_exact(8) {
            let bits = u64::from_ne_bytes(entry.try_into().unwrap_or_default());
            let state = state_of(bits);
            if state != PageState::default()
                && let Ok(page) = Range::new(at, at + page)
            {
                each(page, state);
            }
            at += page;
        }
    }
    Ok(())
}

fn state_of(bits: u64) -> PageState {
    let bit = |n: u32| bits >> n & 1 == 1;
    let (present, swapped) = (bit(63), bit(62));
    if !present && (bit(58) || is_guard_marker(bits)) {
        return PageState::GUARD;
    }
    if !present && !swapped {
        return PageState::default();
    }
    PageState::default()
        .when(present, PageState::PRESENT)
        .when(swapped, PageState::SWAPPED)
        .when(bit(61), PageState::FILE)
        .when(bit(56), PageState::EXCLUSIVE)
}

/// Recognizes a guard page before Linux 6.15, which added bit 58. Its entry has a marker's swap type (the last five bits)
/// and the marker's kind as offset. For readers who may see neither, it looks like swap.
const fn is_guard_marker(bits: u64) -> bool {
    const MARKER: u64 = 0x1f;
    const GUARD: u64 = 4 << 5;
    bits >> 62 & 1 == 1 && bits & MARKER == MARKER && bits & ((1 << 55) - 1) & !MARKER == GUARD
}

/// `struct pm_scan_arg` (include/uapi/linux/fs.h).
#[repr(C)]
struct PmScanArg {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    vec: u64,
    vec_len: u64,
    max_pages: u64,
    category_inverted: u64,
    category_mask: u64,
    category_anyof_mask: u64,
    return_mask: u64,
}

/// `struct page_region` (include/uapi/linux/fs.h).
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct PageRegion {
    start: u64,
    end: u64,
    categories: u64,
}

const PAGE_IS_FILE: u64 = 1 << 2;
const PAGE_IS_PRESENT: u64 = 1 << 3;
const PAGE_IS_SWAPPED: u64 = 1 << 4;
const PAGE_IS_PFNZERO: u64 = 1 << 5;
const PAGE_IS_HUGE: u64 = 1 << 6;

const REGIONS_A_SCAN: usize = 1024;

/// Scans a range in parts that hold the kernel's lock for a short time each.
fn scan(fd: RawFd, range: Range, base: PageSize) -> Result<Vec<PageRun>, SysError> {
    let part = base.bytes().get().saturating_mul(WALKED_A_SCAN);
    let mut out = PageRunBuilder::default();
    let mut regions = vec![PageRegion::default(); REGIONS_A_SCAN];
    let mut start = range.start();
    while start < range.end() {
        let end = start.saturating_add(part).min(range.end());
        let mut arg = PmScanArg {
            size: std::mem::size_of::<PmScanArg>() as u64,
            flags: 0,
            start,
            end,
            walk_end: 0,
            vec: regions.as_mut_ptr() as u64,
            vec_len: regions.len() as u64,
            max_pages: FOUND_A_SCAN,
            category_inverted: 0,
            category_mask: 0,
            category_anyof_mask: PAGE_IS_PRESENT | PAGE_IS_SWAPPED,
            return_mask: PAGE_IS_FILE
                | PAGE_IS_PRESENT
                | PAGE_IS_SWAPPED
                | PAGE_IS_PFNZERO
                | PAGE_IS_HUGE,
        };
        let request = rustix::ioctl::opcode::read_write::<PmScanArg>(b'f', 16);
        // SAFETY: `arg` is the structure this request takes, `vec` points to `vec_len` regions
        // that live until after the call, and the kernel fills at most that many.
        let got = unsafe { libc::ioctl(fd, request as _, &raw mut arg) };
        let Ok(got) = usize::try_from(got) else {
            return Err(SysError::new(
                "ioctl(PAGEMAP_SCAN)",
                range.to_string(),
                last_errno(),
            ));
        };
        for region in &regions[..got.min(regions.len())] {
            // If pages are split or joined during the walk, a region may begin before the end of the previous one.
            let seen = out.0.last().map_or(0, |run| run.range.end());
            if let Ok(range) = Range::new(region.start.max(seen), region.end) {
                out.push(range, state_of_categories(region.categories));
            }
        }
        if arg.walk_end <= start {
            break; // No progress: avoid an endless loop.
        }
        start = arg.walk_end;
    }
    Ok(out.0)
}

fn state_of_categories(categories: u64) -> PageState {
    let has = |bit: u64| categories & bit != 0;
    PageState::default()
        .when(has(PAGE_IS_PRESENT), PageState::PRESENT)
        .when(has(PAGE_IS_SWAPPED), PageState::SWAPPED)
        .when(has(PAGE_IS_FILE), PageState::FILE)
        .when(has(PAGE_IS_PFNZERO), PageState::ZERO)
        .when(has(PAGE_IS_HUGE), PageState::HUGE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Advice, Kernel, OwnMapping, Sharing};

    fn run(start: u64, end: u64, state: PageState) -> PageRun {
        PageRun {
            range: Range::new(start, end).unwrap(),
            state,
        }
    }

    #[test]
    fn spans_join_near_runs_and_bear_overlapping_ones() {
        let base: PageSize = "4K".parse().unwrap();
        let far = 4096 * 5000;
        let p = PageState::PRESENT;
        let runs = [
            run(0, 8192, p),
            run(4096, 12288, p),
            run(16384, 20480, p),
            run(far, far + 4096, p),
        ];
        let spans: Vec<(u64, u64)> = spans(&runs, base)
            .iter()
            .map(|s| (s.start(), s.end()))
            .collect();
        assert_eq!(spans, [(0, 20480), (far, far + 4096)]);
    }

    /// Entries of Linux 6.18, of kernels before 6.15, and for readers without the right to see swap entries.
    #[test]
    fn a_guard_page_is_not_in_swap() {
        for (entry, state) in [
            (0x4400_0000_0000_009f, PageState::GUARD),
            (0x4000_0000_0000_009f, PageState::GUARD),
            (0x4400_0000_0000_0000, PageState::GUARD),
            (0x4000_0000_0000_0000, PageState::SWAPPED),
            (0x4080_0000_0001_2340, PageState::SWAPPED),
            // A marker of another kind, and a page of memory.
            (0x4000_0000_0000_005f, PageState::SWAPPED),
            (0x8000_0000_0012_109f, PageState::PRESENT),
            (0, PageState::default()),
        ] {
            assert_eq!(state_of(entry), state, "{entry:#x}");
        }
    }

    #[test]
    fn overlay_cuts_where_either_changes() {
        let (p, h) = (PageState::PRESENT, PageState::PRESENT.with(PageState::HUGE));
        let e = p.with(PageState::EXCLUSIVE);
        let entries = [run(0, 40, e), run(50, 60, p)];
        let scanned = [run(0, 10, p), run(10, 30, h), run(35, 60, p)];
        let eh = e.with(PageState::HUGE);
        assert_eq!(
            overlay(&entries, &scanned),
            [
                run(0, 10, e),
                run(10, 30, eh),
                run(30, 40, e),
                run(50, 60, p)
            ]
        );
    }

    #[test]
    fn sees_what_is_touched_and_nothing_else() {
        let kernel = Kernel::new();
        let page = kernel.base_page().bytes();
        let mapping = OwnMapping::anonymous(Bytes(page.get() * 64), Sharing::Private).unwrap();
        mapping.advise(mapping.range(), Advice::NoHugePage).unwrap();
        let start = mapping.range().start() + 8 * page.get();
        let touched = Range::new(start, start + 4 * page.get()).unwrap();
        mapping.advise(touched, Advice::PopulateWrite).unwrap();
        let file = File::open("/proc/self/pagemap").unwrap();
        for detail in [
            PageScanDetail::Sizes,
            PageScanDetail::Exclusive,
            PageScanDetail::ExclusiveFirst,
        ] {
            let map = kernel.page_map(&file, mapping.range(), detail).unwrap();
            assert_eq!(map.runs.len(), 1, "{map:?}");
            assert_eq!(map.runs[0].range, touched);
            let state = map.runs[0].state;
            assert!(state.has(PageState::PRESENT) && !state.has(PageState::FILE));
            assert!(!state.has(PageState::HUGE) && !state.has(PageState::SWAPPED));
            assert_eq!(
                state.has(PageState::EXCLUSIVE),
                detail != PageScanDetail::Sizes
            );
        }
    }

    #[test]
    fn a_zero_page_is_told_however_closely_one_looks() {
        let kernel = Kernel::new();
        let page = kernel.base_page().bytes();
        let mapping = OwnMapping::anonymous(Bytes(page.get() * 8), Sharing::Private).unwrap();
        mapping.advise(mapping.range(), Advice::NoHugePage).unwrap();
        let start = mapping.range().start();
        let written = Range::new(start, start + 4 * page.get()).unwrap();
        mapping.advise(written, Advice::PopulateWrite).unwrap();
        let read = Range::new(written.end(), written.end() + page.get()).unwrap();
        // SAFETY: the address is inside `mapping`, which is readable and still lives.
        let byte = unsafe { std::ptr::read_volatile(read.start() as *const u8) };
        assert_eq!(byte, 0);
        let file = File::open("/proc/self/pagemap").unwrap();
        for detail in [PageScanDetail::Exclusive, PageScanDetail::ExclusiveFirst] {
            let map = kernel.page_map(&file, mapping.range(), detail).unwrap();
            assert!(map.huge_known, "{detail:?}");
            let zero: Vec<Range> = map
                .runs
                .iter()
                .filter(|r| r.state.has(PageState::ZERO))
                .map(|r| r.range)
                .collect();
            assert_eq!(zero, [read], "{detail:?}: {map:?}");
        }
    }

    /// Compares a range of several parts, with holes, with the touched pages.
    #[test]
    fn parts_make_a_whole() {
        let kernel = Kernel::new();
        let page = kernel.base_page().bytes().get();
        let all = Bytes(page * (WALKED_A_SCAN * 2 + 7));
        let mapping = OwnMapping::anonymous(all, Sharing::Private).unwrap();
        mapping.advise(mapping.range(), Advice::NoHugePage).unwrap();
        let start = mapping.range().start();
        // More pages than one call finds, pages across the end of one walk, and the last page.
        let touched = [
            (0, 1),
            (3, FOUND_A_SCAN + 5),
            (WALKED_A_SCAN - 1, 2),
            (WALKED_A_SCAN * 2 + 6, 1),
        ];
        let touched = touched.map(|(at, pages)| {
            let at = start + at * page;
            Range::new(at, at + pages * page).unwrap()
        });
        for range in touched {
            mapping.advise(range, Advice::PopulateWrite).unwrap();
        }
        let file = File::open("/proc/self/pagemap").unwrap();
        let map = kernel.page_map(&file, mapping.range(), PageScanDetail::Sizes);
        let map = map.unwrap();
        if map.huge_known {
            let found: Vec<Range> = map.runs.iter().map(|run| run.range).collect();
            assert_eq!(found, touched);
        }
    }

    #[test]
    fn shared_memory_counts_as_file() {
        let kernel = Kernel::new();
        let page = kernel.base_page().bytes();
        let mapping = OwnMapping::anonymous(Bytes(page.get() * 4), Sharing::Shared).unwrap();
        mapping
            .advise(mapping.range(), Advice::PopulateWrite)
            .unwrap();
        let file = File::open("/proc/self/pagemap").unwrap();
        let map = kernel
            .page_map(&file, mapping.range(), PageScanDetail::Exclusive)
            .unwrap();
        assert!(
            map.runs.iter().all(|r| r.state.has(PageState::FILE)),
            "{map:?}"
        );
    }
}
