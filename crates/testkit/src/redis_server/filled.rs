//! Redis with a data set and a load on it.

use std::path::{Path, PathBuf};

use super::RedisServer;
use crate::load::{Load, Transaction};
use crate::server::{Server, ServerSettings};

/// Keys in the data set, each with a value of [`VALUE_BYTES`]: about 260 MB together.
const KEYS: u64 = 500_000;
const VALUE_BYTES: usize = 400;

/// Redis with a data set.
pub struct Redis {
    /// The process and its folder.
    pub server: Server,
    socket: PathBuf,
}

impl Redis {
    /// Starts it and fills it.
    #[track_caller]
    pub fn start() -> Redis {
        let redis = Redis::start_empty();
        redis.fill();
        redis
    }

    /// The same without data.
    #[track_caller]
    pub fn start_empty() -> Redis {
        let started = RedisServer::start(&ServerSettings::default()).unwrap();
        let socket = started.socket();
        Redis {
            server: started.server,
            socket,
        }
    }

    /// The metric's address for `hugeleaf prove`.
    pub fn address(&self) -> String {
        self.socket.display().to_string()
    }

    /// Writes the data set.
    pub fn fill(&self) {
        let mut connection = connect(&self.socket).unwrap();
        for first in (0..KEYS).step_by(1000) {
            let mut batch = redis::pipe();
            for key in first..first + 1000 {
                batch.cmd("SET").arg(key).arg(value(key)).ignore();
            }
            batch.query::<()>(&mut connection).unwrap();
        }
    }

    /// Sends one command, and gives its answer as text.
    pub fn send(&self, words: &[&str]) -> String {
        let mut command = redis::cmd(words[0]);
        for word in &words[1..] {
            command.arg(word);
        }
        let answer: redis::Value = command
            .query(&mut connect(&self.socket).unwrap())
            .unwrap_or_else(|e| panic!("{words:?}: {e}"));
        format!("{answer:?}")
    }

    /// Clients that read random keys and check their values; with `writes` each also rewrites one
    /// key in place.
    pub fn load(&self, writes: bool) -> Load {
        let socket = self.socket.clone();
        Load::start(2, move |number| {
            let mut connection = connect(&socket).map_err(|e| e.to_string())?;
            let mut random = fastrand::Rng::with_seed(number as u64 + 1);
            let work: Transaction = Box::new(move || {
                let keys: Vec<u64> = (0..32).map(|_| random.u64(0..KEYS)).collect();
                let mut batch = redis::pipe();
                for key in &keys {
                    batch.cmd("GET").arg(key);
                }
                if writes {
                    batch.cmd("SET").arg(keys[0]).arg(value(keys[0])).ignore();
                }
                let got: Vec<String> = batch.query(&mut connection).map_err(|e| e.to_string())?;
                match keys
                    .iter()
                    .zip(&got)
                    .find(|(key, got)| value(**key) != **got)
                {
                    None if got.len() == keys.len() => Ok(()),
                    wrong => Err(format!("{} answers, wrong: {wrong:?}", got.len())),
                }
            });
            Ok(work)
        })
    }
}

fn connect(socket: &Path) -> redis::RedisResult<redis::Connection> {
    redis::Client::open(format!("redis+unix://{}", socket.display()))?.get_connection()
}

fn value(key: u64) -> String {
    let mut text = key.to_string();
    text.extend(std::iter::repeat_n('.', VALUE_BYTES - text.len()));
    text
}
