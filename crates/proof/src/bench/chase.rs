//! `bench chase`: the latency of a dependent random read, by working set and page size.
//!
//! Working sets go from small to large. Of each, memory is taken once an arm, where all arms fit
//! together; each is laid out, which warms it, and its pages are read back. Then, round by round,
//! the arms are measured in an order drawn anew, so that what drifts hits all of them alike; before
//! each sample it reads on without a clock, because the arm before has filled the caches. At the end
//! the pages are read back again. Where the arms do not fit together, each is taken and returned
//! within its turn.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use hugeleaf::MemoryError;
use hugeleaf_host::{Host, Root};
use hugeleaf_units::Bytes;
use hugeleaf_workload::{ChaseMemory, PageArm, Walk};

use super::{
    BenchEnding, BenchError, BenchEvent, Circumstances, Machine, Measured, Shortage,
    is_unavailable, nothing,
};
use crate::rows::Results;
use crate::subject::SizeHeld;

mod look;
mod rows;

pub(in crate::bench) use look::held_by_folio;
use look::{Seen, look};

/// Hops between two looks at the clock: many enough that the look does not count, few enough that a
/// sample ends in time.
const HOPS_A_LOOK: u64 = 2_000;
/// A sample is not shorter: the clock's own error would show.
const SHORTEST: Duration = Duration::from_millis(1);
/// Reading without a clock before a sample takes at most so many times the sample.
const WARM_AT_MOST: u32 = 2;

/// What is measured.
#[derive(Debug, Clone)]
pub struct ChaseSettings {
    /// The arms; base pages first, where they are among them.
    pub arms: Vec<PageArm>,
    /// The working sets.
    pub sizes: Vec<Bytes>,
    /// How long to measure in all, without taking memory and warming it.
    pub time: Duration,
    /// Samples a point.
    pub rounds: usize,
    /// What orders are drawn from.
    pub seed: u64,
    /// The most ordinary memory to hold at a time.
    pub most: Bytes,
    /// Length of a cache line.
    pub line: Bytes,
}

/// The length of a cache line, as the kernel tells it of the first processor's first cache. Where
/// it does not, 64 bytes: then two reads may fall into one longer line, and one costs too little.
pub fn cache_line(root: &Root) -> Bytes {
    const USUAL: Bytes = Bytes(64);
    let text = root.read("sys/devices/system/cpu/cpu0/cache/index0/coherency_line_size");
    let line = text.known().and_then(|text| text.trim().parse().ok());
    line.filter(|line| *line > 0).map_or(USUAL, Bytes)
}

/// What was measured.
pub(super) type ChaseResult<'a> = Measured<'a, ChaseSettings, ChaseArm>;

/// Pages of one size and kind.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ChaseArm {
    /// As the flag names it: `base`, `thp:2M`, `hugetlb:1G`.
    pub label: String,
    /// Their size.
    pub page_bytes: u64,
    /// `base`, `thp` or `hugetlb`.
    pub kind: String,
    /// What was measured, by working set, smallest first.
    pub points: Vec<ChasePoint>,
    /// Working sets that were unavailable.
    pub shortage: Option<Shortage>,
}

/// One working set on one arm.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ChasePoint {
    /// The working set.
    pub working_set_bytes: u64,
    /// Nanoseconds a read, in the order they were taken.
    pub samples: Vec<f64>,
    /// The round of each sample.
    pub rounds: Vec<usize>,
    /// Reads of each sample.
    pub hops: Vec<u64>,
    /// When each sample began.
    pub at_seconds: Vec<f64>,
    /// The pages it was on, read back before the first sample.
    pub pages_before: Vec<SizeHeld>,
    /// And after the last one.
    pub pages_after: Vec<SizeHeld>,
    /// Whether it was seen to be on the pages of its arm, all of it, before and after.
    pub verified: bool,
    /// Why not.
    pub note: Option<String>,
    /// Whether memory was taken anew for each sample, because the arms did not fit together.
    pub in_turn: bool,
}

/// Measures.
///
/// # Errors
/// [`BenchError`]; all memory is returned then.
pub fn measure(
    settings: &ChaseSettings,
    machine: &Machine<'_>,
    progress: &mut dyn FnMut(BenchEvent),
) -> Result<Results, BenchError> {
    Ok(measured(settings, machine, progress)?.to_results())
}

pub(super) fn measured<'a>(
    settings: &'a ChaseSettings,
    machine: &Machine<'_>,
    progress: &mut dyn FnMut(BenchEvent),
) -> Result<ChaseResult<'a>, BenchError> {
    let Machine {
        root,
        host,
        circumstances,
        stop,
        ..
    } = *machine;
    if let Some(large) = settings.sizes.iter().find(|size| **size > settings.most) {
        return Err(BenchError::TooLarge {
            what: "a working set".to_owned(),
            asked: *large,
            most: settings.most,
        });
    }
    let mut engine = Engine::new(settings, root, host, progress, stop);
    let mut ending = BenchEnding::Done;
    for size in &settings.sizes {
        if engine.size(*size)? == Go::Stop {
            ending = BenchEnding::Interrupted;
            break;
        }
    }
    let duration = engine.began.elapsed();
    let arms = engine.arms;
    if arms.iter().all(|arm| arm.points.is_empty()) {
        return Err(nothing(arms.iter().map(|arm| (&*arm.label, &arm.shortage))));
    }
    let about = (duration, ending);
    let mut measured = Measured::new("chase", settings, arms, circumstances, about);
    measured.caveats = caveats(&measured.arms, circumstances);
    Ok(measured)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Go {
    On,
    Stop,
}

struct Engine<'a> {
    settings: &'a ChaseSettings,
    root: &'a Root,
    host: &'a Host,
    progress: &'a mut dyn FnMut(BenchEvent),
    stop: &'a AtomicBool,
    random: fastrand::Rng,
    began: Instant,
    sample: Duration,
    arms: Vec<ChaseArm>,
    done: u64,
    of: u64,
}

/// One arm at one working set, as far as it has come.
struct Open {
    arm: usize,
    /// Its memory, where it is kept from round to round.
    walk: Option<Walk>,
    before: Option<Seen>,
    after: Option<Seen>,
    point: ChasePoint,
}

impl<'a> Engine<'a> {
    fn new(
        settings: &'a ChaseSettings,
        root: &'a Root,
        host: &'a Host,
        progress: &'a mut dyn FnMut(BenchEvent),
        stop: &'a AtomicBool,
    ) -> Engine<'a> {
        let of = settings.sizes.len() * settings.arms.len() * settings.rounds;
        let of = u32::try_from(of.max(1)).unwrap_or(u32::MAX);
        Engine {
            settings,
            root,
            host,
            progress,
            stop,
            random: fastrand::Rng::with_seed(settings.seed),
            began: Instant::now(),
            sample: sample_time(settings),
            arms: settings.arms.iter().map(|arm| empty_arm(*arm)).collect(),
            done: 0,
            of: of.into(),
        }
    }

    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// All arms at one working set.
    fn size(&mut self, size: Bytes) -> Result<Go, BenchError> {
        (self.progress)(BenchEvent::Taking(size.to_string()));
        let together = self.fits_together(size);
        let mut open = Vec::new();
        for arm in 0..self.settings.arms.len() {
            if self.stopped() {
                return Ok(Go::Stop);
            }
            let walk = match self.take(arm, size)? {
                Some(walk) => walk,
                None => {
                    self.done += self.settings.rounds as u64;
                    continue;
                }
            };
            let before = Some(look(
                walk.memory(),
                self.settings.arms[arm],
                size,
                (self.root, self.host),
            )?);
            open.push(Open {
                arm,
                walk: together.then_some(walk),
                before,
                after: None,
                point: empty_point(size, !together),
            });
        }
        let go = self.rounds(size, &mut open)?;
        for mut one in open {
            if let Some(walk) = one.walk.take() {
                let arm = self.settings.arms[one.arm];
                one.after = Some(look(walk.memory(), arm, size, (self.root, self.host))?);
            }
            self.close(one);
        }
        Ok(go)
    }

    /// Whether memory of all arms may be held at a time; what is in a pool is taken from nobody.
    fn fits_together(&self, size: Bytes) -> bool {
        let ordinary = self.settings.arms.iter();
        let ordinary = ordinary.filter(|arm| arm.kind != hugeleaf_units::PageKind::Hugetlb);
        let needed: Bytes = ordinary.filter_map(|arm| arm.whole(size)).sum();
        needed <= self.settings.most
    }

    /// Memory of an arm with a path through it; `None` where it is unavailable, which is noted.
    fn take(&mut self, arm: usize, size: Bytes) -> Result<Option<Walk>, BenchError> {
        let pages = self.settings.arms[arm];
        let seed = self.random.u64(..);
        match ChaseMemory::take(pages, size, self.host) {
            Ok(memory) => Ok(Some(Walk::lay(memory, size, self.settings.line, seed))),
            Err(error) if is_unavailable(&error) => {
                self.shortage(arm, size, &error);
                Ok(None)
            }
            Err(error) => Err(error.into()),
        }
    }

    fn shortage(&mut self, arm: usize, size: Bytes, error: &MemoryError) {
        if self.arms[arm].shortage.is_none() {
            (self.progress)(BenchEvent::Unavailable {
                arm: self.settings.arms[arm].to_string(),
                reason: error.to_string(),
            });
        }
        Shortage::join(&mut self.arms[arm].shortage, size, error);
    }

    fn rounds(&mut self, size: Bytes, open: &mut [Open]) -> Result<Go, BenchError> {
        for round in 0..self.settings.rounds {
            let mut order: Vec<usize> = (0..open.len()).collect();
            self.random.shuffle(&mut order);
            for at in order {
                if self.stopped() {
                    return Ok(Go::Stop);
                }
                let one = &mut open[at];
                let what = format!("{size} on {}", self.arms[one.arm].label);
                let (done, of) = (self.done, self.of);
                (self.progress)(BenchEvent::At { done, of, what });
                self.one_sample(size, round, one)?;
                self.done += 1;
            }
        }
        Ok(Go::On)
    }

    fn one_sample(&mut self, size: Bytes, round: usize, one: &mut Open) -> Result<(), BenchError> {
        if let Some(walk) = &mut one.walk {
            self.measure(walk, round, &mut one.point);
            return Ok(());
        }
        let Some(mut walk) = self.take(one.arm, size)? else {
            return Ok(());
        };
        let arm = self.settings.arms[one.arm];
        let before = look(walk.memory(), arm, size, (self.root, self.host))?;
        one.before = Some(Seen::worse(one.before.take(), before));
        self.measure(&mut walk, round, &mut one.point);
        let after = look(walk.memory(), arm, size, (self.root, self.host))?;
        one.after = Some(Seen::worse(one.after.take(), after));
        Ok(())
    }

    /// One sample: reads on without a clock once around, or for a while, then by the clock.
    fn measure(&self, walk: &mut Walk, round: usize, point: &mut ChasePoint) {
        let mut left = walk.lines();
        let began = Instant::now();
        while left > 0 && began.elapsed() < self.sample * WARM_AT_MOST && !self.stopped() {
            let hops = left.min(HOPS_A_LOOK);
            walk.go(hops);
            left -= hops;
        }
        let at = self.began.elapsed();
        let began = Instant::now();
        let mut hops = 0u64;
        let elapsed = loop {
            walk.go(HOPS_A_LOOK);
            hops += HOPS_A_LOOK;
            let elapsed = began.elapsed();
            if elapsed >= self.sample {
                break elapsed;
            }
            // A part of a sample is none: the round is left without it.
            if self.stopped() {
                return;
            }
        };
        #[allow(clippy::cast_precision_loss)]
        let nanoseconds = elapsed.as_secs_f64() * 1e9 / hops as f64;
        point.samples.push(nanoseconds);
        point.rounds.push(round);
        point.hops.push(hops);
        point.at_seconds.push(at.as_secs_f64());
    }

    /// Adds a point to the result.
    fn close(&mut self, one: Open) {
        let mut point = one.point;
        if point.samples.is_empty() {
            return;
        }
        let seen = [one.before, one.after];
        let [before, after] = seen.map(Option::unwrap_or_default);
        point.verified = before.verified && after.verified;
        point.note = match (before.note, after.note) {
            (None, Some(note)) => Some(format!("afterwards {note}")),
            (note, _) => note,
        };
        point.pages_before = before.pages;
        point.pages_after = after.pages;
        self.arms[one.arm].points.push(point);
    }
}

/// How long a sample is.
fn sample_time(settings: &ChaseSettings) -> Duration {
    let samples = settings.sizes.len() * settings.arms.len() * settings.rounds;
    let samples = u32::try_from(samples.max(1)).unwrap_or(u32::MAX);
    (settings.time / samples).max(SHORTEST)
}

fn empty_arm(arm: PageArm) -> ChaseArm {
    ChaseArm {
        label: arm.to_string(),
        page_bytes: arm.size.bytes().get(),
        kind: arm.kind.to_string(),
        points: Vec::new(),
        shortage: None,
    }
}

fn empty_point(size: Bytes, in_turn: bool) -> ChasePoint {
    ChasePoint {
        working_set_bytes: size.get(),
        samples: Vec::new(),
        rounds: Vec::new(),
        hops: Vec::new(),
        at_seconds: Vec::new(),
        pages_before: Vec::new(),
        pages_after: Vec::new(),
        verified: false,
        note: None,
        in_turn,
    }
}

fn caveats(arms: &[ChaseArm], circumstances: &Circumstances) -> Vec<String> {
    let points = || arms.iter().flat_map(|arm| &arm.points);
    let mut caveats = Vec::new();
    if circumstances.host.is_virtual == Some(true) {
        caveats.push(
            "This is a virtual machine: what a page of the guest gains depends on the pages of the \
             machine below, which cannot be seen from here."
                .to_owned(),
        );
    }
    if points().any(|p| !p.verified) {
        caveats.push("Points marked ? were not seen to be on the pages of their arm.".to_owned());
    }
    if points().any(|p| p.in_turn) {
        caveats.push(
            "The largest working sets did not fit into memory together: each arm took its memory \
             anew for every sample."
                .to_owned(),
        );
    }
    let base = circumstances.host.base_page_bytes;
    let large = circumstances.host.large_page_bytes.unwrap_or(u64::MAX);
    let small = |arm: &&ChaseArm| arm.kind == "thp" && arm.page_bytes < large;
    if arms.iter().filter(small).any(|arm| !arm.points.is_empty()) {
        caveats.push(format!(
            "Transparent huge pages below {} are mapped in entries of {}: what they gain comes from \
             contiguity, on processors that join such entries.",
            Bytes(large),
            Bytes(base)
        ));
    }
    caveats
}

#[cfg(test)]
mod tests;
