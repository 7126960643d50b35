//! The log of decisions: one JSON object per line, in a bounded, rotated file, and in the system log.

use std::collections::VecDeque;
use std::io::Write;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};

use hugeleaf_sys::{append_to, rename};
use hugeleaf_units::Bytes;
use serde::{Deserialize, Serialize};

/// Number of entries kept in memory; a status shows all of them.
const KEPT: usize = 200;
/// Access for the owner, and for the group of its folder.
const MODE: u32 = 0o640;
const SYSLOG: &str = "/dev/log";

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct LogEntry {
    /// Time: RFC 3339, UTC.
    pub at: String,
    /// One of `promote`, `one-way`, `promoted`, `demote`, `demoted`, `test`, `tested`, `failed`, `started`, `stopped`,
    /// `reloaded`, `paused`, `resumed`, `problem`, `resolved`; for pools `give`, `gave`, `take`, `took`; for servers
    /// under one target `balance`, `balanced`.
    pub what: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub group: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub rule: String,
    pub text: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<Bytes>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds: Option<f64>,
}

#[derive(Debug)]
pub struct Log {
    path: Option<PathBuf>,
    pub most: Bytes,
    length: u64,
    entries: VecDeque<LogEntry>,
    system: SystemLog,
    problem: Option<String>,
    lost: u64,
}

#[derive(Debug)]
enum SystemLog {
    /// Lines on stderr with a level, as journald reads them from a service (sd-daemon(3)).
    Journal,
    Syslog(UnixDatagram),
    Nobody,
}

impl SystemLog {
    fn find() -> SystemLog {
        if std::env::var_os("JOURNAL_STREAM").is_some() {
            return SystemLog::Journal;
        }
        let connect = || -> std::io::Result<UnixDatagram> {
            let socket = UnixDatagram::unbound()?;
            // A blocked log must not stop the guard.
            socket.set_nonblocking(true)?;
            socket.connect(SYSLOG)?;
            Ok(socket)
        };
        connect().map_or(SystemLog::Nobody, SystemLog::Syslog)
    }

    /// Writes a line without terminal control characters.
    #[expect(clippy::disallowed_methods, reason = "the journal of systemd reads it")]
    fn say(&self, text: &str, is_problem: bool) {
        let level = if is_problem { 4 } else { 6 };
        match self {
            SystemLog::Journal => {
                let _ = writeln!(std::io::stderr(), "<{level}>{text}");
            }
            SystemLog::Syslog(socket) => {
                // Facility 3 is for daemons (RFC 3164).
                let line = format!(
                    "<{}>hugeleaf-guard[{}]: {text}",
                    3 * 8 + level,
                    std::process::id()
                );
                let _ = socket.send(line.as_bytes());
            }
            SystemLog::Nobody => {}
        }
    }
}

impl Log {
    /// Creates a log in a file, or in memory only. Existing content counts towards the limit.
    pub fn new(path: Option<PathBuf>, most: Bytes) -> Log {
        let length = path.as_deref().map_or(0, length_of);
        Log {
            path,
            most,
            length,
            entries: VecDeque::new(),
            system: SystemLog::find(),
            problem: None,
            lost: 0,
        }
    }

    /// Adds an entry. If the file cannot be written, the entry is lost and [`Log::problem`] reports it.
    pub fn add(&mut self, entry: LogEntry) {
        let whom = match entry.pid {
            Some(pid) => format!("{} {pid}: ", entry.name),
            None if entry.name.is_empty() => String::new(),
            None => format!("{}: ", entry.name),
        };
        let line = plain(&format!("{}: {whom}{}", entry.what, entry.text));
        self.system
            .say(&line, matches!(entry.what.as_str(), "failed" | "problem"));
        if let Some(path) = self.path.clone() {
            match self.write(&path, &entry) {
                Ok(()) => self.problem = None,
                Err(error) => {
                    self.lost += 1;
                    self.problem = Some(format!("{error}; entries lost: {}", self.lost));
                }
            }
        }
        if self.entries.len() == KEPT {
            self.entries.pop_front();
        }
        self.entries.push_back(entry);
    }

    fn write(&mut self, path: &Path, entry: &LogEntry) -> Result<(), String> {
        let mut line = serde_json::to_vec(entry).map_err(|e| e.to_string())?;
        line.push(b'\n');
        if self.length + line.len() as u64 > self.most.get() {
            let mut old = path.as_os_str().to_owned();
            old.push(".1");
            rename(path, Path::new(&old)).map_err(|e| e.to_string())?;
            self.length = 0;
        }
        if let Err(error) = append_to(path, &line, MODE) {
            // A full disk may have accepted a part of the line.
            if let Ok(file) = std::fs::OpenOptions::new().write(true).open(path) {
                let _ = file.set_len(self.length);
            }
            return Err(error.to_string());
        }
        self.length += line.len() as u64;
        Ok(())
    }

    pub fn newest(&self) -> Vec<LogEntry> {
        self.entries.iter().cloned().collect()
    }

    pub fn problem(&self) -> Option<&str> {
        self.problem.as_deref()
    }
}

/// Escapes control characters and line breaks, because a user may choose any process name.
fn plain(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    for c in text.chars() {
        match c.is_control() {
            true => plain.extend(c.escape_default()),
            false => plain.push(c),
        }
    }
    plain
}

fn length_of(path: &Path) -> u64 {
    std::fs::symlink_metadata(path).map_or(0, |file| file.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(text: &str) -> LogEntry {
        LogEntry {
            at: "2026-01-01T00:00:00Z".into(),
            what: "promoted".into(),
            text: text.into(),
            ..LogEntry::default()
        }
    }

    fn lines(path: &Path) -> Vec<LogEntry> {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        text.lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }

    #[test]
    fn it_is_bounded_and_every_line_is_whole() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("guard.jsonl");
        let most = Bytes(4096);
        for n in 0..500 {
            // Each log continues where the previous one ended.
            let mut log = Log::new(Some(path.clone()), most);
            log.add(entry(&format!("entry {n}")));
            assert_eq!(log.problem(), None);
        }
        let old = dir.path().join("guard.jsonl.1");
        assert!(length_of(&path) <= most.get() && length_of(&old) <= most.get());
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 2);
        let all: Vec<LogEntry> = lines(&old).into_iter().chain(lines(&path)).collect();
        assert_eq!(all.last().unwrap().text, "entry 499");
        let first: usize = all[0].text[6..].parse().unwrap();
        assert_eq!(all.len(), 500 - first);
    }

    #[test]
    fn what_cannot_be_written_is_counted_and_kept_in_memory() {
        let dir = tempfile::tempdir().unwrap();
        let mut log = Log::new(Some(dir.path().join("no/guard.jsonl")), Bytes(4096));
        log.add(entry("a"));
        log.add(entry("b"));
        assert!(log.problem().unwrap().ends_with("entries lost: 2"));
        assert_eq!(log.newest()[1].text, "b");
        std::fs::create_dir(dir.path().join("no")).unwrap();
        log.add(entry("c"));
        assert_eq!(log.problem(), None);
    }

    #[test]
    fn memory_is_bounded() {
        let mut log = Log::new(None, Bytes(4096));
        for n in 0..3 * KEPT {
            log.add(entry(&n.to_string()));
        }
        let newest = log.newest();
        assert_eq!(newest.len(), KEPT);
        assert_eq!(newest[KEPT - 1].text, (3 * KEPT - 1).to_string());
    }

    #[test]
    fn names_write_no_lines_of_their_own() {
        assert_eq!(plain("a\n<0>b\x1b[2Jc"), "a\\n<0>b\\u{1b}[2Jc");
    }
}
