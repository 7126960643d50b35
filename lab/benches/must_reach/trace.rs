//! `hugeleaf trace`: its cost for a server and for a load with lock contention, its agreement with
//! `perf` on the same run, and the size of its file.
//!
//! Cost: one run of the load, with intervals with and without a trace in random order; ratios within
//! rounds. The start and end of a trace affect a server for a moment and are excluded. Agreement:
//! `perf record`, `perf lock record` and `hugeleaf trace` concurrently over one load.

mod agreement;
mod loads;

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use hugeleaf_trace::Trace;

use self::loads::{Fight, Load, Pgbench};
use crate::record::{Record, median, paired, version};
use crate::{Asked, Failed, HUGELEAF, Mode};
use hugeleaf_testkit::postgresql::{init, programs};
use hugeleaf_testkit::server::{Server, ServerAccount, ShutdownSignals, as_account, folder_for};

/// Time before each interval: a trace first reads memory, and names functions at its end.
const SETTLE: Duration = Duration::from_secs(2);

/// Runs all parts.
pub fn run(asked: &Asked) -> Result<(), Failed> {
    if hugeleaf_sys::effective_uid() != 0 {
        println!("not run: trace: needs root for events of all processes");
        return Ok(());
    }
    let _lock = hugeleaf_sys::lock_host(Path::new("/run/lock/hugeleaf.lock"), true)?;
    let workshop = tempfile::Builder::new()
        .prefix("hugeleaf-trace-")
        .tempdir()?;
    let source = include_str!("trace/fight.c");
    let Some(fight) = crate::run::compile(workshop.path(), "fight", source)? else {
        println!("not run: trace: no C compiler");
        return Ok(());
    };
    let interval = match asked.mode {
        Mode::Full => 4,
        Mode::Smoke => 1,
    };
    let folder = workshop.path();
    let cost = Cost {
        rounds: asked.rounds(24),
        interval,
        folder,
    };
    // One file per part, so that a part can be repeated alone.
    let part = |name, work: &mut dyn FnMut(&mut Record) -> Result<(), Failed>| {
        if !asked.wants(name) {
            return Ok(());
        }
        let mut record = Record::new(format!("trace-{name}"), "scripts/bench.sh trace");
        work(&mut record)?;
        record.write(&asked.out).map(|_| ())
    };
    part("locks", &mut |record| {
        let fight = Fight::start(&fight)?;
        let unit = "operations/s";
        cost.measure("locks", unit, record, fight)
    })?;
    part("pgbench", &mut |record| pgbench(&cost, record))?;
    part("agreement", &mut |record| {
        agreement::run(asked.mode, &fight, folder, record)
    })?;
    part("size", &mut |record| {
        size(asked.mode, &fight, folder, record)
    })
}

/// Starts a trace over the next `seconds`.
fn start_trace(seconds: u64, file: &Path) -> Result<Child, Failed> {
    let child = Command::new(HUGELEAF)
        .args(["trace", "--for", &format!("{seconds}s"), "-o"])
        .arg(file)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    Ok(child)
}

fn end(mut child: Child, what: &str) -> Result<(), Failed> {
    match child.wait()?.success() {
        true => Ok(()),
        false => Err(format!("{what} failed").into()),
    }
}

/// Parameters of the measurement of a trace's cost.
struct Cost<'a> {
    rounds: usize,
    /// Seconds of an interval.
    interval: u64,
    folder: &'a Path,
}

impl Cost<'_> {
    /// Measures the cost of a trace for a load.
    fn measure(
        &self,
        name: &str,
        unit: &str,
        record: &mut Record,
        mut load: impl Load,
    ) -> Result<(), Failed> {
        let mut arms = [Vec::new(), Vec::new()];
        let (mut events, mut lost) = (Vec::new(), 0);
        // A first interval, not counted, warms memory that the guest has never touched.
        load.rate(self.interval)?;
        for _ in 0..self.rounds {
            let mut order = [false, true];
            fastrand::shuffle(&mut order);
            for traced in order {
                let rate = match traced {
                    false => self.rate(&mut load)?,
                    true => {
                        let (rate, trace) = self.traced(name, &mut load)?;
                        events.push(trace.sources.iter().map(|s| s.events).sum::<u64>());
                        lost += trace.sources.iter().map(|s| s.lost).sum::<u64>();
                        rate
                    }
                };
                arms[usize::from(traced)].push(rate);
            }
        }
        let ratios = arms[1].iter().zip(&arms[0]).map(|(on, off)| on / off);
        record.figure(
            format!("{name}, traced over not: low, median, high"),
            paired(ratios.collect()).to_vec(),
        );
        record.figure(format!("{name}, seconds of an interval"), self.interval);
        record.figure(format!("{name}, events of a trace, by round"), events);
        record.figure(format!("{name}, events lost, all rounds"), lost);
        for (label, samples) in ["not traced", "traced"].iter().zip(&arms) {
            record.figure(format!("{name}, {label}, {unit}, median"), median(samples));
            record.arm(format!("{name}, {label}"), unit, samples);
        }
        Ok(())
    }

    /// Measures an interval, after a pause for earlier effects to end or for a trace to begin.
    fn rate(&self, load: &mut impl Load) -> Result<f64, Failed> {
        std::thread::sleep(SETTLE);
        load.rate(self.interval)
    }

    fn traced(&self, name: &str, load: &mut impl Load) -> Result<(f64, Trace), Failed> {
        let file = self.folder.join(format!("{name}.trace"));
        // A load that reports each second begins to count up to a second later.
        let mut trace = start_trace(SETTLE.as_secs() + self.interval + 2, &file)?;
        let rate = self.rate(load);
        let over = trace.try_wait()?.is_some();
        end(trace, "hugeleaf trace")?;
        match over {
            true => Err("a trace ended before the interval that it was to watch".into()),
            false => Ok((rate?, hugeleaf_trace::read_trace(&file)?)),
        }
    }
}

/// Measures the cost for PostgreSQL under pgbench.
fn pgbench(cost: &Cost<'_>, record: &mut Record) -> Result<(), Failed> {
    let Some(bin) = programs().filter(|bin| bin.join("pgbench").exists()) else {
        println!("not run: trace: pgbench is not installed");
        return Ok(());
    };
    record.figure("pgbench, server", version(&bin.join("postgres")));
    let account = ServerAccount::first_of(&["postgres", "nobody"]);
    let home = folder_for(account);
    init(&bin, account, home.path());
    let socket = home.path().display().to_string();
    let mut command = as_account(account, &bin.join("postgres"), home.path());
    command.arg("-D").arg(home.path().join("data"));
    for setting in [
        "listen_addresses=",
        &format!("unix_socket_directories={socket}"),
        "shared_buffers=512MB",
        "huge_pages=off",
        "fsync=off",
        "autovacuum=off",
    ] {
        command.arg("-c").arg(setting);
    }
    let client = |arguments: &[&str]| {
        let mut client = Command::new(bin.join("pgbench"));
        client.args(["-h", &socket, "-U", "postgres", "-n"]);
        client.args(arguments).arg("postgres");
        client
    };
    let ready = || {
        let status = Command::new(bin.join("pg_isready"))
            .args(["-q", "-h", &socket])
            .status();
        status.is_ok_and(|s| s.success())
    };
    let folder = folder_for(account);
    let _server = Server::start(&mut command, folder, ShutdownSignals::POSTGRESQL, ready);
    let output = client(&["-i", "-s", "20", "-q"]).output()?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned().into());
    }
    // More clients than processors: with few clients, the scheduler's placement determines the
    // result.
    for (name, kind) in [("pgbench read-only", "-S"), ("pgbench tpcb", "-r")] {
        let load = Pgbench::start(&mut client(&[kind, "-c", "16", "-j", "2"]))?;
        cost.measure(name, "transactions/s", record, load)?;
    }
    Ok(())
}

/// Measures the file of half a minute on a host with busy CPUs, and the time to draw it.
fn size(mode: Mode, fight: &Path, folder: &Path, record: &mut Record) -> Result<(), Failed> {
    let seconds = match mode {
        Mode::Full => 30,
        Mode::Smoke => 1,
    };
    let load = Fight::start(fight)?;
    let (file, page) = (folder.join("size.trace"), folder.join("size.html"));
    end(start_trace(seconds, &file)?, "hugeleaf trace")?;
    drop(load);
    record.figure("file of 30 s, bytes", std::fs::metadata(&file)?.len());
    let begun = std::time::Instant::now();
    let shown = Command::new(HUGELEAF)
        .args(["trace", "show"])
        .arg(&file)
        .arg("--html")
        .arg(&page)
        .stdout(Stdio::null())
        .spawn()?;
    end(shown, "hugeleaf trace show")?;
    record.figure("page of 30 s, seconds", begun.elapsed().as_secs_f64());
    record.figure("page of 30 s, bytes", std::fs::metadata(&page)?.len());
    Ok(())
}
