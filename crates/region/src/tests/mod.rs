//! Regions on this kernel: real pools, real huge pages, other processes.
// Tests and their helpers fail by a panic, so helpers may unwrap.
#![allow(clippy::unwrap_used)]
// The tests read and write memory through raw pointers.
#![allow(unsafe_code)]

mod child;
mod elastic;
mod elastic_drop;
mod elastic_faults;
mod elastic_model;
mod elastic_processes;
mod faults;
mod fork;
mod handle;
mod limits;
mod manager;
mod model;
mod own_memory;
mod race;
mod region;
pub(crate) mod support;
