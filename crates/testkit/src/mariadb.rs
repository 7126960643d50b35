//! MariaDB, whose buffer pool is private anonymous memory.

use std::io::Read;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::find_program;
use crate::server::{
    Durability, Server, ServerAccount, ServerError, ServerSettings, ShutdownSignals, command,
    folder_below, run_to_end,
};

#[cfg(feature = "clients")]
mod filled;
#[cfg(feature = "clients")]
pub use filled::{BUFFER_POOL_KB, FilledMariadb};

/// Log words that no test may cause.
pub const COMPLAINTS: [&str; 4] = ["[ERROR]", "got signal", "Assertion", "corrupt"];

/// A MariaDB server, stopped and its folder removed when dropped.
#[derive(Debug)]
pub struct MariadbServer {
    program: PathBuf,
    account: ServerAccount,
    pub server: Server,
}

impl MariadbServer {
    /// Creates an empty data folder and starts the server on it.
    ///
    /// # Errors
    /// [`ServerError`].
    pub fn start(settings: &ServerSettings) -> Result<MariadbServer, ServerError> {
        let (program, install) = programs().ok_or(ServerError::NotInstalled {
            server: "MariaDB",
            package: "mariadb-server",
            looked: "in PATH nor in /usr/sbin",
        })?;
        let account = account();
        let folder = folder_below(&settings.below, account)?;
        let mut server = MariadbServer {
            program,
            account,
            server: Server::in_folder(folder, ShutdownSignals::TERM),
        };
        let mut command = server.command(&[], &install);
        run_to_end(install_on(&mut command, &server.data()))?;
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

    /// Returns the socket, which lets the superuser `root` connect without a password.
    pub fn socket(&self) -> PathBuf {
        self.folder().join("mariadb.sock")
    }

    pub fn address(&self) -> String {
        format!("mysql://root@localhost/?socket={}", self.socket().display())
    }

    pub fn folder(&self) -> &Path {
        self.server.folder()
    }

    pub fn pid(&self) -> Option<u32> {
        self.server.running()
    }

    fn data(&self) -> PathBuf {
        self.folder().join("data")
    }

    fn command(&self, start_with: &[std::ffi::OsString], program: &Path) -> Command {
        let with_us = ShutdownSignals::TERM.with_us;
        command(self.account, with_us, start_with, program, self.folder())
    }

    fn run(&mut self, settings: &ServerSettings) -> Result<(), ServerError> {
        let mut command = self.command(&settings.start_with, &self.program);
        command.arg("--no-defaults").args(self.settings(settings));
        let socket = self.socket();
        self.server.run(&mut command, &|| is_ready(&socket))
    }

    fn settings(&self, settings: &ServerSettings) -> Vec<String> {
        // The log is written and synced either at each commit or every second.
        let at_commit = u8::from(settings.durability == Durability::Commit);
        let mut all = vec![
            format!("datadir={}", self.data().display()),
            format!("socket={}", self.socket().display()),
            "skip-networking".to_owned(),
            "skip-log-bin".to_owned(),
            "skip-name-resolve".to_owned(),
            "performance-schema=OFF".to_owned(),
            format!("innodb-buffer-pool-size={}", settings.cache.get()),
            format!("innodb-flush-log-at-trx-commit={at_commit}"),
            format!("max-connections={}", settings.connections + 10),
            // The cache must not be restored at start, so that each arm is warmed alike.
            "innodb-buffer-pool-dump-at-shutdown=OFF".to_owned(),
            "innodb-buffer-pool-load-at-startup=OFF".to_owned(),
        ];
        if settings.durability == Durability::Never {
            all.push("innodb-doublewrite=OFF".to_owned());
            all.push("innodb-flush-method=nosync".to_owned());
        }
        if settings.huge_pages {
            all.push("large-pages".to_owned());
        }
        all.extend(settings.more.iter().cloned());
        all.into_iter()
            .map(|setting| format!("--{setting}"))
            .collect()
    }
}

pub fn account() -> ServerAccount {
    ServerAccount::first_of(&["mysql", "nobody"])
}

/// Returns the server and the program that creates its data folder, if both are installed.
pub fn programs() -> Option<(PathBuf, PathBuf)> {
    Some((
        find_program(&["mariadbd"])?,
        find_program(&["mariadb-install-db"])?,
    ))
}

/// Adds the arguments of `mariadb-install-db` for a data folder whose superuser needs no password.
pub fn install_on<'a>(install: &'a mut Command, data: &Path) -> &'a mut Command {
    install
        .arg("--no-defaults")
        .arg(format!("--datadir={}", data.display()))
        .args(["--auth-root-authentication-method=normal", "--skip-test-db"])
}

/// Returns true if a server sends its greeting on this socket: protocol version 10 after the
/// header.
pub fn is_ready(socket: &Path) -> bool {
    let Ok(mut stream) = UnixStream::connect(socket) else {
        return false;
    };
    let mut greeting = [0; 5];
    let _ = stream.set_read_timeout(Some(Duration::from_secs(10)));
    stream.read_exact(&mut greeting).is_ok() && greeting[4] == 10
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_starts_and_ends() {
        let mut server = match MariadbServer::start(&ServerSettings::default()) {
            Ok(server) => server,
            Err(e @ ServerError::NotInstalled { .. }) => {
                return crate::not_run("it_starts_and_ends", &e.to_string());
            }
            Err(e) => panic!("{e:?}"),
        };
        assert!(is_ready(&server.socket()));
        server.server.assert_no_complaint(&COMPLAINTS);
        let wrong = ServerSettings {
            more: vec!["no-such-setting".to_owned()],
            ..ServerSettings::default()
        };
        let error = server.restart(&wrong).unwrap_err();
        assert!(error.to_string().contains("no-such-setting"), "{error:?}");
    }
}
