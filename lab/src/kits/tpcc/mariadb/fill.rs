//! Fills a database of MariaDB, by statements that insert many rows.

use std::fmt::Write as _;

use ::mysql::prelude::Queryable;
use ::mysql::{Conn, Error, Row, TxOpts, Value};

use super::error_mapping::{DATABASE, explain};
use super::session::PROCEDURES;
use crate::kits::tpcc::error::TpccError;
use crate::kits::tpcc::population::{FieldValue, RowGenerator};
use crate::kits::tpcc::store::{DatasetSpec, FillUnit, TpccLoader};
use crate::kits::tpcc::tables::{MORE_INDEXES, TABLES, TpccTable};

pub(super) struct MariadbLoader<'s> {
    connection: Conn,
    place: &'s str,
}

/// Bytes sent at a time; a server accepts 16 MiB.
const CHUNK: usize = 256 * 1024;

impl<'s> MariadbLoader<'s> {
    pub(super) fn new(
        mut connection: Conn,
        place: &'s str,
    ) -> Result<MariadbLoader<'s>, TpccError> {
        let there = format!("SHOW DATABASES LIKE '{DATABASE}'");
        let is_there = connection.query_first::<String, _>(there);
        if is_there.map_err(|e| explain(place, &e))?.is_some() {
            let chosen = connection.query_drop(format!("USE {DATABASE}"));
            chosen.map_err(|e| explain(place, &e))?;
        }
        Ok(MariadbLoader { connection, place })
    }

    /// Creates the tables. MariaDB commits a transaction before it makes a table. The mark therefore
    /// comes last, and a database without it is made anew.
    fn try_create(&mut self, origin: &DatasetSpec) -> Result<(), Error> {
        let connection = &mut self.connection;
        connection.query_drop(format!("DROP DATABASE IF EXISTS {DATABASE}"))?;
        connection.query_drop(format!(
            "CREATE DATABASE {DATABASE} CHARACTER SET ascii COLLATE ascii_nopad_bin"
        ))?;
        connection.query_drop(format!("USE {DATABASE}"))?;
        connection.query_drop(PROCEDURES)?;
        let creation = origin.creation(definition);
        let (marks, rest): (Vec<&str>, Vec<&str>) = creation
            .split(';')
            .filter(|sql| !sql.trim().is_empty())
            .partition(|sql| sql.contains("INSERT INTO kit "));
        for sql in rest.into_iter().chain(marks) {
            connection.query_drop(sql)?;
        }
        Ok(())
    }

    fn try_fill(&mut self, part: FillUnit, origin: &DatasetSpec) -> Result<(), Error> {
        if part == FillUnit::Indexes {
            for sql in MORE_INDEXES {
                // An interrupted run may have left the preceding index.
                let sql = sql.replace("CREATE INDEX", "CREATE INDEX IF NOT EXISTS");
                self.connection.query_drop(sql)?;
            }
            for table in TABLES {
                let sql = format!("ANALYZE TABLE {}", table.name());
                self.connection.query_drop(sql)?;
            }
        }
        let mut transaction = self.connection.start_transaction(TxOpts::default())?;
        match part {
            FillUnit::Indexes => {}
            FillUnit::Items => insert(&mut transaction, TpccTable::Item, 0, origin)?,
            FillUnit::Warehouse(warehouse) => {
                for table in TABLES.into_iter().filter(|t| *t != TpccTable::Item) {
                    insert(&mut transaction, table, warehouse, origin)?;
                }
            }
        }
        transaction.exec_drop("INSERT INTO kit_filled VALUES (?)", (part.name(),))?;
        transaction.commit()
    }
}

/// Returns the definition of a table with its key; InnoDB stores the rows in the tree of that key.
fn definition(table: TpccTable) -> String {
    // Texts of the standard are at most 500 characters long, and all are ASCII.
    let columns = table.definition().replace(" TEXT", " VARCHAR(500)");
    let key = table.key();
    let key = key.map_or_else(String::new, |key| format!(", PRIMARY KEY ({key})"));
    format!(
        "CREATE TABLE {} ({columns}{key}) ENGINE=InnoDB",
        table.name()
    )
}

/// Inserts rows. Nothing in them needs escaping: texts are letters, digits and spaces.
fn insert(
    connection: &mut impl Queryable,
    table: TpccTable,
    warehouse: i32,
    origin: &DatasetSpec,
) -> Result<(), Error> {
    let head = format!("INSERT INTO {} VALUES ", table.name());
    let mut sql = String::with_capacity(CHUNK + CHUNK / 4);
    RowGenerator::new(origin).rows(table, warehouse, &mut |fields| {
        sql.push_str(if sql.is_empty() { &head } else { "," });
        for (at, field) in fields.iter().enumerate() {
            sql.push(if at == 0 { '(' } else { ',' });
            match field {
                FieldValue::Int(number) => {
                    let _ = write!(sql, "{number}");
                }
                FieldValue::Text(words) => {
                    let _ = write!(sql, "'{words}'");
                }
                FieldValue::Null => sql.push_str("NULL"),
            }
        }
        sql.push(')');
        if sql.len() >= CHUNK {
            connection.query_drop(&sql)?;
            sql.clear();
        }
        Ok::<(), Error>(())
    })?;
    match sql.is_empty() {
        true => Ok(()),
        false => connection.query_drop(&sql),
    }
}

/// Rewrites the conditions' statements for MariaDB: its casts have other names, and its ANALYZE
/// requires the word TABLE.
fn in_its_words(sql: &str) -> String {
    sql.replace(" AS BIGINT)", " AS SIGNED)")
        .replace("ANALYZE kit_lines", "ANALYZE TABLE kit_lines")
}

impl TpccLoader for MariadbLoader<'_> {
    fn place(&self) -> (String, &'static str) {
        (format!("{}, database {DATABASE}", self.place), "database")
    }

    fn marks(&mut self) -> Result<(bool, bool), TpccError> {
        let mut look = || -> Result<(bool, bool), Error> {
            let sql = "SELECT table_name FROM information_schema.tables WHERE table_schema = ?";
            let names: Vec<String> = self.connection.exec(sql, (DATABASE,))?;
            let is_ours = |name: &String| {
                name.starts_with("kit") || TABLES.iter().any(|table| table.name() == name)
            };
            let has_mark = names.iter().any(|name| name == "kit")
                && self
                    .connection
                    .query_first::<i64, _>("SELECT version FROM kit")?
                    .is_some();
            // Tables of this kit without the mark are the rest of an interrupted creation.
            Ok((has_mark || !names.iter().all(is_ours), has_mark))
        };
        look().map_err(|e| explain(self.place, &e))
    }

    fn create(&mut self, origin: &DatasetSpec) -> Result<(), TpccError> {
        self.try_create(origin).map_err(|e| explain(self.place, &e))
    }

    fn fill(&mut self, part: FillUnit, origin: &DatasetSpec) -> Result<(), TpccError> {
        self.try_fill(part, origin)
            .map_err(|e| explain(self.place, &e))
    }

    fn ask(&mut self, sql: &str) -> Result<Vec<Vec<Option<i64>>>, TpccError> {
        let rows: Result<Vec<Row>, Error> = self.connection.query(in_its_words(sql));
        let rows = rows.map_err(|e| explain(self.place, &e))?;
        rows.into_iter()
            .map(|row| row.unwrap().into_iter().map(|v| self.number(v)).collect())
            .collect()
    }

    fn execute(&mut self, sql: &str) -> Result<(), TpccError> {
        self.connection
            .query_drop(in_its_words(sql))
            .map_err(|e| explain(self.place, &e))
    }
}

impl MariadbLoader<'_> {
    /// Converts a number of an answer; sums arrive as decimals without a fraction.
    fn number(&self, value: Value) -> Result<Option<i64>, TpccError> {
        let text = match value {
            Value::NULL => return Ok(None),
            Value::Int(number) => return Ok(Some(number)),
            Value::Bytes(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
            other => format!("{other:?}"),
        };
        text.parse().map(Some).map_err(|_| TpccError::Database {
            place: self.place.to_owned(),
            reason: format!("'{text}' is not a whole number"),
        })
    }
}
