//! Memory that only this process uses, as one slice of bytes.
#![allow(unsafe_code)]
//! # Safety
//! An [`ExclusiveMemory`] owns its addresses from its creation to its drop. All of them are mapped,
//! readable and writable, which the kernel has confirmed by populating them. Nothing else maps the
//! same memory: it is private, or of a file that was shared with no other code. Its only slice
//! borrows it mutably, and no operation takes pages away.

use hugeleaf_sys::{
    Advice, Errno, HugetlbReservation, MemorySyscalls, ReservedAddresses, SysError, advise_own,
};
use hugeleaf_units::{Bytes, PageSize, Range};

/// Memory of this process alone, populated; freed when dropped.
#[derive(Debug)]
pub struct ExclusiveMemory {
    space: ReservedAddresses,
}

impl ExclusiveMemory {
    /// Takes addresses that are completely mapped with private memory.
    ///
    /// # Errors
    /// EINVAL if a file was mapped into them, which others may write to. ENOMEM if a part is not
    /// mapped or memory is short. EFAULT if a page was unavailable.
    pub fn from_space(space: ReservedAddresses) -> Result<ExclusiveMemory, SysError> {
        if !space.is_private() {
            let subject = space.range().to_string();
            return Err(SysError::new("mmap", subject, Errno::INVAL));
        }
        space.advise(space.range(), Advice::PopulateWrite)?;
        Ok(ExclusiveMemory { space })
    }

    /// Takes pages of a hugetlb pool: all of `length`, or none. They are excluded from children
    /// (MADV_DONTFORK), so no child may be made that continues in this program.
    ///
    /// # Errors
    /// ENOMEM if the pool is short. ENODEV or EINVAL if there is no such pool, or `length` is not a
    /// multiple of its pages.
    pub fn of_pool(length: Bytes, page: PageSize) -> Result<ExclusiveMemory, SysError> {
        let memory = MemorySyscalls::new();
        let file = memory.create_file("hugeleaf", length, Some(page))?;
        let space = memory.reserve_addresses(length, page)?;
        // Reserved first, so that a touch cannot end in SIGBUS.
        space.map_file(space.range(), &file, 0, HugetlbReservation::All)?;
        space.dont_fork(space.range())?;
        space.advise(space.range(), Advice::PopulateWrite)?;
        Ok(ExclusiveMemory { space })
    }

    pub const fn range(&self) -> Range {
        self.space.range()
    }

    pub fn bytes(&mut self) -> &mut [u8] {
        let range = self.space.range();
        let length = usize::try_from(range.len().get()).unwrap_or(0);
        // SAFETY: mapped, readable, writable and used by nothing else while `self` lives (see above);
        // initialised, since the kernel fills pages with zeroes. The slice borrows `self`.
        unsafe { std::slice::from_raw_parts_mut(self.space.as_ptr(), length) }
    }

    /// Advises on a part. No advice changes the contents of memory.
    ///
    /// # Errors
    /// EINVAL if `part` is outside or the kernel refuses the advice.
    pub fn advise(&self, part: Range, advice: Advice) -> Result<(), SysError> {
        if part.intersect(self.range()) != Some(part) {
            let subject = part.to_string();
            return Err(SysError::new(advice.call_name(), subject, Errno::INVAL));
        }
        advise_own(part, advice)
    }
}

/// Returns the mean number of ranges of neighbouring frames per block of `block` bytes. A page that
/// is not resident ends a range. Pure.
pub fn extents_a_block(frames: &[Option<u64>], block: Bytes, base: PageSize) -> Option<f64> {
    let pages = usize::try_from(base.pages_for(block).get()).ok()?.max(1);
    let blocks = frames.chunks(pages);
    let count = u32::try_from(blocks.len()).ok().filter(|n| *n > 0)?;
    let extents = |block: &[Option<u64>]| {
        let breaks = block
            .windows(2)
            .filter(|pair| !matches!(pair, [Some(a), Some(b)] if a + 1 == *b));
        breaks.count() + 1
    };
    let sum: usize = blocks.map(extents).sum();
    Some(f64::from(u32::try_from(sum).ok()?) / f64::from(count))
}

#[cfg(test)]
mod tests {
    use super::*;
    use hugeleaf_sys::Kernel;

    fn space(pages: u64) -> ReservedAddresses {
        let base = Kernel::new().base_page();
        let length = Bytes(base.bytes().get() * pages);
        MemorySyscalls::new()
            .reserve_addresses(length, base)
            .unwrap()
    }

    #[test]
    fn all_of_it_can_be_written() {
        let space = space(4);
        space.map_private(space.range()).unwrap();
        let mut memory = ExclusiveMemory::from_space(space).unwrap();
        let bytes = memory.bytes();
        bytes.fill(7);
        assert!(bytes.iter().all(|b| *b == 7));
        let length = memory.range().len().get();
        assert_eq!(memory.bytes().len() as u64, length);
        let outside = Range::new(memory.range().end(), memory.range().end() + length).unwrap();
        let refused = memory.advise(outside, Advice::Cold).unwrap_err();
        assert_eq!(refused.errno, Errno::INVAL);
    }

    #[test]
    fn what_is_not_mapped_or_not_ours_is_refused() {
        let hole = space(4);
        let first = hole.part(0, Bytes(hole.range().len().get() / 2)).unwrap();
        hole.map_private(first).unwrap();
        assert!(ExclusiveMemory::from_space(hole).is_err());
        let shared = space(1);
        let length = shared.range().len();
        let file = shared.memory().create_file("own", length, None).unwrap();
        let all = shared.range();
        shared
            .map_file(all, &file, 0, HugetlbReservation::None)
            .unwrap();
        assert_eq!(
            ExclusiveMemory::from_space(shared).unwrap_err().errno,
            Errno::INVAL
        );
    }

    #[test]
    fn extents() {
        let base: PageSize = "4K".parse().unwrap();
        let block = Bytes::from_kib(16);
        let of = |frames: &[u64]| {
            let frames: Vec<Option<u64>> = frames.iter().map(|f| Some(*f)).collect();
            extents_a_block(&frames, block, base)
        };
        assert_eq!(of(&[7, 8, 9, 10]), Some(1.0));
        assert_eq!(of(&[10, 9, 8, 7]), Some(4.0));
        assert_eq!(of(&[1, 2, 3, 4, 9, 10, 20, 21]), Some(1.5));
        assert_eq!(of(&[]), None);
        let hole = [Some(1), None, Some(3), Some(4)];
        assert_eq!(extents_a_block(&hole, block, base), Some(3.0));
    }
}
