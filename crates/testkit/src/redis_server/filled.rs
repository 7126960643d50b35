//! Redis with a data set and a load.

use std::path::{Path, PathBuf};
use std::time::Duration;

use hugeleaf_ask::QueryError;
use hugeleaf_ask::redis::{RedisAddress, RedisConnection};
use hugeleaf_sys::Deadline;

use super::RedisServer;
use crate::load::{LoadClients, TransactionFn};
use crate::server::{Server, ServerSettings};

/// Number of keys, each with a value of [`VALUE_BYTES`]: about 260 MB together.
const KEYS: u64 = 500_000;
const VALUE_BYTES: usize = 400;
/// Time limit of a command.
const DEADLINE: Duration = Duration::from_secs(300);

pub struct FilledRedis {
    pub server: Server,
    socket: PathBuf,
}

impl FilledRedis {
    #[track_caller]
    pub fn start() -> FilledRedis {
        let redis = FilledRedis::start_empty();
        redis.fill();
        redis
    }

    /// Starts a server without data.
    #[track_caller]
    pub fn start_empty() -> FilledRedis {
        let started = RedisServer::start(&ServerSettings::default()).unwrap();
        let socket = started.socket();
        FilledRedis {
            server: started.server,
            socket,
        }
    }

    /// Returns the metric's address for `hugeleaf prove`.
    pub fn address(&self) -> String {
        self.socket.display().to_string()
    }

    pub fn fill(&self) {
        let mut connection = connect(&self.socket).unwrap();
        for first in (0..KEYS).step_by(1000) {
            let mut words = vec!["MSET".to_owned()];
            words.extend((first..first + 1000).flat_map(|key| [key.to_string(), value(key)]));
            ask(&mut connection, &words).unwrap();
        }
    }

    /// Sends one command and returns its answer as text.
    pub fn send(&self, words: &[&str]) -> String {
        let answer = connect(&self.socket)
            .and_then(|mut connection| connection.command(words, Deadline::new(DEADLINE)));
        let answer = answer.unwrap_or_else(|e| panic!("{words:?}: {e}"));
        answer.join(" ")
    }

    /// Starts clients that read random keys and check their values; with `writes` each also
    /// rewrites one key in place.
    pub fn load(&self, writes: bool) -> LoadClients {
        let socket = self.socket.clone();
        LoadClients::start(2, move |number| {
            let mut connection = connect(&socket).map_err(|e| e.to_string())?;
            let mut random = fastrand::Rng::with_seed(number as u64 + 1);
            let work: TransactionFn = Box::new(move || {
                let keys: Vec<u64> = (0..32).map(|_| random.u64(0..KEYS)).collect();
                let mut words = vec!["MGET".to_owned()];
                words.extend(keys.iter().map(u64::to_string));
                let got = ask(&mut connection, &words).map_err(|e| e.to_string())?;
                if writes {
                    let words = ["SET".to_owned(), keys[0].to_string(), value(keys[0])];
                    ask(&mut connection, &words).map_err(|e| e.to_string())?;
                }
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

fn connect(socket: &Path) -> Result<RedisConnection, QueryError> {
    let address = RedisAddress::parse(&socket.display().to_string());
    RedisConnection::open(&address.map_err(QueryError::new)?, Deadline::new(DEADLINE))
}

fn ask(connection: &mut RedisConnection, words: &[String]) -> Result<Vec<String>, QueryError> {
    connection.command(
        &words.iter().map(String::as_str).collect::<Vec<_>>(),
        Deadline::new(DEADLINE),
    )
}

fn value(key: u64) -> String {
    let mut text = key.to_string();
    text.extend(std::iter::repeat_n('.', VALUE_BYTES - text.len()));
    text
}
