//! `pagetables`: processes attach one region and touch all of it, one after the other.
//!
//! Each process is a new instance of the same program ([`serve_attacher`]), so its page tables are
//! its own and it inherits only descriptors. All of them wait on one pipe. A byte in it is the turn
//! of one process, which the kernel selects, so the number of descriptors does not grow with the
//! processes. No process outlives its parent: they end when the pipe closes, and the kernel kills
//! them when the parent dies (PR_SET_PDEATHSIG).

mod attacher;
mod touch;

use std::io::{ErrorKind, PipeReader, PipeWriter, Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use hugeleaf_sys::Pid;
use rustix::event::{PollFd, PollFlags};

use attacher::AttachReply;
use hugeleaf_workload::child::{self, ChildCommand, ChildError, parse};

pub use attacher::{AttachTiming, serve_attacher};

/// Interval at which silent children are checked.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Maximum silence of all children: the time to attach a few hundred gigabytes of base pages.
const PATIENCE: Duration = Duration::from_secs(600);
/// Maximum length of an answer.
const LINE_LIMIT: usize = 2048;

/// Processes that wait for their turn to attach a region; ended and reaped when dropped.
#[derive(Debug)]
pub struct Attachers {
    program: ChildCommand,
    children: Vec<Child>,
    /// Pipe from which children read their turn; kept for further children.
    waiting: PipeReader,
    turns: PipeWriter,
    answers: PipeReader,
    answering: PipeWriter,
    unread: Vec<u8>,
}

impl Attachers {
    /// Makes the pipes, and starts no process yet. `program` runs [`serve_attacher`]; this
    /// process's id and the line of `Handle::inheritable` are appended to its arguments. The thread
    /// that calls [`Attachers::grow_to`] must outlive this value: the kernel ends children with it.
    ///
    /// # Errors
    /// Those of pipe(2).
    pub fn new(program: ChildCommand, handle: &str) -> Result<Attachers, ChildError> {
        let (waiting, turns) = std::io::pipe()?;
        let (answers, answering) = std::io::pipe()?;
        let mut program = program;
        let added = [std::process::id().to_string(), handle.to_owned()];
        program.arguments.extend(added.map(Into::into));
        Ok(Attachers {
            program,
            children: Vec::new(),
            waiting,
            turns,
            answers,
            answering,
            unread: Vec::new(),
        })
    }

    /// Starts processes until there are `count`, and waits until all of them are ready. A ready
    /// process has completed an attachment of one page, and maps nothing of the region.
    ///
    /// # Errors
    /// [`ChildError`]; started processes continue to run.
    pub fn grow_to(&mut self, count: usize, stop: &AtomicBool) -> Result<(), ChildError> {
        let before = self.children.len();
        for number in before + 1..=count {
            let fail = |source| ChildError::Start {
                what: format!("process {number} of {count}"),
                before: number - 1,
                source,
            };
            if stop.load(Ordering::Relaxed) {
                return Err(ChildError::Stopped);
            }
            let child = Command::new(&self.program.path)
                .args(&self.program.arguments)
                .stdin(self.waiting.try_clone().map_err(fail)?)
                .stdout(self.answering.try_clone().map_err(fail)?)
                .stderr(Stdio::null())
                .spawn()
                .map_err(fail)?;
            self.children.push(child);
        }
        for _ in before..count {
            match self.answer(stop)? {
                AttachReply::Ready => {}
                other => return Err(unexpected(other)),
            }
        }
        Ok(())
    }

    pub fn pids(&self) -> Vec<Pid> {
        self.children.iter().map(|child| Pid(child.id())).collect()
    }

    /// Makes one process that has not had its turn attach the region and touch all of it.
    ///
    /// # Errors
    /// [`ChildError`]; [`ChildError::Silent`] also if all have had their turn.
    pub fn turn(&mut self, stop: &AtomicBool) -> Result<AttachTiming, ChildError> {
        self.turns.write_all(b".")?;
        match self.answer(stop)? {
            AttachReply::Done(turn) => Ok(turn),
            other => Err(unexpected(other)),
        }
    }

    fn answer(&mut self, stop: &AtomicBool) -> Result<AttachReply, ChildError> {
        let began = Instant::now();
        loop {
            if let Some(end) = self.unread.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.unread.drain(..=end).collect();
                return parse(&String::from_utf8_lossy(&line[..end]));
            }
            if self.unread.len() > LINE_LIMIT {
                let said = String::from_utf8_lossy(&self.unread).into_owned();
                return Err(ChildError::Answer(said));
            }
            if stop.load(Ordering::Relaxed) {
                return Err(ChildError::Stopped);
            }
            if self.has_more()? {
                let mut bytes = [0; LINE_LIMIT];
                let got = match self.answers.read(&mut bytes) {
                    Err(e) if e.kind() == ErrorKind::Interrupted => 0,
                    other => other?,
                };
                self.unread.extend_from_slice(&bytes[..got]);
                continue;
            }
            for child in &mut self.children {
                if child.try_wait()?.is_some() {
                    let pid = Pid(child.id());
                    return Err(ChildError::Ended { pid, reason: None });
                }
            }
            if began.elapsed() > PATIENCE {
                return Err(ChildError::Silent(PATIENCE.as_secs()));
            }
        }
    }

    /// Waits a short time for input, and returns true if there is some.
    fn has_more(&self) -> Result<bool, ChildError> {
        let mut polled = [PollFd::new(&self.answers, PollFlags::IN)];
        let wait = rustix::event::Timespec {
            tv_sec: 0,
            tv_nsec: LOOK_EVERY.subsec_nanos().into(),
        };
        match rustix::event::poll(&mut polled, Some(&wait)) {
            Ok(ready) => Ok(ready > 0),
            Err(rustix::io::Errno::INTR) => Ok(false),
            Err(errno) => Err(ChildError::Pipe(errno.into())),
        }
    }
}

fn unexpected(answer: AttachReply) -> ChildError {
    match answer {
        AttachReply::Failed { pid, reason } => ChildError::Ended {
            pid,
            reason: Some(reason),
        },
        other => ChildError::Answer(child::line(&other)),
    }
}

impl Drop for Attachers {
    fn drop(&mut self) {
        // All are killed first, so that the kernel tears them down in parallel.
        for child in &mut self.children {
            let _ = child.kill();
        }
        for child in &mut self.children {
            let _ = child.wait();
        }
    }
}
