//! Page sizes of this host, and lengths in whole pages.

use std::sync::OnceLock;

use hugeleaf::{Ladder, MemoryError, PageKind, PageSize, Rung};
use hugeleaf_host::Root;
use hugeleaf_sys::Kernel;

/// Returns the THP sizes of this host. They stay the same until the next boot, and reading the host takes as long as a
/// small allocation, so they are read once. The caller holds the interpreter's lock, which a thread that forks holds
/// too. So no child finds the list half made.
pub(crate) fn thp_sizes() -> Result<&'static [PageSize], MemoryError> {
    static SIZES: OnceLock<Vec<PageSize>> = OnceLock::new();
    if let Some(known) = SIZES.get() {
        return Ok(known);
    }
    let host = hugeleaf_host::read_memory_facts(&Root::live(), &Kernel::new())?;
    let thp = host
        .page_sizes
        .iter()
        .filter(|info| info.kind == PageKind::Thp);
    let sizes = thp.map(|info| info.size).collect();
    Ok(SIZES.get_or_init(|| sizes))
}

/// True if a ladder names pages of a pool.
pub(crate) fn names_pool(ladder: &Ladder) -> bool {
    let from_pool = |rung: &Rung| rung.kind == Some(PageKind::Hugetlb);
    ladder.rungs().iter().any(from_pool)
}

/// Returns a length in whole pages of a size. `None` if it exceeds the addresses of a process.
pub(crate) fn rounded_to(page: PageSize, length: u64) -> Option<u64> {
    let rounded = page.round_up(length);
    rounded.filter(|bytes| isize::try_from(*bytes).is_ok())
}

/// Returns a length in whole pages of `page` if this adds at most an eighth: `1G` for an array of 1.1G would nearly
/// double it. Otherwise returns the length in whole base pages.
pub(crate) fn rounded(page: PageSize, base: PageSize, length: u64) -> Option<u64> {
    let whole = rounded_to(page, length).filter(|whole| whole - length <= length / 8);
    let on_base = rounded_to(base, length)?;
    Some(whole.map_or(on_base, |whole| whole.max(on_base)))
}
