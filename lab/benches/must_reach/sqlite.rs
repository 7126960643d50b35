//! SQLite on the cache of hugeleaf-sqlite and on its own, with the same bytes of pages. Loads by key, with threads, of
//! scans, of changes, of small databases and of order entry; and two databases whose load swaps, next to fixed splits.
//!
//! Every sample is a process of its own (`lab/examples/sqlite.rs`), since SQLite is configured once.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::record::{Record, median, paired};
use crate::{Asked, Failed, Mode};

/// Loads measured in operations a second.
const RATES: [&str; 6] = ["keyed", "threads", "scan", "write", "small", "tpcc"];
const SWAP: &str = "swap";
/// SQLite's own cache, and ours.
const RATE_ARMS: [&str; 2] = ["stock", "large"];
/// `half` and `uneven` are fixed splits on huge pages: equal, and with the whole first database in its part.
const SWAP_ARMS: [&str; 4] = ["large", "base", "half", "uneven"];
/// Length of a phase of `swap` in seconds, and the second from which moved memory must be in use.
const PHASE: usize = 30;
const MOVED: usize = 20;

struct Sizes {
    mib: u64,
    seconds: u64,
    swap_seconds: u64,
    rounds: usize,
    swap_rounds: usize,
}

/// Runs the benchmark.
pub fn run(asked: &Asked) -> Result<(), Failed> {
    let sizes = match asked.mode {
        Mode::Full => Sizes {
            mib: 2048,
            seconds: 8,
            swap_seconds: 120,
            rounds: asked.rounds(8),
            swap_rounds: asked.rounds(4),
        },
        Mode::Smoke => Sizes {
            mib: 32,
            seconds: 1,
            swap_seconds: 2,
            rounds: 1,
            swap_rounds: 1,
        },
    };
    let program = program()?;
    let folder = tempfile::Builder::new()
        .prefix("hugeleaf-sqlite-")
        .tempdir_in("/var/tmp")?;
    let mut random = fastrand::Rng::with_seed(1);
    for load in RATES {
        if asked.wants(load) {
            rates(
                load,
                &program,
                folder.path(),
                &sizes,
                &mut random,
                &asked.out,
            )?;
        }
    }
    if asked.wants(SWAP) {
        swap(&program, folder.path(), &sizes, &mut random, &asked.out)?;
    }
    Ok(())
}

/// Returns the program of the loads, built beside this program.
fn program() -> Result<PathBuf, Failed> {
    let own = std::env::current_exe()?;
    let profile = own.parent().and_then(Path::parent);
    let program = profile
        .ok_or("this program is in no folder")?
        .join("examples/sqlite");
    match program.exists() {
        true => Ok(program),
        false => Err(format!(
            "{} does not exist: scripts/bench.sh sqlite builds and runs it",
            program.display()
        )
        .into()),
    }
}

/// Returns the output of one process.
fn one(
    program: &Path,
    [load, cache]: [&str; 2],
    folder: &Path,
    mib: u64,
    seconds: u64,
) -> Result<String, Failed> {
    let mut command = Command::new(program);
    command.args([load, cache]).arg(folder);
    command.args([mib.to_string(), seconds.to_string()]);
    let output = command
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()?;
    match output.status.success() {
        true => Ok(String::from_utf8(output.stdout)?),
        false => Err(format!("{command:?}: {}", output.status).into()),
    }
}

fn rates(
    load: &str,
    program: &Path,
    folder: &Path,
    sizes: &Sizes,
    random: &mut fastrand::Rng,
    out: &Path,
) -> Result<(), Failed> {
    let mut record = Record::new(format!("sqlite-{load}"), "make bench");
    let mut samples: [Vec<f64>; 2] = Default::default();
    // The first run makes the database.
    one(program, [load, "stock"], folder, sizes.mib, 1)?;
    for _ in 0..sizes.rounds {
        let mut order = [0, 1];
        random.shuffle(&mut order);
        for at in order {
            let rate = one(
                program,
                [load, RATE_ARMS[at]],
                folder,
                sizes.mib,
                sizes.seconds,
            )?;
            samples[at].push(rate.trim().parse()?);
        }
    }
    let ratios = samples[1].iter().zip(&samples[0]).map(|(a, b)| a / b);
    let all = serde_json::json!(paired(ratios.collect()));
    record.figure(
        format!("{load}: our cache on huge pages over SQLite's own, low, median, high"),
        all,
    );
    for (arm, samples) in RATE_ARMS.iter().zip(&samples) {
        record.arm(*arm, "operations/s", samples);
    }
    record.write(out)?;
    remove_databases(folder)
}

/// Removes the databases of a load, which the next load cannot use.
fn remove_databases(folder: &Path) -> Result<(), Failed> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        match path.is_dir() {
            true => std::fs::remove_dir_all(path)?,
            false => std::fs::remove_file(path)?,
        }
    }
    Ok(())
}

/// Name of a time of a run, and its accessor.
type Time = (&'static str, fn(&Run) -> f64);

/// One run of two databases whose load swaps.
struct Run {
    /// Operations of each second.
    rates: Vec<f64>,
    /// Longest operation, in milliseconds.
    longest: f64,
    /// Longest operation during which memory was moved, in milliseconds.
    longest_in_a_move: f64,
}

impl Run {
    fn of(printed: &str) -> Result<Run, Failed> {
        let mut run = Run {
            rates: Vec::new(),
            longest: f64::NAN,
            longest_in_a_move: f64::NAN,
        };
        let ms = |time: &str| time.parse::<f64>().map(|seconds| seconds * 1000.0);
        for line in printed.lines() {
            let mut words = line.split_whitespace();
            match (words.next(), words.next()) {
                (Some("second"), Some(rate)) => run.rates.push(rate.parse()?),
                (Some("longest"), Some(time)) => run.longest = ms(time)?,
                (Some("longest-in-a-move"), Some(time)) => run.longest_in_a_move = ms(time)?,
                _ => return Err(format!("this is no line of a swap: {line}").into()),
            }
        }
        Ok(run)
    }

    fn all(&self) -> f64 {
        self.rates.iter().sum::<f64>() / self.rates.len() as f64
    }

    /// Returns the mean rate in phases of the first database, from the second at which all memory should have moved.
    fn moved(&self) -> f64 {
        let of_first = |at: usize| (at / PHASE).is_multiple_of(2) && at % PHASE >= MOVED;
        let rates = self.rates.iter().enumerate();
        let rates: Vec<f64> = rates
            .filter(|(at, _)| of_first(*at))
            .map(|(_, r)| *r)
            .collect();
        rates.iter().sum::<f64>() / rates.len().max(1) as f64
    }
}

fn swap(
    program: &Path,
    folder: &Path,
    sizes: &Sizes,
    random: &mut fastrand::Rng,
    out: &Path,
) -> Result<(), Failed> {
    let mut record = Record::new("sqlite-swap", "make bench");
    let mut runs: [Vec<Run>; 4] = Default::default();
    one(program, [SWAP, "stock"], folder, sizes.mib, 1)?;
    for _ in 0..sizes.swap_rounds {
        let mut order = [0, 1, 2, 3];
        random.shuffle(&mut order);
        for at in order {
            let words = [SWAP, SWAP_ARMS[at]];
            let printed = one(program, words, folder, sizes.mib, sizes.swap_seconds)?;
            runs[at].push(Run::of(&printed)?);
        }
    }
    let over = |of: fn(&Run) -> f64, arm: usize| {
        let pairs = runs[0].iter().zip(&runs[arm]);
        serde_json::json!(paired(pairs.map(|(a, b)| of(a) / of(b)).collect()))
    };
    record.figure(
        "our cache over equal shares on large pages, the whole run",
        over(Run::all, 2),
    );
    record.figure(
        "our cache over itself on base pages, the whole run",
        over(Run::all, 1),
    );
    record.figure(
        "our cache over the best fixed split of a phase, from its 20th second on",
        over(Run::moved, 3),
    );
    let each = |runs: &[Run], of: fn(&Run) -> f64| runs.iter().map(of).collect::<Vec<f64>>();
    let times: [Time; 2] = [
        ("longest operation", |run| run.longest),
        ("longest operation during a move", |run| {
            run.longest_in_a_move
        }),
    ];
    for (name, of) in times {
        let median = median(&each(&runs[0], of));
        record.figure(format!("{name}, ms, median of runs"), median);
    }
    for (arm, runs) in SWAP_ARMS.iter().zip(&runs) {
        let rates: Vec<f64> = runs.iter().flat_map(|run| run.rates.clone()).collect();
        record.arm(format!("{arm}: each second"), "operations/s", &rates);
        for (name, of) in times {
            record.arm(format!("{arm}: {name}"), "ms", &each(runs, of));
        }
    }
    record.write(out)?;
    remove_databases(folder)
}
