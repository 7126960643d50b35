//! The options of `hugeleaf-lab oltp`, and what a database has to offer to be measured on pages of several sizes.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use crate::kits::tpcc::{Durability, TpccError};
use hugeleaf_units::Bytes;
use serde::Serialize;

use super::pages::Pages;
use hugeleaf_proof::bench::{BenchError, BenchEvent, Machine};
use hugeleaf_proof::rows::Results;

#[derive(Debug, Clone)]
pub struct Order {
    pub database: Database,
    pub warehouses: i32,
    /// Connections; `None` is one a processor.
    pub connections: Option<usize>,
    pub by_connections: Vec<usize>,
    /// Touch the first so many warehouses only.
    pub touch: Option<i32>,
    pub time: Duration,
    /// How long to run before.
    pub ramp_up: Duration,
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
    pub may_fill: bool,
    /// Whether what an earlier run filled in is removed first.
    pub refill: bool,
    /// The arms; the first is what others are compared with. Without any there is one run as it is.
    pub pages: Vec<Pages>,
    /// Whether to ask what it costs on these pages to translate an address.
    pub translation: bool,
    pub rounds: usize,
    /// The pages of the cache of this very process, which is one run of an arm.
    pub arm: Option<Pages>,
    pub count: bool,
    /// Seed of the rows and of what is asked for.
    pub seed: u64,
}

/// What a page that is not in the database's cache is read through.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Io {
    /// All of the data fit the cache.
    Cached,
    /// Through the page cache of the host.
    Buffered,
    Direct,
}

#[derive(Debug, Clone)]
pub enum Database {
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

pub struct ServerKind {
    /// As `--start` names it.
    pub name: &'static str,
    pub(super) warehouse: Bytes,
    pub(super) make: for<'a> fn(&'a Order, &'a Machine<'a>) -> Box<dyn Server + 'a>,
}

impl fmt::Debug for ServerKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

pub(super) type Progress<'a> = &'a mut dyn FnMut(BenchEvent);

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
    fn check(&self, pages: Pages) -> Result<(), BenchError>;

    /// Fills it before its first run: what fills it is not to be in a cache that is measured.
    fn fill(&mut self, progress: Progress<'_>) -> Result<(), BenchError>;

    /// Starts it with a setup, on the pages of an arm or as it is, and warms it as an arm is warmed.
    ///
    /// # Errors
    /// [`BenchError::Lacking`] where the host lacks these pages, also of [`Server::drive`].
    fn start(&mut self, pages: Option<Pages>, setup: Setup) -> Result<(), BenchError>;

    /// One run with what was started: the load, its counters, and what its memory was on.
    fn drive(
        &mut self,
        pages: Option<Pages>,
        setup: Setup,
        progress: Progress<'_>,
    ) -> Result<Results, BenchError>;

    /// What a reader has to know of all runs.
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
