//! Which database a cache belongs to. SQLite does not say when it makes one; but it opens a database's file just before,
//! in the same thread. So the file system that it uses by default gets another `xOpen`, which remembers the name and passes
//! the call on.
#![allow(unsafe_code)]
//! # Safety
//! SQLite keeps a VFS that was registered until the process ends, so the copy lives as long. `xOpen` gets the VFS that
//! it belongs to, and passes the original on: that one's functions may look at it.

use std::cell::Cell;
use std::cell::RefCell;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::null;
use std::sync::OnceLock;

use crate::ffi::{Api, SQLITE_MISUSE, SQLITE_NOTFOUND, SQLITE_OK, SQLITE_OPEN_MAIN_DB, Vfs};

thread_local! {
    /// The database whose file this thread opened last, until its cache is made.
    static OPENED: RefCell<Option<Vec<u8>>> = const { RefCell::new(None) };
    /// The cache without a name that this thread made last. Where SQLite finds that pages are larger than it thought it
    /// makes another cache and ends the first one at once: that one's name is the other's, too.
    static MADE: Cell<u64> = const { Cell::new(0) };
}

/// The file system that SQLite had by default.
struct Original(*mut Vfs);

// SAFETY: SQLite's own threads share it all the same.
unsafe impl Send for Original {}
// SAFETY: as above.
unsafe impl Sync for Original {}

static ORIGINAL: OnceLock<Original> = OnceLock::new();

/// Has SQLite open files by way of here. It is initialised by that.
pub(crate) fn watch(api: &Api) -> Result<(), c_int> {
    // SAFETY: a null name is the default one.
    let original = unsafe { (api.vfs_find)(null()) }.cast::<Vfs>();
    if original.is_null() {
        return Err(SQLITE_NOTFOUND);
    }
    // SAFETY: SQLite's own, as long as its version says; what an older one does not have is not read.
    let mut copy = unsafe { read(original) };
    copy.open = Some(open);
    copy.name = c"hugeleaf".as_ptr();
    copy.next = std::ptr::null_mut();
    if ORIGINAL.set(Original(original)).is_err() {
        return Err(SQLITE_MISUSE);
    }
    let copy: &'static mut Vfs = Box::leak(Box::new(copy));
    // SAFETY: it lives as long as the process.
    match unsafe { (api.vfs_register)(std::ptr::from_mut(copy).cast(), 1) } {
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
    _: *mut Vfs,
    name: *const c_char,
    file: *mut c_void,
    flags: c_int,
    got: *mut c_int,
) -> c_int {
    let Some(original) = ORIGINAL.get() else {
        return SQLITE_MISUSE;
    };
    // SAFETY: SQLite's own.
    let Some(opens) = (unsafe { (*original.0).open }) else {
        return SQLITE_MISUSE;
    };
    // SAFETY: what SQLite handed in is handed on.
    let opened = unsafe { opens(original.0, name, file, flags, got) };
    if opened == SQLITE_OK && flags & SQLITE_OPEN_MAIN_DB != 0 && !name.is_null() {
        // SAFETY: a file's name is a C string.
        let name = unsafe { CStr::from_ptr(name) }.to_bytes().to_vec();
        OPENED.with(|opened| *opened.borrow_mut() = Some(name));
    }
    opened
}

/// The database of the cache with that number, which this thread is making; `None` where it is none in a file.
pub(crate) fn of_new_cache(number: u64) -> Option<Vec<u8>> {
    let name = OPENED.with(|opened| opened.borrow_mut().take());
    if name.is_none() {
        MADE.set(number);
    }
    name
}

/// The number of the cache that takes the place of one that this thread ends now; 0: none.
pub(crate) fn successor() -> u64 {
    MADE.replace(0)
}
