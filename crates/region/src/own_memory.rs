//! Page sizes of any memory of this process.

use hugeleaf_host::process::maps::{SmapsEntry, read_smaps_lines};
use hugeleaf_host::{Fact, Host, Root};
use hugeleaf_units::{PageKind, PageSize, Range, Rung};

use crate::error::MemoryError;
use crate::extent::{Extent, FallbackReason};
use crate::host_memory::HostMemory;
use crate::region::present;
use crate::thp;

/// Returns the extents of any memory of this process, in address order. Nothing is known of a
/// request for this memory, so [`Extent::requested`] is the base page. The first and the last extent
/// end at whole base pages. Addresses without a mapping count as base pages that are not resident.
///
/// Before Linux 6.7 the kernel reports huge pages only as a sum over each mapping. Extents of a
/// mapping that is on both then have [`FallbackReason::NotReported`].
///
/// # Errors
/// Errors of reading `/proc/self/smaps` and `/proc/self/pagemap`.
///
/// # Examples
/// ```
/// use hugeleaf::{PageKind, Range, extents_of};
///
/// let table = vec![1_u8; 8 << 20];
/// let start = table.as_ptr() as u64;
/// for extent in extents_of(Range::new(start, start + table.len() as u64)?)? {
///     println!("{} on {} {} pages", extent.range.len(), extent.page, extent.kind);
///     assert_ne!(extent.kind, PageKind::Hugetlb);
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn extents_of(range: Range) -> Result<Vec<Extent>, MemoryError> {
    let host = HostMemory::read()?.host;
    let base = host.base_page;
    let end = base.round_up(range.end()).unwrap_or(range.end());
    let whole = Range::new(base.round_down(range.start()), end).unwrap_or(range);
    let mappings = match Root::live().parse_lines("proc/self/smaps", read_smaps_lines) {
        Fact::Known(mappings) => mappings,
        Fact::Unreadable(error) => return Err(error.into()),
        // Without it no mapping is known to come from a pool.
        Fact::Absent => Vec::new(),
    };
    let mut extents = Vec::new();
    let mut at = whole.start();
    for (part, page) in mappings.iter().filter_map(|entry| of_pool(entry, whole)) {
        add_between(&mut extents, at, part.start(), &host)?;
        extents.push(Extent {
            range: part,
            requested: nothing(base),
            page,
            kind: PageKind::Hugetlb,
            resident: present(&thp::read_pages(part)?),
            why: None,
        });
        at = part.end();
    }
    add_between(&mut extents, at, whole.end(), &host)?;
    Ok(extents)
}

const fn nothing(base: PageSize) -> Rung {
    Rung {
        size: base,
        kind: None,
    }
}

/// Returns the part of a mapping in `whole`, and its page size, if it is on pages of a pool.
fn of_pool(entry: &SmapsEntry, whole: Range) -> Option<(Range, PageSize)> {
    let part = entry.map.range.intersect(whole)?;
    let page = PageSize::new(entry.counts.kernel_page).ok()?;
    entry.flags.has("ht").then_some((part, page))
}

/// Adds the extents of memory outside the pools.
fn add_between(
    extents: &mut Vec<Extent>,
    start: u64,
    end: u64,
    host: &Host,
) -> Result<(), MemoryError> {
    let Ok(part) = Range::new(start, end) else {
        return Ok(());
    };
    let (base, huge) = (host.base_page, host.pmd_page.get());
    let map = thp::read_pages(part)?;
    let mut found = thp::by_page(&map, part, nothing(base), base, huge);
    if let Some(size) = huge.filter(|_| !map.huge_known) {
        let could_be =
            |extent: &&mut Extent| extent.kind == PageKind::Base && !extent.resident.is_zero();
        for extent in found.iter_mut().filter(could_be) {
            extent.why = Some(FallbackReason::NotReported { size });
        }
    }
    extents.append(&mut found);
    Ok(())
}
