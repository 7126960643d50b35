use std::thread::ScopedJoinHandle;

use hugeleaf_testkit::server::ServerError;
use hugeleaf_units::Bytes;

use super::rules::TransactionKind;

/// Errors of filling or measuring a database. A partial measurement is never a result.
#[derive(Debug, thiserror::Error)]
pub enum TpccError {
    /// A folder or file could not be used.
    #[error("{path}: {source}")]
    File {
        path: String,
        source: std::io::Error,
    },
    /// The disk has no room left.
    #[error("{place}: the disk is full ({reason})")]
    Full { place: String, reason: String },
    /// Too little room, known before anything was written.
    #[error("{warehouses} warehouses take {needs} in {place}, which has {free} free")]
    NoRoom {
        warehouses: i32,
        needs: Bytes,
        place: String,
        free: Bytes,
        fit: u64,
    },
    /// The existing data is not of this kit, or of another version of it.
    #[error("{place} holds other data: {what}")]
    ForeignData { place: String, what: String },
    /// The database holds other data than requested.
    #[error("{place} holds {has}, not {asked} as requested")]
    OtherOrigin {
        place: String,
        has: String,
        asked: String,
    },
    /// Filling was never completed.
    #[error("{place} is partly filled: {missing} of {parts} parts are missing")]
    PartlyFilled {
        place: String,
        /// Number of missing parts.
        missing: usize,
        parts: usize,
    },
    /// The database is empty.
    #[error("{0} is empty")]
    Empty(String),
    /// No server answers.
    #[error("{place}: {reason}")]
    Unreachable { place: String, reason: String },
    #[error("{place} closed the connection: {reason}")]
    ConnectionLost { place: String, reason: String },
    /// The server denies the operation to this user.
    #[error("{place}: {reason}")]
    Denied { place: String, reason: String },
    /// A server's programs are not installed.
    #[error("no {server} is installed: neither {looked}")]
    NotInstalled {
        server: &'static str,
        package: &'static str,
        looked: &'static str,
    },
    /// A private server did not start.
    #[error("{what}: {reason}")]
    Start { what: String, reason: String },
    /// There is no memory for the database's cache, or not on these pages.
    #[error(transparent)]
    Memory(#[from] hugeleaf::MemoryError),
    /// SQLite does not accept the cache.
    #[error(transparent)]
    Cache(#[from] hugeleaf_workload::CacheError),
    /// The cache could not be locked in memory.
    #[error("mlock of a cache of {length}: {reason}")]
    Locked { length: Bytes, reason: String },
    /// Any other error of a database.
    #[error("{place}: {reason}")]
    Database { place: String, reason: String },
    /// A transaction did not find a required row.
    #[error("{kind} found no {what}: the database is damaged, or differs from its description")]
    Missing {
        kind: TransactionKind,
        /// The missing row.
        what: &'static str,
    },
    /// A row did not hold the data that was written to it.
    #[error("row {0} differs from what was written to it")]
    Damaged(u64),
    /// A transaction had conflicts with others again and again.
    #[error("{kind} conflicted with other transactions {tries} times in a row")]
    TooManyConflicts { kind: TransactionKind, tries: u32 },
    /// The interval was too short for the load.
    #[error("no New-Order was committed in {0} s")]
    NoOrders(f64),
    #[error(transparent)]
    Counters(#[from] super::counters::CounterResetError),
    #[error("a thread of the load ended without a message")]
    Thread,
    #[error("stopped on request")]
    Stopped,
}

impl From<ServerError> for TpccError {
    fn from(error: ServerError) -> TpccError {
        match error {
            ServerError::NotInstalled {
                server,
                package,
                looked,
            } => TpccError::NotInstalled {
                server,
                package,
                looked,
            },
            ServerError::Start { what, reason, .. } => TpccError::Start { what, reason },
            ServerError::File { path, source } => TpccError::File { path, source },
        }
    }
}

/// Joins all threads. Returns their results, or the first error that is not `Stopped` if any.
pub(crate) fn joined<T>(
    workers: Vec<ScopedJoinHandle<'_, Result<T, TpccError>>>,
) -> Result<Vec<T>, TpccError> {
    let (mut all, mut reason) = (Vec::new(), None);
    for worker in workers {
        match worker.join().unwrap_or(Err(TpccError::Thread)) {
            Ok(ended) => all.push(ended),
            Err(error) if matches!(reason, None | Some(TpccError::Stopped)) => reason = Some(error),
            Err(_) => {}
        }
    }
    reason.map_or(Ok(all), Err)
}

impl TpccError {
    pub fn next(&self) -> String {
        match self {
            TpccError::File { .. } => "name a writable folder: --database sqlite:DIR",
            TpccError::Full { .. } => "free space there, or use fewer warehouses: --warehouses W",
            TpccError::NoRoom { fit: 0, .. } => "free space there, or name another place",
            TpccError::NoRoom { fit, .. } => {
                return format!("what fits: --warehouses {fit}; or name another place");
            }
            TpccError::ForeignData { .. } => {
                "name another place, or remove the existing data yourself"
            }
            TpccError::OtherOrigin { .. } => {
                "request the existing load, name another place, or replace it: --refill"
            }
            TpccError::PartlyFilled { .. } | TpccError::Empty(_) => {
                "fill it: the same command without --no-load"
            }
            TpccError::Unreachable { .. } => {
                "check that the server runs and the address: psql DSN; or --start postgres"
            }
            TpccError::ConnectionLost { .. } => {
                "see the server's log; this run has no result, and can be repeated"
            }
            TpccError::Denied { .. } => {
                "as its superuser: GRANT CREATE ON DATABASE db TO user; or --start postgres"
            }
            TpccError::NotInstalled { package, .. } => {
                return format!("apt-get install {package}, or --database sqlite:DIR");
            }
            TpccError::Start { .. } => {
                "fix that, or start a server yourself: --database postgres:DSN"
            }
            TpccError::Memory(error) => return error.next(),
            TpccError::Locked { .. } => "run as root, or raise the limit: ulimit -l unlimited",
            TpccError::Cache(_) => "report it, with the line above",
            TpccError::Database { .. } | TpccError::Missing { .. } | TpccError::Damaged(_) => {
                "run it again; if it happens again, refill the database: --refill"
            }
            TpccError::TooManyConflicts { .. } => "use fewer connections: --connections N",
            TpccError::NoOrders(_) => "measure longer: --for 60s",
            TpccError::Counters(_) => "run it again, and do not reset the counters meanwhile",
            TpccError::Thread => "report it, with the lines above",
            TpccError::Stopped => "run it again",
        }
        .to_owned()
    }
}
