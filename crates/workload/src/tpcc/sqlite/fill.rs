//! Filling one database file.

use rusqlite::{
    Connection, OptionalExtension, ToSql, Transaction, TransactionBehavior, params,
    types::ToSqlOutput,
};

use super::explain::{explain, is_busy};
use crate::tpcc::error::TpccError;
use crate::tpcc::population::{Field, Population};
use crate::tpcc::rules::Scale;
use crate::tpcc::store::{Loader, Origin, Piece};
use crate::tpcc::tables::{MORE_INDEXES, TABLES, Table};

/// A file that is being filled.
pub(super) struct SqliteLoader {
    connection: Connection,
    place: String,
}

/// The version of what this kit keeps in a database. Another one is refused.
const VERSION: i64 = 1;

impl SqliteLoader {
    pub(super) fn new(connection: Connection, place: String) -> SqliteLoader {
        SqliteLoader { connection, place }
    }

    fn try_origin(&self) -> rusqlite::Result<Option<(i64, Origin)>> {
        let columns = "version, warehouses, shards, items, customers, undelivered, seed, filled_at";
        self.connection
            .query_row(&format!("SELECT {columns} FROM kit"), [], |row| {
                let origin = Origin {
                    warehouses: row.get(1)?,
                    shards: row.get(2)?,
                    scale: Scale {
                        items: row.get(3)?,
                        customers: row.get(4)?,
                        undelivered: row.get(5)?,
                    },
                    seed: row.get::<_, i64>(6)?.cast_unsigned(),
                    filled_at: row.get(7)?,
                };
                Ok((row.get(0)?, origin))
            })
            .optional()
    }

    /// Whether there is a table of this name, and whether there is any at all.
    fn tables(&self) -> rusqlite::Result<(bool, bool)> {
        self.connection.query_row(
            "SELECT count(*) FILTER (WHERE name = 'kit') > 0, count(*) > 0 FROM sqlite_schema",
            [],
            |row| Ok((row.get(0)?, row.get(1)?)),
        )
    }

    /// Begins as a writer: of two that begin as readers one would have to give way.
    fn begin(&mut self) -> rusqlite::Result<Transaction<'_>> {
        self.connection
            .transaction_with_behavior(TransactionBehavior::Immediate)
    }

    fn try_create(&mut self, origin: &Origin) -> rusqlite::Result<()> {
        let transaction = self.begin()?;
        transaction.execute_batch(
            "CREATE TABLE kit (version INTEGER, warehouses INTEGER, shards INTEGER, items INTEGER,
                 customers INTEGER, undelivered INTEGER, seed INTEGER, filled_at INTEGER);
             CREATE TABLE kit_filled (piece TEXT PRIMARY KEY);",
        )?;
        transaction.execute(
            "INSERT INTO kit VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            params![
                VERSION,
                origin.warehouses,
                origin.shards,
                origin.scale.items,
                origin.scale.customers,
                origin.scale.undelivered,
                origin.seed.cast_signed(),
                origin.filled_at,
            ],
        )?;
        for table in TABLES {
            transaction.execute(&definition(table), [])?;
        }
        transaction.commit()
    }

    fn try_fill(&mut self, piece: Piece, origin: &Origin) -> rusqlite::Result<()> {
        let transaction = self.begin()?;
        match piece {
            Piece::Indexes => {
                for sql in indexes() {
                    transaction.execute(&sql, [])?;
                }
            }
            Piece::Items => insert(&transaction, Table::Item, 0, origin)?,
            Piece::Warehouse(warehouse) => {
                for table in TABLES.into_iter().filter(|t| *t != Table::Item) {
                    insert(&transaction, table, warehouse, origin)?;
                }
            }
        }
        transaction.execute("INSERT INTO kit_filled VALUES (?)", [piece.name()])?;
        transaction.commit()?;
        if piece == Piece::Indexes {
            self.connection.execute_batch("ANALYZE")?;
        }
        Ok(())
    }
}

/// Keys of one number are the row's own; narrow rows lie in the tree of their key. For the others
/// an index is made once they are there, which is faster than keeping it in order all the time.
fn definition(table: Table) -> String {
    let columns = table.definition();
    let name = table.name();
    match table.key() {
        Some(key) if table.lies_in_its_key() => {
            format!("CREATE TABLE {name} ({columns}, PRIMARY KEY ({key})) WITHOUT ROWID")
        }
        Some(key) if !key.contains(',') => {
            format!("CREATE TABLE {name} ({columns}, PRIMARY KEY ({key}))")
        }
        _ => format!("CREATE TABLE {name} ({columns})"),
    }
}

fn indexes() -> Vec<String> {
    let wide = TABLES.into_iter().filter(|table| !table.lies_in_its_key());
    let keys = wide.filter_map(|table| {
        let key = table.key().filter(|key| key.contains(','))?;
        let name = table.name();
        Some(format!("CREATE UNIQUE INDEX {name}_key ON {name} ({key})"))
    });
    keys.chain(MORE_INDEXES.map(str::to_owned)).collect()
}

fn insert(
    connection: &Connection,
    table: Table,
    warehouse: i32,
    origin: &Origin,
) -> rusqlite::Result<()> {
    let places = vec!["?"; table.columns().len()].join(", ");
    let sql = format!("INSERT INTO {} VALUES ({places})", table.name());
    let mut statement = connection.prepare(&sql)?;
    Population::new(origin).rows(table, warehouse, &mut |fields| {
        for (at, field) in (1..).zip(fields) {
            statement.raw_bind_parameter(at, field)?;
        }
        statement.raw_execute().map(drop)
    })
}

impl ToSql for Field<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(match self {
            Field::Int(number) => ToSqlOutput::from(*number),
            Field::Text(text) => ToSqlOutput::from(*text),
            Field::Null => ToSqlOutput::from(rusqlite::types::Null),
        })
    }
}

impl Loader for SqliteLoader {
    fn origin(&mut self) -> Result<Option<Origin>, TpccError> {
        let fail = |e| explain(&self.place, e);
        let foreign = |what: &str| TpccError::Foreign {
            place: self.place.clone(),
            what: what.to_owned(),
        };
        match self.tables().map_err(fail)? {
            (false, false) => Ok(None),
            (false, true) => Err(foreign("a database without the mark of this kit")),
            (true, _) => match self.try_origin() {
                Ok(Some((VERSION, origin))) => Ok(Some(origin)),
                Ok(Some((version, _))) => Err(foreign(&format!(
                    "a load of version {version}, not {VERSION}"
                ))),
                Ok(None) => Err(foreign("a load that does not say what it is")),
                Err(error) if is_busy(&error) => Err(fail(error)),
                Err(error) => Err(foreign(&error.to_string())),
            },
        }
    }

    fn create(&mut self, origin: &Origin) -> Result<(), TpccError> {
        self.try_create(origin).map_err(|e| explain(&self.place, e))
    }

    fn has(&mut self, piece: Piece) -> Result<bool, TpccError> {
        let sql = "SELECT count(*) FROM kit_filled WHERE piece = ?";
        self.connection
            .query_row(sql, [piece.name()], |row| row.get(0))
            .map_err(|e| explain(&self.place, e))
    }

    fn fill(&mut self, piece: Piece, origin: &Origin) -> Result<(), TpccError> {
        self.try_fill(piece, origin)
            .map_err(|e| explain(&self.place, e))
    }

    fn ask(&mut self, sql: &str) -> Result<Vec<Vec<Option<i64>>>, TpccError> {
        let ask = || {
            let mut statement = self.connection.prepare(sql)?;
            let columns = statement.column_count();
            let rows =
                statement.query_map([], |row| (0..columns).map(|at| row.get(at)).collect())?;
            rows.collect::<rusqlite::Result<_>>()
        };
        ask().map_err(|e| explain(&self.place, e))
    }

    fn execute(&mut self, sql: &str) -> Result<(), TpccError> {
        self.connection
            .execute_batch(sql)
            .map_err(|e| explain(&self.place, e))
    }
}
