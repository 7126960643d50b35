//! The shared memory of the table of granules: words that are read and written whole.
#![allow(unsafe_code)]
//! # Safety
//! The words are in a file that other processes map and write. They are accessed only as atomics,
//! and no word is used as an address. Code that uses a word as an index checks it first. The file's
//! length is sealed before it is mapped, so a word exists as long as the mapping.

use std::sync::atomic::AtomicU64;

use hugeleaf_sys::{
    Advice, HugetlbReservation, MemoryFile, MemorySyscalls, ReservedAddresses, SysError,
};
use hugeleaf_units::{Bytes, PageSize, Range};

#[derive(Debug)]
pub(crate) struct SharedWords {
    space: ReservedAddresses,
    words: usize,
}

pub(crate) fn length_of(words: usize, base: PageSize) -> Bytes {
    let bytes = (words as u64).saturating_mul(size_of::<AtomicU64>() as u64);
    Bytes(base.round_up(bytes).unwrap_or(u64::MAX))
}

impl SharedWords {
    /// Creates a table of zero words and its file, fully allocated.
    ///
    /// # Errors
    /// Errors of the system calls; nothing is kept then.
    pub(crate) fn create(
        memory: &MemorySyscalls,
        words: usize,
        base: PageSize,
    ) -> Result<(SharedWords, MemoryFile), SysError> {
        let length = length_of(words, base);
        let file = memory.create_file("hugeleaf-table", length, None)?;
        if let Ok(all) = Range::new(0, length.get()) {
            memory.allocate(&file, all)?;
        }
        memory.seal_length(&file)?;
        let table = SharedWords::map(memory, &file, words, base)?;
        Ok((table, file))
    }

    /// Maps an existing table. The caller has checked the file's length, and that it is sealed.
    pub(crate) fn map(
        memory: &MemorySyscalls,
        file: &MemoryFile,
        words: usize,
        base: PageSize,
    ) -> Result<SharedWords, SysError> {
        let space = memory.reserve_addresses(length_of(words, base), base)?;
        space.map_file(space.range(), file, 0, HugetlbReservation::None)?;
        space.advise(space.range(), Advice::PopulateWrite)?;
        Ok(SharedWords { space, words })
    }

    pub(crate) fn words(&self) -> &[AtomicU64] {
        // SAFETY: the space maps at least `words` words of a file that cannot be truncated, for
        // reading and writing, from the start of a page, for as long as `self` is borrowed. Other
        // processes of this library write words by atomics. A foreign program may write anything,
        // and any value is valid for an atomic.
        unsafe { std::slice::from_raw_parts(self.space.as_ptr().cast(), self.words) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hugeleaf_sys::Kernel;
    use std::sync::atomic::Ordering;

    #[test]
    fn two_mappings_see_one_table() {
        let base = Kernel::new().base_page();
        let memory = MemorySyscalls::new();
        let (one, file) = SharedWords::create(&memory, 1000, base).unwrap();
        let two = SharedWords::map(&memory, &file, 1000, base).unwrap();
        one.words()[999].store(7, Ordering::Release);
        assert_eq!(two.words()[999].load(Ordering::Acquire), 7);
        assert_eq!(two.words()[0].load(Ordering::Acquire), 0);
        assert!(memory.facts(&file).unwrap().keeps_length);
    }
}
