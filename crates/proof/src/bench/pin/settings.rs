//! What `bench pin` is asked for.

use std::time::Duration;

use hugeleaf_units::Bytes;
use hugeleaf_workload::mover::{IoPages, Place};
use hugeleaf_workload::pin::Method;

/// What is measured.
#[derive(Debug, Clone)]
pub struct PinSettings {
    /// Ways of pinning.
    pub methods: Vec<Method>,
    /// The layout of memory; the first is what the others are compared with.
    pub pages: Vec<IoPages>,
    /// Threads at a time, each.
    pub threads: Vec<usize>,
    /// Length of what is pinned.
    pub block: Bytes,
    /// Length of the memory that all threads pin parts of.
    pub space: Bytes,
    /// Samples a point.
    pub rounds: usize,
    /// How long a sample is.
    pub sample: Duration,
    /// Where the file for direct reads is made.
    pub place: Place,
    /// Its length.
    pub each: Bytes,
    /// What orders are drawn from.
    pub seed: u64,
    /// The most ordinary memory to take.
    pub most: Bytes,
}
