//! A PostgreSQL server of our own, from the installed programs.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use hugeleaf_units::Bytes;
use rustix::process::Signal;

use super::{Ending, PATIENCE, Private, ServerSettings, file, reason_in};
use crate::kits::tpcc::error::TpccError;
use crate::kits::tpcc::store::Durability;

/// A running PostgreSQL server. It is stopped, and its folder removed, when this is dropped.
#[derive(Debug)]
pub struct PostgresServer {
    programs: PathBuf,
    private: Private,
}

/// SIGINT is its "fast" shutdown, SIGQUIT the immediate one.
const ENDING: Ending = Ending {
    with_us: "INT",
    signals: &[
        (Signal::INT, PATIENCE),
        (Signal::QUIT, Duration::from_secs(10)),
        (Signal::KILL, Duration::from_secs(10)),
    ],
};

impl PostgresServer {
    /// Makes an empty cluster and starts it.
    ///
    /// # Errors
    /// [`TpccError::NotInstalled`], [`TpccError::Start`], [`TpccError::File`].
    pub fn start(settings: &ServerSettings) -> Result<PostgresServer, TpccError> {
        let programs = programs()?;
        let private = Private::new("postgres", &settings.below, "postgres", ENDING)?;
        let mut server = PostgresServer { programs, private };
        server.make_cluster()?;
        server.run(settings)?;
        Ok(server)
    }

    /// Stops it and starts it again with other settings and the same data.
    ///
    /// # Errors
    /// [`TpccError::Start`], [`TpccError::File`].
    pub fn restart(&mut self, settings: &ServerSettings) -> Result<(), TpccError> {
        self.private.stop();
        self.run(settings)
    }

    /// Stops it, and asks its program how much shared memory it would take with these settings;
    /// `None` where it cannot tell (before version 15).
    ///
    /// # Errors
    /// [`TpccError::File`].
    pub fn shared_memory(&mut self, settings: &ServerSettings) -> Result<Option<Bytes>, TpccError> {
        self.private.stop();
        let program = self.programs.join("postgres");
        let mut command = self.command(&[], &program);
        command.args(["-C", "shared_memory_size", "-D"]);
        command.arg(self.folder().join("data"));
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
            reason: reason_in(&text),
        })
    }

    /// How it is reached.
    pub fn dsn(&self) -> String {
        format!(
            "host={} user=postgres dbname=postgres",
            self.folder().display()
        )
    }

    /// Its folder.
    pub fn folder(&self) -> &Path {
        self.private.folder()
    }

    /// The process id of the server itself, whose children the backends are.
    pub fn pid(&self) -> Option<u32> {
        self.private.pid()
    }

    fn make_cluster(&self) -> Result<(), TpccError> {
        let program = self.programs.join("initdb");
        let output = self
            .command(&[], &program)
            .args(["--username=postgres", "--auth=trust", "--no-sync"])
            .args(["--locale=C", "--encoding=UTF8", "-D"])
            .arg(self.folder().join("data"))
            .stdout(Stdio::null())
            .output()
            .map_err(file(&program))?;
        match output.status.success() {
            true => Ok(()),
            false => Err(TpccError::Start {
                what: program.display().to_string(),
                reason: reason_in(&String::from_utf8_lossy(&output.stderr)),
            }),
        }
    }

    fn run(&mut self, settings: &ServerSettings) -> Result<(), TpccError> {
        let program = self.programs.join("postgres");
        let mut command = self.command(&settings.start_with, &program);
        command.arg("-D").arg(self.folder().join("data"));
        for setting in self.settings(settings) {
            command.arg("-c").arg(setting);
        }
        let asked = self.dsn().parse::<::postgres::Config>();
        self.private.run(command, &program, &|| {
            let config = asked.as_ref();
            config.is_ok_and(|config| config.connect(::postgres::NoTls).is_ok())
        })
    }

    fn settings(&self, settings: &ServerSettings) -> Vec<String> {
        let fsync = match settings.durability {
            Durability::Never => "off",
            Durability::Commit | Durability::Soon => "on",
        };
        let mut all = vec![
            "listen_addresses=".to_owned(),
            format!("unix_socket_directories={}", self.folder().display()),
            format!("shared_buffers={}kB", settings.cache.get() / 1024),
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

    fn command(&self, start_with: &[std::ffi::OsString], program: &Path) -> Command {
        let mut command = self.private.command(start_with, program);
        command.env_remove("PGOPTIONS");
        command
    }
}

/// `postgres (PostgreSQL) 15.14 (Debian …)`, `postgres (PostgreSQL) 18beta1`.
fn version_in(text: &str) -> Option<u32> {
    let number = text.split_ascii_whitespace().nth(2)?;
    let end = number.find(|c: char| !c.is_ascii_digit());
    number[..end.unwrap_or(number.len())].parse().ok()
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
    found.ok_or(TpccError::NotInstalled {
        server: "PostgreSQL",
        package: "postgresql",
        looked,
    })
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
