//! Redis and Valkey: sets `maxmemory`, depending on the behaviour at that limit (`maxmemory-policy`).
//!
//! If the policy may not evict every key, a limit below the memory in use makes writes fail. A limit below the owner's makes them
//! fail earlier than expected. So the limit is then never set below either. `volatile` policies count as such, because the size of the keys
//! that expire is unknown. Eviction frees memory inside the allocator. The balancer measures whether it is returned, which depends on
//! fragmentation.

use std::time::Duration;

use hugeleaf_sys::{Deadline, Pid};
use hugeleaf_units::Bytes;

use crate::owner_limit::OwnerLimitStore;
use crate::server::{
    CacheCounts, ConnectOptions, PATIENCE, ResizableServer, ServerKind, ServerObserver, ServerState,
};
use hugeleaf_ask::{QueryError, redis};

/// Divisor for the room above the memory in use, if writes fail at the limit.
const HEADROOM: u64 = 8;

pub(crate) const KIND: ServerKind = ServerKind {
    names: &["redis", "valkey"],
    address: "host:port, a socket path, or redis://USER:PASSWORD@host:port",
    example: "localhost:6379",
    resizes: "`maxmemory`. If the policy may not evict any key (all but `allkeys-…`): never below the memory in use, and below the owner's value, the last one that the balancer did not set, only with `below_limit`. 0 (no limit) is changed only with `set_limit`",
    benefit: "`keyspace_hits` and `keyspace_misses`",
    miss: Duration::from_millis(1),
    processes: &["redis-server", "valkey-server"],
    is_shared: false,
    evicts: true,
    returns: Duration::from_secs(45),
    check: |address| redis::RedisAddress::parse(address).map(|address| address.place.to_string()),
    observe: |opening| Box::new(RedisReader::new(opening)),
    open: |opening| Box::new(Redis(RedisReader::new(opening))),
};

/// Reads its state. Its connection sends no other command.
struct RedisReader {
    address: Result<redis::RedisAddress, String>,
    set_limit: bool,
    below_limit: bool,
    owner: OwnerLimitStore,
    connection: Option<redis::RedisInfoConnection>,
}

/// Sets its size.
struct Redis(RedisReader);

impl RedisReader {
    fn new(opening: &ConnectOptions) -> RedisReader {
        RedisReader {
            address: redis::RedisAddress::parse(&opening.address),
            set_limit: opening.set_limit,
            below_limit: opening.below_limit,
            owner: OwnerLimitStore::new(opening.folder.clone()),
            connection: None,
        }
    }

    fn address(&self) -> Result<&redis::RedisAddress, QueryError> {
        let address = self.address.as_ref();
        address.map_err(|e| QueryError::new(e.clone()))
    }
}

impl ServerObserver for RedisReader {
    fn observe(&mut self) -> Result<ServerState, QueryError> {
        let question = Deadline::new(PATIENCE);
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => redis::RedisInfoConnection::open(self.address()?, question)?,
        };
        let info = connection.info(None, question)?;
        self.connection = Some(connection);
        let info = RedisServerInfo(info);
        let run = info.0.get("run_id").unwrap_or_default();
        let owners = self.owner.observe(run, Bytes(info.number("maxmemory")?));
        let binds = if self.below_limit {
            Bytes::ZERO
        } else {
            owners
        };
        info.server_state(self.set_limit, binds)
    }
}

impl Redis {
    fn ask(&self, words: &[&str], question: Deadline<'_>) -> Result<(), QueryError> {
        let mut connection = redis::RedisConnection::open(self.0.address()?, question)?;
        connection.command(words, question).map(drop)
    }

    fn set(&mut self, to: Bytes, question: Deadline<'_>) -> Result<(), QueryError> {
        let recorded = self.0.owner.request(to);
        recorded.map_err(|e| QueryError::new(format!("cannot record the limit: {e}")))?;
        let bytes = to.get().to_string();
        self.ask(&["CONFIG", "SET", "maxmemory", &bytes], question)
    }
}

struct RedisServerInfo(redis::RedisInfo);

impl RedisServerInfo {
    fn number(&self, name: &str) -> Result<u64, QueryError> {
        let number = self.0.number(name);
        number.map_err(|e| QueryError::new(format!("{e}; check that it is Redis: redis-cli info")))
    }

    fn busy(&self) -> Option<String> {
        let is = |name: &str| self.0.get(name) == Some("1");
        let saves = is("rdb_bgsave_in_progress") || is("aof_rewrite_in_progress");
        match (is("loading"), saves) {
            (true, _) => Some("loading its data".into()),
            // Keys evicted meanwhile are copied first, because the child still has them.
            (_, true) => Some("saving its data".into()),
            _ => None,
        }
    }

    /// `owners` is the owner's limit; 0 if it does not bind.
    fn server_state(&self, set_limit: bool, owners: Bytes) -> Result<ServerState, QueryError> {
        let (limit, used) = (self.number("maxmemory")?, self.number("used_memory")?);
        let policy = self.0.get("maxmemory_policy").unwrap_or_default();
        let (hits, misses) = (
            self.number("keyspace_hits")?,
            self.number("keyspace_misses")?,
        );
        let headroom = Bytes(used / HEADROOM);
        let floor = match policy.starts_with("allkeys") {
            true => Bytes::ZERO,
            false => owners.max(Bytes(used) + headroom),
        };
        let no_limit = (limit == 0 && !set_limit).then(|| {
            "its maxmemory is 0 (no limit), so it is not resized; to resize it, add set_limit = true to its [[balance.component]]".to_owned()
        });
        let size = match limit {
            // Without a limit its size is its use, or the limit that it will get, at which policies begin to evict.
            0 if set_limit => Bytes(used) + headroom,
            0 => Bytes(used),
            limit => Bytes(limit),
        };
        Ok(ServerState {
            size,
            is_unlimited: limit == 0 && set_limit,
            floor,
            used: Some(Bytes(used)),
            counts: Some(CacheCounts {
                operations: hits.saturating_add(misses),
                misses,
            }),
            busy: self.busy(),
            fixed: no_limit,
            pid: u32::try_from(self.number("process_id")?).ok().map(Pid),
            ..ServerState::default()
        })
    }
}

impl ResizableServer for Redis {
    fn observer(&mut self) -> &mut dyn ServerObserver {
        &mut self.0
    }

    fn resize(&mut self, to: Bytes) -> Result<(), QueryError> {
        // The use may have grown since the last observation. Without eviction every write would fail.
        let look = self.observe()?;
        if to < look.size && to < look.floor {
            return Err(QueryError::new(format!(
                "it uses {}, and its policy may not evict every key: a limit of {to}, below {}, would make writes fail",
                look.used.unwrap_or_default(),
                look.floor
            )));
        }
        self.set(to, Deadline::new(PATIENCE))
    }

    fn give_back(&mut self) -> Result<(), QueryError> {
        self.ask(&["MEMORY", "PURGE"], Deadline::new(PATIENCE))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hugeleaf_host::Root;
    use std::io::{Read, Write};
    use std::os::unix::net::{UnixListener, UnixStream};
    use std::path::{Path, PathBuf};
    use std::sync::{Arc, Mutex};

    const INFO: &str = "# Server\r\nprocess_id:7\r\nmaxmemory:1000\r\nused_memory:800\r\nmaxmemory_policy:POLICY\r\nkeyspace_hits:5\r\nkeyspace_misses:3\r\nrdb_bgsave_in_progress:0\r\ndb0:keys=10,expires=5,avg_ttl=0\r\n";

    fn look(policy: &str, change: (&str, &str), set_limit: bool) -> ServerState {
        let text = INFO.replace("POLICY", policy).replace(change.0, change.1);
        RedisServerInfo(redis::RedisInfo::parse(&text))
            .server_state(set_limit, Bytes(850))
            .unwrap()
    }

    #[test]
    fn the_policy_is_respected() {
        let none = ("", "");
        assert_eq!(look("allkeys-lru", none, false).floor, Bytes::ZERO);
        assert_eq!(look("noeviction", none, false).floor, Bytes(900));
        // Half of its keys expire, but their size is unknown.
        assert_eq!(look("volatile-lru", none, false).floor, Bytes(900));
        // Below the configured limit writes would fail that succeeded before.
        let little = ("used_memory:800", "used_memory:80");
        assert_eq!(look("noeviction", little, false).floor, Bytes(850));
        assert_eq!(look("volatile-ttl", little, false).floor, Bytes(850));
        assert_eq!(look("allkeys-lru", little, false).floor, Bytes::ZERO);
    }

    #[test]
    fn no_limit_is_left_alone_unless_the_rule_says_so() {
        let unlimited = ("maxmemory:1000", "maxmemory:0");
        let alone = look("allkeys-lru", unlimited, false);
        assert!(alone.fixed.as_ref().unwrap().contains("set_limit"));
        assert_eq!(alone.size, Bytes(800));
        let limited = look("allkeys-lru", unlimited, true);
        assert_eq!((limited.fixed, limited.size), (None, Bytes(900)));
        assert!(limited.is_unlimited && !alone.is_unlimited);
        assert!(!look("allkeys-lru", ("", ""), true).is_unlimited);
        let saving = ("rdb_bgsave_in_progress:0", "rdb_bgsave_in_progress:1");
        assert!(look("allkeys-lru", saving, false).busy.is_some());
    }
    /// A simulated Redis that answers INFO and obeys CONFIG SET.
    struct Sim {
        folder: tempfile::TempDir,
        /// The id of its run, and its limit.
        state: Arc<Mutex<(&'static str, u64)>>,
    }

    impl Sim {
        fn start() -> Sim {
            let folder = tempfile::tempdir().unwrap();
            let listener = UnixListener::bind(socket(folder.path())).unwrap();
            let state = Arc::new(Mutex::new(("a1", 0)));
            let its = Arc::clone(&state);
            std::thread::spawn(move || {
                for stream in listener.incoming().flatten() {
                    let its = Arc::clone(&its);
                    std::thread::spawn(move || serve(stream, &its));
                }
            });
            Sim { folder, state }
        }

        /// Sets the limit as its owner does.
        fn set(&self, limit: u64) {
            self.state.lock().unwrap().1 = limit;
        }

        fn restart(&self, run: &'static str, limit: u64) {
            *self.state.lock().unwrap() = (run, limit);
        }

        fn opening(&self) -> ConnectOptions {
            ConnectOptions {
                address: socket(self.folder.path()).display().to_string(),
                root: Root::at("/nonexistent"),
                folder: Some(self.folder.path().to_owned()),
                set_limit: false,
                below_limit: false,
            }
        }
    }

    fn socket(folder: &Path) -> PathBuf {
        folder.join("redis.sock")
    }

    /// Answers commands, each of which comes in one piece.
    fn serve(mut stream: UnixStream, state: &Mutex<(&'static str, u64)>) {
        let mut heard = [0; 1024];
        while let Ok(count @ 1..) = stream.read(&mut heard) {
            let command = String::from_utf8_lossy(&heard[..count]);
            let mut state = state.lock().unwrap();
            let answer = match command.trim_end().rsplit("\r\n").next() {
                Some("INFO") => {
                    let limit = format!("run_id:{}\r\nmaxmemory:{}", state.0, state.1);
                    let text = INFO.replace("POLICY", "noeviction");
                    let text = text.replace("maxmemory:1000", &limit);
                    format!("${}\r\n{text}\r\n", text.len())
                }
                last => {
                    state.1 = last.unwrap().parse().unwrap();
                    "+OK\r\n".to_owned()
                }
            };
            stream.write_all(answer.as_bytes()).unwrap();
        }
    }

    fn floor(server: &mut dyn ServerObserver) -> Bytes {
        server.observe().unwrap().floor
    }

    /// The floor from its use alone is 900.
    #[test]
    fn the_floor_follows_the_owner() {
        let sim = Sim::start();
        let new = || Redis(RedisReader::new(&sim.opening()));
        let mut server = new();
        assert_eq!(floor(&mut server.0), Bytes(900));
        sim.set(5000);
        assert_eq!(floor(&mut server.0), Bytes(5000));
        server.resize(Bytes(9000)).unwrap();
        assert_eq!(sim.state.lock().unwrap().1, 9000);
        assert_eq!(floor(&mut server.0), Bytes(5000));
        // A new balancer does not take the other's limit for the owner's, and neither does a watching one.
        let mut server = new();
        assert_eq!(floor(&mut server.0), Bytes(5000));
        assert_eq!(floor(&mut RedisReader::new(&sim.opening())), Bytes(5000));
        sim.set(2000);
        assert_eq!(floor(&mut server.0), Bytes(2000));
        // The owner restarts it with another limit, and with the one that the balancer set.
        sim.restart("b2", 1000);
        assert_eq!(floor(&mut server.0), Bytes(1000));
        server.resize(Bytes(3000)).unwrap();
        assert_eq!(floor(&mut server.0), Bytes(1000));
        sim.restart("c3", 3000);
        assert_eq!(floor(&mut server.0), Bytes(3000));
    }

    #[test]
    fn no_limit_is_set_without_a_record_of_the_owners() {
        let sim = Sim::start();
        sim.set(5000);
        let folder = Some(sim.folder.path().join("no"));
        let opening = ConnectOptions {
            folder,
            ..sim.opening()
        };
        let mut server = Redis(RedisReader::new(&opening));
        let error = server.resize(Bytes(9000)).unwrap_err();
        assert!(error.what.contains("cannot record the limit"), "{error}");
        assert_eq!(sim.state.lock().unwrap().1, 5000);
    }
}
