//! The part of SQLite's interface that this crate uses, as declared in sqlite3.h. These types have been unchanged since
//! 3.7.14 (2012), and SQLite promises to keep them. They are declared here because a program brings its own SQLite, and
//! this crate must not link a second one.
#![allow(unsafe_code)]
//! # Safety
//! Types and addresses are those of sqlite3.h; the caller that passes them vouches for that.

use std::ffi::{c_char, c_int, c_uint, c_void};

pub(crate) const SQLITE_OK: c_int = 0;
pub(crate) const SQLITE_CONFIG_PCACHE2: c_int = 18;
pub(crate) const SQLITE_CONFIG_GETPCACHE2: c_int = 19;
pub(crate) const SQLITE_CONFIG_PCACHE_HDRSZ: c_int = 24;
pub(crate) const SQLITE_OPEN_MAIN_DB: c_int = 0x0000_0100;
pub(crate) const SQLITE_MISUSE: c_int = 21;
pub(crate) const SQLITE_NOTFOUND: c_int = 12;

#[repr(C)]
#[derive(Debug)]
pub(crate) struct SqlitePage {
    pub buffer: *mut c_void,
    /// SQLite's data for the page.
    pub extra: *mut c_void,
}

#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct PcacheMethods {
    pub version: c_int,
    pub arg: *mut c_void,
    pub init: unsafe extern "C" fn(*mut c_void) -> c_int,
    pub shutdown: unsafe extern "C" fn(*mut c_void),
    pub create: unsafe extern "C" fn(c_int, c_int, c_int) -> *mut c_void,
    pub cachesize: unsafe extern "C" fn(*mut c_void, c_int),
    pub pagecount: unsafe extern "C" fn(*mut c_void) -> c_int,
    pub fetch: unsafe extern "C" fn(*mut c_void, c_uint, c_int) -> *mut SqlitePage,
    pub unpin: unsafe extern "C" fn(*mut c_void, *mut SqlitePage, c_int),
    pub rekey: unsafe extern "C" fn(*mut c_void, *mut SqlitePage, c_uint, c_uint),
    pub truncate: unsafe extern "C" fn(*mut c_void, c_uint),
    pub destroy: unsafe extern "C" fn(*mut c_void),
    pub shrink: unsafe extern "C" fn(*mut c_void),
}

// SAFETY: it holds functions, and a null pointer that is never used.
unsafe impl Sync for PcacheMethods {}

/// `xOpen` of a VFS.
pub(crate) type OpenFunction =
    unsafe extern "C" fn(*mut Vfs, *const c_char, *mut c_void, c_int, *mut c_int) -> c_int;

/// `sqlite3_vfs`: all of version 3. Fields that are unused here are passed on unchanged.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct Vfs {
    pub version: c_int,
    pub size_of_file: c_int,
    pub max_path: c_int,
    pub next: *mut Vfs,
    pub name: *const c_char,
    pub data: *mut c_void,
    pub open: Option<OpenFunction>,
    /// `xDelete` to `xGetLastError`.
    pub first: [*const c_void; 11],
    /// `xCurrentTimeInt64`, of version 2.
    pub second: *const c_void,
    /// `xSetSystemCall` to `xNextSystemCall`, of version 3.
    pub third: [*const c_void; 3],
}

/// The functions of the SQLite whose cache is replaced.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Api {
    /// `sqlite3_config`.
    pub config: unsafe extern "C" fn(c_int, ...) -> c_int,
    /// `sqlite3_vfs_find`; it initialises SQLite.
    pub vfs_find: unsafe extern "C" fn(*const c_char) -> *mut c_void,
    /// `sqlite3_vfs_register`.
    pub vfs_register: unsafe extern "C" fn(*mut c_void, c_int) -> c_int,
}

impl Api {
    /// Returns the address of the function that creates a cache in this SQLite. It is in SQLite's own code unless the
    /// program set a cache (`SQLITE_CONFIG_PCACHE2`). `None` if this SQLite is already in use.
    pub fn cache(&self) -> Option<*const c_void> {
        let mut methods = std::mem::MaybeUninit::<PcacheMethods>::uninit();
        // SAFETY: this option takes a pointer to methods, which SQLite fills in if it returns `SQLITE_OK`.
        unsafe {
            let done = (self.config)(SQLITE_CONFIG_GETPCACHE2, methods.as_mut_ptr());
            (done == SQLITE_OK).then(|| methods.assume_init().create as *const c_void)
        }
    }

    /// Returns the functions at these addresses; `None` if one is null.
    ///
    /// # Safety
    /// The addresses are SQLite's functions of these names, as dlsym(3) finds them.
    pub unsafe fn at(
        config: *const c_void,
        vfs_find: *const c_void,
        vfs_register: *const c_void,
    ) -> Option<Api> {
        if config.is_null() || vfs_find.is_null() || vfs_register.is_null() {
            return None;
        }
        // SAFETY: as the caller promises; none is null.
        unsafe {
            Some(Api {
                config: std::mem::transmute::<
                    *const c_void,
                    unsafe extern "C" fn(c_int, ...) -> c_int,
                >(config),
                vfs_find: std::mem::transmute::<
                    *const c_void,
                    unsafe extern "C" fn(*const c_char) -> *mut c_void,
                >(vfs_find),
                vfs_register: std::mem::transmute::<
                    *const c_void,
                    unsafe extern "C" fn(*mut c_void, c_int) -> c_int,
                >(vfs_register),
            })
        }
    }
}
