//! A database's share of the memory: the granules that it has, and the caches of the connections that use them.
#![allow(unsafe_code)]
//! # Safety
//! Pointers to caches are of those that joined and did not leave, which both happens with the lock; pointers to chunks of
//! those that the share holds. Caches are changed from here with the lock and their gates stopped.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use hugeleaf::balance::{Benefit, Ghost};
use hugeleaf::{Component, Granule, Managed};

use crate::chunk::{Blank, Chunk, Owner, Shape};
use crate::filter;
use crate::fork;
use crate::memory::{listed, pushed};
use crate::node::Node;
use crate::timing::Timing;

/// The ghost list knows so many keys. With 4000 it took a tenth of the time of a load whose pages are all here, with 1000 a
/// fortieth; a hit ratio is then off by 0.02 in the mean.
const SAMPLES: usize = 1000;
/// Before the first look the ghost list takes its share to have so many granules: with one it would sample a third of all pages
/// for a second, in which a share may well become as large as this.
const SOON: u64 = 8;
/// A cache that was not used for so many looks gives first.
const IDLE_LOOKS: u32 = 3;
/// So many pages are taken from another cache at once: stopping it costs more than taking a page.
const AT_ONCE: usize = 32;
/// After a look for a cache to take from that found none, so many misses go by without another one.
const LOOK_AGAIN: u32 = 256;
/// So many granules are emptied without releasing the lock: each takes some 0.1 ms.
const VACATED: usize = 8;
/// Of so many granules those are emptied that are worth least.
const CANDIDATES: usize = 64;
/// Of so many misses one is timed.
const TIMED_MISSES: u64 = 16;

/// Where a share has its memory from.
pub(crate) trait Source: std::fmt::Debug + Send + Sync {
    fn granule(&self) -> usize;
    /// A granule of elastic memory, to be cut.
    fn blank(&self, granule: Granule) -> Option<Blank>;
    /// The next granule of a range that never changes; `None` where all are taken, or it is of no range.
    fn next_blank(&self) -> Option<Blank>;
    /// Has the manager give a share what nobody has; `None` where there is nothing now.
    fn claim(&self, component: Component, share: &Share) -> Option<()>;
}

pub(crate) trait Connection {
    fn hits(&self) -> u64;
    fn misses(&self) -> u64;
    fn pages(&self) -> usize;
    /// Takes up to `count` pages that are not in use from it, whose owner is kept out meanwhile, and gives their slots back
    /// to `held`. For another cache of the share, whose lock that is. Returns how many.
    fn give(&self, count: usize, held: &mut Held<'_>) -> usize;
    /// Drops these pages of it, whose owner is kept out meanwhile, but those in use; returns how many those are. For whoever
    /// has the lock of the share.
    fn vacate(&self, nodes: &[*mut Node], held: &mut Held<'_>) -> usize;
}

#[derive(Debug)]
pub(crate) struct Share {
    pub name: String,
    source: &'static dyn Source,
    /// Pages that fit into a granule.
    each: u64,
    component: OnceLock<Component>,
    inner: Mutex<Inner>,
    ghost: Mutex<Ghost>,
    timing: Timing,
    misses: AtomicU64,
    /// Pages that did not fit and came from the heap.
    outside: AtomicU64,
    /// Whether there may be memory that nobody has; looked at anew at each look of the manager.
    may_claim: AtomicBool,
}

#[derive(Debug, Default)]
pub(crate) struct Inner {
    blanks: Vec<Blank>,
    /// Made by [`Chunk::cut`]: nodes point to them.
    chunks: Vec<*mut Chunk>,
    /// Where to begin looking for a free slot.
    next: usize,
    /// Slots that nobody has, of all shapes.
    free: usize,
    caches: Vec<Member>,
    /// So many misses are to go by without a look for a cache to take from.
    skip: u32,
    /// Where to begin looking for a granule to empty.
    turn: usize,
    /// So many looks no cache took part: nothing is in it.
    unused: u32,
}

#[derive(Debug)]
struct Member {
    cache: *const dyn Connection,
    /// Its hits and misses at the last look.
    asked: u64,
    /// So many looks it was not used.
    idle: u32,
}

// SAFETY: pointers in it are followed with the lock only, as the head of this file says.
unsafe impl Send for Inner {}

pub(crate) struct Held<'a> {
    share: &'a Share,
    /// `None` only while it is released.
    inner: Option<MutexGuard<'a, Inner>>,
}

/// How a share stands.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ShareView {
    /// Its database's file name, or what it is for.
    pub name: String,
    /// Connections that use it.
    pub connections: usize,
    /// Pages that it has room for, cut so far.
    pub slots: u64,
    /// Of these, in use.
    pub used: u64,
    /// Pages that were asked for and were there, of the connections that are open.
    pub hits: u64,
    /// Pages that were asked for and were not there.
    pub misses: u64,
    /// Pages that did not fit and came from the heap instead.
    pub outside: u64,
    /// How much longer a miss takes than a hit, in nanoseconds; 0 where too few were timed.
    pub nanoseconds_per_miss: u64,
}

impl Share {
    /// Of databases with such pages: others may take part, and then count as if theirs were as large.
    pub fn new(name: String, source: &'static dyn Source, shape: Shape) -> Share {
        let each = (source.granule() / shape.bytes()).max(1) as u64;
        Share {
            name,
            source,
            each,
            component: OnceLock::new(),
            inner: Mutex::default(),
            ghost: Mutex::new(Ghost::new(SOON * each, each, SAMPLES)),
            timing: Timing::default(),
            misses: AtomicU64::new(0),
            outside: AtomicU64::new(0),
            may_claim: AtomicBool::new(true),
        }
    }

    /// The manager knows it by this.
    pub fn is_managed_as(&self, component: Component) {
        let _ = self.component.set(component);
    }

    pub fn lock(&self) -> Held<'_> {
        Held {
            share: self,
            inner: Some(self.inner.lock().unwrap_or_else(PoisonError::into_inner)),
        }
    }

    /// The lock for as long as a fork takes; `None` where it is not to be had.
    pub fn lock_for_fork(&self) -> Option<MutexGuard<'_, Inner>> {
        fork::lock_in_time(&self.inner)
    }

    pub fn add(&self, blanks: impl IntoIterator<Item = Blank>) {
        self.lock().inner().blanks.extend(blanks);
    }

    /// Whether it is worth asking for more memory.
    pub fn wants_more(&self) -> bool {
        self.may_claim.load(Ordering::Relaxed)
    }

    /// Asks for more memory. The caller must not hold the lock: who gives takes it.
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

    /// A miss of this key. Returns whether the ghost list has it in its sample.
    pub fn missed(&self, hash: u64, touches: &mut Vec<u64>) -> bool {
        self.misses.fetch_add(1, Ordering::Relaxed);
        // In a child it is not used, and its lock may be held there for ever.
        if self.component.get().is_none() || fork::is_child() {
            return false;
        }
        let mut ghost = self.ghost.lock().unwrap_or_else(PoisonError::into_inner);
        for hash in touches.drain(..) {
            ghost.touch(hash);
        }
        ghost.touch(hash)
    }

    /// Touches of pages in the sample. They are forgotten where the list is in use.
    pub fn touched(&self, touches: &mut Vec<u64>) {
        if let Ok(mut ghost) = self.ghost.try_lock() {
            for hash in touches.iter() {
                ghost.touch(*hash);
            }
        }
        touches.clear();
    }

    /// Whether this miss is to be timed.
    pub fn is_timed(&self) -> bool {
        self.misses
            .load(Ordering::Relaxed)
            .is_multiple_of(TIMED_MISSES)
    }

    /// How long it was from a hit, or from a miss, until SQLite's next call.
    pub fn took(&self, time: Duration, hit: bool) {
        self.timing.took(time, hit);
    }

    pub fn outside(&self) {
        self.outside.fetch_add(1, Ordering::Relaxed);
    }

    pub fn view(&self) -> ShareView {
        let mut held = self.lock();
        let inner = held.inner();
        let slots: usize = inner.chunks().map(Chunk::slots).sum();
        let hits = inner.caches.iter().map(|member| member.hits()).sum();
        ShareView {
            name: self.name.clone(),
            connections: inner.caches.len(),
            slots: slots as u64,
            used: (slots - inner.free) as u64,
            hits,
            misses: self.misses.load(Ordering::Relaxed),
            outside: self.outside.load(Ordering::Relaxed),
            nanoseconds_per_miss: self
                .timing
                .miss()
                .map_or(0, |miss| u64::try_from(miss.as_nanos()).unwrap_or(u64::MAX)),
        }
    }
}

impl Member {
    fn cache(&self) -> &dyn Connection {
        // SAFETY: it has joined and did not leave, and the caller has the lock.
        unsafe { &*self.cache }
    }

    fn hits(&self) -> u64 {
        self.cache().hits()
    }

    fn pages(&self) -> usize {
        self.cache().pages()
    }
}

impl<'a> Held<'a> {
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
    pub fn join(&mut self, cache: &(dyn Connection + 'static)) -> bool {
        let member = Member {
            cache,
            asked: 0,
            idle: 0,
        };
        pushed(&mut self.inner().caches, member)
    }

    pub fn leave(&mut self, cache: Owner) {
        let is_other = |member: &Member| !std::ptr::addr_eq(member.cache, cache);
        self.inner().caches.retain(is_other);
    }

    /// A slot for a cache; `None` where none is free.
    pub fn take(&mut self, shape: Shape, owner: Owner) -> Option<*mut Node> {
        let inner = self.inner();
        if let Some(node) = inner.free_slot(shape, owner) {
            return Some(node);
        }
        if !inner.cut_another(shape) {
            return None;
        }
        inner.free_slot(shape, owner)
    }

    pub fn give_back(&mut self, chunk: *mut Chunk, node: *const Node) {
        // SAFETY: the share holds the chunk as long as a node of it is in use.
        unsafe { (*chunk).give_back(node) };
        self.inner().free += 1;
    }

    /// A slot from another cache of the share: one that is not used now, or that has more than its part where this one
    /// has less; from any with `must`.
    pub fn take_from_others(
        &mut self,
        (cache, own): (Owner, usize),
        shape: Shape,
        must: bool,
    ) -> Option<*mut Node> {
        let giver = self.inner().giver(cache, own, must)?;
        // SAFETY: it has joined and did not leave, with the lock.
        let given = unsafe { &*giver }.give(AT_ONCE, self);
        if given == 0 {
            self.inner().skip = LOOK_AGAIN;
        }
        self.take(shape, cache)
    }

    /// Empties granules, those that are worth least first, and no more than `count`.
    fn vacate(&mut self, count: usize) -> Vec<Granule> {
        let mut granules = self.inner().unused(count);
        for at in self.inner().by_worth() {
            if granules.len() >= count {
                break;
            }
            // Chunks are taken out below only, so that numbers stay what they are.
            self.empty(at);
        }
        granules.extend(self.inner().unused(count - granules.len()));
        granules
    }

    /// Drops all pages of a chunk but those in use.
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
            // SAFETY: it has joined and did not leave, with the lock.
            let left = unsafe { &*cache }.vacate(&nodes, self);
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
        // SAFETY: the share holds it, and its lock is held; what nodes point to is changed with it only.
        self.chunks.get(at).map(|chunk| unsafe { &**chunk })
    }

    fn free_slot(&mut self, shape: Shape, owner: Owner) -> Option<*mut Node> {
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

    /// Cuts a granule into slots of a shape: one that is not cut yet, or one of another shape that is empty.
    fn cut_another(&mut self, shape: Shape) -> bool {
        let blank = self.blanks.pop().or_else(|| {
            // Where no slot is free no granule is empty: each miss of a full cache comes by here.
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

    fn uncut(&mut self, at: usize) -> Blank {
        // SAFETY: it is of `Chunk::cut`, nothing of it is in use, and the share forgets it.
        let chunk = unsafe { Box::from_raw(self.chunks.swap_remove(at)) };
        self.free -= chunk.slots();
        chunk.blank
    }

    /// Granules in which nothing is, taken out; no more than `count`.
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

    /// Some chunks by how much is lost with them: by how often their pages were asked for of late. One with a page in use
    /// cannot be emptied, and is not in it.
    fn by_worth(&mut self) -> Vec<usize> {
        let worth = |chunk: &Chunk| -> Option<u64> {
            let mut worth = 0;
            for (_, node) in chunk.used() {
                // SAFETY: a slot in use has a live node. Its owner may change it meanwhile: it is only an opinion.
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

    /// Whom a cache with `own` pages may take from.
    fn giver(&mut self, cache: Owner, own: usize, must: bool) -> Option<*const dyn Connection> {
        if self.skip > 0 && !must {
            self.skip -= 1;
            return None;
        }
        let others = self.caches.iter();
        let others = others.filter(|m| !std::ptr::addr_eq(m.cache, cache) && m.pages() > 0);
        let idle = |member: &&Member| member.idle >= IDLE_LOOKS;
        let most = |member: &&Member| member.pages();
        if let Some(member) = others.clone().filter(idle).max_by_key(most) {
            return Some(member.cache);
        }
        let largest = others.max_by_key(most);
        let slots: usize = self.chunks().map(Chunk::slots).sum();
        let active = self.caches.iter().filter(|member| !idle(member)).count();
        let part = slots / active.max(1);
        let fair = |member: &&Member| own < part && member.pages() > part;
        let found = largest.filter(|member| must || fair(member));
        if found.is_none() {
            self.skip = LOOK_AGAIN;
        }
        found.map(|member| member.cache)
    }

    fn granules(&self) -> u64 {
        (self.chunks.len() + self.blanks.len()) as u64
    }

    fn look(&mut self) {
        self.unused = match self.caches.is_empty() {
            true => self.unused.saturating_add(1),
            false => 0,
        };
        for member in &mut self.caches {
            let asked = member.hits() + member.cache().misses();
            member.idle = match asked == member.asked {
                true => member.idle.saturating_add(1),
                false => 0,
            };
            member.asked = asked;
        }
        self.skip = 0;
    }
}

/// A share as the manager sees it.
pub(crate) struct Managee(pub &'static Share);

impl Managed for Managee {
    fn benefit(&mut self, elapsed: Duration) -> Benefit {
        let share = self.0;
        let capacity = {
            let mut held = share.lock();
            held.inner().look();
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
        // The lock is released now and then: those who miss a page wait for it.
        while granules.len() < count {
            let some = self.0.lock().vacate(VACATED.min(count - granules.len()));
            if some.is_empty() {
                break;
            }
            granules.extend(some);
        }
        granules
    }

    /// A database that is closed takes its pages with it. One that is opened again soon finds the memory still here.
    fn is_unused(&self) -> bool {
        self.0.lock().inner().unused >= IDLE_LOOKS
    }

    fn is_frozen(&self) -> bool {
        !filter::is_none_new()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;
    use crate::cache::Cache;
    use crate::store::{Origin, PagesOf, Store};

    const SHAPE: Shape = Shape {
        page: 512,
        extra: 64,
    };

    /// A store of four granules, of 16 pages each.
    fn store() -> &'static Store {
        let granule = 16 * SHAPE.bytes();
        let memory = vec![[0_u64; 8]; 4 * granule / 64 + 1].leak();
        // Aligned to a line, as pages are.
        let start = memory.as_mut_ptr().cast::<u8>();
        let start = start
            .wrapping_add(start.align_offset(64))
            .expose_provenance();
        let store = Box::leak(Box::new(Store::new(PagesOf::Files)));
        store.set_source(Origin::Fixed {
            start,
            granule,
            granules: 4,
            next: AtomicUsize::new(0),
        });
        store
    }

    /// Asks for pages as SQLite does, and sees that each holds its key or is new.
    fn work(cache: &Cache, rounds: u32) {
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
                cache.cut(30);
            }
        }
    }

    /// For Miri and the thread sanitizer as well: two connections take pages from each other, while a third thread empties
    /// granules of both.
    #[test]
    fn pages_are_taken_from_those_who_use_them() {
        let rounds = if cfg!(miri) { 120 } else { 20_000 };
        let store = store();
        let share = store.share_of(0, None, SHAPE).unwrap();
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let workers: Vec<_> = (0..2)
                .map(|_| {
                    scope.spawn(move || {
                        let cache = Cache::new(store, SHAPE, true).unwrap();
                        work(&cache, rounds);
                        cache.end();
                    })
                })
                .collect();
            let is_over = &is_over;
            scope.spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    let mut held = share.lock();
                    let least = held.inner().by_worth().first().copied();
                    least.into_iter().for_each(|at| held.empty(at));
                    drop(held);
                    std::thread::yield_now();
                }
            });
            workers
                .into_iter()
                .for_each(|worker| worker.join().unwrap());
            is_over.store(true, Ordering::Relaxed);
        });
        let view = share.view();
        assert_eq!((view.connections, view.used), (0, 0), "{view:?}");
        assert!(view.misses > 40, "{view:?}");
    }
}
