//! A MariaDB server of our own, from the installed programs.

use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use ::mysql::{Conn, Opts, OptsBuilder};
use rustix::process::Signal;

use super::{Ending, PATIENCE, Private, ServerSettings, file, reason_in};
use crate::kits::tpcc::error::TpccError;
use crate::kits::tpcc::store::Durability;

/// A running MariaDB server. It is stopped, and its folder removed, when this is dropped.
#[derive(Debug)]
pub struct MariadbServer {
    program: PathBuf,
    private: Private,
}

/// SIGTERM writes what was changed and ends.
const ENDING: Ending = Ending {
    with_us: "TERM",
    signals: &[
        (Signal::TERM, PATIENCE),
        (Signal::KILL, Duration::from_secs(10)),
    ],
};

impl MariadbServer {
    /// Makes an empty data folder and starts the server on it.
    ///
    /// # Errors
    /// [`TpccError::NotInstalled`], [`TpccError::Start`], [`TpccError::File`].
    pub fn start(settings: &ServerSettings) -> Result<MariadbServer, TpccError> {
        let program = program("mariadbd")?;
        let install = self::program("mariadb-install-db")?;
        let private = Private::new("mariadb", &settings.below, "mysql", ENDING)?;
        let mut server = MariadbServer { program, private };
        server.make_data(&install)?;
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

    /// The socket where its superuser `root` connects without a password.
    pub fn socket(&self) -> PathBuf {
        self.folder().join("mariadb.sock")
    }

    /// How its superuser reaches it, as an address.
    pub fn address(&self) -> String {
        format!("mysql://root@localhost/?socket={}", self.socket().display())
    }

    /// Its folder.
    pub fn folder(&self) -> &Path {
        self.private.folder()
    }

    /// Its process id.
    pub fn pid(&self) -> Option<u32> {
        self.private.pid()
    }

    fn make_data(&self, install: &Path) -> Result<(), TpccError> {
        // It is a shell script that says what went wrong in the middle of much else.
        let log = self.folder().join("install.log");
        let said = File::create_new(&log).map_err(file(&log))?;
        let mut command = self.private.command(&[], install);
        let status = command
            .arg("--no-defaults")
            .arg(format!("--datadir={}", self.data().display()))
            .args(["--auth-root-authentication-method=normal", "--skip-test-db"])
            .stdout(Stdio::null())
            .stderr(said)
            .status()
            .map_err(file(install))?;
        match status.success() {
            true => Ok(()),
            false => Err(TpccError::Start {
                what: install.display().to_string(),
                reason: reason_in(&std::fs::read_to_string(&log).unwrap_or_default()),
            }),
        }
    }

    fn data(&self) -> PathBuf {
        self.folder().join("data")
    }

    fn run(&mut self, settings: &ServerSettings) -> Result<(), TpccError> {
        let program = self.program.clone();
        let mut command = self.private.command(&settings.start_with, &program);
        command.arg("--no-defaults").args(self.settings(settings));
        let options = options(&self.socket());
        self.private
            .run(command, &program, &|| Conn::new(options.clone()).is_ok())
    }

    fn settings(&self, settings: &ServerSettings) -> Vec<OsString> {
        // The log of a commit is written and synced; or both are done each second.
        let at_commit = match settings.durability {
            Durability::Commit => 1,
            Durability::Soon | Durability::Never => 0,
        };
        let mut all: Vec<OsString> = vec![
            format!("--datadir={}", self.data().display()).into(),
            format!("--socket={}", self.socket().display()).into(),
        ];
        let mut set = |text: &str| all.push(format!("--{text}").into());
        set("skip-networking");
        set("skip-log-bin");
        set("skip-name-resolve");
        set("performance-schema=OFF");
        set(&format!("innodb-buffer-pool-size={}", settings.cache.get()));
        set(&format!("innodb-flush-log-at-trx-commit={at_commit}"));
        set(&format!("max-connections={}", settings.connections + 10));
        // What was cached before does not come back by itself: each arm is warmed alike.
        set("innodb-buffer-pool-dump-at-shutdown=OFF");
        set("innodb-buffer-pool-load-at-startup=OFF");
        if settings.durability == Durability::Never {
            set("innodb-doublewrite=OFF");
            set("innodb-flush-method=nosync");
        }
        if settings.huge_pages {
            set("large-pages");
        }
        for more in &settings.more {
            set(more);
        }
        all
    }
}

/// How the superuser connects on a socket.
pub(crate) fn options(socket: &Path) -> Opts {
    OptsBuilder::new()
        .user(Some("root"))
        .socket(Some(socket.display().to_string()))
        .into()
}

/// One of its programs: where PATH has it, or where servers are that no user starts by hand.
fn program(name: &str) -> Result<PathBuf, TpccError> {
    const ALSO: [&str; 3] = ["/usr/sbin", "/usr/libexec", "/usr/local/sbin"];
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(ALSO.map(PathBuf::from));
    let mut files = folders.map(|folder| folder.join(name));
    files
        .find(|file| file.is_file())
        .ok_or(TpccError::NotInstalled {
            server: "MariaDB",
            package: "mariadb-server",
            looked: "in PATH nor in /usr/sbin",
        })
}
