//! What a server under load loses while it is promoted with the default budget: its worst 3 s
//! while being promoted beside its worst 3 s of an equally long stretch right before.
//!
//! ```text
//! cargo run --release -p hugeleaf-change --example bench_stall -- --server redis --out FILE \
//!     [--size 1G] [--rounds 3] [--budget 10%]
//! ```
//!
//! Servers: `redis` and `mariadb`, started for this alone on a Unix socket in a temporary folder,
//! filled to about `--size`, read by two connections at random keys. Prints one line a round and
//! writes the raw samples (requests for each tenth of a second, latency percentiles) with host,
//! settings and command to FILE. Needs root and the server installed. `--size 32M --rounds 1` is
//! the smoke mode.

use std::error::Error;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use hugeleaf_change::{DemoteOptions, Outcome, Percent, PromoteOptions, demote, promote};
use hugeleaf_host::{Host, Root};
use hugeleaf_sys::{Pid, RealKernel};
use hugeleaf_units::Bytes;
use mysql::prelude::Queryable;
use serde_json::{Value, json};

type Failed = Box<dyn Error + Send + Sync>;
/// Makes one request.
type Request = Box<dyn FnMut() -> Result<(), Failed> + Send>;

/// One bucket of the count of requests.
const BUCKET: Duration = Duration::from_millis(100);
/// The length of the window whose worst place counts, in buckets: 3 s.
const WINDOW: usize = 30;
/// Load before the first measurement.
const WARM_UP: Duration = Duration::from_secs(5);
const CONNECTIONS: u32 = 2;

struct Settings {
    server: String,
    out: PathBuf,
    size: Bytes,
    rounds: u32,
    budget: Percent,
}

fn main() -> Result<(), Failed> {
    let settings = parse(&std::env::args().skip(1).collect::<Vec<_>>())?;
    let folder = tempfile::tempdir()?;
    let server = match settings.server.as_str() {
        "redis" => redis(folder.path(), settings.size)?,
        "mariadb" => mariadb(folder.path(), settings.size)?,
        other => return Err(format!("unknown server {other}: redis or mariadb").into()),
    };
    let (kernel, root) = (RealKernel::new(), Root::live());
    let host = hugeleaf_host::read_host(&root, &kernel)?;
    let load = Load::start(&server)?;
    let mut rounds: Vec<Sample> = Vec::new();
    for round in 0..settings.rounds {
        let last = rounds.last().map_or(0.0, |r| r.seconds);
        let sample = measure(&kernel, &root, &host, &server, &load, &settings, last)?;
        println!(
            "{round}  promoted {} in {:.1} s; worst 3 s: {} requests before, {} while promoted: lost {:.1} %; \
             p99 {} µs before, {} µs while",
            sample.done,
            sample.seconds,
            sample.before.worst,
            sample.during.worst,
            100.0 * sample.loss(),
            sample.before.p99,
            sample.during.p99,
        );
        if let Some(noise) = sample.noise {
            println!(
                "   noise alone, over the stretch before that: {:.1} %",
                100.0 * noise
            );
        }
        rounds.push(sample);
    }
    let mut losses: Vec<f64> = rounds.iter().map(Sample::loss).collect();
    losses.sort_by(f64::total_cmp);
    let median = losses[losses.len() / 2];
    println!(
        "{}: median loss in the worst 3 s {:.1} %",
        settings.server,
        100.0 * median
    );
    let record = record(&host, &settings, &rounds, median);
    std::fs::write(&settings.out, format!("{record:#}\n"))?;
    println!("wrote {}", settings.out.display());
    Ok(())
}

fn parse(arguments: &[String]) -> Result<Settings, Failed> {
    let mut settings = Settings {
        server: String::new(),
        out: PathBuf::new(),
        size: Bytes(1 << 30),
        rounds: 3,
        budget: PromoteOptions::default().budget,
    };
    for pair in arguments.chunks(2) {
        match pair {
            [flag, value] if flag == "--server" => settings.server.clone_from(value),
            [flag, value] if flag == "--out" => settings.out = value.into(),
            [flag, value] if flag == "--size" => settings.size = value.parse()?,
            [flag, value] if flag == "--rounds" => settings.rounds = value.parse()?,
            [flag, value] if flag == "--budget" => settings.budget = value.parse()?,
            other => return Err(format!("unknown argument {other:?}").into()),
        }
    }
    if settings.out.as_os_str().is_empty() || settings.rounds == 0 {
        return Err(
            "usage: bench_stall --server redis|mariadb --out FILE [--size 1G] [--rounds 3]".into(),
        );
    }
    Ok(settings)
}

/// Requests and latencies of one stretch.
struct Stretch {
    /// Requests for each tenth of a second.
    counts: Vec<u64>,
    /// The fewest in any 3 s.
    worst: u64,
    /// Latencies in microseconds.
    p50: u32,
    p99: u32,
    largest: u32,
}

struct Sample {
    done: Bytes,
    seconds: f64,
    before: Stretch,
    during: Stretch,
    /// The loss between two such stretches with no promotion in either: what the host's noise
    /// alone does. `None` where the quiet stretch was too short to be halved.
    noise: Option<f64>,
}

impl Sample {
    #[allow(clippy::cast_precision_loss)]
    fn loss(&self) -> f64 {
        1.0 - self.during.worst as f64 / self.before.worst.max(1) as f64
    }
}

/// The fewest requests in any 3 s.
fn worst(counts: &[u64]) -> u64 {
    let windows = counts.windows(WINDOW.min(counts.len().max(1)));
    windows.map(|w| w.iter().sum()).min().unwrap_or(0)
}

/// One round: a quiet stretch, a promotion, and back to base pages.
fn measure(
    kernel: &RealKernel,
    root: &Root,
    host: &Host,
    server: &Server,
    load: &Load,
    settings: &Settings,
    last_seconds: f64,
) -> Result<Sample, Failed> {
    let never = AtomicBool::new(false);
    let pids = [Pid(server.child.id())];
    let options = PromoteOptions {
        budget: settings.budget,
        ..PromoteOptions::default()
    };
    // Twice as long as the promotion will take: one half to compare it with, and one to tell what
    // noise alone does.
    let estimate = hugeleaf_change::pacer::estimate_seconds(settings.size, settings.budget);
    let wait = 2.2 * estimate.max(last_seconds).max(3.1);
    let quiet_from = load.mark();
    std::thread::sleep(Duration::from_secs_f64(wait.min(180.0)));
    let quiet = load.since(quiet_from);
    let from = load.mark();
    let outcome: Outcome = promote(kernel, root, host, &pids, &options, &mut |_| {}, &never)?;
    // At least one window.
    let rest = 3.1 - outcome.seconds;
    if rest > 0.0 {
        std::thread::sleep(Duration::from_secs_f64(rest));
    }
    let busy = load.since(from);
    let back = DemoteOptions {
        budget: Percent::ALL,
        ..DemoteOptions::default()
    };
    demote(kernel, root, host, &pids, &back, &mut |_| {}, &never)?;
    std::thread::sleep(Duration::from_secs(2));
    if let Some(error) = load.error() {
        return Err(error.into());
    }
    let length = busy.0.len().min(quiet.0.len());
    let (latencies, quiet) = (quiet.1, quiet.0);
    let before = &quiet[quiet.len() - length..];
    #[allow(clippy::cast_precision_loss)]
    let noise = (quiet.len() >= 2 * length).then(|| {
        let earlier = worst(&quiet[quiet.len() - 2 * length..quiet.len() - length]);
        1.0 - worst(before) as f64 / earlier.max(1) as f64
    });
    Ok(Sample {
        noise,
        done: outcome.done(),
        seconds: outcome.seconds,
        before: stretch(before, latencies),
        during: stretch(&busy.0, busy.1),
    })
}

fn stretch(counts: &[u64], mut latencies: Vec<u32>) -> Stretch {
    latencies.sort_unstable();
    let at = |percent: usize| {
        let last = latencies.len().saturating_sub(1);
        latencies.get(last * percent / 100).copied().unwrap_or(0)
    };
    Stretch {
        worst: worst(counts),
        counts: counts.to_vec(),
        p50: at(50),
        p99: at(99),
        largest: latencies.last().copied().unwrap_or(0),
    }
}

/// The load: threads that make requests, one after the other.
struct Load {
    start: Instant,
    buckets: Arc<Vec<AtomicU64>>,
    latencies: Arc<Mutex<Vec<u32>>>,
    errors: Arc<Mutex<Vec<String>>>,
    stop: Arc<AtomicBool>,
}

impl Load {
    fn start(server: &Server) -> Result<Load, Failed> {
        let load = Load {
            start: Instant::now(),
            // Enough for an hour.
            buckets: Arc::new((0..36_000).map(|_| AtomicU64::new(0)).collect()),
            latencies: Arc::default(),
            errors: Arc::default(),
            stop: Arc::default(),
        };
        for _ in 0..CONNECTIONS {
            let mut request = (server.connect)()?;
            let (start, stop) = (load.start, Arc::clone(&load.stop));
            let (buckets, latencies) = (Arc::clone(&load.buckets), Arc::clone(&load.latencies));
            let errors = Arc::clone(&load.errors);
            std::thread::spawn(move || {
                let mut own = Vec::with_capacity(4096);
                while !stop.load(Ordering::Relaxed) {
                    let before = Instant::now();
                    if let Err(e) = request() {
                        locked(&errors).push(e.to_string());
                        return;
                    }
                    let now = Instant::now();
                    own.push(u32::try_from((now - before).as_micros()).unwrap_or(u32::MAX));
                    if let Some(bucket) = buckets.get(bucket_of(now - start)) {
                        bucket.fetch_add(1, Ordering::Relaxed);
                    }
                    if own.len() == 1024 {
                        locked(&latencies).append(&mut own);
                    }
                }
            });
        }
        std::thread::sleep(WARM_UP);
        Ok(load)
    }

    /// The first bucket that begins after now; latencies so far are forgotten.
    fn mark(&self) -> usize {
        locked(&self.latencies).clear();
        bucket_of(self.start.elapsed()) + 1
    }

    /// Counts of the whole buckets since a mark, and the latencies.
    fn since(&self, mark: usize) -> (Vec<u64>, Vec<u32>) {
        let now = bucket_of(self.start.elapsed()).max(mark);
        let counts = self.buckets[mark..now]
            .iter()
            .map(|b| b.load(Ordering::Relaxed));
        (
            counts.collect(),
            std::mem::take(&mut locked(&self.latencies)),
        )
    }

    fn error(&self) -> Option<String> {
        locked(&self.errors).first().cloned()
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn bucket_of(time: Duration) -> usize {
    usize::try_from(time.as_millis() / BUCKET.as_millis()).unwrap_or(usize::MAX - 1)
}

/// A server that was started for this, and ends with it.
struct Server {
    child: Child,
    connect: Box<dyn Fn() -> Result<Request, Failed>>,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A server that the kernel ends with this program, however that ends (setpriv(1)).
fn dying_with_us(program: &str) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", program]);
    command
}

/// Tries until it works, at most half a minute.
fn patiently<T>(mut attempt: impl FnMut() -> Result<T, Failed>) -> Result<T, Failed> {
    let start = Instant::now();
    loop {
        match attempt() {
            Ok(value) => return Ok(value),
            Err(e) if start.elapsed() > Duration::from_secs(30) => return Err(e),
            Err(_) => std::thread::sleep(Duration::from_millis(100)),
        }
    }
}

/// Values of 1000 bytes, filled by SET in pipelines.
fn redis(folder: &Path, size: Bytes) -> Result<Server, Failed> {
    let socket = folder.join("redis.sock");
    let child = dying_with_us("redis-server")
        .args([
            "--port",
            "0",
            "--save",
            "",
            "--appendonly",
            "no",
            "--unixsocket",
        ])
        .arg(&socket)
        .stdout(Stdio::null())
        .spawn()?;
    let keys = (size.get() / 1150).max(1000);
    let path = socket.clone();
    let connect = Box::new(move || -> Result<Request, Failed> {
        let mut stream = BufReader::new(UnixStream::connect(&path)?);
        let mut answer = Vec::new();
        Ok(Box::new(move || {
            let key = format!("key:{:010}", fastrand::u64(..keys));
            write!(
                stream.get_mut(),
                "*2\r\n$3\r\nGET\r\n${}\r\n{key}\r\n",
                key.len()
            )?;
            answer.clear();
            stream.read_until(b'\n', &mut answer)?;
            if answer != b"$1000\r\n" {
                return Err(format!("GET {key}: {}", String::from_utf8_lossy(&answer)).into());
            }
            answer.resize(1002, 0);
            Ok(stream.read_exact(&mut answer)?)
        }))
    });
    let server = Server { child, connect };
    let mut stream = BufReader::new(patiently(|| Ok(UnixStream::connect(&socket)?))?);
    let value = "x".repeat(1000);
    for first in (0..keys).step_by(500) {
        let last = keys.min(first + 500);
        let mut batch = String::new();
        for key in first..last {
            batch.push_str(&format!(
                "*3\r\n$3\r\nSET\r\n$14\r\nkey:{key:010}\r\n$1000\r\n{value}\r\n"
            ));
        }
        stream.get_mut().write_all(batch.as_bytes())?;
        let mut answers = vec![0; usize::try_from(last - first)? * "+OK\r\n".len()];
        stream.read_exact(&mut answers)?;
    }
    Ok(server)
}

/// A table of that size, read by its primary key through a buffer pool that holds all of it.
fn mariadb(folder: &Path, size: Bytes) -> Result<Server, Failed> {
    let (data, socket) = (folder.join("data"), folder.join("mariadb.sock"));
    let installed = Command::new("mariadb-install-db")
        .args(["--user=root", "--auth-root-authentication-method=normal"])
        .arg(format!("--datadir={}", data.display()))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()?;
    if !installed.success() {
        return Err("mariadb-install-db failed".into());
    }
    let child = dying_with_us("mariadbd")
        .args([
            "--no-defaults",
            "--user=root",
            "--skip-networking",
            "--innodb-flush-log-at-trx-commit=0",
        ])
        .arg(format!("--datadir={}", data.display()))
        .arg(format!("--socket={}", socket.display()))
        .arg(format!(
            "--innodb-buffer-pool-size={:#}",
            Bytes(size.get() + (64 << 20))
        ))
        .stderr(Stdio::null())
        .spawn()?;
    let rows = (size.get() / 1150).max(1000);
    let path = socket.display().to_string();
    let open = move || -> Result<mysql::Conn, Failed> {
        let options = mysql::OptsBuilder::new()
            .socket(Some(path.clone()))
            .user(Some("root"));
        Ok(mysql::Conn::new(options)?)
    };
    let opened = open.clone();
    let connect = Box::new(move || -> Result<Request, Failed> {
        let mut connection = opened()?;
        let statement = connection.prep("select v from bench.t where id = ?")?;
        Ok(Box::new(move || {
            let id = fastrand::u64(1..=rows);
            let value: Option<String> = connection.exec_first(&statement, (id,))?;
            value
                .map(drop)
                .ok_or_else(|| format!("row {id} is missing").into())
        }))
    });
    let server = Server { child, connect };
    let mut connection = patiently(&open)?;
    connection.query_drop("create database bench")?;
    connection.query_drop(
        "create table bench.t (id bigint primary key, v varchar(1000)) engine=innodb",
    )?;
    let fill =
        format!("insert into bench.t select seq, repeat('x', 1000) from bench.seq_1_to_{rows}");
    connection.query_drop(fill)?;
    connection.query_drop("select sum(length(v)) from bench.t")?;
    allow_huge_pages(server.child.id())?;
    Ok(server)
}

/// MariaDB 10.11.19 switches transparent huge pages off for itself and has no option against it: a
/// debugger makes it take that back, as docs/guide/mariadb.md says.
fn allow_huge_pages(pid: u32) -> Result<(), Failed> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    if !status
        .lines()
        .any(|line| line.starts_with("THP_enabled:") && line.ends_with('0'))
    {
        return Ok(());
    }
    let gdb = Command::new("gdb")
        .args([
            "-nx",
            "-batch",
            "-p",
            &pid.to_string(),
            "-ex",
            "call (int) prctl(41, 0, 0, 0, 0)",
        ])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()?;
    match gdb.success() {
        true => Ok(()),
        false => Err("not run: MariaDB refuses huge pages, and gdb could not change that".into()),
    }
}

fn record(host: &Host, settings: &Settings, rounds: &[Sample], median: f64) -> Value {
    let thp = host.thp.known();
    let enabled = thp.and_then(|t| t.enabled.known());
    let defrag = thp.and_then(|t| t.defrag.known());
    let stretch = |s: &Stretch| {
        json!({
            "requests_per_100ms": s.counts, "worst_3s": s.worst,
            "p50_us": s.p50, "p99_us": s.p99, "largest_us": s.largest,
        })
    };
    let samples = rounds.iter().map(|r| {
        json!({
            "done_bytes": r.done.get(), "seconds": r.seconds, "loss_in_worst_3s": r.loss(),
            "loss_by_noise_alone": r.noise,
            "before": stretch(&r.before), "during": stretch(&r.during),
        })
    });
    json!({
        "schema": 1,
        "experiment": {"name": format!("{} while it is promoted", settings.server), "unit": "requests in the worst 3 s", "better": "higher"},
        "command": format!(
            "bench_stall --server {} --size {} --rounds {} --budget {}",
            settings.server, settings.size, settings.rounds, settings.budget),
        "host": {
            "kernel": host.kernel.known(),
            "arch": host.arch.known(),
            "memory_bytes": host.memory.total.get().map(Bytes::get),
            "cpus": std::thread::available_parallelism().map_or(0, std::num::NonZero::get),
        },
        "settings": {
            "thp_enabled": enabled, "thp_defrag": defrag,
            "connections": CONNECTIONS, "budget": settings.budget.to_string(),
        },
        "median_loss_in_worst_3s": median,
        "rounds": samples.collect::<Value>(),
    })
}
