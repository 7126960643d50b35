//! What `hugeleaf run --sqlite` loads into a program: it stands before the functions by which a program begins with SQLite,
//! gives that SQLite its cache, and passes the call on. It finds SQLite as a shared library, linked or loaded later; one
//! that is built into a program is not reached, and keeps its own cache.
//!
//! Where the cache cannot be made, one line says so on standard error, and SQLite has its own.
//!
//! # Safety
//! The functions have the types of sqlite3.h, and pass on what they are given. SQLite's own are looked up by name in the
//! library that the program loaded.

use std::cell::Cell;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::OnceLock;

use hugeleaf::{Bytes, Ladder};
use hugeleaf_sqlite::{Api, Options};

/// Size and ladder: `2147483648;2M,4K`.
const VARIABLE: &str = "HUGELEAF_SQLITE";
/// The library's name since 2004.
const LIBRARY: &CStr = c"libsqlite3.so.0";
const SQLITE_ERROR: c_int = 1;

thread_local! {
    /// SQLite calls its own functions by name while the cache is made: those calls are passed on.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// The address of one of SQLite's functions; null where the program has no such library now.
fn find(name: &CStr) -> *mut c_void {
    // SAFETY: names are C strings; a library that is not loaded is not loaded for it.
    unsafe {
        let next = libc::dlsym(libc::RTLD_NEXT, name.as_ptr());
        if !next.is_null() {
            return next;
        }
        let library = libc::dlopen(LIBRARY.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD);
        match library.is_null() {
            true => library,
            false => libc::dlsym(library, name.as_ptr()),
        }
    }
}

/// Gives SQLite its cache, once.
fn prepare() {
    static DONE: OnceLock<()> = OnceLock::new();
    if INSIDE.replace(true) {
        return;
    }
    DONE.get_or_init(|| {
        if let Err(why) = install() {
            eprintln!("hugeleaf: run: --sqlite: {why}; SQLite keeps its own cache");
        }
    });
    INSIDE.set(false);
}

fn install() -> Result<(), String> {
    let Ok(wanted) = std::env::var(VARIABLE) else {
        return Ok(());
    };
    let (bytes, ladder) = wanted.split_once(';').ok_or("the variable is damaged")?;
    let bytes: u64 = bytes.parse().map_err(|e| format!("{bytes}: {e}"))?;
    let ladder: Ladder = ladder.parse().map_err(|e| format!("{e}"))?;
    let [config, vfs_find, vfs_register] =
        [c"sqlite3_config", c"sqlite3_vfs_find", c"sqlite3_vfs_register"].map(find);
    // SAFETY: these are SQLite's functions of these names.
    let api = unsafe { Api::at(config, vfs_find, vfs_register) };
    let api = api.ok_or("this program's SQLite has no function to set a cache")?;
    let installed = hugeleaf_sqlite::install(&api, &Options::new(Bytes(bytes), ladder));
    installed.map(drop).map_err(|e| e.to_string())
}

/// Stands before one of SQLite's functions.
macro_rules! before {
    ($(fn $name:ident($($argument:ident: $type:ty),*);)*) => {$(
        /// SQLite's function of this name, once it has its cache.
        ///
        /// # Safety
        /// As sqlite3.h says.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $type),*) -> c_int {
            prepare();
            let name = concat!(stringify!($name), "\0");
            let found = CStr::from_bytes_with_nul(name.as_bytes()).map_or(std::ptr::null_mut(), find);
            if found.is_null() {
                return SQLITE_ERROR;
            }
            // SAFETY: it is SQLite's function of this name, and gets what this one got.
            unsafe {
                std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($type),*) -> c_int>(found)($($argument),*)
            }
        }
    )*};
}

before! {
    fn sqlite3_initialize();
    fn sqlite3_open(name: *const c_char, database: *mut *mut c_void);
    fn sqlite3_open16(name: *const c_void, database: *mut *mut c_void);
    fn sqlite3_open_v2(name: *const c_char, database: *mut *mut c_void, flags: c_int, vfs: *const c_char);
}
