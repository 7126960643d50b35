//! The options of `hugeleaf-lab oltp`, and the interface of a database for measuring it on several page sizes.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use crate::kits::tpcc::{Durability, TpccError};
use hugeleaf_units::Bytes;
use serde::Serialize;

use super::pages::OltpPages;
use hugeleaf_proof::bench::{BenchContext, BenchError, BenchEvent};
use hugeleaf_proof::result_format::Results;

#[derive(Debug, Clone)]
pub struct OltpSettings {
    pub database: OltpDatabase,
    pub warehouses: i32,
    /// Number of connections; `None` means one per processor.
    pub connections: Option<usize>,
    pub by_connections: Vec<usize>,
    /// Number of warehouses to touch, from the first on.
    pub touch: Option<i32>,
    pub time: Duration,
    /// Duration of the load before the measurement.
    pub ramp_up: Duration,
    pub cache: Option<Bytes>,
    /// Cache sizes of the steps.
    pub by_cache: Vec<Bytes>,
    /// Path of reads outside the cache, or the demand that all touched data fits the cache.
    pub io: Option<ReadPath>,
    /// Length of a file that is copied while the load runs.
    pub copy_beside: Option<Bytes>,
    /// Time at which commits must be on the disk.
    pub durability: Durability,
    /// Keying and think time relative to the standard; 0 is none.
    pub think: f64,
    /// Divisor of the rows of a warehouse.
    pub shrink: i32,
    pub may_fill: bool,
    /// True if the data of an earlier run is removed first.
    pub refill: bool,
    /// The arms; the first is the baseline. Without any there is one run, as it is.
    pub pages: Vec<OltpPages>,
    /// True to measure the cost of an address translation on these pages.
    pub translation: bool,
    pub rounds: usize,
    /// The pages of the cache of this process, which is one run of an arm.
    pub arm: Option<OltpPages>,
    pub count: bool,
    /// Seed of the rows and of the requests.
    pub seed: u64,
}

/// The path of reads that miss the database's cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReadPath {
    /// All data fits the cache.
    Cached,
    /// Through the page cache of the host.
    Buffered,
    Direct,
}

#[derive(Debug, Clone)]
pub enum OltpDatabase {
    Sqlite(PathBuf),
    /// A running PostgreSQL server, by its connection string.
    ExternalServer(String),
    /// A server started from the installed programs, with its own folder below this one.
    Started(&'static ServerKind, PathBuf),
}

impl FromStr for OltpDatabase {
    type Err = String;

    fn from_str(text: &str) -> Result<OltpDatabase, String> {
        match text.split_once(':') {
            Some(("sqlite", folder)) if !folder.is_empty() => {
                Ok(OltpDatabase::Sqlite(folder.into()))
            }
            // A URL is already a DSN.
            Some(("postgres" | "postgresql", rest)) if rest.starts_with("//") => {
                Ok(OltpDatabase::ExternalServer(text.to_owned()))
            }
            Some(("postgres", dsn)) if !dsn.is_empty() => {
                Ok(OltpDatabase::ExternalServer(dsn.to_owned()))
            }
            _ => Err(format!("'{text}' is neither sqlite:DIR nor postgres:DSN")),
        }
    }
}

pub struct ServerKind {
    /// Name of the server in `--start`.
    pub name: &'static str,
    pub(super) warehouse: Bytes,
    pub(super) make:
        for<'a> fn(&'a OltpSettings, &'a BenchContext<'a>) -> Box<dyn MeasuredDatabase + 'a>,
}

impl fmt::Debug for ServerKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

pub(super) type EventSink<'a> = &'a mut dyn FnMut(BenchEvent);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DerivedSettings {
    pub(super) cache: Bytes,
    pub(super) connections: usize,
    pub(super) touch: Option<i32>,
    pub(super) io: ReadPath,
}

/// A database whose memory can be on the pages of an arm. It is stopped when dropped.
pub(super) trait MeasuredDatabase {
    /// Refuses pages that this database cannot use on any host.
    fn check(&self, pages: OltpPages) -> Result<(), BenchError>;

    /// Fills it before its first run, so that filling does not affect a measured cache.
    fn fill(&mut self, progress: EventSink<'_>) -> Result<(), BenchError>;

    /// Starts it with a setup, on the pages of an arm or as it is, and warms it for the arm.
    ///
    /// # Errors
    /// [`BenchError::PagesMissing`] if the host lacks these pages; [`MeasuredDatabase::drive`] can return it as well.
    fn start(&mut self, pages: Option<OltpPages>, setup: DerivedSettings)
    -> Result<(), BenchError>;

    /// Makes one run: the load, its counters, and the pages of its memory.
    fn drive(
        &mut self,
        pages: Option<OltpPages>,
        setup: DerivedSettings,
        progress: EventSink<'_>,
    ) -> Result<Results, BenchError>;

    /// Returns the caveats of all runs.
    fn caveats(&self) -> Vec<String> {
        Vec::new()
    }
}

impl From<TpccError> for BenchError {
    fn from(error: TpccError) -> BenchError {
        match error {
            TpccError::Stopped => BenchError::Stopped,
            error => BenchError::missing(format!("bench oltp: {error}"), error.next()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places() {
        let parse = |text: &str| text.parse::<OltpDatabase>();
        assert!(
            matches!(parse("sqlite:a:b"), Ok(OltpDatabase::Sqlite(p)) if p.as_os_str() == "a:b")
        );
        let url = "postgres://user@host/db";
        assert!(matches!(parse(url), Ok(OltpDatabase::ExternalServer(dsn)) if dsn == url));
        let dsn = "host=/run/postgresql dbname=test";
        let whole = parse(&format!("postgres:{dsn}"));
        assert!(matches!(whole, Ok(OltpDatabase::ExternalServer(text)) if text == dsn));
        for text in ["", "sqlite:", "postgres:", "mysql:x", "/tmp/x"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
