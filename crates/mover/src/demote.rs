//! Demotes memory to base pages. `MADV_COLD` over one base page of a huge page splits it; debugfs
//! splits memory that several processes map. No data moves and nothing is written out.

use std::sync::atomic::AtomicBool;

use hugeleaf_host::{Host, Root};
use hugeleaf_sys::{Advice, Errno, Kernel, Pid, SysError};
use hugeleaf_units::{Bytes, PageSize, Range};

use crate::block_plan;
use crate::debugfs_split::{self, DebugfsSplitter};
use crate::finish::{Outcome, finish};
use crate::job::{BlockState, Job, MoverContext, ProcessWork};
use crate::options::DemoteOptions;
use crate::outcome::{Method, Progress, SkippedProcess, Stage, UnchangedReason};
use crate::precondition::PreconditionError;
use crate::process_memory::HeldBeforeSplit;
use crate::{job, pacer, readback, restore_after_split};

/// Number of attempts on a huge page that stays whole although the kernel reported success. Another
/// task held a reference to it at that moment.
const PASSES: u32 = 3;

/// Splits huge pages of running processes into base pages, and reads back the result. Returns early
/// with a partial result once `stop` is set; `progress` is called between calls.
///
/// The kernel may replace base pages that contain only zeros by the shared zero page (Linux 6.12,
/// tested). They are restored at once: the process keeps its size, and a later promotion finds its
/// blocks whole. If restoring fails, the outcome reports how much memory was returned.
///
/// MADV_COLD cannot split memory that several processes map (the kernel skips it and reports success).
/// If the host offers `split_huge_pages` of debugfs, it is split there, in all processes that map it.
/// Locked memory, program text and hugetlb pages stay as they are.
///
/// # Errors
/// [`PreconditionError`]: a precondition is missing, and nothing was changed.
pub fn demote(
    kernel: &Kernel,
    root: &Root,
    host: &Host,
    pids: &[Pid],
    options: &DemoteOptions,
    progress: &mut dyn FnMut(&Progress<'_>),
    stop: &AtomicBool,
) -> Result<Outcome, PreconditionError> {
    let huge = job::huge_page_of(kernel, host)?;
    let context = MoverContext {
        kernel,
        root,
        host,
        stop,
    };
    // A split needs almost no memory, so there is no floor to keep.
    let mut job = Job::new(context, progress, options.pace, Bytes::ZERO);
    job.held = options.record_held.then(HeldBeforeSplit::default);
    let (mut works, skipped) = plan_all(&context, pids, options, huge)?;
    job.begin(&works);
    if !options.dry_run {
        let mut splitter = DebugfsSplitter::default();
        for work in &mut works {
            let by_file = splitter.takes(&mut job, work);
            split_all(&mut job, work, by_file);
            splitter.split_shared(&mut job, work, options, by_file);
        }
    }
    Ok(finish(job, works, skipped, huge, false, options.dry_run))
}

fn plan_all(
    context: &MoverContext<'_>,
    pids: &[Pid],
    options: &DemoteOptions,
    huge: PageSize,
) -> Result<(Vec<ProcessWork>, Vec<SkippedProcess>), PreconditionError> {
    let probe = (!options.dry_run).then_some(Advice::Cold);
    let (open, skipped) = job::open_all(context, pids, options.only.as_deref(), probe)?;
    let rules = job::rules(context, &open, options.only.as_deref(), huge);
    let each = open
        .into_iter()
        .enumerate()
        .map(|(index, (identity, before))| {
            let plan = block_plan::plan_split(index, &before, &rules);
            ProcessWork::new(identity, before, plan)
        });
    Ok((each.collect(), skipped))
}

/// Splits by MADV_COLD. With `but_shared`, memory that several processes map is left to debugfs.
fn split_all(job: &mut Job<'_>, work: &mut ProcessWork, but_shared: bool) {
    let base = job.context.kernel.base_page();
    let mut todo: Vec<usize> = (0..work.states.len())
        .filter(|i| !(but_shared && debugfs_split::is_shared(&work.plan.blocks[*i])))
        .collect();
    if todo.is_empty() {
        return;
    }
    for pass in 0..PASSES {
        job.stage = if pass == 0 {
            Stage::Moving
        } else {
            Stage::Retrying
        };
        pass_over(job, work, &todo, pacer::splits_a_call(job.pace), base);
        if job.stopped_by.is_some() || work.lost.is_some() {
            return;
        }
        // MADV_COLD never splits memory while several processes map it, so a retry is useless.
        let Some(now) = readback::read_pages(&job.context, work) else {
            return;
        };
        todo.retain(|i| {
            now[*i] == readback::ReadbackState::Huge
                && work.plan.blocks[*i].exclusive
                && !matches!(work.states[*i], BlockState::Failed(_))
        });
        if todo.is_empty() {
            return;
        }
    }
}

/// Applies MADV_COLD to one base page of each block of `todo`, `most` blocks per call. A call stops at
/// the first range that fails and returns its progress.
#[expect(clippy::disallowed_methods, reason = "within Job::call")]
fn pass_over(
    job: &mut Job<'_>,
    work: &mut ProcessWork,
    todo: &[usize],
    most: usize,
    base: PageSize,
) {
    let mut at = 0;
    let mut len = most;
    while at < todo.len() {
        if work.states[todo[at]] == BlockState::Failed(UnchangedReason::Denied)
            || !job.may_go_on(work)
        {
            return;
        }
        let chunk = &todo[at..todo.len().min(at + len)];
        let pages: Vec<Range> = chunk
            .iter()
            .filter_map(|i| {
                let start = work.plan.blocks[*i].range.start();
                Range::new(start, start + base.bytes().get()).ok()
            })
            .collect();
        let answer = job.call(work, |kernel, process| {
            kernel.process_madvise(process, &pages, Advice::Cold)
        });
        let through = match &answer {
            Ok(done) => usize::try_from(base.pages_for(*done).get())
                .unwrap_or(0)
                .min(chunk.len()),
            Err(_) => 0,
        };
        for i in &chunk[..through] {
            note(job, work, *i, BlockState::Called);
        }
        restore_after_split::restore_after_split(job, work, &chunk[..through]);
        at += through;
        len = most;
        match answer {
            // The first block of a list failed. Retry it alone to get its error.
            _ if through == 0 && chunk.len() > 1 => len = 1,
            Err(e) => {
                let state = refused(job, work, chunk[0], &e);
                note(job, work, chunk[0], state);
                at += 1;
            }
            // No progress and no error: skip the block, so that the loop ends.
            Ok(_) if through == 0 => at += 1,
            Ok(_) => {}
        }
        job.report(job.stage, Some(work.identity.pid()));
    }
}

fn note(job: &mut Job<'_>, work: &mut ProcessWork, block: usize, state: BlockState) {
    if work.states[block] == BlockState::Todo {
        job.done += work.plan.blocks[block].range.len();
    }
    work.states[block] = state;
    work.methods[block] = Some(Method::Cold);
}

/// Maps an error on one block to a state (mm/madvise.c).
fn refused(job: &Job<'_>, work: &mut ProcessWork, block: usize, error: &SysError) -> BlockState {
    match error.errno {
        Errno::AGAIN | Errno::INTR => BlockState::Again(UnchangedReason::Busy),
        Errno::BUSY => BlockState::Again(UnchangedReason::Busy),
        Errno::NOMEM => BlockState::Failed(UnchangedReason::Unmapped),
        Errno::INVAL if work.plan.blocks[block].locked => {
            BlockState::Failed(UnchangedReason::Locked)
        }
        Errno::INVAL => BlockState::Failed(UnchangedReason::Refused),
        errno => job.failed(work, errno),
    }
}
