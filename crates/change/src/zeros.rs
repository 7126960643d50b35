//! Base pages that hold only zeros. Where a huge page is split, the kernel gives those back and maps
//! the zero page in their stead (Linux 6.12): the process would be smaller than it was found, and its
//! blocks would not be wholly resident any more. They are brought back at once, by a write fault on
//! each that writes nothing.

use hugeleaf_sys::{Errno, PageRun, PageState, ScanDetail, SysError};
use hugeleaf_units::{Bytes, Range};

use crate::eligible::{Block, Kind};
use crate::pressure;
use crate::work::{Course, Means, Work};

/// Why zero-filled pages stay given back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum NoZeros {
    /// The right to attach to the process by ptrace is missing.
    Denied,
    /// The host is short of memory.
    Pressure,
    /// Another errno.
    Failed(Errno),
}

/// Brings back what the split of these blocks (indices, ascending) gave back. What several processes
/// have copy-on-write is left: each of them would get a page of its own where one served all.
pub(crate) fn bring_back(course: &mut Course<'_>, work: &mut Work, split: &[usize]) {
    let is_own = |i: &&usize| {
        let block = &work.plan.blocks[**i];
        block.kind == Kind::Private && block.exclusive
    };
    for i in split.iter().filter(is_own).copied().collect::<Vec<_>>() {
        if work.no_zeros.is_some() || !course.is_same(work) {
            return;
        }
        let range = work.plan.blocks[i].range;
        let was = zero_runs(&course.means, work, range);
        if was.is_empty() {
            continue;
        }
        if is_short(&course.means) {
            work.no_zeros = Some(NoZeros::Pressure);
            return;
        }
        if let Err(error) = course.populate(work, &was) {
            work.no_zeros = Some(refused(&error));
            return;
        }
        let is = zero_runs(&course.means, work, range);
        work.brought_back += bytes(&was) - bytes(&is);
    }
}

/// What of the blocks that are not huge any more is the zero page: given back, and not brought back.
pub(crate) fn given_back(means: &Means<'_>, work: &Work) -> Bytes {
    let private = |b: &&Block| b.kind == Kind::Private;
    let blocks = work.plan.blocks.iter().filter(private);
    blocks
        .map(|block| bytes(&zero_runs(means, work, block.range)))
        .sum()
}

/// The stretches of base pages that are the zero page; none where nothing tells.
fn zero_runs(means: &Means<'_>, work: &Work, range: Range) -> Vec<Range> {
    let pagemap = &work.identity.pagemap;
    let map = means.kernel.page_map(pagemap, range, ScanDetail::Sizes);
    let runs = map.map(|map| map.runs).unwrap_or_default();
    runs.iter()
        .filter(|run| is_zero(run))
        .map(|r| r.range)
        .collect()
}

const fn is_zero(run: &PageRun) -> bool {
    let zero = PageState::PRESENT.with(PageState::ZERO);
    run.state.has(zero) && !run.state.has(PageState::HUGE)
}

fn bytes(ranges: &[Range]) -> Bytes {
    ranges.iter().map(|r| r.len()).sum()
}

/// Whether bringing memory back would take what the host needs itself.
fn is_short(means: &Means<'_>) -> bool {
    let available = pressure::available(means.root);
    let floor = (means.host.pmd_page.get()).map(|huge| pressure::floor_of(means.host, huge));
    matches!((available, floor), (Some(available), Some(floor)) if available < floor)
}

fn refused(error: &SysError) -> NoZeros {
    match error.errno {
        errno if crate::privilege::is_denied(errno) => NoZeros::Denied,
        errno => NoZeros::Failed(errno),
    }
}
