//! The data space: memory for I/O on pages of one size and kind, in the requested layout.

use std::fmt;
use std::str::FromStr;

use hugeleaf::{MemoryError, Region, RegionOptions};
use hugeleaf_host::{Host, PageUsage};
use hugeleaf_sys::{
    Advice, Errno, Kernel, MemorySyscalls, PageScanDetail, PageState, ReservedAddresses, SysError,
    frames_of, own_page_map,
};
use hugeleaf_units::{Bytes, PageKind, PageSize, Range};

use hugeleaf_workload::chase::{AskedPages, PageArm, is_on, small_mappings};

use super::exclusive_memory::{ExclusiveMemory, extents_a_block};

/// The physical layout of a data space.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum IoPages<P = PageArm> {
    /// Base pages touched in random order, so that neighbours are physically apart. This is the state
    /// of a server that has run for long.
    Scattered,
    /// Huge pages that were split: mapped as base pages, but still contiguous.
    Split,
    /// Pages of a size and kind; base pages are touched in order.
    Pages(P),
}

/// Pages of a flag, before they are checked against a host.
pub type AskedIoPages = IoPages<AskedPages>;

/// Error for a text that names no pages.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not a page layout; write scattered, split, base, 64K, thp:2M or hugetlb:1G")]
pub struct ParseIoPagesError(String);

impl FromStr for AskedIoPages {
    type Err = ParseIoPagesError;

    fn from_str(text: &str) -> Result<AskedIoPages, ParseIoPagesError> {
        match text {
            "scattered" => Ok(AskedIoPages::Scattered),
            "split" => Ok(AskedIoPages::Split),
            _ => text
                .parse()
                .map(AskedIoPages::Pages)
                .map_err(|_| ParseIoPagesError(text.to_owned())),
        }
    }
}

impl IoPages {
    pub fn resolve(asked: AskedIoPages, host: &Host) -> IoPages {
        match asked {
            AskedIoPages::Scattered => IoPages::Scattered,
            AskedIoPages::Split => IoPages::Split,
            AskedIoPages::Pages(asked) => IoPages::Pages(PageArm::resolve(asked, host)),
        }
    }

    /// Returns the pages as the kernel maps them: base pages if scattered or split.
    pub fn mapped(self, host: &Host) -> PageArm {
        match self {
            IoPages::Pages(arm) => arm,
            IoPages::Scattered | IoPages::Split => PageArm::base(host),
        }
    }

    /// Returns the bytes of ordinary or pool memory for `length` bytes, in whole pages.
    pub fn whole(self, length: Bytes, host: &Host) -> Option<Bytes> {
        match self {
            IoPages::Pages(arm) => arm.whole(length),
            IoPages::Scattered => host.base_page.round_up(length.get()).map(Bytes),
            IoPages::Split => large(host).round_up(length.get()).map(Bytes),
        }
    }

    pub fn is_pool(self) -> bool {
        matches!(self, IoPages::Pages(arm) if arm.kind == PageKind::Hugetlb)
    }
}

impl fmt::Display for IoPages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            IoPages::Scattered => f.pad("scattered"),
            IoPages::Split => f.pad("split"),
            IoPages::Pages(arm) => arm.fmt(f),
        }
    }
}

fn large(host: &Host) -> PageSize {
    host.pmd_page.get().unwrap_or(host.base_page)
}

/// Memory for I/O; freed when dropped.
#[derive(Debug)]
pub struct IoMemory {
    memory: ExclusiveMemory,
    pages: IoPages,
    length: Bytes,
    base: PageSize,
    huge: Option<PageSize>,
    unreported: bool,
}

/// The physical layout of memory, as read back.
#[derive(Debug, Clone, PartialEq)]
pub struct PhysicalLayout {
    /// Bytes by page size; `None` if only the flags of frames tell (THP below the full size, and THP
    /// of the full size before Linux 6.7).
    pub held: Option<Vec<PageUsage>>,
    /// Mean number of physically contiguous extents per block; `None` if the kernel hides frames.
    pub extents_a_block: Option<f64>,
}

impl IoMemory {
    /// Takes at least `length` bytes and populates them. The caller must read the layout back.
    ///
    /// # Errors
    /// [`MemoryError`]: the pool is short, a knob is off, this host lacks the size, or memory is
    /// short.
    pub fn take(
        pages: IoPages,
        length: Bytes,
        host: &Host,
        seed: u64,
    ) -> Result<IoMemory, MemoryError> {
        let whole = pages.whole(length, host).ok_or(MemoryError::Empty)?;
        let memory = match pages {
            IoPages::Pages(arm) => on_pages(arm, whole, host)?,
            IoPages::Split => split(whole, host)?,
            IoPages::Scattered => scattered(whole, host, seed)?,
        };
        Ok(IoMemory {
            memory,
            pages,
            length,
            base: host.base_page,
            huge: host.pmd_page.get(),
            unreported: pages.mapped(host).is_unverifiable(host),
        })
    }

    pub const fn range(&self) -> Range {
        self.memory.range()
    }

    pub const fn pages(&self) -> IoPages {
        self.pages
    }

    pub fn bytes(&mut self) -> &mut [u8] {
        let length = usize::try_from(self.length.get()).unwrap_or(usize::MAX);
        let bytes = self.memory.bytes();
        let length = length.min(bytes.len());
        &mut bytes[..length]
    }

    /// Reads back its layout.
    ///
    /// # Errors
    /// Those of reading the page map.
    pub fn facts(&self, block: Bytes) -> Result<PhysicalLayout, MemoryError> {
        let range = self.range();
        let first = Range::new(range.start(), range.start() + self.length.get()).unwrap_or(range);
        let frames = frames_of(&own_page_map()?, first, self.base)?;
        Ok(PhysicalLayout {
            held: match self.unreported {
                true => None,
                false => self.held(first)?,
            },
            extents_a_block: frames.and_then(|f| extents_a_block(&f, block, self.base)),
        })
    }

    /// Returns resident memory by the entries that map it; `None` if the kernel does not report them.
    fn held(&self, range: Range) -> Result<Option<Vec<PageUsage>>, MemoryError> {
        let (kernel, file) = (Kernel::new(), own_page_map()?);
        let mut map = kernel.page_map(&file, range, PageScanDetail::Sizes)?;
        if !map.huge_known {
            // Before PAGEMAP_SCAN (Linux 6.7) only memory that cannot be on THP is certain.
            match self.pages {
                IoPages::Pages(arm) if arm.kind == PageKind::Thp => return Ok(None),
                _ => map = kernel.page_map(&file, range, PageScanDetail::Exclusive)?,
            }
        }
        let pool = match self.pages {
            IoPages::Pages(arm) if arm.kind == PageKind::Hugetlb => Some(arm.size),
            _ => None,
        };
        let mut table = Vec::new();
        for run in map.runs.iter().filter(|r| r.state.has(PageState::PRESENT)) {
            let Some(inside) = run.range.intersect(range) else {
                continue;
            };
            let (size, kind) = match (pool, self.huge) {
                (Some(size), _) => (size, PageKind::Hugetlb),
                (None, Some(huge)) if run.state.has(PageState::HUGE) => (huge, PageKind::Thp),
                _ => (self.base, PageKind::Base),
            };
            PageUsage::add(&mut table, size, kind, inside.len());
        }
        Ok(Some(table))
    }
}

/// Takes pages of a size and kind, populated in order.
fn on_pages(arm: PageArm, length: Bytes, host: &Host) -> Result<ExclusiveMemory, MemoryError> {
    if arm.kind == PageKind::Hugetlb {
        return ExclusiveMemory::of_pool(length, arm.size)
            .map_err(|error| why_no_pool(arm, length, error));
    }
    if arm.is_unverifiable(host) {
        return Ok(ExclusiveMemory::from_space(small_mappings(
            arm, length, host,
        )?)?);
    }
    let space = MemorySyscalls::new().reserve_addresses(length, arm.size)?;
    space.map_private(space.range())?;
    if arm.is_base() {
        refuse_huge(&space)?;
    } else {
        is_on(arm, length)?;
        space.advise(space.range(), Advice::HugePage)?;
    }
    Ok(ExclusiveMemory::from_space(space)?)
}

/// Returns the library's error for a pool that did not give its pages.
fn why_no_pool(arm: PageArm, length: Bytes, error: SysError) -> MemoryError {
    match Region::new(&RegionOptions::new(length, arm.ladder(true))) {
        Err(error) => error,
        // The pool has the pages by now; the first error is returned nevertheless.
        Ok(_) => MemoryError::Sys(error),
    }
}

/// Excludes huge pages; a kernel without them refuses the advice, which is then unnecessary.
fn refuse_huge(space: &ReservedAddresses) -> Result<(), SysError> {
    match space.advise(space.range(), Advice::NoHugePage) {
        Err(error) if error.errno != Errno::INVAL => Err(error),
        _ => Ok(()),
    }
}

/// Takes base pages and touches them out of order. The kernel hands out frames mostly in order, so
/// only neighbours touched in order become neighbours in memory.
fn scattered(length: Bytes, host: &Host, seed: u64) -> Result<ExclusiveMemory, MemoryError> {
    let space = MemorySyscalls::new().reserve_addresses(length, host.base_page)?;
    let range = space.range();
    space.map_private(range)?;
    refuse_huge(&space)?;
    let page = host.base_page.bytes();
    let mut order: Vec<u64> = (0..host.base_page.pages_for(length).get()).collect();
    fastrand::Rng::with_seed(seed).shuffle(&mut order);
    for at in order {
        if let Some(part) = space.part(at * page.get(), page) {
            space.advise(part, Advice::PopulateWrite)?;
        }
    }
    Ok(ExclusiveMemory::from_space(space)?)
}

/// Takes huge pages and splits each by ageing one of its base pages. No byte moves: all stay
/// contiguous.
fn split(length: Bytes, host: &Host) -> Result<ExclusiveMemory, MemoryError> {
    let huge = PageArm {
        size: large(host),
        kind: PageKind::Thp,
    };
    let mut memory = on_pages(huge, length, host)?;
    // When a kernel splits a zero page, it frees it and maps the shared zero page instead (seen on
    // 6.18: the next write then took pages from anywhere). So no base page may be all zeroes.
    let base = usize::try_from(host.base_page.bytes().get()).unwrap_or(usize::MAX);
    memory
        .bytes()
        .iter_mut()
        .step_by(base)
        .for_each(|byte| *byte = 1);
    let range = memory.range();
    let step = usize::try_from(huge.size.bytes().get()).unwrap_or(usize::MAX);
    for at in (range.start()..range.end()).step_by(step) {
        if let Ok(page) = Range::new(at, at + host.base_page.bytes().get()) {
            memory.advise(page, Advice::Cold)?;
        }
    }
    // Otherwise khugepaged would collapse them again.
    memory.advise(range, Advice::NoHugePage)?;
    Ok(memory)
}

#[cfg(test)]
mod tests {
    use super::*;
    use hugeleaf_host::{Root, read_memory_facts};

    fn host() -> Host {
        read_memory_facts(&Root::live(), &Kernel::new()).unwrap()
    }

    const BLOCK: Bytes = Bytes::from_kib(256);

    #[test]
    fn a_flag_names_how_pages_lie() {
        let host = host();
        for (text, label) in [
            ("scattered", "scattered"),
            ("split", "split"),
            ("base", "base"),
        ] {
            let asked: AskedIoPages = text.parse().unwrap();
            assert_eq!(IoPages::resolve(asked, &host).to_string(), label);
        }
        assert!("torn".parse::<AskedIoPages>().is_err());
        let pool: AskedIoPages = "hugetlb:2M".parse().unwrap();
        assert!(IoPages::resolve(pool, &host).is_pool());
    }

    #[test]
    fn scattered_pages_are_base_pages_and_lie_apart() {
        let host = host();
        let length = Bytes::from_mib(8);
        let mut memory = IoMemory::take(IoPages::Scattered, length, &host, 1).unwrap();
        assert_eq!(memory.bytes().len() as u64, length.get());
        let seen = memory.facts(BLOCK).unwrap();
        let held = seen.held.unwrap();
        assert_eq!((held.len(), held[0].size), (1, host.base_page));
        assert_eq!(held[0].bytes, length);
        let Some(extents) = seen.extents_a_block else {
            println!(
                "not run: scattered_pages_are_base_pages_and_lie_apart: needs root for frames"
            );
            return;
        };
        let pages = host.base_page.pages_for(BLOCK).get();
        assert!(
            extents > f64::from(u32::try_from(pages).unwrap()) / 2.0,
            "{extents}"
        );
    }

    #[test]
    fn split_pages_are_base_pages_and_lie_together() {
        let host = host();
        let Some(large) = host.pmd_page.get() else {
            println!("not run: split_pages_are_base_pages_and_lie_together: no huge pages here");
            return;
        };
        let length = Bytes(large.bytes().get() * 4);
        let huge = IoPages::Pages(PageArm {
            size: large,
            kind: PageKind::Thp,
        });
        let whole = IoMemory::take(huge, length, &host, 1).unwrap();
        let on_huge = |seen: &PhysicalLayout| {
            let held = seen.held.as_ref().unwrap().iter();
            held.filter(|h| h.kind == PageKind::Thp)
                .map(|h| h.bytes)
                .sum::<Bytes>()
        };
        if on_huge(&whole.facts(BLOCK).unwrap()) != length {
            println!("not run: split_pages_are_base_pages_and_lie_together: no huge pages free");
            return;
        }
        drop(whole);
        let split = IoMemory::take(IoPages::Split, length, &host, 1).unwrap();
        let seen = split.facts(BLOCK).unwrap();
        assert_eq!(on_huge(&seen), Bytes::ZERO, "{seen:?}");
        if let Some(extents) = seen.extents_a_block {
            assert!(extents < 2.0, "{extents}");
        }
    }
}
