//! The functions that SQLite calls, and their registration.
#![allow(unsafe_code)]
//! # Safety
//! SQLite calls the functions of [`METHODS`] with their own results: a cache from [`create`] until [`destroy`], a page
//! from [`fetch`] until it is unpinned with `discard`, or its cache is truncated or destroyed. It never uses one cache
//! in two threads at a time.

use std::ffi::{c_int, c_uint, c_void};
use std::ptr::null_mut;
use std::sync::OnceLock;

use crate::cache::ConnectionCache;
use crate::chunk::SlotLayout;
use crate::ffi::{
    Api, PcacheMethods, SQLITE_CONFIG_PCACHE_HDRSZ, SQLITE_CONFIG_PCACHE2, SQLITE_OK, SqlitePage,
};
use crate::fork::ForkLocks;
use crate::page_store::{ForkGuards, PageStore};
use crate::share::MemberCache;
use crate::vfs;

static STORE: OnceLock<PageStore> = OnceLock::new();

/// Sets the store of this process; `None` if it was set before.
pub(crate) fn set_store(store: PageStore) -> Option<&'static PageStore> {
    STORE.set(store).ok()?;
    STORE.get()
}

pub(crate) fn store() -> Option<&'static PageStore> {
    STORE.get()
}

/// The locks of this process's store.
pub(crate) struct StoreLocks;

impl ForkLocks for StoreLocks {
    type Held = ForkGuards;

    fn stop() -> Option<(ForkGuards, bool)> {
        store().map(PageStore::stop)
    }
}

/// Registers the functions with SQLite.
///
/// # Errors
/// SQLite's status: `SQLITE_MISUSE` if it is already in use.
pub(crate) fn give(api: &Api) -> Result<(), c_int> {
    // SAFETY: this option takes a pointer to methods, which SQLite copies.
    let done = unsafe { (api.config)(SQLITE_CONFIG_PCACHE2, &raw const METHODS) };
    match done {
        SQLITE_OK => Ok(()),
        other => Err(other),
    }
}

/// Returns the size in bytes of SQLite's data for a page, including the header of its own cache.
pub(crate) fn header(api: &Api) -> Result<usize, c_int> {
    let mut header: c_int = 0;
    // SAFETY: this option takes a pointer to an int, which it fills in.
    let done = unsafe { (api.config)(SQLITE_CONFIG_PCACHE_HDRSZ, &raw mut header) };
    match done {
        SQLITE_OK => usize::try_from(header).map_err(|_| done),
        other => Err(other),
    }
}

static METHODS: PcacheMethods = PcacheMethods {
    version: 1,
    arg: null_mut(),
    init,
    shutdown,
    create,
    cachesize,
    pagecount,
    fetch,
    unpin,
    rekey,
    truncate,
    destroy,
    shrink,
};

unsafe extern "C" fn init(_: *mut c_void) -> c_int {
    SQLITE_OK
}

unsafe extern "C" fn shutdown(_: *mut c_void) {}

unsafe extern "C" fn create(page: c_int, extra: c_int, purgeable: c_int) -> *mut c_void {
    let (Some(store), Ok(page), Ok(extra)) =
        (store(), usize::try_from(page), usize::try_from(extra))
    else {
        return null_mut();
    };
    let Some(cache) = ConnectionCache::new(store, SlotLayout { page, extra }, purgeable != 0)
    else {
        return null_mut();
    };
    // SAFETY: the layout is not empty. A plain allocation, not a box, because SQLite must be told if memory is short.
    unsafe {
        let place = std::alloc::alloc(std::alloc::Layout::new::<ConnectionCache>())
            .cast::<ConnectionCache>();
        if !place.is_null() {
            place.write(cache);
        }
        place.cast()
    }
}

/// Returns the cache of a pointer from SQLite.
///
/// # Safety
/// The pointer comes from [`create`] and was not destroyed.
unsafe fn cache<'a>(pointer: *mut c_void) -> &'a ConnectionCache {
    // SAFETY: as the caller promises.
    unsafe { &*pointer.cast::<ConnectionCache>() }
}

unsafe extern "C" fn cachesize(of: *mut c_void, pages: c_int) {
    // SAFETY: SQLite passes a pointer from `create`, in one thread at a time; so for all below.
    unsafe { cache(of) }.set_most(usize::try_from(pages).unwrap_or(0));
}

unsafe extern "C" fn pagecount(of: *mut c_void) -> c_int {
    // SAFETY: as above.
    let pages = unsafe { cache(of) }.pages();
    c_int::try_from(pages).unwrap_or(c_int::MAX)
}

unsafe extern "C" fn fetch(of: *mut c_void, key: c_uint, create: c_int) -> *mut SqlitePage {
    // SAFETY: as above. The page is the node's first field.
    unsafe { cache(of) }.fetch(key, create).cast()
}

unsafe extern "C" fn unpin(of: *mut c_void, page: *mut SqlitePage, discard: c_int) {
    // SAFETY: as above. A page is the first field of its node.
    unsafe { cache(of) }.unpin(page.cast(), discard != 0);
}

unsafe extern "C" fn rekey(of: *mut c_void, page: *mut SqlitePage, _: c_uint, key: c_uint) {
    // SAFETY: as above.
    unsafe { cache(of) }.rekey(page.cast(), key);
}

unsafe extern "C" fn truncate(of: *mut c_void, from: c_uint) {
    // SAFETY: as above.
    unsafe { cache(of) }.truncate(from);
}

unsafe extern "C" fn destroy(of: *mut c_void) {
    // SAFETY: as above. Other threads may access it until it has left its share.
    unsafe { cache(of) }.end();
    // SAFETY: SQLite drops the pointer, so this code owns it again.
    let cache = unsafe { Box::from_raw(of.cast::<ConnectionCache>()) };
    if let Some(store) = store() {
        store.ended(cache.number, cache.path, vfs::successor());
    }
}

unsafe extern "C" fn shrink(of: *mut c_void) {
    // SAFETY: as above.
    unsafe { cache(of) }.shrink();
}
