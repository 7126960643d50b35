//! The result of `bench mover`, as it is kept.

use std::time::Duration;

use hugeleaf_units::Bytes;
use hugeleaf_workload::mover::{Latency, Mode, Moved};
use serde::Serialize;

use super::layout::PhysicalLayout;
use super::settings::MoverSettings;
use crate::bench::processors::ProcessorTimes;
use crate::bench::{Circumstances, Measured, Shortage};

/// What was published for the case that this benchmark is made after.
pub const PUBLISHED: Published = Published {
    small_mib_per_second: 139.0,
    large_mib_per_second: 378.0,
    ratio: 2.72,
};

/// Published throughput of a backup server on small and on large pages.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Published {
    /// On 4K pages, 2 readers and 5 writers.
    pub small_mib_per_second: f64,
    /// On 16M pages, 2 readers and 7 writers.
    pub large_mib_per_second: f64,
    /// One over the other.
    pub ratio: f64,
}

/// What was measured.
pub(super) struct MoverResult<'a> {
    pub(super) measured: Measured<'a, MoverSettings, MoverArm>,
    /// What the devices are on.
    pub(super) devices: Vec<String>,
    /// MiB a second of the devices without a data path, before the first sample and after the last: the same threads and
    /// transfers from large pages, nothing checked and nothing handed on.
    pub(super) bare: Vec<f64>,
}

/// A mode on a data space.
#[derive(Debug, Clone, PartialEq)]
pub struct MoverArm {
    /// `scattered`, `split`, `base`, `thp:2M`, `hugetlb:1G`.
    pub label: String,
    /// `direct`, `lock`, `uring`, `uring-registered`.
    pub mode: String,
    /// MiB a second, read and written together, in the order they were taken.
    pub samples: Vec<f64>,
    /// All that was seen of each sample.
    pub raw: Vec<MoverSample>,
    /// How many writers at a fixed rate keep up.
    pub streams: Option<Streams>,
    /// How the data space lay before the first sample.
    pub before: Option<PhysicalLayout>,
    /// And after the last.
    pub after: Option<PhysicalLayout>,
    /// Why it was unavailable.
    pub shortage: Option<Shortage>,
}

impl MoverArm {
    /// One that nothing was measured on yet.
    fn empty(label: String, mode: String) -> MoverArm {
        MoverArm {
            label,
            mode,
            samples: Vec::new(),
            raw: Vec::new(),
            streams: None,
            before: None,
            after: None,
            shortage: None,
        }
    }

    /// Its mode; one that is not known here is direct.
    pub fn mode_as_asked(&self) -> Mode {
        self.mode.parse().unwrap_or(Mode::Direct)
    }
}

/// One run.
#[derive(Debug, Clone, PartialEq)]
pub struct MoverSample {
    /// The round.
    pub round: usize,
    /// When it began.
    pub at_seconds: f64,
    /// How long it was.
    pub seconds: f64,
    /// From sources.
    pub read_bytes: u64,
    /// To targets.
    pub written_bytes: u64,
    /// Both, by time.
    pub mib_per_second: f64,
    /// Processors in user mode, this process.
    pub user_seconds: f64,
    /// In the kernel on its behalf.
    pub system_seconds: f64,
    /// Share of the time of its threads that they waited: for a device, a lock, a buffer, or a
    /// processor.
    pub waiting_share: f64,
    /// How often a thread gave up its processor to wait.
    pub waits: u64,
    /// All processors of the host; missing where that was not reported.
    pub host: Option<ProcessorTimes>,
    /// From the start of a transfer to its end.
    pub io: Times,
    /// Locking and unlocking a buffer; missing where the mode does neither.
    pub lock: Option<Times>,
    /// A base page mapped, touched and unmapped by a thread that does nothing else.
    pub bystander: Times,
}

/// Times of an operation.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Times {
    /// How many.
    pub count: u64,
    /// Their mean.
    pub mean_seconds: f64,
    /// Their median.
    pub median_seconds: f64,
    /// 99 of 100 were not longer.
    pub p99_seconds: f64,
    /// The longest.
    pub max_seconds: f64,
}

impl From<Latency> for Times {
    fn from(l: Latency) -> Times {
        Times {
            count: l.count,
            mean_seconds: l.mean,
            median_seconds: l.median,
            p99_seconds: l.p99,
            max_seconds: l.max,
        }
    }
}

/// How many writers at a fixed rate keep up.
#[derive(Debug, Clone, PartialEq)]
pub struct Streams {
    /// What each is to write a second.
    pub rate_bytes: u64,
    /// There were no devices for more.
    pub most_tried: usize,
    /// The largest number that kept up, each time it was looked for.
    pub samples: Vec<usize>,
    /// Each number that was tried, in order.
    pub steps: Vec<Vec<StreamsStep>>,
}

/// So many streams, tried.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct StreamsStep {
    /// How many.
    pub streams: usize,
    /// What the worst of them got of its rate.
    pub worst_share: f64,
    /// Whether that is enough.
    pub sustained: bool,
}

pub(super) fn empty_arms(settings: &MoverSettings) -> Vec<MoverArm> {
    let mut arms = Vec::new();
    for mode in &settings.modes {
        for pages in &settings.pages {
            arms.push(MoverArm::empty(pages.to_string(), mode.to_string()));
        }
    }
    arms
}

/// MiB a second.
pub(super) fn rate(moved: Bytes, time: Duration) -> f64 {
    mib(moved) / time.as_secs_f64().max(f64::EPSILON)
}

fn mib(bytes: Bytes) -> f64 {
    bytes.as_f64() / Bytes::from_mib(1).as_f64()
}

pub(super) fn sample(
    round: usize,
    at_seconds: f64,
    moved: &Moved,
    host: Option<ProcessorTimes>,
) -> MoverSample {
    let seconds = moved.time.as_secs_f64();
    let worked = moved.usage.processor().as_secs_f64();
    let threads = u32::try_from(moved.threads).map_or(1.0, f64::from);
    let all = (threads * seconds).max(f64::EPSILON);
    MoverSample {
        round,
        at_seconds,
        seconds,
        read_bytes: moved.read.get(),
        written_bytes: moved.written.get(),
        mib_per_second: rate(moved.read + moved.written, moved.time),
        user_seconds: moved.usage.user.as_secs_f64(),
        system_seconds: moved.usage.system.as_secs_f64(),
        waiting_share: (1.0 - worked / all).clamp(0.0, 1.0),
        waits: moved.usage.waits,
        host,
        io: moved.io.into(),
        lock: (moved.lock.count > 0).then(|| moved.lock.into()),
        bystander: moved.bystander.into(),
    }
}

impl MoverSample {
    fn gib(&self) -> f64 {
        mib(Bytes(self.read_bytes + self.written_bytes)) / 1024.0
    }

    /// Seconds of processors for a GiB; `None` where nothing was moved.
    pub fn processor_per_gib(&self) -> Option<f64> {
        let gib = self.gib();
        (gib > 0.0).then(|| (self.user_seconds + self.system_seconds) / gib)
    }

    /// The same of the whole host.
    pub fn host_per_gib(&self) -> Option<f64> {
        let gib = self.gib();
        let host = self.host?;
        (gib > 0.0).then(|| host.busy_seconds() / gib)
    }
}

pub(super) fn caveats(arms: &[MoverArm], circumstances: &Circumstances) -> Vec<String> {
    let mut caveats = Vec::new();
    if circumstances.host.is_virtual == Some(true) {
        caveats.push(
            "This is a virtual machine: its devices are other programs' files, and each segment of a \
             transfer is handed to them by its own descriptor."
                .to_owned(),
        );
    }
    let locks = |arm: &&MoverArm| arm.mode_as_asked() == Mode::Lock && !arm.raw.is_empty();
    if arms
        .iter()
        .filter(locks)
        .any(|arm| arm.label.starts_with("hugetlb"))
    {
        caveats.push(
            "Locking hugetlb pages costs next to nothing, because they are always in memory: the \
             kernel has nothing to do. It is not the same work done faster."
                .to_owned(),
        );
    }
    caveats
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_ratio_is_that_of_the_published_rates() {
        let ratio = PUBLISHED.large_mib_per_second / PUBLISHED.small_mib_per_second;
        assert!((ratio - PUBLISHED.ratio).abs() < 0.005);
    }
}
