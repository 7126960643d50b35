//! Regions on this kernel: real pools, real huge pages, other processes.
// Helpers of tests unwrap as tests do: a panic is how a test fails.
#![allow(clippy::unwrap_used)]
// Reading and writing memory through raw pointers is what is tested.
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
mod race;
mod region;
pub(crate) mod support;
