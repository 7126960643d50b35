//! Fills one database file.

use rusqlite::{Connection, Row, ToSql, Transaction, TransactionBehavior, types::ToSqlOutput};

use super::error_mapping::explain;
use crate::kits::tpcc::error::TpccError;
use crate::kits::tpcc::population::{FieldValue, RowGenerator};
use crate::kits::tpcc::store::{DatasetSpec, FillUnit, TpccLoader};
use crate::kits::tpcc::tables::{MORE_INDEXES, TABLES, TpccTable};

pub(super) struct SqliteLoader {
    connection: Connection,
    place: String,
}

impl SqliteLoader {
    pub(super) fn new(connection: Connection, place: String) -> SqliteLoader {
        SqliteLoader { connection, place }
    }

    /// Begins as a writer: of two transactions that begin as readers, one would have to yield.
    fn begin(&mut self) -> rusqlite::Result<Transaction<'_>> {
        self.connection
            .transaction_with_behavior(TransactionBehavior::Immediate)
    }

    fn try_create(&mut self, origin: &DatasetSpec) -> rusqlite::Result<()> {
        let transaction = self.begin()?;
        transaction.execute_batch(&origin.creation(definition))?;
        transaction.commit()
    }

    fn try_fill(&mut self, part: FillUnit, origin: &DatasetSpec) -> rusqlite::Result<()> {
        let transaction = self.begin()?;
        match part {
            FillUnit::Indexes => {
                for sql in indexes() {
                    transaction.execute(&sql, [])?;
                }
            }
            FillUnit::Items => insert(&transaction, TpccTable::Item, 0, origin)?,
            FillUnit::Warehouse(warehouse) => {
                for table in TABLES.into_iter().filter(|t| *t != TpccTable::Item) {
                    insert(&transaction, table, warehouse, origin)?;
                }
            }
        }
        transaction.execute("INSERT INTO kit_filled VALUES (?)", [part.name()])?;
        transaction.commit()?;
        if part == FillUnit::Indexes {
            self.connection.execute_batch("ANALYZE")?;
        }
        Ok(())
    }
}

/// Returns the definition of a table. A key of one number is the row id; narrow rows are in the
/// tree of their key. Other tables get an index after filling, which is faster than maintaining it.
fn definition(table: TpccTable) -> String {
    let columns = table.definition();
    let name = table.name();
    match table.key() {
        Some(key) if table.is_in_its_key() => {
            format!("CREATE TABLE {name} ({columns}, PRIMARY KEY ({key})) WITHOUT ROWID")
        }
        Some(key) if !key.contains(',') => {
            format!("CREATE TABLE {name} ({columns}, PRIMARY KEY ({key}))")
        }
        _ => format!("CREATE TABLE {name} ({columns})"),
    }
}

fn indexes() -> Vec<String> {
    let wide = TABLES.into_iter().filter(|table| !table.is_in_its_key());
    let keys = wide.filter_map(|table| {
        let key = table.key().filter(|key| key.contains(','))?;
        let name = table.name();
        Some(format!("CREATE UNIQUE INDEX {name}_key ON {name} ({key})"))
    });
    keys.chain(MORE_INDEXES.map(str::to_owned)).collect()
}

fn insert(
    connection: &Connection,
    table: TpccTable,
    warehouse: i32,
    origin: &DatasetSpec,
) -> rusqlite::Result<()> {
    let places = vec!["?"; table.columns().len()].join(", ");
    let sql = format!("INSERT INTO {} VALUES ({places})", table.name());
    let mut statement = connection.prepare(&sql)?;
    RowGenerator::new(origin).rows(table, warehouse, &mut |fields| {
        for (at, field) in (1..).zip(fields) {
            statement.raw_bind_parameter(at, field)?;
        }
        statement.raw_execute().map(drop)
    })
}

impl ToSql for FieldValue<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(match self {
            FieldValue::Int(number) => ToSqlOutput::from(*number),
            FieldValue::Text(text) => ToSqlOutput::from(*text),
            FieldValue::Null => ToSqlOutput::from(rusqlite::types::Null),
        })
    }
}

impl TpccLoader for SqliteLoader {
    fn place(&self) -> (String, &'static str) {
        (self.place.clone(), "database")
    }

    fn marks(&mut self) -> Result<(bool, bool), TpccError> {
        let sql = "SELECT count(*) > 0, (SELECT count(*) FROM pragma_table_info('kit') WHERE name IN \
             ('version', 'warehouses', 'shards', 'items', 'customers', 'undelivered', 'seed', \
             'filled_at')) = 8 FROM sqlite_schema";
        let marks = |row: &Row<'_>| Ok((row.get(0)?, row.get(1)?));
        let marks = self.connection.query_row(sql, [], marks);
        marks.map_err(|e| explain(&self.place, e))
    }

    fn create(&mut self, origin: &DatasetSpec) -> Result<(), TpccError> {
        self.try_create(origin).map_err(|e| explain(&self.place, e))
    }

    fn fill(&mut self, part: FillUnit, origin: &DatasetSpec) -> Result<(), TpccError> {
        self.try_fill(part, origin)
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
