//! The library that `hugeleaf run --sqlite` preloads. It interposes the functions by which a program starts to use
//! SQLite, gives that SQLite its cache, and passes the call on.
//!
//! A process may have several copies of SQLite: a shared library, one in a module, one in a plugin. Each call goes to
//! the copy that the loader would have bound without this library. After the first call, the caller calls that copy
//! directly. A copy that hides its functions, or that is built into the program, is not reached.
//!
//! No failure here ends the program. If something is refused, SQLite uses its own cache, and one line on standard error
//! reports it. The line is not written if standard error has no reader.
//!
//! # Safety
//! The functions have the types of sqlite3.h and pass on their arguments: they change no register that holds arguments.
//! SQLite's functions are looked up by name in the object that has the copy.

#![allow(unsafe_code)]
#![cfg_attr(
    not(any(target_arch = "x86_64", target_arch = "aarch64")),
    allow(dead_code)
)]

mod elf_objects;
mod reserve_allocator;
mod say;
mod sqlite_copies;

use std::ffi::{c_int, c_void};

const SQLITE_ERROR: c_int = 1;

#[global_allocator]
static MEMORY: reserve_allocator::ReserveAllocator = reserve_allocator::ReserveAllocator::new();

/// Returns the target of the call with this number from the address `caller`.
extern "C" fn route(which: usize, caller: usize) -> *const c_void {
    sqlite_copies::route(which, caller).unwrap_or(match which {
        0 => none as *const c_void,
        _ => no_database as *const c_void,
    })
}

/// Target of a call if the program has no SQLite.
extern "C" fn none() -> c_int {
    SQLITE_ERROR
}

unsafe extern "C" fn no_database(_: *const c_void, database: *mut *mut c_void) -> c_int {
    if !database.is_null() {
        // SAFETY: the pointer is the caller's, as sqlite3.h defines.
        unsafe { database.write(std::ptr::null_mut()) };
    }
    SQLITE_ERROR
}

/// Interposes SQLite functions: asks for the target of the call, and jumps there with all arguments unchanged.
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

    /// Returns the addresses of these functions.
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    fn own() -> [usize; elf_objects::NAMES.len()] {
        [$($name as *const () as usize),*]
    }};
}

before! {
    0 sqlite3_initialize
    1 sqlite3_open
    2 sqlite3_open16
    3 sqlite3_open_v2
}

/// Other processors have no such functions: no SQLite is reached there.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const fn own() -> [usize; elf_objects::NAMES.len()] {
    [0; elf_objects::NAMES.len()]
}
