//! Redis saves in a forked child while it keeps writing. Only written pages are copied, one by one, as without hugeleaf. A collapse or a
//! copy of huge pages would double its memory.

use std::path::{Path, PathBuf};
use std::time::Duration;

use hugeleaf_ask::QueryError;
use hugeleaf_ask::redis::{RedisAddress, RedisConnection};
use hugeleaf_sys::Deadline;

use super::numbers::no_more;
use super::servers::{Public, can_start};
use super::under::{Mode, UNDER};
use hugeleaf_testkit::process_facts::{pss_kb, tree};
use hugeleaf_testkit::redis_server;
use hugeleaf_testkit::server::{Server, ServerAccount, ShutdownSignals, folder_for};

/// Time limit of a command.
const TIME: Duration = Duration::from_secs(60);
use hugeleaf_testkit::until as wait_until;

/// Keys at the start.
const KEYS: std::ops::Range<u64> = 0..40_000;
/// Keys that are written during a save.
const NEW_KEYS: u64 = 5_000;

/// The number of saves.
fn saves() -> u64 {
    hugeleaf_testkit::size(1, 2)
}

struct Redis {
    server: Server,
    socket: PathBuf,
}

impl Redis {
    fn start(public: &Public, way: Mode, program: &Path, dump: Option<&Path>) -> Redis {
        let account = ServerAccount::first_of(&["redis", "nobody"]);
        let folder = folder_for(account);
        if let Some(dump) = dump {
            std::fs::copy(dump, folder.path().join("dump.rdb")).unwrap();
            let open = std::os::unix::fs::PermissionsExt::from_mode(0o644);
            std::fs::set_permissions(folder.path().join("dump.rdb"), open).unwrap();
        }
        let socket = folder.path().join("redis.sock");
        let mut command = public.command(way, account, program, folder.path());
        command
            .args(["--port", "0", "--unixsocketperm", "777", "--unixsocket"])
            .arg(&socket)
            .args([
                "--save",
                "",
                "--appendonly",
                "no",
                "--daemonize",
                "no",
                "--dir",
            ])
            .arg(folder.path());
        let server = Server::start(&mut command, folder, ShutdownSignals::TERM, || {
            // Until the file is loaded the server answers that it is not ready.
            connect(&socket).is_ok_and(|mut c| c.command(&["PING"], Deadline::new(TIME)).is_ok())
        });
        Redis { server, socket }
    }

    fn ask(&self, words: &[&str]) -> String {
        let answer = connect(&self.socket)
            .and_then(|mut connection| connection.command(words, Deadline::new(TIME)));
        let answer = answer.unwrap_or_else(|e| panic!("{words:?}: {e}"));
        answer.join(" ")
    }

    fn write(&self, keys: impl Iterator<Item = u64>) {
        let mut connection = connect(&self.socket).unwrap();
        let keys: Vec<u64> = keys.collect();
        for some in keys.chunks(1000) {
            let words = some.iter().flat_map(|key| [key.to_string(), value(*key)]);
            let words: Vec<String> = ["MSET".to_owned()].into_iter().chain(words).collect();
            connection
                .command(
                    &words.iter().map(String::as_str).collect::<Vec<_>>(),
                    Deadline::new(TIME),
                )
                .unwrap();
        }
    }

    fn is_saving(&self) -> bool {
        self.ask(&["INFO", "persistence"])
            .contains("rdb_bgsave_in_progress:1")
    }

    /// Returns the memory of the server and its child together, in bytes.
    fn held(&self) -> u64 {
        tree(self.server.pid()).into_iter().map(pss_kb).sum::<u64>() * 1024
    }

    fn holds_all(&self) {
        let mut connection = connect(&self.socket).unwrap();
        let keys = KEYS.end + NEW_KEYS * saves();
        assert_eq!(self.ask_number(&["DBSIZE"]), keys);
        for key in 0..keys {
            let held = connection
                .command(&["GET", &key.to_string()], Deadline::new(TIME))
                .unwrap();
            assert_eq!(held, [value(key)]);
        }
    }

    fn ask_number(&self, words: &[&str]) -> u64 {
        self.ask(words).parse().unwrap()
    }
}

fn connect(socket: &Path) -> Result<RedisConnection, QueryError> {
    let address = RedisAddress::parse(&socket.display().to_string());
    RedisConnection::open(&address.map_err(QueryError::new)?, Deadline::new(TIME))
}

/// Values of different lengths, which Redis stores in chunks of different sizes.
fn value(key: u64) -> String {
    let length = 1000 + usize::try_from(key * 7919 % 6000).unwrap();
    format!("{key:.<length$}")
}

/// Returns the peak memory of server and child during a save with writes, and the file.
fn save_while_writing(public: &Public, way: Mode, program: &Path) -> (u64, Server, PathBuf) {
    let redis = Redis::start(public, way, program, None);
    redis.write(KEYS);
    // The child is slowed down, so that it sees the same writes in every mode.
    redis.ask(&["CONFIG", "SET", "rdb-key-save-delay", "15"]);
    let mut most = 0;
    for round in 0..saves() {
        redis.ask(&["BGSAVE"]);
        assert!(redis.is_saving());
        let new = KEYS.end + NEW_KEYS * round..KEYS.end + NEW_KEYS * (round + 1);
        redis.write((round..KEYS.end).step_by(10).chain(new));
        assert!(redis.is_saving(), "the child ended before the writes");
        most = most.max(redis.held());
        wait_until("the save ends", || !redis.is_saving());
        let answer = redis.ask(&["INFO", "persistence"]);
        assert!(
            answer.contains("rdb_last_bgsave_status:ok"),
            "{way:?}: {answer}"
        );
    }
    redis.ask(&["CONFIG", "SET", "rdb-key-save-delay", "0"]);
    redis.ask(&["SAVE"]);
    redis.holds_all();
    let dump = redis.server.folder().join("dump.rdb");
    (most, redis.server, dump)
}

#[test]
fn a_forked_save_copies_no_more_than_bare() {
    let test = "a_forked_save_copies_no_more_than_bare";
    let program = redis_server::program();
    if !can_start(test, "redis-server", program.is_some()) {
        return;
    }
    let (program, public) = (program.unwrap(), Public::copy());
    let _host = hugeleaf_testkit::host_lock::shared();
    let (bare, server, _) = save_while_writing(&public, Mode::Bare, &program);
    drop(server);
    for way in hugeleaf_testkit::size(&UNDER[1..], &UNDER[..])
        .iter()
        .copied()
    {
        let (under, mut server, dump) = save_while_writing(&public, way, &program);
        // Partly filled pages of data. With all roles also one for the stack of each thread.
        let begun = if way == Mode::All { 4 + 5 } else { 4 };
        no_more(&format!("{way:?}: server and child"), bare, under, 5, begun);
        server.assert_no_complaint(&redis_server::COMPLAINTS);
        let reloaded = Redis::start(&public, way, &program, Some(&dump));
        reloaded.holds_all();
    }
}
