//! SQLite's page cache on huge pages. All connections and databases of a process use one memory, divided among
//! databases by benefit.
//!
//! Call [`install`] once, before SQLite is first used. Every connection of the process then has its pages in the cache.
//! This replaces SQLite's own cache with its size per connection. `PRAGMA cache_size` then only limits the memory of a
//! sort, and sets when a large transaction begins to write to the file. A table scan does not evict pages that are
//! requested repeatedly.
//!
//! `cache` has the pages of one connection and replaces them by S3-FIFO. `chunk` cuts a granule into slots. `share` is the
//! memory of one database, and a component of a `Manager`. A thread that takes pages from another thread's cache stops its
//! `asymmetric_lock`; only that side pays (membarrier(2)). `vfs` finds the database of a cache. `loaded/` is a separate package, the
//! library that `run --sqlite` loads (docs/internals/run.md).
//!
//! The program brings its SQLite and passes the addresses of its functions ([`Api`]); this crate contains none.
//!
//! This crate must not interpret the contents of database pages, and must not wait for a lock on a cache hit.
//!
//! Main types: [`Options`], [`Installed`], [`Api`], [`ShareView`].

#![warn(missing_docs)] // public API
#![cfg_attr(not(test), warn(clippy::disallowed_macros, clippy::disallowed_methods))]

mod asymmetric_lock;
mod cache;
mod chunk;
mod fallible_vec;
mod ffi;
mod fixed_range_cache;
mod fork;
mod ghosts;
mod hit_miss_timing;
mod page_index;
mod page_store;
mod pcache2;
mod seccomp;
mod share;
mod spare_pages;
mod vfs;

use std::ffi::c_int;
use std::sync::Arc;
use std::time::Duration;

use hugeleaf::balance::{OracleViews, Settings};
use hugeleaf::{
    Bytes, Elastic, ElasticError, ElasticInfo, ElasticOptions, Ladder, Manager, PageSize,
};

use page_store::{PageStore, StoreMemory};

pub use ffi::Api;
pub use fixed_range_cache::install_on;
pub use page_store::DatabaseKind;
pub use share::ShareView;

#[cfg(feature = "linked")]
mod linked_sqlite;

/// Minimum size of a default granule.
const GRANULE: Bytes = Bytes::from_mib(1);

/// Size and page sizes of the cache. [`Options::new`] sets the defaults.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Options {
    /// Limit for all databases together; [`Installed::set_target`] changes it.
    pub target: Bytes,
    /// Maximum target that can be set later; addresses are reserved for all of it.
    pub most: Bytes,
    /// Page sizes to try, from largest to smallest.
    pub ladder: Ladder,
    /// Unit of moving memory between databases: a multiple of the ladder's largest page, with room for some database
    /// pages. `None` for that page, or for about 1 MiB in whole pages if it is smaller.
    pub granule: Option<PageSize>,
    /// Interval between checks whether memory would bring more in another database.
    pub every: Duration,
}

impl Options {
    /// Returns options for a cache of this target, which can be doubled later, on pages of this ladder.
    pub fn new(target: Bytes, ladder: Ladder) -> Options {
        Options {
            target,
            most: target + target,
            ladder,
            granule: None,
            every: Duration::from_secs(1),
        }
    }
}

/// Reason why the cache was not installed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InstallError {
    /// A cache is already installed. A process has one.
    #[error("SQLite's cache is already replaced: install it once, and keep the result")]
    AlreadyInstalled,
    /// SQLite refused the cache.
    #[error("SQLite refuses the cache (status {0}): install it before SQLite is first used")]
    Refused(c_int),
    /// The target is less than two granules.
    #[error(
        "a cache of {target} is less than two pages of {granule}: use more memory, or smaller pages"
    )]
    TooSmall {
        /// The requested target.
        target: Bytes,
        /// The size of a granule.
        granule: Bytes,
    },
    /// The memory is unavailable.
    #[error(transparent)]
    Elastic(#[from] ElasticError),
    /// The manager's thread could not be started.
    #[error("cannot start a thread: {0}; raise the limit on processes (ulimit -u)")]
    Thread(std::io::Error),
}

/// The cache of this process. It stays until the process ends, because SQLite holds pointers into it.
#[derive(Debug, Clone, Copy)]
pub struct Installed(&'static PageStore);

/// Replaces the cache of a SQLite by elastic memory, and starts dividing it among databases.
///
/// # Errors
/// [`InstallError`], among others for a target that exceeds the memory that this process can have
/// ([`ElasticError::OverMemory`]). SQLite then works as before, unless the error says otherwise.
pub fn install(api: &Api, options: &Options) -> Result<Installed, InstallError> {
    let elastic = Arc::new(elastic(options)?);
    let store = prepare(api, DatabaseKind::Files)?;
    let manager = Manager::new(Arc::clone(&elastic), Settings::in_process())?;
    let running = manager.start(options.every).map_err(InstallError::Thread)?;
    store.set_source(StoreMemory::Managed { elastic, running });
    // Last, because it initialises SQLite. Without names all databases have one share.
    vfs::watch(api).map_err(InstallError::Refused)?;
    Ok(Installed(store))
}

fn elastic(options: &Options) -> Result<Elastic, InstallError> {
    let largest = options.ladder.rungs()[0].size;
    let enough = || PageSize::new(largest.pages_for(GRANULE).in_bytes(largest)).unwrap_or(largest);
    let granule = options.granule.unwrap_or_else(|| largest.max(enough()));
    let target = Bytes(granule.round_down(options.target.get()));
    if target < granule.bytes() + granule.bytes() {
        let (target, granule) = (options.target, granule.bytes());
        return Err(InstallError::TooSmall { target, granule });
    }
    // The cache takes memory as it needs it, so it would stay smaller than its target without any message.
    Elastic::check_target(target, &options.ladder)?;
    let most = granule
        .pages_for(options.most.max(target))
        .in_bytes(granule);
    let asked = ElasticOptions::new(most, options.ladder.clone()).target(target);
    Ok(Elastic::new(&asked.granule(granule))?)
}

pub(crate) fn prepare(
    api: &Api,
    pages_of: DatabaseKind,
) -> Result<&'static PageStore, InstallError> {
    if pcache2::store().is_some() {
        return Err(InstallError::AlreadyInstalled);
    }
    pcache2::give(api).map_err(InstallError::Refused)?;
    seccomp::note();
    fork::watch::<pcache2::StoreLocks>();
    pcache2::set_store(PageStore::new(pages_of)).ok_or(InstallError::AlreadyInstalled)
}

/// Returns the memory that a page of `page` bytes takes, including SQLite's data for it.
///
/// # Errors
/// [`InstallError::Refused`] if this SQLite is already in use.
pub fn bytes_of_page(api: &Api, page: Bytes) -> Result<Bytes, InstallError> {
    // It counts the header of the replaced cache, which is as large as the one here.
    let header = pcache2::header(api).map_err(InstallError::Refused)?;
    let header = header.next_multiple_of(page_index::LINE);
    Ok(page + Bytes(header as u64))
}

impl Installed {
    /// Gives another copy of SQLite in this process the same cache.
    ///
    /// # Errors
    /// [`InstallError::Refused`]. That SQLite then works as before.
    pub fn serve(&self, api: &Api) -> Result<(), InstallError> {
        pcache2::give(api).map_err(InstallError::Refused)?;
        vfs::watch(api).map_err(InstallError::Refused)
    }

    /// Returns the division of memory among databases and the resize operations, as Oracle's `v$` views. `None` for a
    /// fixed range.
    pub fn view(&self) -> Option<OracleViews> {
        Some(self.0.managed()?.1.view().0)
    }

    /// Returns the state of each database's share.
    pub fn shares(&self) -> Vec<ShareView> {
        self.0.views()
    }

    /// Sets a new target for all databases together. Returns the bytes held above it, which are taken from the
    /// databases within seconds. `None` for a fixed range.
    ///
    /// # Errors
    /// [`ElasticError::OverMax`], above [`Options::most`]. [`ElasticError::OverMemory`], above the memory that this
    /// process can have.
    pub fn set_target(&self, target: Bytes) -> Option<Result<Bytes, ElasticError>> {
        let (elastic, running) = self.0.managed()?;
        if target > elastic.target()
            && target <= elastic.max()
            && let Err(error) = Elastic::check_target(target, elastic.ladder())
        {
            return Some(Err(error));
        }
        Some(running.set_target(target))
    }

    /// Returns the memory held and the target. For a fixed range it returns the part in use and the whole size.
    pub fn held(&self) -> (Bytes, Bytes) {
        match self.0.managed() {
            Some((elastic, _)) => (elastic.held(), elastic.target()),
            None => self.0.fixed().unwrap_or_default(),
        }
    }

    /// Returns the memory held, by component and by current page size. `None` for a fixed range, which belongs to the
    /// caller.
    pub fn info(&self) -> Option<Result<ElasticInfo, ElasticError>> {
        Some(self.0.managed()?.0.info())
    }
}
