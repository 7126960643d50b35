//! The library that `hugeleaf run` loads into programs that nobody rebuilds.
//!
//! It answers what a program's allocator asks of the kernel on larger pages: calls of `mmap`,
//! `munmap`, `mprotect`, `mremap` and `brk` come here first, also those that libc makes for
//! itself (`patch`). Private memory stays on base pages until the process has grown
//! (`growth`); then it is cut from aligned windows whose first touch is a huge page
//! (`window`, `heap`, `arena`), and what is behind is moved there, block by block (`sweep`).
//! Shared memory comes from a pool or from a file on a private tmpfs (`shared`). Where larger pages
//! are mandatory, every other kind of memory is looked after as well (`must`, `must_map`). What comes to an
//! address that is in use leaves no gap there when it fails (`room`).
//!
//! It must not: allocate, take a lock that it could wait on for ever, print to the program's
//! output, start a thread, install a signal handler, keep a descriptor open, or panic. On any
//! doubt it makes the call that the program asked for. Nothing here links to libc but
//! `__errno_location` and `dl_iterate_phdr`, which every libc has.
//!
//! Main types: `Settings` (what was decided), `Rungs`, `Mapping`, `Replacement`.
//!
//! `loaded.rs` is the root of the library itself: these modules and the entry points.
#![cfg_attr(not(test), warn(clippy::disallowed_macros, clippy::disallowed_methods))]
#![no_std]
#![allow(
    clippy::cast_possible_truncation,
    reason = "arguments and results of C functions are narrower than registers"
)]

#[cfg(test)]
extern crate std;

pub mod arena;
pub mod atomic;
pub mod calls;
pub mod elf;
pub mod fork;
pub mod growth;
pub mod heap;
pub mod hooks;
pub mod judge;
pub mod maps;
pub mod must;
pub mod must_map;
pub mod patch;
pub mod pool;
pub mod private;
pub mod report;
pub mod reserve;
pub mod room;
pub mod sample;
pub mod say;
pub mod segments;
pub mod settings;
pub mod shared;
pub mod stack;
pub mod start;
pub mod state;
pub mod sweep;
pub mod text;
pub mod tmpfs;
pub mod window;
