//! Promotes memory to huge pages: the loop over chunks, its passes, and the meaning of each error.

use std::collections::HashSet;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use hugeleaf_host::process::maps::{MapLine, read_maps};
use hugeleaf_host::process::proc_parsers::parse_status;
use hugeleaf_host::{Fact, Host, ProcessError, Root};
use hugeleaf_sys::{Advice, Errno, Kernel, PageMap, PageScanDetail, Pid, SysError, frames_of};
use hugeleaf_units::{Bytes, PageSize, Range};
use hugeleaf_verdict::eligible::{self, MappingKind};

use crate::block_plan::{self, Block, SelectionRules};
use crate::finish::{Outcome, finish};
use crate::free_page_prefault::FreePagePrefault;
use crate::job::{BlockState, Job, MoverContext, OpenedProcess, ProcessWork};
use crate::options::{Percent, PromoteOptions};
use crate::outcome::{Method, Progress, SkippedProcess, Stage, StoppedBy, UnchangedReason};
use crate::precondition::PreconditionError;
use crate::{coverage_target, job, outcome_totals, pacer, pressure, privilege, readback};

/// Pause before the second pass; doubled for each later one.
const BACK_OFF: Duration = Duration::from_millis(20);
/// Above this size, allocating a huge page of our own before each call costs more than it saves.
const MOST_TO_DRAIN: Bytes = Bytes::from_mib(64);
/// Number of consecutive calls without contiguous memory before giving up.
const OUT_OF_MEMORY_CALLS: u32 = 3;

/// Promotes memory of running processes to huge pages (`MADV_COLLAPSE`), and reads back the result.
/// Returns early with a partial result once `stop` is set; `progress` is called between calls.
///
/// # Errors
/// [`PreconditionError`]: a precondition is missing, and nothing was changed.
pub fn promote(
    kernel: &Kernel,
    root: &Root,
    host: &Host,
    pids: &[Pid],
    options: &PromoteOptions,
    progress: &mut dyn FnMut(&Progress<'_>),
    stop: &AtomicBool,
) -> Result<Outcome, PreconditionError> {
    let context = MoverContext {
        kernel,
        root,
        host,
        stop,
    };
    let mut round = || promote_once(context, pids, options, progress);
    match options.at_least.filter(|_| !options.dry_run) {
        None => round(),
        Some(percent) => coverage_target::repeat(percent, || kernel.now(), round),
    }
}

fn promote_once(
    context: MoverContext<'_>,
    pids: &[Pid],
    options: &PromoteOptions,
    progress: &mut dyn FnMut(&Progress<'_>),
) -> Result<Outcome, PreconditionError> {
    let (kernel, host) = (context.kernel, context.host);
    let huge = job::huge_page_of(kernel, host)?;
    if !kernel.supports_collapse() {
        return Err(PreconditionError::NoCollapse);
    }
    let floor = options
        .keep_available
        .unwrap_or_else(|| pressure::floor_of(host, huge));
    let mut job = Job::new(context, progress, options.pace, floor);
    let (mut works, mut skipped) = plan_all(&context, pids, options, huge)?;
    job.one_way = outcome_totals::one_way(&context, &mut works);
    job.begin(&works);
    if !options.dry_run {
        switch_on(&mut job, &mut works, &mut skipped)?;
        let mut mover = PromotionRun {
            job: &mut job,
            rules: rules(&context, &[], options, huge),
            fetch: FreePagePrefault::default(),
            out_of_memory: 0,
            ahead: None,
        };
        mover.all(&mut works, options);
    }
    Ok(finish(job, works, skipped, huge, true, options.dry_run))
}

fn plan_all(
    context: &MoverContext<'_>,
    pids: &[Pid],
    options: &PromoteOptions,
    huge: PageSize,
) -> Result<(Vec<ProcessWork>, Vec<SkippedProcess>), PreconditionError> {
    let probe = (!options.dry_run).then_some(Advice::Collapse);
    let (mut open, mut skipped) = job::open_all(context, pids, options.only.as_deref(), probe)?;
    let mut switched = Vec::new();
    if options.switch_thp_on {
        switched = plan_switch(context, &mut open, &mut skipped)?;
    }
    let rules = rules(context, &open, options, huge);
    let processes: Vec<_> = open.iter().map(|(_, process)| process).collect();
    let plans = block_plan::plan(&processes, &rules);
    let works = open.into_iter().zip(plans);
    let works = works.map(|((identity, before), mut plan)| {
        plan.settle(huge, |torn| {
            let frames = frames_of(&identity.pagemap, torn.block.range, rules.base);
            frames.is_ok_and(|frames| frames.is_some_and(|f| torn.was_one_page(&f)))
        });
        let mut work = ProcessWork::new(identity, before, plan);
        work.switched_on = switched.contains(&work.identity.pid());
        work
    });
    Ok((works.collect(), skipped))
}

/// Plans to switch THP on for processes that have disabled it for themselves; all further planning
/// assumes that it is on. Returns these processes. Those that filter their calls are skipped.
///
/// # Errors
/// The first process's error, if none is left.
fn plan_switch(
    context: &MoverContext<'_>,
    open: &mut Vec<OpenedProcess>,
    skipped: &mut Vec<SkippedProcess>,
) -> Result<Vec<Pid>, PreconditionError> {
    let mut switched = Vec::new();
    open.retain_mut(|(_, process)| {
        let pid = process.pid;
        if process.thp_disabled.get() != Some(true) {
            return true;
        }
        if let Err(error) = need_unfiltered(context.root, pid) {
            skipped.push(SkippedProcess { pid, error });
            return false;
        }
        process.thp_disabled = Fact::Known(false);
        switched.push(pid);
        true
    });
    job::need_any(open, skipped)?;
    Ok(switched)
}

/// Switches THP on where that is planned. Processes for which this fails are skipped.
///
/// # Errors
/// The first process's error, if none is left.
fn switch_on(
    job: &mut Job<'_>,
    works: &mut Vec<ProcessWork>,
    skipped: &mut Vec<SkippedProcess>,
) -> Result<(), PreconditionError> {
    works.retain_mut(|work| {
        let is_planned = std::mem::take(&mut work.switched_on);
        if !is_planned || !job.may_go_on(work) {
            return true;
        }
        match switch_one_on(job, work) {
            Ok(()) => work.switched_on = true,
            // A signal ended it before the process had stopped.
            Err(_) if job.is_asked_to_stop() => return true,
            Err(error) => {
                let pid = work.identity.pid();
                skipped.push(SkippedProcess { pid, error });
            }
        }
        work.switched_on
    });
    job.total = works.iter().map(|work| work.plan.requested()).sum();
    job::need_any(works, skipped)
}

#[expect(clippy::disallowed_methods, reason = "within Job::call")]
fn switch_one_on(job: &mut Job<'_>, work: &mut ProcessWork) -> Result<(), PreconditionError> {
    let (root, pid, uid) = (job.context.root, work.identity.pid(), work.before.uid);
    // The process may have added a filter since it was planned.
    need_unfiltered(root, pid)?;
    let answer = job.call(work, |kernel, process| kernel.switch_thp_on(process));
    answer.map_err(|error| match privilege::is_denied(error.errno) {
        true => privilege::denied(root, pid, uid, error),
        false => PreconditionError::Sys(error),
    })
}

/// Refuses a process that filters its system calls. The reaction of a filter to an unexpected call
/// is unknown; most filters kill the process.
fn need_unfiltered(root: &Root, pid: Pid) -> Result<(), PreconditionError> {
    let status = root.parse(format!("proc/{pid}/status"), parse_status);
    match status {
        Fact::Known(status) => match status.seccomp.unwrap_or(0) {
            0 => Ok(()),
            mode => Err(PreconditionError::Filtered { pid, mode }),
        },
        Fact::Unreadable(error) => Err(PreconditionError::Unreadable(error)),
        Fact::Absent => Err(PreconditionError::Process(ProcessError::Gone {
            pid,
            hidden_possible: false,
        })),
    }
}

fn rules<'a>(
    context: &MoverContext<'a>,
    open: &[OpenedProcess],
    options: &'a PromoteOptions,
    huge: PageSize,
) -> SelectionRules<'a> {
    let rules = job::rules(context, open, options.only.as_deref(), huge);
    SelectionRules {
        min_resident: options.min_resident,
        held: options.held.as_ref(),
        ..rules
    }
}

struct PromotionRun<'c, 'a> {
    job: &'c mut Job<'a>,
    rules: SelectionRules<'a>,
    fetch: FreePagePrefault,
    out_of_memory: u32,
    /// Pages of the next chunk, if they were read during the last call.
    ahead: Option<(Range, Result<PageMap, SysError>)>,
}

/// Returns the range of a chunk of private memory; `None` for other memory.
fn private_range(blocks: &[Block], chunk: &[usize]) -> Option<Range> {
    let (first, last) = (&blocks[*chunk.first()?], &blocks[*chunk.last()?]);
    let range = Range::new(first.range.start(), last.range.end()).ok()?;
    (first.kind == MappingKind::Private).then_some(range)
}

impl PromotionRun<'_, '_> {
    /// Processes all processes pass by pass. Blocks to copy come first, then blocks that are only
    /// mapped because another process shares them. The last passes retry busy blocks.
    fn all(&mut self, works: &mut [ProcessWork], options: &PromoteOptions) {
        let most = pacer::bytes_a_call(options.pace, self.rules.huge);
        for attach in [false, true] {
            let most = if attach {
                pacer::map_only_per_call(options.pace, self.rules.huge).max(most)
            } else {
                most
            };
            for work in works.iter_mut() {
                let todo = indices(work, |i, w| {
                    w.states[i] == BlockState::Todo && w.plan.blocks[i].map_only == attach
                });
                self.job.stage = Stage::Moving;
                self.pass(work, &todo, most);
            }
        }
        for pass in 1..options.passes.max(1) {
            for work in works.iter_mut() {
                self.again(work, pass);
            }
        }
    }

    fn again(&mut self, work: &mut ProcessWork, pass: u32) {
        if self.job.stopped_by.is_some() || work.lost.is_some() {
            return;
        }
        let again = indices(work, |i, w| is_open(w.states[i]));
        if again.is_empty() {
            return;
        }
        // The result of a call over many blocks says little about each, so read the page map first.
        if let Some(now) = readback::read_pages(&self.job.context, work) {
            for i in &again {
                if now[*i] == readback::ReadbackState::Huge {
                    work.states[*i] = BlockState::Called;
                }
            }
        }
        let again = indices(work, |i, w| is_open(w.states[i]));
        let busy = again.iter().any(|i| work.states[*i] != BlockState::Unknown);
        if busy {
            let wait = BACK_OFF.saturating_mul(1 << (pass - 1).min(6));
            self.job.hold_back(work, wait);
        }
        self.job.stage = Stage::Retrying;
        self.pass(work, &again, self.rules.huge.bytes());
    }

    /// Processes the blocks of `todo` in calls of at most `most` bytes.
    fn pass(&mut self, work: &mut ProcessWork, todo: &[usize], most: Bytes) {
        let mut at = 0;
        while at < todo.len() {
            let first = work.states[todo[at]] == BlockState::Todo;
            let len = block_plan::chunk_len(&work.plan.blocks, &todo[at..], most);
            let chunk = &todo[at..at + len];
            at += len;
            if first {
                let blocks = chunk.iter().map(|i| work.plan.blocks[*i].range.len());
                self.job.done += blocks.sum();
            }
            // Fetching may take a while, so it comes before the last check of the process.
            if !work.plan.blocks[chunk[0]].map_only {
                self.fetch(chunk.len());
            }
            if !self.job.may_go_on(work) {
                return;
            }
            let parts = self.still_eligible(work, chunk);
            if most > self.rules.huge.bytes() && self.job.pace.budget == Percent::ALL {
                let next = block_plan::chunk_len(&work.plan.blocks, &todo[at..], most);
                self.looking_ahead(work, &parts, &todo[at..at + next]);
            } else {
                self.parts(work, &parts);
            }
            self.job.report(self.job.stage, Some(work.identity.pid()));
        }
    }

    fn parts(&mut self, work: &mut ProcessWork, parts: &[&[usize]]) {
        for (n, part) in parts.iter().enumerate() {
            if n > 0 && !self.job.may_go_on(work) {
                return;
            }
            self.chunk(work, part);
        }
    }

    /// Does the same while another thread reads the page map of the next chunk. Without a budget
    /// this read would take a twentieth of the time. It is then at most one call old, and changes
    /// during a call cannot be seen anyway.
    fn looking_ahead(&mut self, work: &mut ProcessWork, parts: &[&[usize]], next: &[usize]) {
        let kernel = self.job.context.kernel;
        let range = private_range(&work.plan.blocks, next);
        let pagemap = work.identity.pagemap.try_clone();
        let (Some(range), Ok(pagemap)) = (range, pagemap) else {
            return self.parts(work, parts);
        };
        std::thread::scope(|scope| {
            let look =
                scope.spawn(|| kernel.page_map(&pagemap, range, PageScanDetail::ExclusiveFirst));
            self.parts(work, parts);
            self.ahead = look.join().ok().map(|map| (range, map));
        });
    }

    /// Returns the parts of a chunk that are eligible now.
    fn still_eligible<'t>(
        &mut self,
        work: &mut ProcessWork,
        chunk: &'t [usize],
    ) -> Vec<&'t [usize]> {
        let Some(range) = private_range(&work.plan.blocks, chunk) else {
            return vec![chunk];
        };
        let pagemap = &work.identity.pagemap;
        let kernel = self.job.context.kernel;
        let map = match self.ahead.take().filter(|(seen, _)| *seen == range) {
            Some((_, map)) => map,
            None => kernel.page_map(pagemap, range, PageScanDetail::ExclusiveFirst),
        };
        let map = match map {
            Ok(map) => map,
            Err(e) => {
                work.is_same(&self.job.context);
                mark(
                    work,
                    chunk,
                    BlockState::Failed(UnchangedReason::Other(e.errno)),
                );
                return Vec::new();
            }
        };
        let mut held = HashSet::new();
        for i in chunk {
            let block = work.plan.blocks[*i];
            match block_plan::judge_again(&block, &map.runs, &self.rules) {
                Ok(fresh) => work.plan.blocks[*i] = fresh,
                Err(None) => work.states[*i] = BlockState::Called,
                // Most likely under migration to another frame, so it returns soon.
                Err(Some(reason @ UnchangedReason::Not(eligible::Reason::Swapped))) => {
                    work.states[*i] = BlockState::Again(reason);
                    held.insert(*i);
                }
                Err(Some(reason)) => work.states[*i] = BlockState::Failed(reason),
            }
        }
        let open = |i: &usize| {
            let state = work.states[*i];
            (state == BlockState::Todo || is_open(state)) && !held.contains(i)
        };
        let parts = chunk.chunk_by(|a, b| open(a) == open(b));
        parts.filter(|part| open(&part[0])).collect()
    }

    #[expect(clippy::disallowed_methods, reason = "within Job::call")]
    fn chunk(&mut self, work: &mut ProcessWork, chunk: &[usize]) {
        let blocks = &work.plan.blocks;
        let (first, last) = (&blocks[chunk[0]], &blocks[chunk[chunk.len() - 1]]);
        let Ok(range) = Range::new(first.range.start(), last.range.end()) else {
            return;
        };
        for i in chunk {
            work.methods[*i] = Some(Method::Collapse);
        }
        let answer = self.job.call(work, |kernel, process| {
            kernel.process_madvise(process, &[range], Advice::Collapse)
        });
        match answer {
            Ok(done) => {
                self.out_of_memory = 0;
                let through =
                    usize::try_from(done.get() / self.rules.huge.bytes().get()).unwrap_or(0);
                let (through, rest) = chunk.split_at(through.min(chunk.len()));
                mark(work, through, BlockState::Called);
                mark(work, rest, BlockState::Unknown);
            }
            // The error does not name the block, so the next pass tries each block alone.
            Err(e) if chunk.len() > 1 && !ends_process(&e) => {
                mark(work, chunk, BlockState::Unknown);
            }
            Err(e) => self.refused(work, chunk, range, &e),
        }
    }

    /// Does all work that can precede the call, so that it costs the process no time.
    fn fetch(&mut self, blocks: usize) {
        let (kernel, huge) = (self.job.context.kernel, self.rules.huge);
        let most = self.job.most_to_touch();
        if self.job.pace != Percent::ALL.into() && huge.bytes() <= MOST_TO_DRAIN.min(most) {
            // If the kernel refuses this, the call only takes longer.
            let _ = kernel.drain_page_lists(huge);
        }
        let pages = blocks as u64;
        let fetched = self.fetch.before(pages, huge, most);
        if fetched > 0 {
            let before = kernel.now();
            // If memory is short, the call itself reports it.
            let _ = kernel.back_free_memory(huge, fetched);
            let took = kernel.now().saturating_sub(before);
            self.fetch.learn(fetched, pages, took, huge);
        }
    }

    /// Maps an error on one block to a state (mm/khugepaged.c, madvise_collapse_errno).
    fn refused(&mut self, work: &mut ProcessWork, chunk: &[usize], range: Range, error: &SysError) {
        if error.errno != Errno::NOMEM {
            self.out_of_memory = 0;
        }
        let state = match error.errno {
            Errno::AGAIN | Errno::INTR => BlockState::Again(UnchangedReason::Busy),
            Errno::BUSY => BlockState::Again(UnchangedReason::CgroupLimit),
            Errno::NOMEM => self.no_memory(work, range),
            Errno::INVAL => match is_mapped(self.job.context.root, work.identity.pid(), range) {
                true => BlockState::Failed(UnchangedReason::Refused),
                false => BlockState::Failed(UnchangedReason::Unmapped),
            },
            errno => self.job.failed(work, errno),
        };
        mark(work, chunk, state);
    }

    /// Distinguishes the two meanings of ENOMEM: an unmapped range, and no contiguous memory.
    fn no_memory(&mut self, work: &ProcessWork, range: Range) -> BlockState {
        if !is_mapped(self.job.context.root, work.identity.pid(), range) {
            return BlockState::Failed(UnchangedReason::Unmapped);
        }
        self.out_of_memory += 1;
        if self.out_of_memory >= OUT_OF_MEMORY_CALLS {
            self.job.stopped_by = Some(StoppedBy::NoContiguousMemory);
        } else {
            self.job.hold_back(work, BACK_OFF * 10);
        }
        BlockState::Again(UnchangedReason::NoContiguousMemory)
    }
}

const fn is_open(state: BlockState) -> bool {
    matches!(state, BlockState::Again(_) | BlockState::Unknown)
}

/// Returns true for errors that concern the process and not a block.
fn ends_process(error: &SysError) -> bool {
    error.errno == Errno::SRCH || privilege::is_denied(error.errno)
}

fn indices(work: &ProcessWork, wanted: impl Fn(usize, &ProcessWork) -> bool) -> Vec<usize> {
    (0..work.states.len())
        .filter(|i| wanted(*i, work))
        .collect()
}

fn mark(work: &mut ProcessWork, which: &[usize], state: BlockState) {
    for i in which {
        work.states[*i] = state;
    }
}

/// Returns true if the whole range is mapped now, or if that cannot be read.
fn is_mapped(root: &Root, pid: Pid, range: Range) -> bool {
    let Fact::Known(maps) = root.parse_lines(format!("proc/{pid}/maps"), read_maps) else {
        return true;
    };
    let next = |at, map: &MapLine| match map.range.contains(at) {
        true => map.range.end(),
        false => at,
    };
    maps.iter().fold(range.start(), next) >= range.end()
}
