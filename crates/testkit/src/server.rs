//! A server started by a test from the installed programs. It runs as an ordinary user in a private folder, and listens only on a Unix
//! socket there. Dropping it ends the process by id; the kernel ends it if the thread that started it dies.

use std::ffi::OsString;
use std::fmt;
use std::fs::{self, File, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use hugeleaf_host::demand::user_account::parse_passwd;
use hugeleaf_units::Bytes;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::wait::PATIENCE;

/// Reason why a server could not start.
#[derive(thiserror::Error)]
pub enum ServerError {
    /// The programs are not installed.
    #[error("{server} is not installed: neither {looked}")]
    NotInstalled {
        server: &'static str,
        package: &'static str,
        looked: &'static str,
    },
    /// The server, or the program that prepares its data, ended or did not answer.
    #[error("{what} did not start: {reason}")]
    Start {
        what: String,
        /// First error of the log, or the last line.
        reason: String,
        /// The whole log, for `Debug`.
        log: String,
    },
    /// A file could not be created, or a program could not be started.
    #[error("{path}: {source}")]
    File {
        path: String,
        source: std::io::Error,
    },
}

/// Shows the error and the log, so that `unwrap` prints both.
impl fmt::Debug for ServerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ServerError::Start { log, .. } => write!(f, "{self}\n{log}"),
            _ => write!(f, "{self}"),
        }
    }
}

/// Durability of a committed transaction. All databases use the same words, so that all arms of a
/// comparison can get the same durability.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Durability {
    /// On the disk at commit. SQLite: `synchronous=FULL`. PostgreSQL: `synchronous_commit=on`.
    /// MariaDB: `innodb_flush_log_at_trx_commit=1`.
    Commit,
    /// On the disk soon after. A crash of the host may lose the last transactions, but damages
    /// nothing. SQLite: `synchronous=NORMAL`. PostgreSQL: `synchronous_commit=off`. MariaDB:
    /// `innodb_flush_log_at_trx_commit=0`.
    Soon,
    /// On the disk at any time. A crash of the host may damage the database. SQLite:
    /// `synchronous=OFF`. PostgreSQL and MariaDB as `Soon`; private servers also with `fsync=off` and
    /// `innodb_flush_method=nosync`.
    #[default]
    Never,
}

impl Durability {
    pub const fn name(self) -> &'static str {
        match self {
            Durability::Commit => "commit",
            Durability::Soon => "soon",
            Durability::Never => "never",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerSettings {
    /// Parent of the server's folder. Measurements want one on a disk.
    pub below: PathBuf,
    /// Page cache: `shared_buffers`, `innodb_buffer_pool_size`; `maxmemory` unless zero.
    pub cache: Bytes,
    /// The cache is on huge pages of the pool. Without enough pages PostgreSQL does not start (`huge_pages=on`), and MariaDB uses base
    /// pages (`large_pages`).
    pub huge_pages: bool,
    pub durability: Durability,
    pub connections: usize,
    /// More settings: `name=value` for PostgreSQL (`-c`) and MariaDB (`--`); command-line words for Redis.
    pub more: Vec<String>,
    /// A program with arguments that receives the server's command line and becomes the server; empty for none.
    pub start_with: Vec<OsString>,
}

impl Default for ServerSettings {
    fn default() -> ServerSettings {
        ServerSettings {
            below: std::env::temp_dir(),
            cache: Bytes::from_mib(16),
            huge_pages: false,
            durability: Durability::Never,
            connections: 20,
            more: Vec::new(),
            start_with: Vec::new(),
        }
    }
}

#[derive(Debug, Clone, Copy)]
pub struct ShutdownSignals {
    /// Signal that the server gets when the starting thread dies, as named by setpriv(1).
    pub with_us: &'static str,
    /// Signals in order, each with the time to wait for the end.
    pub signals: &'static [(Signal, Duration)],
}

const KILL: (Signal, Duration) = (Signal::KILL, Duration::from_secs(10));

impl ShutdownSignals {
    /// SIGTERM requests a regular shutdown.
    pub const TERM: ShutdownSignals = ShutdownSignals {
        with_us: "TERM",
        signals: &[(Signal::TERM, PATIENCE), KILL],
    };
    /// For PostgreSQL, SIGINT is the "fast" shutdown and SIGQUIT the immediate one.
    pub const POSTGRESQL: ShutdownSignals = ShutdownSignals {
        with_us: "INT",
        signals: &[
            (Signal::INT, PATIENCE),
            (Signal::QUIT, Duration::from_secs(10)),
            KILL,
        ],
    };
}

/// The account of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServerAccount {
    pub uid: u32,
    pub gid: u32,
}

impl ServerAccount {
    /// Returns the first of these accounts that exists; servers refuse to run as root.
    #[track_caller]
    pub fn first_of(names: &[&str]) -> ServerAccount {
        let passwd = fs::read_to_string("/etc/passwd").unwrap();
        let accounts = parse_passwd(&passwd);
        let find = |name: &&str| accounts.iter().find(|account| account.name == *name);
        let found = names.iter().find_map(find);
        let found = found.unwrap_or_else(|| panic!("none of the accounts {names:?} exists"));
        ServerAccount {
            uid: found.uid,
            gid: found.gid,
        }
    }
}

/// Creates a folder owned by the server's account.
pub fn folder_for(account: ServerAccount) -> TempDir {
    folder_below(&std::env::temp_dir(), account).unwrap()
}

/// Creates such a folder below a given one.
///
/// # Errors
/// [`ServerError::File`].
pub fn folder_below(below: &Path, account: ServerAccount) -> Result<TempDir, ServerError> {
    let made = tempfile::Builder::new()
        .prefix("hugeleaf-server-")
        .permissions(Permissions::from_mode(0o755))
        .tempdir_in(below);
    let folder = made.map_err(file(below))?;
    if crate::is_root() {
        let path = folder.path();
        chown(path, Some(account.uid), Some(account.gid)).map_err(file(path))?;
    }
    Ok(folder)
}

/// Returns a command that runs `program` as the account (if root) in its folder. The kernel kills it with the thread that starts it,
/// through setpriv(1), which comes with mount.
pub fn as_account(account: ServerAccount, program: &Path, folder: &Path) -> Command {
    command(account, "KILL", &[], program, folder)
}

pub(crate) fn command(
    account: ServerAccount,
    with_us: &str,
    start_with: &[OsString],
    program: &Path,
    folder: &Path,
) -> Command {
    const SETPRIV: &str = "setpriv";
    let mut command = match start_with.split_first() {
        None => Command::new(SETPRIV),
        Some((first, arguments)) => {
            let mut command = Command::new(first);
            command.args(arguments).arg(SETPRIV);
            command
        }
    };
    if crate::is_root() {
        let ServerAccount { uid, gid } = account;
        command.args([format!("--reuid={uid}"), format!("--regid={gid}")]);
        command.arg("--clear-groups");
    }
    command
        .args(["--pdeathsig", with_us])
        .arg(program)
        .current_dir(folder)
        .env("HOME", folder)
        // At start MariaDB removes all temporary tables there, including those of another server.
        .env("TMPDIR", folder)
        .env("LC_ALL", "C.UTF-8")
        .env_remove("PGOPTIONS")
        .stdin(Stdio::null());
    // Ctrl-C at the terminal is for the test, which ends the server.
    command.process_group(0);
    command
}

/// Runs a command that prepares a data folder.
#[track_caller]
pub fn prepare(command: &mut Command) {
    run_to_end(command).unwrap();
}

/// Runs a command to its end and returns its output.
///
/// # Errors
/// [`ServerError::Start`] if it fails, [`ServerError::File`] if it cannot be started.
pub fn run_to_end(command: &mut Command) -> Result<String, ServerError> {
    let program = command.get_program().to_owned();
    let out = command.output().map_err(file(Path::new(&program)))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    match out.status.success() {
        true => Ok(text(&out.stdout)),
        false => Err(failed(
            &format!("{command:?}"),
            out.status,
            text(&out.stdout) + &text(&out.stderr),
        )),
    }
}

/// A server's folder, and its process while it runs.
#[derive(Debug)]
pub struct Server {
    child: Option<Child>,
    folder: TempDir,
    log: PathBuf,
    checked: usize,
    ending: ShutdownSignals,
}

impl Server {
    /// Starts a command with its output in a log, and waits until `ready` returns true.
    ///
    /// # Panics
    /// If it ends or does not answer, with its log.
    #[track_caller]
    pub fn start(
        command: &mut Command,
        folder: TempDir,
        ending: ShutdownSignals,
        ready: impl Fn() -> bool,
    ) -> Server {
        let mut server = Server::in_folder(folder, ending);
        server.run(command, &ready).unwrap();
        server
    }

    /// Returns a server that is not running yet.
    pub fn in_folder(folder: TempDir, ending: ShutdownSignals) -> Server {
        Server {
            child: None,
            log: folder.path().join("server.log"),
            folder,
            checked: 0,
            ending,
        }
    }

    /// Starts the server and waits until it is ready.
    ///
    /// # Errors
    /// [`ServerError::Start`], [`ServerError::File`].
    pub fn run(
        &mut self,
        command: &mut Command,
        ready: &dyn Fn() -> bool,
    ) -> Result<(), ServerError> {
        let log = self.log.clone();
        // The log is created anew, because the server owns the folder and could have placed a link there.
        let _ = fs::remove_file(&log);
        let out = File::create_new(&log).map_err(file(&log))?;
        fs::set_permissions(&log, Permissions::from_mode(0o644)).map_err(file(&log))?;
        let err = out.try_clone().map_err(file(&log))?;
        let program = command.get_program().to_owned();
        let child = command.stdout(out).stderr(err).spawn();
        let child = child.map_err(file(Path::new(&program)))?;
        let shown = format!("{command:?}");
        self.child = Some(child);
        let begin = Instant::now();
        while !ready() {
            if let Some(status) = self.ended() {
                self.child = None;
                return Err(failed(&shown, status, self.log_text()));
            }
            if begin.elapsed() > PATIENCE {
                self.stop();
                return Err(ServerError::Start {
                    what: shown,
                    reason: format!("no answer within {} s", PATIENCE.as_secs()),
                    log: self.log_text(),
                });
            }
            crate::wait::step(begin);
        }
        self.checked = self.log_text().len();
        Ok(())
    }

    fn ended(&mut self) -> Option<ExitStatus> {
        self.child.as_mut()?.try_wait().unwrap()
    }

    /// Returns the server's process id, which is also that of setpriv.
    ///
    /// # Panics
    /// If the server is not running.
    #[track_caller]
    pub fn pid(&self) -> u32 {
        self.running().expect("the server runs")
    }

    pub fn running(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub fn log_text(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.log).unwrap_or_default()).into_owned()
    }

    /// Fails if the server has ended, or has logged one of these words since it was ready.
    #[track_caller]
    pub fn assert_no_complaint(&mut self, words: &[&str]) {
        let ended = self.ended();
        let text = self.log_text();
        assert!(ended.is_none(), "the server ended: {ended:?}\n{text}");
        let news = &text[self.checked.min(text.len())..];
        let is_bad = |line: &&str| words.iter().any(|word| line.contains(word));
        let bad: Vec<&str> = news.lines().filter(is_bad).collect();
        assert!(bad.is_empty(), "the server's log:\n{}", bad.join("\n"));
    }

    /// Ends a child of the server with SIGUSR1, which Redis does not count as a failure.
    #[track_caller]
    pub fn signal_child(&self, child: u32) {
        assert!(
            crate::process_facts::children(self.pid()).contains(&child),
            "{child} is no child of the server"
        );
        send(child, Signal::USR1);
    }

    /// Kills the server, like a crash.
    pub fn kill(&self) {
        send(self.pid(), Signal::KILL);
    }

    /// Stops the server: first by a regular shutdown, then by a kill. The folder stays.
    pub fn stop(&mut self) {
        let Some(mut child) = self.child.take() else {
            return;
        };
        for (signal, patience) in self.ending.signals {
            let begin = Instant::now();
            // MariaDB drops a signal that arrives before its signal thread runs, so it is repeated each second.
            let mut sent = 0;
            while begin.elapsed() < *patience {
                if begin.elapsed().as_secs() >= sent {
                    send(child.id(), *signal);
                    sent += 1;
                }
                if !matches!(child.try_wait(), Ok(None)) {
                    return;
                }
                crate::wait::step(begin);
            }
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
    }
}

fn send(pid: u32, signal: Signal) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        let _ = kill_process(pid, signal);
    }
}

pub(crate) fn file(path: &Path) -> impl Fn(std::io::Error) -> ServerError {
    move |source| ServerError::File {
        path: path.display().to_string(),
        source,
    }
}

fn failed(what: &str, status: ExitStatus, log: String) -> ServerError {
    ServerError::Start {
        what: what.to_owned(),
        reason: format!("{status}: {}", reason_in(&log)),
        log,
    }
}

/// Returns the reason for a server's end from its log: the first error, otherwise the last line.
pub(crate) fn reason_in(text: &str) -> String {
    let is_error = |line: &&str| line.contains("ERROR") || line.contains("FATAL");
    let last = || text.lines().rfind(|line| !line.trim().is_empty());
    let said = text.lines().find(is_error).or_else(last);
    said.unwrap_or("no output").trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_error_says_why() {
        let log = "1 [Note] starts\n2 [ERROR] no room\n3 [ERROR] Aborting\n";
        assert_eq!(reason_in(log), "2 [ERROR] no room");
        assert_eq!(reason_in("one\ntwo\n\n"), "two");
        assert_eq!(reason_in(""), "no output");
    }

    #[test]
    fn a_server_that_ends_is_an_error_with_its_log() {
        let account = ServerAccount::first_of(&["nobody"]);
        let mut server = Server::in_folder(folder_for(account), ShutdownSignals::TERM);
        let mut sh = as_account(account, Path::new("/bin/sh"), server.folder());
        sh.args(["-c", "echo 'FATAL: no'; exit 3"]);
        let error = server.run(&mut sh, &|| false).unwrap_err();
        assert!(
            error.to_string().contains("exit status: 3: FATAL: no"),
            "{error}"
        );
        assert!(format!("{error:?}").ends_with("FATAL: no\n"));
        assert_eq!(server.running(), None);
    }
}
