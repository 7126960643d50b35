//! Reads back the result from the page map and smaps, because the return values of the calls are
//! not reliable.

use hugeleaf_host::{MappingRole, Process, ReadDetail};
use hugeleaf_sys::{PageRun, PageScanDetail, PageState};
use hugeleaf_units::{Bytes, Range};
use hugeleaf_verdict::eligible::MappingKind;

use crate::block_plan::{self, Block};
use crate::job::{BlockState, MoverContext, ProcessWork};
use crate::outcome::{
    BlockResult, BytesByMethod, BytesByReason, Method, ProcessOutcome, RoleOutcome, UnchangedReason,
};
use crate::process_memory::{HeldBeforeSplit, push_joined};
use crate::restore_after_split;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReadbackState {
    Huge,
    Base,
    /// Not resident: unmapped, returned to the kernel, or (shared memory) not mapped since the
    /// split.
    Nothing,
}

/// Returns the current state of a process's blocks, in their order; `None` if the page map does not
/// report huge pages (Linux before 6.7) or cannot be read.
pub(crate) fn read_pages(
    context: &MoverContext<'_>,
    work: &ProcessWork,
) -> Option<Vec<ReadbackState>> {
    let blocks = &work.plan.blocks;
    let pagemap = &work.identity.pagemap;
    let mut now = Vec::with_capacity(blocks.len());
    let mut at = 0;
    while at < blocks.len() {
        let len = neighbours(&blocks[at..]);
        let part = &blocks[at..at + len];
        let range = Range::new(part[0].range.start(), part[len - 1].range.end()).ok()?;
        let map = context
            .kernel
            .page_map(pagemap, range, PageScanDetail::Sizes);
        let map = map.ok().filter(|map| map.huge_known)?;
        now.extend(states_of(part, &map.runs));
        at += len;
    }
    Some(now)
}

/// Counts the leading blocks that follow each other without a gap.
fn neighbours(blocks: &[Block]) -> usize {
    let pairs = blocks.windows(2);
    1 + pairs
        .take_while(|pair| pair[0].range.end() == pair[1].range.start())
        .count()
}

fn states_of(blocks: &[Block], runs: &[PageRun]) -> Vec<ReadbackState> {
    let mut at = 0;
    let each = blocks.iter().map(|block| {
        let mut now = ReadbackState::Nothing;
        while let Some(run) = runs.get(at) {
            if run.range.intersect(block.range).is_some() {
                match run.state.has(PageState::HUGE) && !run.state.has(PageState::ZERO) {
                    true => now = ReadbackState::Huge,
                    false if now == ReadbackState::Nothing => now = ReadbackState::Base,
                    false => {}
                }
            }
            if run.range.end() > block.range.end() {
                break;
            }
            at += 1;
        }
        now
    });
    each.collect()
}

pub(crate) fn planned(work: &ProcessWork) -> ProcessOutcome {
    empty_outcome(work, Some(&work.before))
}

/// Returns the outcome of one promoted (`to_huge`) or demoted process. `unreached` is the reason
/// for blocks that were not tried.
pub(crate) fn outcome(
    context: &MoverContext<'_>,
    work: &mut ProcessWork,
    to_huge: bool,
    unreached: UnchangedReason,
    held: Option<&mut HeldBeforeSplit>,
) -> ProcessOutcome {
    let (now, after) = match work.is_same(context) {
        true => (read_pages(context, work), read_after(context, work)),
        false => (None, None),
    };
    // The check comes after the read, so that the data is known to be of this program.
    let is_same = work.is_same(context);
    let after = after.filter(|_| is_same);
    let mut outcome = empty_outcome(work, after.as_ref());
    match (work.lost_reason(), now) {
        (Some(reason), _) => {
            BytesByReason::add(&mut outcome.failed, reason, outcome.requested);
            work.fates = vec![BlockResult::Failed(reason); work.plan.blocks.len()];
        }
        (None, Some(now)) => {
            work.fates = tell_blocks(&mut outcome, work, &now, to_huge, unreached);
            if !to_huge {
                let split = work.fates.iter().map(|fate| *fate == BlockResult::Done);
                let split: Vec<bool> = split.collect();
                outcome.zeros_lost =
                    restore_after_split::unrestored_zeros(context, work, &split, held);
                outcome.no_zeros = work.no_zeros;
            }
        }
        (None, None) => {
            tell_totals(&mut outcome, work, after.as_ref(), to_huge, unreached);
            work.fates =
                vec![BlockResult::Failed(UnchangedReason::NotSeen); work.plan.blocks.len()];
        }
    }
    outcome
}

fn read_after(context: &MoverContext<'_>, work: &ProcessWork) -> Option<Process> {
    // Segments are needed only if the page map does not distinguish huge pages.
    let looking = match work.plan.huge_unknown {
        true => ReadDetail::Segments,
        false => ReadDetail::Summary,
    };
    let pid = work.identity.pid();
    hugeleaf_host::read_process(context.root, context.kernel, context.host, pid, looking).ok()
}

fn empty_outcome(work: &ProcessWork, after: Option<&Process>) -> ProcessOutcome {
    let before = &work.before;
    let mut outcome = ProcessOutcome {
        pid: before.pid,
        who: work.identity.who,
        name: before.name.clone(),
        unit: before.unit.clone(),
        requested: work.plan.requested(),
        already: work.plan.already,
        left_out: work.plan.left_out.clone(),
        zeros_restored: work.brought_back,
        seconds: work.spent.as_secs_f64(),
        coverage_before: before.coverage(),
        coverage_after: after.and_then(Process::coverage),
        page_tables_before: before.page_tables,
        page_tables_after: after.map(|p| p.page_tables),
        resident_before: before.resident,
        resident_after: after.map(|p| p.resident),
        mergeable: mergeable(before),
        thp_enabled: work.switched_on,
        ended: work.ended(),
        ..ProcessOutcome::default()
    };
    for block in &work.plan.blocks {
        RoleOutcome::entry(&mut outcome.by_role, block.role).requested += block.range.len();
    }
    outcome
}

fn mergeable(process: &Process) -> Bytes {
    let segments = process.segments.iter().filter(|s| s.flags.has("mg"));
    segments.map(|s| s.resident).sum()
}

fn tell_blocks(
    outcome: &mut ProcessOutcome,
    work: &ProcessWork,
    now: &[ReadbackState],
    to_huge: bool,
    unreached: UnchangedReason,
) -> Vec<BlockResult> {
    let each = work.plan.blocks.iter().zip(&work.states).zip(&work.methods);
    let mut fates = Vec::with_capacity(now.len());
    for (((block, state), method), now) in each.zip(now) {
        let len = block.range.len();
        if (*now == ReadbackState::Huge) == to_huge && !(to_huge && *now == ReadbackState::Nothing)
        {
            outcome.done += len;
            RoleOutcome::entry(&mut outcome.by_role, block.role).done += len;
            if to_huge {
                outcome.grown += block.missing;
                outcome.zeros_restored += block.restores;
            }
            if let (true, Some(reason)) = (to_huge, block.one_way(work.no_split)) {
                BytesByReason::add(&mut outcome.one_way, reason, len);
            }
            push_joined(&mut outcome.moved, block.range);
            by(&mut outcome.done_by, *method, len);
            fates.push(BlockResult::Done);
            if *now == ReadbackState::Nothing && block.kind == MappingKind::Shared {
                outcome.unmapped += len;
            }
            continue;
        }
        let reason = match *now {
            ReadbackState::Nothing if *state == BlockState::Called => UnchangedReason::Unmapped,
            _ => {
                let passed_over = !to_huge && is_passed_over(block, *method);
                why_not(*state, work, passed_over, unreached).unwrap_or(UnchangedReason::NotSeen)
            }
        };
        BytesByReason::add(&mut outcome.failed, reason, len);
        fates.push(BlockResult::Failed(reason));
    }
    fates
}

/// Counts by smaps if the page map does not report huge pages. The totals per role are correct, but
/// the individual blocks are unknown.
fn tell_totals(
    outcome: &mut ProcessOutcome,
    work: &ProcessWork,
    after: Option<&Process>,
    to_huge: bool,
    unreached: UnchangedReason,
) {
    let mut rest = Vec::new();
    for role in &mut outcome.by_role {
        let was = thp_of(&work.before, role.role);
        let is = after.map_or(was, |process| thp_of(process, role.role));
        // Memory that is already huge is among the blocks, because nothing distinguishes it.
        role.requested = match to_huge {
            true => role.requested - was,
            false => role.requested.min(was),
        };
        let gained = if to_huge { is - was } else { was - is };
        role.done = gained.min(role.requested);
        rest.push((role.role, role.requested - role.done));
        let mut done = role.done;
        let blocks = work.plan.blocks.iter().zip(&work.states).zip(&work.methods);
        let called = |b: &Block, s: BlockState| b.role == role.role && s == BlockState::Called;
        for ((block, _), method) in blocks.filter(|((b, s), _)| called(b, **s)) {
            let part = block.range.len().min(done);
            done = done - part;
            by(&mut outcome.done_by, *method, part);
            if let (true, Some(reason)) = (to_huge, block.one_way(work.no_split)) {
                BytesByReason::add(&mut outcome.one_way, reason, part);
            }
        }
    }
    outcome.by_role.retain(|role| !role.requested.is_zero());
    outcome.requested = outcome.by_role.iter().map(|r| r.requested).sum();
    outcome.done = outcome.by_role.iter().map(|r| r.done).sum();
    let mut counted = outcome.done;
    let each = work.plan.blocks.iter().zip(&work.states).zip(&work.methods);
    for ((block, state), method) in each {
        let passed_over = !to_huge && is_passed_over(block, *method);
        let reason = why_not(*state, work, passed_over, unreached);
        let Some(reason) = reason else {
            continue;
        };
        if let Some((_, rest)) = rest.iter_mut().find(|(role, _)| *role == block.role) {
            let part = block.range.len().min(*rest);
            *rest = *rest - part;
            counted += part;
            BytesByReason::add(&mut outcome.failed, reason, part);
        }
    }
    BytesByReason::add(
        &mut outcome.failed,
        UnchangedReason::NotSeen,
        outcome.requested - counted,
    );
    if outcome.done == outcome.requested && !outcome.done.is_zero() {
        let ranges = work.plan.blocks.iter().map(|b| b.range);
        ranges.for_each(|range| push_joined(&mut outcome.moved, range));
    }
}

/// Returns why a block is not on the target page size; `None` if the kernel reported success.
fn why_not(
    state: BlockState,
    work: &ProcessWork,
    passed_over: bool,
    unreached: UnchangedReason,
) -> Option<UnchangedReason> {
    match state {
        BlockState::Todo | BlockState::Unknown => Some(unreached),
        BlockState::Again(reason) | BlockState::Failed(reason) => Some(reason),
        BlockState::Called => passed_over.then_some(UnchangedReason::SharedByOthers(work.no_split)),
    }
}

/// Returns true if MADV_COLD skipped a block because several processes map it, and no other method
/// was tried.
fn is_passed_over(block: &Block, method: Option<Method>) -> bool {
    !block.exclusive && method != Some(Method::SplitFile)
}

fn by(table: &mut Vec<BytesByMethod>, method: Option<Method>, bytes: Bytes) {
    let Some(method) = method else { return };
    match table.iter_mut().find(|d| d.method == method) {
        Some(done) => done.bytes += bytes,
        None => table.push(BytesByMethod { method, bytes }),
    }
}

/// Returns a process's memory on transparent huge pages in segments of a role, by smaps.
fn thp_of(process: &Process, role: MappingRole) -> Bytes {
    let segments = process.segments.iter().filter(|s| s.role == role);
    segments.map(block_plan::thp_bytes).sum()
}
