//! The first read of every page.
#![allow(unsafe_code)]
//! # Safety
//! A [`Region`] is mapped, populated and readable over its whole range while it lives. The bytes
//! read are discarded, so concurrent writes by another process do not matter.

use hugeleaf::Region;
use hugeleaf_units::PageSize;

/// Reads one byte in every `page` of a region.
pub(super) fn touch(region: &Region, page: PageSize) {
    let range = region.range();
    for part in range.chunks(page) {
        // SAFETY: the part begins within the region, which is readable (see above).
        unsafe { (part.start() as *const u8).read_volatile() };
    }
}
