//! Allocates memory on pages of one size and kind, or returns the reason for the failure.

use std::fmt;
use std::str::FromStr;

use hugeleaf::{FallbackReason, Ladder, MemoryError, Region, RegionOptions};
use hugeleaf_host::{Host, PageUsage, ThpMemoryKind};
use hugeleaf_sys::{Advice, MemorySyscalls, ReservedAddresses};
use hugeleaf_units::{Bytes, PageKind, PageSize, Range, Rung};

/// A page size and kind to measure, in a flag's notation: `base`, `64K`, `thp:2M`, `hugetlb:1G`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PageArm {
    pub size: PageSize,
    pub kind: PageKind,
}

/// A page size from a flag, not yet checked against a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AskedPages {
    /// Base pages (`base`).
    Base,
    /// A size, with its kind if the flag names one.
    Rung(Rung),
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not a kind of page; write base, 64K, thp:2M or hugetlb:1G")]
pub struct ParsePageArmError(String);

impl FromStr for AskedPages {
    type Err = ParsePageArmError;

    fn from_str(text: &str) -> Result<AskedPages, ParsePageArmError> {
        let bad = || ParsePageArmError(text.to_owned());
        if text == "base" {
            return Ok(AskedPages::Base);
        }
        let ladder: Ladder = text.parse().map_err(|_| bad())?;
        match (ladder.rungs(), ladder.is_mandatory()) {
            ([rung], false) => Ok(AskedPages::Rung(*rung)),
            _ => Err(bad()),
        }
    }
}

impl PageArm {
    pub const fn base(host: &Host) -> PageArm {
        PageArm {
            size: host.base_page,
            kind: PageKind::Base,
        }
    }

    /// Resolves a flag's pages on this host. A size without a kind means THP if the host has THP of
    /// that size, otherwise a pool.
    pub fn resolve(asked: AskedPages, host: &Host) -> PageArm {
        let AskedPages::Rung(rung) = asked else {
            return PageArm::base(host);
        };
        if rung.size <= host.base_page && rung.kind != Some(PageKind::Hugetlb) {
            return PageArm::base(host);
        }
        let has = |kind| {
            let mut sizes = host.page_sizes.iter();
            sizes.any(|info| info.size == rung.size && info.kind == kind)
        };
        let pool = !has(PageKind::Thp) && has(PageKind::Hugetlb);
        PageArm {
            size: rung.size,
            kind: rung.kind.unwrap_or(match pool {
                true => PageKind::Hugetlb,
                false => PageKind::Thp,
            }),
        }
    }

    /// Returns true for base pages.
    pub fn is_base(self) -> bool {
        self.kind == PageKind::Base
    }

    /// Returns true if the kernel chooses these pages below the size of a full huge page, and shows
    /// only root which it chose.
    pub fn is_unverifiable(self, host: &Host) -> bool {
        self.kind == PageKind::Thp && host.pmd_page.get() != Some(self.size)
    }

    /// Rounds `length` up to whole pages; `None` past 2^64.
    pub fn whole(self, length: Bytes) -> Option<Bytes> {
        self.size.round_up(length.get()).map(Bytes)
    }

    /// Returns the ladder that requests these pages and, if `mandatory`, no others.
    pub fn ladder(self, mandatory: bool) -> Ladder {
        let rung = Rung {
            size: self.size,
            kind: Some(self.kind).filter(|kind| *kind != PageKind::Base),
        };
        Ladder::new(vec![rung], mandatory)
    }
}

impl fmt::Display for PageArm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            PageKind::Base => f.pad("base"),
            kind => f.pad(&format!("{kind}:{}", self.size)),
        }
    }
}

/// Populated memory of this process on pages of one size and kind; freed when dropped.
#[derive(Debug)]
pub struct ChaseMemory {
    kept: ChaseBacking,
}

#[derive(Debug)]
enum ChaseBacking {
    Region(Region),
    /// Mappings that contain no whole block of a page larger than the requested one.
    Mappings(ReservedAddresses),
}

impl From<ReservedAddresses> for ChaseMemory {
    /// Wraps memory that is already mapped and populated.
    fn from(space: ReservedAddresses) -> ChaseMemory {
        ChaseMemory {
            kept: ChaseBacking::Mappings(space),
        }
    }
}

impl ChaseMemory {
    /// Allocates and populates at least `length` bytes in whole pages of `arm`. THP may cover less
    /// than requested, so the caller must read it back.
    pub fn take(arm: PageArm, length: Bytes, host: &Host) -> Result<ChaseMemory, MemoryError> {
        let length = arm.whole(length).ok_or(MemoryError::Empty)?;
        if arm.is_unverifiable(host) {
            let space = small_mappings(arm, length, host)?;
            space.advise(space.range(), Advice::PopulateWrite)?;
            return Ok(space.into());
        }
        // A pool gives all pages or none; THP depends on the free huge pages that the kernel finds.
        let ladder = arm.ladder(arm.kind == PageKind::Hugetlb);
        let region = Region::new(&RegionOptions::new(length, ladder))?;
        Ok(ChaseMemory {
            kept: ChaseBacking::Region(region),
        })
    }

    pub const fn range(&self) -> Range {
        match &self.kept {
            ChaseBacking::Region(region) => region.range(),
            ChaseBacking::Mappings(space) => space.range(),
        }
    }

    /// Returns the first `length` bytes by page size, read back now. `None` if this process cannot
    /// tell (THP below the full size).
    pub fn pages(&self, length: Bytes) -> Result<Option<Vec<PageUsage>>, MemoryError> {
        let ChaseBacking::Region(region) = &self.kept else {
            return Ok(None);
        };
        let mut table = Vec::new();
        let start = region.range().start();
        let Ok(first) = Range::new(start, start.saturating_add(length.get())) else {
            return Ok(Some(table));
        };
        for extent in region.extents()? {
            if let Some(part) = extent.range.intersect(first) {
                // Memory that is not resident is on no page.
                let bytes = part.len().min(extent.resident);
                PageUsage::add(&mut table, extent.page, extent.kind, bytes);
            }
        }
        Ok(Some(table))
    }

    pub fn why(&self) -> Option<FallbackReason> {
        let ChaseBacking::Region(region) = &self.kept else {
            return None;
        };
        let extents = region.extents().ok()?;
        extents.into_iter().find_map(|extent| extent.why)
    }
}

/// Maps memory for THP below the full size, not yet populated. The kernel takes the largest enabled
/// size that fits into a mapping. Each mapping therefore contains no whole block of the next larger
/// enabled size. The kernel merges equal neighbours, so every second mapping is excluded from child
/// processes.
pub fn small_mappings(
    arm: PageArm,
    length: Bytes,
    host: &Host,
) -> Result<ReservedAddresses, MemoryError> {
    is_on(arm, length)?;
    let larger = next_on(arm.size, host);
    let align = larger.unwrap_or(arm.size);
    let space = MemorySyscalls::new().reserve_addresses(length, align)?;
    let range = space.range();
    space.map_private(range)?;
    if let Some(larger) = larger {
        for part in cut(range, larger).iter().skip(1).step_by(2) {
            space.dont_fork(*part)?;
        }
    }
    space.advise(range, Advice::HugePage)?;
    Ok(space)
}

/// Fails if the host lacks the size or its knob is off, with the library's reason.
pub fn is_on(arm: PageArm, length: Bytes) -> Result<(), MemoryError> {
    let options = RegionOptions::new(arm.size.bytes(), arm.ladder(false));
    let probe = Region::new(&options)?.extents()?;
    match probe.into_iter().find_map(|extent| extent.why) {
        Some(
            why @ (FallbackReason::KnobOff { .. }
            | FallbackReason::NoSuchSize { .. }
            | FallbackReason::ThpOff),
        ) => Err(MemoryError::Short {
            ladder: arm.ladder(true),
            asked: length,
            missing: length,
            why,
        }),
        _ => Ok(()),
    }
}

/// Returns the smallest size above `size` that the kernel may use for private memory here.
fn next_on(size: PageSize, host: &Host) -> Option<PageSize> {
    let thp = host.thp.known()?;
    let larger = thp.orders.iter().filter(|order| order.size > size);
    larger
        .filter(|order| {
            order
                .effective(thp, ThpMemoryKind::Private)
                .is_some_and(|v| v != "never")
        })
        .map(|order| order.size)
        .min()
}

/// Cuts a range in the middle of every block of `larger`, so that no part contains a whole one.
fn cut(range: Range, larger: PageSize) -> Vec<Range> {
    let step = larger.bytes().get();
    let mut parts = Vec::new();
    let mut at = range.start();
    let mut end = larger.round_down(at) + step / 2;
    while at < range.end() {
        if let Ok(part) = Range::new(at, end.min(range.end())) {
            at = part.end();
            parts.push(part);
        }
        end += step;
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use hugeleaf_host::{Root, read_host};
    use hugeleaf_sys::Kernel;
    use proptest::prelude::*;

    fn fixture() -> Host {
        let root = Root::at(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../fixtures/x86-4k-two-nodes"
        ));
        read_host(&root, &Kernel::new()).unwrap()
    }

    fn arm(text: &str) -> PageArm {
        PageArm::resolve(text.parse().unwrap(), &fixture())
    }

    #[test]
    fn a_flag_names_pages() {
        for (text, label) in [
            ("base", "base"),
            ("4K", "base"),
            ("64K", "thp:64K"),
            ("2M", "thp:2M"),
            ("hugetlb:2M", "hugetlb:2M"),
            ("1G", "hugetlb:1G"),
        ] {
            assert_eq!(arm(text).to_string(), label);
        }
        for text in ["", "2M,1G", "2M!", "3M", "big:2M", "base:4K"] {
            assert!(text.parse::<AskedPages>().is_err(), "{text}");
        }
    }

    #[test]
    fn ladders_ask_for_nothing_else() {
        assert_eq!(arm("hugetlb:1G").ladder(true).to_string(), "hugetlb:1G!");
        assert_eq!(arm("base").ladder(false).to_string(), "4K");
        assert!(arm("64K").is_unverifiable(&fixture()) && !arm("2M").is_unverifiable(&fixture()));
    }

    #[test]
    fn what_the_host_lacks_is_told() {
        let host = hugeleaf_host::read_memory_facts(&Root::live(), &Kernel::new()).unwrap();
        let odd = PageArm {
            size: "8M".parse().unwrap(),
            kind: PageKind::Thp,
        };
        let error = ChaseMemory::take(odd, Bytes::from_mib(8), &host).unwrap_err();
        assert!(error.to_string().contains("no pages of 8M"), "{error}");
    }

    #[test]
    fn base_pages_are_base_pages() {
        let host = hugeleaf_host::read_memory_facts(&Root::live(), &Kernel::new()).unwrap();
        let length = Bytes::from_mib(8);
        let memory = ChaseMemory::take(PageArm::base(&host), length, &host).unwrap();
        let half = Bytes(length.get() / 2);
        let pages = memory.pages(half).unwrap().unwrap();
        let expected = PageUsage {
            size: host.base_page,
            kind: PageKind::Base,
            bytes: half,
        };
        assert_eq!(pages, [expected]);
        assert_eq!(memory.why(), None);
    }

    proptest! {
        /// The parts cover the range, and none contains a whole block.
        #[test]
        fn cuts_leave_no_whole_block(start in 0u64..64, len in 1u64..256, order in 1u32..6) {
            let larger = PageSize::new(Bytes(1 << order)).unwrap();
            let range = Range::new(start, start + len).unwrap();
            let parts = cut(range, larger);
            let mut at = range.start();
            for part in &parts {
                prop_assert_eq!(part.start(), at);
                at = part.end();
                prop_assert!(part.aligned_inside(larger).is_none());
            }
            prop_assert_eq!(at, range.end());
        }
    }
}
