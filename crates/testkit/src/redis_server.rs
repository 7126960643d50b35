//! Redis, whose data is private memory (jemalloc) and which saves in a forked child.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::find_program;
use crate::server::{
    Server, ServerAccount, ServerError, ServerSettings, ShutdownSignals, command, folder_below,
};

#[cfg(feature = "clients")]
mod filled;
#[cfg(feature = "clients")]
pub use filled::FilledRedis;

/// Log words that no test may cause.
pub const COMPLAINTS: [&str; 5] = ["rror", "BUG REPORT", "OOM", "Can't", "Failed"];

/// A Redis server without persistence, stopped and its folder removed when dropped.
#[derive(Debug)]
pub struct RedisServer {
    pub server: Server,
}

impl RedisServer {
    /// Starts the server without data.
    ///
    /// # Errors
    /// [`ServerError`].
    pub fn start(settings: &ServerSettings) -> Result<RedisServer, ServerError> {
        let program = program().ok_or(ServerError::NotInstalled {
            server: "Redis",
            package: "redis-server",
            looked: "in PATH nor in /usr/sbin",
        })?;
        let account = account();
        let folder = folder_below(&settings.below, account)?;
        let with_us = ShutdownSignals::TERM.with_us;
        let (start_with, at) = (&settings.start_with, folder.path());
        let mut command = command(account, with_us, start_with, &program, at);
        settings_on(&mut command, at).args(&settings.more);
        let mut server = RedisServer {
            server: Server::in_folder(folder, ShutdownSignals::TERM),
        };
        let socket = server.socket();
        server.server.run(&mut command, &|| is_ready(&socket))?;
        Ok(server)
    }

    pub fn socket(&self) -> PathBuf {
        self.server.folder().join("redis.sock")
    }

    pub fn pid(&self) -> Option<u32> {
        self.server.running()
    }
}

pub fn account() -> ServerAccount {
    ServerAccount::first_of(&["redis", "nobody"])
}

pub fn program() -> Option<PathBuf> {
    find_program(&["redis-server"])
}

/// Adds the arguments of a server on a Unix socket in `folder`, without persistence.
pub fn settings_on<'a>(command: &'a mut Command, folder: &Path) -> &'a mut Command {
    command
        .args(["--port", "0", "--unixsocketperm", "777", "--unixsocket"])
        .arg(folder.join("redis.sock"))
        .args(["--save", "", "--appendonly", "no", "--daemonize", "no"])
        .arg("--dir")
        .arg(folder)
}

/// Returns true if a server answers PING on this socket. It does not while it loads a file.
pub fn is_ready(socket: &Path) -> bool {
    let Ok(mut stream) = UnixStream::connect(socket) else {
        return false;
    };
    let mut pong = [0; 7];
    let _ = stream.set_read_timeout(Some(Duration::from_secs(10)));
    stream.write_all(b"PING\r\n").is_ok()
        && stream.read_exact(&mut pong).is_ok()
        && &pong == b"+PONG\r\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_starts_and_ends() {
        let mut server = match RedisServer::start(&ServerSettings::default()) {
            Ok(server) => server,
            Err(e @ ServerError::NotInstalled { .. }) => {
                return crate::not_run("it_starts_and_ends", &e.to_string());
            }
            Err(e) => panic!("{e:?}"),
        };
        server.server.assert_no_complaint(&COMPLAINTS);
        let folder = server.server.folder().to_owned();
        drop(server);
        assert!(!folder.exists());
    }
}
