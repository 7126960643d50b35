//! SQLite's page cache on large pages: one memory for all connections and databases of a process, divided among databases
//! by what each gains from it.
//!
//! One call before SQLite is first used ([`install`]), and every connection of the process has its pages there. What
//! SQLite itself does with a cache that is given a size for each connection is replaced: `PRAGMA cache_size` says only how
//! much a sort may take and when a large transaction begins to write to the file. A table scan does not drop the pages that
//! are asked for again and again.
//!
//! The program brings its SQLite and says where its functions are ([`Api`]); this crate contains none.
//!
//! This crate must not know what a page of a database means, and must not wait for a lock where a page is in memory.
//!
//! Main types: [`Options`], [`Installed`], [`Api`], [`ShareView`].

#![warn(missing_docs)] // people program against it
#![cfg_attr(not(test), warn(clippy::disallowed_macros, clippy::disallowed_methods))]

mod cache;
mod chunk;
mod ffi;
mod filter;
mod fixed;
mod fork;
mod gate;
mod ghosts;
mod memory;
mod methods;
mod names;
mod node;
mod share;
mod spare;
mod store;
mod timing;

use std::ffi::c_int;
use std::sync::Arc;
use std::time::Duration;

use hugeleaf::balance::{Settings, View};
use hugeleaf::{Bytes, Elastic, ElasticError, ElasticOptions, Info, Ladder, Manager, PageSize};

use store::{Origin, Store};

pub use ffi::Api;
pub use fixed::install_on;
pub use share::ShareView;
pub use store::PagesOf;

#[cfg(feature = "linked")]
mod linked;

/// A granule has room for so much at least.
const GRANULE: Bytes = Bytes::from_mib(1);

/// How much memory the cache has, and on which pages: [`Options::new`], then what is to differ.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Options {
    /// All databases together hold no more than this; [`Installed::set_target`] changes it.
    pub target: Bytes,
    /// The largest target that can be set later: so many addresses are set aside.
    pub most: Bytes,
    /// The page sizes to try, from large to small.
    pub ladder: Ladder,
    /// What is moved from one database to another as one: a multiple of the ladder's largest page, with room for some
    /// pages of a database. `None` for that page, or for a multiple of about a MiB where it is smaller.
    pub granule: Option<PageSize>,
    /// How often it is looked whether memory would bring more elsewhere.
    pub every: Duration,
}

impl Options {
    /// A cache of that size, which can be made twice as large, on pages of that ladder.
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

/// Why the cache is not there.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InstallError {
    /// It was installed before: a process has one.
    #[error("SQLite's cache was replaced before: install it once, and keep what that returns")]
    Again,
    /// SQLite refused.
    #[error(
        "SQLite does not take a cache (its status is {0}): install it before SQLite is first used"
    )]
    Refused(c_int),
    /// The target is less than two granules.
    #[error(
        "a cache of {target} is less than two pages of {granule}: give it more, or smaller pages"
    )]
    TooSmall {
        /// What was asked for.
        target: Bytes,
        /// What is moved as one.
        granule: Bytes,
    },
    /// There is no such memory.
    #[error(transparent)]
    Elastic(#[from] ElasticError),
    /// There is no thread for the manager.
    #[error("starting a thread: {0}; raise the limit on processes (ulimit -u)")]
    Thread(std::io::Error),
}

/// The cache of this process. It stays until the process ends: SQLite holds pointers into it.
#[derive(Debug, Clone, Copy)]
pub struct Installed(&'static Store);

/// Replaces the cache of a SQLite by one of elastic memory, and has it divided among databases from now on.
///
/// # Errors
/// [`InstallError`]; SQLite works as before then, unless it is said otherwise.
pub fn install(api: &Api, options: &Options) -> Result<Installed, InstallError> {
    let elastic = Arc::new(elastic(options)?);
    let store = prepare(api, PagesOf::Files)?;
    let manager = Manager::new(Arc::clone(&elastic), Settings::in_process())?;
    let running = manager.start(options.every).map_err(InstallError::Thread)?;
    store.set_source(Origin::Managed { elastic, running });
    // Last: it initialises SQLite. Without names all databases have one share.
    names::watch(api).map_err(InstallError::Refused)?;
    Ok(Installed(store))
}

fn elastic(options: &Options) -> Result<Elastic, InstallError> {
    let largest = options.ladder.rungs()[0].size;
    let enough = || PageSize::new(largest.pages_for(GRANULE).of(largest)).unwrap_or(largest);
    let granule = options.granule.unwrap_or_else(|| largest.max(enough()));
    let target = Bytes(granule.round_down(options.target.get()));
    if target < granule.bytes() + granule.bytes() {
        let (target, granule) = (options.target, granule.bytes());
        return Err(InstallError::TooSmall { target, granule });
    }
    let most = granule.pages_for(options.most.max(target)).of(granule);
    let asked = ElasticOptions::new(most, options.ladder.clone()).target(target);
    Ok(Elastic::new(&asked.granule(granule))?)
}

pub(crate) fn prepare(api: &Api, pages_of: PagesOf) -> Result<&'static Store, InstallError> {
    if methods::store().is_some() {
        return Err(InstallError::Again);
    }
    methods::give(api).map_err(InstallError::Refused)?;
    filter::note();
    fork::watch::<methods::OfStore>();
    methods::set_store(Store::new(pages_of)).ok_or(InstallError::Again)
}

/// What a page of `page` bytes takes of the memory, with what this SQLite keeps for it.
///
/// # Errors
/// [`InstallError::Refused`] where SQLite does not say: it is in use already.
pub fn bytes_of_page(api: &Api, page: Bytes) -> Result<Bytes, InstallError> {
    // It counts the header of the cache that is replaced, which is as large as the one here.
    let header = methods::header(api).map_err(InstallError::Refused)?;
    let header = header.next_multiple_of(node::LINE);
    Ok(page + Bytes(header as u64))
}

impl Installed {
    /// Gives another copy of SQLite in this process the same cache.
    ///
    /// # Errors
    /// [`InstallError::Refused`]; it works as before then.
    pub fn serve(&self, api: &Api) -> Result<(), InstallError> {
        methods::give(api).map_err(InstallError::Refused)?;
        names::watch(api).map_err(InstallError::Refused)
    }

    /// How memory is divided among databases, and what was moved: as Oracle's `v$` views. `None` of a range that is not
    /// divided.
    pub fn view(&self) -> Option<View> {
        Some(self.0.managed()?.1.view().0)
    }

    /// How each database's share stands.
    pub fn shares(&self) -> Vec<ShareView> {
        self.0.views()
    }

    /// Another target for all together; returns how much is held above it, which is taken from the databases within
    /// seconds. `None` of a range that never changes.
    ///
    /// # Errors
    /// [`ElasticError::OverMax`], above [`Options::most`].
    pub fn set_target(&self, target: Bytes) -> Option<Result<Bytes, ElasticError>> {
        Some(self.0.managed()?.1.set_target(target))
    }

    /// How much is held now, and the target; of a range that never changes, how much is in use and all of it.
    pub fn held(&self) -> (Bytes, Bytes) {
        match self.0.managed() {
            Some((elastic, _)) => (elastic.held(), elastic.target()),
            None => self.0.fixed().unwrap_or_default(),
        }
    }

    /// What is held, by component and by page size, as the kernel has it now; `None` of a range that is somebody else's to
    /// look at.
    pub fn info(&self) -> Option<Result<Info, ElasticError>> {
        Some(self.0.managed()?.0.info())
    }
}
