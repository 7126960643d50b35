//! Smaller THP orders: the pages of a process on folios between base and PMD size.
//!
//! `smaps` reports PMD-mapped memory only. The folio of a page is reported by the page flags of its frame
//! (Documentation/admin-guide/mm/pagemap.rst), which only root may read.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;

use hugeleaf_sys::frames_of;
use hugeleaf_units::{Bytes, PageKind, PageSize, Range};

use crate::fact::{Fact, ReadError};
use crate::model::{Host, PageUsage, Process};
use crate::process::file_of;
use crate::process::read::SmapsPageSizes;
use crate::root::Root;

/// Flags of a frame (include/uapi/linux/kernel-page-flags.h).
const COMPOUND_HEAD: u64 = 1 << 15;
const COMPOUND_TAIL: u64 = 1 << 16;
const HUGETLB: u64 = 1 << 17;

/// Splits the base-page bytes of a process's tables by the size of their folio. PMD-sized folios that base entries
/// map stay under base pages, because their translation is not huge.
///
/// # Errors
/// [`ReadError`] if `/proc/kpageflags` or the page map cannot be read. Both need root.
pub fn split_by_folio(root: &Root, host: &Host, process: &mut Process) -> Result<(), ReadError> {
    let mut flags = KpageflagsReader {
        file: open(root, "proc/kpageflags".into())?,
        cache: BTreeMap::new(),
    };
    let pagemap = open(root, file_of(process.pid, "pagemap"))?;
    let sizes = SmapsPageSizes::from_host(host);
    let mut whole = Vec::new();
    for segment in &mut process.segments {
        let on_base = PageUsage::on_base(&segment.by_page_size);
        if segment.request.hugetlb.is_none() && !on_base.is_zero() && segment.name != "[vsyscall]" {
            let frames = present(&pagemap, segment.range, host.base_page);
            let smaller = folios(&frames, &mut flags, host.base_page, sizes.pmd());
            let moved: Bytes = smaller.iter().map(|h| h.bytes).sum();
            let moved = moved.min(on_base);
            if let Some(base) = segment
                .by_page_size
                .iter_mut()
                .find(|h| h.kind == PageKind::Base)
            {
                base.bytes = base.bytes - moved;
            }
            PageUsage::add_all(&mut segment.by_page_size, smaller);
        }
        PageUsage::add_all(&mut whole, &segment.by_page_size);
    }
    process.by_page_size = Fact::Known(whole);
    Ok(())
}

fn open(root: &Root, relative: String) -> Result<File, ReadError> {
    let file = root.open(&relative);
    file.map_err(|e| ReadError::io(root.path(&relative), &e))
}

/// Returns the frames of the present pages of a range, with each page's number. Empty if the kernel does not
/// report them (no CAP_SYS_ADMIN).
fn present(pagemap: &File, range: Range, base: PageSize) -> Vec<(u64, u64)> {
    let frames = frames_of(pagemap, range, base).ok().flatten();
    let pages = (range.start() / base.bytes().get()..).zip(frames.unwrap_or_default());
    pages
        .filter_map(|(page, frame)| Some((page, frame?)))
        .collect()
}

struct KpageflagsReader {
    file: File,
    cache: BTreeMap<u64, Vec<u64>>,
}

/// Number of frames whose flags are read at once.
const BLOCK: u64 = 8 * 1024;

impl KpageflagsReader {
    fn get(&mut self, frame: u64) -> u64 {
        let block = frame / BLOCK;
        let file = &self.file;
        let flags = self.cache.entry(block).or_insert_with(|| {
            let mut buffer = vec![0u8; usize::try_from(BLOCK).unwrap_or(0) * 8];
            let got = file.read_at(&mut buffer, block * BLOCK * 8).unwrap_or(0);
            buffer[..got - got % 8]
                .chunks_exact(8)
                .map(|c| u64::from_ne_bytes(c.try_into().unwrap_or_default()))
                .collect()
        });
        let index = usize::try_from(frame % BLOCK).unwrap_or(usize::MAX);
        flags.get(index).copied().unwrap_or(0)
    }
}

/// Returns the bytes on folios larger than a base page and smaller than a PMD page. The whole folio must be mapped
/// at an aligned address, since the kernel counts no other as that size.
fn folios(
    frames: &[(u64, u64)],
    flags: &mut KpageflagsReader,
    base: PageSize,
    pmd: PageSize,
) -> Vec<PageUsage> {
    let mut table = Vec::new();
    let most = pmd.ratio_to(base);
    let mut i = 0;
    while i < frames.len() {
        let (page, frame) = frames[i];
        let head = flags.get(frame);
        if frame == 0 || head & COMPOUND_HEAD == 0 || head & HUGETLB != 0 {
            i += 1;
            continue;
        }
        let mut pages = 1;
        while pages <= most && flags.get(frame + pages) & COMPOUND_TAIL != 0 {
            pages += 1;
        }
        let mapped = (1..pages).all(|n| {
            let at = i + usize::try_from(n).unwrap_or(usize::MAX);
            frames.get(at) == Some(&(page + n, frame + n))
        });
        if mapped && pages > 1 && pages < most && page.is_multiple_of(pages) {
            let bytes = Bytes(pages * base.bytes().get());
            if let Ok(size) = PageSize::new(bytes) {
                PageUsage::add(&mut table, size, PageKind::Thp, bytes);
            }
        }
        i += usize::try_from(pages).unwrap_or(1);
    }
    table
}
