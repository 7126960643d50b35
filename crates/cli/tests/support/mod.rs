//! What the tests of real servers stand on: a host that is put back as it was, servers of their
//! own in a temporary folder, load on them, facts read without hugeleaf's help, and the commands
//! of the guide.
//!
//! Nothing here starts, stops or talks to a server that the test did not start.

pub mod cgroup;
pub mod facts;
pub mod guide;
pub mod host;
pub mod load;
pub mod mariadb;
pub mod postgresql;
pub mod redis_server;
pub mod server;

use std::path::{Path, PathBuf};
use std::process::Command;

/// The program under test.
pub const HUGELEAF: &str = env!("CARGO_BIN_EXE_hugeleaf");

/// What a command answered.
#[derive(Debug)]
pub struct Answer {
    /// What was run.
    pub command: String,
    /// Its exit status; -1 where a signal ended it.
    pub status: i32,
    /// What it wrote to stdout.
    pub stdout: String,
    /// What it wrote to stderr.
    pub stderr: String,
}

impl Answer {
    /// Runs a command to its end.
    pub fn of(command: &mut Command) -> Answer {
        let shown = format!("{command:?}");
        let out = command
            .output()
            .unwrap_or_else(|e| panic!("{shown} did not start: {e}"));
        Answer {
            command: shown,
            status: out.status.code().unwrap_or(-1),
            stdout: String::from_utf8_lossy(&out.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&out.stderr).into_owned(),
        }
    }

    /// Fails unless it ended in one of these.
    #[track_caller]
    pub fn ends_in(self, statuses: &[i32]) -> Answer {
        assert!(
            statuses.contains(&self.status),
            "{} ended in {}, not in one of {statuses:?}\nstdout:\n{}\nstderr:\n{}",
            self.command,
            self.status,
            self.stdout,
            self.stderr
        );
        self
    }

    /// Its stdout as JSON.
    #[track_caller]
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.stdout)
            .unwrap_or_else(|e| panic!("{}: {e} in:\n{}", self.command, self.stdout))
    }
}

/// Runs hugeleaf.
pub fn hugeleaf(arguments: &[&str]) -> Answer {
    Answer::of(Command::new(HUGELEAF).args(arguments))
}

/// The first of these programs that is installed: by name on PATH, or by path.
pub fn find_program(candidates: &[&str]) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    candidates.iter().find_map(|name| {
        std::env::split_paths(&path)
            .chain(["/usr/sbin", "/usr/local/sbin"].map(PathBuf::from))
            .map(|folder| folder.join(name))
            .find(|file| is_file(file))
    })
}

fn is_file(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|m| m.is_file())
}
