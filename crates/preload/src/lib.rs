//! The library that `hugeleaf run` loads into unmodified programs.
//!
//! It serves a program's memory requests with huge pages. Calls of `mmap`, `munmap`, `mprotect`, `mremap`
//! and `brk` come here first, including those of libc itself (`patch`). Private memory stays on base pages
//! until the process has grown (`growth`). After that, it is cut from aligned windows that become huge
//! pages on first touch (`window`, `heap`, `arena`). Existing memory is promoted block by block (`promote_existing`).
//! Shared memory comes from a pool or from a file on a private tmpfs (`shared`). If huge pages are
//! mandatory, all other kinds of memory are handled too (`mandatory`, `mandatory_mmap`). A failed replacement of a
//! mapping leaves no gap (`placement`).
//!
//! It must not allocate, block on a lock, print to the program's output, start a thread, install a signal
//! handler, keep a descriptor open, or panic. In case of doubt, it makes the program's original call. It
//! links only to `__errno_location` and `dl_iterate_phdr`, which every libc has.
//!
//! Main types: `LaunchSettings` (the launcher's decisions), `PageLadder`, `PromotableMapping`, `FunctionReplacement`.
//!
//! `loaded.rs` is the root of the library itself, with these modules and the entry points.
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
pub mod density;
pub mod elf;
pub mod exit_notice;
pub mod fork;
pub mod heap;
pub mod heap_reserve;
pub mod hooks;
pub mod mandatory;
pub mod mandatory_mmap;
pub mod mapping_window;
pub mod maps;
pub mod messages;
pub mod patch;
pub mod placement;
pub mod private_hugetlb;
pub mod private_memory;
pub mod process_size_threshold;
pub mod promote_existing;
pub mod range_usage;
pub mod settings;
pub mod shared_memory;
pub mod shm_segments;
pub mod stack;
pub mod start;
pub mod state;
pub mod syscalls;
pub mod text_segment;
pub mod tmpfs;
