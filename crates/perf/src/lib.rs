//! Performance events of processor and kernel: counter groups, samples and tracepoints of a CPU, their
//! ring buffers, and the TLB-miss events of each processor.
//!
//! It is apart from `hugeleaf-sys` so that the library `hugeleaf` does not bring it.
//!
//! This crate must not judge and must not read files of a host: callers pass `/proc/cpuinfo` as text.
//!
//! Main types: [`CounterGroup`], [`PerfEvent`], [`PerfRing`], [`processor::Processor`].

#![cfg_attr(not(test), warn(clippy::disallowed_macros, clippy::disallowed_methods))]

mod counters;
mod event;
pub mod processor;
mod ring;

pub use counters::{
    CounterGroup, CounterGroups, CounterKind, CounterScope, GroupCount, ScaledCounts,
    counts_misses, own_thread,
};
pub use event::{
    PerfEvent, PerfKind, PerfSampling, PerfSetup, PerfStack, SAMPLE_TYPE, allow_many_descriptors,
    monotonic_nanos,
};
pub use ring::PerfRing;
