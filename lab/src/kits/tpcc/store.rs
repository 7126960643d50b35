//! What a database has to offer to be measured.

use std::path::Path;

use hugeleaf_units::Bytes;

use super::counters::Counters;
use super::error::TpccError;
use super::input::Input;
use super::rules::Scale;
use super::tables::{TABLES, Table};

/// When a committed transaction has to be on the disk. The same words for all databases, so that
/// all arms of a comparison can get the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Durability {
    /// At its commit. SQLite: `synchronous=FULL`. PostgreSQL: `synchronous_commit=on`. MariaDB:
    /// `innodb_flush_log_at_trx_commit=1`.
    Commit,
    /// Soon after: a crash of the host may lose the last ones, and damages nothing. SQLite:
    /// `synchronous=NORMAL`. PostgreSQL: `synchronous_commit=off`. MariaDB:
    /// `innodb_flush_log_at_trx_commit=0`.
    #[default]
    Soon,
    /// Whenever: a crash of the host may damage the database. SQLite: `synchronous=OFF`. PostgreSQL
    /// and MariaDB as `Soon`; private servers also with `fsync=off` and
    /// `innodb_flush_method=nosync`.
    Never,
}

impl From<Durability> for hugeleaf_testkit::server::Durability {
    fn from(durability: Durability) -> Self {
        match durability {
            Durability::Commit => Self::Commit,
            Durability::Soon => Self::Soon,
            Durability::Never => Self::Never,
        }
    }
}

impl Durability {
    pub const fn name(self) -> &'static str {
        match self {
            Durability::Commit => "commit",
            Durability::Soon => "soon",
            Durability::Never => "never",
        }
    }
}

/// What a database was filled with; kept in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Origin {
    pub warehouses: i32,
    /// Over how many databases they are spread.
    pub shards: i32,
    pub scale: Scale,
    pub seed: u64,
    /// Which moment stands in the rows, in microseconds since 1970.
    pub filled_at: i64,
}

/// The version of what this kit keeps in a database. Another one is refused.
const VERSION: i64 = 1;

impl Origin {
    /// What makes the tables of an empty database, each as `definition` says, and writes down what it
    /// is to be filled with.
    pub(crate) fn creation(&self, definition: impl Fn(Table) -> String) -> String {
        let Scale {
            items,
            customers,
            undelivered,
        } = self.scale;
        let mut sql = format!(
            "CREATE TABLE kit (version INTEGER, warehouses INTEGER, shards INTEGER, items INTEGER,
                 customers INTEGER, undelivered INTEGER, seed BIGINT, filled_at BIGINT);
             CREATE TABLE kit_filled (piece VARCHAR(40) PRIMARY KEY);
             INSERT INTO kit VALUES ({VERSION}, {}, {}, {items}, {customers}, {undelivered}, {}, {});",
            self.warehouses,
            self.shards,
            self.seed.cast_signed(),
            self.filled_at
        );
        for table in TABLES {
            sql.push_str(&definition(table));
            sql.push(';');
        }
        sql
    }

    /// What stands in the table of it, with its version.
    fn of(row: &[Option<i64>]) -> Option<(i64, Origin)> {
        let number = |at: usize| row.get(at).copied().flatten();
        let small = |at| i32::try_from(number(at)?).ok();
        let origin = Origin {
            warehouses: small(1)?,
            shards: small(2)?,
            scale: Scale {
                items: small(3)?,
                customers: small(4)?,
                undelivered: small(5)?,
            },
            seed: number(6)?.cast_unsigned(),
            filled_at: number(7)?,
        };
        Some((number(0)?, origin))
    }

    /// The warehouses of a database: the first, and the last.
    pub fn warehouses_of(&self, shard: i32) -> (i32, i32) {
        let before = |shard: i32| {
            let spread = i64::from(self.warehouses) * i64::from(shard) / i64::from(self.shards);
            i32::try_from(spread).unwrap_or(i32::MAX)
        };
        (before(shard) + 1, before(shard + 1))
    }

    /// The warehouses of a database that are touched where `touched` in all are: as many of each as
    /// if there were no others, its first ones. `None` where none of it is.
    pub fn touched_of(&self, shard: i32, touched: Option<i32>) -> Option<(i32, i32)> {
        let (first, last) = self.warehouses_of(shard);
        let share = Origin {
            warehouses: touched.unwrap_or(self.warehouses).clamp(1, self.warehouses),
            ..*self
        };
        let (from, to) = share.warehouses_of(shard);
        let count = to - from + 1;
        (count > 0).then_some((first, last.min(first + count - 1)))
    }
}

/// A part of a database that is filled in one transaction: it is there whole or not at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Part {
    Items,
    Warehouse(i32),
    /// The indexes, and what the database has to know of its own tables.
    Indexes,
}

impl Part {
    pub(crate) fn name(self) -> String {
        match self {
            Part::Items => "items".to_owned(),
            Part::Warehouse(warehouse) => format!("warehouse {warehouse}"),
            Part::Indexes => "indexes".to_owned(),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// It is committed. The number sums up what it said: two databases that hold the same say the
    /// same.
    Committed(i64),
    /// An order for an item that does not exist, as the standard has it in one of a hundred:
    /// nothing of it is left.
    RolledBack,
    /// Another transaction was in the way, nothing of it is left, and it has to be sent again.
    Conflict,
}

/// A connection, with its statements ready.
pub trait Session {
    /// Runs a transaction (clauses 2.4 to 2.8).
    ///
    /// # Errors
    /// Those of the database; then nothing of the transaction is left.
    fn run(&mut self, input: &Input) -> Result<Answer, TpccError>;
    /// What this connection alone has caused; nothing where the database counts as a whole.
    ///
    /// # Errors
    /// Those of the database.
    fn counters(&mut self) -> Result<Counters, TpccError>;
}

/// Fills one database.
pub trait Loader {
    /// What a message calls the place of its tables, and what such a place is: a database, a schema.
    fn place(&self) -> (String, &'static str);
    /// Whether anything is there, and whether that has the mark of this kit.
    ///
    /// # Errors
    /// Those of the database.
    fn marks(&mut self) -> Result<(bool, bool), TpccError>;
    /// What the database was filled with, as far as it came; `None` for an empty one.
    ///
    /// # Errors
    /// [`TpccError::Foreign`] where something else is there; those of the database.
    fn origin(&mut self) -> Result<Option<Origin>, TpccError> {
        let (place, kind) = self.place();
        let foreign = |what: String| Err(TpccError::Foreign { place, what });
        match self.marks()? {
            (false, _) => return Ok(None),
            (true, false) => return foreign(format!("a {kind} without the mark of this kit")),
            (true, true) => {}
        }
        let rows = self.ask(
            "SELECT version, warehouses, shards, items, customers, undelivered, seed, filled_at \
             FROM kit",
        )?;
        match rows.first().and_then(|row| Origin::of(row)) {
            Some((VERSION, origin)) => Ok(Some(origin)),
            Some((version, _)) => foreign(format!("a load of version {version}, not {VERSION}")),
            None => foreign("a load that does not say what it is".to_owned()),
        }
    }
    /// Makes the tables of an empty database, and writes down what it is to be filled with.
    ///
    /// # Errors
    /// Those of the database.
    fn create(&mut self, origin: &Origin) -> Result<(), TpccError>;
    /// Whether a part is there.
    ///
    /// # Errors
    /// Those of the database.
    fn has(&mut self, part: Part) -> Result<bool, TpccError> {
        let part = part.name();
        let sql = format!("SELECT count(*) FROM kit_filled WHERE piece = '{part}'");
        Ok(self.ask(&sql)? == [[Some(1)]])
    }
    /// Fills in a part, in one transaction.
    ///
    /// # Errors
    /// Those of the database; then nothing of the part is there.
    fn fill(&mut self, part: Part, origin: &Origin) -> Result<(), TpccError>;
    /// Asks for rows of numbers.
    ///
    /// # Errors
    /// Those of the database.
    fn ask(&mut self, sql: &str) -> Result<Vec<Vec<Option<i64>>>, TpccError>;
    /// Does something that has no answer.
    ///
    /// # Errors
    /// Those of the database.
    fn execute(&mut self, sql: &str) -> Result<(), TpccError>;
}

/// A database, or several that together are one.
pub trait Store: Sync {
    /// What it is called in a message, without passwords.
    fn name(&self) -> String;
    /// Which database it is: `SQLite 3.50.1`.
    ///
    /// # Errors
    /// Those of the database.
    fn version(&self) -> Result<String, TpccError>;
    /// Over how many databases this store would spread warehouses that it is asked to fill in.
    fn shards(&self, warehouses: i32) -> i32;
    /// Opens one of its databases for filling and for questions.
    ///
    /// # Errors
    /// Those of the database.
    fn loader(&self, shard: i32) -> Result<Box<dyn Loader + '_>, TpccError>;
    /// Opens a connection to one of its databases, and hands it to `work`.
    ///
    /// # Errors
    /// Those of the database; what `work` answers.
    fn session(
        &self,
        shard: i32,
        work: &mut dyn FnMut(&mut dyn Session) -> Result<(), TpccError>,
    ) -> Result<(), TpccError>;
    /// What the database counts as a whole, so far.
    ///
    /// # Errors
    /// Those of the database.
    fn counters(&self) -> Result<Counters, TpccError>;
    /// How many bytes a warehouse takes, with all its indexes.
    fn bytes_per_warehouse(&self) -> u64;
    /// Room for it on its disk, where that can be known.
    fn free_bytes(&self) -> Option<u64>;
}

/// What is free on the disk of a folder; `None` where that cannot be determined.
pub fn free_bytes(folder: &Path) -> Option<Bytes> {
    let stat = rustix::fs::statvfs(folder).ok()?;
    Some(Bytes(stat.f_bavail.saturating_mul(stat.f_frsize)))
}
