//! SQLite's page cache (`hugeleaf-sqlite`) in memory of an experiment: every page of every database of this process, and
//! what SQLite keeps for each, is on pages of the size that was asked for, or in one mapping that is moved from base to
//! large pages and back meanwhile.
#![allow(unsafe_code)]
//! # Safety
//! SQLite's options take what sqlite3.h says. Its cache gets a range that this process has mapped and nobody else uses,
//! and that is never unmapped.

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use hugeleaf::MemoryError;
use hugeleaf_host::{Held, Host};
use hugeleaf_sqlite::{Api, InstallError, Installed, PagesOf};
use hugeleaf_sys::{Advice, Memory, Space, name_own};
use hugeleaf_units::{Bytes, PageSize, Range};
use rusqlite::ffi;

use crate::chase::{ChaseMemory, PageArm};
use crate::tpcc::error::TpccError;

/// A database's page; SQLite's usual one, and not a page size of the host.
pub(crate) const DATABASE_PAGE: usize = 4096; // not a page size

/// The cache takes its memory in parts of so much.
const PART: Bytes = Bytes::from_kib(512);

/// The cache of this process, once it is installed.
#[derive(Debug, Clone)]
pub struct SqliteCache {
    memory: Arc<ChaseMemory>,
    installed: Installed,
    /// What a page takes.
    slot: Bytes,
}

impl SqliteCache {
    /// Takes memory on pages of `arm` for `cache` bytes of pages of databases in files and for what
    /// SQLite wants in addition (a thirteenth), locks it where `locked` says so, and gives it to
    /// SQLite for the rest of this process's life. Works once, and only before SQLite is first used.
    ///
    /// # Errors
    /// [`TpccError::Memory`]; [`TpccError::Cache`] where SQLite is in use already.
    pub fn install(
        arm: PageArm,
        cache: Bytes,
        locked: bool,
        host: &Host,
    ) -> Result<SqliteCache, TpccError> {
        let pages = cache.get().div_ceil(DATABASE_PAGE as u64);
        let parts = pages.div_ceil(in_part(slot()?));
        let memory = ChaseMemory::take(arm, Bytes(parts.saturating_mul(PART.get())), host)?;
        if locked {
            lock(&memory)?;
        }
        give(memory, PagesOf::Files)
    }

    /// The same with `size` bytes of one private anonymous mapping, rounded down to whole pages of
    /// `align`, for databases in memory. All of it is filled in on base pages, also where the host
    /// would give huge ones: an experiment begins with what an untuned server has. `progress` is
    /// called with how many bytes are there.
    ///
    /// # Errors
    /// As [`SqliteCache::install`].
    pub fn install_movable(
        size: Bytes,
        align: PageSize,
        progress: &mut dyn FnMut(u64),
    ) -> Result<SqliteCache, TpccError> {
        let space = movable(Bytes(align.round_down(size.get())), align, progress)?;
        give(space.into(), PagesOf::Memory)
    }

    /// Its address.
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
    ///
    /// # Errors
    /// Those of reading the page map.
    pub fn pages(&self) -> Result<Option<Vec<Held>>, MemoryError> {
        self.memory.pages(self.length())
    }

    /// How large it is.
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

/// Hands memory to SQLite.
fn give(memory: ChaseMemory, pages_of: PagesOf) -> Result<SqliteCache, TpccError> {
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

/// What a page takes.
fn slot() -> Result<Bytes, TpccError> {
    let page = Bytes(DATABASE_PAGE as u64);
    hugeleaf_sqlite::bytes_of_page(&Api::linked(), page).map_err(refused)
}

/// How many pages fit into a part.
fn in_part(slot: Bytes) -> u64 {
    (PART.get() / slot.get().max(1)).max(1)
}

fn refused(error: InstallError) -> TpccError {
    match error {
        InstallError::Refused(status) => TpccError::Cache(status),
        _ => TpccError::Cache(ffi::SQLITE_MISUSE),
    }
}

/// Keeps it in memory, whatever else wants the pages.
fn lock(memory: &ChaseMemory) -> Result<(), TpccError> {
    let range = memory.range();
    let length = usize::try_from(range.len().get()).unwrap_or(0);
    // SAFETY: mlock(2) changes nothing of the contents, and the mapping is ours.
    let locked = unsafe { rustix::mm::mlock(range.start() as *mut c_void, length) };
    locked.map_err(|errno| TpccError::Locked {
        length: range.len(),
        reason: errno.to_string(),
    })
}

fn check(result: c_int) -> Result<(), TpccError> {
    match result {
        ffi::SQLITE_OK => Ok(()),
        other => Err(TpccError::Cache(other)),
    }
}
