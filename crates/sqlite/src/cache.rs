//! The pages of one database of one connection, as SQLite sees it.
//!
//! Pages are replaced by S3-FIFO (Yang, Zhang, Qiu, Yue, Vigfusson: "FIFO queues are all you need for cache eviction",
//! SOSP 2023). Pages that are requested once, as in a scan, pass through a small queue and leave. Pages that are
//! requested again, or return soon, join the main queue. A hit changes one byte and moves nothing; an LRU list would
//! write to five nodes.
#![allow(unsafe_code)]
//! # Safety
//! SQLite calls a cache from one thread at a time. Any other thread that changes it holds the lock of its share and has
//! stopped its gate. No other code changes the [`CacheState`].

use std::cell::UnsafeCell;
use std::ffi::{c_int, c_uint};
use std::ptr::null_mut;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

use crate::asymmetric_lock::AsymmetricLock;
use crate::chunk::{SlotLayout, SlotOwner};
use crate::fallible_vec::pushed;
use crate::fork;
use crate::ghosts::Ghosts;
use crate::page_index::{PageHash, PageHeader, PageQueue, QueueKind};
use crate::page_store::PageStore;
use crate::share::{CacheShare, MemberCache, ShareGuard};
use crate::spare_pages::LocalSpares;
use crate::vfs;

/// Inverse of the small queue's part of the pages.
const SMALL_PART: usize = 10;
/// Number of pages that eviction may pass over. The next page is evicted however often it was requested, so that the
/// time of a miss is bounded.
const LOOKS: usize = 64;
/// One hit in this number is timed.
const TIMED_HITS: u64 = 1024;
/// Number of touches of sampled pages that are passed on at once, each page once. The ghost list must find the hits
/// that a cache of another size would not have. A page that returns this soon is a hit at every size.
const TOUCHES: usize = 64;

pub(crate) struct ConnectionCache {
    gate: AsymmetricLock,
    pub number: u64,
    /// Path of the database, if it was known when the cache was created.
    pub path: Option<Vec<u8>>,
    store: &'static PageStore,
    shape: SlotLayout,
    purgeable: bool,
    share: OnceLock<&'static CacheShare>,
    hits: AtomicU64,
    misses: AtomicU64,
    /// Number of its pages; written with the lock of its share.
    pages: AtomicUsize,
    body: UnsafeCell<CacheState>,
}

/// State that only one thread may access at a time.
pub(crate) struct CacheState {
    shape: SlotLayout,
    purgeable: bool,
    /// Number of pages that SQLite wants to keep.
    most: usize,
    pinned: usize,
    largest: c_uint,
    table: PageHash,
    small: PageQueue,
    main: PageQueue,
    ghosts: Ghosts,
    /// Touches of sampled pages that the ghost list has not seen yet.
    touches: Vec<u64>,
    /// Number of the current batch of touches, from 1 up, with wrap-around.
    batch: u8,
    /// Start of a call that is timed until the next one, and true for a hit.
    timed: Option<(Instant, bool)>,
    store: &'static PageStore,
    /// Heap pages kept at hand.
    few: LocalSpares,
}

impl ConnectionCache {
    /// Creates a cache for the database that this thread opens; `None` if there is no memory.
    pub fn new(
        store: &'static PageStore,
        shape: SlotLayout,
        purgeable: bool,
    ) -> Option<ConnectionCache> {
        let table = PageHash::with(64)?;
        let number = store.numbers.fetch_add(1, Ordering::Relaxed);
        Some(ConnectionCache {
            gate: AsymmetricLock::new(store.barrier),
            number,
            path: vfs::of_new_cache(number),
            store,
            shape,
            purgeable,
            share: OnceLock::new(),
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
            pages: AtomicUsize::new(0),
            body: UnsafeCell::new(CacheState {
                shape,
                purgeable,
                most: 100,
                pinned: 0,
                largest: 0,
                table,
                small: PageQueue::EMPTY,
                main: PageQueue::EMPTY,
                ghosts: Ghosts::new(),
                touches: Vec::new(),
                batch: 1,
                timed: None,
                store,
                few: LocalSpares::NONE,
            }),
        })
    }

    /// # Safety
    /// The caller is alone in the cache, as the module header describes, and uses no earlier reference to the body.
    #[allow(clippy::mut_from_ref)]
    unsafe fn body(&self) -> &mut CacheState {
        // SAFETY: as the caller promises.
        unsafe { &mut *self.body.get() }
    }

    /// Returns the address by which its share identifies it.
    fn address(&self) -> SlotOwner {
        std::ptr::from_ref(self).cast()
    }

    /// Returns its share, once it has joined one.
    fn share(&self) -> Option<&'static CacheShare> {
        self.share
            .get()
            .copied()
            .filter(|_| !fork::parent_locks_lost())
    }

    /// Runs `does` alone in the cache, with the lock of the share if there is one.
    fn alone<T>(&self, does: impl FnOnce(&mut CacheState, Option<ShareGuard<'_>>) -> T) -> T {
        let held = self.share().map(CacheShare::lock);
        if held.is_some() {
            self.gate.note_locked_by_owner();
        }
        // SAFETY: this is SQLite's thread, and threads that stop the gate hold the lock.
        does(unsafe { self.body() }, held)
    }

    #[inline]
    pub fn fetch(&self, key: c_uint, create: c_int) -> *mut PageHeader {
        if self.gate.enter() {
            // SAFETY: inside the gate.
            let node = unsafe { self.body() }.hit(key, self);
            self.gate.leave();
            return match node.is_null() && create != 0 {
                true => self.miss(key, create, true),
                false => node,
            };
        }
        self.miss(key, create, false)
    }

    /// Returns a page that is not cached, or was not `looked` up because the gate was stopped. Only this thread adds
    /// pages, so a page that was missing before is still missing.
    #[cold]
    fn miss(&self, key: c_uint, create: c_int, looked: bool) -> *mut PageHeader {
        self.join();
        let Some(share) = self.share() else {
            // SAFETY: without a share no other thread knows this cache.
            let body = unsafe { self.body() };
            let known = if looked {
                null_mut()
            } else {
                body.hit(key, self)
            };
            if !known.is_null() || create == 0 {
                return known;
            }
            let node = body.without_share(create);
            body.begin(node, key);
            self.count(body);
            return node;
        };
        let mut held = share.lock();
        self.gate.note_locked_by_owner();
        if !looked {
            // SAFETY: with the lock.
            let node = unsafe { self.body() }.hit(key, self);
            if !node.is_null() || create == 0 {
                return node;
            }
        }
        let node = self.page_from_share(share, &mut held, create);
        // SAFETY: with the lock, which another thread may have held meanwhile.
        let body = unsafe { self.body() };
        body.begin(node, key);
        if !node.is_null() {
            let is_sampled = share.missed(self.hash(key), &mut body.touches);
            body.begin_batch();
            // SAFETY: the node is live and this cache's.
            unsafe { (*node).batch = if is_sampled { body.batch } else { 0 } };
            body.timed = share.is_timed().then(|| (Instant::now(), false));
            let misses = self.misses.load(Ordering::Relaxed) + 1;
            self.misses.store(misses, Ordering::Relaxed);
        }
        self.count(body);
        node
    }

    /// Returns the key of a page for the ghost list.
    fn hash(&self, key: c_uint) -> u64 {
        (self.number << 32) ^ u64::from(key)
    }

    fn count(&self, body: &CacheState) {
        self.pages.store(body.table.count, Ordering::Relaxed);
    }

    /// Joins a share once it is worthwhile. Small databases, and those that are opened and closed repeatedly, take no
    /// memory from others.
    fn join(&self) {
        let is_for_it = self.store.is_for(self.purgeable);
        if self.share.get().is_some() || !is_for_it {
            return;
        }
        if !self.store.is_time_to_join(self.pages(), self.shape) {
            return;
        }
        let path = self.path.as_ref();
        let Some(share) = self.store.share_of(self.number, path, self.shape) else {
            return;
        };
        if share.lock().join(self) {
            let _ = self.share.set(share);
        }
    }

    /// Returns a page of the share's memory, or from any other source.
    fn page_from_share<'a>(
        &self,
        share: &'a CacheShare,
        held: &mut ShareGuard<'a>,
        create: c_int,
    ) -> *mut PageHeader {
        let (shape, purgeable) = (self.shape, self.purgeable);
        if purgeable && self.store.limits_per_connection() {
            // SAFETY: with the lock.
            if let Some(own) = unsafe { self.body() }.make_room(create) {
                return own;
            }
        }
        if let Some(node) = held.take(shape, self.address()) {
            return node;
        }
        if share.may_claim.load(Ordering::Relaxed) {
            held.release_while(|| share.claim());
            if let Some(node) = held.take(shape, self.address()) {
                return node;
            }
        }
        if purgeable {
            if let Some(node) = held.take_from_others((self.address(), self.pages()), shape, false)
            {
                return node;
            }
            // SAFETY: with the lock.
            let own = unsafe { self.body() }.evict();
            if !own.is_null() {
                return own;
            }
            if create == 1 {
                // SQLite writes changed pages to the file and asks again.
                return null_mut();
            }
            if let Some(node) = held.take_from_others((self.address(), self.pages()), shape, true) {
                return node;
            }
        }
        share.heap_fallbacks.fetch_add(1, Ordering::Relaxed);
        // SAFETY: with the lock.
        unsafe { self.body() }.heap_page()
    }

    #[inline]
    pub fn unpin(&self, node: *mut PageHeader, discard: bool) {
        if !discard && self.gate.enter() {
            // SAFETY: inside the gate; the node is pinned, so it is live.
            unsafe { self.body().unpin(node, self) };
            self.gate.leave();
            return;
        }
        self.alone(|body, mut held| {
            // SAFETY: as above.
            unsafe { body.unpin(node, self) };
            let over = body.purgeable
                && self.store.limits_per_connection()
                && body.table.count > body.most;
            if discard || over {
                body.drop_node(node, held.as_mut());
            }
            self.count(body);
        });
    }

    pub fn rekey(&self, node: *mut PageHeader, key: c_uint) {
        self.alone(|body, mut held| {
            let there = body.table.find(key);
            if !there.is_null() && there != node {
                body.drop_node(there, held.as_mut());
            }
            // SAFETY: the node is pinned, so it is live.
            unsafe {
                body.table.remove(node);
                (*node).key = key;
                (*node).batch = 0;
                body.table.insert(node);
            }
            body.largest = body.largest.max(key);
            self.count(body);
        });
    }

    /// Drops all pages with a key of at least `from`, including those in use.
    pub fn truncate(&self, from: c_uint) {
        self.alone(|body, mut held| {
            if body.table.count > 0 && body.largest >= from {
                let mut place = 0;
                loop {
                    let node = body.table.one_from(from, body.largest, &mut place);
                    if node.is_null() {
                        break;
                    }
                    body.drop_node(node, held.as_mut());
                }
            }
            body.largest = body.largest.min(from.saturating_sub(1));
            self.count(body);
        });
    }

    pub fn set_most(&self, pages: usize) {
        self.alone(|body, held| {
            body.most = pages;
            if self.store.limits_per_connection() || held.is_none() {
                body.shrink(pages, held);
            }
            self.count(body);
        });
    }

    pub fn shrink(&self) {
        self.alone(|body, held| {
            body.shrink(0, held);
            self.count(body);
        });
    }

    /// Leaves the share with all pages.
    pub fn end(&self) {
        self.truncate(0);
        self.alone(|body, held| {
            // SAFETY: the pages at hand were taken in this shape, and no code uses them.
            unsafe { body.store.spare.give_all(body.shape, &mut body.few) };
            if let Some(mut held) = held {
                held.leave(self.address());
            }
        });
    }
}

impl MemberCache for ConnectionCache {
    fn hits(&self) -> u64 {
        self.hits.load(Ordering::Relaxed)
    }

    fn misses(&self) -> u64 {
        self.misses.load(Ordering::Relaxed)
    }

    fn pages(&self) -> usize {
        self.pages.load(Ordering::Relaxed)
    }

    fn donate(&self, count: usize, held: &mut ShareGuard<'_>) -> usize {
        if !self.gate.stop() {
            return 0;
        }
        // SAFETY: the gate is stopped, with the lock.
        let body = unsafe { self.body() };
        let mut given = 0;
        // A page that is not purgeable is the only copy of its content.
        while body.purgeable && given < count {
            let node = body.evict();
            if node.is_null() {
                break;
            }
            body.release(node, Some(&mut *held));
            given += 1;
        }
        self.count(body);
        self.gate.resume();
        given
    }

    fn evict_unpinned(&self, nodes: &[*mut PageHeader], held: &mut ShareGuard<'_>) -> usize {
        if !self.gate.stop() {
            return nodes.len();
        }
        // SAFETY: the gate is stopped, with the lock; the share says that these nodes are this cache's.
        let body = unsafe { self.body() };
        let mut left = 0;
        for node in nodes {
            // SAFETY: as above.
            match unsafe { (**node).is_pinned() } {
                true => left += 1,
                false => body.drop_node(*node, Some(&mut *held)),
            }
        }
        self.count(body);
        self.gate.resume();
        left
    }
}

impl CacheState {
    /// Returns a cached page and pins it; null if it is not cached.
    #[inline]
    fn hit(&mut self, key: c_uint, cache: &ConnectionCache) -> *mut PageHeader {
        let node = self.table.find(key);
        if self.timed.is_some() {
            self.time(cache);
        }
        if node.is_null() {
            return node;
        }
        // SAFETY: nodes in the table are live.
        unsafe {
            (*node).set_used(((*node).used() + 1).min(3));
            if !(*node).is_pinned() {
                (*node).set_pinned(true);
                self.pinned += 1;
            }
            let batch = (*node).batch;
            if batch != 0 && batch != self.batch {
                (*node).batch = self.batch;
                self.touch(cache, key);
            }
        }
        let hits = cache.hits.load(Ordering::Relaxed) + 1;
        cache.hits.store(hits, Ordering::Relaxed);
        if hits.is_multiple_of(TIMED_HITS) && cache.share().is_some() {
            self.timed = Some((Instant::now(), true));
        }
        node
    }

    #[cold]
    fn time(&mut self, cache: &ConnectionCache) {
        if let (Some((since, hit)), Some(share)) = (self.timed.take(), cache.share()) {
            share.timing.record_time(since.elapsed(), hit);
        }
    }

    #[cold]
    fn touch(&mut self, cache: &ConnectionCache, key: c_uint) {
        if pushed(&mut self.touches, cache.hash(key)) && self.touches.len() < TOUCHES {
            return;
        }
        match cache.share() {
            Some(share) => share.touched(&mut self.touches),
            None => self.touches.clear(),
        }
        self.begin_batch();
    }

    /// Starts a new batch, which contains no page yet. A page touched exactly 255 batches ago is skipped once.
    fn begin_batch(&mut self) {
        self.batch = self.batch.checked_add(1).unwrap_or(1);
    }

    /// Applies the cache size that SQLite requests. Returns an evicted page to reuse, or null if too many pages are in
    /// use and SQLite must write some to the file. `None` if there is room.
    fn make_room(&mut self, create: c_int) -> Option<*mut PageHeader> {
        let crowded = self.pinned >= self.most - self.most / 10;
        if create == 1 && crowded {
            return Some(null_mut());
        }
        if self.table.count < self.most {
            return None;
        }
        Some(self.evict()).filter(|own| !own.is_null())
    }

    /// Takes heap memory if there is no share. The cache has the size that SQLite requests, unless it is small and will
    /// join a share.
    fn without_share(&mut self, create: c_int) -> *mut PageHeader {
        let waits = self.store.is_for(true) && !self.store.limits_per_connection();
        let has_waited = || self.store.is_time_to_join(self.table.count, self.shape);
        if self.purgeable
            && (!waits || has_waited())
            && let Some(own) = self.make_room(create)
        {
            return own;
        }
        self.heap_page()
    }

    /// Takes a page from the heap; null if there is no memory.
    fn heap_page(&mut self) -> *mut PageHeader {
        let node = self.store.spare.take(self.shape, &mut self.few);
        if self.purgeable && !node.is_null() {
            self.store
                .heap
                .fetch_add(self.shape.bytes(), Ordering::Relaxed);
        }
        node
    }

    /// Makes a node the page of a key.
    fn begin(&mut self, node: *mut PageHeader, key: c_uint) {
        if node.is_null() {
            return;
        }
        let pages = self.main.length.max(self.table.count);
        let is_back = self.ghosts.returns(key, pages);
        // SAFETY: the node is live, this cache's, and in no queue and no table; SQLite's data follows it.
        unsafe {
            (*node).key = key;
            (*node).set_pinned(true);
            (*node).set_used(0);
            (*node).batch = 0;
            // SQLite checks the first word to see if it must initialise the rest; its own cache clears no more.
            (*node)
                .page
                .extra
                .cast::<*mut PageHeader>()
                .write(null_mut());
            self.table.insert(node);
            let place = if is_back {
                QueueKind::Main
            } else {
                QueueKind::Small
            };
            self.place(node, place);
        }
        self.pinned += 1;
        self.largest = self.largest.max(key);
    }

    /// # Safety
    /// The node is live and in no queue.
    unsafe fn place(&mut self, node: *mut PageHeader, place: QueueKind) {
        // SAFETY: as the caller promises.
        unsafe {
            (*node).place = place;
            match place {
                QueueKind::Small => self.small.push(node),
                QueueKind::Main => self.main.push(node),
                QueueKind::Aside => {}
            }
        }
    }

    /// # Safety
    /// The node is live and of this cache.
    unsafe fn displace(&mut self, node: *mut PageHeader) {
        // SAFETY: as the caller promises.
        unsafe {
            match (*node).place {
                QueueKind::Small => self.small.remove(node),
                QueueKind::Main => self.main.remove(node),
                QueueKind::Aside => {}
            }
            (*node).place = QueueKind::Aside;
        }
    }

    /// # Safety
    /// The node is live and of this cache.
    #[inline]
    unsafe fn unpin(&mut self, node: *mut PageHeader, cache: &ConnectionCache) {
        if self.timed.is_some() {
            self.time(cache);
        }
        // SAFETY: as the caller promises.
        unsafe {
            if (*node).is_pinned() {
                (*node).set_pinned(false);
                self.pinned -= 1;
            }
            if (*node).place == QueueKind::Aside {
                self.place(node, QueueKind::Main);
            }
        }
    }

    /// Removes the least valuable page that is not in use. Its node is then in no queue and no table. Null if all are
    /// in use.
    fn evict(&mut self) -> *mut PageHeader {
        for look in 0.. {
            let small = self.small.length * SMALL_PART >= self.table.count;
            let from_small = !self.small.oldest.is_null() && (small || self.main.length == 0);
            let node = match from_small {
                true => self.small.oldest,
                false => self.main.oldest,
            };
            if node.is_null() {
                return node;
            }
            // SAFETY: nodes in a queue are live.
            unsafe {
                self.displace(node);
                if (*node).is_pinned() {
                    // It joins a queue again when it is unpinned.
                    continue;
                }
                let used = (*node).used();
                if look < LOOKS && (used > 1 || (used > 0 && !from_small)) {
                    (*node).set_used(if from_small { 0 } else { used - 1 });
                    self.place(node, QueueKind::Main);
                    continue;
                }
                if from_small {
                    let pages = self.main.length.max(self.table.count);
                    self.ghosts.dropped((*node).key, pages);
                }
                self.table.remove(node);
            }
            return node;
        }
        null_mut()
    }

    fn drop_node(&mut self, node: *mut PageHeader, held: Option<&mut ShareGuard<'_>>) {
        // SAFETY: the node is live and of this cache.
        unsafe {
            if (*node).is_pinned() {
                self.pinned -= 1;
            }
            self.displace(node);
            self.table.remove(node);
        }
        self.release(node, held);
    }

    fn release(&mut self, node: *mut PageHeader, held: Option<&mut ShareGuard<'_>>) {
        // SAFETY: the node is live, and no code uses it after this. Nodes of a chunk are released with the lock.
        unsafe {
            let chunk = (*node).chunk;
            if chunk.is_null() {
                if self.purgeable {
                    self.store
                        .heap
                        .fetch_sub(self.shape.bytes(), Ordering::Relaxed);
                }
                self.store.spare.give(self.shape, &mut self.few, node);
            } else if let Some(held) = held {
                held.give_back(chunk.cast(), node);
            }
        }
    }

    fn shrink(&mut self, keep: usize, mut held: Option<ShareGuard<'_>>) {
        while self.purgeable && self.table.count > keep {
            let node = self.evict();
            if node.is_null() {
                return;
            }
            self.release(node, held.as_mut());
        }
    }
}
