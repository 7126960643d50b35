//! Fills a database of PostgreSQL, by COPY.

use std::fmt::Write as _;
use std::io::Write as _;

use ::postgres::types::Type;
use ::postgres::{Client, Error, Row, Transaction};

use super::error_mapping::{SCHEMA, explain};
use super::session::FUNCTIONS;
use crate::kits::tpcc::error::TpccError;
use crate::kits::tpcc::population::{FieldValue, RowGenerator};
use crate::kits::tpcc::store::{DatasetSpec, FillUnit, TpccLoader};
use crate::kits::tpcc::tables::{MORE_INDEXES, TABLES, TpccTable};

pub(super) struct PostgresLoader<'s> {
    client: Client,
    place: &'s str,
}

const CHUNK: usize = 256 * 1024;

impl<'s> PostgresLoader<'s> {
    pub(super) fn new(client: Client, place: &'s str) -> PostgresLoader<'s> {
        PostgresLoader { client, place }
    }

    fn try_create(&mut self, origin: &DatasetSpec) -> Result<(), Error> {
        let table =
            |table: TpccTable| format!("CREATE TABLE {} ({})", table.name(), table.definition());
        let mut transaction = self.client.transaction()?;
        transaction.batch_execute(&format!("CREATE SCHEMA {SCHEMA}"))?;
        transaction.batch_execute(&origin.creation(table))?;
        transaction.batch_execute(FUNCTIONS)?;
        transaction.commit()
    }

    fn try_fill(&mut self, part: FillUnit, origin: &DatasetSpec) -> Result<(), PostgresCopyError> {
        let mut transaction = self.client.transaction()?;
        match part {
            FillUnit::Items => copy(&mut transaction, TpccTable::Item, 0, origin)?,
            FillUnit::Warehouse(warehouse) => {
                for table in TABLES.into_iter().filter(|t| *t != TpccTable::Item) {
                    copy(&mut transaction, table, warehouse, origin)?;
                }
            }
            FillUnit::Indexes => {
                for table in TABLES {
                    let name = table.name();
                    if let Some(key) = table.key() {
                        transaction.batch_execute(&format!(
                            "CREATE UNIQUE INDEX {name}_key ON {name} ({key})"
                        ))?;
                    }
                }
                for sql in MORE_INDEXES {
                    transaction.batch_execute(sql)?;
                }
            }
        }
        transaction.execute("INSERT INTO kit_filled VALUES ($1)", &[&part.name()])?;
        transaction.commit()?;
        if part == FillUnit::Indexes {
            // A server vacuums over time, and its planner uses the statistics. It is done before
            // the measurement, not during it.
            self.vacuum()?;
        }
        Ok(())
    }

    fn vacuum(&mut self) -> Result<(), Error> {
        for table in TABLES {
            self.client
                .batch_execute(&format!("VACUUM (ANALYZE, FREEZE) {}", table.name()))?;
        }
        checkpoint(&mut self.client)
    }
}

/// Writes changes to the tables' files.
pub(super) fn checkpoint(client: &mut Client) -> Result<(), Error> {
    client.batch_execute("CHECKPOINT").or_else(|e| {
        // For superusers only; otherwise the server does it later.
        match e.code() {
            Some(code) if *code == ::postgres::error::SqlState::INSUFFICIENT_PRIVILEGE => Ok(()),
            _ => Err(e),
        }
    })
}

#[derive(Debug, thiserror::Error)]
enum PostgresCopyError {
    #[error(transparent)]
    Server(#[from] Error),
    #[error(transparent)]
    Sending(#[from] std::io::Error),
}

impl PostgresCopyError {
    fn explain(self, place: &str) -> TpccError {
        match self {
            PostgresCopyError::Server(error) => explain(place, &error),
            PostgresCopyError::Sending(error) => {
                let of_server = error
                    .get_ref()
                    .and_then(|inner| inner.downcast_ref::<Error>());
                match of_server {
                    Some(inner) => explain(place, inner),
                    None => TpccError::ConnectionLost {
                        place: place.to_owned(),
                        reason: error.to_string(),
                    },
                }
            }
        }
    }
}

/// Sends a table's rows in COPY's text form. Nothing in them needs escaping: texts are letters,
/// digits and spaces.
fn copy(
    transaction: &mut Transaction<'_>,
    table: TpccTable,
    warehouse: i32,
    origin: &DatasetSpec,
) -> Result<(), PostgresCopyError> {
    let sql = format!("COPY {} FROM STDIN", table.name());
    let mut writer = transaction.copy_in(&sql)?;
    let mut text = String::with_capacity(CHUNK + CHUNK / 4);
    RowGenerator::new(origin).rows(table, warehouse, &mut |fields| {
        for (at, field) in fields.iter().enumerate() {
            if at > 0 {
                text.push('\t');
            }
            match field {
                FieldValue::Int(number) => {
                    let _ = write!(text, "{number}");
                }
                FieldValue::Text(words) => text.push_str(words),
                FieldValue::Null => text.push_str("\\N"),
            }
        }
        text.push('\n');
        if text.len() >= CHUNK {
            writer.write_all(text.as_bytes())?;
            text.clear();
        }
        Ok::<(), PostgresCopyError>(())
    })?;
    writer.write_all(text.as_bytes())?;
    writer.finish()?;
    Ok(())
}

impl TpccLoader for PostgresLoader<'_> {
    fn place(&self) -> (String, &'static str) {
        (format!("{}, schema {SCHEMA}", self.place), "schema")
    }

    fn marks(&mut self) -> Result<(bool, bool), TpccError> {
        let sql = "SELECT to_regnamespace($1::text) IS NOT NULL, \
                   to_regclass($1::text || '.kit') IS NOT NULL";
        let seen = self.client.query_one(sql, &[&SCHEMA]);
        let seen = seen.map_err(|e| explain(self.place, &e))?;
        Ok((seen.get(0), seen.get(1)))
    }

    fn create(&mut self, origin: &DatasetSpec) -> Result<(), TpccError> {
        self.try_create(origin).map_err(|e| explain(self.place, &e))
    }

    fn fill(&mut self, part: FillUnit, origin: &DatasetSpec) -> Result<(), TpccError> {
        self.try_fill(part, origin)
            .map_err(|fault| fault.explain(self.place))
    }

    fn ask(&mut self, sql: &str) -> Result<Vec<Vec<Option<i64>>>, TpccError> {
        let ask = |client: &mut Client| {
            let rows = client.query(sql, &[])?;
            rows.iter().map(numbers).collect::<Result<_, Error>>()
        };
        ask(&mut self.client).map_err(|e| explain(self.place, &e))
    }

    fn execute(&mut self, sql: &str) -> Result<(), TpccError> {
        self.client
            .batch_execute(sql)
            .map_err(|e| explain(self.place, &e))
    }
}

fn numbers(row: &Row) -> Result<Vec<Option<i64>>, Error> {
    let one = |at: usize| {
        if *row.columns()[at].type_() == Type::INT4 {
            let number: Option<i32> = row.try_get(at)?;
            return Ok(number.map(i64::from));
        }
        row.try_get::<_, Option<i64>>(at)
    };
    (0..row.len()).map(one).collect()
}
