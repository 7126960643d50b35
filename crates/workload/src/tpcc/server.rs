//! A PostgreSQL server of our own: from the installed programs, in a folder of its own, reached by
//! a Unix socket in it alone. It ends with this process, however that ends.

use std::ffi::OsString;
use std::fs::{self, File, Permissions};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use hugeleaf_units::Bytes;
use rustix::process::{Pid, Signal, geteuid, kill_process};

use super::error::TpccError;
use super::store::Durability;
use crate::child;

/// How to start it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerSettings {
    /// Below which folder its own is made. It should be on a disk.
    pub below: PathBuf,
    /// Its buffers.
    pub shared_buffers: Bytes,
    /// `huge_pages`: `on` fails where it cannot have them.
    pub huge_pages: bool,
    /// When commits reach the disk.
    pub durability: Durability,
    /// Connections that it has to take.
    pub connections: usize,
    /// More settings, as `-c` takes them: `name=value`.
    pub more: Vec<String>,
    /// A program, with its arguments, that is given the server's command line and becomes the
    /// server; none where this is empty.
    pub start_with: Vec<OsString>,
}

/// A running server. It is stopped, and its folder removed, when this is dropped.
#[derive(Debug)]
pub struct PostgresServer {
    programs: PathBuf,
    folder: PathBuf,
    account: Option<Account>,
    child: Option<Child>,
}

/// Whom the server runs as where we are root: it refuses that.
#[derive(Debug, Clone, Copy)]
struct Account {
    uid: u32,
    gid: u32,
}

/// How long it may take to start, and to stop.
const PATIENCE: Duration = Duration::from_secs(120);

impl PostgresServer {
    /// Makes an empty cluster and starts it.
    ///
    /// # Errors
    /// [`TpccError::NotInstalled`], [`TpccError::Start`], [`TpccError::File`].
    pub fn start(settings: &ServerSettings) -> Result<PostgresServer, TpccError> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let programs = programs()?;
        let account = account()?;
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("hugeleaf-postgres-{}-{number}", std::process::id());
        let folder = settings.below.join(name);
        let mut builder = fs::DirBuilder::new();
        builder.mode(0o755).create(&folder).map_err(file(&folder))?;
        // From here on the folder is removed, whatever comes.
        let mut server = PostgresServer {
            programs,
            folder,
            account,
            child: None,
        };
        if let Some(account) = account {
            let folder = &server.folder;
            chown(folder, Some(account.uid), Some(account.gid)).map_err(file(folder))?;
        }
        server.make_cluster()?;
        server.run(settings)?;
        Ok(server)
    }

    /// Stops it and starts it again with other settings and the same data.
    ///
    /// # Errors
    /// [`TpccError::Start`], [`TpccError::File`].
    pub fn restart(&mut self, settings: &ServerSettings) -> Result<(), TpccError> {
        self.stop();
        self.run(settings)
    }

    /// Stops it, and asks its program how much shared memory it would take with these settings;
    /// `None` where it cannot tell (before version 15).
    ///
    /// # Errors
    /// [`TpccError::File`].
    pub fn shared_memory(&mut self, settings: &ServerSettings) -> Result<Option<Bytes>, TpccError> {
        self.stop();
        let program = self.programs.join("postgres");
        let mut command = self.command(&[], &program);
        command.args(["-C", "shared_memory_size", "-D"]);
        command.arg(self.folder.join("data"));
        for setting in self.settings(settings) {
            // Only whether there are such pages differs, and that is what is to be found out.
            if !setting.starts_with("huge_page") {
                command.arg("-c").arg(setting);
            }
        }
        let output = command.stderr(Stdio::null()).output();
        let output = output.map_err(file(&program))?;
        let mebibytes = String::from_utf8_lossy(&output.stdout);
        Ok(mebibytes.trim().parse().ok().map(Bytes::from_mib))
    }

    /// The version of the installed programs: 15 of 15.3.
    ///
    /// # Errors
    /// [`TpccError::NotInstalled`]; [`TpccError::Start`] where the program does not say.
    pub fn version() -> Result<u32, TpccError> {
        let program = programs()?.join("postgres");
        let output = Command::new(&program).arg("--version").output();
        let output = output.map_err(file(&program))?;
        let text = String::from_utf8_lossy(&output.stdout);
        version_in(&text).ok_or_else(|| TpccError::Start {
            what: format!("{} --version", program.display()),
            reason: last_line(&text),
        })
    }

    /// How it is reached.
    pub fn dsn(&self) -> String {
        format!(
            "host={} user=postgres dbname=postgres",
            self.folder.display()
        )
    }

    /// Its folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The process id of the server itself, whose children the backends are.
    pub fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    fn make_cluster(&self) -> Result<(), TpccError> {
        let program = self.programs.join("initdb");
        let output = self
            .command(&[], &program)
            .args(["--username=postgres", "--auth=trust", "--no-sync"])
            .args(["--locale=C", "--encoding=UTF8", "-D"])
            .arg(self.folder.join("data"))
            .stdout(Stdio::null())
            .output()
            .map_err(file(&program))?;
        match output.status.success() {
            true => Ok(()),
            false => Err(TpccError::Start {
                what: program.display().to_string(),
                reason: last_line(&String::from_utf8_lossy(&output.stderr)),
            }),
        }
    }

    fn run(&mut self, settings: &ServerSettings) -> Result<(), TpccError> {
        let program = self.programs.join("postgres");
        let log = self.folder.join("server.log");
        // Made anew: the folder is the server's, and what it put there is not written through.
        let _ = fs::remove_file(&log);
        let out = File::create_new(&log).map_err(file(&log))?;
        fs::set_permissions(&log, Permissions::from_mode(0o644)).map_err(file(&log))?;
        let mut command = self.command(&settings.start_with, &program);
        command.arg("-D").arg(self.folder.join("data"));
        for setting in self.settings(settings) {
            command.arg("-c").arg(setting);
        }
        let err = out.try_clone().map_err(file(&log))?;
        let child = command
            .stdout(out)
            .stderr(err)
            .spawn()
            .map_err(file(&program))?;
        self.child = Some(child);
        self.wait_until_ready(&program, &log)
    }

    fn settings(&self, settings: &ServerSettings) -> Vec<String> {
        let fsync = match settings.durability {
            Durability::Never => "off",
            Durability::Commit | Durability::Soon => "on",
        };
        let mut all = vec![
            "listen_addresses=".to_owned(),
            format!("unix_socket_directories={}", self.folder.display()),
            format!("shared_buffers={}kB", settings.shared_buffers.get() / 1024),
            format!(
                "huge_pages={}",
                if settings.huge_pages { "on" } else { "off" }
            ),
            format!("max_connections={}", settings.connections + 10),
            format!("fsync={fsync}"),
            // Neither a checkpoint nor a vacuum begins in the middle of a short interval.
            "max_wal_size=16GB".to_owned(),
            "checkpoint_timeout=30min".to_owned(),
            "autovacuum=off".to_owned(),
            "wal_level=minimal".to_owned(),
            "max_wal_senders=0".to_owned(),
            // A tenth of a percent of New-Orders ends in an error that is meant to be one.
            "log_min_messages=fatal".to_owned(),
        ];
        all.extend(settings.more.iter().cloned());
        all
    }

    fn wait_until_ready(&mut self, program: &Path, log: &Path) -> Result<(), TpccError> {
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
                return Err(failed(format!("{status}: {}", last_line(&text))));
            }
            let asked = self.dsn().parse::<::postgres::Config>();
            if asked.is_ok_and(|config| config.connect(::postgres::NoTls).is_ok()) {
                return Ok(());
            }
            thread::sleep(Duration::from_millis(50));
        }
        self.stop();
        Err(failed(format!("no answer within {} s", PATIENCE.as_secs())))
    }

    /// A program as the server's user, which is told to end (as by SIGINT: PostgreSQL's "fast"
    /// shutdown) when this process dies: setpriv(1), of the same package as mount.
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
            .args(["--pdeathsig", "INT"])
            .arg(program)
            .current_dir(&self.folder)
            .env("HOME", &self.folder)
            .env("LC_ALL", "C")
            .env_remove("PGOPTIONS")
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
        for (signal, patience) in [
            (Signal::INT, PATIENCE),
            (Signal::QUIT, Duration::from_secs(10)),
            (Signal::KILL, Duration::from_secs(10)),
        ] {
            let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
            if let Some(pid) = pid {
                let _ = kill_process(pid, signal);
            }
            if child::wait(&mut child, patience).is_some() {
                return;
            }
        }
    }
}

impl Drop for PostgresServer {
    fn drop(&mut self) {
        self.stop();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// `postgres (PostgreSQL) 15.14 (Debian …)`, `postgres (PostgreSQL) 18beta1`.
fn version_in(text: &str) -> Option<u32> {
    let number = text.split_ascii_whitespace().nth(2)?;
    let end = number.find(|c: char| !c.is_ascii_digit());
    number[..end.unwrap_or(number.len())].parse().ok()
}

fn file(path: &Path) -> impl Fn(std::io::Error) -> TpccError {
    move |source| TpccError::File {
        path: path.display().to_string(),
        source,
    }
}

fn last_line(text: &str) -> String {
    let last = text.lines().rev().find(|line| !line.trim().is_empty());
    last.unwrap_or("it said nothing").trim().to_owned()
}

/// The folder of its programs: where Debian and Red Hat put them, the newest version; else where
/// PATH has them.
fn programs() -> Result<PathBuf, TpccError> {
    const BELOW: [&str; 2] = ["/usr/lib/postgresql", "/usr"];
    let complete = |bin: &PathBuf| bin.join("postgres").exists() && bin.join("initdb").exists();
    let mut versions: Vec<(u32, PathBuf)> = fs::read_dir(BELOW[0])
        .into_iter()
        .flatten()
        .chain(fs::read_dir(BELOW[1]).into_iter().flatten())
        .filter_map(|entry| {
            let entry = entry.ok()?;
            let name = entry.file_name().into_string().ok()?;
            let version = name.strip_prefix("pgsql-").unwrap_or(&name).parse().ok()?;
            Some((version, entry.path().join("bin")))
        })
        .filter(|(_, bin)| complete(bin))
        .collect();
    versions.sort();
    if let Some((_, bin)) = versions.pop() {
        return Ok(bin);
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).find(complete);
    let looked = "in /usr/lib/postgresql/*/bin nor in /usr/pgsql-*/bin nor in PATH";
    found.ok_or_else(|| TpccError::NotInstalled(looked.to_owned()))
}

/// `None` where we are an ordinary user and can run it ourselves.
fn account() -> Result<Option<Account>, TpccError> {
    const FILE: &str = "/etc/passwd";
    if !geteuid().is_root() {
        return Ok(None);
    }
    let users = fs::read_to_string(FILE).map_err(file(Path::new(FILE)))?;
    let find = |name: &str| {
        let line = users.lines().find(|l| l.split(':').next() == Some(name))?;
        let mut fields = line.split(':').skip(2);
        let uid = fields.next()?.parse().ok()?;
        let gid = fields.next()?.parse().ok()?;
        Some(Account { uid, gid })
    };
    match find("postgres").or_else(|| find("nobody")) {
        Some(account) => Ok(Some(account)),
        None => Err(TpccError::Start {
            what: "postgres".to_owned(),
            reason: format!("it does not run as root, and {FILE} has no user postgres or nobody"),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions() {
        for (text, version) in [
            (
                "postgres (PostgreSQL) 15.14 (Debian 15.14-0+deb12u1)\n",
                Some(15),
            ),
            ("postgres (PostgreSQL) 18beta1\n", Some(18)),
            ("postgres (PostgreSQL)", None),
            ("postgres (PostgreSQL) x", None),
            ("", None),
        ] {
            assert_eq!(version_in(text), version, "{text}");
        }
    }
}
