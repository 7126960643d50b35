//! Finds the database of a cache. SQLite does not pass it when it creates a cache, but opens the database's file just
//! before, in the same thread. The default VFS therefore gets another `xOpen`, which records the name and passes the
//! call on.
#![allow(unsafe_code)]
//! # Safety
//! SQLite keeps a registered VFS until the process ends, so the copy lives as long. `xOpen` gets its own VFS and passes
//! the original on, because the original's functions may read it.

use std::cell::Cell;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicPtr, Ordering};

use crate::ffi::{Api, SQLITE_MISUSE, SQLITE_NOTFOUND, SQLITE_OK, SQLITE_OPEN_MAIN_DB, Vfs};

thread_local! {
    // None of these has a destructor: SQLite may be used after a thread, or the program, has run its destructors.

    /// Database whose file this thread opened last, until its cache is created: a box, or null.
    static OPENED: Cell<*mut Vec<u8>> = const { Cell::new(null_mut()) };
    /// Cache without a name that this thread created last. If SQLite finds that pages are larger than assumed, it
    /// creates another cache and destroys the first one at once. The second cache then inherits the name of the first.
    static MADE: Cell<u64> = const { Cell::new(0) };
}

/// The default VFS of a SQLite, placed before its previous one.
#[derive(Debug)]
struct WatchedVfs {
    vfs: Vfs,
    original: *mut Vfs,
}

/// Maximum number of SQLite copies in one process.
const COPIES: usize = 8;

/// One VFS per copy of SQLite; boxes that are never freed.
static WATCHED: [AtomicPtr<WatchedVfs>; COPIES] = [const { AtomicPtr::new(null_mut()) }; COPIES];

/// Returns the VFS behind one of these copies. A program may have copied it again; then a function that only this
/// SQLite has identifies it.
fn original_of(vfs: *const Vfs) -> Option<*mut Vfs> {
    let all = || {
        let all = { WATCHED.iter() }.map(|place| place.load(Ordering::Acquire));
        // SAFETY: a non-null entry is a box that is never freed.
        all.take_while(|watched| !watched.is_null())
            .map(|watched| unsafe { &*watched })
    };
    let mut same = all().filter(|watched| std::ptr::eq(&raw const watched.vfs, vfs));
    // SAFETY: SQLite passes a VFS.
    let like = |watched: &&WatchedVfs| unsafe { watched.vfs.first[0] == (*vfs).first[0] };
    let found = same.next().or_else(|| all().find(like));
    found.map(|watched| watched.original)
}

/// Makes SQLite open files through this module, which initialises SQLite.
pub(crate) fn watch(api: &Api) -> Result<(), c_int> {
    // SAFETY: a null name is the default one.
    let original = unsafe { (api.vfs_find)(null()) }.cast::<Vfs>();
    if original.is_null() {
        return Err(SQLITE_NOTFOUND);
    }
    // SAFETY: SQLite's own, with the fields of its version; fields that an older version lacks are not read.
    let mut vfs = unsafe { read(original) };
    vfs.open = Some(open);
    vfs.name = c"hugeleaf".as_ptr();
    vfs.next = null_mut();
    let watched = Box::into_raw(Box::new(WatchedVfs { vfs, original }));
    let is_placed = WATCHED.iter().any(|place| {
        let (ok, fail) = (Ordering::AcqRel, Ordering::Relaxed);
        place
            .compare_exchange(null_mut(), watched, ok, fail)
            .is_ok()
    });
    if !is_placed {
        return Err(SQLITE_MISUSE);
    }
    // SAFETY: it lives as long as the process.
    match unsafe { (api.vfs_register)((&raw mut (*watched).vfs).cast(), 1) } {
        SQLITE_OK => Ok(()),
        other => Err(other),
    }
}

/// # Safety
/// `vfs` is one of SQLite's, of any version.
unsafe fn read(vfs: *const Vfs) -> Vfs {
    // SAFETY: as the caller promises: fields up to its version are there.
    unsafe {
        let version = (*vfs).version;
        let mut copy = Vfs {
            version,
            size_of_file: (*vfs).size_of_file,
            max_path: (*vfs).max_path,
            next: (*vfs).next,
            name: (*vfs).name,
            data: (*vfs).data,
            open: (*vfs).open,
            first: (*vfs).first,
            second: null(),
            third: [null(); 3],
        };
        if version >= 2 {
            copy.second = (*vfs).second;
        }
        if version >= 3 {
            copy.third = (*vfs).third;
        }
        // A later version may have more fields, which the copy lacks.
        copy.version = version.min(3);
        copy
    }
}

unsafe extern "C" fn open(
    vfs: *mut Vfs,
    name: *const c_char,
    file: *mut c_void,
    flags: c_int,
    got: *mut c_int,
) -> c_int {
    let Some(original) = original_of(vfs) else {
        return SQLITE_MISUSE;
    };
    // SAFETY: SQLite's own.
    let Some(opens) = (unsafe { (*original).open }) else {
        return SQLITE_MISUSE;
    };
    // SAFETY: the arguments of SQLite are passed on unchanged.
    let opened = unsafe { opens(original, name, file, flags, got) };
    if opened == SQLITE_OK && flags & SQLITE_OPEN_MAIN_DB != 0 && !name.is_null() {
        // SAFETY: a file's name is a C string.
        note(Some(unsafe { CStr::from_ptr(name) }.to_bytes()));
    }
    opened
}

/// Records a name for the cache that this thread creates next, and returns the previous one.
fn note(name: Option<&[u8]>) -> Option<Vec<u8>> {
    let name = name.map_or(null_mut(), |name| Box::into_raw(Box::new(name.to_vec())));
    let before = OPENED.replace(name);
    // SAFETY: a non-null value is a box from above, and this is its only use.
    (!before.is_null()).then(|| *unsafe { Box::from_raw(before) })
}

/// Returns the database of the cache of that number, which this thread is creating; `None` if it has no file.
pub(crate) fn of_new_cache(number: u64) -> Option<Vec<u8>> {
    let name = note(None);
    if name.is_none() {
        MADE.set(number);
    }
    name
}

/// Returns the number of the cache that replaces one that this thread destroys now; 0 for none.
pub(crate) fn successor() -> u64 {
    MADE.replace(0)
}
