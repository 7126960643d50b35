//! The load on PostgreSQL: one database with a schema of its own, and a function for each
//! transaction. A transaction is thus one message, and the server does the work.

mod error_mapping;
mod fill;
mod session;
mod warm;

use std::time::Duration;

use ::postgres::{Client, Config, Error, NoTls};
use hugeleaf_units::Bytes;

use super::counters::DatabaseCounters;
use super::error::TpccError;
use super::store::{Durability, TpccLoader, TpccSession, TpccStore, free_bytes};

use error_mapping::{SCHEMA, explain};
use fill::PostgresLoader;
use session::PostgresSession;

pub use warm::{WarmConnection, WarmMethod};

pub struct PostgresStore {
    config: Config,
    name: String,
    durability: Durability,
    /// The folder of the server's files, for a server of our own.
    folder: Option<std::path::PathBuf>,
    usage: Option<Box<ServerCpuReader>>,
}

/// Reads the microseconds of processor time that a server has used, in user mode and in the kernel.
type ServerCpuReader = dyn Fn() -> Option<(u64, u64)> + Send + Sync;

impl PostgresStore {
    /// Size of a warehouse of the standard's rows in tables and indexes. Measured: 102 MB, plus the
    /// rows that runs add.
    pub const WAREHOUSE: Bytes = Bytes::from_mib(104);

    /// Describes the database of a DSN. Does not connect yet.
    ///
    /// # Errors
    /// [`TpccError::Unreachable`] if the DSN is invalid.
    pub fn new(dsn: &str, durability: Durability) -> Result<PostgresStore, TpccError> {
        // The parser's error text may contain a part of the password.
        let mut config: Config = dsn.parse().map_err(|_: Error| TpccError::Unreachable {
            place: "postgres".to_owned(),
            reason: "invalid connection string; quote values that contain blanks".to_owned(),
        })?;
        config
            .application_name("hugeleaf-lab oltp")
            .connect_timeout(Duration::from_secs(10));
        Ok(PostgresStore {
            name: described(&config),
            config,
            durability,
            folder: None,
            usage: None,
        })
    }

    /// Sets the folder of the server's files, to determine the free space.
    #[must_use]
    pub fn in_folder(mut self, folder: &std::path::Path) -> PostgresStore {
        self.folder = Some(folder.to_owned());
        self
    }

    /// Sets the source of the server's processor time.
    #[must_use]
    pub fn with_usage(mut self, usage: Box<ServerCpuReader>) -> PostgresStore {
        self.usage = Some(usage);
        self
    }

    /// Removes everything that this kit has made on the server.
    ///
    /// # Errors
    /// Those of the database.
    pub fn remove(&self) -> Result<(), TpccError> {
        self.loader(0)?.origin()?;
        self.loader(0)?
            .execute(&format!("DROP SCHEMA IF EXISTS {SCHEMA} CASCADE"))
    }

    fn connect(&self) -> Result<Client, TpccError> {
        let mut client = self
            .config
            .connect(NoTls)
            .map_err(|e| match explain(&self.name, &e) {
                TpccError::ConnectionLost { place, reason }
                | TpccError::Database { place, reason } => TpccError::Unreachable { place, reason },
                other => other,
            })?;
        let synchronous = match self.durability {
            Durability::Commit => "on",
            Durability::Soon | Durability::Never => "off",
        };
        // Rows that a transaction has read do not change under it (clause 3.4).
        client
            .batch_execute(&format!(
                "SET search_path = {SCHEMA}; SET synchronous_commit = {synchronous}; \
                 SET default_transaction_isolation = 'repeatable read'; \
                 SET client_min_messages = warning"
            ))
            .map_err(|e| explain(&self.name, &e))?;
        Ok(client)
    }
}

impl TpccStore for PostgresStore {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn version(&self) -> Result<String, TpccError> {
        let fail = |e| explain(&self.name, &e);
        let row = self
            .connect()?
            .query_one("SHOW server_version", &[])
            .map_err(fail)?;
        let version: &str = row.try_get(0).map_err(fail)?;
        Ok(format!("PostgreSQL {version}"))
    }

    fn loader(&self, _shard: i32) -> Result<Box<dyn TpccLoader + '_>, TpccError> {
        let mut client = self.connect()?;
        // For sums by three columns the planner expects one row instead of thousands, and would use
        // nested loops.
        client
            .batch_execute("SET enable_nestloop = off; SET work_mem = '64MB'")
            .map_err(|e| explain(&self.name, &e))?;
        Ok(Box::new(PostgresLoader::new(client, &self.name)))
    }

    fn session(
        &self,
        _shard: i32,
        work: &mut dyn FnMut(&mut dyn TpccSession) -> Result<(), TpccError>,
    ) -> Result<(), TpccError> {
        let client = self.connect()?;
        let session = PostgresSession::new(client, &self.name);
        work(&mut session.map_err(|e| explain(&self.name, &e))?)
    }

    fn counters(&self) -> Result<DatabaseCounters, TpccError> {
        let mut client = self.connect()?;
        let mut counters = counters_of(&mut client).map_err(|e| explain(&self.name, &e))?;
        counters.server_cpu_micros = self.usage.as_ref().and_then(|usage| usage());
        Ok(counters)
    }

    fn bytes_per_warehouse(&self) -> u64 {
        // The factor adds the log.
        PostgresStore::WAREHOUSE.get() * 5 / 4
    }

    fn free_bytes(&self) -> Option<u64> {
        free_bytes(self.folder.as_ref()?).map(Bytes::get)
    }
}

/// Reads the server's own views, whose columns differ between versions.
fn counters_of(client: &mut Client) -> Result<DatabaseCounters, Error> {
    let number = |client: &mut Client, sql: &str| -> Result<Option<u64>, Error> {
        let row = client.query_opt(sql, &[])?;
        let value: Option<i64> = match row {
            Some(row) => row.try_get(0)?,
            None => None,
        };
        Ok(value.and_then(|n| u64::try_from(n).ok()))
    };
    let version = number(
        client,
        "SELECT current_setting('server_version_num')::bigint",
    )?;
    let version = version.unwrap_or(0);
    let database = "FROM pg_stat_database WHERE datname = current_database()";
    let writes = match version {
        160_000.. => {
            "SELECT sum(coalesce(writes, 0) + coalesce(extends, 0))::bigint FROM pg_stat_io \
             WHERE object = 'relation'"
        }
        _ => "SELECT buffers_checkpoint + buffers_clean + buffers_backend FROM pg_stat_bgwriter",
    };
    Ok(DatabaseCounters {
        logical_reads: number(client, &format!("SELECT blks_hit + blks_read {database}"))?,
        physical_reads: number(client, &format!("SELECT blks_read {database}"))?,
        physical_writes: number(client, writes)?,
        block_changes: match version {
            140_000.. => number(client, "SELECT wal_records FROM pg_stat_wal")?,
            _ => None,
        },
        server_cpu_micros: None,
    })
}

fn described(config: &Config) -> String {
    let hosts: Vec<String> = config
        .get_hosts()
        .iter()
        .map(|host| match host {
            ::postgres::config::Host::Tcp(name) => name.clone(),
            ::postgres::config::Host::Unix(path) => path.display().to_string(),
        })
        .collect();
    let host = match hosts.is_empty() {
        true => "localhost".to_owned(),
        false => hosts.join(","),
    };
    match config.get_dbname() {
        Some(name) => format!("postgres at {host}, database {name}"),
        None => format!("postgres at {host}"),
    }
}
