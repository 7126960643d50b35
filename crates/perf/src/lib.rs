//! Performance events of processor and kernel: counters in groups, samples and tracepoints of a CPU, the
//! rings that the kernel writes them into, and which events of which processor count TLB misses.
//!
//! This crate must not judge and must not read files of a host: `/proc/cpuinfo` comes in as text.
//!
//! Main types: [`CounterGroup`], [`PerfEvent`], [`PerfRing`], [`processor::Processor`].

#![cfg_attr(not(test), warn(clippy::disallowed_macros, clippy::disallowed_methods))]

mod counters;
mod event;
pub mod processor;
mod ring;

pub use counters::{
    CountedSince, CountedWork, CounterError, CounterGroup, CounterGroups, CounterKind, GroupCount,
    counts_misses, own_thread,
};
pub use event::{
    PerfEvent, PerfKind, PerfRate, PerfSetup, PerfStack, SAMPLE_TYPE, allow_many_descriptors,
    monotonic_nanos,
};
pub use ring::PerfRing;
