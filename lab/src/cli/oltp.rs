//! Flags of `hugeleaf-lab oltp`; see its `--help`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use crate::experiments::oltp::{
    COPIER, OltpDatabase, OltpPages, OltpSettings, ReadPath, SERVERS, ServerKind, copy_until_ended,
};
use crate::kits::tpcc::Durability;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use hugeleaf_units::{Bytes, parse_time};

use hugeleaf_cli::bench::OutputArgs;
use hugeleaf_cli::bench::{parse_count, parse_rounds};
use hugeleaf_cli::context::{Failure, print_failure};

/// Flags.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Databases:  sqlite:DIR        files in a directory, loaded once and reused
            postgres:DSN      a running server; everything is created in the schema hugeleaf_tpcc

Examples:
  hugeleaf-lab oltp --warehouses 10 --for 60s
  hugeleaf-lab oltp --warehouses 10 --cache 2G --pages base,locked,thp:2M --rounds 10
  hugeleaf-lab oltp --start postgres --warehouses 10 --pages base,promoted,hugetlb:2M
  hugeleaf-lab oltp --start postgres --pages base,thp:2M --by-connections 2,8,32
  hugeleaf-lab oltp --start mariadb --warehouses 10 --pages base,promoted,hugetlb:2M
  hugeleaf-lab oltp --warehouses 40 --pages base,thp:2M --by-cache 256M,1G,4G
  hugeleaf-lab oltp --warehouses 20 --pages base,thp:2M --io buffered --copy-beside 1G
  hugeleaf-lab oltp --database 'postgres:host=/run/postgresql dbname=test' --connections 8

The load follows the rules of TPC-C, but its results are not TPC-C results. A warehouse takes about
100M on disk.
Exit status: 0 measured; 1 interrupted, pages that --pages names were unavailable, or the database
is not consistent; 2 wrong usage; 3 a precondition is missing.")]
pub struct Args {
    /// Database to use [default: sqlite:hugeleaf-oltp, in the current directory]
    #[arg(long, value_name = "WHERE", conflicts_with = "start")]
    database: Option<OltpDatabase>,
    /// Start a separate server from the installed programs, and stop it afterwards
    #[arg(long, value_name = "SERVER", value_parser = servers())]
    start: Option<&'static ServerKind>,
    /// Parent directory for the data of that server; it should be on a disk
    #[arg(
        long,
        value_name = "DIR",
        default_value = "/var/tmp",
        requires = "start"
    )]
    below: PathBuf,
    /// Number of warehouses
    #[arg(long, value_name = "W", default_value = "4", value_parser = parse_warehouses)]
    warehouses: i32,
    /// Connections, each with a terminal [default: one per processor]
    #[arg(long, value_name = "C", value_parser = parse_connections)]
    connections: Option<usize>,
    /// Compare --pages at each of these numbers of connections, from few to many
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        value_parser = parse_connections,
        requires = "pages",
        conflicts_with_all = ["connections", "by_cache"]
    )]
    by_connections: Vec<usize>,
    /// Touch only this number of warehouses, the first ones
    #[arg(long, value_name = "N", value_parser = parse_warehouses)]
    touch: Option<i32>,
    /// Measurement time
    #[arg(long = "for", value_name = "TIME", default_value = "30s", value_parser = parse_time)]
    time: Duration,
    /// Warm-up time before the measurement
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = parse_time)]
    ramp_up: Duration,
    /// Cache of the database: total of all SQLite connections, shared_buffers, or the buffer pool
    /// [default: 256M]
    #[arg(long, value_name = "SIZE")]
    cache: Option<Bytes>,
    /// Compare --pages at each of these cache sizes, touching as many warehouses as fill it
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        requires = "pages",
        conflicts_with_all = ["cache", "touch", "io"]
    )]
    by_cache: Vec<Bytes>,
    /// cached: the cache holds all touched data; buffered or direct: it holds a fifth, and the rest
    /// is read through the page cache of the host, or bypasses it
    #[arg(long, value_name = "HOW", value_parser = parse_io)]
    io: Option<ReadPath>,
    /// Copy a file of this size repeatedly during the load, for pressure on the page cache
    #[arg(long, value_name = "SIZE")]
    copy_beside: Option<Bytes>,
    /// Time at which commits must be on disk: commit, soon, never
    #[arg(long, value_name = "WHEN", default_value = "soon", value_parser = parse_durability)]
    durability: Durability,
    /// Keying and think time, as a multiple of the standard; 0 is none
    #[arg(long, value_name = "FACTOR", default_value = "0", value_parser = parse_think)]
    think: f64,
    /// Divide the rows of a warehouse by this, for quick trials; at most 100
    #[arg(long, value_name = "N", default_value = "1", value_parser = parse_shrink)]
    shrink: i32,
    /// Do not load data; refuse a database that is empty or partly loaded
    #[arg(long, conflicts_with = "refill")]
    no_load: bool,
    /// Remove the data of an earlier run, and load it again
    #[arg(long, conflicts_with = "start")]
    refill: bool,
    /// Compare page sizes; the first is the baseline. For SQLite's cache: base, locked (base pages
    /// locked in memory), 64K, thp:2M, hugetlb:2M, hugetlb:1G, run (its heap, under hugeleaf run).
    /// For a server of --start: base, hugetlb:2M, hugetlb:1G, run, thp:2M (under hugeleaf run; only
    /// the shared memory of PostgreSQL), promoted (while it runs). Each run is a separate process
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub pages: Vec<OltpPages>,
    /// Do not measure the cost of address translation on these pages
    #[arg(long, requires = "pages")]
    no_translation: bool,
    /// Runs on each page size
    #[arg(long, value_name = "N", default_value = "10", value_parser = parse_rounds)]
    rounds: usize,
    /// One run of --pages; internal
    #[arg(long, hide = true, conflicts_with_all = ["start", "pages", "refill"])]
    arm: Option<OltpPages>,
    /// Count the TLB misses of such a run; internal
    #[arg(long, hide = true, requires = "arm")]
    count: bool,
    /// Seed of the rows and of the requests, to repeat a run
    #[arg(long, value_name = "N", default_value = "1")]
    seed: u64,
    #[command(flatten)]
    pub output: OutputArgs,
}

/// Parses the name of a server that can be started.
fn servers() -> impl TypedValueParser<Value = &'static ServerKind> {
    let names = SERVERS.iter().map(|kind| kind.name);
    PossibleValuesParser::new(names).try_map(|name| {
        let found = SERVERS.iter().find(|kind| kind.name == name);
        found.ok_or_else(|| format!("'{name}' is not a server"))
    })
}

pub fn parse_warehouses(text: &str) -> Result<i32, String> {
    /// Maximum, 10 TB; more are a mistake.
    const MOST: usize = 100_000;
    let number = parse_count(text, "warehouses", MOST)?;
    i32::try_from(number).map_err(|e| e.to_string())
}

pub fn parse_connections(text: &str) -> Result<usize, String> {
    const MOST: usize = 10_000;
    parse_count(text, "connections", MOST)
}

pub fn parse_shrink(text: &str) -> Result<i32, String> {
    let number = parse_count(text, "parts", 100)?;
    i32::try_from(number).map_err(|e| e.to_string())
}

pub fn parse_durability(text: &str) -> Result<Durability, String> {
    let all = [Durability::Commit, Durability::Soon, Durability::Never];
    let found = all.into_iter().find(|d| d.name() == text);
    found.ok_or_else(|| format!("'{text}' is not one of commit, soon, never"))
}

fn parse_io(text: &str) -> Result<ReadPath, String> {
    match text {
        "cached" => Ok(ReadPath::Cached),
        "buffered" => Ok(ReadPath::Buffered),
        "direct" => Ok(ReadPath::Direct),
        _ => Err(format!("'{text}' is not one of cached, buffered, direct")),
    }
}

fn parse_think(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(factor) if (0.0..=1000.0).contains(&factor) => Ok(factor),
        _ => Err(format!("'{text}' is not a number from 0 to 1000")),
    }
}

impl Args {
    pub fn order(&self) -> OltpSettings {
        let folder = || OltpDatabase::Sqlite("hugeleaf-oltp".into());
        OltpSettings {
            database: match self.start {
                Some(kind) => OltpDatabase::Started(kind, self.below.clone()),
                None => self.database.clone().unwrap_or_else(folder),
            },
            warehouses: self.warehouses,
            connections: self.connections,
            by_connections: self.by_connections.clone(),
            touch: self.touch,
            time: self.time,
            ramp_up: self.ramp_up,
            cache: self.cache,
            by_cache: self.by_cache.clone(),
            io: self.io,
            copy_beside: self.copy_beside,
            durability: self.durability,
            think: self.think,
            shrink: self.shrink,
            may_fill: !self.no_load,
            refill: self.refill,
            pages: self.pages.clone(),
            translation: !self.no_translation,
            rounds: self.rounds,
            arm: self.arm,
            count: self.count,
            seed: self.seed,
        }
    }
}

/// Runs the process that copies a file during the load, if this process was started for it.
pub fn copier() -> Option<ExitCode> {
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next()? != COPIER {
        return None;
    }
    let folder = arguments.next();
    let length = arguments
        .next()
        .and_then(|text| text.to_str()?.parse().ok());
    let (Some(folder), Some(length)) = (folder, length) else {
        let what = format!("{COPIER}: internal command of hugeleaf-lab oltp");
        return Some(print_failure(&Failure::usage(
            what,
            "hugeleaf-lab oltp --help",
        )));
    };
    let Err(error) = copy_until_ended(Path::new(&folder), length);
    let what = format!("{COPIER}: {}: {error}", Path::new(&folder).display());
    Some(print_failure(&Failure::missing(
        what,
        "hugeleaf-lab oltp --help",
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers() {
        assert_eq!(parse_warehouses("10"), Ok(10));
        assert_eq!(parse_durability("soon"), Ok(Durability::Soon));
        assert_eq!(parse_think("0.01"), Ok(0.01));
        for text in ["0", "-1", "x", "100001"] {
            assert!(parse_warehouses(text).is_err(), "{text}");
        }
        for text in ["-1", "x", "nan", "inf"] {
            assert!(parse_think(text).is_err(), "{text}");
        }
        assert_eq!(parse_io("direct"), Ok(ReadPath::Direct));
        assert!(parse_io("fast").is_err());
        assert!(parse_shrink("101").is_err() && parse_durability("later").is_err());
    }
}
