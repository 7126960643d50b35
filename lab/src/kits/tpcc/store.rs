//! The interface of a database under this load.

use std::path::Path;

pub use hugeleaf_testkit::server::Durability;
use hugeleaf_units::Bytes;

use super::counters::DatabaseCounters;
use super::error::TpccError;
use super::input::TransactionInput;
use super::rules::TableCardinality;
use super::tables::{TABLES, TpccTable};

/// Description of a database's data; stored in the database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DatasetSpec {
    pub warehouses: i32,
    /// Number of databases over which they are spread.
    pub shards: i32,
    pub scale: TableCardinality,
    pub seed: u64,
    /// Timestamp in the rows, in microseconds since 1970.
    pub filled_at: i64,
}

/// Version of the data that this kit stores in a database. Other versions are refused.
const VERSION: i64 = 1;

impl DatasetSpec {
    /// Returns the SQL that makes the tables of an empty database by `definition` and stores this
    /// origin.
    pub(crate) fn creation(&self, definition: impl Fn(TpccTable) -> String) -> String {
        let TableCardinality {
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

    /// Parses the row of its table, with its version.
    fn parse_row(row: &[Option<i64>]) -> Option<(i64, DatasetSpec)> {
        let number = |at: usize| row.get(at).copied().flatten();
        let small = |at| i32::try_from(number(at)?).ok();
        let origin = DatasetSpec {
            warehouses: small(1)?,
            shards: small(2)?,
            scale: TableCardinality {
                items: small(3)?,
                customers: small(4)?,
                undelivered: small(5)?,
            },
            seed: number(6)?.cast_unsigned(),
            filled_at: number(7)?,
        };
        Some((number(0)?, origin))
    }

    /// Returns the first and the last warehouse of a database.
    pub fn warehouses_of(&self, shard: i32) -> (i32, i32) {
        let before = |shard: i32| {
            let spread = i64::from(self.warehouses) * i64::from(shard) / i64::from(self.shards);
            i32::try_from(spread).unwrap_or(i32::MAX)
        };
        (before(shard) + 1, before(shard + 1))
    }

    /// Returns the touched warehouses of a database, its first ones, if `touched` in total are
    /// touched. They are distributed like the warehouses. `None` if this database has no touched
    /// warehouse.
    pub fn touched_of(&self, shard: i32, touched: Option<i32>) -> Option<(i32, i32)> {
        let (first, last) = self.warehouses_of(shard);
        let share = DatasetSpec {
            warehouses: touched.unwrap_or(self.warehouses).clamp(1, self.warehouses),
            ..*self
        };
        let (from, to) = share.warehouses_of(shard);
        let count = to - from + 1;
        (count > 0).then_some((first, last.min(first + count - 1)))
    }
}

/// A part of a database, filled in one transaction: it exists completely or not at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FillUnit {
    Items,
    Warehouse(i32),
    /// The indexes, and the database's statistics on its tables.
    Indexes,
}

impl FillUnit {
    pub(crate) fn name(self) -> String {
        match self {
            FillUnit::Items => "items".to_owned(),
            FillUnit::Warehouse(warehouse) => format!("warehouse {warehouse}"),
            FillUnit::Indexes => "indexes".to_owned(),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TransactionResult {
    /// It is committed. The number summarises its result, and is equal on databases with the same
    /// data.
    Committed(i64),
    /// An order for an item that does not exist, as the standard has it in one of a hundred: nothing
    /// of it remains.
    RolledBack,
    /// It had a conflict with another transaction, left nothing, and must be sent again.
    Conflict,
}

/// A connection, with its statements ready.
pub trait TpccSession {
    /// Runs a transaction (clauses 2.4 to 2.8).
    ///
    /// # Errors
    /// Those of the database; then nothing of the transaction is left.
    fn run(&mut self, input: &TransactionInput) -> Result<TransactionResult, TpccError>;
    /// Returns the counts of this connection alone; nothing if the database counts as a whole.
    ///
    /// # Errors
    /// Those of the database.
    fn counters(&mut self) -> Result<DatabaseCounters, TpccError> {
        Ok(DatabaseCounters::default())
    }
}

/// Fills one database.
pub trait TpccLoader {
    /// Returns the place of its tables for messages, and the kind of that place: a database, a
    /// schema.
    fn place(&self) -> (String, &'static str);
    /// Returns true if anything exists, and true if that has the mark of this kit.
    ///
    /// # Errors
    /// Those of the database.
    fn marks(&mut self) -> Result<(bool, bool), TpccError>;
    /// Returns the origin of the data, even if filling is incomplete; `None` for an empty database.
    ///
    /// # Errors
    /// [`TpccError::ForeignData`] if there is other data; those of the database.
    fn origin(&mut self) -> Result<Option<DatasetSpec>, TpccError> {
        let (place, kind) = self.place();
        let foreign = |what: String| Err(TpccError::ForeignData { place, what });
        match self.marks()? {
            (false, _) => return Ok(None),
            (true, false) => return foreign(format!("a {kind} without the mark of this kit")),
            (true, true) => {}
        }
        let rows = self.ask(
            "SELECT version, warehouses, shards, items, customers, undelivered, seed, filled_at \
             FROM kit",
        )?;
        match rows.first().and_then(|row| DatasetSpec::parse_row(row)) {
            Some((VERSION, origin)) => Ok(Some(origin)),
            Some((version, _)) => foreign(format!("a load of version {version}, not {VERSION}")),
            None => foreign("a load without a description".to_owned()),
        }
    }
    /// Makes the tables of an empty database, and stores the origin of its data.
    ///
    /// # Errors
    /// Those of the database.
    fn create(&mut self, origin: &DatasetSpec) -> Result<(), TpccError>;
    /// Returns true if a part exists.
    ///
    /// # Errors
    /// Those of the database.
    fn has(&mut self, part: FillUnit) -> Result<bool, TpccError> {
        let part = part.name();
        let sql = format!("SELECT count(*) FROM kit_filled WHERE piece = '{part}'");
        Ok(self.ask(&sql)? == [[Some(1)]])
    }
    /// Fills in a part, in one transaction.
    ///
    /// # Errors
    /// Those of the database; nothing of the part exists then.
    fn fill(&mut self, part: FillUnit, origin: &DatasetSpec) -> Result<(), TpccError>;
    /// Queries rows of numbers.
    ///
    /// # Errors
    /// Those of the database.
    fn ask(&mut self, sql: &str) -> Result<Vec<Vec<Option<i64>>>, TpccError>;
    /// Executes a statement without an answer.
    ///
    /// # Errors
    /// Those of the database.
    fn execute(&mut self, sql: &str) -> Result<(), TpccError>;
}

/// A database, or several that form one.
pub trait TpccStore: Sync {
    /// Returns its name for messages, without passwords.
    fn name(&self) -> String;
    /// Returns the product and version, such as `SQLite 3.50.1`.
    ///
    /// # Errors
    /// Those of the database.
    fn version(&self) -> Result<String, TpccError>;
    /// Returns the number of databases over which this store would spread new warehouses.
    fn shards(&self, _warehouses: i32) -> i32 {
        1
    }
    /// Opens one of its databases for filling and for queries.
    ///
    /// # Errors
    /// Those of the database.
    fn loader(&self, shard: i32) -> Result<Box<dyn TpccLoader + '_>, TpccError>;
    /// Opens a connection to one of its databases, and passes it to `work`.
    ///
    /// # Errors
    /// Those of the database; those of `work`.
    fn session(
        &self,
        shard: i32,
        work: &mut dyn FnMut(&mut dyn TpccSession) -> Result<(), TpccError>,
    ) -> Result<(), TpccError>;
    /// Returns the counts of the database as a whole, so far; nothing if each connection counts.
    ///
    /// # Errors
    /// Those of the database.
    fn counters(&self) -> Result<DatabaseCounters, TpccError> {
        Ok(DatabaseCounters::default())
    }
    /// Returns the size of a warehouse with all its indexes, in bytes.
    fn bytes_per_warehouse(&self) -> u64;
    /// Returns the free space on its disk, if known.
    fn free_bytes(&self) -> Option<u64>;
}

/// Returns the free space on the disk of a folder; `None` if it cannot be determined.
pub fn free_bytes(folder: &Path) -> Option<Bytes> {
    let stat = rustix::fs::statvfs(folder).ok()?;
    Some(Bytes(stat.f_bavail.saturating_mul(stat.f_frsize)))
}
