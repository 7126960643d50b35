//! `hugeleaf trace`: what it costs a server and a load that fights for a lock, whether it says the
//! same as `perf` on the same run, and how large its file is.
//!
//! Cost: rounds of two arms in random order, each a fresh run of the load, with and without a trace
//! over it from its first second to its last; ratios within rounds. Agreement: `perf record`,
//! `perf lock record` and `hugeleaf trace` at once over one load.

mod agreement;

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::Signal;

use crate::record::{Record, median, paired, version};
use crate::support::find_program;
use crate::support::postgresql::{init, programs};
use crate::support::server::{Account, Server, as_account, folder_for};
use crate::{Asked, Failed, HUGELEAF, Mode};

/// Threads that fight for the lock of one address space.
const THREADS: &str = "4";

/// Each thread maps, touches and unmaps, and so takes one lock twice a turn.
const FIGHT: &str = include_str!("trace/fight.c");

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
    let Some(fight) = compile(workshop.path())? else {
        println!("not run: trace: no C compiler");
        return Ok(());
    };
    let seconds = match asked.mode {
        Mode::Full => 8,
        Mode::Smoke => 1,
    };
    let rounds = asked.rounds(8);
    let folder = workshop.path();
    // A file a part: a part can be taken anew by itself.
    let part = |name, work: &mut dyn FnMut(&mut Record) -> Result<(), Failed>| {
        if !asked.wants(name) {
            return Ok(());
        }
        let mut record = Record::new(format!("trace-{name}"), "scripts/bench.sh trace");
        work(&mut record)?;
        record.write(&asked.out).map(|_| ())
    };
    part("locks", &mut |record| {
        let mut load = || operations(Command::new(&fight).args([THREADS, &seconds.to_string()]));
        let unit = "operations/s";
        cost("locks", unit, rounds, seconds, folder, record, &mut load)
    })?;
    part("pgbench", &mut |record| {
        pgbench(rounds, seconds, folder, record)
    })?;
    part("agreement", &mut |record| {
        agreement::run(asked.mode, &fight, folder, record)
    })?;
    part("size", &mut |record| {
        size(asked.mode, &fight, folder, record)
    })
}

fn compile(folder: &Path) -> Result<Option<std::path::PathBuf>, Failed> {
    let Some(compiler) = find_program(&["cc", "gcc"]) else {
        return Ok(None);
    };
    let (source, program) = (folder.join("fight.c"), folder.join("fight"));
    std::fs::write(&source, FIGHT)?;
    let mut command = Command::new(compiler);
    command
        .args(["-O2", "-pthread", "-o"])
        .args([&program, &source]);
    match command.status()?.success() {
        true => Ok(Some(program)),
        false => Err("the load was not compiled".into()),
    }
}

/// A trace over the next `seconds`, from now on.
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

/// The one number that a load prints.
fn operations(command: &mut Command) -> Result<f64, Failed> {
    let output = command.stdin(Stdio::null()).output()?;
    let text = String::from_utf8(output.stdout)?;
    let number = text.trim().parse();
    number.map_err(|_| format!("{command:?} printed {text:?}").into())
}

/// What a trace costs a load.
#[allow(clippy::too_many_arguments)] // what to run, how often, and where to
fn cost(
    name: &str,
    unit: &str,
    rounds: usize,
    seconds: u64,
    folder: &Path,
    record: &mut Record,
    load: &mut dyn FnMut() -> Result<f64, Failed>,
) -> Result<(), Failed> {
    let mut arms = [Vec::new(), Vec::new()];
    let (mut events, mut lost) = (Vec::new(), 0);
    // One that does not count: it warms memory that the guest has never touched.
    load()?;
    for _ in 0..rounds {
        let mut order = [false, true];
        fastrand::shuffle(&mut order);
        for traced in order {
            let file = folder.join(format!("{name}.trace"));
            // It begins before the load and ends after it, so that all of the load is under it.
            let trace = match traced {
                true => {
                    let child = start_trace(seconds + 2, &file)?;
                    std::thread::sleep(Duration::from_secs(1));
                    Some(child)
                }
                false => None,
            };
            arms[usize::from(traced)].push(load()?);
            if let Some(child) = trace {
                end(child, "hugeleaf trace")?;
                let trace = hugeleaf_trace::read_trace(&file)?;
                events.push(trace.sources.iter().map(|s| s.events).sum::<u64>());
                lost += trace.sources.iter().map(|s| s.lost).sum::<u64>();
            }
        }
    }
    let ratios = arms[1].iter().zip(&arms[0]).map(|(on, off)| on / off);
    record.figure(
        format!("{name}, traced over not: low, median, high"),
        paired(ratios.collect()).to_vec(),
    );
    record.figure(format!("{name}, events of a trace, by round"), events);
    record.figure(format!("{name}, events lost, all rounds"), lost);
    for (label, samples) in ["not traced", "traced"].iter().zip(&arms) {
        record.figure(format!("{name}, {label}, {unit}, median"), median(samples));
        record.arm(format!("{name}, {label}"), unit, samples);
    }
    Ok(())
}

/// The cost to PostgreSQL under pgbench.
fn pgbench(rounds: usize, seconds: u64, folder: &Path, record: &mut Record) -> Result<(), Failed> {
    let Some(bin) = programs().filter(|bin| bin.join("pgbench").exists()) else {
        println!("not run: trace: pgbench is not installed");
        return Ok(());
    };
    record.figure("pgbench, server", version(&bin.join("postgres")));
    let account = Account::first_of(&["postgres", "nobody"]);
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
    let _server = Server::start(&mut command, folder_for(account), Signal::INT, ready);
    let output = client(&["-i", "-s", "20", "-q"]).output()?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned().into());
    }
    for (name, kind) in [("pgbench read-only", "-S"), ("pgbench tpcb", "-r")] {
        let time = seconds.to_string();
        let mut load = || tps(&mut client(&[kind, "-c", "4", "-j", "1", "-T", &time]));
        cost(
            name,
            "transactions/s",
            rounds,
            seconds,
            folder,
            record,
            &mut load,
        )?;
    }
    Ok(())
}

/// The rate that pgbench prints.
fn tps(command: &mut Command) -> Result<f64, Failed> {
    let output = command.stdin(Stdio::null()).output()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let rate = text.lines().find_map(|l| l.strip_prefix("tps = "));
    let word = rate.and_then(|rest| rest.split_ascii_whitespace().next());
    match word.and_then(|word| word.parse().ok()) {
        Some(rate) => Ok(rate),
        None => Err(format!("pgbench: {text}{}", String::from_utf8_lossy(&output.stderr)).into()),
    }
}

/// The file of half a minute of a host whose CPUs are all busy, and the time to draw it.
fn size(mode: Mode, fight: &Path, folder: &Path, record: &mut Record) -> Result<(), Failed> {
    let seconds = match mode {
        Mode::Full => 30,
        Mode::Smoke => 1,
    };
    let mut load = Command::new(fight)
        .args([THREADS, &(seconds + 2).to_string()])
        .stdout(Stdio::null())
        .spawn()?;
    let (file, page) = (folder.join("size.trace"), folder.join("size.html"));
    end(start_trace(seconds, &file)?, "hugeleaf trace")?;
    load.wait()?;
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
