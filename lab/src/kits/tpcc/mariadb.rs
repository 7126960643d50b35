//! The load on MariaDB: one database of the server, and a procedure for each transaction. A
//! transaction is thus one message, and the server does the work.

mod error_mapping;
mod fill;
mod session;
mod warm;
mod watch;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use ::mysql::prelude::Queryable;
use ::mysql::{Conn, Error, Opts, OptsBuilder};
use hugeleaf_units::Bytes;

use super::counters::DatabaseCounters;
use super::error::TpccError;
use super::store::{TpccLoader, TpccSession, TpccStore, free_bytes};

use error_mapping::DATABASE;
use fill::MariadbLoader;
use session::MariadbSession;

pub(crate) use error_mapping::explain;
pub use watch::{MariadbSeen, MariadbWatch};

pub struct MariadbStore {
    socket: PathBuf,
    name: String,
    /// The folder of the server's files, for a server of our own.
    folder: Option<PathBuf>,
    usage: Option<Box<ServerCpuReader>>,
}

/// Reads the microseconds of processor time that a server has used, in user mode and in the kernel.
type ServerCpuReader = dyn Fn() -> Option<(u64, u64)> + Send + Sync;

impl MariadbStore {
    /// Size of a warehouse of the standard's rows in tables and indexes. Measured: 105 MB, plus the
    /// rows that runs add.
    pub const WAREHOUSE: Bytes = Bytes::from_mib(110);

    /// Describes a server whose superuser connects on a socket without a password; connects later.
    pub fn new(socket: &Path) -> MariadbStore {
        MariadbStore {
            name: format!("mariadb at {}", socket.display()),
            socket: socket.to_owned(),
            folder: None,
            usage: None,
        }
    }

    /// Sets the folder of the server's files, to determine the free space.
    #[must_use]
    pub fn in_folder(mut self, folder: &Path) -> MariadbStore {
        self.folder = Some(folder.to_owned());
        self
    }

    /// Sets the source of the server's processor time.
    #[must_use]
    pub fn with_usage(mut self, usage: Box<ServerCpuReader>) -> MariadbStore {
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
            .execute(&format!("DROP DATABASE IF EXISTS {DATABASE}"))
    }

    /// Opens a connection without a selected database.
    fn open(&self) -> Result<Conn, TpccError> {
        let connected = Conn::new(options(&self.socket));
        let mut connection = connected.map_err(|e| match explain(&self.name, &e) {
            TpccError::ConnectionLost { place, reason } | TpccError::Database { place, reason } => {
                TpccError::Unreachable { place, reason }
            }
            other => other,
        })?;
        // Rows that a transaction has read do not change under it (clause 3.4), and no transaction
        // waits long for one that waits itself.
        let set = "SET SESSION transaction_isolation = 'REPEATABLE-READ', \
                   innodb_lock_wait_timeout = 10, sql_mode = 'STRICT_ALL_TABLES'";
        let older = set.replace("transaction_isolation", "tx_isolation");
        (connection.query_drop(set))
            .or_else(|_| connection.query_drop(older))
            .map_err(|e| explain(&self.name, &e))?;
        Ok(connection)
    }

    /// Opens a connection to the database of this kit.
    fn connect(&self) -> Result<Conn, TpccError> {
        let mut connection = self.open()?;
        let chosen = connection.query_drop(format!("USE {DATABASE}"));
        chosen.map_err(|e| explain(&self.name, &e))?;
        Ok(connection)
    }
}

impl TpccStore for MariadbStore {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn version(&self) -> Result<String, TpccError> {
        let version: Result<Option<String>, Error> = self.open()?.query_first("SELECT version()");
        let version = version.map_err(|e| explain(&self.name, &e))?;
        // 10.11.19-MariaDB-0+deb12u1: the distribution's suffix is not part of the version.
        let version = version.unwrap_or_default();
        let number = version.split('-').next().unwrap_or_default();
        Ok(format!("MariaDB {number}"))
    }

    fn loader(&self, _shard: i32) -> Result<Box<dyn TpccLoader + '_>, TpccError> {
        Ok(Box::new(MariadbLoader::new(self.open()?, &self.name)?))
    }

    fn session(
        &self,
        _shard: i32,
        work: &mut dyn FnMut(&mut dyn TpccSession) -> Result<(), TpccError>,
    ) -> Result<(), TpccError> {
        let session = MariadbSession::new(self.connect()?, &self.name);
        work(&mut session.map_err(|e| explain(&self.name, &e))?)
    }

    fn counters(&self) -> Result<DatabaseCounters, TpccError> {
        let counted = counters_of(&mut self.open()?);
        let mut counters = counted.map_err(|e| explain(&self.name, &e))?;
        counters.server_cpu_micros = self.usage.as_ref().and_then(|usage| usage());
        Ok(counters)
    }

    fn bytes_per_warehouse(&self) -> u64 {
        // The factor adds the log.
        MariadbStore::WAREHOUSE.get() * 5 / 4
    }

    fn free_bytes(&self) -> Option<u64> {
        free_bytes(self.folder.as_ref()?).map(Bytes::get)
    }
}

/// Status variables that are counted: read requests to the buffer pool, pages read and written, and
/// requests to write into a page.
const COUNTED: [&str; 4] = [
    "Innodb_buffer_pool_read_requests",
    "Innodb_pages_read",
    "Innodb_pages_written",
    "Innodb_buffer_pool_write_requests",
];

fn counters_of(connection: &mut Conn) -> Result<DatabaseCounters, Error> {
    let names = COUNTED.join("','");
    let sql = format!("SHOW GLOBAL STATUS WHERE Variable_name IN ('{names}')");
    let rows: Vec<(String, String)> = connection.query(sql)?;
    Ok(counters_in(&rows.into_iter().collect()))
}

fn counters_in(status: &BTreeMap<String, String>) -> DatabaseCounters {
    let [logical, read, written, changed] = COUNTED.map(|name| status.get(name)?.parse().ok());
    DatabaseCounters {
        logical_reads: logical,
        physical_reads: read,
        physical_writes: written,
        block_changes: changed,
        server_cpu_micros: None,
    }
}

pub(crate) fn options(socket: &Path) -> Opts {
    OptsBuilder::new()
        .user(Some("root"))
        .socket(Some(socket.display().to_string()))
        .into()
}
