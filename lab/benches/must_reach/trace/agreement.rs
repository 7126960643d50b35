//! The same run seen by `perf` and by `hugeleaf trace` concurrently. Every entry of at least five
//! per cent must be in both, with shares that differ by at most two points.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use hugeleaf_trace::Trace;
use serde_json::json;

use super::loads::Fight;
use crate::record::Record;
use crate::{Failed, Mode};
use hugeleaf_testkit::find_program;

/// Shares in per cent, by name.
type Shares = BTreeMap<String, f64>;

/// Minimum share of an entry that counts.
const LEAST: f64 = 5.0;

/// Runs the comparison.
pub fn run(mode: Mode, fight: &Path, folder: &Path, record: &mut Record) -> Result<(), Failed> {
    let Some(perf) = find_program(&["perf"]) else {
        println!("not run: agreement: perf is not installed");
        return Ok(());
    };
    let seconds = match mode {
        Mode::Full => 20,
        Mode::Smoke => 2,
    };
    let (profile, locks, file) = (
        folder.join("perf.data"),
        folder.join("perf.locks"),
        folder.join("agreement.trace"),
    );
    let time = seconds.to_string();
    let load = Fight::start(fight)?;
    std::thread::sleep(Duration::from_secs(1));
    let trace = super::start_trace(seconds, &file)?;
    // The trace reads memory first; perf begins immediately.
    std::thread::sleep(Duration::from_millis(500));
    let mut record_profile = Command::new(&perf);
    record_profile.args(["record", "-q", "-a", "-e", "cpu-clock", "-F", "499", "-o"]);
    record_profile.arg(&profile).args(["--", "sleep", &time]);
    let mut record_locks = Command::new(&perf);
    record_locks.args(["lock", "record", "-a", "-q", "-m", "8192", "-o"]);
    record_locks.arg(&locks).args(["--", "sleep", &time]);
    let quiet = |command: &mut Command| {
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
    };
    let (first, second) = (quiet(&mut record_profile)?, quiet(&mut record_locks)?);
    super::end(first, "perf record")?;
    super::end(second, "perf lock record")?;
    super::end(trace, "hugeleaf trace")?;
    drop(load);
    let trace = hugeleaf_trace::read_trace(&file)?;
    compare(
        "profile",
        &perf_profile(&perf, &profile)?,
        &own_profile(&trace),
        record,
    );
    compare(
        "locks",
        &perf_locks(&perf, &locks)?,
        &own_locks(&trace),
        record,
    );
    Ok(())
}

fn compare(what: &str, theirs: &Shares, ours: &Shares, record: &mut Record) {
    let (mut worst, mut missing): (f64, Vec<&String>) = (0.0, Vec::new());
    let mut rows = Vec::new();
    let large = |shares: &Shares, name: &String| shares.get(name).copied().unwrap_or(0.0) >= LEAST;
    let mut names: Vec<&String> = theirs.keys().chain(ours.keys()).collect();
    names.sort();
    names.dedup();
    for name in names {
        if !large(theirs, name) && !large(ours, name) {
            continue;
        }
        let (Some(a), Some(b)) = (theirs.get(name), ours.get(name)) else {
            missing.push(name);
            continue;
        };
        worst = worst.max((a - b).abs());
        rows.push(json!({"name": name, "perf_percent": a, "hugeleaf_percent": b}));
    }
    record.figure(format!("{what}, entries of 5 % or more in both"), rows);
    record.figure(format!("{what}, entries in one only"), json!(missing));
    record.figure(format!("{what}, largest difference, points"), worst);
}

/// Converts counts to per cent of the total.
fn shares(counts: BTreeMap<String, f64>) -> Shares {
    let all: f64 = counts.values().sum();
    counts
        .into_iter()
        .map(|(name, count)| (name, count * 100.0 / all.max(1e-9)))
        .collect()
}

fn output(command: &mut Command) -> Result<String, Failed> {
    let output = command.stdin(Stdio::null()).output()?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Returns the innermost functions of all processes except the idle one.
fn perf_profile(perf: &Path, file: &Path) -> Result<Shares, Failed> {
    let text = output(
        Command::new(perf)
            .args(["script", "-F", "comm,pid,ip,sym", "-i"])
            .arg(file),
    )?;
    let mut counts = BTreeMap::new();
    // "comm pid address symbol", where comm may contain spaces.
    for line in text.lines() {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let hex = |w: &&str| w.len() > 5 && u64::from_str_radix(w, 16).is_ok();
        let Some(at) = words.iter().rposition(hex) else {
            continue;
        };
        let is_idle = at > 0 && words[at - 1] == "0";
        if !is_idle {
            let name = words[at + 1..].join(" ");
            *counts.entry(name).or_insert(0.0) += 1.0;
        }
    }
    Ok(shares(counts))
}

fn own_profile(trace: &Trace) -> Shares {
    let mut counts = BTreeMap::new();
    for sample in &trace.samples {
        if trace.processes[sample.process as usize].pid == 0 {
            continue;
        }
        let leaf = trace.stacks[sample.stack as usize].frames.first();
        let name = leaf.map_or("[unknown]", |f| {
            let symbol = &trace.symbols[*f as usize];
            if symbol.unnamed {
                "[unknown]"
            } else {
                &symbol.name
            }
        });
        *counts.entry(name.to_owned()).or_insert(0.0) += sample.count as f64;
    }
    shares(counts)
}

/// Returns the time waited, by the function that takes the lock.
fn perf_locks(perf: &Path, file: &Path) -> Result<Shares, Failed> {
    let mut command = Command::new(perf);
    command.args(["lock", "contention", "-k", "wait_total", "-F", "wait_total"]);
    // perf already leaves out the code of locks. By default it skips three more frames, which on
    // kernels whose stacks begin there are those of the lock's taker.
    command.args(["--stack-skip", "0", "-i"]);
    // perf prints this table on stderr in some versions.
    let output = command.arg(file).stdin(Stdio::null()).output()?;
    let text = [output.stdout, output.stderr].concat();
    let mut counts = BTreeMap::new();
    for line in String::from_utf8_lossy(&text).lines() {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let [number, unit, .., caller] = words[..] else {
            continue;
        };
        let (Ok(number), Some(scale)) = (number.parse::<f64>(), nanos(unit)) else {
            continue;
        };
        let function = caller.split('+').next().unwrap_or(caller);
        *counts.entry(function.to_owned()).or_insert(0.0) += number * scale;
    }
    Ok(shares(counts))
}

fn nanos(unit: &str) -> Option<f64> {
    Some(match unit {
        "ns" => 1.0,
        "us" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        "m" => 60e9,
        _ => return None,
    })
}

fn own_locks(trace: &Trace) -> Shares {
    let mut counts = BTreeMap::new();
    for caller in trace.locks.iter().flat_map(|l| &l.by_caller) {
        let name = caller
            .function
            .map_or("[unknown]", |f| trace.symbols[f as usize].name.as_str());
        *counts.entry(name.to_owned()).or_insert(0.0) += caller.totals.waited_nanos as f64;
    }
    shares(counts)
}
