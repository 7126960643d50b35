//! The memory of all caches of this process, and its division.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use hugeleaf::{Bytes, Component, Elastic, Granule, ManagerThread};
use hugeleaf_sys::AsymmetricBarrier;

use crate::chunk::{SlotLayout, UncutMemory};
use crate::fork;
use crate::seccomp;
use crate::share::{CacheShare, Inner, ManagedShare, MemorySource, ShareView};
use crate::spare_pages::SparePool;

/// Maximum number of databases with their own share; the others share one, as the number of components is limited.
const NAMED: usize = 48;
/// Minimum number of granules per database. With fewer, databases share one share.
const GRANULES_EACH: u64 = 8;
/// Number of pages, or of bytes, from which a cache joins a share.
const JOINS_AT: usize = 64;
const JOINS_AT_BYTES: usize = 256 << 10;
/// Limit of the heap pages of caches that have not joined yet, and of those that did not fit: one part in `HEAP_PART`
/// of the target, or `LEAST_HEAP` bytes if that is more. Beyond it each cache joins at once.
const HEAP_PART: usize = 16;
const LEAST_HEAP: usize = 1 << 20;
/// Maximum bytes taken at once by a growing share; that takes some milliseconds.
const AT_ONCE: u64 = 16 << 20;
/// Number of failed shares after which no more are created: each attempt leaks some memory.
const MOST_FAILURES: usize = 64;
/// A growing share takes one part in this number of its memory at once.
const GROWS_BY: u64 = 16;

/// Name of the share of databases without their own.
pub(crate) const OTHERS: &str = "other databases";

/// Caches whose pages are in this memory. Pages of other caches are on the heap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum DatabaseKind {
    /// Databases in files, and temporary ones. A page can be read again, so an unused one may be evicted.
    Files,
    /// Databases in memory. A page is the only copy of its content.
    Memory,
}

#[derive(Debug)]
pub(crate) enum StoreMemory {
    /// Elastic memory, moved between databases by benefit.
    Managed {
        elastic: Arc<Elastic>,
        running: ManagerThread,
    },
    /// One fixed range for all. Connections keep to the size that SQLite requests.
    Fixed {
        start: usize,
        granule: usize,
        granules: usize,
        next: AtomicUsize,
    },
}

#[derive(Debug)]
pub(crate) struct PageStore {
    pub barrier: AsymmetricBarrier,
    pub spare: SparePool,
    /// Bytes of heap pages that can be read again.
    pub heap: AtomicUsize,
    pages_of: DatabaseKind,
    source: OnceLock<StoreMemory>,
    shares: Mutex<SharesByPath>,
    /// Number of the next cache.
    pub numbers: AtomicU64,
    /// Number of shares that could not be created.
    failures: AtomicUsize,
}

// An ordered map: a hash map would need random numbers of the kernel, which a filter may refuse.
#[derive(Debug, Default)]
struct SharesByPath {
    /// Shares by the path of the database.
    named: BTreeMap<Vec<u8>, &'static CacheShare>,
    others: Option<&'static CacheShare>,
    /// Paths of caches that replaced another one, by their numbers.
    inherited: BTreeMap<u64, Vec<u8>>,
}

/// Locks that are held during a fork, for the child.
#[derive(Debug)]
pub(crate) struct ForkGuards {
    _each: Vec<Option<MutexGuard<'static, Inner>>>,
    _shares: Option<MutexGuard<'static, SharesByPath>>,
}

impl PageStore {
    pub fn new(pages_of: DatabaseKind) -> PageStore {
        PageStore {
            barrier: AsymmetricBarrier::of_process(),
            spare: SparePool::new(),
            heap: AtomicUsize::new(0),
            pages_of,
            source: OnceLock::new(),
            shares: Mutex::default(),
            numbers: AtomicU64::new(1),
            failures: AtomicUsize::new(0),
        }
    }

    pub fn set_source(&self, source: StoreMemory) {
        let _ = self.source.set(source);
    }

    fn source(&self) -> Option<&StoreMemory> {
        // A forked child has its parent's memory without a manager, and locks that may never be released.
        self.source.get().filter(|_| !fork::is_child())
    }

    fn shares(&self) -> MutexGuard<'_, SharesByPath> {
        self.shares.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// True if caches of that kind have their pages here.
    pub fn is_for(&self, purgeable: bool) -> bool {
        purgeable == (self.pages_of == DatabaseKind::Files)
    }

    /// True if connections keep to the size that SQLite requests (`PRAGMA cache_size`). Otherwise they use the memory
    /// of their database.
    pub fn limits_per_connection(&self) -> bool {
        !matches!(self.source(), Some(StoreMemory::Managed { .. }))
    }

    /// Returns true if a cache with this number of pages joins now.
    pub fn is_time_to_join(&self, pages: usize, shape: SlotLayout) -> bool {
        match self.source() {
            Some(StoreMemory::Managed { elastic, .. }) => {
                let target = usize::try_from(elastic.target().get()).unwrap_or(usize::MAX);
                let most = (target / HEAP_PART).max(LEAST_HEAP);
                pages >= JOINS_AT
                    || pages * shape.bytes() >= JOINS_AT_BYTES
                    || self.heap.load(Ordering::Relaxed) >= most
            }
            Some(StoreMemory::Fixed { .. }) => true,
            None => false,
        }
    }

    /// Takes the locks that a child needs, in the order used everywhere. The flag is false if one could not be taken.
    pub fn stop(&'static self) -> (ForkGuards, bool) {
        let shares = fork::lock_in_time(&self.shares);
        let all = shares
            .iter()
            .flat_map(|shares| shares.named.values().chain(&shares.others));
        let each: Vec<_> = all.map(|share| fork::lock_in_time(&share.inner)).collect();
        let is_all = shares.is_some() && each.iter().all(Option::is_some);
        let held = ForkGuards {
            _each: each,
            _shares: shares,
        };
        (held, is_all)
    }

    /// Records the end of a cache created with `path`. The cache with the number `successor` has the same database.
    pub fn ended(&self, number: u64, path: Option<Vec<u8>>, successor: u64) {
        let inherits = successor != 0 && successor != number;
        if self.source().is_none() || (path.is_some() && !inherits) {
            return;
        }
        let mut shares = self.shares();
        let path = path.or_else(|| shares.inherited.remove(&number));
        if let Some(path) = path.filter(|_| inherits) {
            shares.inherited.insert(successor, path);
        }
    }

    /// Returns the share of a database's cache, created if needed; `None` if there is no memory. A cache that was
    /// created without a path may have inherited one by its number.
    pub fn share_of(
        &'static self,
        number: u64,
        path: Option<&Vec<u8>>,
        shape: SlotLayout,
    ) -> Option<&'static CacheShare> {
        let source = self.source()?;
        let mut shares = self.shares();
        let path = path.or_else(|| shares.inherited.get(&number)).cloned();
        let Some(path) = path.filter(|_| shares.named.len() < self.most_shares(source)) else {
            return self.others(&mut shares, source, shape);
        };
        if let Some(share) = shares.named.get(&path) {
            return Some(share);
        }
        let name = shares.name_of(&path);
        match self.make(source, name, shape) {
            None => self.others(&mut shares, source, shape),
            Some(share) => {
                shares.named.insert(path, share);
                Some(share)
            }
        }
    }

    fn most_shares(&self, source: &StoreMemory) -> usize {
        match source {
            StoreMemory::Fixed { .. } => 0,
            StoreMemory::Managed { elastic, .. } => {
                let granules = elastic.granule().pages_for(elastic.target()).get();
                usize::try_from(granules / GRANULES_EACH).map_or(NAMED, |most| most.min(NAMED))
            }
        }
    }

    fn others(
        &'static self,
        shares: &mut SharesByPath,
        source: &StoreMemory,
        shape: SlotLayout,
    ) -> Option<&'static CacheShare> {
        if shares.others.is_none() {
            shares.others = self.make(source, OTHERS.to_owned(), shape);
        }
        shares.others
    }

    /// Creates a share. It is never freed, because caches that joined may access it at any time.
    fn make(
        &'static self,
        source: &StoreMemory,
        name: String,
        shape: SlotLayout,
    ) -> Option<&'static CacheShare> {
        let StoreMemory::Managed { elastic, running } = source else {
            return Some(Box::leak(Box::new(CacheShare::new(name, self, shape))));
        };
        if self.failures.load(Ordering::Relaxed) > MOST_FAILURES || !seccomp::is_none_new() {
            return None;
        }
        let share: &'static CacheShare = Box::leak(Box::new(CacheShare::new(name, self, shape)));
        let sizes = (elastic.granule().bytes(), elastic.max());
        let added = running.add(&share.name, sizes, Box::new(ManagedShare(share)));
        let Ok(component) = added else {
            self.failures.fetch_add(1, Ordering::Relaxed);
            return None;
        };
        let _ = share.component.set(component);
        Some(share)
    }

    pub fn views(&self) -> Vec<ShareView> {
        let shares = self.shares();
        let all = shares.named.values().chain(&shares.others);
        let mut views: Vec<ShareView> = all.map(|share| share.view()).collect();
        views.sort_by(|a, b| a.name.cmp(&b.name));
        views
    }

    /// Returns the elastic memory and its manager.
    pub fn managed(&self) -> Option<(&Elastic, &ManagerThread)> {
        match self.source()? {
            StoreMemory::Managed { elastic, running } => Some((elastic, running)),
            StoreMemory::Fixed { .. } => None,
        }
    }

    /// Returns the cut part of a fixed range, and its whole size, in bytes.
    pub fn fixed(&self) -> Option<(Bytes, Bytes)> {
        let StoreMemory::Fixed {
            granule,
            granules,
            next,
            ..
        } = self.source()?
        else {
            return None;
        };
        let bytes = |count: usize| Bytes((count * granule) as u64);
        Some((bytes(next.load(Ordering::Relaxed)), bytes(*granules)))
    }
}

impl MemorySource for PageStore {
    fn granule(&self) -> usize {
        match self.source.get() {
            Some(StoreMemory::Managed { elastic, .. }) => bytes_of(elastic),
            Some(StoreMemory::Fixed { granule, .. }) => *granule,
            None => 0,
        }
    }

    fn blank(&self, granule: Granule) -> Option<UncutMemory> {
        let (elastic, _) = self.managed()?;
        Some(UncutMemory {
            granule: Some(granule),
            start: elastic.address(granule).ok()?,
            length: bytes_of(elastic),
        })
    }

    fn next_blank(&self) -> Option<UncutMemory> {
        let Some(StoreMemory::Fixed {
            start,
            granule,
            granules,
            next,
        }) = self.source()
        else {
            return None;
        };
        let more = |next: usize| (next < *granules).then_some(next + 1);
        let taken = next.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        Some(UncutMemory {
            granule: None,
            start: (start + taken.ok()? * granule) as *mut u8,
            length: *granule,
        })
    }

    fn claim(&self, component: Component, share: &CacheShare) -> Option<()> {
        let (elastic, running) = self.managed()?;
        let is_full = elastic.held() + elastic.granule().bytes() > elastic.target();
        if is_full || !seccomp::is_none_new() {
            return None;
        }
        let most = AT_ONCE / elastic.granule().bytes().get();
        let count = (share.granules() / GROWS_BY).clamp(1, most.max(1));
        let count = usize::try_from(count).unwrap_or(1);
        match running.claim(component, count) {
            // The manager is busy: the next miss asks again.
            Ok(None) => Some(()),
            Ok(Some(got)) => (got > 0).then_some(()),
            Err(_) => None,
        }
    }
}

/// Returns the bytes of a granule.
fn bytes_of(elastic: &Elastic) -> usize {
    usize::try_from(elastic.granule().bytes().get()).unwrap_or(usize::MAX)
}

impl SharesByPath {
    /// Returns a component's name for a database: its file name, with a number if it is taken.
    fn name_of(&self, path: &[u8]) -> String {
        /// Maximum length of the file name in bytes. Elastic memory allows 47.
        const LONGEST: usize = 40;
        let path = String::from_utf8_lossy(path);
        let file = path.rsplit('/').next().unwrap_or(&path);
        let end = (0..=LONGEST.min(file.len())).rev();
        let end = end.into_iter().find(|at| file.is_char_boundary(*at));
        let name = match &file[..end.unwrap_or(0)] {
            "" => "database",
            name => name,
        };
        let is_taken = |name: &str| self.named.values().any(|share| share.name == name);
        let numbered = (2..).map(|n| format!("{name} {n}"));
        let names = std::iter::once(name.to_owned()).chain(numbered);
        let free = { names }.find(|name| !is_taken(name) && name != OTHERS);
        free.unwrap_or_else(|| name.to_owned())
    }
}
