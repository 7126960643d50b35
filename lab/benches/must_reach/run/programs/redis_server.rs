//! Redis with its keys in memory, on a Unix socket.

use std::path::{Path, PathBuf};
use std::time::Instant;

use hugeleaf_units::Bytes;
use rustix::process::Signal;

use super::{GROW, Made, Need, Program, Taken, WORK, server_command};
use crate::run::arms::Arm;
use crate::run::look;
use crate::support::find_program;
use crate::support::server::{Account, Server, folder_for};
use crate::{Failed, Mode};

/// Requests that are sent at a time.
const AT_A_TIME: u32 = 64;

struct Redis {
    program: PathBuf,
    keys: u32,
    reads: u32,
    all: Bytes,
}

/// Redis with 2 GB of keys.
pub fn redis(mode: Mode) -> Result<Made, Failed> {
    let Some(program) = find_program(&["redis-server"]) else {
        return Ok(Err("it is not installed"));
    };
    let (keys, reads, all) = match mode {
        Mode::Full => (3_900_000, 1_500_000, Bytes::from_mib(2200)),
        Mode::Smoke => (100_000, 10_000, Bytes::from_mib(64)),
    };
    Ok(Ok(Box::new(Redis {
        program,
        keys,
        reads,
        all,
    })))
}

impl Program for Redis {
    fn name(&self) -> &'static str {
        "redis"
    }

    fn file(&self) -> &'static str {
        "run-redis"
    }

    fn need(&self) -> Need {
        Need {
            all: self.all,
            shared: Bytes::ZERO,
        }
    }

    fn sample(&self, arm: &Arm) -> Result<Taken, Failed> {
        let account = Account::first_of(&["redis", "nobody"]);
        let folder = folder_for(account);
        let socket = folder.path().join("redis.sock");
        let mut command = server_command(arm, account, &self.program);
        command
            .args(["--port", "0", "--unixsocketperm", "777", "--unixsocket"])
            .arg(&socket)
            .args(["--save", "", "--appendonly", "no", "--daemonize", "no"])
            // Where THP is always on it would switch it off for itself.
            .args(["--disable-thp", "no"])
            .args(["--enable-debug-command", "local", "--dir"])
            .arg(folder.path());
        let server = Server::start(&mut command, folder, Signal::TERM, || open(&socket).is_ok());
        let mut connection = open(&socket)?;
        let mut taken = Taken::default();
        let start = Instant::now();
        redis::cmd("DEBUG")
            .arg("POPULATE")
            .arg(self.keys)
            .arg("key")
            .arg(400)
            .query::<()>(&mut connection)?;
        taken.rate(GROW, f64::from(self.keys) / start.elapsed().as_secs_f64());
        arm.grown(server.pid())?;
        taken.private(look::look(server.pid())?);
        taken.resident(server.pid())?;
        let start = Instant::now();
        let sum = self.read(&mut connection)?;
        taken.rate(WORK, f64::from(self.reads) / start.elapsed().as_secs_f64());
        taken.check = sum.to_string();
        Ok(taken)
    }
}

impl Redis {
    /// Reads keys at random; the sum of the lengths of what they hold.
    fn read(&self, connection: &mut redis::Connection) -> Result<usize, Failed> {
        let mut random = fastrand::Rng::with_seed(1);
        let mut sum = 0;
        for _ in 0..self.reads / AT_A_TIME {
            let mut batch = redis::pipe();
            for _ in 0..AT_A_TIME {
                batch
                    .cmd("GET")
                    .arg(format!("key:{}", random.u32(0..self.keys)));
            }
            let held: Vec<String> = batch.query(connection)?;
            sum += held.iter().map(String::len).sum::<usize>();
        }
        Ok(sum)
    }
}

fn open(socket: &Path) -> redis::RedisResult<redis::Connection> {
    redis::Client::open(format!("redis+unix://{}", socket.display()))?.get_connection()
}
