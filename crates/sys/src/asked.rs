//! A program of somebody else that is run for its answer: with no more rights than it has by itself, and
//! with no way to the terminal of whoever asks.
#![allow(unsafe_code)]
//! # Safety
//! What a child does between fork and exec has no safe wrapper. The calls made there are async-signal-safe
//! and touch nothing but the child.

use std::io::Error;
use std::os::unix::process::CommandExt;
use std::process::Command;

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
pub fn end_confined(leader: u32) {
    let group = i32::try_from(leader).ok().and_then(Pid::from_raw);
    if let Some(group) = group {
        let _ = rustix::process::kill_process_group(group, Signal::KILL);
    }
}
