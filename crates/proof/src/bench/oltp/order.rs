//! What `bench oltp` is asked for, and what a database has to offer to be measured on pages of several sizes.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use hugeleaf_units::Bytes;
use hugeleaf_workload::tpcc::{
    Durability, LoadEvent, Origin, Pace, Run, Scale, Store, TpccError, load,
};

use super::arms::Turn;
use super::pages::Pages;
use super::watch::Watcher;
use super::{Io, OltpEvent, OltpResult, OltpRunError, OltpSettings, run};
use crate::bench::{BenchEvent, Machine, Shortage};

/// What is asked for.
#[derive(Debug, Clone)]
pub struct Order {
    /// Which database.
    pub database: Database,
    /// Warehouses.
    pub warehouses: i32,
    /// Connections; `None` is one a processor.
    pub connections: Option<usize>,
    /// Steps by connections.
    pub by_connections: Vec<usize>,
    /// Touch the first so many warehouses only.
    pub touch: Option<i32>,
    /// How long to measure.
    pub time: Duration,
    /// How long to run before.
    pub ramp_up: Duration,
    /// The database's own cache.
    pub cache: Option<Bytes>,
    /// Steps by the size of the cache.
    pub by_cache: Vec<Bytes>,
    /// Whether all that is touched is to fit the cache, and how the rest is read.
    pub io: Option<Io>,
    /// The length of a file that is copied while the load runs.
    pub copy_beside: Option<Bytes>,
    /// When commits have to be on the disk.
    pub durability: Durability,
    /// Keying and think time over those of the standard; 0 is none.
    pub think: f64,
    /// Rows of a warehouse are divided by this.
    pub shrink: i32,
    /// Whether the database may be filled.
    pub may_fill: bool,
    /// Whether what an earlier run filled in is removed first.
    pub refill: bool,
    /// The arms; the first is what others are compared with. Without any there is one run as it is.
    pub pages: Vec<Pages>,
    /// Whether to ask what it costs on these pages to translate an address.
    pub translation: bool,
    /// Runs of each arm.
    pub rounds: usize,
    /// The pages of the cache of this very process, which is one run of an arm.
    pub arm: Option<Pages>,
    /// Whether the processor counts in such a run.
    pub count: bool,
    /// Seed of the rows and of what is asked for.
    pub seed: u64,
}

/// Where the data are.
#[derive(Debug, Clone)]
pub enum Database {
    /// SQLite's files in a folder.
    Sqlite(PathBuf),
    /// A PostgreSQL server that runs, by its connection string.
    Elsewhere(String),
    /// A server that is started from the installed programs, with its own folder below this one.
    Started(&'static ServerKind, PathBuf),
}

impl FromStr for Database {
    type Err = String;

    fn from_str(text: &str) -> Result<Database, String> {
        match text.split_once(':') {
            Some(("sqlite", folder)) if !folder.is_empty() => Ok(Database::Sqlite(folder.into())),
            // A URL is a DSN as it stands.
            Some(("postgres" | "postgresql", rest)) if rest.starts_with("//") => {
                Ok(Database::Elsewhere(text.to_owned()))
            }
            Some(("postgres", dsn)) if !dsn.is_empty() => Ok(Database::Elsewhere(dsn.to_owned())),
            _ => Err(format!("'{text}' is neither sqlite:DIR nor postgres:DSN")),
        }
    }
}

/// A kind of server.
pub struct ServerKind {
    /// As `--start` names it.
    pub name: &'static str,
    /// What a warehouse takes in it.
    pub(super) warehouse: Bytes,
    pub(super) make: for<'a> fn(&'a Order, &'a Machine<'a>) -> Box<dyn Server + 'a>,
}

impl fmt::Debug for ServerKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// Hears how far it is.
pub(super) type Progress<'a> = &'a mut dyn FnMut(BenchEvent);

/// What a run is set to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Setup {
    pub(super) cache: Bytes,
    pub(super) connections: usize,
    pub(super) touch: Option<i32>,
    pub(super) io: Io,
}

/// A database whose memory can be put on the pages of an arm. It is stopped when dropped.
pub(super) trait Server {
    /// Why it cannot be put on such pages, whatever the host has.
    fn check(&self, pages: Pages) -> Result<(), Refusal>;

    /// Fills it before its first run: what fills it is not to be in a cache that is measured.
    fn fill(&mut self, progress: Progress<'_>) -> Result<(), Refusal>;

    /// Starts it with a setup, on the pages of an arm or as it is, and warms it as an arm is warmed;
    /// or says which pages the host lacks.
    fn start(&mut self, pages: Option<Pages>, setup: Setup) -> Result<Option<Shortage>, Refusal>;

    /// One run with what was started: the load, its counters, and what its memory was on.
    fn drive(
        &mut self,
        pages: Option<Pages>,
        setup: Setup,
        progress: Progress<'_>,
    ) -> Result<Turn, Refusal>;

    /// What a reader has to know of all runs.
    fn caveats(&self) -> Vec<String> {
        Vec::new()
    }
}

/// Why there is no result: what failed, what to do next, and the exit status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// What failed.
    pub what: String,
    /// What to do next.
    pub next: String,
    /// 1: it was tried; 2: wrong usage; 3: a precondition is missing.
    pub status: u8,
}

impl Refusal {
    fn of(status: u8, what: impl Into<String>, next: impl Into<String>) -> Refusal {
        Refusal {
            what: what.into(),
            next: next.into(),
            status,
        }
    }

    pub(super) fn no(what: impl Into<String>, next: impl Into<String>) -> Refusal {
        Refusal::of(1, what, next)
    }

    pub(super) fn usage(what: impl Into<String>, next: impl Into<String>) -> Refusal {
        Refusal::of(2, what, next)
    }

    pub(super) fn missing(what: impl Into<String>, next: impl Into<String>) -> Refusal {
        Refusal::of(3, what, next)
    }
}

impl From<OltpRunError> for Refusal {
    fn from(error: OltpRunError) -> Refusal {
        let what = format!("bench oltp: {error}");
        match error {
            OltpRunError::Tpcc(TpccError::Stopped) => Refusal::no(what, "hugeleaf bench oltp"),
            OltpRunError::Inconsistent(_) => Refusal::no(what, error.next()),
            OltpRunError::Tpcc(_) => Refusal::missing(what, error.next()),
        }
    }
}

impl From<TpccError> for Refusal {
    fn from(error: TpccError) -> Refusal {
        OltpRunError::Tpcc(error).into()
    }
}

/// Fills a database where need be, runs once, and checks.
pub(super) fn run_once(
    store: &dyn Store,
    order: &Order,
    setup: Setup,
    machine: &Machine<'_>,
    watcher: &mut Watcher<'_>,
    progress: Progress<'_>,
) -> Result<OltpResult, OltpRunError> {
    let settings = OltpSettings {
        origin: origin(store, order),
        may_fill: order.may_fill,
        run: Run {
            connections: setup.connections,
            ramp_up: order.ramp_up,
            time: order.time,
            pace: match order.think {
                0.0 => Pace::Full,
                factor => Pace::People(factor),
            },
            touched: setup.touch,
            seed: order.seed,
        },
        durability: order.durability,
        cache_bytes: setup.cache.get(),
        io: setup.io,
        copied_file_bytes: order.copy_beside.map(Bytes::get),
    };
    run(
        store,
        &settings,
        machine.circumstances,
        watcher,
        &mut |event| progress(event.into()),
        machine.stop,
    )
}

/// Fills a database.
pub(super) fn fill(
    store: &dyn Store,
    order: &Order,
    machine: &Machine<'_>,
    progress: Progress<'_>,
) -> Result<(), TpccError> {
    let mut shown = |event| progress(OltpEvent::Filling(event).into());
    let origin = origin(store, order);
    load(store, &origin, order.may_fill, &mut shown, machine.stop).map(drop)
}

/// What the database is to hold.
fn origin(store: &dyn Store, order: &Order) -> Origin {
    Origin {
        warehouses: order.warehouses,
        shards: store.shards(order.warehouses),
        scale: Scale::shrunk(order.shrink),
        seed: order.seed,
        filled_at: FILLED_AT,
    }
}

/// The moment that stands in all rows at the start, 2024-01-01: any will do, and the same one makes
/// the same rows.
const FILLED_AT: i64 = 1_704_067_200_000_000;

impl From<OltpEvent> for BenchEvent {
    fn from(event: OltpEvent) -> BenchEvent {
        let step = |done: u64, of: u64, what: String| BenchEvent::At { done, of, what };
        match event {
            OltpEvent::Filling(LoadEvent::Continued { missing, of }) => BenchEvent::Note(format!(
                "the database was filled halfway; {missing} of {of} pieces follow"
            )),
            OltpEvent::Filling(LoadEvent::At { done, of, piece }) => {
                step(done as u64, of as u64, format!("filling: {piece}"))
            }
            OltpEvent::Running(done, of) => {
                let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
                step(millis(done), millis(of), "running".to_owned())
            }
            OltpEvent::Checking(done, of) => {
                step(done as u64, of as u64, "checking consistency".to_owned())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places() {
        let parse = |text: &str| text.parse::<Database>();
        assert!(matches!(parse("sqlite:a:b"), Ok(Database::Sqlite(p)) if p.as_os_str() == "a:b"));
        let url = "postgres://user@host/db";
        assert!(matches!(parse(url), Ok(Database::Elsewhere(dsn)) if dsn == url));
        let dsn = "host=/run/postgresql dbname=test";
        let whole = parse(&format!("postgres:{dsn}"));
        assert!(matches!(whole, Ok(Database::Elsewhere(text)) if text == dsn));
        for text in ["", "sqlite:", "postgres:", "mysql:x", "/tmp/x"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
