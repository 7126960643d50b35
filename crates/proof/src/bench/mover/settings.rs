//! What `bench mover` is asked for.

use std::time::Duration;

use hugeleaf_units::Bytes;
use hugeleaf_workload::mover::{IoPages, Mode, Place};

/// What is measured.
#[derive(Debug, Clone)]
pub struct MoverSettings {
    /// How buffers are handed to devices.
    pub modes: Vec<Mode>,
    /// The layout of data spaces; the first is what the others are compared with.
    pub pages: Vec<IoPages>,
    /// Where the devices are, and how many of them.
    pub places: Vec<Place>,
    /// How many devices to read from.
    pub readers: usize,
    /// How many to write to.
    pub writers: usize,
    /// How long each device is.
    pub each: Bytes,
    /// Length of a block.
    pub block: Bytes,
    /// Length of a data space.
    pub space: Bytes,
    /// Transfers under way a thread, in modes that go through a ring.
    pub depth: usize,
    /// Samples an arm.
    pub rounds: usize,
    /// How long a sample is.
    pub sample: Duration,
    /// How many writers at this many bytes a second is available, where asked.
    pub rate: Option<Bytes>,
    /// The most of them to try.
    pub most_streams: usize,
    /// Whether devices that are there may be written over.
    pub overwrite: bool,
    /// What orders and contents are drawn from.
    pub seed: u64,
    /// The most ordinary memory to take.
    pub most: Bytes,
}

impl MoverSettings {
    /// Devices to write to that have to be there.
    pub(super) fn targets(&self) -> usize {
        match self.rate {
            Some(_) => self.writers.max(self.most_streams),
            None => self.writers,
        }
    }

    /// Threads that move blocks at a time.
    pub(super) fn threads(&self) -> usize {
        self.readers + self.targets()
    }

    /// How long a run goes before it is measured.
    pub(super) fn warm(&self) -> Duration {
        (self.sample / 5).max(Duration::from_millis(20))
    }
}
