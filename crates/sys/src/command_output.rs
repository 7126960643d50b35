//! Runs another user's program for its output, without additional rights and without access to the caller's
//! terminal.
#![allow(unsafe_code)]
//! # Safety
//! The child's work between fork and exec has no safe wrapper.
//! The calls made there are async-signal-safe and affect nothing but the child.

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

use crate::deadline::Deadline;

/// Removes from a command all that a program run for its output does not need: the session and its terminal (into
/// which the program could type), privileges from set-user-id programs, core dumps, and a life longer than the
/// caller's.
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
    // SAFETY: makes system calls only, allocates nothing and takes no lock.
    unsafe { command.pre_exec(prepare) };
}

/// Kills all processes of a command's group.
fn end_group(leader: u32) {
    let group = i32::try_from(leader).ok().and_then(Pid::from_raw);
    if let Some(group) = group {
        let _ = rustix::process::kill_process_group(group, Signal::KILL);
    }
}

/// Output and exit status of a program.
#[derive(Debug)]
pub struct ProgramOutput {
    pub status: ExitStatus,
    pub stdout: String,
    pub stderr: String,
}

/// Runs a command with its own process group to its end, and reads at most `most` bytes of each piped output.
/// Processes left in its group are killed, even if they hold pipes open.
///
/// # Errors
/// The errors of starting it. The errors of [`Deadline::remaining`], after which its whole group is killed.
#[expect(clippy::disallowed_methods, reason = "the gate for commands")]
pub fn run_for_output(
    command: &mut Command,
    question: Deadline<'_>,
    most: usize,
) -> Result<ProgramOutput, Error> {
    question.remaining()?;
    let mut asked = RunningCommand(Some(command.spawn()?));
    let child = asked.child();
    let (out, err) = (child.stdout.take(), child.stderr.take());
    let mut pipes = [
        OutputPipe::new(out.map(Into::into), most)?,
        OutputPipe::new(err.map(Into::into), most)?,
    ];
    let end = pidfd_open(Pid::from_child(asked.child()), PidfdFlags::empty()).ok();
    // Before Linux 5.3 no descriptor reports its end.
    let moment = if end.is_some() { Duration::MAX } else { GLANCE };
    while !asked.has_ended()? {
        pipes.iter_mut().for_each(OutputPipe::drain);
        let open = pipes.iter().filter_map(|pipe| pipe.open.as_ref());
        let fds = open.chain(&end).map(|fd| PollFd::new(fd, PollFlags::IN));
        question.wait(&mut fds.collect::<Vec<_>>(), moment)?;
    }
    // A child of it may keep the pipe open. The output so far is the answer.
    pipes.iter_mut().for_each(OutputPipe::drain);
    end_group(asked.child().id());
    let status = asked.child().wait()?;
    asked.0 = None;
    let [stdout, stderr] = pipes.map(|pipe| String::from_utf8_lossy(&pipe.bytes).into_owned());
    Ok(ProgramOutput {
        status,
        stdout,
        stderr,
    })
}

/// Interval between two checks of a command.
const GLANCE: Duration = Duration::from_millis(1);
/// Number of checks of a killed process in this thread.
/// After that it hangs in the kernel, and another thread waits.
const LAST_GLANCES: u32 = 100;

/// A command that was not yet waited for. If dropped, it is killed with its group.
struct RunningCommand(Option<Child>);

impl RunningCommand {
    fn child(&mut self) -> &mut Child {
        self.0.as_mut().expect("it is there until it is waited for")
    }

    /// Returns true if it has ended. It stays a zombie, so that its id is not reused.
    fn has_ended(&mut self) -> Result<bool, Error> {
        let number = i32::try_from(self.child().id()).ok();
        let Some(pid) = number.and_then(Pid::from_raw) else {
            return Ok(true);
        };
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        Ok(rustix::process::waitid(WaitId::Pid(pid), options)?.is_some())
    }
}

impl Drop for RunningCommand {
    fn drop(&mut self) {
        let Some(mut child) = self.0.take() else {
            return;
        };
        end_group(child.id());
        let _ = child.kill();
        let moment = Deadline::new(GLANCE * LAST_GLANCES);
        while let Ok(None) = child.try_wait() {
            if moment.wait(&mut [], GLANCE).is_err() {
                // It hangs on a server or device that is gone.
                let _ = std::thread::Builder::new().spawn(move || child.wait());
                return;
            }
        }
    }
}

/// A pipe read without blocking.
struct OutputPipe {
    /// `None` at its end or at the limit. A command that writes more is then killed by SIGPIPE.
    open: Option<OwnedFd>,
    bytes: Vec<u8>,
    most: usize,
}

impl OutputPipe {
    fn new(pipe: Option<OwnedFd>, most: usize) -> Result<OutputPipe, Error> {
        if let Some(pipe) = &pipe {
            rustix::io::ioctl_fionbio(pipe, true)?;
        }
        Ok(OutputPipe {
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

    /// A child in the group is killed. A child that left the group keeps the pipe open and is not waited for.
    #[test]
    fn a_child_that_keeps_the_pipe_open_is_not_waited_for() {
        for leaves in ["sleep 600 &", "setsid sleep 600 &"] {
            let script = format!("{leaves} echo $!; echo said >&2");
            let said = run_for_output(&mut shell(&script), Deadline::new(LONG), 100).unwrap();
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
        let late = run_for_output(
            &mut shell("sleep 600"),
            Deadline::new(Duration::from_millis(20)),
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
            run_for_output(
                &mut shell(&script),
                Deadline::new(LONG).with_stop(&stop),
                100,
            )
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
        let said = run_for_output(&mut shell("yes 1"), Deadline::new(LONG), 1000).unwrap();
        assert!(!said.status.success() && said.stdout.len() == 1000);
        let said = run_for_output(&mut shell("echo a; exit 3"), Deadline::new(LONG), 1).unwrap();
        assert_eq!((said.status.code(), said.stdout.as_str()), (Some(3), "a"));
    }
}
