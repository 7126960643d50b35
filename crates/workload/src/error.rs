use hugeleaf_sys::SysError;
use hugeleaf_units::Bytes;

/// Why the workload could not be started or asked.
#[derive(Debug, thiserror::Error)]
pub enum OltpError {
    /// The page cache asked for is too small to hold a database worth measuring.
    #[error("a page cache of {cache} is too small: the workload needs at least {least}")]
    TooSmall {
        /// What was asked for.
        cache: Bytes,
        /// The least that works.
        least: Bytes,
    },
    /// The process could not be started.
    #[error("start {program}: {source}")]
    Start {
        /// The program that was to run it.
        program: String,
        /// Why not.
        source: std::io::Error,
    },
    /// The process is gone.
    #[error("the workload process {pid} has ended{}", .reason.as_deref().map(|r| format!(": {r}")).unwrap_or_default())]
    Ended {
        /// Its process id.
        pid: u32,
        /// What it said or how it ended, where that is known.
        reason: Option<String>,
    },
    /// It gave an answer that makes no sense here.
    #[error("the workload process answered {0:?}")]
    Answer(String),
    /// It gave no answer in time.
    #[error("the workload process gave no answer within {0} s")]
    Silent(u64),
    /// Reading or writing its socket failed.
    #[error("the workload's control socket: {0}")]
    Socket(#[from] std::io::Error),
    /// A system call failed.
    #[error(transparent)]
    System(#[from] SysError),
    /// SQLite failed.
    #[error("sqlite: {0}")]
    Database(#[from] rusqlite::Error),
    /// SQLite refused the page cache.
    #[error("sqlite3_config(SQLITE_CONFIG_PAGECACHE): result {0}")]
    PageCache(i32),
    /// A row did not hold what was written to it.
    #[error("row {key} does not hold what was written to it")]
    Damaged {
        /// Its key.
        key: u64,
    },
    /// The caller asked to stop.
    #[error("stopped on request")]
    Stopped,
}
