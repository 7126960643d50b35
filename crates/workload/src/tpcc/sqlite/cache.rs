//! SQLite's page cache in memory of ours: every page of every database of this process, and what
//! SQLite keeps for each, is on pages of the size that was asked for, or in one mapping that is
//! moved from base to large pages and back meanwhile.
//!
//! SQLite's own cache can be given a buffer, too, but then all connections share one lock that they
//! take at every page. Here each connection has its own pages, taken from the buffer for good, and
//! no lock but when it takes them.
#![allow(unsafe_code)]
//! # Safety
//! SQLite calls the functions of [`METHODS`] with what it was given by them: a cache from
//! [`create`] until [`destroy`], a page from [`fetch`] until it is unpinned with `discard`, or its
//! cache is cut or destroyed. It never uses one cache in two threads at a time. Pages are reached by
//! pointers, since SQLite holds them that way; each is in the memory of [`Pool`], which is never
//! returned, or in a heap allocation of its own.

use std::alloc::{Layout, alloc, dealloc};
use std::ffi::{c_int, c_uint, c_void};
use std::ptr::{addr_of_mut, null_mut};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use hugeleaf::MemoryError;
use hugeleaf_host::{Held, Host};
use hugeleaf_sys::{Advice, Memory, Space, name_own};
use hugeleaf_units::{Bytes, PageSize, Range};
use rusqlite::ffi;

use crate::chase::{ChaseMemory, PageArm};
use crate::tpcc::error::TpccError;

/// A database's page; SQLite's usual one, and not a page size of the host.
pub(crate) const DATABASE_PAGE: usize = 4096; // not a page size

/// Whose pages are in the cache. Those of other databases come from the heap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Of {
    /// Databases in files: a page can be read again, so one that nobody uses may go.
    Files,
    /// Databases in memory: a page is all there is of its content.
    Memory,
}

/// The memory that caches take their pages from.
#[derive(Debug)]
struct Pool {
    memory: ChaseMemory,
    of: Of,
    start: usize,
    /// What SQLite wants in addition to a page, at most.
    extra: usize,
    /// Pages that nobody has.
    free: Mutex<Free>,
    /// Pages that did not fit and came from the heap.
    outside: AtomicU64,
}

/// Pages that nobody has: those never used, and those returned.
#[derive(Debug)]
struct Free {
    next: usize,
    slots: usize,
    back: Vec<usize>,
}

static POOL: OnceLock<Pool> = OnceLock::new();

/// The cache of this process, once it is installed.
#[derive(Debug, Clone, Copy)]
pub struct SqliteCache(&'static Pool);

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
        let pages = cache.get() / DATABASE_PAGE as u64;
        let each = slot_bytes(extra()?);
        let memory = ChaseMemory::take(arm, Bytes(pages.saturating_mul(each)), host)?;
        if locked {
            lock(&memory)?;
        }
        give(memory, Of::Files)
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
        give(space.into(), Of::Memory)
    }

    /// Its address.
    pub const fn range(&self) -> Range {
        self.0.memory.range()
    }

    /// The pages that it has room for, and those in use now.
    pub fn slots(&self) -> (u64, u64) {
        let free = self.0.free.lock().unwrap_or_else(PoisonError::into_inner);
        let used = free.next - free.back.len();
        (free.slots as u64, used as u64)
    }

    /// All of it by the pages that it is on, read back now. `None` where this process cannot tell.
    ///
    /// # Errors
    /// Those of reading the page map.
    pub fn pages(&self) -> Result<Option<Vec<Held>>, MemoryError> {
        self.0.memory.pages(self.length())
    }

    /// How large it is.
    pub fn length(&self) -> Bytes {
        self.range().len()
    }

    /// Pages that did not fit and came from the heap instead.
    pub fn outside(&self) -> u64 {
        self.0.outside.load(Ordering::Relaxed)
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
fn give(memory: ChaseMemory, of: Of) -> Result<SqliteCache, TpccError> {
    let too_big = |_| TpccError::Cache(ffi::SQLITE_TOOBIG);
    let (extra, range) = (extra()?, memory.range());
    let slots = range.len().get() / slot_bytes(extra);
    let pool = Pool {
        start: usize::try_from(range.start()).map_err(too_big)?,
        memory,
        of,
        extra,
        free: Mutex::new(Free {
            next: 0,
            slots: usize::try_from(slots).map_err(too_big)?,
            back: Vec::new(),
        }),
        outside: AtomicU64::new(0),
    };
    let taken = |_| TpccError::Cache(ffi::SQLITE_MISUSE);
    POOL.set(pool).map_err(taken)?;
    // Threads have connections of their own; nobody reads SQLite's statistics of its heap.
    // SAFETY: this option takes nothing.
    check(unsafe { ffi::sqlite3_config(ffi::SQLITE_CONFIG_MULTITHREAD) })?;
    // SAFETY: this option takes an int.
    check(unsafe { ffi::sqlite3_config(ffi::SQLITE_CONFIG_MEMSTATUS, 0 as c_int) })?;
    // SAFETY: this option takes a pointer to methods, which SQLite copies.
    check(unsafe {
        ffi::sqlite3_config(
            ffi::SQLITE_CONFIG_PCACHE2,
            std::ptr::from_ref(&METHODS.0).cast_mut(),
        )
    })?;
    Ok(SqliteCache(POOL.wait()))
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

/// What SQLite wants in addition to a page, at most.
fn extra() -> Result<usize, TpccError> {
    let mut header: c_int = 0;
    // SAFETY: this option takes a pointer to an int, which it fills in.
    check(unsafe {
        ffi::sqlite3_config(
            ffi::SQLITE_CONFIG_PCACHE_HDRSZ,
            std::ptr::from_mut(&mut header),
        )
    })?;
    usize::try_from(header).map_err(|_| TpccError::Cache(header))
}

fn check(result: c_int) -> Result<(), TpccError> {
    match result {
        ffi::SQLITE_OK => Ok(()),
        other => Err(TpccError::Cache(other)),
    }
}

/// A page as SQLite knows it, and where it stands here. What SQLite wants in addition follows it.
#[repr(C)]
struct Node {
    page: ffi::sqlite3_pcache_page,
    key: c_uint,
    pinned: bool,
    of_heap: bool,
    /// The next with the same place in the table.
    next: *mut Node,
    /// Neighbours in the order of use; of pages that are not pinned.
    newer: *mut Node,
    older: *mut Node,
}

/// A node with what follows it, in whole cache lines.
const fn node_bytes(extra: usize) -> usize {
    (size_of::<Node>() + extra).next_multiple_of(64)
}

/// A page with its node.
const fn slot_bytes(extra: usize) -> u64 {
    (DATABASE_PAGE + node_bytes(extra)) as u64
}

/// The pages of one database of one connection.
struct Cache {
    page: usize,
    extra: usize,
    /// Whether pages that are not pinned may be dropped.
    purgeable: bool,
    /// So many pages are to be kept.
    most: usize,
    count: usize,
    pinned: usize,
    /// No page has a larger key.
    largest: c_uint,
    table: Vec<*mut Node>,
    newest: *mut Node,
    oldest: *mut Node,
}

impl Cache {
    fn place(&self, key: c_uint) -> usize {
        // As long as a power of two.
        key as usize & (self.table.len() - 1)
    }

    fn find(&self, key: c_uint) -> *mut Node {
        let mut node = self.table[self.place(key)];
        // SAFETY: chains hold live nodes of this cache, and end in null.
        unsafe {
            while !node.is_null() && (*node).key != key {
                node = (*node).next;
            }
        }
        node
    }

    fn fetch(&mut self, key: c_uint, create: c_int) -> *mut Node {
        let node = self.find(key);
        if !node.is_null() {
            self.pin(node);
            return node;
        }
        // Where nine of ten are pinned SQLite had better write some of them first.
        let crowded = self.purgeable && self.pinned >= self.most - self.most / 10;
        if create == 0 || (create == 1 && crowded) {
            return null_mut();
        }
        let node = self.fresh(create);
        if node.is_null() {
            return node;
        }
        // SAFETY: the node is ours and in no chain, and has `extra` bytes behind it.
        unsafe {
            (*node).key = key;
            (*node).pinned = true;
            std::ptr::write_bytes((*node).page.pExtra.cast::<u8>(), 0, self.extra);
        }
        self.pinned += 1;
        self.largest = self.largest.max(key);
        self.insert(node);
        node
    }

    /// A page for another key: the one used longest ago where there are enough, else another one.
    fn fresh(&mut self, create: c_int) -> *mut Node {
        if self.purgeable && self.count >= self.most && !self.oldest.is_null() {
            return self.reuse();
        }
        let node = self.pooled();
        if !node.is_null() {
            return node;
        }
        let fits = self.fits_pool();
        match (fits && self.purgeable, self.oldest.is_null(), create) {
            // The memory is used up: make do with what is here, and take none from the heap but
            // where SQLite cannot go on without.
            (true, false, _) => self.reuse(),
            (true, true, 1) => null_mut(),
            _ => self.of_the_heap(fits),
        }
    }

    fn reuse(&mut self) -> *mut Node {
        let node = self.oldest;
        self.pin(node);
        self.pinned -= 1;
        self.remove(node);
        node
    }

    fn fits_pool(&self) -> bool {
        POOL.get().is_some_and(|pool| {
            let is_for_it = self.purgeable == (pool.of == Of::Files);
            is_for_it && self.page == DATABASE_PAGE && self.extra <= pool.extra
        })
    }

    fn pooled(&self) -> *mut Node {
        let Some(pool) = POOL.get().filter(|_| self.fits_pool()) else {
            return null_mut();
        };
        let Some((slot, slots)) = pool.take() else {
            return null_mut();
        };
        let buffer = pool.start + slot * DATABASE_PAGE;
        let node = pool.start + slots * DATABASE_PAGE + slot * node_bytes(pool.extra);
        let node = node as *mut Node;
        // SAFETY: slots × (page + node) bytes fit into the memory, both parts are aligned to a
        // cache line, and nobody else has this slot.
        unsafe { set_up(node, buffer as *mut c_void, false) };
        node
    }

    /// Temporary tables, and what did not fit.
    fn of_the_heap(&self, counts: bool) -> *mut Node {
        if let Some(pool) = POOL.get().filter(|_| counts) {
            pool.outside.fetch_add(1, Ordering::Relaxed);
        }
        // SAFETY: the layout is not empty.
        let memory = unsafe { alloc(self.heap_layout()) };
        if memory.is_null() {
            return null_mut();
        }
        let node = memory.cast::<Node>();
        // SAFETY: the allocation holds the node, what follows it, and the page, in this order.
        unsafe {
            let buffer = memory.add(node_bytes(self.extra));
            set_up(node, buffer.cast(), true);
        }
        node
    }

    fn heap_layout(&self) -> Layout {
        let size = node_bytes(self.extra) + self.page;
        Layout::from_size_align(size, 64).expect("a page and a node are small")
    }

    /// Gives a page back that is in no chain.
    fn release(&mut self, node: *mut Node) {
        // SAFETY: the node is live, and nobody uses it after this.
        unsafe {
            if (*node).of_heap {
                dealloc(node.cast(), self.heap_layout());
            } else if let Some(pool) = POOL.get() {
                pool.give_back(((*node).page.pBuf as usize - pool.start) / DATABASE_PAGE);
            }
        }
    }

    /// Takes a page out of the order of use.
    fn pin(&mut self, node: *mut Node) {
        // SAFETY: the node is live, and its neighbours are where they say.
        unsafe {
            if (*node).pinned {
                return;
            }
            let (newer, older) = ((*node).newer, (*node).older);
            match newer.is_null() {
                true => self.newest = older,
                false => (*newer).older = older,
            }
            match older.is_null() {
                true => self.oldest = newer,
                false => (*older).newer = newer,
            }
            (*node).pinned = true;
        }
        self.pinned += 1;
    }

    fn unpin(&mut self, node: *mut Node, discard: bool) {
        self.pinned -= 1;
        if discard || (self.purgeable && self.count > self.most) {
            self.remove(node);
            self.release(node);
            return;
        }
        // SAFETY: the node is live and, being pinned, not in the order of use.
        unsafe {
            (*node).pinned = false;
            (*node).newer = null_mut();
            (*node).older = self.newest;
            match self.newest.is_null() {
                true => self.oldest = node,
                false => (*self.newest).newer = node,
            }
        }
        self.newest = node;
    }

    fn insert(&mut self, node: *mut Node) {
        if self.count >= self.table.len() {
            self.grow();
        }
        // SAFETY: the node is live and in no chain.
        unsafe {
            let place = self.place((*node).key);
            (*node).next = self.table[place];
            self.table[place] = node;
        }
        self.count += 1;
    }

    fn grow(&mut self) {
        let longer = vec![null_mut(); self.table.len() * 2];
        for first in std::mem::replace(&mut self.table, longer) {
            let mut node = first;
            while !node.is_null() {
                // SAFETY: chains hold live nodes; each is read before its link is changed.
                unsafe {
                    let next = (*node).next;
                    let place = self.place((*node).key);
                    (*node).next = self.table[place];
                    self.table[place] = node;
                    node = next;
                }
            }
        }
    }

    /// Takes a page out of its chain.
    fn remove(&mut self, node: *mut Node) {
        // SAFETY: the node is live and in the chain of its key.
        unsafe {
            let place = self.place((*node).key);
            let mut link: *mut *mut Node = &raw mut self.table[place];
            while *link != node {
                link = addr_of_mut!((**link).next);
            }
            *link = (*node).next;
        }
        self.count -= 1;
    }

    fn rekey(&mut self, node: *mut Node, key: c_uint) {
        let there = self.find(key);
        if !there.is_null() && there != node {
            self.drop_page(there);
        }
        self.remove(node);
        // SAFETY: the node is live and in no chain.
        unsafe { (*node).key = key };
        self.largest = self.largest.max(key);
        self.insert(node);
    }

    /// Drops a page, pinned or not.
    fn drop_page(&mut self, node: *mut Node) {
        self.pin(node);
        self.pinned -= 1;
        self.remove(node);
        self.release(node);
    }

    /// Drops all pages from a key on.
    fn cut(&mut self, from: c_uint) {
        if from > self.largest {
            return;
        }
        // SQLite cuts a few pages off the end often, and rarely all.
        if ((self.largest - from) as usize) < self.table.len() {
            for key in from..=self.largest {
                let node = self.find(key);
                if !node.is_null() {
                    self.drop_page(node);
                }
            }
        } else {
            for place in 0..self.table.len() {
                let mut node = self.table[place];
                while !node.is_null() {
                    // SAFETY: the node is live; its link is read before it goes.
                    let (key, next) = unsafe { ((*node).key, (*node).next) };
                    if key >= from {
                        self.drop_page(node);
                    }
                    node = next;
                }
            }
        }
        self.largest = from.saturating_sub(1);
    }

    /// Drops what is not pinned, down to `keep` pages.
    fn shrink(&mut self, keep: usize) {
        while self.count > keep && !self.oldest.is_null() {
            self.drop_page(self.oldest);
        }
    }
}

impl Pool {
    /// A slot that nobody has, and how many there are.
    fn take(&self) -> Option<(usize, usize)> {
        let mut free = self.free.lock().ok()?;
        let slots = free.slots;
        if let Some(slot) = free.back.pop() {
            return Some((slot, slots));
        }
        (free.next < slots).then(|| {
            free.next += 1;
            (free.next - 1, slots)
        })
    }

    fn give_back(&self, slot: usize) {
        if let Ok(mut free) = self.free.lock() {
            free.back.push(slot);
        }
    }
}

/// Makes a node of memory that nobody uses.
///
/// # Safety
/// `node` is aligned and has room for what follows it; `buffer` has room for a page.
unsafe fn set_up(node: *mut Node, buffer: *mut c_void, of_heap: bool) {
    // SAFETY: as the caller promises.
    unsafe {
        let extra = node.add(1).cast::<c_void>();
        node.write(Node {
            page: ffi::sqlite3_pcache_page {
                pBuf: buffer,
                pExtra: extra,
            },
            key: 0,
            pinned: true,
            of_heap,
            next: null_mut(),
            newer: null_mut(),
            older: null_mut(),
        });
    }
}

/// The functions that SQLite calls.
struct Methods(ffi::sqlite3_pcache_methods2);

// SAFETY: it holds functions, and a pointer that is null and that nobody uses.
unsafe impl Sync for Methods {}

static METHODS: Methods = Methods(ffi::sqlite3_pcache_methods2 {
    iVersion: 1,
    pArg: null_mut(),
    xInit: Some(init),
    xShutdown: Some(shutdown),
    xCreate: Some(create),
    xCachesize: Some(cachesize),
    xPagecount: Some(pagecount),
    xFetch: Some(fetch),
    xUnpin: Some(unpin),
    xRekey: Some(rekey),
    xTruncate: Some(truncate),
    xDestroy: Some(destroy),
    xShrink: Some(shrink),
});

extern "C" fn init(_: *mut c_void) -> c_int {
    ffi::SQLITE_OK
}

extern "C" fn shutdown(_: *mut c_void) {}

extern "C" fn create(page: c_int, extra: c_int, purgeable: c_int) -> *mut ffi::sqlite3_pcache {
    /// Until SQLite says how many it wants.
    const FEW: usize = 100;
    let cache = Cache {
        page: usize::try_from(page).unwrap_or(0),
        extra: usize::try_from(extra).unwrap_or(0),
        purgeable: purgeable != 0,
        most: FEW,
        count: 0,
        pinned: 0,
        largest: 0,
        // A power of two.
        table: vec![null_mut(); 64],
        newest: null_mut(),
        oldest: null_mut(),
    };
    Box::into_raw(Box::new(cache)).cast()
}

/// The cache that a pointer of SQLite's means.
///
/// # Safety
/// The pointer comes from [`create`], was not destroyed, and nobody else uses it now.
unsafe fn cache<'a>(pointer: *mut ffi::sqlite3_pcache) -> &'a mut Cache {
    // SAFETY: as the caller promises.
    unsafe { &mut *pointer.cast::<Cache>() }
}

unsafe extern "C" fn cachesize(of: *mut ffi::sqlite3_pcache, pages: c_int) {
    // SAFETY: SQLite hands in what it was given, in one thread at a time; so for all below.
    let cache = unsafe { cache(of) };
    cache.most = usize::try_from(pages).unwrap_or(0);
    if cache.purgeable {
        cache.shrink(cache.most);
    }
}

unsafe extern "C" fn pagecount(of: *mut ffi::sqlite3_pcache) -> c_int {
    // SAFETY: as above.
    let cache = unsafe { cache(of) };
    c_int::try_from(cache.count).unwrap_or(c_int::MAX)
}

unsafe extern "C" fn fetch(
    of: *mut ffi::sqlite3_pcache,
    key: c_uint,
    create: c_int,
) -> *mut ffi::sqlite3_pcache_page {
    // SAFETY: as above. The page is the node's first field.
    unsafe { cache(of) }.fetch(key, create).cast()
}

unsafe extern "C" fn unpin(
    of: *mut ffi::sqlite3_pcache,
    page: *mut ffi::sqlite3_pcache_page,
    discard: c_int,
) {
    // SAFETY: as above. A page is the first field of its node.
    unsafe { cache(of) }.unpin(page.cast(), discard != 0);
}

unsafe extern "C" fn rekey(
    of: *mut ffi::sqlite3_pcache,
    page: *mut ffi::sqlite3_pcache_page,
    _: c_uint,
    key: c_uint,
) {
    // SAFETY: as above.
    unsafe { cache(of) }.rekey(page.cast(), key);
}

unsafe extern "C" fn truncate(of: *mut ffi::sqlite3_pcache, from: c_uint) {
    // SAFETY: as above.
    unsafe { cache(of) }.cut(from);
}

unsafe extern "C" fn destroy(of: *mut ffi::sqlite3_pcache) {
    // SAFETY: as above; SQLite forgets the pointer, and it is ours again.
    let mut cache = unsafe { Box::from_raw(of.cast::<Cache>()) };
    cache.cut(0);
}

unsafe extern "C" fn shrink(of: *mut ffi::sqlite3_pcache) {
    // SAFETY: as above.
    let cache = unsafe { cache(of) };
    if cache.purgeable {
        cache.shrink(0);
    }
}
