//! Metrics read from real servers on Unix sockets, and from pages and commands of the test; if a server is not installed
//! the test prints "not run".

use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hugeleaf_ask::{mysql, postgres, redis};
use hugeleaf_proof::metric::{Metric, MetricError, MetricSpec, Reading, ReadingKind, between};
use hugeleaf_proof::stats::BetterDirection;
use hugeleaf_sys::Deadline;
use hugeleaf_testkit::mariadb::MariadbServer;
use hugeleaf_testkit::postgresql::PostgresServer;
use hugeleaf_testkit::redis_server::RedisServer;
use hugeleaf_testkit::server::{ServerError, ServerSettings};
use hugeleaf_testkit::{eventually, not_run};

/// Maximum duration of any request of a test.
const DEADLINE: Duration = Duration::from_secs(60);

fn metric(spec: &str) -> Result<Metric, MetricError> {
    spec.parse::<MetricSpec>()
        .unwrap()
        .open(&[], &AtomicBool::new(false))
}

fn refused(spec: &str) -> MetricError {
    match metric(spec) {
        Ok(_) => panic!("{spec} was opened"),
        Err(e) => e,
    }
}

fn count(metric: &mut Metric) -> f64 {
    match metric.read(&AtomicBool::new(false)).unwrap() {
        Reading::Counter(n) => n,
        other => panic!("{other:?}"),
    }
}

/// Serves one page for any request until the test ends.
fn serve(page: &str) -> (String, Arc<Mutex<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}/metrics", listener.local_addr().unwrap());
    let page = Arc::new(Mutex::new(page.to_owned()));
    let served = Arc::clone(&page);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut request = [0; 4096];
            let _ = stream.read(&mut request);
            let body = served.lock().unwrap().clone();
            let _ = write!(
                stream,
                "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
                body.len()
            );
        }
    });
    (address, page)
}

const PAGE: &str = r#"# TYPE done_total counter
done_total{shard="a"} 10
done_total{shard="b"} 20
# TYPE wait gauge
wait 0.25
# TYPE request_seconds histogram
request_seconds_bucket{le="0.1"} 0
request_seconds_bucket{le="0.2"} 0
request_seconds_bucket{le="+Inf"} 0
"#;

#[test]
fn http_by_type() {
    let (url, page) = serve(PAGE);
    let mut m = metric(&format!("{url}#done_total")).unwrap();
    assert_eq!(
        (m.kind, m.better),
        (ReadingKind::Counter, BetterDirection::Higher)
    );
    assert_eq!(count(&mut m), 30.0);
    let mut m = metric(&format!("{url}#done_total{{shard=\"b\"}}")).unwrap();
    assert_eq!(count(&mut m), 20.0);
    let mut m = metric(&format!("gauge:lower:{url}#wait")).unwrap();
    assert_eq!(
        (m.kind, m.better),
        (ReadingKind::Gauge, BetterDirection::Lower)
    );
    assert_eq!(m.read(&AtomicBool::new(false)), Ok(Reading::Gauge(0.25)));
    let mut m = metric(&format!("{url}#p50(request_seconds)")).unwrap();
    assert_eq!(
        (m.kind, m.better),
        (ReadingKind::Quantile, BetterDirection::Lower)
    );
    assert_eq!(m.unit, "s");
    let before = m.read(&AtomicBool::new(false)).unwrap();
    *page.lock().unwrap() = PAGE
        .replace("le=\"0.2\"} 0", "le=\"0.2\"} 10")
        .replace("le=\"+Inf\"} 0", "le=\"+Inf\"} 10");
    let after = m.read(&AtomicBool::new(false)).unwrap();
    let p50 = between("m", &before, &after, Duration::from_secs(1)).unwrap();
    assert!((p50 - 0.15).abs() < 1e-9, "{p50}");
}

#[test]
fn http_failures() {
    let (url, page) = serve(PAGE);
    for (spec, says) in [
        (format!("{url}#wait"), "gauge"),
        (format!("gauge:lower:{url}#done_total"), "counter"),
        (format!("{url}#nothing"), "no series"),
        (format!("{url}#p99(done_total)"), "not a histogram"),
    ] {
        let e = refused(&spec);
        assert!(matches!(e, MetricError::Garbage { .. }), "{spec}: {e}");
        assert!(e.to_string().contains(says), "{spec}: {e}");
        assert!(!e.next().is_empty());
    }
    *page.lock().unwrap() = "<html>not found</html>".into();
    let e = refused(&format!("{url}#done_total"));
    assert!(matches!(e, MetricError::Garbage { .. }), "{e}");
    // A port that is no longer listened on.
    let free = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let e = refused(&format!("http://{free}/#x"));
    assert!(matches!(e, MetricError::Unreachable { .. }), "{e}");
}

#[test]
fn commands_count() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("count");
    std::fs::write(&file, "5\n").unwrap();
    let mut m = metric(&format!("cmd:cat {}", file.display())).unwrap();
    assert_eq!(count(&mut m), 5.0);
    std::fs::remove_file(&file).unwrap();
    let e = m.read(&AtomicBool::new(false)).unwrap_err();
    assert!(matches!(e, MetricError::Unreachable { .. }), "{e}");
    assert!(e.next().contains("No such file"), "{e}");
}

#[test]
fn servers_that_are_not_there() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().display();
    for spec in [
        format!("redis:{path}/no.sock"),
        format!("mysql:{path}/no.sock"),
        format!("postgres:host={path} user=x"),
        "postgres:nonsense".to_owned(),
    ] {
        let e = refused(&spec);
        assert!(matches!(e, MetricError::Unreachable { .. }), "{spec}: {e}");
        assert!(!e.to_string().contains('\n'), "{e}");
        assert!(!e.next().is_empty());
    }
}

/// Returns the server, or `None` with a message that it is not installed.
fn started<S>(test: &str, server: Result<S, ServerError>) -> Option<S> {
    match server {
        Ok(server) => Some(server),
        Err(e @ ServerError::NotInstalled { .. }) => {
            not_run(test, &e.to_string());
            None
        }
        Err(e) => panic!("{e:?}"),
    }
}

#[test]
fn redis_without_its_own_commands() {
    let server = RedisServer::start(&ServerSettings::default());
    let Some(server) = started("redis_without_its_own_commands", server) else {
        return;
    };
    let socket = server.socket();
    let spec = format!("redis:{}", socket.display());
    let mut m = eventually(|| metric(&spec));
    let address = redis::RedisAddress::parse(&socket.display().to_string()).unwrap();
    let mut client = redis::RedisConnection::open(&address, Deadline::new(DEADLINE)).unwrap();
    let before = count(&mut m);
    assert_eq!(count(&mut m), before, "its own reading counts");
    for i in 0..500 {
        client
            .command(&["SET", "key", &i.to_string()], Deadline::new(DEADLINE))
            .unwrap();
    }
    assert_eq!(count(&mut m) - before, 500.0);
    drop(server);
    let e = m.read(&AtomicBool::new(false)).unwrap_err();
    assert!(matches!(e, MetricError::Unreachable { .. }), "{e}");
}

#[test]
fn postgres_without_its_own_transactions() {
    let server = PostgresServer::start(&ServerSettings::default());
    let Some(server) = started("postgres_without_its_own_transactions", server) else {
        return;
    };
    let dsn = server.dsn();
    let mut m = eventually(|| metric(&format!("postgres:{dsn}")));
    assert!(m.least_interval >= Duration::from_secs(5));
    let idle = count(&mut m);
    for _ in 0..3 {
        // Readings as far apart as those of an interval.
        hugeleaf_testkit::pause(
            Duration::from_millis(1200),
            "its own transactions must not be counted",
        );
        assert_eq!(count(&mut m), idle, "its own transactions count");
    }
    let address = postgres::PostgresAddress::parse(&dsn).unwrap();
    let mut client = postgres::PostgresConnection::open(&address, Deadline::new(DEADLINE)).unwrap();
    for _ in 0..200 {
        client.query("SELECT 1", Deadline::new(DEADLINE)).unwrap();
    }
    // A session's work is reported at its end at the latest.
    drop(client);
    let counted = eventually(|| {
        let counted = count(&mut m) - idle;
        if counted >= 200.0 {
            Ok(counted)
        } else {
            Err(format!("{counted} of 200"))
        }
    });
    // Connecting is a transaction or two.
    assert!(counted <= 205.0, "{counted}");
    postgres_logins(server.folder());
    drop(server);
}

#[test]
fn mysql_without_its_own_statements() {
    let server = MariadbServer::start(&ServerSettings::default());
    let Some(server) = started("mysql_without_its_own_statements", server) else {
        return;
    };
    let url = server.address();
    let spec = format!("mysql:{url}");
    let mut m = eventually(|| metric(&spec));
    let mut commits = metric(&format!("{spec}#Com_commit+Com_rollback")).unwrap();
    let e = metric(&format!("{spec}#No_such_variable"))
        .unwrap()
        .read(&AtomicBool::new(false))
        .unwrap_err();
    assert!(matches!(e, MetricError::Garbage { .. }), "{e}");
    let address = mysql::MysqlAddress::parse(&url).unwrap();
    let mut client = mysql::MysqlConnection::open(&address, Deadline::new(DEADLINE)).unwrap();
    // The failed session ends with a delay, and its end counts.
    eventually(|| {
        let twice = [count(&mut m), count(&mut m)];
        hugeleaf_testkit::pause(Duration::from_millis(300), "no other session may end");
        match twice == [count(&mut m); 2] {
            true => Ok(()),
            false => Err("others are still counted"),
        }
    });
    let (before, committed) = (count(&mut m), count(&mut commits));
    let later = count(&mut m);
    // The two statements of the other metric's session count.
    assert_eq!(later - before, 2.0, "its own statements count");
    for _ in 0..300 {
        client.query("DO 1", Deadline::new(DEADLINE)).unwrap();
    }
    assert_eq!(count(&mut m) - later, 300.0);
    assert_eq!(count(&mut commits), committed);
    client.query("BEGIN", Deadline::new(DEADLINE)).unwrap();
    client.query("COMMIT", Deadline::new(DEADLINE)).unwrap();
    assert_eq!(count(&mut commits) - committed, 1.0);
    mysql_logins(&mut client, &server.socket());
    drop(server);
    let e = m.read(&AtomicBool::new(false)).unwrap_err();
    assert!(matches!(e, MetricError::Unreachable { .. }), "{e}");
}

/// A password is checked by each of the server's methods, and never shown.
fn postgres_logins(folder: &Path) {
    let of = |user: &str| format!("host={} dbname=postgres {user}", folder.display());
    let address = postgres::PostgresAddress::parse(&of("user=postgres")).unwrap();
    let mut client = postgres::PostgresConnection::open(&address, Deadline::new(DEADLINE)).unwrap();
    for (kind, way) in [
        ("scram-sha-256", "scram-sha-256"),
        ("md5", "md5"),
        ("scram-sha-256", "password"),
    ] {
        let user = format!("by_{}", &way[..3]);
        client
            .query(
                &format!("SET password_encryption = '{kind}'"),
                Deadline::new(DEADLINE),
            )
            .unwrap();
        client
            .query(
                &format!("CREATE ROLE {user} LOGIN PASSWORD 'se''cret'"),
                Deadline::new(DEADLINE),
            )
            .unwrap();
        let file = folder.join("data/pg_hba.conf");
        let rules = std::fs::read_to_string(&file).unwrap();
        std::fs::write(&file, format!("local all {user} {way}\n{rules}")).unwrap();
        client
            .query("SELECT pg_reload_conf()", Deadline::new(DEADLINE))
            .unwrap();
        let wrong = format!("postgres:{}", of(&format!("user={user} password=nonsense")));
        // The server rereads its rules with a delay.
        let refusal = eventually(|| match metric(&wrong) {
            Ok(_) => Err("a wrong password was taken"),
            Err(e) => Ok(e.to_string()),
        });
        assert!(
            refusal.contains("authentication failed"),
            "{way}: {refusal}"
        );
        assert!(!refusal.contains("nonsense"), "{refusal}");
        let none = refused(&format!("postgres:{}", of(&format!("user={user}"))));
        assert!(none.to_string().contains("asks for a password"), "{none}");
        let right = of(&format!(r"user={user} password='se\'cret'"));
        count(&mut metric(&format!("postgres:{right}")).unwrap());
    }
}

/// Logins of MariaDB: passwords are checked, and never shown.
fn mysql_logins(client: &mut mysql::MysqlConnection, socket: &Path) {
    client
        .query(
            "CREATE USER me@localhost IDENTIFIED BY 'se''cret'",
            Deadline::new(DEADLINE),
        )
        .unwrap();
    let of = |login: &str| format!("mysql://{login}@localhost?socket={}", socket.display());
    count(&mut metric(&of("me:se%27cret")).unwrap());
    let e = refused(&of("me:nonsense")).to_string();
    assert!(e.contains("ERROR 1045 (28000): Access denied"), "{e}");
    assert!(!e.contains("nonsense"), "{e}");
    // A plugin that trusts the socket: the user of this test is a different one.
    client
        .query(
            "CREATE USER other@localhost IDENTIFIED VIA unix_socket",
            Deadline::new(DEADLINE),
        )
        .unwrap();
    let e = refused(&of("other")).to_string();
    assert!(e.contains("Access denied"), "{e}");
}

/// Reads a metric of a hung server until the reading is stopped: the error is about the stop, not a timeout.
fn stopped(read: impl FnOnce(&AtomicBool) -> Result<(), MetricError> + Send, asked: impl Fn()) {
    let stop = AtomicBool::new(false);
    let error = std::thread::scope(|scope| {
        let reads = scope.spawn(|| read(&stop).unwrap_err());
        asked();
        stop.store(true, Ordering::Relaxed);
        reads.join().unwrap()
    });
    assert!(error.to_string().ends_with("stopped"), "{error}");
}

/// A process that is stopped until this is dropped.
struct Halted(rustix::process::Pid);

impl Halted {
    fn new(pid: u32) -> Halted {
        use rustix::process::{Pid, Signal, kill_process};
        let pid = Pid::from_raw(pid.cast_signed()).unwrap();
        kill_process(pid, Signal::STOP).unwrap();
        Halted(pid)
    }
}

impl Drop for Halted {
    fn drop(&mut self) {
        let _ = rustix::process::kill_process(self.0, rustix::process::Signal::CONT);
    }
}

#[test]
fn a_server_that_was_stopped_is_left_at_once() {
    let test = "a_server_that_was_stopped_is_left_at_once";
    if let Some(server) = started(test, RedisServer::start(&ServerSettings::default())) {
        let spec = format!("redis:{}", server.socket().display());
        let mut m = eventually(|| metric(&spec));
        let _halted = Halted::new(server.pid().unwrap());
        stopped(|stop| m.read(stop).map(drop), || {});
        let spec: MetricSpec = spec.parse().unwrap();
        stopped(|stop| spec.open(&[], stop)?.read(stop).map(drop), || {});
    }
    if let Some(server) = started(test, PostgresServer::start(&ServerSettings::default())) {
        let spec = format!("postgres:{}", server.dsn());
        let mut m = eventually(|| metric(&spec));
        let tree = hugeleaf_testkit::process_facts::tree(server.pid().unwrap());
        let _halted: Vec<Halted> = tree.into_iter().map(Halted::new).collect();
        stopped(|stop| m.read(stop).map(drop), || {});
        let spec: MetricSpec = spec.parse().unwrap();
        stopped(|stop| spec.open(&[], stop)?.read(stop).map(drop), || {});
    }
}

/// Each server answers a byte at a time, forever: within a line, a message, a page's head or body.
#[test]
fn a_server_that_trickles_is_left_at_once() {
    let starts = [
        ("redis:ADDRESS", ""),
        ("redis:ADDRESS", "$100000\r\n"),
        ("postgres:postgres://me@ADDRESS/x", "R"),
        ("mysql:me@ADDRESS", "J"),
        ("http://ADDRESS/#a", "HTTP/1.1 200 OK\r\nX-a: "),
        (
            "http://ADDRESS/#a",
            "HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n",
        ),
    ];
    for (spec, start) in starts {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let sent = Arc::new(AtomicBool::new(false));
        let trickles = Arc::clone(&sent);
        std::thread::spawn(move || {
            let mut stream = listener.accept().unwrap().0;
            let mut more = start.as_bytes().to_vec();
            while stream.write_all(&more).is_ok() {
                more = b"R".to_vec();
                trickles.store(true, Ordering::Relaxed);
                hugeleaf_testkit::pause(Duration::from_millis(10), "the rate of bytes");
            }
        });
        let spec: MetricSpec = spec.replace("ADDRESS", &address).parse().unwrap();
        stopped(
            |stop| spec.open(&[], stop)?.read(stop).map(drop),
            || hugeleaf_testkit::until("it trickles", || sent.load(Ordering::Relaxed)),
        );
    }
}

#[test]
fn a_command_that_does_not_end_is_left_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let began = dir.path().join("began");
    let mut m = metric(&format!("cmd:touch {}; sleep 600", began.display())).unwrap();
    stopped(
        |stop| m.read(stop).map(drop),
        || hugeleaf_testkit::until("it runs", || began.exists()),
    );
    // A child that leaves its group and keeps the pipe open is not waited for.
    let mut m = metric("cmd:setsid sleep 5 & echo 7").unwrap();
    assert_eq!(count(&mut m), 7.0);
}
