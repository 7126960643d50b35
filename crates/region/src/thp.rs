//! Extents on transparent huge pages, or on base pages.

use hugeleaf_host::process::maps::{SmapsEntry, read_smaps_lines};
use hugeleaf_host::{Host, Root, ThpMemoryKind};
use hugeleaf_sys::{
    Advice, Errno, HugetlbReservation, Kernel, MemoryFile, PageMap, PageRun, PageScanDetail,
    PageState, ReservedAddresses, Sharing, SysError, own_page_map,
};
use hugeleaf_units::{Bytes, PageKind, PageSize, Range, Rung};

use crate::error::MemoryError;
use crate::extent::{Extent, FallbackReason};
use crate::host_memory::HostMemory;
use crate::ladder_steps::LadderStep;
use crate::options::RegionOptions;
use crate::populate::{PopulateMethod, Populator};

/// Number of attempts for a block that the kernel reports as busy.
const TRIES: u32 = 16;

/// Maps and populates memory outside the pools at `part`, on pages of `step` where available.
///
/// # Errors
/// [`MemoryError::TooLarge`] if memory cannot hold it; errors of the system calls.
pub(crate) fn take(
    space: &ReservedAddresses,
    part: Range,
    step: LadderStep,
    options: &RegionOptions,
    host: &Host,
    filler: &mut Populator<'_>,
) -> Result<Option<MemoryFile>, MemoryError> {
    HostMemory::check(part.len())?;
    let sharing = options.sharing;
    let file = match sharing {
        Sharing::Private => {
            space.map_private(part)?;
            None
        }
        Sharing::Shared => {
            let memory = space.memory();
            let file = memory.create_file("hugeleaf", part.len(), None)?;
            space.map_file(part, &file, 0, HugetlbReservation::All)?;
            memory.seal_length(&file)?;
            Some(file)
        }
    };
    space.bind(part, &options.nodes)?;
    advise(space, part, step)?;
    let way = match step.kind {
        PageKind::Thp if sharing == Sharing::Shared && host.pmd_page.get() == Some(step.size) => {
            PopulateMethod::Collapsing {
                huge: step.size,
                base: host.base_page,
            }
        }
        _ => PopulateMethod::Plain,
    };
    filler.populate(space, part, step.size, way)?;
    Ok(file)
}

/// Advises the kernel about the pages of a step.
pub(crate) fn advise(
    space: &ReservedAddresses,
    part: Range,
    step: LadderStep,
) -> Result<(), SysError> {
    let advice = match step.kind {
        PageKind::Base if step.named => Advice::NoHugePage,
        // These are fallback pages: khugepaged or a promotion may still collapse them.
        PageKind::Base | PageKind::Hugetlb => return Ok(()),
        PageKind::Thp => Advice::HugePage,
    };
    match space.advise(part, advice) {
        // A kernel without THP has only base pages.
        Err(e) if e.errno == Errno::INVAL => Ok(()),
        advised => advised,
    }
}

/// Collapses the base-page blocks of `part` one by one, and returns the reason for those that fail.
/// The reason is [`FallbackReason::ThpOff`] if the kernel refuses such memory altogether.
pub(crate) fn collapse(
    space: &ReservedAddresses,
    part: Range,
    huge: PageSize,
) -> Result<Option<FallbackReason>, MemoryError> {
    let blocks = base_page_blocks(part, huge)?;
    let not_contiguous = FallbackReason::NotContiguous { size: huge };
    // Before Linux 6.1 only page faults allocate huge pages, and these are done.
    if !blocks.is_empty() && !Kernel::new().supports_collapse() {
        return Ok(Some(not_contiguous));
    }
    let mut why = None;
    for block in blocks {
        match collapse_one(space, block) {
            Ok(()) => {}
            Err(Errno::INVAL) => return Ok(Some(FallbackReason::ThpOff)),
            Err(_) => why = Some(not_contiguous.clone()),
        }
    }
    Ok(why)
}

/// Collapses one block.
///
/// # Errors
/// The error of the kernel, after [`TRIES`] attempts if the block is busy.
pub(crate) fn collapse_one(space: &ReservedAddresses, block: Range) -> Result<(), Errno> {
    let mut tries = 1;
    loop {
        match space.advise(block, Advice::Collapse).map_err(|e| e.errno) {
            Err(Errno::AGAIN | Errno::BUSY | Errno::INTR) if tries < TRIES => tries += 1,
            done => return done,
        }
        std::thread::yield_now();
    }
}

/// Returns the whole blocks of `huge` in `part` that no single huge page maps.
fn base_page_blocks(part: Range, huge: PageSize) -> Result<Vec<Range>, MemoryError> {
    let map = read_pages(part)?;
    let Some(inside) = part.aligned_inside(huge) else {
        return Ok(Vec::new());
    };
    let mut large = map
        .runs
        .iter()
        .filter(|run| run.state.has(PageState::HUGE))
        .map(|run| run.range)
        .peekable();
    let small = inside.chunks(huge).filter(|block| {
        while large.next_if(|run| run.end() <= block.start()).is_some() {}
        large
            .peek()
            .is_none_or(|run| run.intersect(*block) != Some(*block))
    });
    Ok(small.collect())
}

/// Reads the current pages of a part of this process.
///
/// # Errors
/// Errors of opening and reading the page map.
pub(crate) fn read_pages(part: Range) -> Result<PageMap, SysError> {
    let file = match own_page_map() {
        Ok(file) => file,
        // A process that started as root and changed its user may not open the page map.
        Err(error) if error.errno == Errno::ACCESS => {
            return from_smaps(part).ok_or(error);
        }
        Err(error) => return Err(error),
    };
    let map = Kernel::new().page_map(&file, part, PageScanDetail::Sizes)?;
    match map.huge_known {
        true => Ok(map),
        // Before Linux 6.7.
        false => Ok(from_smaps(part).unwrap_or(map)),
    }
}

pub(crate) fn huge_in(map: &PageMap, part: Range) -> Bytes {
    let huge = map.runs.iter().filter(|r| r.state.has(PageState::HUGE));
    let huge = huge.filter_map(|r| r.range.intersect(part));
    huge.map(Range::len).sum()
}

/// Splits all of a part by whether a huge page maps it. The extents have no reasons yet.
pub(crate) fn by_page(
    map: &PageMap,
    part: Range,
    requested: Rung,
    base: PageSize,
    huge: Option<PageSize>,
) -> Vec<Extent> {
    let mut found: Vec<Extent> = Vec::new();
    let mut add = |start: u64, end: u64, state: PageState| {
        let Ok(range) = Range::new(start, end) else {
            return;
        };
        let (page, kind) = match huge {
            Some(huge) if state.has(PageState::HUGE) => (huge, PageKind::Thp),
            _ => (base, PageKind::Base),
        };
        let resident = match state.has(PageState::PRESENT) {
            true => range.len(),
            false => Bytes::ZERO,
        };
        if let Some(last) = found.last_mut()
            && last.kind == kind
            && let Ok(joined) = Range::new(last.range.start(), end)
        {
            last.range = joined;
            last.resident += resident;
        } else {
            found.push(Extent {
                range,
                requested,
                page,
                kind,
                resident,
                why: None,
            });
        }
    };
    let mut at = part.start();
    for run in &map.runs {
        if let Some(inside) = run.range.intersect(part) {
            add(at, inside.start(), PageState::default());
            add(inside.start(), inside.end(), run.state);
            at = inside.end();
        }
    }
    add(at, part.end(), PageState::default());
    found
}

fn from_smaps(part: Range) -> Option<PageMap> {
    let entries = Root::live().parse_lines("proc/self/smaps", read_smaps_lines);
    entries.known().map(|entries| by_mapping(part, entries))
}

/// Derives the pages of a part from the counters of whole mappings. A mapping with only some of its
/// bytes on huge pages counts as base pages, and `huge_known` is then false.
fn by_mapping(part: Range, entries: &[SmapsEntry]) -> PageMap {
    let mut map = PageMap {
        huge_known: true,
        ..PageMap::default()
    };
    for entry in entries {
        let Some(inside) = entry.map.range.intersect(part) else {
            continue;
        };
        let (length, counts) = (entry.map.range.len(), &entry.counts);
        let huge = counts.pmd_mapped >= length;
        map.huge_known &= huge || counts.pmd_mapped.is_zero();
        let state = match huge {
            true => PageState::PRESENT.with(PageState::HUGE),
            false => PageState::PRESENT,
        };
        let resident = counts.resident.min(inside.len());
        if let Ok(range) = Range::new(inside.start(), inside.start() + resident.get()) {
            map.runs.push(PageRun { range, state });
        }
    }
    map
}

/// Returns the knob that disables pages of a size below the PMD size; `None` if none does.
pub(crate) fn knob_of(host: &Host, size: PageSize, sharing: Sharing) -> Option<FallbackReason> {
    let thp = host.thp.known()?;
    let order = thp.order(size)?;
    let of = match sharing {
        Sharing::Private => ThpMemoryKind::Private,
        Sharing::Shared => ThpMemoryKind::Shared,
    };
    let value = order.effective(thp, of);
    matches!(value, Some("never" | "deny")).then(|| FallbackReason::KnobOff {
        size,
        path: order.effective_file(of),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(range: &str, resident: u64, huge: u64) -> String {
        format!("{range} rw-p 00000000 00:00 0\nRss: {resident} kB\nAnonHugePages: {huge} kB\n")
    }

    #[test]
    fn counters_of_whole_mappings_tell_where_all_is_alike() {
        let text = [
            entry("200000-400000", 2048, 2048),
            entry("400000-800000", 4096, 0),
            entry("800000-a00000", 1024, 1024),
        ]
        .concat();
        let entries = read_smaps_lines(&mut text.as_bytes()).unwrap().unwrap();
        let look = |start, end| by_mapping(Range::new(start, end).unwrap(), &entries);
        let huge = look(0x20_0000, 0x40_0000);
        assert!(huge.huge_known && huge.runs[0].state.has(PageState::HUGE));
        let both = look(0x30_0000, 0x50_0000);
        assert!(both.huge_known && !both.runs[1].state.has(PageState::HUGE));
        assert_eq!(
            both.runs[1].range,
            Range::new(0x40_0000, 0x50_0000).unwrap()
        );
        let mixed = look(0x80_0000, 0xa0_0000);
        assert!(!mixed.huge_known && !mixed.runs[0].state.has(PageState::HUGE));
        assert_eq!(mixed.runs[0].range.len().get(), 1 << 20);
    }
}
