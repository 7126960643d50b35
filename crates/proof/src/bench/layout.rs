//! The pages that memory is on, read back.

use hugeleaf_host::process::orders::split_by_folio;
use hugeleaf_host::{Held, Looking, read_process};
use hugeleaf_sys::{Kernel, own_pid};
use hugeleaf_units::{Bytes, Range};
use hugeleaf_workload::PageArm;

use super::Machine;

/// What of all that there should be is not on the pages of an arm, in words.
pub fn astray(held: &[Held], arm: PageArm, all: Bytes) -> Option<String> {
    let is_right = |held: &&Held| (held.size, held.kind) == (arm.size, arm.kind);
    let right: Bytes = held.iter().filter(is_right).map(|h| h.bytes).sum();
    let missing = all.saturating_sub(right);
    (!missing.is_zero()).then(|| format!("{missing} of {all} were not on {arm}"))
}

/// Returns the memory of a range of this process by page size. Transparent huge pages below the full size are reported by
/// the flags of page frames, to root.
pub fn held_by_folio(range: Range, machine: &Machine<'_>) -> Result<Vec<Held>, String> {
    let (root, host, kernel) = (machine.root, machine.host, Kernel::new());
    let mut process = read_process(root, &kernel, host, own_pid(), Looking::Segments)
        .map_err(|e| e.to_string())?;
    process
        .segments
        .retain(|segment| segment.range.intersect(range) == Some(segment.range));
    split_by_folio(root, host, &mut process)
        .map_err(|e| format!("cannot be determined from base pages: {e} (root may read it)"))?;
    let held = process.segments.iter().flat_map(|s| &s.by_page_size);
    let mut table = Vec::new();
    for h in held {
        Held::add(&mut table, h.size, h.kind, h.bytes);
    }
    Ok(table)
}
