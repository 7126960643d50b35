//! Reads by primary key on a MariaDB server, and loads that compete with them: the load of a tenant of
//! `hugeleaf-lab amm`. The frequently read part of the table is given in bytes, and thus says how large a
//! cache should be.
//!
//! The server itself fills in the rows. Each row contains its own key, which every read checks.

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
pub enum ClientLoad {
    /// Reads without a pause: nineteen of twenty go to the given bytes of the table, with equal
    /// probability.
    Busy(Bytes),
    /// The same reads, at most a hundred a second.
    Light(Bytes),
    /// A report that repeatedly reads all rows in the order of their keys.
    Report,
    /// Statements that never repeat, each to the least recently read page. A cache smaller than the table
    /// does not help them.
    Flood,
}

#[derive(Debug, Default)]
pub struct ClientCounters {
    reads: AtomicU64,
    others: AtomicU64,
}

impl ClientCounters {
    pub fn reads(&self) -> u64 {
        self.reads.load(Ordering::Relaxed)
    }

    /// Returns the number of statements of a report or a flood.
    pub fn others(&self) -> u64 {
        self.others.load(Ordering::Relaxed)
    }
}

const DATABASE: &str = "hugeleaf_keyed";

/// Rows filled in by one statement, and rows read by one statement of a report.
const FILL: u64 = 50_000;
const SCAN: u64 = 2_000;

const ANYWHERE: u64 = 20;

/// Pause between two reads of a light load.
const PAUSE: Duration = Duration::from_millis(10);

impl KeyedTable {
    /// Size of a row, including its share of the overhead of its page.
    pub const ROW: Bytes = Bytes::from_kib(1);
    /// Length of the text of a row: its key, padded with dots.
    const TEXT: usize = 960;

    /// Describes the table of a server whose superuser connects on a socket without a password.
    pub fn new(socket: &Path, size: Bytes) -> KeyedTable {
        KeyedTable {
            socket: socket.to_owned(),
            place: format!("mariadb at {}", socket.display()),
            rows: (size.get() / Self::ROW.get()).max(1),
        }
    }

    /// Makes the table anew, and returns once the server has no work left with it. `progress` gets the number of rows so far and the total.
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
        // The sequence engine provides its tables only in the selected database.
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
        Self::wait_for_purge(&mut connection, stop).map_err(|e| self.explain(&e))
    }

    /// Waits until the purge threads have cleared the transaction number of every new row: until then they read pages that no
    /// client asked for, and evict others.
    fn wait_for_purge(connection: &mut Conn, stop: &AtomicBool) -> Result<(), Error> {
        let transactions = "SELECT VARIABLE_VALUE FROM information_schema.GLOBAL_STATUS \
                            WHERE VARIABLE_NAME = 'INNODB_HISTORY_LIST_LENGTH'";
        while !stop.load(Ordering::Relaxed)
            && connection.query_first::<u64, _>(transactions)? != Some(0)
        {
            std::thread::sleep(PAUSE);
        }
        Ok(())
    }

    /// Reads the frequently read bytes of the table into the server's cache.
    ///
    /// # Errors
    /// Those of the database.
    pub fn warm(&self, hot: Bytes) -> Result<(), TpccError> {
        let last = self.rows_in(hot);
        let mut connection = self.connect()?;
        let mut read = || -> Result<(), Error> {
            // A page that is read once stays, as if it had been read often.
            connection.query_drop("SET GLOBAL innodb_old_blocks_time = 0")?;
            connection.query_drop(format!(
                "SELECT SUM(LENGTH(text)) FROM {DATABASE}.rows WHERE id <= {last}"
            ))?;
            connection.query_drop("SET GLOBAL innodb_old_blocks_time = DEFAULT")
        };
        read().map_err(|e| self.explain(&e))
    }

    /// Runs a work on one connection until `stop`; the requests of connections differ by `seed`.
    ///
    /// # Errors
    /// Those of the database; [`TpccError::Damaged`] if a row is not the one that was filled in.
    pub fn work(
        &self,
        work: ClientLoad,
        seed: u64,
        done: &ClientCounters,
        stop: &AtomicBool,
    ) -> Result<(), TpccError> {
        let mut connection = self.connect()?;
        let select = format!("SELECT text FROM {DATABASE}.rows WHERE id = ?");
        let select = connection.prep(select).map_err(|e| self.explain(&e))?;
        let mut desk = KeyedTableConnection {
            table: self,
            connection,
            select,
            random: Rng::with_seed(seed),
            turn: seed.wrapping_mul(SCAN) % self.rows,
        };
        while !stop.load(Ordering::Relaxed) {
            match work {
                ClientLoad::Busy(hot) | ClientLoad::Light(hot) => {
                    desk.read(hot)?;
                    done.reads.fetch_add(1, Ordering::Relaxed);
                }
                ClientLoad::Report => {
                    desk.scan()?;
                    done.others.fetch_add(1, Ordering::Relaxed);
                }
                ClientLoad::Flood => {
                    desk.flood()?;
                    done.others.fetch_add(1, Ordering::Relaxed);
                }
            }
            if matches!(work, ClientLoad::Light(_)) {
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

struct KeyedTableConnection<'t> {
    table: &'t KeyedTable,
    connection: Conn,
    select: Statement,
    random: Rng,
    turn: u64,
}

impl KeyedTableConnection<'_> {
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

    /// Reads one row of the next page; a page holds about sixteen rows.
    fn flood(&mut self) -> Result<(), TpccError> {
        const A_PAGE: u64 = 16;
        self.turn += A_PAGE;
        // The text of the statement differs in each round.
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
