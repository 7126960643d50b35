//! The SQLite that this program is linked with.
#![allow(unsafe_code)]
//! # Safety
//! The functions are SQLite's own, with the types of sqlite3.h; a VFS is passed on as a pointer.

use std::ffi::{c_char, c_int, c_void};

use libsqlite3_sys as sqlite;

use crate::ffi::Api;

impl Api {
    /// Returns the functions of the linked SQLite.
    pub fn linked() -> Api {
        Api {
            config: sqlite::sqlite3_config,
            vfs_find,
            vfs_register,
        }
    }
}

unsafe extern "C" fn vfs_find(name: *const c_char) -> *mut c_void {
    // SAFETY: passed on.
    unsafe { sqlite::sqlite3_vfs_find(name).cast() }
}

unsafe extern "C" fn vfs_register(vfs: *mut c_void, default: c_int) -> c_int {
    // SAFETY: passed on.
    unsafe { sqlite::sqlite3_vfs_register(vfs.cast(), default) }
}
