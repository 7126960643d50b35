//! Tests real servers under one memory target (tier 3): each kind's gains and losses, and memory that moves from an idle server to a busy
//! one. The tests read sizes from the servers and from `/proc`.

mod liars;

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::process::Stdio;

use crate::common::{ChildGuard, good, not_run, refused, stderr, stdout};
use crate::guard::kit::{self, Guarding, Place};
use hugeleaf_balancer::kind_named;
use hugeleaf_balancer::{ConnectOptions, ResizableServer as Balanced};
use hugeleaf_host::Root;
use hugeleaf_testkit::cgroup::MemoryCgroup;
use hugeleaf_testkit::jvm::{self, Jvm};
use hugeleaf_testkit::mariadb::{self, FilledMariadb};
use hugeleaf_testkit::redis_server::{self, FilledRedis};
use hugeleaf_testkit::server::{Server, ServerAccount, ShutdownSignals, as_account, folder_for};
use hugeleaf_testkit::until as wait_until;
use hugeleaf_testkit::{find_program, left_to_all, process_facts};
use hugeleaf_units::Bytes;

const fn mib(n: u64) -> Bytes {
    Bytes::from_mib(n)
}

fn open(kind: &str, address: &str) -> Box<dyn Balanced> {
    let kind = kind_named(kind).unwrap();
    (kind.open)(&ConnectOptions {
        address: address.into(),
        root: Root::live(),
        folder: None,
        set_limit: false,
        below_limit: false,
    })
}

fn resident(pid: u32) -> Bytes {
    Bytes::from_kib(process_facts::status_kb(pid, "VmRSS"))
}

/// memcached on a loopback port.
struct Memcached {
    server: Server,
    port: u16,
}

impl Memcached {
    fn start(program: &std::path::Path, mib: u32) -> Memcached {
        Memcached::start_on(kit::free_port(), program, mib)
    }

    fn start_on(port: u16, program: &std::path::Path, mib: u32) -> Memcached {
        let account = ServerAccount::first_of(&["memcache", "nobody"]);
        let folder = folder_for(account);
        let mut command = as_account(account, program, folder.path());
        command.args([
            "-l",
            "127.0.0.1",
            "-p",
            &port.to_string(),
            "-m",
            &mib.to_string(),
            "-t",
            "1",
        ]);
        let server = Server::start(&mut command, folder, ShutdownSignals::TERM, || {
            TcpStream::connect(("127.0.0.1", port)).is_ok()
        });
        Memcached { server, port }
    }

    fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Stores more values than it can hold.
    fn fill(&self, mib: u32) {
        let mut stream = TcpStream::connect(self.address()).unwrap();
        let value = "x".repeat(1000);
        for key in 0..mib * 1024 {
            write!(stream, "set k{key} 0 0 1000 noreply\r\n{value}\r\n").unwrap();
        }
        write!(stream, "version\r\n").unwrap();
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).unwrap();
        assert!(line.starts_with("VERSION"), "{line}");
    }
}

#[test]
fn mariadb_gives_memory_back_and_gets_it_again() {
    let test = "mariadb_gives_memory_back_and_gets_it_again";
    if mariadb::programs().is_none() {
        return not_run(test, "mariadb-server is not installed");
    }
    let mut mariadb = FilledMariadb::start();
    mariadb.read_all();
    let pid = mariadb.server.pid();
    let mut server = open("mariadb", &mariadb.address());
    let look = server.observe().unwrap();
    assert_eq!(
        (look.size, look.pid.map(|pid| pid.0)),
        (mib(256), Some(pid))
    );
    assert!(look.used.unwrap() > mib(200) && look.counts.unwrap().misses > 0);
    let before = resident(pid);
    server.resize(mib(128)).unwrap();
    wait_until("half of it is back", || {
        let look = server.observe().unwrap();
        look.size == mib(128) && look.busy.is_none() && resident(pid) + mib(100) < before
    });
    server.resize(mib(256)).unwrap();
    wait_until("it is as before", || {
        server.observe().unwrap().size == mib(256)
    });
    // The server has read nothing into the regained memory, and may be shrunk again.
    assert!(server.observe().unwrap().unmaps);
    server.resize(mib(128)).unwrap();
    wait_until("it is small again", || {
        server.observe().unwrap().size == mib(128)
    });
    mariadb.server.assert_no_complaint(&mariadb::COMPLAINTS);
}

/// A watching rule, and a dry run of an acting one.
const WATCHING: [(&str, &[&str]); 2] = [
    ("watch", &["--once"]),
    ("balance", &["--once", "--dry-run"]),
];

/// Returns rules for a target with one Redis; `more` is added to its component.
fn redis_rules(action: &str, address: &str, more: &str) -> String {
    format!(
        "schema = 1\nlisten = 'off'\n[[balance]]\nname = 't'\ntarget = '256M'\naction = '{action}'\nevery = '1s'\n\
         [[balance.component]]\nname = 'r'\nkind = 'redis'\naddress = '{address}'\nleast = '64M'\nmost = '200M'\n{more}"
    )
}

/// Neither a watching rule nor a dry run sets a limit, regardless of its components.
#[test]
fn who_watches_writes_nothing() {
    let test = "who_watches_writes_nothing";
    if redis_server::program().is_none() {
        return not_run(test, "redis-server is not installed");
    }
    let redis = FilledRedis::start();
    let place = Place::new();
    for (action, flags) in WATCHING {
        let rules = redis_rules(action, &redis.address(), "set_limit = true\n");
        let config = place.write("guard.toml", &rules);
        let arguments = [&["balance", "--config", &config][..], flags].concat();
        good(&place.hugeleaf(&arguments).output().unwrap());
        let said = redis.send(&["CONFIG", "GET", "maxmemory"]);
        assert_eq!(
            said.split_whitespace().last(),
            Some("0"),
            "{action}: {said}"
        );
    }
}

/// An acting balancer would resize both at once, because together they exceed the target.
#[test]
fn who_watches_leaves_servers_above_the_target() {
    let test = "who_watches_leaves_servers_above_the_target";
    let (Some(_), Some(program)) = (mariadb::programs(), find_program(&["memcached"])) else {
        return not_run(test, "mariadb-server and memcached are not both installed");
    };
    let mariadb = FilledMariadb::start();
    let memcached = Memcached::start(&program, 300);
    let place = Place::new();
    for (action, flags) in WATCHING {
        let rules = rules(&mariadb, &memcached)
            .replace("target = '700M'", "target = '200M'")
            .replace("action = 'balance'", &format!("action = '{action}'"));
        let config = place.write("guard.toml", &rules);
        let arguments = [&["balance", "--config", &config][..], flags].concat();
        good(&place.hugeleaf(&arguments).output().unwrap());
        let size = |kind, address: &str| open(kind, address).observe().unwrap().size;
        assert_eq!(size("mariadb", &mariadb.address()), mib(256), "{action}");
        assert_eq!(
            size("memcached", &memcached.address()),
            mib(300),
            "{action}"
        );
    }
}

/// Nobody listens at the address of the server.
#[test]
fn a_pass_without_an_answer_is_exit_status_1() {
    let place = Place::new();
    for (action, flags) in [("balance", &["--once"][..]), WATCHING[0], WATCHING[1]] {
        let rules = redis_rules(action, &place.path("nobody.sock"), "");
        let config = place.write("guard.toml", &rules);
        let arguments = [&["balance", "--config", &config][..], flags].concat();
        let output = place.hugeleaf(&arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
        assert!(stdout(&output).contains("not reached yet"), "{action}");
    }
}

#[test]
fn redis_is_never_set_below_what_it_may_not_evict() {
    let test = "redis_is_never_set_below_what_it_may_not_evict";
    if redis_server::program().is_none() {
        return not_run(test, "redis-server is not installed");
    }
    let redis = FilledRedis::start();
    let mut server = open("redis", &redis.address());
    let look = server.observe().unwrap();
    assert!(look.fixed.unwrap().contains("set_limit"));
    assert_eq!(look.pid.map(|pid| pid.0), Some(redis.server.pid()));
    redis.send(&["CONFIG", "SET", "maxmemory", "1gb"]);
    redis.send(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
    let look = server.observe().unwrap();
    // First seen without a limit, it has the one that its owner set since.
    assert!(look.fixed.is_none() && look.floor == mib(1024));
    let error = server.resize(mib(64)).unwrap_err();
    assert!(error.what.contains("would make writes fail"), "{error}");
    assert_eq!(server.observe().unwrap().size, mib(1024));
    // With everything evictable, it shrinks.
    redis.send(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]);
    server.resize(mib(64)).unwrap();
    wait_until("it has evicted", || {
        // Redis counts some of its buffers as used but does not evict for them.
        server.observe().unwrap().used.unwrap() <= mib(65)
    });
    server.give_back().unwrap();
    let said = redis.send(&["SET", "a", "b"]);
    assert!(said.to_lowercase().contains("ok"), "{said}");
}

#[test]
fn memcached_gives_memory_back() {
    let test = "memcached_gives_memory_back";
    let Some(program) = find_program(&["memcached"]) else {
        return not_run(test, "memcached is not installed");
    };
    let memcached = Memcached::start(&program, 128);
    memcached.fill(160);
    let pid = memcached.server.pid();
    let mut server = open("memcached", &memcached.address());
    let look = server.observe().unwrap();
    assert_eq!(
        (look.size, look.pid.map(|pid| pid.0)),
        (mib(128), Some(pid))
    );
    let before = resident(pid);
    server.resize(mib(64)).unwrap();
    wait_until("half of it is back", || {
        server.give_back().unwrap();
        resident(pid) + mib(48) < before && server.observe().unwrap().used.unwrap() <= mib(65)
    });
}

#[test]
fn a_jvm_is_resized_where_its_collector_obeys() {
    let test = "a_jvm_is_resized_where_its_collector_obeys";
    let (Some(java), Some(_)) = (jvm::program(), find_program(&["jcmd"])) else {
        return not_run(test, "no JDK with jcmd is installed");
    };
    // Only the JVMs of this test have the property in their command lines.
    let start = |collector: &str| {
        let flags = [collector, "-Dof=balance-test", "-Xms64m", "-Xmx512m"];
        Jvm::waiting(&java, &flags).unwrap()
    };
    let obeys = start("-XX:+UseZGC");
    let mut server = open("jvm", &obeys.pid().to_string());
    let look = server.observe().unwrap();
    assert_eq!(
        (look.size, look.ceiling, look.fixed),
        (mib(512), Some(mib(512)), None)
    );
    server.resize(mib(200)).unwrap();
    assert_eq!(server.observe().unwrap().size, mib(200));
    let not = start("-XX:+UseSerialGC");
    let look = open("jvm", &not.pid().to_string()).observe().unwrap();
    assert!(look.fixed.unwrap().contains("(Serial) does not obey"));
    let error = open("jvm", "balance-test").observe().unwrap_err();
    assert!(error.what.contains("2 JVMs have 'balance-test'"), "{error}");
}

/// Returns rules for a target with a busy MariaDB and an empty memcached.
fn rules(mariadb: &FilledMariadb, memcached: &Memcached) -> String {
    format!(
        "schema = 1\nlisten = 'off'\npause_memory = '1000%'\n[[balance]]\nname = 'both'\ntarget = '700M'\naction = 'balance'\nevery = '1s'\n\
         [[balance.component]]\nname = 'db'\nkind = 'mariadb'\naddress = '{}'\nleast = '64M'\nmost = '600M'\n\
         [[balance.component]]\nname = 'cache'\nkind = 'memcached'\naddress = '{}'\nleast = '64M'\nmost = '400M'\n",
        mariadb.address(),
        memcached.address()
    )
}

#[test]
fn memory_goes_to_whom_it_is_worth_most_and_a_kill_leaves_it_there() {
    if left_to_all("memory_goes_to_whom_it_is_worth_most_and_a_kill_leaves_it_there") {
        return;
    }
    let test = "memory_goes_to_whom_it_is_worth_most_and_a_kill_leaves_it_there";
    let Some(_host) = kit::can_run(test) else {
        return;
    };
    let (Some(_), Some(program)) = (mariadb::programs(), find_program(&["memcached"])) else {
        return not_run(test, "mariadb-server and memcached are not both installed");
    };
    let mut mariadb = FilledMariadb::start();
    let memcached = Memcached::start(&program, 300);
    memcached.fill(8);
    let place = Place::new();
    let config = place.write("guard.toml", &rules(&mariadb, &memcached));
    let said = dry_run(&place, &config);
    let parts = said["balance"][0]["components"].as_array().unwrap();
    assert_eq!(parts[0]["size_bytes"], 256 << 20, "{said}");
    assert_eq!(parts[1]["size_bytes"], 300 << 20, "{said}");
    let servers = [mariadb.server.pid(), memcached.server.pid()];
    assert_a_shared_limit_is_divided(&place, &config, servers, test);
    let load = mariadb.load();
    let child = place
        .hugeleaf(&["balance", "--config", &config])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut balancer = ChildGuard(child);
    let (mut db, mut cache) = (
        open("mariadb", &mariadb.address()),
        open("memcached", &memcached.address()),
    );
    let mut sizes = || (db.observe().unwrap().size, cache.observe().unwrap().size);
    wait_until("the database has got a part", || {
        let (db, cache) = sizes();
        assert!(db + cache <= mib(700), "{db} and {cache}");
        db >= mib(300)
    });
    // A host can have only one balancer.
    let second = place
        .hugeleaf(&["balance", "--config", &config])
        .output()
        .unwrap();
    refused(&second, 3, &["another balancer runs on this host"]);
    balancer.0.kill().unwrap();
    balancer.0.wait().unwrap();
    let (db, cache) = sizes();
    assert!(db + cache <= mib(700) && db >= mib(300), "{db} and {cache}");
    let rules = rules(&mariadb, &memcached);
    let mut db = open("mariadb", &mariadb.address());
    assert_the_target_holds_where_a_server_is_killed(&place, &rules, &mut *db, memcached, &program);
    load.assert_healthy();
    assert!(load.end() > 0);
    mariadb.server.assert_no_complaint(&mariadb::COMPLAINTS);
}

/// Returns the guard's state of a server.
fn standing(guard: &Guarding<'_>, name: &str) -> String {
    let status = guard.status();
    let parts = status["balance"][0]["components"].as_array().unwrap();
    let part = parts.iter().find(|part| part["name"] == name).unwrap();
    part["standing"].as_str().unwrap().to_owned()
}

/// If both servers share a cgroup smaller than the target, its limit is divided.
fn assert_a_shared_limit_is_divided(place: &Place, config: &str, servers: [u32; 2], test: &str) {
    // Memory already charged to another cgroup stays there, so the limit applies to the rest.
    let Some(cgroup) = MemoryCgroup::new("hugeleaf-balance-test", mib(200)) else {
        return not_run(
            &format!("the part of {test} with a cgroup"),
            "needs the memory controller",
        );
    };
    let usable = || {
        let said = dry_run(place, config);
        let target = &said["balance"][0];
        let problems = target["problems"].as_array().unwrap();
        let problems: Vec<_> = problems.iter().filter_map(|p| p.as_str()).collect();
        (
            target["usable_bytes"].as_u64().unwrap(),
            problems.join("; "),
        )
    };
    cgroup.add(servers[0]);
    let (before, problems) = usable();
    assert!(!problems.contains("cgroup"), "{problems}");
    cgroup.add(servers[1]);
    let (after, problems) = usable();
    assert!(problems.contains("hugeleaf-balance-test"), "{problems}");
    assert!(after < before, "{before} and {after}");
}

fn dry_run(place: &Place, config: &str) -> serde_json::Value {
    let arguments = [
        "balance",
        "--config",
        config,
        "--once",
        "--dry-run",
        "--json",
    ];
    let output = place.hugeleaf(&arguments).output().unwrap();
    serde_json::from_slice(&output.stdout).unwrap()
}

/// A balancing guard, and a server that is killed and returns with more than the target has left by then.
fn assert_the_target_holds_where_a_server_is_killed(
    place: &Place,
    rules: &str,
    db: &mut dyn Balanced,
    memcached: Memcached,
    program: &std::path::Path,
) {
    let guard = Guarding::start(place, rules);
    guard.wait_for("both are reached", |status| {
        let parts = status["balance"][0]["components"].as_array();
        parts.is_some_and(|parts| parts.iter().all(|part| part["size_bytes"].is_u64()))
    });
    memcached.server.kill();
    wait_until("the guard has seen that it is gone", || {
        standing(&guard, "cache").contains("no answer for")
    });
    let port = memcached.port;
    drop(memcached);
    let memcached = Memcached::start_on(port, program, 600);
    assert!(db.observe().unwrap().size > mib(100));
    let mut cache = open("memcached", &memcached.address());
    wait_until("both are within the target again", || {
        db.observe().unwrap().size + cache.observe().unwrap().size <= mib(700)
    });
    guard.end();
}
