//! Processes of a workload: what they are started with, how lines go to and fro, and what can go
//! wrong with them.
//!
//! A line is one value as JSON, written at once, so that lines of many processes do not mix in a
//! pipe. Reading takes any text.

use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};

use hugeleaf_host::demand::account::parse_passwd;
use hugeleaf_sys::Pid;
use hugeleaf_units::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program {
    pub path: PathBuf,
    pub arguments: Vec<OsString>,
}

#[derive(Debug, thiserror::Error)]
pub enum ChildError {
    /// The page cache asked for is too small to hold a database worth measuring.
    #[error("a page cache of {cache} is too small: the workload needs at least {least}")]
    TooSmall { cache: Bytes, least: Bytes },
    #[error("start {what}: {source}")]
    Start {
        /// The program, or which of several processes.
        what: String,
        before: usize,
        source: std::io::Error,
    },
    #[error("the workload process {pid} has ended{}", .reason.as_deref().map(|r| format!(": {r}")).unwrap_or_default())]
    Ended {
        pid: Pid,
        /// What it said or how it ended, where that is known.
        reason: Option<String>,
    },
    #[error("the workload process answered {0:?}")]
    Answer(String),
    #[error("the workload process gave no answer within {0} s")]
    Silent(u64),
    /// What leads to it and back could not be made, read or written.
    #[error("the workload's control socket or pipe: {0}")]
    Pipe(#[from] std::io::Error),
    #[error("stopped on request")]
    Stopped,
}

/// A value as a line, without the line's end.
pub fn line(said: &impl Serialize) -> String {
    // It cannot fail: all keys are texts.
    serde_json::to_string(said).unwrap_or_default()
}

/// Reads what [`line()`] writes.
pub fn parse<T: DeserializeOwned>(line: &str) -> Result<T, ChildError> {
    const SHOWN: usize = 80;
    serde_json::from_str(line).map_err(|_| ChildError::Answer(line.chars().take(SHOWN).collect()))
}

pub fn say(out: &mut impl Write, said: &impl Serialize) -> std::io::Result<()> {
    out.write_all(format!("{}\n", line(said)).as_bytes())?;
    out.flush()
}

/// Waits for a process that is about to end: how it did, or `None` where it has not within `patience`.
/// Where nobody can tell it is gone as well, with no status.
#[expect(
    clippy::disallowed_methods,
    reason = "between two looks at a child, within the deadline"
)]
pub fn wait(child: &mut Child, patience: Duration) -> Option<Option<ExitStatus>> {
    const LOOK: Duration = Duration::from_millis(5);
    let began = Instant::now();
    loop {
        match child.try_wait() {
            Ok(None) if began.elapsed() < patience => std::thread::sleep(LOOK),
            Ok(None) => return None,
            Ok(status) => return Some(status),
            Err(_) => return Some(None),
        }
    }
}

/// Has this process end when the one that started it does, however that ends.
///
/// # Errors
/// Those of prctl(2); then it ends when its work does.
pub fn end_with_parent() -> std::io::Result<()> {
    use rustix::process::{Signal, set_parent_process_death_signal};
    Ok(set_parent_process_death_signal(Some(Signal::KILL))?)
}

/// Whom a program runs as where we are root and it should not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Account {
    pub uid: u32,
    pub gid: u32,
}

/// The account of `user`, or of nobody where there is none of that name; `None` where we are an ordinary user and can run
/// programs ourselves.
pub fn account_of(user: &str) -> std::io::Result<Option<Account>> {
    const FILE: &str = "/etc/passwd";
    if !rustix::process::geteuid().is_root() {
        return Ok(None);
    }
    let users = parse_passwd(&std::fs::read_to_string(FILE)?);
    let find = |name: &str| {
        let user = users.iter().find(|user| user.name == name)?;
        Some(Account {
            uid: user.uid,
            gid: user.gid,
        })
    };
    let none = || std::io::Error::other(format!("{FILE} has no user {user} or nobody"));
    find(user)
        .or_else(|| find("nobody"))
        .map(Some)
        .ok_or_else(none)
}
