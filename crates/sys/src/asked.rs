//! A program of somebody else that is run for its answer: with no more rights than it has by itself, and
//! with no way to the terminal of whoever asks.
#![allow(unsafe_code)]
//! # Safety
//! What a child does between fork and exec has no safe wrapper. The calls made there are async-signal-safe
//! and touch nothing but the child.

use std::io::{Error, ErrorKind, Read};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitStatus};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Resource, Rlimit, Signal};

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

/// Ends all that a confined command started and that stayed in its session.
fn end_confined(leader: u32) {
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
/// output that is piped. With `ends_all` what it left running in its group is ended with it.
///
/// # Errors
/// Errors of starting it; [`ErrorKind::TimedOut`] if it did not end within `at_most`, after which its whole group is ended.
#[expect(
    clippy::disallowed_methods,
    reason = "between two looks at a child, within the deadline"
)]
pub fn answer_of(
    command: &mut Command,
    at_most: Duration,
    most: u64,
    ends_all: bool,
) -> Result<Said, Error> {
    let mut child = command.spawn()?;
    let (out, err) = (
        collect(child.stdout.take(), most),
        collect(child.stderr.take(), most),
    );
    let end = Instant::now() + at_most;
    let status = loop {
        match child.try_wait()? {
            Some(status) => break status,
            None if Instant::now() < end => std::thread::sleep(Duration::from_millis(1)),
            None => {
                end_confined(child.id());
                let _ = child.kill();
                let _ = child.wait();
                return Err(ErrorKind::TimedOut.into());
            }
        }
    };
    if ends_all {
        // Processes that it left running in its session have nothing more to say.
        end_confined(child.id());
    }
    // A child of it may keep the pipe open: what is there by now is the answer.
    let text = |from: mpsc::Receiver<String>| {
        from.recv_timeout(Duration::from_secs(1))
            .unwrap_or_default()
    };
    Ok(Said {
        status,
        stdout: text(out),
        stderr: text(err),
    })
}

/// Reads a pipe to its end while the child runs, which would stand still once it is full.
fn collect(pipe: Option<impl Read + Send + 'static>, most: u64) -> mpsc::Receiver<String> {
    let (send, receive) = mpsc::channel();
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(pipe) = pipe {
            let _ = pipe.take(most).read_to_end(&mut bytes);
        }
        let _ = send.send(String::from_utf8_lossy(&bytes).into_owned());
    });
    receive
}
