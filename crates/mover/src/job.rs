//! Shared parts of promotion and demotion: the open processes, and the checks of budget, memory pressure and stop
//! flag before each call.

use std::fs::File;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hugeleaf_host::{Host, Process, ProcessError, ReadDetail, Root, limits};
use hugeleaf_sys::{Advice, Errno, Kernel, Pid, PidFd, RealTimePriority, SysError};
use hugeleaf_units::{Bytes, PageSize};

use crate::block_plan::{BlockPlan, SelectionRules};
use crate::options::{Percent, StallLimits, ranges_of};
use crate::outcome::{
    BlockResult, BytesByReason, Method, Progress, SkippedProcess, Stage, StoppedBy, TargetLoss,
    UnchangedReason,
};
use crate::pacer::StallStats;
use crate::precondition::PreconditionError;
use crate::pressure::{self, Pressure, PressureSample};
use crate::process_handle::{IdentityCheckError, ProcessHandle};
use crate::process_memory::{HeldBeforeSplit, ProcessIdentity, ProcessRanges, push_joined};
use crate::split_refusals::{SplitRefusal, ZeroRestoreError};
use crate::{pacer, privilege};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BlockState {
    Todo,
    Called,
    /// Part of a call that failed for one of several blocks; the failing block is unknown.
    Unknown,
    /// To be retried; the reason is final if the retries fail too.
    Again(UnchangedReason),
    Failed(UnchangedReason),
}

pub(crate) struct ProcessWork {
    pub(crate) identity: ProcessHandle,
    pub(crate) before: Process,
    pub(crate) plan: BlockPlan,
    pub(crate) states: Vec<BlockState>,
    /// Result of each block after reading back, one per block; empty if the page map does not report huge pages.
    pub(crate) fates: Vec<BlockResult>,
    pub(crate) methods: Vec<Option<Method>>,
    /// Why memory that several processes map could not be split; also `None` if no split was needed.
    pub(crate) no_split: Option<SplitRefusal>,
    /// Zero pages that the split returned to the kernel and that were restored.
    pub(crate) brought_back: Bytes,
    /// Why other zero pages were not restored; also `None` if there were none.
    pub(crate) no_zeros: Option<ZeroRestoreError>,
    pub(crate) lost: Option<IdentityCheckError>,
    pub(crate) spent: Duration,
    pub(crate) switched_on: bool,
}

impl ProcessWork {
    pub(crate) fn new(identity: ProcessHandle, before: Process, plan: BlockPlan) -> ProcessWork {
        ProcessWork {
            switched_on: false,
            states: vec![BlockState::Todo; plan.blocks.len()],
            fates: Vec::new(),
            methods: vec![None; plan.blocks.len()],
            no_split: None,
            brought_back: Bytes::ZERO,
            no_zeros: None,
            identity,
            before,
            plan,
            lost: None,
            spent: Duration::ZERO,
        }
    }

    /// Returns all blocks to promote or demote, with neighbours merged.
    fn memory(&self) -> ProcessRanges {
        let mut ranges = Vec::new();
        for block in &self.plan.blocks {
            push_joined(&mut ranges, block.range);
        }
        ProcessRanges {
            who: self.identity.who,
            ranges,
        }
    }

    /// Returns true if the process is still the planned one, and records the loss otherwise.
    pub(crate) fn is_same(&mut self, context: &MoverContext<'_>) -> bool {
        if self.lost.is_none() {
            self.lost = self.identity.check(context.kernel, context.root).err();
        }
        self.lost.is_none()
    }

    pub(crate) fn ended(&self) -> Option<TargetLoss> {
        match self.lost {
            Some(IdentityCheckError::Ended(ended)) => Some(ended),
            _ => None,
        }
    }

    pub(crate) fn lost_reason(&self) -> Option<UnchangedReason> {
        Some(match self.lost? {
            IdentityCheckError::Ended(_) => UnchangedReason::ProcessEnded,
            IdentityCheckError::Unsure(errno) => UnchangedReason::Other(errno),
        })
    }
}

pub(crate) type OpenedProcess = (ProcessHandle, Process);

/// Opens and reads the processes. The pidfd is opened first, so that all later reads belong to this process.
///
/// # Errors
/// The error of the first process if none of them can be worked on.
pub(crate) fn open_all(
    context: &MoverContext<'_>,
    pids: &[Pid],
    only: Option<&[ProcessRanges]>,
    advice: Option<Advice>,
) -> Result<(Vec<OpenedProcess>, Vec<SkippedProcess>), PreconditionError> {
    let mut open = Vec::new();
    let mut skipped = Vec::new();
    for pid in pids {
        match open_one(context, *pid, only, advice) {
            Ok(one) => open.push(one),
            // These errors hold for every process.
            Err(e @ (PreconditionError::NoPidfd | PreconditionError::NoProcessMadvise)) => {
                return Err(e);
            }
            Err(error) => skipped.push(SkippedProcess { pid: *pid, error }),
        }
    }
    need_any(&open, &skipped)?;
    Ok((open, skipped))
}

/// Checks that something is left to work on.
///
/// # Errors
/// The first process's error, if not.
pub(crate) fn need_any<T>(left: &[T], skipped: &[SkippedProcess]) -> Result<(), PreconditionError> {
    if !left.is_empty() {
        return Ok(());
    }
    let first = skipped.first().map(|skipped| skipped.error.clone());
    Err(first.unwrap_or(PreconditionError::NoTarget))
}

fn open_one(
    context: &MoverContext<'_>,
    pid: Pid,
    only: Option<&[ProcessRanges]>,
    advice: Option<Advice>,
) -> Result<OpenedProcess, PreconditionError> {
    let (kernel, root, host) = (context.kernel, context.root, context.host);
    let gone = || {
        PreconditionError::Process(ProcessError::Gone {
            pid,
            hidden_possible: false,
        })
    };
    let fd = match kernel.pidfd_open(pid) {
        Ok(fd) => fd,
        // Reading the process gives a more precise error: it may be hidden, or have just ended.
        Err(e) if e.errno == Errno::SRCH => {
            let read = hugeleaf_host::read_process(root, kernel, host, pid, ReadDetail::Summary);
            return Err(read.err().map_or_else(gone, |e| privilege::unread(root, e)));
        }
        Err(e) if e.errno == Errno::NOSYS => return Err(PreconditionError::NoPidfd),
        Err(e) => return Err(PreconditionError::Sys(e)),
    };
    let path = root.path(format!("proc/{pid}/pagemap"));
    let pagemap = File::open(&path);
    // Reading the process gives a more precise error if the page map could not be opened.
    let process = hugeleaf_host::read_process(root, kernel, host, pid, ReadDetail::Pages)
        .map_err(|e| privilege::unread(root, e))?;
    let pagemap = pagemap.map_err(|e| {
        let errno = Errno::from_io_error(&e).unwrap_or(Errno::IO);
        let error = SysError::new("open", path.display().to_string(), errno);
        match privilege::is_denied(errno) {
            true => privilege::denied(root, pid, process.uid, error),
            false => PreconditionError::Sys(error),
        }
    })?;
    // The ranges belong to another process with this id, which has ended.
    let mut named = only.unwrap_or(&[]).iter().filter(|m| m.who.pid == pid);
    let who = ProcessIdentity::from(&process);
    if named.clone().next().is_some() && named.all(|m| m.who != who) {
        return Err(gone());
    }
    if let Some(advice) = advice {
        privilege::probe(kernel, root, &fd, process.uid, advice)?;
    }
    let identity = ProcessHandle { fd, pagemap, who };
    match identity.check(kernel, root) {
        Ok(()) => Ok((identity, process)),
        Err(IdentityCheckError::Ended(_)) => Err(gone()),
        Err(IdentityCheckError::Unsure(errno)) => Err(PreconditionError::Sys(SysError::new(
            "poll",
            format!("of pidfd {pid}"),
            errno,
        ))),
    }
}

#[derive(Clone, Copy)]
pub(crate) struct MoverContext<'a> {
    pub(crate) kernel: &'a Kernel,
    pub(crate) root: &'a Root,
    pub(crate) host: &'a Host,
    pub(crate) stop: &'a AtomicBool,
}

/// Interval between checks of the host's memory pressure.
const PRESSURE_EVERY: Duration = Duration::from_millis(100);
/// Maximum time to wait for pressure to end.
const PATIENCE: Duration = Duration::from_secs(10);
const HOLD_BACK: Duration = Duration::from_millis(200);
/// Divisor for this process's part of the free room in its cgroups. Other processes in them may need the rest soon.
const OWN_PART: u64 = 16;

fn own_room(root: &Root) -> Option<Bytes> {
    limits::read_limits(root, "self").memory_room().get()
}

pub(crate) struct Job<'a> {
    pub(crate) context: MoverContext<'a>,
    progress: &'a mut dyn FnMut(&Progress<'_>),
    pub(crate) pace: StallLimits,
    floor: Bytes,
    last: PressureSample,
    /// Free room in this program's cgroups before active page cache is reclaimed; also `None` without limits.
    own_room: Option<Bytes>,
    start: Duration,
    pub(crate) stalls: StallStats,
    pub(crate) held_back: Duration,
    pub(crate) stopped_by: Option<StoppedBy>,
    pub(crate) done: Bytes,
    pub(crate) total: Bytes,
    pub(crate) stage: Stage,
    /// Promoted memory that cannot be demoted.
    pub(crate) one_way: Option<BytesByReason>,
    /// Memory that blocks held when they were split, if requested.
    pub(crate) held: Option<HeldBeforeSplit>,
}

impl<'a> Job<'a> {
    pub(crate) fn new(
        context: MoverContext<'a>,
        progress: &'a mut dyn FnMut(&Progress<'_>),
        pace: StallLimits,
        floor: Bytes,
    ) -> Job<'a> {
        let start = context.kernel.now();
        let mut job = Job {
            last: pressure::sample(context.root, start, Duration::ZERO),
            own_room: own_room(context.root),
            context,
            progress,
            pace,
            floor,
            start,
            stalls: StallStats::default(),
            held_back: Duration::ZERO,
            stopped_by: None,
            done: Bytes::ZERO,
            total: Bytes::ZERO,
            stage: Stage::Planning,
            one_way: None,
            held: None,
        };
        job.report(Stage::Planning, None);
        job
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.context.kernel.now().saturating_sub(self.start)
    }

    /// Returns how much memory this process may allocate under its cgroup limits.
    pub(crate) fn most_to_touch(&self) -> Bytes {
        let room = self.own_room.map_or(u64::MAX, Bytes::get);
        Bytes(room / OWN_PART)
    }

    pub(crate) fn report(&mut self, stage: Stage, pid: Option<Pid>) {
        self.report_planned(stage, pid, &[]);
    }

    /// Reports the memory to be promoted or demoted, before the first call.
    pub(crate) fn begin(&mut self, works: &[ProcessWork]) {
        self.total = works.iter().map(|work| work.plan.requested()).sum();
        let planned: Vec<ProcessRanges> = works.iter().map(ProcessWork::memory).collect();
        self.report_planned(Stage::Planning, None, &planned);
    }

    fn report_planned(&mut self, stage: Stage, pid: Option<Pid>, planned: &[ProcessRanges]) {
        self.stage = stage;
        let progress = Progress {
            stage,
            pid,
            planned,
            done: self.done.min(self.total),
            total: self.total,
            elapsed: self.elapsed(),
            stalls: self.stalls,
            one_way: self.one_way,
        };
        (self.progress)(&progress);
    }

    /// Returns true if another call may be made: no stop request, enough free memory, and the same process. Called
    /// before every call.
    pub(crate) fn may_go_on(&mut self, work: &mut ProcessWork) -> bool {
        if self.stopped_by.is_none() && self.is_asked_to_stop() {
            self.stopped_by = Some(StoppedBy::Signal);
        }
        if self.stopped_by.is_some() || work.lost.is_some() || !self.pressure_allows(work) {
            return false;
        }
        work.is_same(&self.context)
    }

    pub(crate) fn is_asked_to_stop(&self) -> bool {
        self.context.stop.load(Ordering::Relaxed)
    }

    /// Maps an error that does not concern the block itself to a state.
    pub(crate) fn failed(&self, work: &mut ProcessWork, errno: Errno) -> BlockState {
        let reason = match errno {
            Errno::SRCH => UnchangedReason::ProcessEnded,
            // The right was there at the start, so the process has executed a set-user-id program. Its memory must
            // not be touched any more.
            errno if privilege::is_denied(errno) => {
                for state in work.states.iter_mut().filter(|s| **s == BlockState::Todo) {
                    *state = BlockState::Failed(UnchangedReason::Denied);
                }
                UnchangedReason::Denied
            }
            errno => return BlockState::Failed(UnchangedReason::Other(errno)),
        };
        work.is_same(&self.context);
        BlockState::Failed(reason)
    }

    /// Waits until the host has free memory; returns false if it stayed short.
    fn pressure_allows(&mut self, work: &ProcessWork) -> bool {
        let kernel = self.context.kernel;
        if kernel.now().saturating_sub(self.last.at) < PRESSURE_EVERY {
            return true;
        }
        let began = kernel.now();
        loop {
            let now = pressure::sample(self.context.root, kernel.now(), self.stalls.total);
            let pressure = pressure::judge(&self.last, &now, self.floor);
            self.last = now;
            self.own_room = own_room(self.context.root);
            match pressure {
                Pressure::None => return true,
                // The pause already grows with the call's own length. This one relieves other tasks that wait for
                // the same lock.
                Pressure::Compacting => {
                    if self.pace.budget != Percent::ALL {
                        self.hold_back(work, HOLD_BACK);
                    }
                    return !self.is_asked_to_stop();
                }
                Pressure::Stalling | Pressure::Low => {
                    if kernel.now().saturating_sub(began) >= PATIENCE {
                        self.stopped_by = Some(StoppedBy::MemoryPressure);
                        return false;
                    }
                    self.hold_back(work, HOLD_BACK);
                }
            }
            if self.is_asked_to_stop() {
                self.stopped_by = Some(StoppedBy::Signal);
                return false;
            }
        }
    }

    pub(crate) fn hold_back(&mut self, work: &ProcessWork, time: Duration) {
        let before = self.context.kernel.now();
        let stage = self.stage;
        self.report(Stage::HoldingBack, Some(work.identity.pid()));
        self.context.kernel.wait(time, self.context.stop);
        self.stage = stage;
        self.held_back += self.context.kernel.now().saturating_sub(before);
    }

    /// Makes one call that changes a process, then pauses as the budget requires. No other place of this crate makes
    /// such calls.
    pub(crate) fn call<T>(
        &mut self,
        work: &mut ProcessWork,
        act: impl FnOnce(&Kernel, &PidFd) -> Result<T, SysError>,
    ) -> Result<T, SysError> {
        let kernel = self.context.kernel;
        let before = kernel.now();
        let answer = {
            // A task that waits for a lock of this call should not also wait for the scheduler.
            let _first = (self.pace.longest_stall).and_then(|_| RealTimePriority::new().ok());
            act(kernel, &work.identity.fd)
        };
        let took = kernel.now().saturating_sub(before);
        self.stalls.add(took, self.pace);
        let pause = pacer::pause_after(took, self.pace.budget);
        kernel.wait(pause, self.context.stop);
        work.spent += kernel.now().saturating_sub(before);
        answer
    }
}

pub(crate) fn rules<'a>(
    context: &MoverContext<'a>,
    open: &[OpenedProcess],
    only: Option<&[ProcessRanges]>,
    huge: PageSize,
) -> SelectionRules<'a> {
    SelectionRules {
        host: context.host,
        huge,
        base: context.kernel.base_page(),
        min_resident: Percent::ALL,
        held: None,
        only: (open.iter())
            .map(|(identity, _)| ranges_of(only, identity.who))
            .collect(),
    }
}

/// Returns the host's huge page size, if the kernel has all required calls.
pub(crate) fn huge_page_of(kernel: &Kernel, host: &Host) -> Result<PageSize, PreconditionError> {
    if !kernel.supports_process_madvise() {
        return Err(PreconditionError::NoProcessMadvise);
    }
    match &host.pmd_page {
        hugeleaf_host::Fact::Known(size) => Ok(*size),
        hugeleaf_host::Fact::Absent => Err(PreconditionError::NoThp),
        hugeleaf_host::Fact::Unreadable(error) => Err(PreconditionError::Unreadable(error.clone())),
    }
}
