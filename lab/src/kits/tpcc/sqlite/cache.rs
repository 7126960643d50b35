//! SQLite's page cache on pages of one size, for all databases of this process.

use std::ffi::c_void;

use hugeleaf_host::Host;
use hugeleaf_units::Bytes;
use hugeleaf_workload::{ChaseMemory, PageArm, SqlitePageCache};

use crate::kits::tpcc::error::TpccError;

/// Takes memory on pages of `arm` for `cache` bytes of database pages, locks it if `locked` is set, and gives it to
/// SQLite for the rest of this process's life. Works once, and only before the first use of SQLite.
///
/// # Errors
/// [`TpccError::Memory`], [`TpccError::Locked`]; [`TpccError::Cache`] if SQLite is already in use.
pub fn install_cache(
    arm: PageArm,
    cache: Bytes,
    locked: bool,
    host: &Host,
) -> Result<SqlitePageCache, TpccError> {
    let memory = ChaseMemory::take(arm, SqlitePageCache::memory_for(cache)?, host)?;
    if locked {
        lock(&memory)?;
    }
    Ok(SqlitePageCache::install(memory)?)
}

/// Locks the memory against reclaim.
#[allow(unsafe_code)]
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
