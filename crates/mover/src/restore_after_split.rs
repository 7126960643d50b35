//! Restores memory that a split takes from a process besides its huge pages.
//!
//! Base pages that contain only zeros: the kernel frees them and maps the zero page instead (Linux 6.12). The process
//! would become smaller, and its blocks would no longer be fully resident. A write fault on each page, which writes
//! nothing, restores them.
//!
//! Shared memory that one process maps: the kernel unmaps the whole huge page, and the process maps base pages on touch.
//! A promotion would treat the block as absent. Reading a byte of each page maps it again.

use hugeleaf_host::system::available;
use hugeleaf_sys::{PageRun, PageScanDetail, PageState};
use hugeleaf_units::{Bytes, Range};
use hugeleaf_verdict::eligible::{MappingKind, is_resident};

use crate::job::{Job, MoverContext, ProcessWork};
use crate::pressure;
use crate::process_memory::HeldBeforeSplit;
use crate::split_refusals::ZeroRestoreError;

/// Restores the zero pages and mappings that the split of these blocks (indices, ascending) removed. Copy-on-write memory
/// of several processes is skipped, because each process would get a page of its own.
pub(crate) fn restore_after_split(job: &mut Job<'_>, work: &mut ProcessWork, split: &[usize]) {
    for i in split {
        let block = work.plan.blocks[*i];
        if work.no_zeros.is_some() {
            continue;
        }
        if !work.is_same(&job.context) {
            return;
        }
        let answer = match block.kind {
            MappingKind::Shared => map_again(job, work, block.range),
            MappingKind::Private if block.exclusive => fill_again(job, work, block.range),
            _ => Ok(()),
        };
        work.no_zeros = answer.err();
    }
}

fn fill_again(
    job: &mut Job<'_>,
    work: &mut ProcessWork,
    range: Range,
) -> Result<(), ZeroRestoreError> {
    let was = zero_runs(&job.context, work, range);
    if was.is_empty() {
        return Ok(());
    }
    if is_short(&job.context) {
        return Err(ZeroRestoreError::Pressure);
    }
    #[expect(clippy::disallowed_methods, reason = "within Job::call")]
    let answer = job.call(work, |kernel, process| kernel.populate(process, &was));
    let is = zero_runs(&job.context, work, range);
    work.brought_back += bytes(&was) - bytes(&is);
    answer.map_err(|error| ZeroRestoreError::from_error(&error))
}

/// Maps a block again only if none of it is mapped, so that pages kept by another mapping of the same memory stay as they
/// are.
fn map_again(
    job: &mut Job<'_>,
    work: &mut ProcessWork,
    range: Range,
) -> Result<(), ZeroRestoreError> {
    let (kernel, pagemap) = (job.context.kernel, &work.identity.pagemap);
    match kernel.page_map(pagemap, range, PageScanDetail::Sizes) {
        Ok(map) if map.huge_known && map.runs.is_empty() => {}
        _ => return Ok(()),
    }
    #[expect(clippy::disallowed_methods, reason = "within Job::call")]
    let answer = job.call(work, |kernel, process| kernel.fault_in(process, range));
    answer
        .map(|_| ())
        .map_err(|error| ZeroRestoreError::from_error(&error))
}

/// Returns how many bytes of private blocks are zero pages that were not restored. Records in `held` the memory that each
/// block of `split` (one entry per block) holds.
pub(crate) fn unrestored_zeros(
    context: &MoverContext<'_>,
    work: &ProcessWork,
    split: &[bool],
    mut held: Option<&mut HeldBeforeSplit>,
) -> Bytes {
    let mut given_back = Bytes::ZERO;
    for (block, is_split) in work.plan.blocks.iter().zip(split) {
        let holds = match block.kind {
            MappingKind::Private => {
                let zeros = bytes(&zero_runs(context, work, block.range));
                given_back += zeros;
                block.range.len() - zeros
            }
            _ if *is_split && held.is_some() => mapped(context, work, block.range),
            _ => continue,
        };
        if let (true, Some(held)) = (*is_split, &mut held) {
            held.add(block.spot(), holds);
        }
    }
    given_back
}

/// Returns how much of a range is resident; all of it if that is unknown.
fn mapped(context: &MoverContext<'_>, work: &ProcessWork, range: Range) -> Bytes {
    let pagemap = &work.identity.pagemap;
    let map = context
        .kernel
        .page_map(pagemap, range, PageScanDetail::Sizes);
    map.map_or(range.len(), |map| {
        let there = map.runs.iter().filter(|run| is_resident(run.state));
        there.map(|run| run.range.len()).sum()
    })
}

/// Returns the ranges of zero pages; empty if the page map does not report them.
fn zero_runs(context: &MoverContext<'_>, work: &ProcessWork, range: Range) -> Vec<Range> {
    let pagemap = &work.identity.pagemap;
    let map = context
        .kernel
        .page_map(pagemap, range, PageScanDetail::Sizes);
    let runs = map.map(|map| map.runs).unwrap_or_default();
    let zeros = runs.iter().filter(|run| is_zero(run));
    zeros.map(|run| run.range).collect()
}

const fn is_zero(run: &PageRun) -> bool {
    let zero = PageState::PRESENT.with(PageState::ZERO);
    run.state.has(zero) && !run.state.has(PageState::HUGE)
}

fn bytes(ranges: &[Range]) -> Bytes {
    ranges.iter().map(|r| r.len()).sum()
}

/// Returns true if restoring memory would take what the host itself needs.
fn is_short(context: &MoverContext<'_>) -> bool {
    let available = available(context.root).get();
    let floor = (context.host.pmd_page.get()).map(|huge| pressure::floor_of(context.host, huge));
    matches!((available, floor), (Some(available), Some(floor)) if available < floor)
}
