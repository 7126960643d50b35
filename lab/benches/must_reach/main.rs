//! The benchmarks behind the figures in README.md that need a whole program: servers under load during their promotion,
//! `mem` over many processes, and the time until a user gets an answer.
//!
//! `scripts/bench.sh` (`make bench`) runs it; by hand:
//!
//! ```text
//! scripts/lab.sh bench --bench must_reach -- [--smoke] [--out FOLDER] [NAME…]
//! ```
//!
//! Names: `latency`, `shared`, `servers`, `region`, `run-rates`, `run-pool`, `trace`, `top`, `guard-cost`,
//! `guard-proofs`, `guard-kills`, `guard-growth`, `sqlite`, `guard-soak`; without a name all but the last, which takes
//! two hours. `--smoke` takes small sizes and one round. It shows that everything still runs, and its figures have no
//! meaning. Those from `run-rates` on, except `top` and `guard-cost`, also take `--rounds N`, `--only PART,…` (programs
//! or calls by name), and `--more`. With `--more`, samples are added to those in FOLDER, so that hours of them can be
//! taken in several sessions.

#[path = "../../../crates/cli/tests/common.rs"]
#[allow(dead_code, unused_imports, clippy::unwrap_used)]
// shared with the tests, which use the rest
mod common;
#[path = "../../../crates/cli/tests/guard/kit.rs"]
#[allow(dead_code, clippy::unwrap_used)] // shared with the tests, which use the rest
mod kit;

mod clients;
mod guard;
mod holders;
mod latency;
mod record;
mod region;
mod run;
mod servers;
mod setting;
mod shared;
mod sqlite;
mod timing;
mod top;
mod trace;

use std::path::PathBuf;

use common::HUGELEAF;

type Failed = Box<dyn std::error::Error>;

/// Full measurement, or a check that the benchmark still runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Full,
    Smoke,
}

const NAMES: [&str; 14] = [
    "latency",
    "shared",
    "servers",
    "region",
    "run-rates",
    "run-pool",
    "trace",
    "top",
    "guard-cost",
    "guard-proofs",
    "guard-kills",
    "guard-growth",
    "sqlite",
    SOAK,
];

/// Runs only if named: it takes hours.
const SOAK: &str = "guard-soak";

/// Options of a benchmark.
struct Asked {
    mode: Mode,
    out: PathBuf,
    rounds: Option<usize>,
    only: Vec<String>,
    more: bool,
}

impl Asked {
    /// Returns the number of rounds; `usual` is the benchmark's default.
    fn rounds(&self, usual: usize) -> usize {
        let usual = match self.mode {
            Mode::Full => usual,
            Mode::Smoke => 1,
        };
        self.rounds.unwrap_or(usual)
    }

    /// Returns true if a part of the benchmark is requested.
    fn wants(&self, part: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|name| name == part)
    }
}

fn main() -> Result<(), Failed> {
    let mut asked = Asked {
        mode: Mode::Full,
        out: PathBuf::new(),
        rounds: None,
        only: Vec::new(),
        more: false,
    };
    let mut names = Vec::new();
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            // Added by cargo.
            "--bench" => {}
            "--smoke" => asked.mode = Mode::Smoke,
            "--out" => asked.out = arguments.next().unwrap_or_default().into(),
            "--rounds" => asked.rounds = Some(arguments.next().unwrap_or_default().parse()?),
            "--only" => {
                let parts = arguments.next().unwrap_or_default();
                asked.only = parts.split(',').map(str::to_owned).collect();
            }
            "--more" => asked.more = true,
            name if NAMES.contains(&name) => names.push(name.to_owned()),
            other => return Err(format!("{other}: not one of {NAMES:?}").into()),
        }
    }
    if asked.out.as_os_str().is_empty() {
        return Err("--out FOLDER: where the raw samples go".into());
    }
    let (mode, out) = (asked.mode, &asked.out);
    for name in NAMES {
        let is_wanted = match names.is_empty() {
            true => name != SOAK,
            false => names.iter().any(|n| n == name),
        };
        if !is_wanted {
            continue;
        }
        println!("{name}");
        match name {
            "latency" => latency::run(mode, out)?,
            "shared" => shared::run(mode, out)?,
            "region" => region::run(mode, out)?,
            "run-rates" => run::rates(&asked)?,
            "run-pool" => run::pool(&asked)?,
            "trace" => trace::run(&asked)?,
            "top" => top::run(mode, out)?,
            "guard-cost" => guard::cost(mode, out)?,
            "guard-proofs" => guard::proofs(&asked)?,
            "guard-kills" => guard::kills(&asked)?,
            "guard-growth" => guard::growth(&asked)?,
            "sqlite" => sqlite::run(&asked)?,
            SOAK => guard::soak(&asked)?,
            _ => servers::run(mode, out)?,
        }
    }
    Ok(())
}
