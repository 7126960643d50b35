//! Preparation before each run of a comparison, so that all runs begin alike.

use ::postgres::{Client, Error};

use super::PostgresStore;
use super::error_mapping::explain;
use crate::kits::tpcc::error::TpccError;
use crate::kits::tpcc::tables::{TABLES, TpccTable};

/// A connection that has filled the server's cache, and maps all of it while it is open.
pub struct WarmConnection {
    how: WarmMethod,
    _connection: Client,
}

impl WarmConnection {
    pub const fn how(&self) -> WarmMethod {
        self.how
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WarmMethod {
    /// By the extension `pg_prewarm`: all tables and indexes, block by block.
    Whole,
    /// Tables were read through their keys: the extension is missing, or only some warehouses are
    /// touched. A plain scan of a large table uses a small ring of buffers and does not fill the
    /// cache.
    ByKeys,
}

impl PostgresStore {
    /// Vacuums and writes changes of earlier runs, then reads tables and indexes into the server's
    /// cache as far as they fit. Reads the first `touched` warehouses, or all.
    ///
    /// # Errors
    /// Those of the database.
    pub fn warm(&self, touched: Option<i32>) -> Result<WarmConnection, TpccError> {
        let mut client = self.connect()?;
        let warmed = vacuum(&mut client).and_then(|()| fill_cache(&mut client, touched));
        Ok(WarmConnection {
            how: warmed.map_err(|e| explain(&self.name, &e))?,
            _connection: client,
        })
    }
}

fn vacuum(client: &mut Client) -> Result<(), Error> {
    for table in TABLES {
        client.batch_execute(&format!("VACUUM {}", table.name()))?;
    }
    super::fill::checkpoint(client)
}

fn fill_cache(client: &mut Client, touched: Option<i32>) -> Result<WarmMethod, Error> {
    let extension = "CREATE EXTENSION IF NOT EXISTS pg_prewarm SCHEMA public";
    if touched.is_none() && client.batch_execute(extension).is_ok() {
        let all = "SELECT sum(public.pg_prewarm(c.oid::regclass))::bigint FROM pg_class c \
                     JOIN pg_namespace n ON n.oid = c.relnamespace \
                     WHERE n.nspname = current_schema() AND c.relkind IN ('r', 'i')";
        client.query_one(all, &[])?;
        return Ok(WarmMethod::Whole);
    }
    client.batch_execute("SET enable_seqscan = off; SET enable_sort = off")?;
    for table in TABLES {
        let (name, Some(key)) = (table.name(), table.key()) else {
            continue;
        };
        let first = table.columns()[0].name;
        let some = match touched {
            Some(last) if table != TpccTable::Item => format!("WHERE {first} <= {last}"),
            _ => String::new(),
        };
        // The rows themselves are requested, so an index alone does not suffice.
        let rows = format!("SELECT * FROM {name} {some} ORDER BY {key} OFFSET 0");
        let sql = format!("SELECT count(x) FROM ({rows}) AS x");
        client.query_one(&sql, &[])?;
    }
    Ok(WarmMethod::ByKeys)
}
