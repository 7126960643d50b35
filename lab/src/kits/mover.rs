//! `mover`: a backup server's data path. Readers take blocks from devices and writers write them to
//! other devices, with one thread per device. All buffers are slots of one data space. Every block
//! is checked from end to end, so a wrong byte ends the run.
//!
//! Runs differ in the pages of the data space ([`IoPages`]) and in the way buffers are handed to
//! devices ([`IoMode`]). The data space is taken once ([`IoMemory::take`]) and used by many runs
//! ([`run`]), so that arms can take turns.
//!
//! The kit does not compare or judge. Existing devices and files are written to only if the caller
//! requests it ([`AreaLocation`]).

mod area;
mod block;
mod bystander;
mod error;
mod memory;
mod own_memory;
mod path;
mod run;

pub use area::{Area, AreaLocation, AreaOptions, Devices};
pub use block::{InvalidBlock, Stamp};
pub use error::{BlockProblem, MoverError};
pub use memory::{AskedIoPages, IoMemory, IoPages, IoSeen, ParseIoPagesError};
pub use path::IoMode;
pub(crate) use path::{IoEngine, Plain};
pub use run::{Edge, Latency, Moved, MoverLoad, measure_devices, run, verify};
