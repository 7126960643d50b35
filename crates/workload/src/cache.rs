//! SQLite's page cache (`hugeleaf-sqlite`) in memory of an experiment: every page of every database of this process, and
//! what SQLite keeps for each, is on pages of the size that was asked for, or in one mapping that is moved from base to
//! large pages and back meanwhile.
#![allow(unsafe_code)]
//! # Safety
//! SQLite's options take what sqlite3.h says. Its cache gets a range that this process has mapped and nobody else uses,
//! and that is never unmapped.

use std::ffi::c_int;
use std::sync::Arc;

use hugeleaf::MemoryError;
use hugeleaf_host::Held;
use hugeleaf_sqlite::{Api, InstallError, Installed, PagesOf};
use hugeleaf_sys::{Advice, Memory, Space, name_own};
use hugeleaf_units::{Bytes, PageSize, Range};
use rusqlite::ffi;

use crate::chase::ChaseMemory;

/// A database's page; SQLite's usual one, and not a page size of the host.
pub const DATABASE_PAGE: usize = 4096; // not a page size

/// The cache takes its memory in parts of so much.
const PART: Bytes = Bytes::from_kib(512);

/// Why a database in memory, or its cache, failed.
#[derive(Debug, thiserror::Error)]
pub enum CacheError {
    #[error(transparent)]
    Memory(#[from] MemoryError),
    #[error("sqlite3_config: result {0}: SQLite is in use already, or does not take this cache")]
    Cache(i32),
    #[error("sqlite: {0}")]
    Sqlite(#[from] rusqlite::Error),
    /// A row of the database in memory did not hold what was written to it.
    #[error("row {0} does not hold what was written to it")]
    Damaged(u64),
}

/// The cache of this process, once it is installed.
#[derive(Debug, Clone)]
pub struct SqliteCache {
    memory: Arc<ChaseMemory>,
    installed: Installed,
    slot: Bytes,
}

impl SqliteCache {
    /// Returns the memory that a cache of `cache` bytes of pages takes, with what SQLite keeps for each page (a thirteenth).
    pub fn memory_for(cache: Bytes) -> Result<Bytes, CacheError> {
        let pages = cache.get().div_ceil(DATABASE_PAGE as u64);
        let parts = pages.div_ceil(in_part(slot()?));
        Ok(Bytes(parts.saturating_mul(PART.get())))
    }

    /// Gives `memory` to SQLite for the rest of this process's life, for pages of databases in files. Works once, and only
    /// before SQLite is first used.
    pub fn install(memory: ChaseMemory) -> Result<SqliteCache, CacheError> {
        give(memory, PagesOf::Files)
    }

    /// Gives SQLite `size` bytes of one private anonymous mapping, rounded down to whole pages of
    /// `align`, for databases in memory. All of it is filled in on base pages, also where the host
    /// would give huge ones: an experiment begins with what an untuned server has. `progress` is
    /// called with how many bytes are there.
    pub fn install_movable(
        size: Bytes,
        align: PageSize,
        progress: &mut dyn FnMut(u64),
    ) -> Result<SqliteCache, CacheError> {
        let space = movable(Bytes(align.round_down(size.get())), align, progress)?;
        give(space.into(), PagesOf::Memory)
    }

    pub fn range(&self) -> Range {
        self.memory.range()
    }

    /// The pages that it has room for, and those in use now.
    pub fn slots(&self) -> (u64, u64) {
        let parts = self.length().get() / PART.get();
        let used = self.installed.shares().into_iter().map(|share| share.used);
        (parts * in_part(self.slot), used.sum())
    }

    /// All of it by the pages that it is on, read back now. `None` where this process cannot tell.
    pub fn pages(&self) -> Result<Option<Vec<Held>>, MemoryError> {
        self.memory.pages(self.length())
    }

    pub fn length(&self) -> Bytes {
        self.range().len()
    }

    /// Pages that did not fit and came from the heap instead.
    pub fn outside(&self) -> u64 {
        self.installed
            .shares()
            .iter()
            .map(|share| share.outside)
            .sum()
    }
}

/// Memory of this process, aligned for pages of `align` and filled in on base pages.
fn movable(
    size: Bytes,
    align: PageSize,
    progress: &mut dyn FnMut(u64),
) -> Result<Space, MemoryError> {
    /// How much is filled in between two words on progress.
    const STEP: Bytes = Bytes::from_mib(16);
    let space = Memory::new().set_aside(size, align)?;
    let range = space.range();
    space.map_private(range)?;
    // Optional: few kernels are built with it.
    let _ = name_own(range, c"hugeleaf oltp page cache");
    // Where the kernel has no transparent huge pages there is nothing to switch off.
    let _ = rustix::thread::disable_transparent_huge_pages(true);
    let step = PageSize::new(STEP).unwrap_or(align);
    let filled = range.chunks(step).try_for_each(|part| {
        space.advise(part, Advice::PopulateWrite)?;
        progress(part.end() - range.start());
        Ok(())
    });
    // Off, not "as before": the flag would also forbid the promotion this memory is here for.
    let _ = rustix::thread::disable_transparent_huge_pages(false);
    filled.map(|()| space)
}

fn give(memory: ChaseMemory, pages_of: PagesOf) -> Result<SqliteCache, CacheError> {
    let slot = slot()?;
    // Threads have connections of their own; nobody reads SQLite's statistics of its heap.
    // SAFETY: this option takes nothing.
    check(unsafe { ffi::sqlite3_config(ffi::SQLITE_CONFIG_MULTITHREAD) })?;
    // SAFETY: this option takes an int.
    check(unsafe { ffi::sqlite3_config(ffi::SQLITE_CONFIG_MEMSTATUS, 0 as c_int) })?;
    let memory = Arc::new(memory);
    let keep = Box::new(Arc::clone(&memory));
    // SAFETY: the memory is mapped, nobody else uses it, and it is kept.
    let installed = unsafe {
        hugeleaf_sqlite::install_on(&Api::linked(), memory.range(), PART, pages_of, keep)
    };
    Ok(SqliteCache {
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
