//! `data_mover`: a backup server's data path. Readers take blocks from devices and writers write them to
//! other devices, with one thread per device. All buffers are slots of one data space. Every block
//! is checked from end to end, so a wrong byte ends the run.
//!
//! Runs differ in the pages of the data space ([`IoPages`]) and in the way buffers are handed to
//! devices ([`IoMode`]). The data space is taken once ([`IoMemory::take`]) and used by many runs
//! ([`run`]), so that arms can take turns.
//!
//! The kit does not compare or judge. Existing devices and files are written to only if the caller
//! requests it ([`DeviceLocation`]).

mod block;
mod devices;
mod error;
mod exclusive_memory;
mod io_engine;
mod memory;
mod page_fault_probe;
mod run;

pub use block::{BlockOrigin, InvalidBlock};
pub use devices::{DeviceLocation, DeviceOptions, DeviceRange, Devices};
pub use error::{BackupIoError, BlockProblem};
pub use io_engine::IoMode;
pub(crate) use io_engine::{IoEngine, SyncEngine};
pub use memory::{AskedIoPages, IoMemory, IoPages, ParseIoPagesError, PhysicalLayout};
pub use run::{
    BackupIoLoad, BackupIoResult, Latency, MeasurementEdge, measure_devices, run, verify,
};
