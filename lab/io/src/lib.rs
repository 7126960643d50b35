//! I/O past the page cache: direct I/O, io_uring(7), locked buffers, block devices that are memory.
//!
//! This crate must not judge: it executes requests and returns the kernel's answers.
//!
//! Main types: [`Ring`], [`OpenMode`], [`DirectIoSupport`], [`MemoryDevice`].

mod direct;
mod loop_device;
mod uring;

pub use direct::{
    DirectIoSupport, OpenMode, allocate_file, direct_rules, length_of, lock_memory, open_direct,
    unlock_memory,
};
pub use loop_device::MemoryDevice;
pub use uring::{Completion, Direction, Ring, with_ring};
