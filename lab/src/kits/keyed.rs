//! Reads by primary key on a MariaDB server, and what comes in their way: the load of a tenant of
//! `hugeleaf-lab amm`. How much of the table is read often is given in bytes, so that it says how large a
//! cache should be.
//!
//! Rows are filled in by the server itself; each holds its own key, which every read checks.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use ::mysql::prelude::Queryable;
use ::mysql::{Conn, Error, Statement};
use fastrand::Rng;
use hugeleaf_units::Bytes;

use crate::kits::tpcc::{TpccError, explain_mariadb, mariadb_options};

#[derive(Debug)]
pub struct KeyedTable {
    socket: PathBuf,
    place: String,
    rows: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    /// Reads as fast as they can: nineteen of twenty go to so many bytes of the table, all of which
    /// are read alike.
    Busy(Bytes),
    /// The same reads, a hundred a second at most.
    Light(Bytes),
    /// A report reads all rows in the order of their keys, again and again.
    Report,
    /// Statements of which no two are alike, each to a page that was not read for longest: no cache
    /// that is smaller than the table helps them.
    Flood,
}

#[derive(Debug, Default)]
pub struct Done {
    reads: AtomicU64,
    others: AtomicU64,
}

impl Done {
    pub fn reads(&self) -> u64 {
        self.reads.load(Ordering::Relaxed)
    }

    /// Statements of a report or a flood.
    pub fn others(&self) -> u64 {
        self.others.load(Ordering::Relaxed)
    }
}

const DATABASE: &str = "hugeleaf_keyed";

/// Rows that are filled in by one statement, and read by one of a report.
const FILL: u64 = 50_000;
const SCAN: u64 = 2_000;

const ANYWHERE: u64 = 20;

/// Between two reads of a light load.
const PAUSE: Duration = Duration::from_millis(10);

impl KeyedTable {
    /// What a row takes, with its part of the page that it is in.
    pub const ROW: Bytes = Bytes::from_kib(1);
    /// The text that a row holds: its key, filled up with dots.
    const TEXT: usize = 960;

    /// The table of a server whose superuser connects on a socket without a password.
    pub fn new(socket: &Path, size: Bytes) -> KeyedTable {
        KeyedTable {
            socket: socket.to_owned(),
            place: format!("mariadb at {}", socket.display()),
            rows: (size.get() / Self::ROW.get()).max(1),
        }
    }

    /// Makes it anew. `progress` hears how many rows of how many are there.
    ///
    /// # Errors
    /// Those of the database; [`TpccError::Stopped`].
    pub fn fill(
        &self,
        progress: &mut dyn FnMut(u64, u64),
        stop: &AtomicBool,
    ) -> Result<(), TpccError> {
        let mut connection = self.connect()?;
        let mut send = |sql: String| connection.query_drop(sql).map_err(|e| self.explain(&e));
        send(format!("DROP DATABASE IF EXISTS {DATABASE}"))?;
        send(format!("CREATE DATABASE {DATABASE} CHARACTER SET ascii"))?;
        // The engine that counts up has tables in whichever database is chosen, and in no other.
        send(format!("USE {DATABASE}"))?;
        send(format!(
            "CREATE TABLE {DATABASE}.rows (id BIGINT PRIMARY KEY, text VARCHAR({}) NOT NULL) \
             ENGINE=InnoDB",
            Self::TEXT
        ))?;
        let mut first = 1;
        while first <= self.rows {
            if stop.load(Ordering::Relaxed) {
                return Err(TpccError::Stopped);
            }
            let last = (first + FILL - 1).min(self.rows);
            send(format!(
                "INSERT INTO {DATABASE}.rows SELECT seq, RPAD(seq, {}, '.') FROM seq_{first}_to_{last}",
                Self::TEXT
            ))?;
            progress(last, self.rows);
            first = last + 1;
        }
        Ok(())
    }

    /// Reads so many bytes of it, those that are read often, into the server's cache.
    ///
    /// # Errors
    /// Those of the database.
    pub fn warm(&self, hot: Bytes) -> Result<(), TpccError> {
        let last = self.rows_in(hot);
        let mut connection = self.connect()?;
        let mut read = || -> Result<(), Error> {
            // What is read once stays, as if it had been read often.
            connection.query_drop("SET GLOBAL innodb_old_blocks_time = 0")?;
            connection.query_drop(format!(
                "SELECT SUM(LENGTH(text)) FROM {DATABASE}.rows WHERE id <= {last}"
            ))?;
            connection.query_drop("SET GLOBAL innodb_old_blocks_time = DEFAULT")
        };
        read().map_err(|e| self.explain(&e))
    }

    /// Does a work on one connection until `stop`; what two connections ask for differs by `seed`.
    ///
    /// # Errors
    /// Those of the database; [`TpccError::Damaged`] where a row is not what was filled in.
    pub fn work(
        &self,
        work: Work,
        seed: u64,
        done: &Done,
        stop: &AtomicBool,
    ) -> Result<(), TpccError> {
        let mut connection = self.connect()?;
        let select = format!("SELECT text FROM {DATABASE}.rows WHERE id = ?");
        let select = connection.prep(select).map_err(|e| self.explain(&e))?;
        let mut desk = Desk {
            table: self,
            connection,
            select,
            random: Rng::with_seed(seed),
            turn: seed.wrapping_mul(SCAN) % self.rows,
        };
        while !stop.load(Ordering::Relaxed) {
            match work {
                Work::Busy(hot) | Work::Light(hot) => {
                    desk.read(hot)?;
                    done.reads.fetch_add(1, Ordering::Relaxed);
                }
                Work::Report => {
                    desk.scan()?;
                    done.others.fetch_add(1, Ordering::Relaxed);
                }
                Work::Flood => {
                    desk.flood()?;
                    done.others.fetch_add(1, Ordering::Relaxed);
                }
            }
            if matches!(work, Work::Light(_)) {
                std::thread::sleep(PAUSE);
            }
        }
        Ok(())
    }

    fn rows_in(&self, hot: Bytes) -> u64 {
        (hot.get() / Self::ROW.get()).clamp(1, self.rows)
    }

    fn connect(&self) -> Result<Conn, TpccError> {
        Conn::new(mariadb_options(&self.socket)).map_err(|e| self.explain(&e))
    }

    fn explain(&self, error: &Error) -> TpccError {
        explain_mariadb(&self.place, error)
    }
}

struct Desk<'t> {
    table: &'t KeyedTable,
    connection: Conn,
    select: Statement,
    random: Rng,
    turn: u64,
}

impl Desk<'_> {
    fn read(&mut self, hot: Bytes) -> Result<(), TpccError> {
        let among = match self.random.u64(0..ANYWHERE) {
            0 => self.table.rows,
            _ => self.table.rows_in(hot),
        };
        let id = self.random.u64(1..=among);
        let text: Result<Option<String>, Error> = self.connection.exec_first(&self.select, (id,));
        self.check(id, text)
    }

    fn scan(&mut self) -> Result<(), TpccError> {
        let (first, last) = (self.turn + 1, self.turn + SCAN);
        self.turn = if last < self.table.rows { last } else { 0 };
        let sql = format!(
            "SELECT SUM(LENGTH(text)) FROM {DATABASE}.rows WHERE id BETWEEN {first} AND {last}"
        );
        self.connection
            .query_drop(sql)
            .map_err(|e| self.table.explain(&e))
    }

    /// A page holds some sixteen rows: the next one is in another page.
    fn flood(&mut self) -> Result<(), TpccError> {
        const A_PAGE: u64 = 16;
        self.turn += A_PAGE;
        // Each time round another text of the same statement.
        let (round, place) = (self.turn / self.table.rows, self.turn % self.table.rows);
        let id = place + 1;
        let sql = format!("SELECT text FROM {DATABASE}.rows WHERE id = {id} AND {round} = {round}");
        let text = self.connection.query_first(sql);
        self.check(id, text)
    }

    fn check(&self, id: u64, text: Result<Option<String>, Error>) -> Result<(), TpccError> {
        let text = text.map_err(|e| self.table.explain(&e))?;
        let holds = text.as_deref().map(|text| text.trim_end_matches('.'));
        match holds.and_then(|number| number.parse().ok()) == Some(id) {
            true => Ok(()),
            false => Err(TpccError::Damaged(id)),
        }
    }
}
