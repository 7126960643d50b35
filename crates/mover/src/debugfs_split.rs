//! Splits huge pages that several processes map, by `split_huge_pages` of debugfs. Checks whether
//! this host offers the file, and implements the stage of a demotion that uses it.

use std::collections::HashSet;
use std::time::Duration;

use hugeleaf_host::Root;
use hugeleaf_sys::{Errno, Kernel, Pid, PidFd, SysError, ThpSplitFile};
use hugeleaf_units::Range;

use crate::block_plan::{Block, BlockKey};
use crate::job::{BlockState, Job, ProcessWork};
use crate::options::DemoteOptions;
use crate::outcome::{Method, Stage, UnchangedReason};
use crate::split_refusals::SplitRefusal;
use crate::{pacer, readback, restore_after_split};

/// Number of attempts on a huge page that stays whole. The split unmaps the page first. A process
/// that touches it at that moment holds a reference, and the split fails. Measured: of 131 huge
/// pages of a busy PostgreSQL one stayed whole in each of three passes.
const PASSES: u32 = 8;
/// Pause before the second pass; doubled for each later one.
const BACK_OFF: Duration = Duration::from_millis(2);
const PATH: &str = "sys/kernel/debug/split_huge_pages";

/// Checks whether this host can split huge pages that these processes share with others. Opens the
/// file and has the kernel split a range without memory. Changes nothing.
pub fn can_split_shared(kernel: &Kernel, root: &Root, pids: &[Pid]) -> Result<(), SplitRefusal> {
    let file = open(kernel, root)?;
    for pid in pids {
        match kernel.pidfd_open(*pid) {
            Ok(process) => probe(kernel, root, &file, &process)?,
            // This process has ended, which does not prevent the others.
            Err(e) if e.errno == Errno::SRCH => {}
            Err(e) => return Err(SplitRefusal::Failed(e.errno)),
        }
    }
    Ok(())
}

fn open(kernel: &Kernel, root: &Root) -> Result<ThpSplitFile, SplitRefusal> {
    let opened = match kernel.open_split(Some(&root.path(PATH))) {
        Err(e) if e.errno == Errno::NOENT => kernel.open_split(None),
        answer => answer,
    };
    opened.map_err(|e| SplitRefusal::from_errno(e.errno))
}

/// Checks that the kernel accepts a split request for this process id and means this process. The
/// request names a range without memory: the first page of an address space.
#[expect(
    clippy::disallowed_methods,
    reason = "a range without memory, to learn whether it is permitted"
)]
fn probe(
    kernel: &Kernel,
    root: &Root,
    file: &ThpSplitFile,
    process: &PidFd,
) -> Result<(), SplitRefusal> {
    let facts = root.read(format!("proc/self/fdinfo/{}", process.number()));
    match facts.known().and_then(|text| number_in_proc(text)) {
        Some(number) if number == i64::from(process.pid().0) => {}
        // The kernel reports -1 for a process that has ended.
        Some(-1) => return Ok(()),
        _ => return Err(SplitRefusal::OtherNamespace),
    }
    let Ok(nothing) = Range::new(0, kernel.base_page().bytes().get()) else {
        return Ok(());
    };
    match kernel.split(file, process, nothing) {
        Ok(()) => Ok(()),
        // The process ended or is about to end. Otherwise the later writes report the error again.
        Err(e) if is_of_the_process(e.errno) || is_passing(e.errno) => Ok(()),
        Err(e) => Err(SplitRefusal::from_errno(e.errno)),
    }
}

/// Returns the process id behind a pidfd in the reader's `/proc`, from its fdinfo.
fn number_in_proc(fdinfo: &str) -> Option<i64> {
    let line = fdinfo.lines().find_map(|l| l.strip_prefix("Pid:"))?;
    line.trim().parse().ok()
}

/// The file once it was opened, and the blocks that were split with it.
#[derive(Default)]
pub(crate) struct DebugfsSplitter {
    file: Option<Result<ThpSplitFile, SplitRefusal>>,
    /// Blocks of shared memory that were split through one process. This also split them in all
    /// others that map them.
    done: HashSet<BlockKey>,
}

impl DebugfsSplitter {
    /// Returns true if the file is to split this process's shared memory: there is some, and the
    /// file can be used. Otherwise records the reason in `work`.
    pub(crate) fn takes(&mut self, job: &mut Job<'_>, work: &mut ProcessWork) -> bool {
        let any = work.plan.blocks.iter().any(is_shared);
        any && job.may_go_on(work) && self.is_open_for(job, work)
    }

    fn is_open_for(&mut self, job: &Job<'_>, work: &mut ProcessWork) -> bool {
        let (kernel, root) = (job.context.kernel, job.context.root);
        let file = self.file.get_or_insert_with(|| open(kernel, root));
        let usable = match file {
            Ok(file) => probe(kernel, root, file, &work.identity.fd),
            Err(why) => Err(*why),
        };
        work.no_split = usable.err();
        work.no_split.is_none()
    }

    /// Splits memory that several processes map, and blocks that MADV_COLD skipped because they have
    /// become shared. `is_open` is the answer of [`DebugfsSplitter::takes`].
    pub(crate) fn split_shared(
        &mut self,
        job: &mut Job<'_>,
        work: &mut ProcessWork,
        options: &DemoteOptions,
        is_open: bool,
    ) {
        let mut todo = self.still_whole(job, work);
        if todo.is_empty() || !job.may_go_on(work) {
            return;
        }
        if !is_open && !self.is_open_for(job, work) {
            return;
        }
        job.stage = Stage::Moving;
        for pass in 0..PASSES {
            self.pass(job, work, &todo, pacer::splits_a_write(options.pace));
            let is_over = job.stopped_by.is_some()
                || work.lost.is_some()
                || work.no_split.is_some()
                || work.plan.huge_unknown;
            if is_over {
                return;
            }
            todo = self.still_whole(job, work);
            if todo.is_empty() {
                return;
            }
            if pass + 1 < PASSES {
                job.hold_back(work, BACK_OFF * (1 << pass));
                job.stage = Stage::Retrying;
            }
        }
    }

    /// Returns the blocks that several processes map and that are still huge. Blocks that were split
    /// through another process are recorded as done.
    fn still_whole(&self, job: &Job<'_>, work: &mut ProcessWork) -> Vec<usize> {
        let now = readback::read_pages(&job.context, work);
        let mut whole = Vec::new();
        for i in 0..work.states.len() {
            let state = work.states[i];
            let open = matches!(
                state,
                BlockState::Todo | BlockState::Called | BlockState::Again(UnchangedReason::Busy)
            );
            let block = &work.plan.blocks[i];
            if !open || block.locked {
                continue;
            }
            match &now {
                Some(now) if now[i] == readback::ReadbackState::Huge => whole.push(i),
                Some(_) if state == BlockState::Todo => {
                    work.states[i] = BlockState::Called;
                    if block.key().is_some_and(|key| self.done.contains(&key)) {
                        work.methods[i] = Some(Method::SplitFile);
                    }
                }
                Some(_) => {}
                // The page map does not tell, so each shared block is tried once.
                None if is_shared(block) && work.methods[i] != Some(Method::SplitFile) => {
                    whole.push(i);
                }
                None => {}
            }
        }
        whole
    }

    /// Splits one slice of at most `most` neighbouring blocks after the other.
    fn pass(&mut self, job: &mut Job<'_>, work: &mut ProcessWork, todo: &[usize], most: usize) {
        let mut at = 0;
        while at < todo.len() {
            if work.no_split.is_some() || !job.may_go_on(work) {
                return;
            }
            let len = neighbours(work, &todo[at..], most);
            let slice = &todo[at..at + len];
            at += len;
            self.slice(job, work, slice);
            job.report(job.stage, Some(work.identity.pid()));
        }
    }

    fn slice(&mut self, job: &mut Job<'_>, work: &mut ProcessWork, slice: &[usize]) {
        let Some(Ok(file)) = &self.file else { return };
        let keys: Vec<_> = slice.iter().map(|i| work.plan.blocks[*i].key()).collect();
        let (first, last) = (slice[0], slice[slice.len() - 1]);
        let blocks = &work.plan.blocks;
        let Ok(range) = Range::new(blocks[first].range.start(), blocks[last].range.end()) else {
            return;
        };
        let through_another = keys
            .iter()
            .all(|k| k.is_some_and(|k| self.done.contains(&k)));
        // A retry is made anyway, because the page map showed these blocks as still whole.
        let again = work.methods[first] == Some(Method::SplitFile);
        #[expect(clippy::disallowed_methods, reason = "within Job::call")]
        let answer = match through_another && !again {
            true => Ok(()),
            false => job.call(work, |kernel, process| {
                kernel.split(file, process, range)?;
                // The process maps the pages again at once, as before. Other processes do so on
                // their next touch, as does this one if the call fails.
                let _ = kernel.fault_in(process, range);
                Ok(())
            }),
        };
        match answer {
            Ok(()) => {
                self.done.extend(keys.into_iter().flatten());
                for i in slice {
                    if work.states[*i] == BlockState::Todo {
                        job.done += work.plan.blocks[*i].range.len();
                    }
                    work.states[*i] = BlockState::Called;
                    work.methods[*i] = Some(Method::SplitFile);
                }
                restore_after_split::restore_after_split(job, work, slice);
            }
            Err(e) => {
                let state = refused(job, work, &e);
                for i in slice {
                    work.states[*i] = state;
                }
            }
        }
    }
}

fn neighbours(work: &ProcessWork, todo: &[usize], most: usize) -> usize {
    let range = |i: usize| work.plan.blocks[i].range;
    let pairs = todo[..todo.len().min(most)].windows(2);
    1 + pairs
        .take_while(|pair| range(pair[0]).end() == range(pair[1]).start())
        .count()
}

pub(crate) fn is_shared(block: &Block) -> bool {
    !block.exclusive && !block.locked
}

/// True if no process has this id, or it has no memory.
fn is_of_the_process(errno: Errno) -> bool {
    errno == Errno::SRCH || errno == Errno::INVAL
}

fn is_passing(errno: Errno) -> bool {
    errno == Errno::INTR || errno == Errno::AGAIN || errno == Errno::BUSY
}

/// Maps an error of the write to a state (mm/huge_memory.c, split_huge_pages_write).
fn refused(job: &Job<'_>, work: &mut ProcessWork, error: &SysError) -> BlockState {
    match error.errno {
        errno if is_passing(errno) => BlockState::Again(UnchangedReason::Busy),
        errno if is_of_the_process(errno) => match work.is_same(&job.context) {
            true => BlockState::Failed(UnchangedReason::Refused),
            false => BlockState::Failed(UnchangedReason::ProcessEnded),
        },
        errno => {
            let why = SplitRefusal::from_errno(errno);
            work.no_split = Some(why);
            BlockState::Failed(UnchangedReason::SharedByOthers(Some(why)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_a_process_is_in_its_fdinfo() {
        let text = "pos:\t0\nflags:\t02000002\nmnt_id:\t15\nino:\t7\nPid:\t1234\nNSpid:\t1234\t1\n";
        assert_eq!(number_in_proc(text), Some(1234));
        assert_eq!(number_in_proc("Pid:\t-1\n"), Some(-1));
        assert_eq!(number_in_proc("NSpid:\t7\n"), None);
        assert_eq!(number_in_proc(""), None);
    }

    #[test]
    fn every_refusal_says_why_and_what_to_do() {
        for (errno, why) in [
            (Errno::NOENT, SplitRefusal::NoFile),
            (Errno::NODEV, SplitRefusal::NoDebugfs),
            (Errno::NOSYS, SplitRefusal::NoDebugfs),
            (Errno::IO, SplitRefusal::Failed(Errno::IO)),
        ] {
            assert_eq!(SplitRefusal::from_errno(errno), why);
            assert!(why.to_string().starts_with("debugfs split_huge_pages: "));
        }
        for errno in [Errno::PERM, Errno::ACCESS] {
            let denied = SplitRefusal::from_errno(errno);
            assert!(matches!(
                denied,
                SplitRefusal::NotRoot | SplitRefusal::Refused
            ));
            assert!(denied.remedy().is_some());
        }
    }
}
