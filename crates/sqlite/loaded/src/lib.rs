//! What `hugeleaf run --sqlite` loads into a program: it stands before the functions by which a program begins with SQLite,
//! gives that SQLite its cache, and passes the call on.
//!
//! A process may have several copies of SQLite: a shared library, one that a module brings, one in a plugin. Each call goes
//! to the copy that the caller would have got without this library, as the loader looks for it, and from then on the
//! caller calls it itself. A copy that hides its functions, or that is built into the program, is not reached.
//!
//! Nothing in here ends the program: where something is refused, SQLite has its own cache, and one line says so on standard
//! error. That line is not written where nobody reads it.
//!
//! # Safety
//! The functions have the types of sqlite3.h, and pass on what they are given: they change no register in which arguments
//! are. SQLite's own are looked up by name in the object that has the copy.

#![cfg_attr(
    not(any(target_arch = "x86_64", target_arch = "aarch64")),
    allow(dead_code)
)]

mod copies;
mod objects;
mod reserve;
mod say;

use std::ffi::{c_int, c_void};

const SQLITE_ERROR: c_int = 1;

#[global_allocator]
static MEMORY: reserve::Reserve = reserve::Reserve::new();

/// Returns the function to which the call with this number goes that comes from `caller`.
extern "C" fn route(which: usize, caller: usize) -> *const c_void {
    copies::route(which, caller).unwrap_or(match which {
        0 => none as *const c_void,
        _ => no_database as *const c_void,
    })
}

/// Answers a call if the program has no SQLite.
extern "C" fn none() -> c_int {
    SQLITE_ERROR
}

unsafe extern "C" fn no_database(_: *const c_void, database: *mut *mut c_void) -> c_int {
    if !database.is_null() {
        // SAFETY: by sqlite3.h the caller's.
        unsafe { database.write(std::ptr::null_mut()) };
    }
    SQLITE_ERROR
}

/// Stands before one of SQLite's functions: asks where it is, and goes on there with all arguments as they are.
macro_rules! before {
    ($($number:literal $name:ident)*) => {$(
        /// SQLite's function of this name, once it has its cache.
        ///
        /// # Safety
        /// As sqlite3.h says.
        #[cfg(target_arch = "x86_64")]
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name() {
            std::arch::naked_asm!(
                "endbr64",
                "push rdi", "push rsi", "push rdx", "push rcx", "sub rsp, 8",
                "mov edi, {number}",
                "mov rsi, [rsp + 40]",
                "call {route}",
                "add rsp, 8", "pop rcx", "pop rdx", "pop rsi", "pop rdi",
                "jmp rax",
                number = const $number,
                route = sym route,
            )
        }

        /// SQLite's function of this name, once it has its cache.
        ///
        /// # Safety
        /// As sqlite3.h says.
        #[cfg(target_arch = "aarch64")]
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name() {
            std::arch::naked_asm!(
                "hint #34",
                "stp x29, x30, [sp, #-48]!",
                "stp x0, x1, [sp, #16]", "stp x2, x3, [sp, #32]",
                "mov x0, #{number}",
                "mov x1, x30",
                "bl {route}",
                "mov x16, x0",
                "ldp x0, x1, [sp, #16]", "ldp x2, x3, [sp, #32]",
                "ldp x29, x30, [sp], #48",
                "br x16",
                number = const $number,
                route = sym route,
            )
        }
    )*

    /// Returns their addresses.
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    fn own() -> [usize; objects::NAMES.len()] {
        [$($name as *const () as usize),*]
    }};
}

before! {
    0 sqlite3_initialize
    1 sqlite3_open
    2 sqlite3_open16
    3 sqlite3_open_v2
}

/// There are none for other processors: no SQLite is reached there.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const fn own() -> [usize; objects::NAMES.len()] {
    [0; objects::NAMES.len()]
}
