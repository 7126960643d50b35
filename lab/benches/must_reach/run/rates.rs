//! Cost of starting a program and of single calls, in pairs of processes, and the wakeups of an
//! idle program.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use hugeleaf_units::Bytes;

use super::arms::{Arm, BARE, RUN_THP};
use super::host::Host;
use super::samples::{Sample, Samples};
use super::talk::{Talk, value};
use super::{compile, done, folder};
use crate::record::{Record, median};
use crate::{Asked, Failed, Mode};
use hugeleaf_testkit::find_program;
use hugeleaf_testkit::process_facts;

/// A loop over one kind of call.
struct Loop {
    name: &'static str,
    /// Arguments of the program; the shell loop has a program of its own.
    arguments: Vec<String>,
    count: u32,
}

/// Required rate of all loops, relative to bare.
const LEAST: f64 = 0.98;
const MOST_AT_START: f64 = 0.005;

/// Number of rounds over which the number of mappings varies, because the cost of mmap(2) jumps
/// with it (`more_mappings` in the program explains this).
const NUMBERS_OF_MAPPINGS: usize = 16;

const STARTS: &str = "start, seconds";

/// Runs the benchmark.
pub fn run(asked: &Asked) -> Result<(), Failed> {
    let Some(host) = Host::lock("run-rates")? else {
        return Ok(());
    };
    let workshop = folder()?;
    let Some(program) = compile(workshop.path(), "rates", include_str!("rates.c"))? else {
        println!("not run: run-rates: needs a C compiler");
        return Ok(());
    };
    let arms = [Arm::bare(), Arm::thp(&host)];
    let file = asked.out.join("run-rates.json");
    let mut samples = match asked.more {
        true => Samples::read(&file)?,
        false => Samples::default(),
    };
    let loops: Vec<Loop> = loops(asked.mode)
        .into_iter()
        .filter(|l| asked.wants(l.name))
        .collect();
    for _ in 0..asked.rounds(2 * NUMBERS_OF_MAPPINGS) {
        if host.is_asked_to_end() {
            break;
        }
        host.warm(Bytes::from_mib(1024))?;
        let mappings = samples.rounds() % NUMBERS_OF_MAPPINGS;
        samples.add_round(round(asked.mode, mappings, &arms, &program, &loops)?);
    }
    let mut record = Record::new("run-rates", "scripts/bench.sh run-rates");
    record.figure("rounds", samples.rounds());
    report(&samples, &loops, &mut record);
    if asked.wants("idle") && !host.is_asked_to_end() {
        idle(asked.mode, &host, &arms, &program, &mut record)?;
    }
    samples.keep(&mut record);
    record.write(&asked.out)?;
    Ok(())
}

fn loops(mode: Mode) -> Vec<Loop> {
    let part = |count: u32| match mode {
        Mode::Full => count,
        Mode::Smoke => count / 50 + 1,
    };
    let mebibytes = |n: u64| Bytes::from_mib(n).get().to_string();
    let kibibytes = |n: u64| Bytes::from_kib(n).get().to_string();
    let held = mebibytes(if mode == Mode::Full { 512 } else { 16 });
    let plain = |name, kind: &str, count, bytes: Option<String>| {
        let count = part(count);
        let bytes = bytes.unwrap_or_else(|| "0".to_owned());
        let arguments = vec![kind.to_owned(), count.to_string(), bytes];
        Loop {
            name,
            arguments,
            count,
        }
    };
    vec![
        plain(
            "malloc and free, 16 to 1024 bytes",
            "small",
            20_000_000,
            None,
        ),
        plain(
            "malloc and free, 200K",
            "block",
            10_000_000,
            Some(kibibytes(200)),
        ),
        plain("mmap and munmap, 64K", "map", 120_000, Some(kibibytes(64))),
        plain(
            "mmap and munmap, 64K, touched",
            "map-touch",
            12_000,
            Some(kibibytes(64)),
        ),
        plain(
            "mmap and munmap, 4M, touched",
            "map-touch",
            200,
            Some(mebibytes(4)),
        ),
        plain("fork and wait", "fork", 2000, None),
        plain("fork and wait, 512M held", "fork", 25, Some(held.clone())),
        plain("posix_spawn and wait", "spawn", 600, None),
        plain("posix_spawn and wait, 512M held", "spawn", 400, Some(held)),
        Loop {
            name: "sh -c loop over a program",
            arguments: Vec::new(),
            count: part(600),
        },
    ]
}

/// Runs every loop and some starts in every arm, in random order.
fn round(
    mode: Mode,
    mappings: usize,
    arms: &[Arm],
    program: &Path,
    loops: &[Loop],
) -> Result<BTreeMap<&'static str, Sample>, Failed> {
    let mut round: BTreeMap<&'static str, Sample> = BTreeMap::new();
    for one in loops {
        let mut order: Vec<&Arm> = arms.iter().collect();
        fastrand::shuffle(&mut order);
        for arm in order {
            let rate = sample(arm, program, one, mappings)?;
            let sample = round.entry(arm.label).or_default();
            sample.insert(quantity(one), rate);
        }
    }
    let starts = if mode == Mode::Full { 20 } else { 2 };
    let mut seconds: BTreeMap<&'static str, Vec<f64>> = BTreeMap::new();
    for _ in 0..starts {
        let mut order: Vec<&Arm> = arms.iter().collect();
        fastrand::shuffle(&mut order);
        for arm in order {
            seconds.entry(arm.label).or_default().push(start(arm)?);
        }
    }
    for (label, seconds) in seconds {
        let sample = round.entry(label).or_default();
        sample.insert(STARTS.to_owned(), median(&seconds));
    }
    Ok(round)
}

fn quantity(one: &Loop) -> String {
    format!("{}, operations/s", one.name)
}

fn sample(arm: &Arm, program: &Path, one: &Loop, mappings: usize) -> Result<f64, Failed> {
    if one.arguments.is_empty() {
        let program = find_program(&["true"]).unwrap_or_else(|| PathBuf::from("true"));
        let text = format!(
            "i=0; while [ $i -lt {} ]; do {}; i=$((i+1)); done",
            one.count,
            program.display()
        );
        let start = Instant::now();
        done(arm.command("sh").args(["-c", &text]))?;
        return Ok(f64::from(one.count) / start.elapsed().as_secs_f64());
    }
    let mut command = arm.command(&program.to_string_lossy());
    let said = done(command.args(&one.arguments).arg(mappings.to_string()))?;
    let lines: Vec<String> = said.lines().map(str::to_owned).collect();
    value(&lines, "rate work")
}

/// Returns the seconds from start to end of a program that does nothing.
fn start(arm: &Arm) -> Result<f64, Failed> {
    let mut command = arm.command("true");
    command.stdin(Stdio::null()).stdout(Stdio::null());
    let start = Instant::now();
    let status = command.status()?;
    let seconds = start.elapsed().as_secs_f64();
    match status.success() {
        true => Ok(seconds),
        false => Err(format!("{command:?}: {status}").into()),
    }
}

fn report(samples: &Samples, loops: &[Loop], record: &mut Record) {
    let mut missed = Vec::new();
    for one in loops {
        let quantity = quantity(one);
        if let Some(ratio) = samples.ratio(RUN_THP, BARE, &quantity) {
            println!("  {:36} {ratio} of bare's rate", one.name);
            record.figure(format!("{}, over bare", one.name), ratio);
            if ratio.center < LEAST {
                missed.push(format!("{}: {ratio}", one.name));
            }
        }
    }
    let starts = samples.of(RUN_THP, STARTS).iter();
    let more: Vec<f64> = starts
        .zip(samples.of(BARE, STARTS))
        .map(|(ours, bare)| ours - bare)
        .filter(|v| v.is_finite())
        .collect();
    let more = median(&more);
    record.figure("start, seconds more than bare", more);
    if more > MOST_AT_START {
        missed.push(format!("start: {more:.4} s more than bare"));
    }
    record.figure("missed", missed);
}

/// Counts the runs of the threads of an idle program, and its processes.
fn idle(
    mode: Mode,
    host: &Host,
    arms: &[Arm],
    program: &Path,
    record: &mut Record,
) -> Result<(), Failed> {
    let (held, seconds) = match mode {
        Mode::Full => (Bytes::from_mib(256), 10),
        Mode::Smoke => (Bytes::from_mib(64), 1),
    };
    for arm in arms {
        let all = held;
        host.warm(Bytes(all.get() + all.get() / 4))?;
        let mut command: Command = arm.command(&program.to_string_lossy());
        let mut talk = Talk::start(command.args(["idle", "1", &held.get().to_string(), "0"]))?;
        talk.until_ready()?;
        // The program goes to sleep meanwhile.
        std::thread::sleep(Duration::from_millis(500));
        let before = switches(talk.pid())?;
        std::thread::sleep(Duration::from_secs(seconds));
        let after = switches(talk.pid())?;
        let times: u64 = after.values().sum::<u64>() - before.values().sum::<u64>();
        let everybody = process_facts::tree(talk.pid()).len();
        record.figure(
            format!("idle, {}", arm.label),
            serde_json::json!({
                "seconds": seconds,
                "wake_ups": times,
                "threads": after.len(),
                "processes": everybody,
                "coverage": super::look::look(talk.pid())?.private.coverage(),
                "resident_bytes": super::look::resident(talk.pid())? as f64,
            }),
        );
        talk.until_end()?;
    }
    Ok(())
}

/// Returns the number of context switches of each thread of a process, by its id.
fn switches(pid: u32) -> Result<BTreeMap<String, u64>, Failed> {
    let mut all = BTreeMap::new();
    for entry in std::fs::read_dir(format!("/proc/{pid}/task"))? {
        let entry = entry?;
        let text = std::fs::read_to_string(entry.path().join("status"))?;
        let times = text
            .lines()
            .filter_map(|line| line.split_once("_ctxt_switches:"))
            .filter_map(|(_, times)| times.trim().parse::<u64>().ok())
            .sum();
        all.insert(entry.file_name().to_string_lossy().into_owned(), times);
    }
    Ok(all)
}
