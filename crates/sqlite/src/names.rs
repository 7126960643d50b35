//! Which database a cache belongs to. SQLite does not say when it makes one; but it opens a database's file just before,
//! in the same thread. So the file system that it uses by default gets another `xOpen`, which remembers the name and passes
//! the call on.
#![allow(unsafe_code)]
//! # Safety
//! SQLite keeps a VFS that was registered until the process ends, so the copy lives as long. `xOpen` gets the VFS that
//! it belongs to, and passes the original on: that one's functions may look at it.

use std::cell::Cell;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicPtr, Ordering};

use crate::ffi::{Api, SQLITE_MISUSE, SQLITE_NOTFOUND, SQLITE_OK, SQLITE_OPEN_MAIN_DB, Vfs};

thread_local! {
    // None of these is dropped: SQLite may be used when a thread, or the program, has dropped what it had.

    /// The database whose file this thread opened last, until its cache is made: a box, or null.
    static OPENED: Cell<*mut Vec<u8>> = const { Cell::new(null_mut()) };
    /// The cache without a name that this thread made last. Where SQLite finds that pages are larger than it thought it
    /// makes another cache and ends the first one at once: that one's name is the other's, too.
    static MADE: Cell<u64> = const { Cell::new(0) };
}

/// The file system that a SQLite has now by default, before the one that it had.
#[derive(Debug)]
struct Watched {
    vfs: Vfs,
    original: *mut Vfs,
}

/// Copies of SQLite in one process are few.
const COPIES: usize = 8;

/// One for each copy of SQLite; boxes that are never freed.
static WATCHED: [AtomicPtr<Watched>; COPIES] = [const { AtomicPtr::new(null_mut()) }; COPIES];

/// The file system that a copy of ours stands before. A program may have copied it once more; then it is known by a
/// function that only this SQLite has.
fn original_of(vfs: *const Vfs) -> Option<*mut Vfs> {
    let all = || {
        let all = { WATCHED.iter() }.map(|place| place.load(Ordering::Acquire));
        // SAFETY: what is not null is a box that is never freed.
        all.take_while(|watched| !watched.is_null())
            .map(|watched| unsafe { &*watched })
    };
    let mut same = all().filter(|watched| std::ptr::eq(&raw const watched.vfs, vfs));
    // SAFETY: SQLite hands in a file system.
    let like = |watched: &&Watched| unsafe { watched.vfs.first[0] == (*vfs).first[0] };
    let found = same.next().or_else(|| all().find(like));
    found.map(|watched| watched.original)
}

/// Has SQLite open files by way of here. It is initialised by that.
pub(crate) fn watch(api: &Api) -> Result<(), c_int> {
    // SAFETY: a null name is the default one.
    let original = unsafe { (api.vfs_find)(null()) }.cast::<Vfs>();
    if original.is_null() {
        return Err(SQLITE_NOTFOUND);
    }
    // SAFETY: SQLite's own, as long as its version says; what an older one does not have is not read.
    let mut vfs = unsafe { read(original) };
    vfs.open = Some(open);
    vfs.name = c"hugeleaf".as_ptr();
    vfs.next = null_mut();
    let watched = Box::into_raw(Box::new(Watched { vfs, original }));
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
        // A later one may have more, which the copy has not.
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
    // SAFETY: what SQLite handed in is handed on.
    let opened = unsafe { opens(original, name, file, flags, got) };
    if opened == SQLITE_OK && flags & SQLITE_OPEN_MAIN_DB != 0 && !name.is_null() {
        // SAFETY: a file's name is a C string.
        note(Some(unsafe { CStr::from_ptr(name) }.to_bytes()));
    }
    opened
}

/// Keeps a name for the cache that this thread makes next, and returns the one that it had.
fn note(name: Option<&[u8]>) -> Option<Vec<u8>> {
    let name = name.map_or(null_mut(), |name| Box::into_raw(Box::new(name.to_vec())));
    let before = OPENED.replace(name);
    // SAFETY: what is not null is a box of above, which nobody else finds again.
    (!before.is_null()).then(|| *unsafe { Box::from_raw(before) })
}

/// The database of the cache with that number, which this thread is making; `None` where it is none in a file.
pub(crate) fn of_new_cache(number: u64) -> Option<Vec<u8>> {
    let name = note(None);
    if name.is_none() {
        MADE.set(number);
    }
    name
}

/// The number of the cache that takes the place of one that this thread ends now; 0: none.
pub(crate) fn successor() -> u64 {
    MADE.replace(0)
}
