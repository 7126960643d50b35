//! Throughput that a server under load loses during its promotion with the default budget.
//!
//! Each round has three intervals of equal length: two without any action, and one in which the
//! server is promoted. The figure is the worst 3 s of the third relative to those of the second.
//! The second relative to the first shows the effect of chance alone. Clients send requests without
//! pause, so that every effect of the promotion is visible.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use mysql::prelude::Queryable;
use serde_json::Value;

use crate::clients::{Clients, Interval, Operation};
use crate::record::{Record, median, version};
use crate::{Failed, HUGELEAF, Mode};
use hugeleaf_testkit::find_program;
use hugeleaf_testkit::mariadb::install_on;
use hugeleaf_testkit::redis_server::settings_on;
use hugeleaf_testkit::server::{
    Server, ServerAccount, ShutdownSignals, as_account, folder_for, prepare,
};

/// Number of MariaDB's clients per processor.
const CLIENTS_A_PROCESSOR: usize = 4;

/// A server for a load.
struct Subject {
    name: &'static str,
    server: Server,
    clients: usize,
    connect: fn(&Path, u64, u64) -> Result<Operation, String>,
    socket: PathBuf,
    rows: u64,
    version: String,
}

/// Runs the benchmark for both servers.
pub fn run(mode: Mode, out: &Path) -> Result<(), Failed> {
    if hugeleaf_sys::effective_uid() != 0 {
        println!("not run: servers: needs root to start servers as their own accounts");
        return Ok(());
    }
    let lock = Path::new("/run/lock/hugeleaf.lock");
    let _lock = hugeleaf_sys::lock_host(lock, true)?;
    match hugeleaf_testkit::mariadb::programs() {
        Some((program, install)) => measure(&mariadb(mode, &program, &install)?, mode, out)?,
        None => println!("not run: mariadb: it is not installed"),
    }
    match find_program(&["redis-server"]) {
        Some(program) => measure(&redis(mode, &program)?, mode, out)?,
        None => println!("not run: redis: it is not installed"),
    }
    Ok(())
}

fn measure(subject: &Subject, mode: Mode, out: &Path) -> Result<(), Failed> {
    let (rounds, settle) = match mode {
        Mode::Full => (9, 5.0),
        Mode::Smoke => (1, 0.2),
    };
    let mut record = Record::new(subject.name, "make bench");
    record.figure("server", subject.version.as_str());
    // The first promotion only determines the duration of one.
    let mut length = promote(subject, mode)?.seconds;
    let mut figures = Figures::default();
    for round in 0..rounds {
        demote(subject)?;
        let clients = Clients::start(subject.clients, {
            let (connect, socket, rows) = (subject.connect, subject.socket.clone(), subject.rows);
            move |seed| connect(&socket, rows, seed)
        });
        sleep(settle + 2.0 * (length + 1.0));
        let before = clients.now();
        let promoted = promote(subject, mode)?;
        let after = clients.now();
        length = after - before;
        let log = clients.end()?;
        let from = |intervals: f64| (before - intervals * length).max(settle);
        let intervals = [
            ("still, first", log.interval(from(2.0), from(1.0))),
            ("still, second", log.interval(from(1.0), before)),
            ("promoting", log.interval(before, after)),
        ];
        for (label, interval) in &intervals {
            record.arm(
                format!("{label}, round {round}"),
                "operations/s",
                &interval.rates,
            );
        }
        figures.add(&intervals.map(|(_, interval)| interval), promoted);
    }
    figures.record(&mut record);
    record.write(out)?;
    Ok(())
}

/// Figures round by round.
#[derive(Default)]
struct Figures {
    worst: [Vec<f64>; 3],
    p99: [Vec<f64>; 3],
    longest: [Vec<f64>; 3],
    seconds: Vec<f64>,
    done: Vec<f64>,
}

impl Figures {
    fn add(&mut self, intervals: &[Interval; 3], promoted: Promoted) {
        for (i, interval) in intervals.iter().enumerate() {
            self.worst[i].push(interval.worst(3.0));
            self.p99[i].push(interval.p99_seconds);
            self.longest[i].push(interval.longest_seconds);
        }
        self.seconds.push(promoted.seconds);
        self.done.push(promoted.done_bytes);
    }

    fn record(&self, record: &mut Record) {
        let ratios = |a: usize, b: usize| -> Vec<f64> {
            let (above, below) = (&self.worst[a], &self.worst[b]);
            above.iter().zip(below).map(|(a, b)| a / b).collect()
        };
        let (promoting, chance) = (ratios(2, 1), ratios(1, 0));
        record.figure(
            "worst 3 s, promoting over still, median",
            median(&promoting),
        );
        record.figure("worst 3 s, promoting over still, by round", promoting);
        record.figure("worst 3 s, still over still, by round", chance);
        for (i, label) in ["still, first", "still, second", "promoting"]
            .iter()
            .enumerate()
        {
            record.figure(
                format!("p99, {label}, seconds, median"),
                median(&self.p99[i]),
            );
            record.figure(
                format!("p99, {label}, seconds, by round"),
                self.p99[i].clone(),
            );
            let longest = self.longest[i].iter().copied().fold(0.0, f64::max);
            record.figure(format!("longest wait, {label}, seconds"), longest);
        }
        record.figure("promotion, seconds, by round", self.seconds.clone());
        record.figure("promoted, bytes, by round", self.done.clone());
    }
}

struct Promoted {
    seconds: f64,
    done_bytes: f64,
}

/// Promotes with the default budget, which is measured; a smoke run need not take that long.
fn promote(subject: &Subject, mode: Mode) -> Result<Promoted, Failed> {
    let pid = subject.server.pid().to_string();
    let json = match mode {
        Mode::Full => answer(&["promote", "--switch-thp-on", "--json", &pid])?,
        Mode::Smoke => answer(&[
            "promote",
            "--switch-thp-on",
            "--budget",
            "100%",
            "--json",
            &pid,
        ])?,
    };
    let processes = json["processes"].as_array().cloned().unwrap_or_default();
    let sum = |name: &str| processes.iter().filter_map(|p| p[name].as_f64()).sum();
    Ok(Promoted {
        seconds: sum("seconds"),
        done_bytes: sum("done_bytes"),
    })
}

fn demote(subject: &Subject) -> Result<(), Failed> {
    let pid = subject.server.pid().to_string();
    answer(&["demote", "--budget", "100%", "--json", &pid]).map(|_| ())
}

/// Runs hugeleaf; an incomplete promotion (status 1) is an answer too.
fn answer(arguments: &[&str]) -> Result<Value, Failed> {
    let output = Command::new(HUGELEAF).args(arguments).output()?;
    if !matches!(output.status.code(), Some(0 | 1)) {
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        return Err(format!("{arguments:?}: {text}").into());
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

fn sleep(seconds: f64) {
    std::thread::sleep(Duration::from_secs_f64(seconds));
}

/// Starts MariaDB with a buffer pool full of the requested rows.
fn mariadb(mode: Mode, program: &Path, install: &Path) -> Result<Subject, Failed> {
    // Rows of slightly more than 700 bytes fill the pool.
    let (pool, rows) = match mode {
        Mode::Full => ("384M", 400_000),
        Mode::Smoke => ("64M", 40_000),
    };
    let account = ServerAccount::first_of(&["mysql", "nobody"]);
    let folder = folder_for(account);
    let data = format!("--datadir={}", folder.path().join("data").display());
    prepare(install_on(
        &mut as_account(account, install, folder.path()),
        &folder.path().join("data"),
    ));
    let socket = folder.path().join("mariadb.sock");
    let mut command = as_account(account, program, folder.path());
    command
        .args(["--no-defaults", &data])
        .arg(format!("--socket={}", socket.display()))
        .arg(format!("--innodb-buffer-pool-size={pool}"))
        .args(MARIADB)
        .arg("--innodb-log-file-size=1G");
    let server = Server::start(&mut command, folder, ShutdownSignals::TERM, || {
        open_mariadb(&socket).is_ok()
    });
    let mut connection = open_mariadb(&socket)?;
    for statement in [
        "CREATE DATABASE t".to_owned(),
        "CREATE TABLE t.rows (id INT PRIMARY KEY, changes INT, text VARCHAR(700) CHARACTER SET \
         latin1) ENGINE=InnoDB"
            .to_owned(),
        "USE t".to_owned(),
        format!("INSERT INTO t.rows SELECT seq, 0, REPEAT('.', 700) FROM seq_1_to_{rows}"),
        "SELECT SUM(LENGTH(text)) FROM t.rows".to_owned(),
    ] {
        connection.query_drop(&statement)?;
    }
    Ok(Subject {
        name: "promote-mariadb",
        server,
        // More clients than processors, so that no processor is idle. With two clients on two
        // processors each round trip may wait for a wakeup, depending on the scheduler's placement:
        // 92,000 or 25,000 a second, alternating every half second, independent of other work.
        clients: CLIENTS_A_PROCESSOR * std::thread::available_parallelism().map_or(1, usize::from),
        connect: mariadb_client,
        socket,
        rows,
        version: version(program),
    })
}

/// Options of MariaDB on a Unix socket, with little influence of the disk.
pub const MARIADB: [&str; 6] = [
    "--skip-networking",
    "--skip-log-bin",
    "--performance-schema=OFF",
    "--innodb-flush-log-at-trx-commit=0",
    "--innodb-doublewrite=OFF",
    "--innodb-flush-method=fsync",
];

pub fn open_mariadb(socket: &Path) -> Result<mysql::Conn, mysql::Error> {
    let options = mysql::OptsBuilder::new()
        .user(Some("root"))
        .socket(Some(socket.display().to_string()));
    mysql::Conn::new(options)
}

/// Reads a random row; every tenth operation changes one.
fn mariadb_client(socket: &Path, rows: u64, seed: u64) -> Result<Operation, String> {
    let mut connection = open_mariadb(socket).map_err(|e| e.to_string())?;
    let mut random = fastrand::Rng::with_seed(seed);
    Ok(Box::new(move || {
        let id = random.u64(1..=rows);
        let statement = if random.u8(0..10) == 0 {
            format!("UPDATE t.rows SET changes = changes + 1 WHERE id = {id}")
        } else {
            format!("SELECT changes, text FROM t.rows WHERE id = {id}")
        };
        connection
            .query_drop(&statement)
            .map_err(|e| e.to_string())?;
        Ok(1)
    }))
}

/// Starts Redis with all of its keys in memory.
fn redis(mode: Mode, program: &Path) -> Result<Subject, Failed> {
    let keys = match mode {
        Mode::Full => 1_000_000,
        Mode::Smoke => 100_000,
    };
    let account = ServerAccount::first_of(&["redis", "nobody"]);
    let folder = folder_for(account);
    let socket = folder.path().join("redis.sock");
    let mut command = as_account(account, program, folder.path());
    settings_on(&mut command, folder.path());
    let server = Server::start(&mut command, folder, ShutdownSignals::TERM, || {
        open_redis(&socket).is_ok()
    });
    let mut connection = open_redis(&socket)?;
    let value = ".".repeat(400);
    for first in (0..keys).step_by(1000) {
        let mut batch = redis::pipe();
        for key in first..first + 1000 {
            batch.cmd("SET").arg(key).arg(&value).ignore();
        }
        batch.query::<()>(&mut connection)?;
    }
    Ok(Subject {
        name: "promote-redis",
        server,
        clients: 1,
        connect: redis_client,
        socket,
        rows: keys,
        version: version(program),
    })
}

pub fn open_redis(socket: &Path) -> redis::RedisResult<redis::Connection> {
    redis::Client::open(format!("redis+unix://{}", socket.display()))?.get_connection()
}

/// Sends sixteen requests at a time: reads of random keys, and one write in place.
fn redis_client(socket: &Path, keys: u64, seed: u64) -> Result<Operation, String> {
    const PAIRS_PER_SESSION: u32 = 16;
    let mut connection = open_redis(socket).map_err(|e| e.to_string())?;
    let mut random = fastrand::Rng::with_seed(seed);
    let value = ",".repeat(400);
    Ok(Box::new(move || {
        let mut batch = redis::pipe();
        for _ in 1..PAIRS_PER_SESSION {
            batch.cmd("GET").arg(random.u64(0..keys)).ignore();
        }
        batch
            .cmd("SET")
            .arg(random.u64(0..keys))
            .arg(&value)
            .ignore();
        batch
            .query::<()>(&mut connection)
            .map_err(|e| e.to_string())?;
        Ok(PAIRS_PER_SESSION)
    }))
}
