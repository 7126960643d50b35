//! Flags of `hugeleaf-lab amm`; see its `--help`.

use std::path::PathBuf;
use std::time::Duration;

use crate::experiments::amm::{AmmArm, AmmLoad, AmmSettings};
use crate::kits::tpcc::Durability;
use hugeleaf_units::{Bytes, parse_time};

use super::oltp::{parse_connections, parse_durability, parse_shrink, parse_warehouses};
use hugeleaf_cli::bench::OutputArgs;
use hugeleaf_cli::bench::{once, parse_count, parse_rounds};

/// Flags.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Arms:   WHO:PAGES[:SHARE]
  who     manual (a fixed split) or amm (hugeleaf balance transfers memory)
  pages   base; large (promoted while they run); hugetlb (MariaDB's large_pages, manual only)
  share   initial share of the first server, in percent [default: 50]
Loads:  steady    both servers read alike; an equal split holds their frequently read data
        swap      one server is busy and the other is not, then the other way round
        nightly   one server is busy throughout; the other runs a report at night
        flood     one server is busy throughout; the other gets statements that never repeat
        tpcc      as swap, with order entry by the rules of TPC-C

Examples:
  hugeleaf-lab amm
  hugeleaf-lab amm --loads swap --arms manual:large,manual:large:80,manual:large:20,amm:large
  hugeleaf-lab amm --target 256M --for 20s --settle 10s --rounds 1 --html amm.html

Two separate MariaDB servers are started on Unix sockets, and stopped and removed afterwards. They
take about three times the target on disk. The host is not changed.
Exit status: 0 measured; 1 interrupted, or an arm that --arms names was unavailable; 2 wrong usage;
3 a precondition is missing.")]
pub struct Args {
    /// Arms, separated by commas; the first is the baseline [default: manual:large, manual:base,
    /// manual:hugetlb, amm:large, amm:base]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub arms: Vec<AmmArm>,
    /// Loads, separated by commas [default: all]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    loads: Vec<AmmLoad>,
    /// Total size of both buffer pools
    #[arg(long, value_name = "SIZE", default_value = "1G")]
    target: Bytes,
    /// Minimum size of each buffer pool [default: an eighth of the target]
    #[arg(long, value_name = "SIZE")]
    least: Option<Bytes>,
    /// Duration of each phase of a load, in whole seconds
    #[arg(long = "for", value_name = "TIME", default_value = "90s", value_parser = parse_phase)]
    time: Duration,
    /// Time after which a phase counts as settled
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = parse_time)]
    settle: Duration,
    /// Scan interval of hugeleaf balance, at least 1s
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = parse_every)]
    every: Duration,
    /// Connections of a busy server
    #[arg(long, value_name = "C", default_value = "2", value_parser = parse_connections)]
    connections: usize,
    /// Warehouses of each server, for the load tpcc [default: as many as fit three quarters of the
    /// target]
    #[arg(long, value_name = "W", value_parser = parse_warehouses)]
    warehouses: Option<i32>,
    /// Divide the rows of a warehouse by this, for quick trials; at most 100
    #[arg(long, value_name = "N", default_value = "1", value_parser = parse_shrink)]
    shrink: i32,
    /// Time at which commits must be on disk: commit, soon, never
    #[arg(long, value_name = "WHEN", default_value = "soon", value_parser = parse_durability)]
    durability: Durability,
    /// Runs of each arm and load; an interval needs 6
    #[arg(long, value_name = "N", default_value = "3", value_parser = parse_rounds)]
    rounds: usize,
    /// Parent directory for the servers' data; it should be on a disk
    #[arg(long, value_name = "DIR", default_value = "/var/tmp")]
    below: PathBuf,
    /// Seed of the order of arms and of the requests, to repeat a run
    #[arg(long, value_name = "N", default_value = "1")]
    seed: u64,
    #[command(flatten)]
    pub output: OutputArgs,
}

/// Parses the length of a phase: a day at most, more is a mistake.
fn parse_phase(text: &str) -> Result<Duration, String> {
    const MOST: usize = 24 * 60 * 60;
    let time = parse_time(text)?;
    let seconds = time.as_secs().to_string();
    match time.subsec_nanos() {
        0 => parse_count(&seconds, "seconds", MOST).map(|_| time),
        _ => Err(format!("'{text}' is not a number of whole seconds")),
    }
}

/// Parses an interval between the shortest and the longest that the balancer accepts.
fn parse_every(text: &str) -> Result<Duration, String> {
    const BOUNDS: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(3600)];
    let time = parse_time(text)?;
    match (BOUNDS[0]..=BOUNDS[1]).contains(&time) {
        true => Ok(time),
        false => Err(format!("'{text}' is not a time from 1s to 1h")),
    }
}

/// The arms compared by default.
const USUAL: [&str; 5] = [
    "manual:large",
    "manual:base",
    "manual:hugetlb",
    "amm:large",
    "amm:base",
];

/// Divisor of the target for the default minimum of a server.
const PART: u64 = 8;

impl Args {
    pub fn settings(&self) -> AmmSettings {
        let usual = || USUAL.iter().filter_map(|arm| arm.parse().ok()).collect();
        let arms = match self.arms.is_empty() {
            true => usual(),
            false => once(self.arms.iter().copied()),
        };
        let loads = match self.loads.is_empty() {
            true => AmmLoad::ALL.to_vec(),
            false => once(self.loads.iter().copied()),
        };
        AmmSettings {
            arms,
            loads,
            target: self.target,
            least: self.least.unwrap_or(Bytes(self.target.get() / PART)),
            phase: self.time,
            settle: self.settle,
            every: self.every,
            connections: self.connections,
            warehouses: self.warehouses,
            shrink: self.shrink,
            durability: self.durability,
            rounds: self.rounds,
            parent_folder: self.below.clone(),
            seed: self.seed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usual_arms_are_arms() {
        for arm in USUAL {
            assert_eq!(
                arm.parse::<AmmArm>().map(|arm| arm.to_string()),
                Ok(arm.to_owned())
            );
        }
    }

    #[test]
    fn phases_are_whole_seconds() {
        assert_eq!(parse_phase("90s"), Ok(Duration::from_secs(90)));
        for text in ["500ms", "0s", "x", "48h"] {
            assert!(parse_phase(text).is_err(), "{text}");
        }
    }
}
