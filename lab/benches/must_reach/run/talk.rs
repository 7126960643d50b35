//! A program that prints `rate NAME VALUE` and `check VALUE` line by line, and `ready` at its
//! largest size. It continues on command.

use std::io::{BufRead, BufReader, Write};
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use hugeleaf_testkit::ChildGuard;
use rustix::process::{Pid, Signal, kill_process};

use crate::Failed;

/// Maximum time of a sample; a program that hangs is then ended by its id.
const AT_MOST: Duration = Duration::from_secs(240);

/// A program with a dialogue.
pub struct Talk {
    child: ChildGuard,
    stdin: Option<ChildStdin>,
    lines: std::io::Lines<BufReader<ChildStdout>>,
    shown: String,
    /// Dropped when the program has ended.
    _in_time: Sender<()>,
}

impl Talk {
    /// Starts the program.
    pub fn start(command: &mut Command) -> Result<Talk, Failed> {
        let shown = format!("{command:?}");
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|e| format!("{shown}: {e}"))?;
        let stdin = child.stdin.take();
        let stdout = child.stdout.take().ok_or("no output")?;
        let (in_time, late) = channel::<()>();
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        std::thread::spawn(move || {
            let ended = late.recv_timeout(AT_MOST);
            if let (Err(std::sync::mpsc::RecvTimeoutError::Timeout), Some(pid)) = (ended, pid) {
                let _ = kill_process(pid, Signal::KILL);
            }
        });
        Ok(Talk {
            child: ChildGuard(child),
            stdin,
            lines: BufReader::new(stdout).lines(),
            shown,
            _in_time: in_time,
        })
    }

    /// Returns its process id.
    pub fn pid(&self) -> u32 {
        self.child.0.id()
    }

    /// Sends it a text.
    pub fn tell(&mut self, text: &str) -> Result<(), Failed> {
        let stdin = self.stdin.as_mut().ok_or("its input is closed")?;
        stdin.write_all(text.as_bytes())?;
        Ok(stdin.flush()?)
    }

    /// Returns its output up to `ready`.
    pub fn until_ready(&mut self) -> Result<Vec<String>, Failed> {
        let mut said = Vec::new();
        for line in self.lines.by_ref() {
            let line = line?;
            if line.trim() == "ready" {
                return Ok(said);
            }
            said.push(line);
        }
        let status = self.child.0.wait()?;
        Err(format!("{}: {status} before it was ready: {said:?}", self.shown).into())
    }

    /// Returns its output up to its end, which must be successful.
    pub fn until_end(mut self) -> Result<Vec<String>, Failed> {
        drop(self.stdin.take());
        let said: Result<Vec<String>, _> = self.lines.by_ref().collect();
        let status = self.child.0.wait()?;
        if !status.success() {
            return Err(format!("{}: {status}", self.shown).into());
        }
        Ok(said?)
    }
}

/// Returns the value after a word: `rate work 12.5` has 12.5 after `rate work`.
pub fn after<'a>(said: &'a [String], word: &str) -> Option<&'a str> {
    said.iter()
        .find_map(|line| line.strip_prefix(word)?.strip_prefix(' '))
        .map(str::trim)
}

/// Returns the value after a word as a number.
pub fn value(said: &[String], word: &str) -> Result<f64, Failed> {
    let text = after(said, word).ok_or_else(|| format!("no '{word}' in {said:?}"))?;
    Ok(text.parse()?)
}
