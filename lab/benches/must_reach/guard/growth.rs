//! Servers that grow by a gigabyte: the time until their memory is on huge pages again, and the cost for the server,
//! in comparison with no guard.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use mysql::prelude::Queryable;

use crate::clients::{Clients, Operation};
use crate::kit::{self, Guarding, Place};
use crate::record::{Record, median};
use crate::servers::{MARIADB, open_mariadb, open_redis};
use crate::{Asked, Failed, HUGELEAF, Mode};
use hugeleaf_testkit::host_lock::ExclusiveHost;
use hugeleaf_testkit::jvm::{self, Jvm};
use hugeleaf_testkit::mariadb::install_on;
use hugeleaf_testkit::redis_server::settings_on;
use hugeleaf_testkit::server::{
    Server, ServerAccount, ShutdownSignals, as_account, folder_for, prepare,
};
use hugeleaf_testkit::{ChildGuard, find_program, process_facts};

/// The mechanism that keeps a server on huge pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Arm {
    /// Base pages, without any mechanism.
    Nothing,
    /// The guard, with its default budget.
    Guard,
    /// khugepaged alone, with the kernel's defaults; `always` is set once the memory exists.
    Khugepaged,
    /// khugepaged alone without its pauses.
    Aggressive,
    /// `always` from the start.
    Always,
    /// `hugeleaf run`.
    Run,
}

const ARMS: [(Arm, &str); 6] = [
    (Arm::Nothing, "nothing"),
    (Arm::Guard, "guard"),
    (Arm::Khugepaged, "khugepaged"),
    (Arm::Aggressive, "khugepaged, aggressive"),
    (Arm::Always, "always"),
    (Arm::Run, "run"),
];

/// Coverage that a server must reach.
const ENOUGH: f64 = 0.95;

/// Sizes and durations.
struct Scale {
    grow_mib: u64,
    watch: Duration,
    settle: Duration,
}

/// Runs the benchmark.
#[expect(clippy::too_many_lines, reason = "one run")]
pub fn run(asked: &Asked) -> Result<(), Failed> {
    let Some(host) = kit::can_change("guard-growth") else {
        return Ok(());
    };
    let (scale, rounds) = match asked.mode {
        Mode::Full => (
            Scale {
                grow_mib: 1024,
                watch: Duration::from_secs(60),
                settle: Duration::from_secs(10),
            },
            asked.rounds(3),
        ),
        Mode::Smoke => (
            Scale {
                grow_mib: 64,
                watch: Duration::from_secs(2),
                settle: Duration::from_secs(1),
            },
            1,
        ),
    };
    let mut random = fastrand::Rng::with_seed(1);
    // --only names servers, arms or both. A smoke run takes one server, with a guard and without.
    let is_smoke = asked.mode == Mode::Smoke;
    let wants = |name: &str, all: &[&str]| {
        let named = all.iter().any(|one| asked.only.iter().any(|o| o == one));
        !named || asked.only.iter().any(|only| only == name)
    };
    let subjects = ["mariadb", "redis", "java"];
    let names = ARMS.map(|(_, name)| name);
    for subject in subjects {
        if !wants(subject, &subjects) || (is_smoke && subject != "redis") {
            continue;
        }
        let mut record = Record::new(format!("guard-growth-{subject}"), "make bench");
        let mut figures: Vec<Vec<Seen>> = ARMS.iter().map(|_| Vec::new()).collect();
        for round in 0..rounds {
            let arms = if is_smoke { 2 } else { ARMS.len() };
            let mut order: Vec<usize> = (0..arms).collect();
            order.retain(|at| wants(names[*at], &names));
            random.shuffle(&mut order);
            for at in order {
                let (arm, name) = ARMS[at];
                let Some(seen) = measure(subject, arm, &scale, &host)? else {
                    println!("not run: {subject}: it is not installed");
                    return Ok(());
                };
                println!("  {subject}, {name}, round {round}: {seen:.3?}");
                figures[at].push(seen);
            }
        }
        let mut loss: Vec<f64> = Vec::new();
        for ((_, name), seen) in ARMS.iter().zip(&figures) {
            let of = |value: fn(&Seen) -> f64| -> Vec<f64> { seen.iter().map(value).collect() };
            let (seconds, coverage) = (of(|s| s.seconds), of(|s| s.coverage));
            let (worst, steady) = (of(|s| s.worst), of(|s| s.steady));
            record.figure(
                format!("{name}: seconds to 95 %, median; coverage at the end; worst 3 s over the seconds before"),
                serde_json::json!([median(&seconds), median(&coverage), median(&worst)]),
            );
            loss.push(median(&worst));
            record.arm(format!("{name}: seconds to 95 %"), "s", &seconds);
            record.arm(format!("{name}: coverage"), "", &coverage);
            record.arm(format!("{name}: worst 3 s"), "", &worst);
            record.arm(format!("{name}: steady"), "operations/s", &steady);
        }
        record.figure(
            "worst 3 s with the guard over that with nothing",
            loss[1] / loss[0],
        );
        record.write(&asked.out)?;
    }
    Ok(())
}

/// Results of one sample.
#[derive(Debug)]
struct Seen {
    /// Seconds from the end of growth to sufficient coverage; infinite if never reached.
    seconds: f64,
    /// Coverage at the end.
    coverage: f64,
    /// Rate of the worst 3 s in the first half after growth, relative to the mean rate of the second half.
    worst: f64,
    /// Operations a second in the second half.
    steady: f64,
}

fn measure(
    subject: &str,
    arm: Arm,
    scale: &Scale,
    host: &ExclusiveHost,
) -> Result<Option<Seen>, Failed> {
    host.choose(
        "enabled",
        if arm == Arm::Always {
            "always"
        } else {
            "madvise"
        },
    );
    let place = Place::new();
    let Some(mut server) = open(subject, arm, scale)? else {
        return Ok(None);
    };
    let rules = format!(
        "schema = 1\nevery = '5s'\nlisten = 'off'\npause_cpu = '1000%'\n[[rule]]\nname = '{}'\naction = 'promote'\noverride = true\n",
        server.name()
    );
    let guard = (arm == Arm::Guard).then(|| Guarding::start(&place, &rules));
    let pid = server.pid();
    let clients = server.clients();
    std::thread::sleep(scale.settle);
    // It grows once it is covered, like a server that has run for a while.
    let began = Instant::now();
    while guard.is_some() && coverage(pid) < ENOUGH && began.elapsed() < scale.watch {
        std::thread::sleep(Duration::from_millis(500));
    }
    server.grow(scale.grow_mib)?;
    let _khugepaged = match arm {
        Arm::Khugepaged => Some(Khugepaged::set(host, &[])),
        Arm::Aggressive => Some(Khugepaged::without_pauses(host)),
        _ => None,
    };
    let (began, at) = (Instant::now(), clients.now());
    let mut seconds = f64::INFINITY;
    while began.elapsed() < scale.watch {
        if seconds.is_infinite() && coverage(pid) >= ENOUGH {
            seconds = began.elapsed().as_secs_f64();
        }
        std::thread::sleep(Duration::from_millis(500));
    }
    let covered = coverage(pid);
    let end = clients.now();
    let log = clients.end()?;
    let half = at + (end - at) / 2.0;
    let (first, last) = (log.interval(at, half), log.interval(half, end));
    let mean = |rates: &[f64]| {
        rates.iter().sum::<f64>() / f64::from(u32::try_from(rates.len()).unwrap_or(u32::MAX))
    };
    let steady = mean(&last.rates);
    if let Some(guard) = guard {
        guard.end();
    }
    Ok(Some(Seen {
        seconds,
        coverage: covered,
        worst: first.worst(3.0) / steady,
        steady,
    }))
}

/// Returns the coverage relative to the memory that could be on huge pages.
fn coverage(pid: u32) -> f64 {
    let movable = process_facts::promotable_kb(pid);
    process_facts::private_memory(pid, 8 << 10)
        .huge_kb
        .min(movable) as f64
        / movable.max(1) as f64
}

/// Settings of khugepaged; restored when dropped.
struct Khugepaged(Vec<(PathBuf, String)>);

impl Khugepaged {
    fn set(host: &ExclusiveHost, values: &[(&str, &str)]) -> Khugepaged {
        let folder = Path::new("/sys/kernel/mm/transparent_hugepage/khugepaged");
        let mut before = Vec::new();
        for (name, value) in values {
            let file = folder.join(name);
            before.push((
                file.clone(),
                std::fs::read_to_string(&file).unwrap_or_default(),
            ));
            let _ = std::fs::write(&file, value);
        }
        host.choose("enabled", "always");
        Khugepaged(before)
    }

    fn without_pauses(host: &ExclusiveHost) -> Khugepaged {
        Khugepaged::set(
            host,
            &[
                ("scan_sleep_millisecs", "0"),
                ("alloc_sleep_millisecs", "0"),
                ("pages_to_scan", "65536"),
            ],
        )
    }
}

impl Drop for Khugepaged {
    fn drop(&mut self) {
        for (file, value) in &self.0 {
            let _ = std::fs::write(file, value.trim());
        }
    }
}

/// A server of one of the three kinds.
enum Subject {
    MariaDb {
        server: Server,
        socket: PathBuf,
    },
    Redis {
        server: Server,
        socket: PathBuf,
    },
    Java {
        running: ChildGuard,
        input: ChildStdin,
        lines: Arc<Mutex<dyn Iterator<Item = u32> + Send>>,
    },
}

/// Size before growth.
const FIRST_MIB: u64 = 256;
const VALUE: usize = 1000;
/// Approximate memory per key.
const KEY: u64 = 1100;

impl Subject {
    fn name(&self) -> &'static str {
        match self {
            Subject::MariaDb { .. } => "mariadbd",
            Subject::Redis { .. } => "redis-server",
            Subject::Java { .. } => "java",
        }
    }

    fn pid(&self) -> u32 {
        match self {
            Subject::MariaDb { server, .. } | Subject::Redis { server, .. } => server.pid(),
            Subject::Java { running, .. } => running.0.id(),
        }
    }

    fn clients(&self) -> Clients {
        match self {
            Subject::MariaDb { socket, .. } => {
                let socket = socket.clone();
                Clients::start(2, move |seed| mariadb_client(&socket, seed))
            }
            Subject::Redis { socket, .. } => {
                let socket = socket.clone();
                Clients::start(1, move |seed| redis_client(&socket, seed))
            }
            Subject::Java { lines, .. } => {
                let lines = Arc::clone(lines);
                Clients::start(1, move |_| {
                    let lines = Arc::clone(&lines);
                    let operation: Operation = Box::new(move || {
                        let mut lines = lines.lock().unwrap_or_else(PoisonError::into_inner);
                        lines.next().ok_or_else(|| "java has ended".to_owned())
                    });
                    Ok(operation)
                })
            }
        }
    }

    fn grow(&mut self, mib: u64) -> Result<(), Failed> {
        match self {
            Subject::MariaDb { socket, .. } => {
                let mut connection = open_mariadb(socket)?;
                let bytes = (FIRST_MIB + mib) << 20;
                connection.query_drop(format!("SET GLOBAL innodb_buffer_pool_size = {bytes}"))?;
                // Read repeatedly, until the pool is full of rows.
                for _ in 0..2 {
                    connection.query_drop("SELECT SUM(LENGTH(text)) FROM t.rows")?;
                }
            }
            Subject::Redis { socket, .. } => {
                let first = (FIRST_MIB << 20) / KEY;
                fill_redis(socket, first, first + (mib << 20) / KEY)?;
            }
            Subject::Java { running, input, .. } => {
                let before = process_facts::status_kb(running.0.id(), "VmRSS");
                writeln!(input, "{mib}")?;
                input.flush()?;
                let began = Instant::now();
                while process_facts::status_kb(running.0.id(), "VmRSS") < before + mib * 1000 {
                    if began.elapsed() > Duration::from_secs(60) {
                        return Err("java did not grow".into());
                    }
                    std::thread::sleep(Duration::from_millis(50));
                }
            }
        }
        Ok(())
    }
}

/// Returns the command of a program under its own account, with `hugeleaf run` in that arm.
fn command(arm: Arm, account: ServerAccount, program: &Path, folder: &Path) -> Command {
    if arm != Arm::Run {
        return as_account(account, program, folder);
    }
    let mut command = as_account(account, Path::new(HUGELEAF), folder);
    command.args(["run", "--"]).arg(program);
    // The account's own folder is below /tmp, from where no library is loaded.
    if let Some(library) = library() {
        command.env("HUGELEAF_RUN_LIBRARY", library);
    }
    command
}

/// Returns the library as `run` unpacks it for root, in a folder that only root can change.
fn library() -> Option<String> {
    let started = Command::new(HUGELEAF).args(["run", "--", "true"]).status();
    started.ok().filter(std::process::ExitStatus::success)?;
    let mut shown = Command::new(HUGELEAF);
    let shown = shown
        .args(["run", "--dry-run", "--", "true"])
        .output()
        .ok()?;
    let text = String::from_utf8(shown.stdout).ok()?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("LD_PRELOAD="))?;
    Some(line.split(':').next()?.to_owned())
}

fn open(subject: &str, arm: Arm, scale: &Scale) -> Result<Option<Subject>, Failed> {
    match subject {
        "mariadb" => open_mariadb_server(arm, scale),
        "redis" => open_redis_server(arm),
        _ => open_java(arm),
    }
}

fn open_mariadb_server(arm: Arm, scale: &Scale) -> Result<Option<Subject>, Failed> {
    let Some((program, install)) = hugeleaf_testkit::mariadb::programs() else {
        return Ok(None);
    };
    let account = ServerAccount::first_of(&["mysql", "nobody"]);
    let folder = folder_for(account);
    let data = format!("--datadir={}", folder.path().join("data").display());
    prepare(install_on(
        &mut as_account(account, &install, folder.path()),
        &folder.path().join("data"),
    ));
    let socket = folder.path().join("mariadb.sock");
    let mut command = command(arm, account, &program, folder.path());
    command
        .args(["--no-defaults", &data])
        .arg(format!("--socket={}", socket.display()))
        .arg(format!("--innodb-buffer-pool-size={}", FIRST_MIB << 20))
        .args(MARIADB)
        .arg("--innodb-log-file-size=256M");
    let server = Server::start(&mut command, folder, ShutdownSignals::TERM, || {
        open_mariadb(&socket).is_ok()
    });
    let mut connection = open_mariadb(&socket)?;
    // Enough to fill the pool after growth.
    let rows = ((FIRST_MIB + scale.grow_mib) << 20) / 740;
    for statement in [
        "CREATE DATABASE t".to_owned(),
        "CREATE TABLE t.rows (id INT PRIMARY KEY, changes INT, text VARCHAR(700) CHARACTER SET latin1) ENGINE=InnoDB"
            .to_owned(),
        "USE t".to_owned(),
        format!("INSERT INTO t.rows SELECT seq, 0, REPEAT('.', 700) FROM seq_1_to_{rows}"),
    ] {
        connection.query_drop(&statement)?;
    }
    Ok(Some(Subject::MariaDb { server, socket }))
}

/// Reads random rows among those that are in the pool from the start.
fn mariadb_client(socket: &Path, seed: u64) -> Result<Operation, String> {
    let mut connection = open_mariadb(socket).map_err(|e| e.to_string())?;
    let mut random = fastrand::Rng::with_seed(seed);
    let rows = (FIRST_MIB << 20) / 1500;
    Ok(Box::new(move || {
        let id = random.u64(1..=rows);
        let statement = format!("SELECT changes, text FROM t.rows WHERE id = {id}");
        connection
            .query_drop(&statement)
            .map_err(|e| e.to_string())?;
        Ok(1)
    }))
}

fn open_redis_server(arm: Arm) -> Result<Option<Subject>, Failed> {
    let Some(program) = find_program(&["redis-server"]) else {
        return Ok(None);
    };
    let account = ServerAccount::first_of(&["redis", "nobody"]);
    let folder = folder_for(account);
    let socket = folder.path().join("redis.sock");
    let mut command = command(arm, account, &program, folder.path());
    // Redis itself requests base pages from the kernel unless configured otherwise.
    settings_on(&mut command, folder.path()).args(["--disable-thp", "no"]);
    let server = Server::start(&mut command, folder, ShutdownSignals::TERM, || {
        open_redis(&socket).is_ok()
    });
    fill_redis(&socket, 0, (FIRST_MIB << 20) / KEY)?;
    Ok(Some(Subject::Redis { server, socket }))
}

fn fill_redis(socket: &Path, from: u64, to: u64) -> Result<(), Failed> {
    let mut connection = open_redis(socket)?;
    let value = ".".repeat(VALUE);
    for first in (from..to).step_by(1000) {
        let mut batch = redis::pipe();
        for key in first..first + 1000 {
            batch.cmd("SET").arg(key).arg(&value).ignore();
        }
        batch.query::<()>(&mut connection)?;
    }
    Ok(())
}

/// Sends sixteen reads of random keys at a time.
fn redis_client(socket: &Path, seed: u64) -> Result<Operation, String> {
    const PAIRS_PER_SESSION: u32 = 16;
    let mut connection = open_redis(socket).map_err(|e| e.to_string())?;
    let mut random = fastrand::Rng::with_seed(seed);
    Ok(Box::new(move || {
        let mut batch = redis::pipe();
        for _ in 0..PAIRS_PER_SESSION {
            let key = random.u64(0..(FIRST_MIB << 20) / KEY);
            batch.cmd("GET").arg(key).ignore();
        }
        batch
            .query::<()>(&mut connection)
            .map_err(|e| e.to_string())?;
        Ok(PAIRS_PER_SESSION)
    }))
}

fn open_java(arm: Arm) -> Result<Option<Subject>, Failed> {
    let Some(program) = jvm::program() else {
        return Ok(None);
    };
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/must_reach/guard/Grow.java");
    let mut command = match arm {
        Arm::Run => {
            let mut command = Command::new(HUGELEAF);
            command.args(["run", "--"]).arg(&program);
            command
        }
        _ => Command::new(&program),
    };
    command
        .args(["-XX:+UseSerialGC", "-Xms64m", "-Xmx3g"])
        .arg(source)
        .arg(FIRST_MIB.to_string())
        .stderr(Stdio::null());
    let Jvm {
        running,
        input,
        lines,
        ..
    } = Jvm::start(&mut command, |line| line.parse::<u32>().is_ok())?;
    let counts = lines.map_while(Result::ok);
    let counts = counts.filter_map(|line| line.parse::<u32>().ok());
    Ok(Some(Subject::Java {
        running,
        input,
        lines: Arc::new(Mutex::new(counts)),
    }))
}
