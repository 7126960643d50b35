//! The result of `bench mover`, as it is kept.

use std::time::Duration;

use hugeleaf_units::Bytes;
use hugeleaf_workload::mover::{Latency, Mode, Moved};
use serde::{Deserialize, Serialize};

use super::lying::Lying;
use super::{MoverSettings, ProcessorTimes};
use crate::bench::{BenchEnding, CONFIDENCE, Circumstances, Shortage, Spread, effect_by_round};
use crate::result::{Effect, HostFingerprint, Knob};
use crate::stats::Better;

/// What was published for the case that this benchmark is made after.
pub const PUBLISHED: Published = Published {
    small_mib_per_second: 139.0,
    large_mib_per_second: 378.0,
    ratio: 2.72,
};

/// Published throughput of a backup server on small and on large pages.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Published {
    /// On 4K pages, 2 readers and 5 writers.
    pub small_mib_per_second: f64,
    /// On 16M pages, 2 readers and 7 writers.
    pub large_mib_per_second: f64,
    /// One over the other.
    pub ratio: f64,
}

/// A whole result, before it is rows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MoverResult {
    /// What was measured.
    pub experiment: crate::bench::About,
    /// A mode on a data space each.
    pub arms: Vec<MoverArm>,
    /// What the devices do by themselves.
    pub bare: Bare,
    /// What was published.
    pub published: Published,
    /// What a reader must know before believing it, a sentence each.
    pub caveats: Vec<String>,
    /// The machine.
    pub host: HostFingerprint,
    /// Settings and knobs.
    pub settings: MoverSettingsInForce,
    /// The exact command.
    pub command: Vec<String>,
}

/// The devices without a data path: the same threads and transfers from large pages, nothing checked
/// and nothing handed on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Bare {
    /// Before the first sample and after the last, in MiB a second.
    pub samples: Vec<f64>,
}

/// A mode on a data space.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MoverArm {
    /// `scattered`, `split`, `base`, `thp:2M`, `hugetlb:1G`.
    pub label: String,
    /// `direct`, `lock`, `uring`, `uring-registered`.
    pub mode: String,
    /// MiB a second, read and written together, in the order they were taken.
    pub samples: Vec<f64>,
    /// All that was seen of each sample.
    pub raw: Vec<MoverSample>,
    /// The median of `samples`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spread: Option<Spread>,
    /// The median of seconds of processors for a GiB, of this process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub processor_seconds_per_gib: Option<Spread>,
    /// The same of the whole host, where the kernel's own threads are in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_seconds_per_gib: Option<Spread>,
    /// MiB a second over those of the first data space in the same mode and rounds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effect: Option<Effect>,
    /// Seconds of processors for a GiB, likewise; less is better.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub processor_effect: Option<Effect>,
    /// Time to lock and unlock a buffer, likewise; only where the mode does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lock_effect: Option<Effect>,
    /// How many writers at a fixed rate keep up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub streams: Option<Streams>,
    /// How the data space lay before the first sample.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<Lying>,
    /// And after the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<Lying>,
    /// Why it could not be had.
    #[serde(skip_serializing_if = "Option::is_none")]
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
            spread: None,
            processor_seconds_per_gib: None,
            host_seconds_per_gib: None,
            effect: None,
            processor_effect: None,
            lock_effect: None,
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
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
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
    /// All processors of the host; missing where that was not told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<ProcessorTimes>,
    /// From the start of a transfer to its end.
    pub io: Times,
    /// Locking and unlocking a buffer; missing where the mode does neither.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lock: Option<Times>,
    /// A base page mapped, touched and unmapped by a thread that does nothing else.
    pub bystander: Times,
}

/// Times of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
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
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
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

impl Streams {
    /// The middle of the samples.
    pub fn median(&self) -> Option<usize> {
        let mut sorted = self.samples.clone();
        sorted.sort_unstable();
        sorted.get(sorted.len().checked_sub(1)? / 2).copied()
    }
}

/// So many streams, tried.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct StreamsStep {
    /// How many.
    pub streams: usize,
    /// What the worst of them got of its rate.
    pub worst_share: f64,
    /// Whether that is enough.
    pub sustained: bool,
}

/// Settings and knobs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MoverSettingsInForce {
    /// Threads that read, a device each.
    pub readers: usize,
    /// Threads that write, a device each.
    pub writers: usize,
    /// What the devices are on.
    pub devices: Vec<String>,
    /// Length of each.
    pub device_bytes: u64,
    /// Length of a block.
    pub block_bytes: u64,
    /// Length of a data space.
    pub space_bytes: u64,
    /// Transfers under way a thread, in modes that go through a ring.
    pub depth: usize,
    /// Samples an arm.
    pub rounds: usize,
    /// How long one is.
    pub sample_seconds: f64,
    /// What orders and contents were drawn from.
    pub seed: u64,
    /// How sure the intervals are.
    pub confidence: f64,
    /// Knobs of the kernel that bear on large pages.
    pub knobs: Vec<Knob>,
    /// Version of hugeleaf.
    pub version: String,
}

/// What ended, and how.
pub(super) struct About {
    pub(super) devices: Vec<String>,
    pub(super) duration: Duration,
    pub(super) ending: BenchEnding,
}

/// An arm of a result: a mode on pages.
pub fn find<'a>(arms: &'a [MoverArm], mode: &str, label: &str) -> Option<&'a MoverArm> {
    let mut found = arms.iter().filter(|a| a.mode == mode && a.label == label);
    found.next()
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

/// The whole, with medians and comparisons.
pub(super) fn result(
    settings: &MoverSettings,
    mut arms: Vec<MoverArm>,
    bare: Vec<f64>,
    circumstances: &Circumstances,
    about: About,
) -> MoverResult {
    compare(&mut arms);
    MoverResult {
        experiment: crate::bench::About {
            name: "mover".to_owned(),
            unit: "MiB/s".to_owned(),
            better: Better::Higher,
            started: circumstances.started.clone(),
            duration_seconds: about.duration.as_secs_f64(),
            ending: about.ending,
        },
        caveats: caveats(&arms, circumstances),
        arms,
        bare: Bare { samples: bare },
        published: PUBLISHED,
        host: circumstances.host.clone(),
        settings: MoverSettingsInForce {
            readers: settings.readers,
            writers: settings.writers,
            devices: about.devices,
            device_bytes: settings.each.get(),
            block_bytes: settings.block.get(),
            space_bytes: settings.space.get(),
            depth: settings.depth,
            rounds: settings.rounds,
            sample_seconds: settings.sample.as_secs_f64(),
            seed: settings.seed,
            confidence: CONFIDENCE,
            knobs: circumstances.knobs.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
        },
        command: circumstances.command.clone(),
    }
}

/// Medians of each arm, and each against the first of its mode.
fn compare(arms: &mut [MoverArm]) {
    for arm in arms.iter_mut() {
        let of = |value: fn(&MoverSample) -> Option<f64>| -> Option<Spread> {
            let values: Vec<f64> = arm.raw.iter().filter_map(value).collect();
            Spread::of(&values, CONFIDENCE)
        };
        arm.processor_seconds_per_gib = of(MoverSample::processor_per_gib);
        arm.host_seconds_per_gib = of(MoverSample::host_per_gib);
        arm.spread = Spread::of(&arm.samples, CONFIDENCE);
    }
    let firsts: Vec<MoverArm> = arms.to_vec();
    for arm in arms.iter_mut() {
        let Some(first) = firsts.iter().find(|first| first.mode == arm.mode) else {
            continue;
        };
        if first.label == arm.label {
            continue;
        }
        arm.effect = effect(first, arm, |s| Some(s.mib_per_second));
        arm.processor_effect = effect(first, arm, MoverSample::processor_per_gib);
        arm.lock_effect = effect(first, arm, |s| Some(s.lock?.mean_seconds));
    }
}

/// A figure of one arm over that of another, by the rounds that both have.
fn effect(
    first: &MoverArm,
    arm: &MoverArm,
    value: fn(&MoverSample) -> Option<f64>,
) -> Option<Effect> {
    let of = |arm: &MoverArm| -> Vec<(usize, f64)> {
        let samples = arm.raw.iter();
        samples.filter_map(|s| Some((s.round, value(s)?))).collect()
    };
    effect_by_round(of(first).into_iter(), of(arm).into_iter())
}

fn caveats(arms: &[MoverArm], circumstances: &Circumstances) -> Vec<String> {
    let mut caveats = Vec::new();
    if circumstances.host.is_virtual == Some(true) {
        caveats.push(
            "This is a virtual machine: its devices are other programs' files, and each piece of a \
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
            "Locking hugetlb pages is cheap because the kernel has nothing to do: they are always \
             in memory. It is not a cheaper way to do the same."
                .to_owned(),
        );
    }
    caveats
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arm(label: &str, rates: &[f64]) -> MoverArm {
        let latency = Times::from(Latency::default());
        let raw = rates.iter().enumerate().map(|(round, rate)| MoverSample {
            round,
            at_seconds: 0.0,
            seconds: 1.0,
            read_bytes: 1 << 30,
            written_bytes: 0,
            mib_per_second: *rate,
            user_seconds: 0.5,
            system_seconds: 100.0 / rate,
            waiting_share: 0.5,
            waits: 1,
            host: None,
            io: latency,
            lock: None,
            bystander: latency,
        });
        MoverArm {
            samples: rates.to_vec(),
            raw: raw.collect(),
            ..MoverArm::empty(label.to_owned(), "direct".to_owned())
        }
    }

    #[test]
    fn arms_are_held_against_the_first_by_rounds() {
        let slow = [100.0, 110.0, 90.0, 105.0, 95.0, 100.0];
        let fast = slow.map(|rate| rate * 2.0);
        let mut arms = vec![arm("scattered", &slow), arm("thp:2M", &fast)];
        compare(&mut arms);
        assert_eq!(arms[0].effect, None);
        let effect = arms[1].effect.unwrap();
        assert!(
            (effect.ratio - 2.0).abs() < 1e-9 && effect.low > 1.99,
            "{effect:?}"
        );
        // 0.5 + 1 over 0.5 + 0.5.
        let cost = arms[1].processor_effect.unwrap().ratio;
        assert!((0.6..0.72).contains(&cost), "{cost}");
        assert_eq!(arms[1].lock_effect, None);
        assert_eq!(arms[0].spread.unwrap().median, 100.0);
    }

    #[test]
    fn the_published_ratio_is_that_of_the_published_rates() {
        let ratio = PUBLISHED.large_mib_per_second / PUBLISHED.small_mib_per_second;
        assert!((ratio - PUBLISHED.ratio).abs() < 0.005);
    }
}
