//! A program of somebody else that is run for its answer: with no more rights than it has by itself, and
//! with no way to the terminal of whoever asks.
#![allow(unsafe_code)]
//! # Safety
//! What a child does between fork and exec has no safe wrapper. The calls made there are async-signal-safe
//! and touch nothing but the child.

use std::io::Error;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Resource, Rlimit, Signal, WaitId, WaitIdOptions, pidfd_open,
};

use crate::question::Question;

/// Takes from a command what a program that is only asked something does not need: the session, with
/// it the terminal (where somebody else's program could type), privileges by set-user-id programs, dumps
/// of memory, and life beyond that of whoever asks.
pub fn confine(command: &mut Command) {
    let prepare = || {
        rustix::process::setsid()?;
        rustix::thread::set_no_new_privs(true)?;
        rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
        let none = Rlimit {
            current: Some(0),
            maximum: Some(0),
        };
        rustix::process::setrlimit(Resource::Core, none)?;
        Ok::<(), Error>(())
    };
    // SAFETY: system calls alone; nothing is allocated and no lock is taken.
    unsafe { command.pre_exec(prepare) };
}

/// Ends all processes of a command's group.
fn end_group(leader: u32) {
    let group = i32::try_from(leader).ok().and_then(Pid::from_raw);
    if let Some(group) = group {
        let _ = rustix::process::kill_process_group(group, Signal::KILL);
    }
}

/// The output and the exit status of a program that was run for its answer.
#[derive(Debug)]
pub struct Said {
    pub status: ExitStatus,
    pub stdout: String,
    pub stderr: String,
}

/// Runs a command, which has a process group of its own, to its end, and reads no more than `most` bytes of each
/// output that is piped. Processes that it leaves running in its group are ended with it, whatever they keep open.
///
/// # Errors
/// Errors of starting it; those of [`Question::left`], after which its whole group is ended.
#[expect(clippy::disallowed_methods, reason = "the gate for commands")]
pub fn answer_of(
    command: &mut Command,
    question: Question<'_>,
    most: usize,
) -> Result<Said, Error> {
    question.left()?;
    let mut asked = Asked(Some(command.spawn()?));
    let child = asked.child();
    let (out, err) = (child.stdout.take(), child.stderr.take());
    let mut pipes = [
        Pipe::of(out.map(Into::into), most)?,
        Pipe::of(err.map(Into::into), most)?,
    ];
    let end = pidfd_open(Pid::from_child(asked.child()), PidfdFlags::empty()).ok();
    // A kernel before 5.3 has no descriptor that tells its end.
    let moment = if end.is_some() { Duration::MAX } else { GLANCE };
    while !asked.has_ended()? {
        pipes.iter_mut().for_each(Pipe::drain);
        let open = pipes.iter().filter_map(|pipe| pipe.open.as_ref());
        let fds = open.chain(&end).map(|fd| PollFd::new(fd, PollFlags::IN));
        question.wait(&mut fds.collect::<Vec<_>>(), moment)?;
    }
    // A child of it may keep the pipe open: the bytes that are there by now are the answer.
    pipes.iter_mut().for_each(Pipe::drain);
    end_group(asked.child().id());
    let status = asked.child().wait()?;
    asked.0 = None;
    let [stdout, stderr] = pipes.map(|pipe| String::from_utf8_lossy(&pipe.bytes).into_owned());
    Ok(Said {
        status,
        stdout,
        stderr,
    })
}

/// Interval between two looks at a command.
const GLANCE: Duration = Duration::from_millis(1);
/// A process that was killed is waited for in this thread for so many glances; one that hangs in the kernel is not.
const LAST_GLANCES: u32 = 100;

/// A command until it is waited for; dropped before, it is killed with its group.
struct Asked(Option<Child>);

impl Asked {
    fn child(&mut self) -> &mut Child {
        self.0.as_mut().expect("it is there until it is waited for")
    }

    /// Returns true once it has ended. It stays a zombie, so that nobody else has its number.
    fn has_ended(&mut self) -> Result<bool, Error> {
        let number = i32::try_from(self.child().id()).ok();
        let Some(pid) = number.and_then(Pid::from_raw) else {
            return Ok(true);
        };
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        Ok(rustix::process::waitid(WaitId::Pid(pid), options)?.is_some())
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        let Some(mut child) = self.0.take() else {
            return;
        };
        end_group(child.id());
        let _ = child.kill();
        let moment = Question::new(GLANCE * LAST_GLANCES);
        while let Ok(None) = child.try_wait() {
            if moment.wait(&mut [], GLANCE).is_err() {
                // It waits for a server or a device that is gone.
                let _ = std::thread::Builder::new().spawn(move || child.wait());
                return;
            }
        }
    }
}

/// A pipe that is read without waiting.
struct Pipe {
    /// Gone once it is at its end, or enough was read: the command then dies of writing more.
    open: Option<OwnedFd>,
    bytes: Vec<u8>,
    most: usize,
}

impl Pipe {
    fn of(pipe: Option<OwnedFd>, most: usize) -> Result<Pipe, Error> {
        if let Some(pipe) = &pipe {
            rustix::io::ioctl_fionbio(pipe, true)?;
        }
        Ok(Pipe {
            open: pipe,
            bytes: Vec::new(),
            most,
        })
    }

    fn drain(&mut self) {
        let mut some = [0; 8 << 10];
        while let Some(pipe) = &self.open {
            let room = some.len().min(self.most - self.bytes.len());
            match rustix::io::read(pipe, &mut some[..room]) {
                Ok(0) => self.open = None,
                Ok(count) => self.bytes.extend_from_slice(&some[..count]),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return,
                Err(_) => self.open = None,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::ErrorKind;
    use std::process::Stdio;
    use std::sync::atomic::{AtomicBool, Ordering};

    const LONG: Duration = Duration::from_secs(3600);

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]).process_group(0);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    fn is_gone(pid: &str) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.trim()));
        stat.map_or(true, |text| text.contains(") Z "))
    }

    /// One in its group is ended; one that left the group keeps the pipe open, and is not waited for.
    #[test]
    fn a_child_that_keeps_the_pipe_open_is_not_waited_for() {
        for leaves in ["sleep 600 &", "setsid sleep 600 &"] {
            let script = format!("{leaves} echo $!; echo said >&2");
            let said = answer_of(&mut shell(&script), Question::new(LONG), 100).unwrap();
            assert!(said.status.success() && said.stderr == "said\n", "{said:?}");
            let pid = said.stdout.trim();
            assert!(!pid.is_empty());
            if leaves.starts_with("setsid") {
                let pid = Pid::from_raw(pid.parse().unwrap()).unwrap();
                let _ = rustix::process::kill_process(pid, Signal::KILL);
            } else {
                while !is_gone(pid) {
                    std::thread::yield_now();
                }
            }
        }
    }

    #[test]
    fn a_command_that_does_not_end_is_ended_with_all_that_it_started() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("pids");
        let script = format!("sleep 600 & echo $! $$ > {}; wait", file.display());
        let stop = AtomicBool::new(false);
        let late = answer_of(
            &mut shell("sleep 600"),
            Question::new(Duration::from_millis(20)),
            100,
        );
        assert_eq!(late.unwrap_err().kind(), ErrorKind::TimedOut);
        let pids = || std::fs::read_to_string(&file).unwrap_or_default();
        let stopped = std::thread::scope(|scope| {
            scope.spawn(|| {
                while !pids().ends_with('\n') {
                    std::thread::yield_now();
                }
                stop.store(true, Ordering::Relaxed);
            });
            answer_of(&mut shell(&script), Question::new(LONG).or_by(&stop), 100)
        });
        assert_eq!(stopped.unwrap_err().kind(), ErrorKind::Interrupted);
        for pid in pids().split_whitespace() {
            while !is_gone(pid) {
                std::thread::yield_now();
            }
        }
    }

    #[test]
    fn no_more_is_read_than_the_limit() {
        let said = answer_of(&mut shell("yes 1"), Question::new(LONG), 1000).unwrap();
        assert!(!said.status.success() && said.stdout.len() == 1000);
        let said = answer_of(&mut shell("echo a; exit 3"), Question::new(LONG), 1).unwrap();
        assert_eq!((said.status.code(), said.stdout.as_str()), (Some(3), "a"));
    }
}
