//! A server of our own: from the installed programs, in a folder of its own, reached by a Unix
//! socket in it alone. It ends with this process, however that ends.

mod mariadb;
mod postgres;

use std::ffi::OsString;
use std::fs::{self, File, Permissions};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use hugeleaf_units::Bytes;
use rustix::process::{Pid, Signal, kill_process};

use super::error::TpccError;
use super::store::Durability;
use hugeleaf_workload::child::{self, Account};

pub use mariadb::MariadbServer;
pub(crate) use mariadb::options as mariadb_options;
pub use postgres::PostgresServer;

/// How to start it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerSettings {
    /// Below which folder its own is made. It should be on a disk.
    pub below: PathBuf,
    /// Its cache of pages: `shared_buffers`, `innodb_buffer_pool_size`.
    pub cache: Bytes,
    /// Whether the cache is to be on huge pages of the pool. PostgreSQL does not start where it
    /// cannot have them (`huge_pages=on`); MariaDB then takes base pages (`large_pages`).
    pub huge_pages: bool,
    /// When commits reach the disk.
    pub durability: Durability,
    /// Connections that it has to take.
    pub connections: usize,
    /// More settings: `name=value`, as PostgreSQL takes them behind `-c` and MariaDB behind `--`.
    pub more: Vec<String>,
    /// A program, with its arguments, that is given the server's command line and becomes the
    /// server; none where this is empty.
    pub start_with: Vec<OsString>,
}

/// How a server is ended.
#[derive(Debug, Clone, Copy)]
struct Ending {
    /// The signal that it gets when this process dies, as setpriv(1) names it.
    with_us: &'static str,
    /// What is sent, one after the other, and how long it may take to end after each.
    signals: &'static [(Signal, Duration)],
}

/// How long it may take to start, and to stop.
const PATIENCE: Duration = Duration::from_secs(120);

/// A server's folder, and its process while it runs. Dropping it ends the one and removes the other.
#[derive(Debug)]
struct Private {
    folder: PathBuf,
    account: Option<Account>,
    ending: Ending,
    child: Option<Child>,
}

impl Private {
    /// Makes a folder for a server of this name, which belongs to `user` where we are root.
    fn new(name: &str, below: &Path, user: &str, ending: Ending) -> Result<Private, TpccError> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let account = account(name, user)?;
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("hugeleaf-{name}-{}-{number}", std::process::id());
        let folder = below.join(name);
        let mut builder = fs::DirBuilder::new();
        builder.mode(0o755).create(&folder).map_err(file(&folder))?;
        // From here on the folder is removed, whatever comes.
        let private = Private {
            folder,
            account,
            ending,
            child: None,
        };
        if let Some(account) = account {
            let folder = &private.folder;
            chown(folder, Some(account.uid), Some(account.gid)).map_err(file(folder))?;
        }
        Ok(private)
    }

    fn folder(&self) -> &Path {
        &self.folder
    }

    fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// Starts it with its output in a log, and waits until it is ready.
    fn run(
        &mut self,
        mut command: Command,
        program: &Path,
        is_ready: &dyn Fn() -> bool,
    ) -> Result<(), TpccError> {
        let log = self.folder.join("server.log");
        // Made anew: the folder is the server's, and what it put there is not written through.
        let _ = fs::remove_file(&log);
        let out = File::create_new(&log).map_err(file(&log))?;
        fs::set_permissions(&log, Permissions::from_mode(0o644)).map_err(file(&log))?;
        let err = out.try_clone().map_err(file(&log))?;
        let child = command.stdout(out).stderr(err).spawn();
        self.child = Some(child.map_err(file(program))?);
        self.wait_until_ready(program, &log, is_ready)
    }

    fn wait_until_ready(
        &mut self,
        program: &Path,
        log: &Path,
        is_ready: &dyn Fn() -> bool,
    ) -> Result<(), TpccError> {
        let began = Instant::now();
        let failed = |reason| TpccError::Start {
            what: program.display().to_string(),
            reason,
        };
        while began.elapsed() < PATIENCE {
            let ended = match &mut self.child {
                Some(child) => child.try_wait().map_err(file(program))?,
                None => None,
            };
            if let Some(status) = ended {
                self.child = None;
                let text = fs::read_to_string(log).unwrap_or_default();
                return Err(failed(format!("{status}: {}", reason_in(&text))));
            }
            if is_ready() {
                return Ok(());
            }
            thread::sleep(Duration::from_millis(50));
        }
        self.stop();
        Err(failed(format!("no answer within {} s", PATIENCE.as_secs())))
    }

    /// A program as the server's user, which is told to end when this process dies: setpriv(1), of
    /// the same package as mount.
    fn command(&self, start_with: &[OsString], program: &Path) -> Command {
        const SETPRIV: &str = "setpriv";
        let mut command = match start_with.split_first() {
            None => Command::new(SETPRIV),
            Some((first, arguments)) => {
                let mut command = Command::new(first);
                command.args(arguments).arg(SETPRIV);
                command
            }
        };
        if let Some(Account { uid, gid }) = self.account {
            command.args([format!("--reuid={uid}"), format!("--regid={gid}")]);
            command.arg("--clear-groups");
        }
        command
            .args(["--pdeathsig", self.ending.with_us])
            .arg(program)
            .current_dir(&self.folder)
            .env("HOME", &self.folder)
            // MariaDB removes all temporary tables there when it starts, also those of another server.
            .env("TMPDIR", &self.folder)
            .env("LC_ALL", "C")
            .stdin(Stdio::null());
        // A Ctrl-C at the terminal is for us: the server is stopped once nobody needs it.
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        command
    }

    /// Ends it: first as it likes to, then at once.
    fn stop(&mut self) {
        let Some(mut child) = self.child.take() else {
            return;
        };
        for (signal, patience) in self.ending.signals {
            let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
            if let Some(pid) = pid {
                let _ = kill_process(pid, *signal);
            }
            if child::wait(&mut child, *patience).is_some() {
                return;
            }
        }
    }
}

impl Drop for Private {
    fn drop(&mut self) {
        self.stop();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn file(path: &Path) -> impl Fn(std::io::Error) -> TpccError {
    move |source| TpccError::File {
        path: path.display().to_string(),
        source,
    }
}

/// Why a server ended, of what it said: the first error; where it names none, the last line.
fn reason_in(text: &str) -> String {
    let is_error = |line: &&str| line.contains("ERROR") || line.contains("FATAL");
    let last = || text.lines().rfind(|line| !line.trim().is_empty());
    let said = text.lines().find(is_error).or_else(last);
    said.unwrap_or("it said nothing").trim().to_owned()
}

/// `None` where we are an ordinary user and can run it ourselves.
fn account(name: &str, user: &str) -> Result<Option<Account>, TpccError> {
    child::account_of(user).map_err(|e| TpccError::Start {
        what: name.to_owned(),
        reason: format!("it does not run as root: {e}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_error_says_why() {
        let log = "1 [Note] starts\n2 [ERROR] no room\n3 [ERROR] Aborting\n";
        assert_eq!(reason_in(log), "2 [ERROR] no room");
        assert_eq!(reason_in("one\ntwo\n\n"), "two");
        assert_eq!(reason_in(""), "it said nothing");
    }
}
