//! Work on memory of this process that shortens calls on another process: touching free memory that a
//! hypervisor has reclaimed, and draining lists of new pages.

use hugeleaf_units::{Bytes, PageSize};

use crate::SysError;
use crate::advice::Advice;
use crate::fault_hook::MemorySyscalls;

/// Implements [`crate::Kernel::fetch`].
pub(crate) fn fetch(page: PageSize, pages: u64) -> Result<(), SysError> {
    let length = Bytes(page.bytes().get().saturating_mul(pages));
    let space = MemorySyscalls::new().reserve_addresses(length, page)?;
    space.map_private(space.range())?;
    // Refused without huge pages. Base pages then have the same effect.
    let _ = space.advise(space.range(), Advice::HugePage);
    space.advise(space.range(), Advice::PopulateWrite)
}

/// Implements [`crate::Kernel::drain`].
pub(crate) fn drain(page: PageSize, base: PageSize) -> Result<(), SysError> {
    let space = MemorySyscalls::new().reserve_addresses(page.bytes(), page)?;
    space.map_private(space.range())?;
    // Without a page there is nothing to collapse, and the kernel returns before it drains the lists.
    let first = space.range().chunks(base).next();
    if let Some(first) = first {
        space.advise(first, Advice::PopulateWrite)?;
    }
    space.advise(space.range(), Advice::Collapse)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Kernel;

    #[test]
    fn nothing_is_left_of_it() {
        let page = Kernel::new().base_page();
        let mapped = || std::fs::read_to_string("/proc/self/maps").unwrap();
        let lines = |text: String| text.lines().count();
        let before = lines(mapped());
        for _ in 0..100 {
            fetch(page, 16).unwrap();
        }
        for _ in 0..100 {
            // Refused without huge pages.
            let _ = drain(page, page);
        }
        assert!(lines(mapped()) < before + 50);
        assert!(fetch(page, 0).is_err());
        assert!(fetch(page, u64::MAX).is_err());
    }
}
