//! What a database has to offer to be measured.

use std::path::Path;

use hugeleaf_units::Bytes;

use super::counters::Counters;
use super::error::TpccError;
use super::input::{Delivery, NewOrder, OrderStatus, Payment, StockLevel};
use super::rules::Scale;

/// When a committed transaction has to be on the disk. The same words for both databases, so that
/// all arms of a comparison can get the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Durability {
    /// At its commit. SQLite: `synchronous=FULL`. PostgreSQL: `synchronous_commit=on`.
    Commit,
    /// Soon after: a crash of the host may lose the last ones, and damages nothing. SQLite:
    /// `synchronous=NORMAL`. PostgreSQL: `synchronous_commit=off`.
    #[default]
    Soon,
    /// Whenever: a crash of the host may damage the database. SQLite: `synchronous=OFF`. PostgreSQL
    /// as `Soon`; a private server also with `fsync=off`.
    Never,
}

impl Durability {
    /// The word for it.
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
    /// Warehouses.
    pub warehouses: i32,
    /// Over how many databases they are spread.
    pub shards: i32,
    /// Rows a warehouse.
    pub scale: Scale,
    /// Seed of all rows.
    pub seed: u64,
    /// Which moment stands in the rows, in microseconds since 1970.
    pub filled_at: i64,
}

impl Origin {
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
pub enum Piece {
    /// All items.
    Items,
    /// Everything of one warehouse.
    Warehouse(i32),
    /// The indexes, and what the database has to know of its own tables.
    Indexes,
}

impl Piece {
    /// Its name in the database.
    pub(crate) fn name(self) -> String {
        match self {
            Piece::Items => "items".to_owned(),
            Piece::Warehouse(warehouse) => format!("warehouse {warehouse}"),
            Piece::Indexes => "indexes".to_owned(),
        }
    }
}

/// How a transaction ended.
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
    /// Clause 2.4.
    ///
    /// # Errors
    /// Those of the database; then nothing of the transaction is left. So for all five.
    fn new_order(&mut self, input: &NewOrder) -> Result<Answer, TpccError>;
    /// Clause 2.5.
    ///
    /// # Errors
    /// As above.
    fn payment(&mut self, input: &Payment) -> Result<Answer, TpccError>;
    /// Clause 2.6.
    ///
    /// # Errors
    /// As above.
    fn order_status(&mut self, input: &OrderStatus) -> Result<Answer, TpccError>;
    /// Clause 2.7.
    ///
    /// # Errors
    /// As above.
    fn delivery(&mut self, input: &Delivery) -> Result<Answer, TpccError>;
    /// Clause 2.8.
    ///
    /// # Errors
    /// As above.
    fn stock_level(&mut self, input: &StockLevel) -> Result<Answer, TpccError>;
    /// What this connection alone has caused; nothing where the database counts as a whole.
    ///
    /// # Errors
    /// Those of the database.
    fn counters(&mut self) -> Result<Counters, TpccError>;
}

/// Fills one database.
pub trait Loader {
    /// What the database was filled with, as far as it came; `None` for an empty one.
    ///
    /// # Errors
    /// [`TpccError::Foreign`] where something else lies there; those of the database.
    fn origin(&mut self) -> Result<Option<Origin>, TpccError>;
    /// Makes the tables of an empty database, and writes down what it is to be filled with.
    ///
    /// # Errors
    /// Those of the database.
    fn create(&mut self, origin: &Origin) -> Result<(), TpccError>;
    /// Whether a piece is there.
    ///
    /// # Errors
    /// Those of the database.
    fn has(&mut self, piece: Piece) -> Result<bool, TpccError>;
    /// Fills in a piece, in one transaction.
    ///
    /// # Errors
    /// Those of the database; then nothing of the piece is there.
    fn fill(&mut self, piece: Piece, origin: &Origin) -> Result<(), TpccError>;
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
    let seen = rustix::fs::statvfs(folder).ok()?;
    Some(Bytes(seen.f_bavail.saturating_mul(seen.f_frsize)))
}
