//! `mover`: a backup server's data path. Readers take blocks from devices, writers put them onto
//! others, one thread a device; all buffers are slots of one data space, and every block is checked
//! from end to end, so that a byte that is wrong ends the run.
//!
//! What differs from run to run is the pages that the data space is on ([`IoPages`]) and how
//! buffers are handed to devices ([`Mode`]). The data space is taken once ([`IoMemory::take`]) and
//! used by many runs ([`run`]), so that arms can take turns.
//!
//! Nothing here compares or judges; devices and files that were there before are only written to
//! where the caller says so ([`Place`]).

mod area;
mod block;
mod bystander;
mod error;
mod memory;
mod own_memory;
mod path;
mod run;

pub use area::{Area, Devices, Place, Wanted};
pub use block::{Stamp, Wrong};
pub use error::{BlockProblem, MoverError};
pub use memory::{AskedIoPages, IoMemory, IoPages, IoSeen, ParseIoPagesError};
pub use path::Mode;
pub(crate) use path::{Carrier, Plain};
pub use run::{Edge, Latency, Load, Moved, bare, run, verify};
