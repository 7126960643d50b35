//! The benchmarks behind the figures in README.md that need a whole program: servers under load
//! while they are promoted, `mem` over many processes, and what a person waits.
//!
//! `scripts/bench.sh` (`make bench`) runs it; by hand:
//!
//! ```text
//! cargo bench -p hugeleaf-cli --bench must_reach -- [--smoke] [--out FOLDER] [NAME…]
//! ```
//!
//! Names: `latency`, `shared`, `servers`, `region`; none means all. `--smoke` takes small sizes and one
//! round: it shows that everything still runs, and its figures mean nothing.

#[path = "../../tests/support/mod.rs"]
#[allow(dead_code, clippy::unwrap_used)] // shared with the tests, which use the rest
mod support;

mod clients;
mod holders;
mod latency;
mod record;
mod region;
mod servers;
mod shared;
mod timing;

use std::path::PathBuf;

use support::HUGELEAF;

type Failed = Box<dyn std::error::Error>;

/// Whether figures or only a sign of life are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Full,
    Smoke,
}

const NAMES: [&str; 4] = ["latency", "shared", "servers", "region"];

fn main() -> Result<(), Failed> {
    let mut mode = Mode::Full;
    let mut out = None;
    let mut names = Vec::new();
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            // What cargo adds.
            "--bench" => {}
            "--smoke" => mode = Mode::Smoke,
            "--out" => out = arguments.next().map(PathBuf::from),
            name if NAMES.contains(&name) => names.push(name.to_owned()),
            other => return Err(format!("{other}: not one of {NAMES:?}").into()),
        }
    }
    let out = out.ok_or("--out FOLDER: where the raw samples go")?;
    for name in NAMES {
        if !names.is_empty() && !names.iter().any(|n| n == name) {
            continue;
        }
        println!("{name}");
        match name {
            "latency" => latency::run(mode, &out)?,
            "shared" => shared::run(mode, &out)?,
            "region" => region::run(mode, &out)?,
            _ => servers::run(mode, &out)?,
        }
    }
    Ok(())
}
