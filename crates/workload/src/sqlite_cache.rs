//! Places SQLite's page cache (`hugeleaf-sqlite`) in an experiment's memory. It holds every page of every database of this process, and
//! SQLite's data for each page. The memory is on pages of the requested size, or in one mapping that is promoted and demoted during the
//! run.
#![allow(unsafe_code)]
//! # Safety
//! SQLite's options take the arguments that sqlite3.h documents. The cache gets a range that this process has mapped, that nothing else
//! uses, and that is never unmapped.

use std::ffi::c_int;
use std::sync::Arc;

use hugeleaf::MemoryError;
use hugeleaf_host::PageUsage;
use hugeleaf_sqlite::{Api, DatabaseKind, InstallError, Installed};
use hugeleaf_sys::{Advice, MemorySyscalls, ReservedAddresses, name_own};
use hugeleaf_units::{Bytes, PageSize, Range};
use rusqlite::ffi;

use crate::chase::ChaseMemory;

/// Size of a database page: SQLite's default, and not a page size of the host.
pub const DATABASE_PAGE: usize = 4096; // not a page size

/// Unit in which the cache takes its memory.
const PART: Bytes = Bytes::from_kib(512);

/// Error of an in-memory database or of its cache.
#[derive(Debug, thiserror::Error)]
pub enum CacheError {
    #[error(transparent)]
    Memory(#[from] MemoryError),
    #[error("sqlite3_config: result {0}: SQLite is already in use, or does not support this cache")]
    Cache(i32),
    #[error("sqlite: {0}")]
    Sqlite(#[from] rusqlite::Error),
    /// A row of the in-memory database differs from its written contents.
    #[error("row {0} differs from what was written to it")]
    Damaged(u64),
}

/// The installed page cache of this process.
#[derive(Debug, Clone)]
pub struct SqlitePageCache {
    memory: Arc<ChaseMemory>,
    installed: Installed,
    slot: Bytes,
}

impl SqlitePageCache {
    /// Returns the memory for a cache of `cache` bytes of pages, including SQLite's data for each page (a thirteenth).
    pub fn memory_for(cache: Bytes) -> Result<Bytes, CacheError> {
        let pages = cache.get().div_ceil(DATABASE_PAGE as u64);
        let parts = pages.div_ceil(in_part(slot()?));
        Ok(Bytes(parts.saturating_mul(PART.get())))
    }

    /// Gives `memory` to SQLite for the rest of the process's life, for pages of file databases. Works once, and only before the first use
    /// of SQLite.
    pub fn install(memory: ChaseMemory) -> Result<SqlitePageCache, CacheError> {
        give(memory, DatabaseKind::Files)
    }

    /// Gives SQLite one private anonymous mapping of `size` bytes, rounded down to whole pages of `align`, for in-memory databases. All of
    /// it is populated on base pages, even if the host would give huge pages, because an experiment starts like an untuned server.
    /// `progress` receives the number of populated bytes.
    pub fn install_movable(
        size: Bytes,
        align: PageSize,
        progress: &mut dyn FnMut(u64),
    ) -> Result<SqlitePageCache, CacheError> {
        let space = movable(Bytes(align.round_down(size.get())), align, progress)?;
        give(space.into(), DatabaseKind::Memory)
    }

    pub fn range(&self) -> Range {
        self.memory.range()
    }

    /// Returns the number of page slots, and the number in use.
    pub fn slots(&self) -> (u64, u64) {
        let parts = self.length().get() / PART.get();
        let used = self.installed.shares().into_iter().map(|share| share.used);
        (parts * in_part(self.slot), used.sum())
    }

    /// Returns the cache's memory by page size, read back now. `None` if this process cannot tell.
    pub fn pages(&self) -> Result<Option<Vec<PageUsage>>, MemoryError> {
        self.memory.pages(self.length())
    }

    pub fn length(&self) -> Bytes {
        self.range().len()
    }

    /// Returns the number of pages that did not fit and came from the heap.
    pub fn heap_pages(&self) -> u64 {
        self.installed
            .shares()
            .iter()
            .map(|share| share.heap_fallbacks)
            .sum()
    }
}

/// Allocates memory aligned to `align` and populates it on base pages.
fn movable(
    size: Bytes,
    align: PageSize,
    progress: &mut dyn FnMut(u64),
) -> Result<ReservedAddresses, MemoryError> {
    /// Bytes populated between two calls of `progress`.
    const STEP: Bytes = Bytes::from_mib(16);
    let space = MemorySyscalls::new().reserve_addresses(size, align)?;
    let range = space.range();
    space.map_private(range)?;
    // The name is optional, because few kernels support it.
    let _ = name_own(range, c"hugeleaf oltp page cache");
    // Fails only on kernels without THP, where nothing needs disabling.
    let _ = rustix::thread::disable_transparent_huge_pages(true);
    let step = PageSize::new(STEP).unwrap_or(align);
    let filled = range.chunks(step).try_for_each(|part| {
        space.advise(part, Advice::PopulateWrite)?;
        progress(part.end() - range.start());
        Ok(())
    });
    // Enables THP even if it was disabled before; the flag would block the promotion of this memory.
    let _ = rustix::thread::disable_transparent_huge_pages(false);
    filled.map(|()| space)
}

fn give(memory: ChaseMemory, pages_of: DatabaseKind) -> Result<SqlitePageCache, CacheError> {
    let slot = slot()?;
    // Each thread has its own connection, and nothing reads SQLite's heap statistics.
    // SAFETY: this option takes nothing.
    check(unsafe { ffi::sqlite3_config(ffi::SQLITE_CONFIG_MULTITHREAD) })?;
    // SAFETY: this option takes an int.
    check(unsafe { ffi::sqlite3_config(ffi::SQLITE_CONFIG_MEMSTATUS, 0 as c_int) })?;
    let memory = Arc::new(memory);
    let keep = Box::new(Arc::clone(&memory));
    // SAFETY: the memory is mapped, has no other user, and is kept alive by `keep`.
    let installed = unsafe {
        hugeleaf_sqlite::install_on(&Api::linked(), memory.range(), PART, pages_of, keep)
    };
    Ok(SqlitePageCache {
        memory,
        installed: installed.map_err(refused)?,
        slot,
    })
}

fn slot() -> Result<Bytes, CacheError> {
    let page = Bytes(DATABASE_PAGE as u64);
    hugeleaf_sqlite::bytes_of_page(&Api::linked(), page).map_err(refused)
}

fn in_part(slot: Bytes) -> u64 {
    (PART.get() / slot.get().max(1)).max(1)
}

fn refused(error: InstallError) -> CacheError {
    match error {
        InstallError::Refused(status) => CacheError::Cache(status),
        _ => CacheError::Cache(ffi::SQLITE_MISUSE),
    }
}

fn check(result: c_int) -> Result<(), CacheError> {
    match result {
        ffi::SQLITE_OK => Ok(()),
        other => Err(CacheError::Cache(other)),
    }
}
