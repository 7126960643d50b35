//! PostgreSQL, whose buffers are shared anonymous memory mapped by every backend.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use hugeleaf_units::Bytes;

use crate::server::{
    Durability, Server, ServerAccount, ServerError, ServerSettings, ShutdownSignals, as_account,
    command, folder_below, prepare, reason_in, run_to_end,
};

#[cfg(feature = "clients")]
mod filled;
#[cfg(feature = "clients")]
pub use filled::{FilledPostgres, SHARED_BUFFERS_KB};

/// Log words that no test may cause.
pub const COMPLAINTS: [&str; 4] = ["ERROR:", "FATAL:", "PANIC:", "terminated by signal"];

/// A PostgreSQL server, stopped and its folder removed when dropped.
#[derive(Debug)]
pub struct PostgresServer {
    programs: PathBuf,
    account: ServerAccount,
    pub server: Server,
}

impl PostgresServer {
    /// Creates an empty cluster and starts it.
    ///
    /// # Errors
    /// [`ServerError`].
    pub fn start(settings: &ServerSettings) -> Result<PostgresServer, ServerError> {
        let programs = programs_or_error()?;
        let account = account();
        let folder = folder_below(&settings.below, account)?;
        let mut server = PostgresServer {
            programs,
            account,
            server: Server::in_folder(folder, ShutdownSignals::POSTGRESQL),
        };
        let initdb = server.programs.join("initdb");
        run_to_end(initdb_on(
            &mut server.command(&[], &initdb),
            server.folder(),
        ))?;
        server.run(settings)?;
        Ok(server)
    }

    /// Restarts the server with other settings and the same data.
    ///
    /// # Errors
    /// [`ServerError::Start`], [`ServerError::File`].
    pub fn restart(&mut self, settings: &ServerSettings) -> Result<(), ServerError> {
        self.server.stop();
        self.run(settings)
    }

    /// Stops the server and returns the shared memory that it would need with these settings.
    /// `None` before version 15, which cannot report it.
    ///
    /// # Errors
    /// [`ServerError::File`].
    pub fn shared_memory(
        &mut self,
        settings: &ServerSettings,
    ) -> Result<Option<Bytes>, ServerError> {
        self.server.stop();
        let mut command = self.command(&[], &self.programs.join("postgres"));
        command.args(["-C", "shared_memory_size", "-D"]);
        command.arg(self.folder().join("data"));
        for setting in self.settings(settings) {
            // These settings must not affect the result; only the availability of such pages may
            // differ.
            if !setting.starts_with("huge_page") {
                command.arg("-c").arg(setting);
            }
        }
        let mebibytes = match run_to_end(&mut command) {
            Ok(text) => text,
            Err(ServerError::Start { .. }) => return Ok(None),
            Err(error) => return Err(error),
        };
        Ok(mebibytes.trim().parse().ok().map(Bytes::from_mib))
    }

    /// Returns the major version of the installed programs: 15 for 15.3.
    ///
    /// # Errors
    /// [`ServerError::NotInstalled`]; [`ServerError::Start`] if the version cannot be parsed.
    pub fn version() -> Result<u32, ServerError> {
        let program = programs_or_error()?.join("postgres");
        let text = run_to_end(Command::new(&program).arg("--version"))?;
        version_in(&text).ok_or_else(|| ServerError::Start {
            what: format!("{} --version", program.display()),
            reason: reason_in(&text),
            log: text.clone(),
        })
    }

    /// Returns the connection string for clients.
    pub fn dsn(&self) -> String {
        dsn(self.folder())
    }

    /// Returns the server's folder, which also contains the socket.
    pub fn folder(&self) -> &Path {
        self.server.folder()
    }

    /// Returns the process id of the postmaster, the parent of the backends.
    pub fn pid(&self) -> Option<u32> {
        self.server.running()
    }

    fn run(&mut self, settings: &ServerSettings) -> Result<(), ServerError> {
        let program = self.programs.join("postgres");
        let mut command = self.command(&settings.start_with, &program);
        let data = self.folder().join("data");
        command.arg("-D").arg(&data);
        for setting in self.settings(settings) {
            command.arg("-c").arg(setting);
        }
        self.server.run(&mut command, &|| is_ready(&data))
    }

    fn settings(&self, settings: &ServerSettings) -> Vec<String> {
        let on_off = |is: bool| if is { "on" } else { "off" };
        let is_durable = settings.durability != Durability::Never;
        let mut all = vec![
            "listen_addresses=".to_owned(),
            format!("unix_socket_directories={}", self.folder().display()),
            format!("shared_buffers={}kB", settings.cache.get() / 1024),
            format!("huge_pages={}", on_off(settings.huge_pages)),
            format!("max_connections={}", settings.connections + 10),
            format!("fsync={}", on_off(is_durable)),
            // Prevents checkpoints and vacuums in the middle of a short interval.
            "max_wal_size=16GB".to_owned(),
            "checkpoint_timeout=30min".to_owned(),
            "autovacuum=off".to_owned(),
            "wal_level=minimal".to_owned(),
            "max_wal_senders=0".to_owned(),
        ];
        if is_durable {
            // A tenth of a percent of New-Order transactions fails by design.
            all.push("log_min_messages=fatal".to_owned());
        } else {
            all.push("full_page_writes=off".to_owned());
            all.push("synchronous_commit=off".to_owned());
        }
        all.extend(settings.more.iter().cloned());
        all
    }

    fn command(&self, start_with: &[OsString], program: &Path) -> Command {
        let with_us = ShutdownSignals::POSTGRESQL.with_us;
        command(self.account, with_us, start_with, program, self.folder())
    }
}

pub fn account() -> ServerAccount {
    ServerAccount::first_of(&["postgres", "nobody"])
}

/// Returns the connection string of a server with its socket in this folder.
pub fn dsn(folder: &Path) -> String {
    format!("host={} user=postgres dbname=postgres", folder.display())
}

/// Returns true if the server of a data folder accepts connections, by the state it writes for
/// pg_ctl(1).
pub fn is_ready(data: &Path) -> bool {
    let text = fs::read_to_string(data.join("postmaster.pid")).unwrap_or_default();
    text.lines()
        .nth(7)
        .is_some_and(|state| state.trim() == "ready")
}

/// Creates a cluster in `folder/data` without authentication.
pub fn init(bin: &Path, account: ServerAccount, folder: &Path) {
    prepare(initdb_on(
        &mut as_account(account, &bin.join("initdb"), folder),
        folder,
    ));
}

fn initdb_on<'a>(initdb: &'a mut Command, folder: &Path) -> &'a mut Command {
    initdb
        .args(["--username=postgres", "--auth=trust", "--no-sync"])
        .args(["--locale=C", "--encoding=UTF8", "-D"])
        .arg(folder.join("data"))
}

/// Parses `postgres (PostgreSQL) 15.14 (Debian …)` and `postgres (PostgreSQL) 18beta1`.
fn version_in(text: &str) -> Option<u32> {
    let number = text.split_ascii_whitespace().nth(2)?;
    let end = number.find(|c: char| !c.is_ascii_digit());
    number[..end.unwrap_or(number.len())].parse().ok()
}

/// Returns the folder of the server programs: the newest version in the folders of Debian and Red
/// Hat, otherwise the one on PATH.
pub fn programs() -> Option<PathBuf> {
    const BELOW: [&str; 2] = ["/usr/lib/postgresql", "/usr"];
    let complete = |bin: &PathBuf| bin.join("postgres").exists() && bin.join("initdb").exists();
    let entries = BELOW.map(|folder| fs::read_dir(folder).into_iter().flatten());
    let mut versions: Vec<(u32, PathBuf)> = entries
        .into_iter()
        .flatten()
        .filter_map(|entry| {
            let entry = entry.ok()?;
            let name = entry.file_name().into_string().ok()?;
            let version = name.strip_prefix("pgsql-").unwrap_or(&name).parse().ok()?;
            Some((version, entry.path().join("bin")))
        })
        .filter(|(_, bin)| complete(bin))
        .collect();
    versions.sort();
    let path = std::env::var_os("PATH").unwrap_or_default();
    let in_path = || std::env::split_paths(&path).find(complete);
    versions.pop().map(|(_, bin)| bin).or_else(in_path)
}

fn programs_or_error() -> Result<PathBuf, ServerError> {
    programs().ok_or(ServerError::NotInstalled {
        server: "PostgreSQL",
        package: "postgresql",
        looked: "in /usr/lib/postgresql/*/bin nor in /usr/pgsql-*/bin nor in PATH",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions() {
        for (text, version) in [
            ("postgres (PostgreSQL) 15.14 (Debian 15.14-0)\n", Some(15)),
            ("postgres (PostgreSQL) 18beta1\n", Some(18)),
            ("postgres (PostgreSQL)", None),
            ("postgres (PostgreSQL) x", None),
            ("", None),
        ] {
            assert_eq!(version_in(text), version, "{text}");
        }
    }

    #[test]
    fn it_starts_restarts_and_ends() {
        let mut server = match PostgresServer::start(&ServerSettings::default()) {
            Ok(server) => server,
            Err(e @ ServerError::NotInstalled { .. }) => {
                return crate::not_run("it_starts_restarts_and_ends", &e.to_string());
            }
            Err(e) => panic!("{e:?}"),
        };
        let first = server.pid().unwrap();
        let more = ServerSettings {
            more: vec!["work_mem=1MB".to_owned()],
            ..ServerSettings::default()
        };
        server.restart(&more).unwrap();
        assert_ne!(server.pid().unwrap(), first);
        server.server.assert_no_complaint(&COMPLAINTS);
        let wrong = ServerSettings {
            more: vec!["work_mem=none".to_owned()],
            ..ServerSettings::default()
        };
        let error = server.restart(&wrong).unwrap_err();
        assert!(error.to_string().contains("work_mem"), "{error:?}");
        assert_eq!(server.pid(), None);
    }
}
