//! The page frames of a process's memory, to see if neighbouring pages are contiguous in physical
//! memory.

use std::fs::File;
use std::os::unix::fs::FileExt;

use hugeleaf_units::{PageSize, Range};

use crate::{SysError, errno_of};

/// Returns the frame of each base page of a range, in address order, from an open
/// `/proc/PID/pagemap`. An item is `None` for a page that is not in memory. The whole result is
/// `None` if the kernel hides frames: it shows them to CAP_SYS_ADMIN only
/// (Documentation/admin-guide/mm/pagemap.rst).
///
/// # Errors
/// The errors of reading the file.
pub fn frames_of(
    file: &File,
    range: Range,
    base: PageSize,
) -> Result<Option<Vec<Option<u64>>>, SysError> {
    const FRAME: u64 = (1 << 55) - 1;
    const ENTRIES: u64 = 32 << 10;
    let page = base.bytes().get();
    let (mut at, end) = (range.start() / page, range.end().div_ceil(page));
    let mut frames = Vec::new();
    let mut hidden = true;
    while at < end {
        let count = usize::try_from((end - at).min(ENTRIES)).unwrap_or(0);
        let mut buffer = vec![0u8; count * 8];
        file.read_exact_at(&mut buffer, at * 8)
            .map_err(|e| SysError::new("read", "pagemap", errno_of(&e)))?;
        for entry in buffer.chunks_exact(8) {
            let bits = u64::from_ne_bytes(entry.try_into().unwrap_or_default());
            let (present, frame) = (bits >> 63 == 1, bits & FRAME);
            hidden &= !(present && frame != 0);
            frames.push(present.then_some(frame));
        }
        at += count as u64;
    }
    Ok((!hidden).then_some(frames))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address_space::own_page_map;
    use crate::{Kernel, OwnMapping, Sharing};
    use hugeleaf_units::Bytes;

    #[test]
    fn a_page_that_was_touched_has_a_frame() {
        let base = Kernel::new().base_page();
        let memory =
            OwnMapping::anonymous(Bytes(base.bytes().get() * 4), Sharing::Private).unwrap();
        let frames = |memory: &OwnMapping| {
            frames_of(&own_page_map().unwrap(), memory.range(), base).unwrap()
        };
        assert_eq!(frames(&memory), None);
        memory.touch(base.bytes()).unwrap();
        match frames(&memory) {
            Some(frames) => assert!(frames.iter().all(Option::is_some), "{frames:?}"),
            None => println!("not run: a_page_that_was_touched_has_a_frame: needs root"),
        }
    }
}
