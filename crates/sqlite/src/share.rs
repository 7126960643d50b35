//! A database's share of the memory: its granules, and the caches of the connections that use them.
#![allow(unsafe_code)]
//! # Safety
//! Pointers to caches are of those that joined and did not leave, which both happens with the lock; pointers to chunks
//! are of those that the share holds. This module changes caches only with the lock and their gates stopped.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use hugeleaf::balance::{Benefit, GhostList};
use hugeleaf::{Component, Granule, Managed};

use crate::chunk::{Chunk, SlotLayout, SlotOwner, UncutMemory};
use crate::fallible_vec::{listed, pushed};
use crate::fork;
use crate::hit_miss_timing::HitMissTiming;
use crate::page_index::PageHeader;
use crate::seccomp;

/// Number of keys in the ghost list. With 4000 it took a tenth of the time of a load that always hits, with 1000 a
/// fortieth. The mean error of a hit ratio is then 0.02.
const SAMPLES: usize = 1000;
/// Initial size in granules that the ghost list assumes. With one granule it would sample a third of all pages for a
/// second, in which a share may well grow this large.
const INITIAL_GRANULES: u64 = 8;
/// Number of manager steps without use after which a cache gives pages first.
const IDLE_LOOKS: u32 = 3;
/// Number of pages taken from another cache at once: stopping it costs more than taking a page.
const AT_ONCE: usize = 32;
/// Number of misses without a search for a cache to take from, after a search that found none.
const LOOK_AGAIN: u32 = 256;
/// Number of granules emptied without releasing the lock: each takes about 0.1 ms.
const VACATED: usize = 8;
/// Number of granules from which the least valuable are emptied.
const CANDIDATES: usize = 64;
/// One miss in this number is timed.
const TIMED_MISSES: u64 = 16;

/// Source of a share's memory.
pub(crate) trait MemorySource: std::fmt::Debug + Send + Sync {
    fn granule(&self) -> usize;
    /// Returns a granule of elastic memory, ready to be cut.
    fn blank(&self, granule: Granule) -> Option<UncutMemory>;
    /// Returns the next granule of a fixed range; `None` if all are taken or the memory is elastic.
    fn next_blank(&self) -> Option<UncutMemory>;
    /// Asks the manager for free memory for a share; `None` if there is none now.
    fn claim(&self, component: Component, share: &CacheShare) -> Option<()>;
}

pub(crate) trait MemberCache {
    fn hits(&self) -> u64;
    fn misses(&self) -> u64;
    fn pages(&self) -> usize;
    /// Evicts up to `count` unused pages for another cache of the share, and gives their slots back to `held`, the
    /// lock. The owner is kept out meanwhile. Returns the number of pages.
    fn donate(&self, count: usize, held: &mut ShareGuard<'_>) -> usize;
    /// Drops these pages except those in use, while the owner is kept out. The caller holds the lock of the share.
    /// Returns the number of pages left.
    fn evict_unpinned(&self, nodes: &[*mut PageHeader], held: &mut ShareGuard<'_>) -> usize;
}

#[derive(Debug)]
pub(crate) struct CacheShare {
    pub name: String,
    source: &'static dyn MemorySource,
    /// Number of pages that fit into a granule.
    each: u64,
    /// The manager's component for this share.
    pub component: OnceLock<Component>,
    pub inner: Mutex<Inner>,
    ghost: Mutex<GhostList>,
    pub timing: HitMissTiming,
    misses: AtomicU64,
    /// Number of pages that did not fit and came from the heap.
    pub heap_fallbacks: AtomicU64,
    /// True if there may be free memory; set again at each step of the manager.
    pub may_claim: AtomicBool,
}

#[derive(Debug, Default)]
pub(crate) struct Inner {
    blanks: Vec<UncutMemory>,
    /// Created by [`Chunk::cut`]; nodes point to them.
    chunks: Vec<*mut Chunk>,
    /// Chunk at which the search for a free slot begins.
    next: usize,
    /// Number of free slots of all shapes.
    free: usize,
    caches: Vec<ShareMember>,
    /// Number of misses left without a search for a cache to take from.
    skip: u32,
    /// Chunk at which the search for a granule to empty begins.
    turn: usize,
    /// Number of manager steps without a cache; the share is then empty.
    unused: u32,
}

#[derive(Debug)]
struct ShareMember {
    cache: *const dyn MemberCache,
    /// Its hits and misses at the last step.
    asked: u64,
    /// Number of steps without use.
    idle: u32,
}

// SAFETY: its pointers are followed with the lock only, as the module header describes.
unsafe impl Send for Inner {}

pub(crate) struct ShareGuard<'a> {
    share: &'a CacheShare,
    /// `None` only while it is released.
    inner: Option<MutexGuard<'a, Inner>>,
}

/// State of a share.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ShareView {
    /// File name of its database, or a description.
    pub name: String,
    /// Number of connections that use it.
    pub connections: usize,
    /// Number of page slots in its cut memory.
    pub slots: u64,
    /// Number of slots in use.
    pub used: u64,
    /// Number of requests that found their page, for the open connections.
    pub hits: u64,
    /// Number of requests that did not find their page.
    pub misses: u64,
    /// Number of pages that did not fit and came from the heap instead.
    pub heap_fallbacks: u64,
    /// Additional time of a miss over a hit in nanoseconds; 0 if too few were timed.
    pub nanoseconds_per_miss: u64,
}

impl CacheShare {
    /// Creates a share for pages of this shape. Caches with other pages may join, and count as if they had this shape.
    pub fn new(name: String, source: &'static dyn MemorySource, shape: SlotLayout) -> CacheShare {
        let each = (source.granule() / shape.bytes()).max(1) as u64;
        CacheShare {
            name,
            source,
            each,
            component: OnceLock::new(),
            inner: Mutex::default(),
            ghost: Mutex::new(GhostList::new(INITIAL_GRANULES * each, each, SAMPLES)),
            timing: HitMissTiming::default(),
            misses: AtomicU64::new(0),
            heap_fallbacks: AtomicU64::new(0),
            may_claim: AtomicBool::new(true),
        }
    }

    pub fn lock(&self) -> ShareGuard<'_> {
        ShareGuard {
            share: self,
            inner: Some(self.inner.lock().unwrap_or_else(PoisonError::into_inner)),
        }
    }

    pub fn add(&self, blanks: impl IntoIterator<Item = UncutMemory>) {
        self.lock().inner().blanks.extend(blanks);
    }

    /// Asks for more memory. The caller must not hold the lock, because the giver takes it.
    pub fn claim(&self) {
        let more = match self.component.get() {
            Some(component) => self.source.claim(*component, self),
            None => self.source.next_blank().map(|blank| self.add([blank])),
        };
        if more.is_none() {
            self.may_claim.store(false, Ordering::Relaxed);
        }
    }

    pub fn granules(&self) -> u64 {
        self.lock().inner().granules()
    }

    /// Records a miss of this key. Returns true if the ghost list samples the key.
    pub fn missed(&self, hash: u64, touches: &mut Vec<u64>) -> bool {
        self.misses.fetch_add(1, Ordering::Relaxed);
        // A child does not use the ghost list, and its lock may be held there forever.
        if self.component.get().is_none() || fork::is_child() {
            return false;
        }
        let mut ghost = self.ghost.lock().unwrap_or_else(PoisonError::into_inner);
        for hash in touches.drain(..) {
            ghost.touch(hash);
        }
        ghost.touch(hash)
    }

    /// Records touches of sampled pages. They are discarded if the list is in use.
    pub fn touched(&self, touches: &mut Vec<u64>) {
        if let Ok(mut ghost) = self.ghost.try_lock() {
            for hash in touches.iter() {
                ghost.touch(*hash);
            }
        }
        touches.clear();
    }

    /// True if this miss must be timed.
    pub fn is_timed(&self) -> bool {
        self.misses
            .load(Ordering::Relaxed)
            .is_multiple_of(TIMED_MISSES)
    }

    pub fn view(&self) -> ShareView {
        let mut held = self.lock();
        let inner = held.inner();
        let slots: usize = inner.chunks().map(Chunk::slots).sum();
        let hits = inner.caches.iter().map(|m| m.cache().hits()).sum();
        ShareView {
            name: self.name.clone(),
            connections: inner.caches.len(),
            slots: slots as u64,
            used: (slots - inner.free) as u64,
            hits,
            misses: self.misses.load(Ordering::Relaxed),
            heap_fallbacks: self.heap_fallbacks.load(Ordering::Relaxed),
            nanoseconds_per_miss: self
                .timing
                .miss()
                .map_or(0, |miss| u64::try_from(miss.as_nanos()).unwrap_or(u64::MAX)),
        }
    }
}

impl ShareMember {
    fn cache(&self) -> &dyn MemberCache {
        // SAFETY: it has joined and not left, and the caller has the lock.
        unsafe { &*self.cache }
    }

    fn pages(&self) -> usize {
        self.cache().pages()
    }
}

impl<'a> ShareGuard<'a> {
    fn inner(&mut self) -> &mut Inner {
        let share = self.share;
        let lock = || share.inner.lock().unwrap_or_else(PoisonError::into_inner);
        self.inner.get_or_insert_with(lock)
    }

    pub fn release_while(&mut self, does: impl FnOnce()) {
        self.inner = None;
        does();
        self.inner();
    }

    /// Returns false if there is no memory for it.
    pub fn join(&mut self, cache: &(dyn MemberCache + 'static)) -> bool {
        let member = ShareMember {
            cache,
            asked: 0,
            idle: 0,
        };
        pushed(&mut self.inner().caches, member)
    }

    pub fn leave(&mut self, cache: SlotOwner) {
        let is_other = |member: &ShareMember| !std::ptr::addr_eq(member.cache, cache);
        self.inner().caches.retain(is_other);
    }

    /// Takes a slot for a cache; `None` if none is free.
    pub fn take(&mut self, shape: SlotLayout, owner: SlotOwner) -> Option<*mut PageHeader> {
        let inner = self.inner();
        if let Some(node) = inner.free_slot(shape, owner) {
            return Some(node);
        }
        if !inner.cut_another(shape) {
            return None;
        }
        inner.free_slot(shape, owner)
    }

    pub fn give_back(&mut self, chunk: *mut Chunk, node: *const PageHeader) {
        // SAFETY: the share holds the chunk as long as a node of it is in use.
        unsafe { (*chunk).give_back(node) };
        self.inner().free += 1;
    }

    /// Takes a slot from another cache of the share: an unused one, or one above its fair part if this one is below.
    /// With `must` it takes from any.
    pub fn take_from_others(
        &mut self,
        (cache, own): (SlotOwner, usize),
        shape: SlotLayout,
        must: bool,
    ) -> Option<*mut PageHeader> {
        let giver = self.inner().donor(cache, own, must)?;
        // SAFETY: it has joined and not left, with the lock.
        let given = unsafe { &*giver }.donate(AT_ONCE, self);
        if given == 0 {
            self.inner().skip = LOOK_AGAIN;
        }
        self.take(shape, cache)
    }

    /// Empties at most `count` granules, the least valuable first.
    fn free_granules(&mut self, count: usize) -> Vec<Granule> {
        let mut granules = self.inner().unused(count);
        for at in self.inner().least_requested_chunks() {
            if granules.len() >= count {
                break;
            }
            // Chunks are removed only below, so indices stay valid.
            self.empty(at);
        }
        granules.extend(self.inner().unused(count - granules.len()));
        granules
    }

    /// Drops all pages of a chunk except those in use.
    fn empty(&mut self, at: usize) {
        let used = self.inner().chunk(at);
        let used = used.and_then(|chunk| listed(chunk.slots(), chunk.used()));
        let Some(mut used) = used else {
            return;
        };
        used.sort_unstable();
        for its in used.chunk_by(|one, other| one.0 == other.0) {
            let owner = its.first().map_or(std::ptr::null(), |(owner, _)| *owner);
            let nodes = listed(its.len(), its.iter().map(|(_, node)| *node));
            let Some(nodes) = nodes else {
                return;
            };
            let members = self.inner().caches.iter();
            let mut its = members.filter(|member| std::ptr::addr_eq(member.cache, owner));
            let Some(cache) = its.next().map(|member| member.cache) else {
                return;
            };
            // SAFETY: it has joined and not left, with the lock.
            let left = unsafe { &*cache }.evict_unpinned(&nodes, self);
            if left > 0 {
                return;
            }
        }
    }
}

impl Inner {
    fn chunks(&self) -> impl Iterator<Item = &Chunk> {
        (0..self.chunks.len()).filter_map(|at| self.chunk(at))
    }

    fn chunk(&self, at: usize) -> Option<&Chunk> {
        // SAFETY: the share holds it, and its lock is held; chunks are changed with the lock only.
        self.chunks.get(at).map(|chunk| unsafe { &**chunk })
    }

    fn free_slot(&mut self, shape: SlotLayout, owner: SlotOwner) -> Option<*mut PageHeader> {
        if self.free == 0 {
            return None;
        }
        let chunks = self.chunks.len();
        for step in 0..chunks {
            let at = (self.next + step) % chunks;
            let chunk = self.chunks[at];
            // SAFETY: as of `chunks`.
            unsafe {
                if (*chunk).shape == shape && (*chunk).free() > 0 {
                    self.next = at;
                    self.free -= 1;
                    return Chunk::take(chunk, owner);
                }
            }
        }
        None
    }

    /// Cuts a granule into slots of a shape: an uncut one, or an empty one of another shape.
    fn cut_another(&mut self, shape: SlotLayout) -> bool {
        let blank = self.blanks.pop().or_else(|| {
            // Without a free slot no granule is empty. Checked first, since each miss of a full cache comes here.
            if self.free == 0 {
                return None;
            }
            let is_it = |chunk: &Chunk| chunk.shape != shape && chunk.is_empty();
            let at = self.chunks().position(is_it)?;
            Some(self.uncut(at))
        });
        if self.chunks.try_reserve(1).is_err() {
            self.blanks.extend(blank);
            return false;
        }
        match blank.map(|blank| Chunk::cut(blank, shape)) {
            None => false,
            Some(Err(blank)) => {
                self.blanks.push(blank);
                false
            }
            Some(Ok(chunk)) => {
                // SAFETY: it was made just now.
                self.free += unsafe { &*chunk }.slots();
                self.next = self.chunks.len();
                self.chunks.push(chunk);
                true
            }
        }
    }

    fn uncut(&mut self, at: usize) -> UncutMemory {
        // SAFETY: it is of `Chunk::cut`, nothing of it is in use, and the share drops its pointer.
        let chunk = unsafe { Box::from_raw(self.chunks.swap_remove(at)) };
        self.free -= chunk.slots();
        chunk.blank
    }

    /// Removes at most `count` granules that are empty, and returns them.
    fn unused(&mut self, count: usize) -> Vec<Granule> {
        let mut granules = Vec::new();
        while granules.len() < count {
            let blank = self.blanks.pop().or_else(|| {
                let at = self.chunks().position(Chunk::is_empty)?;
                Some(self.uncut(at))
            });
            let Some(granule) = blank.and_then(|blank| blank.granule) else {
                break;
            };
            granules.push(granule);
        }
        granules
    }

    /// Returns chunks, least requested of late first. A chunk with a page in use cannot be emptied and is left out.
    fn least_requested_chunks(&mut self) -> Vec<usize> {
        let worth = |chunk: &Chunk| -> Option<u64> {
            let mut worth = 0;
            for (_, node) in chunk.used() {
                // SAFETY: a slot in use has a live node. Its owner may change it meanwhile; this is only an estimate.
                let (pinned, used) = unsafe { ((*node).is_pinned(), (*node).used()) };
                if pinned {
                    return None;
                }
                worth += 1 + u64::from(used);
            }
            Some(worth)
        };
        let count = self.chunks.len();
        let turn = (0..count.min(CANDIDATES)).map(|step| (self.turn + step) % count);
        let mut all: Vec<(u64, usize)> = turn
            .filter_map(|at| Some((worth(self.chunk(at)?)?, at)))
            .collect();
        self.turn = self.turn.wrapping_add(CANDIDATES);
        all.sort_unstable();
        all.into_iter().map(|(_, at)| at).collect()
    }

    /// Returns the cache from which a cache with `own` pages may take.
    fn donor(
        &mut self,
        cache: SlotOwner,
        own: usize,
        must: bool,
    ) -> Option<*const dyn MemberCache> {
        if self.skip > 0 && !must {
            self.skip -= 1;
            return None;
        }
        let others = self.caches.iter();
        let others = others.filter(|m| !std::ptr::addr_eq(m.cache, cache) && m.pages() > 0);
        let idle = |member: &&ShareMember| member.idle >= IDLE_LOOKS;
        let most = |member: &&ShareMember| member.pages();
        if let Some(member) = others.clone().filter(idle).max_by_key(most) {
            return Some(member.cache);
        }
        let largest = others.max_by_key(most);
        let slots: usize = self.chunks().map(Chunk::slots).sum();
        let active = self.caches.iter().filter(|member| !idle(member)).count();
        let part = slots / active.max(1);
        let fair = |member: &&ShareMember| own < part && member.pages() > part;
        let found = largest.filter(|member| must || fair(member));
        if found.is_none() {
            self.skip = LOOK_AGAIN;
        }
        found.map(|member| member.cache)
    }

    fn granules(&self) -> u64 {
        (self.chunks.len() + self.blanks.len()) as u64
    }

    fn update_idle(&mut self) {
        self.unused = match self.caches.is_empty() {
            true => self.unused.saturating_add(1),
            false => 0,
        };
        for member in &mut self.caches {
            let asked = member.cache().hits() + member.cache().misses();
            member.idle = match asked == member.asked {
                true => member.idle.saturating_add(1),
                false => 0,
            };
            member.asked = asked;
        }
        self.skip = 0;
    }
}

/// The manager's view of a share.
pub(crate) struct ManagedShare(pub &'static CacheShare);

impl Managed for ManagedShare {
    fn benefit(&mut self, elapsed: Duration) -> Benefit {
        let share = self.0;
        let capacity = {
            let mut held = share.lock();
            held.inner().update_idle();
            held.inner().granules() * share.each
        };
        share.may_claim.store(true, Ordering::Relaxed);
        let mut ghost = share.ghost.lock().unwrap_or_else(PoisonError::into_inner);
        ghost.set_capacity(capacity);
        ghost.pass(elapsed);
        match share.timing.miss() {
            Some(miss) => ghost.benefit(share.each, miss.as_secs_f64()),
            None => Benefit::default(),
        }
    }

    fn grow(&mut self, granules: &[Granule]) {
        let blanks = granules
            .iter()
            .filter_map(|granule| self.0.source.blank(*granule));
        self.0.add(blanks);
    }

    fn shrink(&mut self, count: usize) -> Vec<Granule> {
        let mut granules = Vec::new();
        // The lock is released from time to time, because threads that miss a page wait for it.
        while granules.len() < count {
            let some = self
                .0
                .lock()
                .free_granules(VACATED.min(count - granules.len()));
            if some.is_empty() {
                break;
            }
            granules.extend(some);
        }
        granules
    }

    /// Closing a database drops its pages. One that is reopened soon finds its memory still here.
    fn is_unused(&self) -> bool {
        self.0.lock().inner().unused >= IDLE_LOOKS
    }

    fn is_frozen(&self) -> bool {
        !seccomp::is_none_new()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use hugeleaf_testkit::RepeatingThread;

    use super::*;
    use crate::cache::ConnectionCache;
    use crate::page_store::{DatabaseKind, PageStore, StoreMemory};

    const SHAPE: SlotLayout = SlotLayout {
        page: 512,
        extra: 64,
    };

    /// Returns a store of four granules with 16 pages each.
    fn store() -> &'static PageStore {
        let granule = 16 * SHAPE.bytes();
        let memory = vec![[0_u64; 8]; 4 * granule / 64 + 1].leak();
        // Aligned to a line, as pages are.
        let start = memory.as_mut_ptr().cast::<u8>();
        let start = start
            .wrapping_add(start.align_offset(64))
            .expose_provenance();
        let store = Box::leak(Box::new(PageStore::new(DatabaseKind::Files)));
        store.set_source(StoreMemory::Fixed {
            start,
            granule,
            granules: 4,
            next: AtomicUsize::new(0),
        });
        store
    }

    /// Requests pages as SQLite does, and checks that each holds its key or is new.
    fn work(cache: &ConnectionCache, rounds: u32) {
        for round in 0..rounds {
            let key = round * 7 % 40 + 1;
            let node = cache.fetch(key, 2);
            assert!(!node.is_null());
            // SAFETY: the page is in use, and its first words are this thread's.
            unsafe {
                let (page, extra) = ((*node).page.buffer, (*node).page.extra);
                let (page, extra) = (page.cast::<u32>(), extra.cast::<usize>());
                if *extra == 0 {
                    *extra = 1;
                    *page = key;
                }
                assert_eq!(*page, key);
            }
            cache.unpin(node, round % 11 == 0);
            if round % 50 == 49 {
                cache.truncate(30);
            }
        }
    }

    /// Two connections take pages from each other, while a third thread empties granules of both. For Miri and the
    /// thread sanitizer as well.
    #[test]
    fn pages_are_taken_from_those_who_use_them() {
        let rounds = if cfg!(miri) { 120 } else { 20_000 };
        let store = store();
        let share = store.share_of(0, None, SHAPE).unwrap();
        std::thread::scope(|scope| {
            let workers: Vec<_> = (0..2)
                .map(|_| {
                    scope.spawn(move || {
                        let cache = ConnectionCache::new(store, SHAPE, true).unwrap();
                        work(&cache, rounds);
                        cache.end();
                    })
                })
                .collect();
            let _taker = RepeatingThread::start(scope, || {
                let mut held = share.lock();
                let least = held.inner().least_requested_chunks().first().copied();
                least.into_iter().for_each(|at| held.empty(at));
                drop(held);
                std::thread::yield_now();
            });
            workers
                .into_iter()
                .for_each(|worker| worker.join().unwrap());
        });
        let view = share.view();
        assert_eq!((view.connections, view.used), (0, 0), "{view:?}");
        assert!(view.misses > 40, "{view:?}");
    }
}
