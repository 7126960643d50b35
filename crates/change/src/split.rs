//! Splitting what several processes map, by the kernel's own file for it: `split_huge_pages` of
//! debugfs. Whether this host offers it, and the stage of a demotion that uses it.

#![expect(clippy::disallowed_methods, reason = "part of the mover")]

use std::collections::HashSet;
use std::time::Duration;

use hugeleaf_host::Root;
use hugeleaf_sys::{Errno, Kernel, Pid, PidFd, SplitFile, SysError};
use hugeleaf_units::Range;
use hugeleaf_verdict::eligible::Kind;

use crate::blocks::{Block, ObjectId};
use crate::options::DemoteOptions;
use crate::outcome::{Method, Reason, Stage};
use crate::refusals::NoSplit;
use crate::work::{Job, State, Work};
use crate::{pacer, readback, zeros};

/// How often a huge page is tried that stayed whole. The split unmaps it first; a process that
/// touches it at that moment holds a reference to it, and the split is given up (tried: of 131 huge
/// pages of a busy PostgreSQL one stayed whole in each of three passes).
const PASSES: u32 = 8;
/// How long to wait before a further pass; doubled each time.
const BACK_OFF: Duration = Duration::from_millis(2);
const PATH: &str = "sys/kernel/debug/split_huge_pages";

/// Whether huge pages of these processes that others map too can be split on this host: opens the
/// file and has the kernel split a range in which no memory is. Changes nothing.
pub fn can_split_shared(kernel: &Kernel, root: &Root, pids: &[Pid]) -> Result<(), NoSplit> {
    let file = open(kernel, root)?;
    for pid in pids {
        match kernel.pidfd_open(*pid) {
            Ok(process) => probe(kernel, root, &file, &process)?,
            // It has ended: no hindrance to the others.
            Err(e) if e.errno == Errno::SRCH => {}
            Err(e) => return Err(NoSplit::Failed(e.errno)),
        }
    }
    Ok(())
}

fn open(kernel: &Kernel, root: &Root) -> Result<SplitFile, NoSplit> {
    let opened = match kernel.open_split(Some(&root.path(PATH))) {
        Err(e) if e.errno == Errno::NOENT => kernel.open_split(None),
        answer => answer,
    };
    opened.map_err(|e| NoSplit::of(e.errno))
}

/// Whether the kernel would take this process's number for this process, and a line about it. The
/// line names a range without memory: the first page of an address space.
fn probe(kernel: &Kernel, root: &Root, file: &SplitFile, process: &PidFd) -> Result<(), NoSplit> {
    let facts = root.read(format!("proc/self/fdinfo/{}", process.number()));
    match facts.known().and_then(|text| number_in_proc(text)) {
        Some(number) if number == i64::from(process.pid().0) => {}
        // The kernel writes -1 for one that has ended.
        Some(-1) => return Ok(()),
        _ => return Err(NoSplit::OtherNamespace),
    }
    let Ok(nothing) = Range::new(0, kernel.base_page().bytes().get()) else {
        return Ok(());
    };
    match kernel.split(file, process, nothing) {
        Ok(()) => Ok(()),
        // It ended, or is about to; or the writes that name memory will say the same again.
        Err(e) if is_of_the_process(e.errno) || is_passing(e.errno) => Ok(()),
        Err(e) => Err(NoSplit::of(e.errno)),
    }
}

/// The number of the process behind a pidfd as the reader's `/proc` counts, from its fdinfo.
fn number_in_proc(fdinfo: &str) -> Option<i64> {
    let line = fdinfo.lines().find_map(|l| l.strip_prefix("Pid:"))?;
    line.trim().parse().ok()
}

/// The file, once it was asked for, and what was split by it.
#[derive(Default)]
pub(crate) struct Splitter {
    file: Option<Result<SplitFile, NoSplit>>,
    /// Blocks of shared memory that one process was split through: the others that map them have
    /// them split with it.
    done: HashSet<(ObjectId, u64)>,
}

impl Splitter {
    /// Whether what several processes map of a process is to be split by the file: there is such
    /// memory, and the file can be used. Notes in `work` where it cannot, and why.
    pub(crate) fn takes(&mut self, job: &mut Job<'_>, work: &mut Work) -> bool {
        let any = work.plan.blocks.iter().any(is_shared);
        any && job.may_go_on(work) && self.is_open_for(job, work)
    }

    fn is_open_for(&mut self, job: &Job<'_>, work: &mut Work) -> bool {
        let (kernel, root) = (job.context.kernel, job.context.root);
        let file = self.file.get_or_insert_with(|| open(kernel, root));
        let usable = match file {
            Ok(file) => probe(kernel, root, file, &work.identity.fd),
            Err(why) => Err(*why),
        };
        work.no_split = usable.err();
        work.no_split.is_none()
    }

    /// Splits what several processes map, and what the kernel passed over because they do by now.
    /// `is_open` is the answer of [`Splitter::takes`].
    pub(crate) fn split_shared(
        &mut self,
        job: &mut Job<'_>,
        work: &mut Work,
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

    /// The blocks that several processes map and that are huge still. Those that were split through
    /// another process are noted as done.
    fn still_whole(&self, job: &Job<'_>, work: &mut Work) -> Vec<usize> {
        let now = readback::look(&job.context, work);
        let mut whole = Vec::new();
        for i in 0..work.states.len() {
            let state = work.states[i];
            let open = matches!(
                state,
                State::Todo | State::Called | State::Again(Reason::Busy)
            );
            let block = &work.plan.blocks[i];
            if !open || block.locked {
                continue;
            }
            match &now {
                Some(now) if now[i] == readback::Now::Huge => whole.push(i),
                Some(_) if state == State::Todo => {
                    work.states[i] = State::Called;
                    if key(work, i).is_some_and(|key| self.done.contains(&key)) {
                        work.methods[i] = Some(Method::SplitFile);
                    }
                }
                Some(_) => {}
                // Nothing tells: what is shared is asked for, once.
                None if is_shared(block) && work.methods[i] != Some(Method::SplitFile) => {
                    whole.push(i);
                }
                None => {}
            }
        }
        whole
    }

    /// One slice after the other: neighbours, at most `most` of them.
    fn pass(&mut self, job: &mut Job<'_>, work: &mut Work, todo: &[usize], most: usize) {
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

    fn slice(&mut self, job: &mut Job<'_>, work: &mut Work, slice: &[usize]) {
        let Some(Ok(file)) = &self.file else { return };
        let keys: Vec<_> = slice.iter().map(|i| key(work, *i)).collect();
        let (first, last) = (slice[0], slice[slice.len() - 1]);
        let blocks = &work.plan.blocks;
        let Ok(range) = Range::new(blocks[first].range.start(), blocks[last].range.end()) else {
            return;
        };
        let through_another = keys
            .iter()
            .all(|k| k.is_some_and(|k| self.done.contains(&k)));
        // A second try is made all the same: those were seen to be whole still.
        let again = work.methods[first] == Some(Method::SplitFile);
        let answer = match through_another && !again {
            true => Ok(()),
            false => job.call(work, |kernel, process| {
                kernel.split(file, process, range)?;
                // It maps them again at once, as it had them before; the others that have them do so
                // as they touch them. Where it cannot be done, so does this one.
                let _ = kernel.map_in(process, range);
                Ok(())
            }),
        };
        match answer {
            Ok(()) => {
                self.done.extend(keys.into_iter().flatten());
                for i in slice {
                    if work.states[*i] == State::Todo {
                        job.done += work.plan.blocks[*i].range.len();
                    }
                    work.states[*i] = State::Called;
                    work.methods[*i] = Some(Method::SplitFile);
                }
                zeros::bring_back(job, work, slice);
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

/// What distinguishes a block of shared memory in all processes; `None` of private memory.
fn key(work: &Work, block: usize) -> Option<(ObjectId, u64)> {
    let block = &work.plan.blocks[block];
    (block.kind == Kind::Shared).then_some((block.object, block.offset))
}

fn neighbours(work: &Work, todo: &[usize], most: usize) -> usize {
    let range = |i: usize| work.plan.blocks[i].range;
    let pairs = todo[..todo.len().min(most)].windows(2);
    1 + pairs
        .take_while(|pair| range(pair[0]).end() == range(pair[1]).start())
        .count()
}

pub(crate) fn is_shared(block: &Block) -> bool {
    !block.exclusive && !block.locked
}

/// No process of that number, or one without memory.
fn is_of_the_process(errno: Errno) -> bool {
    errno == Errno::SRCH || errno == Errno::INVAL
}

fn is_passing(errno: Errno) -> bool {
    errno == Errno::INTR || errno == Errno::AGAIN || errno == Errno::BUSY
}

/// What an error of the write means (mm/huge_memory.c, split_huge_pages_write).
fn refused(job: &Job<'_>, work: &mut Work, error: &SysError) -> State {
    match error.errno {
        errno if is_passing(errno) => State::Again(Reason::Busy),
        errno if is_of_the_process(errno) => match job.is_same(work) {
            true => State::Failed(Reason::Refused),
            false => State::Failed(Reason::ProcessEnded),
        },
        errno => {
            let why = NoSplit::of(errno);
            work.no_split = Some(why);
            State::Failed(Reason::SharedByOthers(Some(why)))
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
            (Errno::NOENT, NoSplit::NoFile),
            (Errno::NODEV, NoSplit::NoDebugfs),
            (Errno::NOSYS, NoSplit::NoDebugfs),
            (Errno::IO, NoSplit::Failed(Errno::IO)),
        ] {
            assert_eq!(NoSplit::of(errno), why);
            assert!(why.to_string().starts_with("debugfs split_huge_pages: "));
        }
        for errno in [Errno::PERM, Errno::ACCESS] {
            let denied = NoSplit::of(errno);
            assert!(matches!(denied, NoSplit::NotRoot | NoSplit::Refused));
            assert!(denied.remedy().is_some());
        }
    }
}
