//! A server of the test's own: started in a temporary folder as an ordinary user, ended by its
//! process id, also when the test panics or is killed.

#![allow(dead_code)] // each test program uses a part of it

use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// The user a server runs as: the first of these accounts that the host has.
#[derive(Debug, Clone, Copy)]
pub struct Account {
    pub uid: u32,
    pub gid: u32,
}

impl Account {
    /// Servers refuse to run as root, and so should tests of them.
    pub fn first_of(names: &[&str]) -> Account {
        let passwd = std::fs::read_to_string("/etc/passwd").unwrap();
        let find = |name: &str| {
            let line = passwd.lines().find(|l| l.split(':').next() == Some(name))?;
            let mut fields = line.split(':').skip(2);
            Some(Account {
                uid: fields.next()?.parse().ok()?,
                gid: fields.next()?.parse().ok()?,
            })
        };
        names
            .iter()
            .find_map(|name| find(name))
            .unwrap_or_else(|| panic!("none of the accounts {names:?} exists"))
    }
}

/// A folder that belongs to the server's account.
pub fn folder_for(account: Account) -> TempDir {
    let folder = tempfile::Builder::new()
        .prefix("hugeleaf-server-")
        .tempdir()
        .unwrap();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    chown(folder.path(), Some(account.uid), Some(account.gid)).unwrap();
    folder
}

/// A command that runs `program` as the account, and dies with the test (setpriv of util-linux:
/// the parent-death signal has no safe wrapper here).
pub fn as_account(account: Account, program: &Path, folder: &Path) -> Command {
    let mut command = Command::new("setpriv");
    command
        .args(["--reuid", &account.uid.to_string()])
        .args(["--regid", &account.gid.to_string()])
        .args(["--clear-groups", "--pdeathsig", "KILL"])
        .arg(program)
        .current_dir(folder)
        .env("HOME", folder)
        .env("LC_ALL", "C.UTF-8")
        .stdin(Stdio::null());
    command
}

/// Runs a command that prepares a data folder.
pub fn prepare(command: &mut Command) {
    super::Answer::of(command).ends_in(&[0]);
}

/// A running server.
pub struct Server {
    child: Child,
    folder: TempDir,
    log: PathBuf,
    checked: usize,
    stop: Signal,
}

impl Server {
    /// Starts it with stdout and stderr in one log, and waits until `ready` says so.
    pub fn start(
        command: &mut Command,
        folder: TempDir,
        stop: Signal,
        ready: impl Fn() -> bool,
    ) -> Server {
        let log = folder.path().join("server.log");
        let file = std::fs::File::create(&log).unwrap();
        let child = command
            .stdout(file.try_clone().unwrap())
            .stderr(file)
            .spawn()
            .unwrap_or_else(|e| panic!("{command:?}: {e}"));
        let mut server = Server {
            child,
            folder,
            log,
            checked: 0,
            stop,
        };
        wait_until("the server answers", Duration::from_secs(120), || {
            if let Some(status) = server.child.try_wait().unwrap() {
                panic!("the server ended: {status}\n{}", server.log_text());
            }
            ready()
        });
        server.checked = server.log_text().len();
        server
    }

    /// Its process id (setpriv becomes the server: the id stays).
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Where it lives.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    fn log_text(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(&self.log).unwrap_or_default()).into_owned()
    }

    /// Fails if the server wrote one of these words to its log since it was ready, or ended.
    #[track_caller]
    pub fn assert_no_complaint(&mut self, words: &[&str]) {
        assert!(
            self.child.try_wait().unwrap().is_none(),
            "the server ended:\n{}",
            self.log_text()
        );
        let text = self.log_text();
        let news = &text[self.checked.min(text.len())..];
        let bad: Vec<&str> = news
            .lines()
            .filter(|line| words.iter().any(|word| line.contains(word)))
            .collect();
        assert!(bad.is_empty(), "the server's log:\n{}", bad.join("\n"));
    }

    /// Tells a child of the server to end (SIGUSR1, which to Redis is no failure).
    pub fn signal_child(&self, child: u32) {
        assert!(
            super::facts::children(self.pid()).contains(&child),
            "{child} is no child of the server"
        );
        send(child, Signal::USR1);
    }
}

impl Server {
    /// Ends it as a crash would.
    pub fn kill(&self) {
        send(self.pid(), Signal::KILL);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        send(self.pid(), self.stop);
        let end = Instant::now() + Duration::from_secs(30);
        while Instant::now() < end {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        send(self.pid(), Signal::KILL);
        let _ = self.child.wait();
    }
}

fn send(pid: u32, signal: Signal) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        let _ = kill_process(pid, signal);
    }
}

/// Waits for something that must come; a bound, not a measurement.
#[track_caller]
pub fn wait_until(what: &str, at_most: Duration, mut done: impl FnMut() -> bool) {
    let end = Instant::now() + at_most;
    while !done() {
        assert!(Instant::now() < end, "waited {at_most:?} in vain: {what}");
        std::thread::sleep(Duration::from_millis(100));
    }
}
