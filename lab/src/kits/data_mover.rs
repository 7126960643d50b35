//! `mover`: a backup server's data path. Readers take blocks from devices and writers write them to
//! other devices, with one thread per device. All buffers are slots of one data space. Every block
//! is checked from end to end, so a wrong byte ends the run.
//!
//! Runs differ in the pages of the data space ([`IoPages`]) and in the way buffers are handed to
//! devices ([`IoMode`]). The data space is taken once ([`IoMemory::take`]) and used by many runs
//! ([`run`]), so that arms can take turns.
//!
//! The kit does not compare or judge. Existing devices and files are written to only if the caller
//! requests it ([`DeviceLocation`]).

mod devices;
mod block;
mod fault_probe;
mod error;
mod memory;
mod own_memory;
mod io_engine;
mod run;

pub use devices::{DeviceRange, DeviceLocation, DeviceOptions, Devices};
pub use block::{InvalidBlock, BlockOrigin};
pub use error::{BlockProblem, DataMoverError};
pub use memory::{AskedIoPages, IoMemory, IoPages, PhysicalLayout, ParseIoPagesError};
pub use io_engine::IoMode;
pub(crate) use io_engine::{IoEngine, SyncEngine};
pub use run::{MeasurementEdge, Latency, DataMoverResult, DataMoverLoad, measure_devices, run, verify};
