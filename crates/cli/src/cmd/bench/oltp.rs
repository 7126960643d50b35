//! See `hugeleaf bench oltp --help`.

mod arms;
mod child;
mod copier;
mod embedded;
mod pages;
mod server;
mod setup;
mod translation;

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use hugeleaf_proof::bench::oltp::{
    Io, OltpEvent, OltpResult, OltpRunError, OltpSettings, Processes, Watcher, run as measure,
};
use hugeleaf_proof::bench::{BenchEvent, to_json};
use hugeleaf_report::bench::oltp_text;
use hugeleaf_report::oltp_html::oltp_html;
use hugeleaf_report::table::Look;
use hugeleaf_units::Bytes;
use hugeleaf_workload::tpcc::{
    Durability, LoadEvent, Origin, Pace, PostgresStore, Run, Scale, Store, TpccError,
};

pub use copier::copier;
use pages::Pages;
use setup::Setup;

use super::lists::{parse_count, parse_rounds};
use super::{Bar, Bench, Ground, Output, Summary};
use crate::context::{Context, Failure, parse_time, tell};

/// Flags.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Databases:  sqlite:DIR        files in a folder, filled once and used again
            postgres:DSN      a server that runs; what is made there lies in the schema hugeleaf_tpcc

Examples:
  hugeleaf bench oltp --warehouses 10 --for 60s
  hugeleaf bench oltp --warehouses 10 --cache 2G --pages base,locked,thp:2M --rounds 10
  hugeleaf bench oltp --start postgres --warehouses 10 --pages base,promoted,hugetlb:2M
  hugeleaf bench oltp --start postgres --pages base,thp:2M --by-connections 2,8,32
  hugeleaf bench oltp --warehouses 40 --pages base,thp:2M --by-cache 256M,1G,4G
  hugeleaf bench oltp --warehouses 20 --pages base,thp:2M --io buffered --copy-beside 1G
  hugeleaf bench oltp --database 'postgres:host=/run/postgresql dbname=test' --connections 8

The load follows the rules of TPC-C and its results are no TPC-C results. A warehouse takes about
100M on the disk.
Exit status: 0 measured; 1 interrupted, pages that --pages names were not had, or the database is
not consistent; 2 wrong usage; 3 a precondition is missing."
)]
pub struct Args {
    /// Where the data lie [default: sqlite:hugeleaf-oltp, in this folder]
    #[arg(long, value_name = "WHERE", conflicts_with = "start")]
    database: Option<Place>,
    /// Start a server of our own from the installed programs, and end it afterwards
    #[arg(long, value_name = "SERVER", value_parser = ["postgres"])]
    start: Option<String>,
    /// Where the folder of that server is made; it should be on a disk
    #[arg(
        long,
        value_name = "DIR",
        default_value = "/var/tmp",
        requires = "start"
    )]
    below: PathBuf,
    /// Warehouses
    #[arg(long, value_name = "W", default_value = "4", value_parser = parse_warehouses)]
    warehouses: i32,
    /// Connections, each with a terminal [default: one a processor]
    #[arg(long, value_name = "C", value_parser = parse_connections)]
    connections: Option<usize>,
    /// Compare --pages with each of so many connections, from few to many
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        value_parser = parse_connections,
        requires = "pages",
        conflicts_with_all = ["connections", "by_cache"]
    )]
    by_connections: Vec<usize>,
    /// Touch the first so many warehouses only
    #[arg(long, value_name = "N", value_parser = parse_warehouses)]
    touch: Option<i32>,
    /// How long to measure
    #[arg(long = "for", value_name = "TIME", default_value = "30s", value_parser = parse_time)]
    time: Duration,
    /// How long to run before it counts
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = parse_time)]
    ramp_up: Duration,
    /// The database's own cache: of all connections together, or shared_buffers [default: 256M]
    #[arg(long, value_name = "SIZE")]
    cache: Option<Bytes>,
    /// Compare --pages with caches of these sizes; in each so many warehouses are touched as fill it
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        requires = "pages",
        conflicts_with_all = ["cache", "touch", "io"]
    )]
    by_cache: Vec<Bytes>,
    /// cached: the cache is to hold all that is touched; buffered, direct: a fifth of it, and the
    /// rest is read through the host's page cache, or past it
    #[arg(long, value_name = "HOW", value_parser = parse_io)]
    io: Option<Io>,
    /// Copy a file of this size beside the load, again and again, to press on the page cache
    #[arg(long, value_name = "SIZE")]
    copy_beside: Option<Bytes>,
    /// When commits have to be on the disk: commit, soon, never
    #[arg(long, value_name = "WHEN", default_value = "soon", value_parser = parse_durability)]
    durability: Durability,
    /// Keying and think time, times those of the standard; 0 is none
    #[arg(long, value_name = "FACTOR", default_value = "0", value_parser = parse_think)]
    think: f64,
    /// Divide the rows of a warehouse by this, to try it out; 100 at most
    #[arg(long, value_name = "N", default_value = "1", value_parser = parse_shrink)]
    shrink: i32,
    /// Fill nothing: refuse a database that is empty or filled halfway
    #[arg(long, conflicts_with = "refill")]
    no_load: bool,
    /// Remove what an earlier run filled in, and fill it anew
    #[arg(long, conflicts_with = "start")]
    refill: bool,
    /// Compare page sizes; the first is what the others are held against. Of SQLite's cache: base,
    /// locked (base pages locked in memory), 64K, thp:2M, hugetlb:2M, hugetlb:1G, run (its heap,
    /// under hugeleaf run). Of the server that --start starts: base, hugetlb:2M, hugetlb:1G, run,
    /// thp:2M (under run, its shared memory alone), promoted (while it runs). Each run is a process
    /// of its own
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pages: Vec<Pages>,
    /// Do not ask what it costs on these pages to translate an address
    #[arg(long, requires = "pages")]
    no_translation: bool,
    /// Runs on each of these
    #[arg(long, value_name = "N", default_value = "10", value_parser = parse_rounds)]
    rounds: usize,
    /// One run of --pages; nothing for a person to type
    #[arg(long, hide = true, conflicts_with_all = ["start", "pages", "refill"])]
    arm: Option<Pages>,
    /// Count what such a run misses in the TLB; nothing for a person to type either
    #[arg(long, hide = true, requires = "arm")]
    count: bool,
    /// Seed of the rows and of what is asked for, to repeat a run
    #[arg(long, value_name = "N", default_value = "1")]
    seed: u64,
    #[command(flatten)]
    output: Output,
}

/// Where the data lie.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Place {
    Sqlite(PathBuf),
    Postgres(String),
}

impl FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Place, String> {
        match text.split_once(':') {
            Some(("sqlite", folder)) if !folder.is_empty() => Ok(Place::Sqlite(folder.into())),
            // A URL is a DSN as it stands.
            Some(("postgres" | "postgresql", rest)) if rest.starts_with("//") => {
                Ok(Place::Postgres(text.to_owned()))
            }
            Some(("postgres", dsn)) if !dsn.is_empty() => Ok(Place::Postgres(dsn.to_owned())),
            _ => Err(format!("'{text}' is neither sqlite:DIR nor postgres:DSN")),
        }
    }
}

fn parse_warehouses(text: &str) -> Result<i32, String> {
    /// More are a mistake: 10 TB.
    const MOST: usize = 100_000;
    let number = parse_count(text, "warehouses", MOST)?;
    i32::try_from(number).map_err(|e| e.to_string())
}

fn parse_connections(text: &str) -> Result<usize, String> {
    const MOST: usize = 10_000;
    parse_count(text, "connections", MOST)
}

fn parse_shrink(text: &str) -> Result<i32, String> {
    let number = parse_count(text, "parts", 100)?;
    i32::try_from(number).map_err(|e| e.to_string())
}

fn parse_durability(text: &str) -> Result<Durability, String> {
    let all = [Durability::Commit, Durability::Soon, Durability::Never];
    let found = all.into_iter().find(|d| d.name() == text);
    found.ok_or_else(|| format!("'{text}' is none of commit, soon, never"))
}

fn parse_io(text: &str) -> Result<Io, String> {
    match text {
        "cached" => Ok(Io::Cached),
        "buffered" => Ok(Io::Buffered),
        "direct" => Ok(Io::Direct),
        _ => Err(format!("'{text}' is none of cached, buffered, direct")),
    }
}

fn parse_think(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(factor) if (0.0..=1000.0).contains(&factor) => Ok(factor),
        _ => Err(format!("'{text}' is not a number from 0 to 1000")),
    }
}

impl Bench for Args {
    const NAME: &'static str = "oltp";
    type Result = OltpResult;

    fn output(&self) -> &Output {
        &self.output
    }

    fn names_pages(&self) -> bool {
        !self.pages.is_empty()
    }

    fn measure(
        &self,
        ground: &Ground,
        context: &Context,
        _: &mut dyn FnMut(BenchEvent),
    ) -> Result<OltpResult, Failure> {
        let setup = Setup::of(self, ground)?;
        if self.names_pages() {
            return arms::run(self, setup, ground, context);
        }
        match (&self.start, &self.database) {
            (Some(_), _) => server::one(self, setup, ground, context),
            (None, Some(Place::Postgres(dsn))) => {
                on_server_elsewhere(dsn, self, setup, ground, context)
                    .map_err(|error| failure(&error))
            }
            (None, Some(Place::Sqlite(_)) | None) => embedded::one(self, setup, ground, context),
        }
    }

    fn summary(result: &OltpResult) -> Summary<'_> {
        Summary {
            about: &result.experiment,
            lacks_pages: result.arms.iter().any(|arm| arm.not_had.is_some()),
            json: to_json(result),
        }
    }

    fn text(result: &OltpResult, look: Look) -> String {
        oltp_text(result, look)
    }

    fn html(result: &OltpResult) -> String {
        oltp_html(result)
    }
}

fn on_server_elsewhere(
    dsn: &str,
    args: &Args,
    setup: Setup,
    ground: &Ground,
    context: &Context,
) -> Result<OltpResult, OltpRunError> {
    let store = PostgresStore::new(dsn, args.durability)?;
    if args.refill {
        store.remove()?;
    }
    let mut watcher = Watcher::of(Processes::Elsewhere, &context.root);
    on(&store, args, setup, ground, &mut watcher, context)
}

/// Fills a database where need be, runs once, and checks.
fn on(
    store: &dyn Store,
    args: &Args,
    setup: Setup,
    ground: &Ground,
    watcher: &mut Watcher<'_>,
    context: &Context,
) -> Result<OltpResult, OltpRunError> {
    let settings = OltpSettings {
        origin: origin(store, args),
        may_fill: !args.no_load,
        run: Run {
            connections: setup.connections,
            ramp_up: args.ramp_up,
            time: args.time,
            pace: match args.think {
                0.0 => Pace::Full,
                factor => Pace::People(factor),
            },
            touched: setup.touch,
            seed: args.seed,
        },
        durability: args.durability,
        cache_bytes: setup.cache.get(),
        io: setup.io,
        copied_file_bytes: args.copy_beside.map(Bytes::get),
    };
    let bar = Bar::new();
    measure(
        store,
        &settings,
        &ground.circumstances,
        watcher,
        &mut |event| show(&bar, &event),
        &context.stop,
    )
}

/// Fills a database before its first run: what fills it is not to be in a cache that is measured.
fn fill(store: &dyn Store, args: &Args, context: &Context) -> Result<(), TpccError> {
    let bar = Bar::new();
    hugeleaf_workload::tpcc::load(
        store,
        &origin(store, args),
        !args.no_load,
        &mut |event| show(&bar, &OltpEvent::Filling(event)),
        &context.stop,
    )
    .map(drop)
}

/// What the database is to hold.
fn origin(store: &dyn Store, args: &Args) -> Origin {
    Origin {
        warehouses: args.warehouses,
        shards: store.shards(args.warehouses),
        scale: Scale::shrunk(args.shrink),
        seed: args.seed,
        filled_at: FILLED_AT,
    }
}

/// The moment that stands in all rows at the start, 2024-01-01: any will do, and the same one makes
/// the same rows.
const FILLED_AT: i64 = 1_704_067_200_000_000;

fn show(bar: &Bar, event: &OltpEvent) {
    let step = |done: u64, of: u64, what: String| bar.show(&BenchEvent::At { done, of, what });
    match event {
        OltpEvent::Filling(LoadEvent::Continued { missing, of }) => {
            tell(&format!(
                "note: the database was filled halfway; {missing} of {of} pieces follow"
            ));
        }
        OltpEvent::Filling(LoadEvent::At { done, of, piece }) => {
            step(*done as u64, *of as u64, format!("filling: {piece}"));
        }
        OltpEvent::Running(done, of) => {
            let millis = |time: &Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
            step(millis(done), millis(of), "running".to_owned());
        }
        OltpEvent::Checking(done, of) => {
            step(*done as u64, *of as u64, "checking consistency".to_owned());
        }
    }
}

fn failure(error: &OltpRunError) -> Failure {
    let what = format!("bench oltp: {error}");
    match error {
        OltpRunError::Tpcc(TpccError::Stopped) => Failure::no(what, "hugeleaf bench oltp"),
        OltpRunError::Inconsistent(_) => Failure::no(what, error.next()),
        OltpRunError::Tpcc(_) => Failure::missing(what, error.next()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places() {
        let parse = |text: &str| text.parse::<Place>();
        assert_eq!(parse("sqlite:a:b"), Ok(Place::Sqlite("a:b".into())));
        let url = "postgres://user@host/db";
        assert_eq!(parse(url), Ok(Place::Postgres(url.to_owned())));
        let dsn = "host=/run/postgresql dbname=test";
        assert_eq!(
            parse(&format!("postgres:{dsn}")),
            Ok(Place::Postgres(dsn.to_owned()))
        );
        for text in ["", "sqlite:", "postgres:", "mysql:x", "/tmp/x"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

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
        assert_eq!(parse_io("direct"), Ok(Io::Direct));
        assert!(parse_io("fast").is_err());
        assert!(parse_shrink("101").is_err() && parse_durability("later").is_err());
    }
}
