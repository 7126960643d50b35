//! Page sizes of memory, read back.

use hugeleaf_host::process::folios::split_by_folio;
use hugeleaf_host::{PageUsage, ReadDetail, read_process};
use hugeleaf_sys::{Kernel, own_pid};
use hugeleaf_units::{Bytes, Range};
use hugeleaf_workload::PageArm;

use super::BenchContext;

/// Describes the part of `all` that is not on the pages of an arm.
pub fn page_mismatch(held: &[PageUsage], arm: PageArm, all: Bytes) -> Option<String> {
    let is_right = |held: &&PageUsage| (held.size, held.kind) == (arm.size, arm.kind);
    let right: Bytes = held.iter().filter(is_right).map(|h| h.bytes).sum();
    let missing = all - right;
    (!missing.is_zero()).then(|| format!("{missing} of {all} were not on {arm}"))
}

/// Returns the memory of a range of this process by page size. THP sizes below the PMD size come from page-frame flags,
/// which only root can read.
pub fn held_by_folio(range: Range, machine: &BenchContext<'_>) -> Result<Vec<PageUsage>, String> {
    let (root, host, kernel) = (machine.root, machine.host, Kernel::new());
    let mut process = read_process(root, &kernel, host, own_pid(), ReadDetail::Segments)
        .map_err(|e| e.to_string())?;
    process
        .segments
        .retain(|segment| segment.range.intersect(range) == Some(segment.range));
    split_by_folio(root, host, &mut process)
        .map_err(|e| format!("cannot be distinguished from base pages: {e} (readable by root)"))?;
    let held = process.segments.iter().flat_map(|s| &s.by_page_size);
    let mut table = Vec::new();
    PageUsage::add_all(&mut table, held);
    Ok(table)
}
