//! The load on SQLite: warehouses spread over several database files, since a file has one writer.

mod cache;
mod error_mapping;
mod fill;
mod session;
mod status;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use hugeleaf_units::Bytes;
use rusqlite::{Connection, OpenFlags, ffi};

use super::error::TpccError;
use super::store::{Durability, TpccLoader, TpccSession, TpccStore, free_bytes};
use super::tables::TABLES;

pub use cache::install_cache;

use error_mapping::{explain, is_busy};
use fill::SqliteLoader;
use session::SqliteSession;

/// Settings of SQLite; the same in all arms of a comparison.
#[derive(Debug, Clone)]
pub struct SqliteSettings {
    pub directory: PathBuf,
    /// Number of files for the warehouses, if they are not filled yet.
    pub files: i32,
    pub cache: Bytes,
    pub durability: Durability,
    /// True if a file has at most one connection. It is then locked once, and the index of its log is
    /// in ordinary memory.
    pub alone: bool,
    /// True if a connection first reads the data that it will touch, so that its cache is full.
    pub warm: bool,
    /// Number of warehouses touched in total; all if `None`.
    pub touched: Option<i32>,
    /// Ends running statements, which can take half a minute, with [`TpccError::Stopped`].
    pub stop: Arc<AtomicBool>,
}

#[derive(Debug)]
pub struct SqliteStore {
    settings: SqliteSettings,
}

impl SqliteStore {
    /// Size of a warehouse of the standard's rows. Measured on 1 to 40 of them: 93 to 95 MB, plus the
    /// rows that a run adds.
    pub const WAREHOUSE: Bytes = Bytes::from_mib(100);

    /// Opens the databases in a folder, and makes the folder if it is missing.
    ///
    /// # Errors
    /// [`TpccError::File`].
    pub fn open(settings: SqliteSettings) -> Result<SqliteStore, TpccError> {
        let fail = |source| TpccError::File {
            path: settings.directory.display().to_string(),
            source,
        };
        std::fs::create_dir_all(&settings.directory).map_err(fail)?;
        Ok(SqliteStore { settings })
    }

    /// Returns the files of the existing databases.
    pub fn files(&self) -> Vec<PathBuf> {
        (0..)
            .map(|shard| self.path(shard))
            .take_while(|path| path.exists())
            .collect()
    }

    /// Removes all databases of this kit in the folder, and nothing else.
    ///
    /// # Errors
    /// [`TpccError::ForeignData`] if a file with such a name is not of this kit; [`TpccError::File`].
    pub fn remove(&self) -> Result<(), TpccError> {
        for (shard, path) in (0..).zip(self.files()) {
            self.loader(shard)?.origin()?;
            for suffix in ["", "-wal", "-shm", "-journal"] {
                let mut name = path.clone().into_os_string();
                name.push(suffix);
                match std::fs::remove_file(&name) {
                    Err(source) if source.kind() != std::io::ErrorKind::NotFound => {
                        return Err(TpccError::File {
                            path: PathBuf::from(name).display().to_string(),
                            source,
                        });
                    }
                    _ => {}
                }
            }
        }
        Ok(())
    }

    fn path(&self, shard: i32) -> PathBuf {
        let name = format!("tpcc-{}.sqlite", shard + 1);
        self.settings.directory.join(name)
    }

    fn connect(&self, path: &Path) -> Result<Connection, TpccError> {
        let place = path.display().to_string();
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
            | OpenFlags::SQLITE_OPEN_CREATE
            | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let open = || {
            let mut connection = Connection::open_with_flags(path, flags)?;
            connection.busy_timeout(PATIENCE)?;
            let stop = Arc::clone(&self.settings.stop);
            connection.progress_handler(STEPS, Some(move || stop.load(Ordering::Relaxed)))?;
            connection.set_prepared_statement_cache_capacity(0);
            // Pages must go through the measured cache, not past it.
            let _: i64 = connection.query_row("PRAGMA mmap_size=0", [], |r| r.get(0))?;
            let kib = self.settings.cache.get() / 1024;
            let kib = i64::try_from(kib).unwrap_or(i64::MAX);
            connection.pragma_update(None, "cache_size", -kib)?;
            Ok(connection)
        };
        open().map_err(|e| explain(&place, e))
    }

    /// Repeats an operation while another connection holds the file. If two readers wait to write, as
    /// in switching the journal, SQLite refuses one immediately (sqlite3_busy_handler(3)).
    fn patiently(&self, does: impl Fn() -> rusqlite::Result<()>) -> rusqlite::Result<()> {
        let began = Instant::now();
        loop {
            match does() {
                Err(error) if is_busy(&error) && began.elapsed() < PATIENCE => {
                    if self.settings.stop.load(Ordering::Relaxed) {
                        let interrupted = ffi::Error::new(ffi::SQLITE_INTERRUPT);
                        return Err(rusqlite::Error::SqliteFailure(interrupted, None));
                    }
                    std::thread::sleep(Duration::from_millis(5));
                }
                done => return done,
            }
        }
    }

    /// Applies the settings of a measured connection.
    fn prepare(&self, connection: &Connection) -> rusqlite::Result<()> {
        if self.settings.alone {
            let _: String =
                connection.query_row("PRAGMA locking_mode=EXCLUSIVE", [], |r| r.get(0))?;
        }
        let _: String = connection.query_row("PRAGMA journal_mode=WAL", [], |r| r.get(0))?;
        let synchronous = match self.settings.durability {
            Durability::Commit => "FULL",
            Durability::Soon => "NORMAL",
            Durability::Never => "OFF",
        };
        connection.pragma_update(None, "synchronous", synchronous)?;
        let _: i64 =
            connection.query_row(&format!("PRAGMA wal_autocheckpoint={LOG_PAGES}"), [], |r| {
                r.get(0)
            })?;
        connection.pragma_update(None, "temp_store", "MEMORY")
    }
}

/// Reads all pages of all tables and indexes once, or only the rows and index entries that are
/// touched.
fn warm(connection: &Connection, touched: Option<(i32, i32)>) -> rusqlite::Result<()> {
    let mut scans = Vec::new();
    for table in TABLES {
        let (name, columns) = (table.name(), table.columns());
        let (first, last) = (columns[0].name, columns[columns.len() - 1].name);
        scans.push(match (touched, table.key()) {
            (Some((from, to)), Some(key)) if key.contains(',') => {
                format!("SELECT count({last}) FROM {name} WHERE {first} BETWEEN {from} AND {to}")
            }
            _ => format!("SELECT count(*) FROM {name} NOT INDEXED"),
        });
    }
    let mut indexes = connection.prepare(
        "SELECT s.tbl_name, s.name, i.name FROM sqlite_schema AS s, pragma_index_info(s.name) AS i \
         WHERE s.type = 'index' AND s.sql IS NOT NULL AND i.seqno = 0",
    )?;
    let mut rows = indexes.query([])?;
    while let Some(row) = rows.next()? {
        let (table, index, first): (String, String, String) =
            (row.get(0)?, row.get(1)?, row.get(2)?);
        let some = match touched {
            Some((from, to)) => format!("WHERE {first} BETWEEN {from} AND {to}"),
            None => String::new(),
        };
        scans.push(format!(
            "SELECT count(*) FROM {table} INDEXED BY {index} {some}"
        ));
    }
    for scan in scans {
        let _: i64 = connection.query_row(&scan, [], |row| row.get(0))?;
    }
    Ok(())
}

/// Steps of a statement between two checks for a stop: some milliseconds of work.
const STEPS: std::ffi::c_int = 100_000;

/// Time for which a writer waits for another one of the same file.
const PATIENCE: Duration = Duration::from_secs(60);

/// Pages in the log before a checkpoint: so many that a checkpoint does not affect every sample, and
/// so few that the log stays a small part of the data.
const LOG_PAGES: u32 = 16_384;

impl TpccStore for SqliteStore {
    fn name(&self) -> String {
        format!("sqlite:{}", self.settings.directory.display())
    }

    fn version(&self) -> Result<String, TpccError> {
        Ok(format!("SQLite {}", rusqlite::version()))
    }

    fn shards(&self, warehouses: i32) -> i32 {
        self.settings.files.clamp(1, warehouses.max(1))
    }

    fn loader(&self, shard: i32) -> Result<Box<dyn TpccLoader + '_>, TpccError> {
        let path = self.path(shard);
        let connection = self.connect(&path)?;
        Ok(Box::new(SqliteLoader::new(
            connection,
            path.display().to_string(),
        )))
    }

    fn session(
        &self,
        shard: i32,
        work: &mut dyn FnMut(&mut dyn TpccSession) -> Result<(), TpccError>,
    ) -> Result<(), TpccError> {
        let path = self.path(shard);
        let place = path.display().to_string();
        // Read before the file is locked for this connection alone.
        let touched = match (self.settings.warm, self.settings.touched) {
            (true, Some(touched)) => self
                .loader(shard)?
                .origin()?
                .and_then(|origin| origin.touched_of(shard, Some(touched))),
            _ => None,
        };
        let connection = self.connect(&path)?;
        self.patiently(|| self.prepare(&connection))
            .map_err(|e| explain(&place, e))?;
        if self.settings.warm {
            warm(&connection, touched).map_err(|e| explain(&place, e))?;
        }
        let mut session =
            SqliteSession::new(&connection, &place).map_err(|e| explain(&place, e))?;
        work(&mut session)
    }

    fn bytes_per_warehouse(&self) -> u64 {
        SqliteStore::WAREHOUSE.get()
    }

    fn free_bytes(&self) -> Option<u64> {
        free_bytes(&self.settings.directory).map(Bytes::get)
    }
}
