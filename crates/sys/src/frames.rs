//! Which page frames memory of a process is in: whether neighbours are neighbours there too.

use std::fs::File;
use std::os::unix::fs::FileExt;

use hugeleaf_units::{Bytes, PageSize, Range};

use crate::space::own_page_map;
use crate::{SysError, errno_of};

/// The frames of a range of this process; see [`frames_of`].
///
/// # Errors
/// Those of opening and reading `/proc/self/pagemap`.
pub fn own_frames(range: Range, base: PageSize) -> Result<Option<Vec<Option<u64>>>, SysError> {
    frames_of(&own_page_map()?, range, base)
}

/// The frame of each base page of a range, in order of address, from an open `/proc/PID/pagemap`;
/// `None` for a page that is not in memory. The whole is `None` where the kernel hides frames: it
/// tells them to CAP_SYS_ADMIN only (Documentation/admin-guide/mm/pagemap.rst).
///
/// # Errors
/// Those of reading the file.
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

/// How many ranges of neighbouring frames the pages are, mean over blocks of `block` bytes; a
/// page that is not in memory ends one. Pure.
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
    use crate::{Kernel, Mapping, Sharing};

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

    #[test]
    fn a_page_that_was_touched_has_a_frame() {
        let base = Kernel::new().base_page();
        let memory = Mapping::anonymous(Bytes(base.bytes().get() * 4), Sharing::Private).unwrap();
        let frames = |memory: &Mapping| own_frames(memory.range(), base).unwrap();
        assert_eq!(frames(&memory), None);
        memory.touch(base.bytes()).unwrap();
        match frames(&memory) {
            Some(frames) => assert!(frames.iter().all(Option::is_some), "{frames:?}"),
            None => println!("not run: a_page_that_was_touched_has_a_frame: needs root"),
        }
    }
}
