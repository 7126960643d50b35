//! Child processes of a workload: their start parameters, their line protocol, and their errors.
//!
//! A line is one value as JSON in a single write, so that lines of several processes do not mix in a pipe. The reader accepts any text.

use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};

use hugeleaf_host::demand::user_account::{PasswdEntry, parse_passwd};
use hugeleaf_sys::Pid;
use hugeleaf_units::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChildCommand {
    pub path: PathBuf,
    pub arguments: Vec<OsString>,
}

#[derive(Debug, thiserror::Error)]
pub enum ChildError {
    /// The requested page cache is too small for a meaningful database.
    #[error("a page cache of {cache} is too small: the workload needs at least {least}")]
    TooSmall { cache: Bytes, least: Bytes },
    #[error("cannot start {what}: {source}")]
    Start {
        /// The program, or the number of the process.
        what: String,
        before: usize,
        source: std::io::Error,
    },
    #[error("the workload process {pid} has ended{}", .reason.as_deref().map(|r| format!(": {r}")).unwrap_or_default())]
    Ended {
        pid: Pid,
        /// Reported reason or exit status, if known.
        reason: Option<String>,
    },
    #[error("the workload process answered {0:?}")]
    Answer(String),
    #[error("the workload process gave no answer within {0} s")]
    Silent(u64),
    /// The control socket or pipe could not be created, read or written.
    #[error("the workload's control socket or pipe: {0}")]
    Pipe(#[from] std::io::Error),
    #[error("stopped on request")]
    Stopped,
}

/// Formats a value as a line, without the line break.
pub fn line(said: &impl Serialize) -> String {
    // Serialisation cannot fail because all keys are strings.
    serde_json::to_string(said).unwrap_or_default()
}

/// Parses a line written by [`line()`].
pub fn parse<T: DeserializeOwned>(line: &str) -> Result<T, ChildError> {
    const SHOWN: usize = 80;
    serde_json::from_str(line).map_err(|_| ChildError::Answer(line.chars().take(SHOWN).collect()))
}

pub fn say(out: &mut impl Write, said: &impl Serialize) -> std::io::Result<()> {
    out.write_all(format!("{}\n", line(said)).as_bytes())?;
    out.flush()
}

/// Waits for a process that is about to end. Returns its status, or `None` if it has not ended within `patience`. The status is missing if
/// the process is gone and its status cannot be read.
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

/// Makes the kernel end this process when its parent ends for any reason.
///
/// # Errors
/// Those of prctl(2); the process then ends when its work is done.
pub fn end_with_parent() -> std::io::Result<()> {
    use rustix::process::{Signal, set_parent_process_death_signal};
    Ok(set_parent_process_death_signal(Some(Signal::KILL))?)
}

/// Returns the account of nobody. `None` without root, since an ordinary user runs programs under the own account.
pub fn nobody() -> std::io::Result<Option<PasswdEntry>> {
    const FILE: &str = "/etc/passwd";
    if !rustix::process::geteuid().is_root() {
        return Ok(None);
    }
    let mut users = parse_passwd(&std::fs::read_to_string(FILE)?).into_iter();
    let none = || std::io::Error::other(format!("{FILE} has no user nobody"));
    let user = users.find(|user| user.name == "nobody");
    user.map(Some).ok_or_else(none)
}
