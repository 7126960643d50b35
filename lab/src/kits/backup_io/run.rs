//! One run of the data path, and its result.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, TryRecvError, unbounded};
use hdrhistogram::Histogram;
use hugeleaf_io::{Direction, Ring, with_ring};
use hugeleaf_sys::{ResourceUsage, process_usage};
use hugeleaf_units::{Bytes, PageSize, Range};

use super::block::{BlockOrigin, fill};
use super::devices::DeviceRange;
use super::error::BackupIoError;
use super::io_engine::{IoEngine, IoMode, SyncEngine, UringEngine};
use super::memory::IoMemory;
use super::page_fault_probe::run_bystander;
use hugeleaf_workload::latency_histogram::{record, times};

use crate::kits::joined;

/// Interval at which a waiting thread checks for the end of the run.
const LOOK: Duration = Duration::from_millis(10);
/// Maximum length of one registered part (io_uring_register(2)).
const PART: Bytes = Bytes::from_mib(1024);

#[derive(Debug, Clone, Copy)]
pub struct BackupIoLoad<'a> {
    pub mode: IoMode,
    /// Transfers in flight per thread, in modes that use a ring.
    pub depth: usize,
    pub block: Bytes,
    /// Rate of each writer in bytes a second; unlimited if `None`.
    pub rate: Option<Bytes>,
    pub sources: &'a [DeviceRange],
    pub targets: &'a [DeviceRange],
    /// Duration of the load before the measurement.
    pub warm: Duration,
    pub time: Duration,
    pub base: PageSize,
}

impl BackupIoLoad<'_> {
    pub const fn threads(&self) -> usize {
        self.sources.len() + self.targets.len()
    }

    fn depth(&self) -> usize {
        if self.mode.is_ring() {
            self.depth.max(1)
        } else {
            1
        }
    }
}

/// The two ends of the measured time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MeasurementEdge {
    Begin,
    End,
}

/// Times of an operation, in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Latency {
    pub count: u64,
    pub mean: f64,
    pub median: f64,
    /// 99th percentile.
    pub p99: f64,
    pub max: f64,
}

impl Latency {
    pub(crate) fn from_histogram(times: &Histogram<u64>) -> Latency {
        let seconds = |nanos: u64| nanos as f64 / 1e9;
        Latency {
            count: times.len(),
            mean: times.mean() / 1e9,
            median: seconds(times.value_at_quantile(0.5)),
            p99: seconds(times.value_at_quantile(0.99)),
            max: seconds(times.max()),
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct BackupIoResult {
    pub time: Duration,
    pub read: Bytes,
    pub written: Bytes,
    pub by_target: Vec<Bytes>,
    pub usage: ResourceUsage,
    /// Time from the start of a transfer to its end.
    pub io: Latency,
    /// Time to lock and unlock a buffer, in modes that lock.
    pub lock: Latency,
    /// Time in which the bystander maps, touches and unmaps a page.
    pub bystander: Latency,
    pub threads: usize,
}

/// A buffer on its way from a reader to a writer.
struct QueuedBuffer<'b> {
    buffer: &'b mut [u8],
    stamp: BlockOrigin,
}

struct RunControl<'b> {
    load: BackupIoLoad<'b>,
    space: Range,
    halt: AtomicBool,
    measuring: AtomicBool,
    ready: AtomicUsize,
    read: AtomicU64,
    written: Vec<AtomicU64>,
}

struct LatencyHistograms {
    io: Histogram<u64>,
    lock: Histogram<u64>,
}

impl LatencyHistograms {
    fn new() -> LatencyHistograms {
        LatencyHistograms {
            io: times(),
            lock: times(),
        }
    }

    fn add(&mut self, other: &LatencyHistograms) {
        // Both have the same bounds.
        let _ = self.io.add(&other.io);
        let _ = self.lock.add(&other.lock);
    }
}

/// Moves blocks for a while through `memory`, which is divided into slots of a block. `edge` is
/// called at the start and at the end of the measured time.
///
/// # Errors
/// [`BackupIoError`]; no transfer is in flight any more then.
pub fn run<'b>(
    memory: &'b mut IoMemory,
    load: &BackupIoLoad<'b>,
    stop: &AtomicBool,
    edge: &mut dyn FnMut(MeasurementEdge),
) -> Result<BackupIoResult, BackupIoError> {
    let space = memory.range();
    let block = usize::try_from(load.block.get()).unwrap_or(usize::MAX);
    let slots: Vec<&'b mut [u8]> = memory.bytes().chunks_exact_mut(block).collect();
    let (free, free_slots) = unbounded();
    fill_queue(&free, slots, load);
    let shared = RunControl {
        load: *load,
        space,
        halt: AtomicBool::new(false),
        measuring: AtomicBool::new(false),
        ready: AtomicUsize::new(0),
        read: AtomicU64::new(0),
        written: load.targets.iter().map(|_| AtomicU64::new(0)).collect(),
    };
    let shared = &shared;
    std::thread::scope(|scope| {
        let (full, full_slots) = unbounded();
        let mut workers = Vec::new();
        // With one direction alone, slots circulate between its threads.
        let onward = if load.targets.is_empty() {
            &free
        } else {
            &full
        };
        let filled = if load.sources.is_empty() {
            &free_slots
        } else {
            &full_slots
        };
        let readers = load.sources.iter().enumerate();
        let readers = readers.map(|(n, area)| (n, area, Direction::Read, &free_slots, onward));
        let writers = load.targets.iter().enumerate();
        let writers = writers.map(|(n, area)| (n, area, Direction::Write, filled, &free));
        for (number, area, direction, from, onward) in readers.chain(writers) {
            let task = TransferTask {
                area,
                direction,
                number,
                from: from.clone(),
                onward: onward.clone(),
            };
            workers.push(scope.spawn(move || shared.worker(task)));
        }
        let bystander =
            scope.spawn(move || run_bystander(load.base, &shared.halt, &shared.measuring));
        let ends = shared.watch(stop, edge);
        shared.halt.store(true, Ordering::Relaxed);
        drop((free, full, free_slots, full_slots));
        let seen = joined(workers);
        let bystander = bystander.join().unwrap_or_else(|_| times());
        match ends {
            Some([begin, end]) => Ok(shared.moved(&begin, &end, &seen?, &bystander)),
            // If a thread has failed, its error is the reason.
            None => seen.and(Err(BackupIoError::Stopped)),
        }
    })
}

/// Marks all slots as free. Without readers, each slot holds a block to be written.
fn fill_queue<'b>(
    free: &Sender<QueuedBuffer<'b>>,
    slots: Vec<&'b mut [u8]>,
    load: &BackupIoLoad<'_>,
) {
    let mut random = fastrand::Rng::with_seed(slots.len() as u64);
    for (index, buffer) in slots.into_iter().enumerate() {
        let stamp = BlockOrigin {
            source: u64::MAX,
            index: index as u64,
        };
        if load.sources.is_empty() {
            fill(buffer, stamp, &mut random);
        }
        // The caller holds the other end.
        let _ = free.send(QueuedBuffer { buffer, stamp });
    }
}

/// Counters at one end of the measured time.
struct CounterSnapshot {
    at: Instant,
    usage: ResourceUsage,
    read: u64,
    written: Vec<u64>,
}

struct TransferTask<'b> {
    area: &'b DeviceRange,
    direction: Direction,
    number: usize,
    from: Receiver<QueuedBuffer<'b>>,
    onward: Sender<QueuedBuffer<'b>>,
}

impl<'b> RunControl<'b> {
    fn reading(&self) -> CounterSnapshot {
        CounterSnapshot {
            at: Instant::now(),
            usage: process_usage(),
            read: self.read.load(Ordering::Relaxed),
            written: (self.written.iter())
                .map(|w| w.load(Ordering::Relaxed))
                .collect(),
        }
    }

    /// Waits until all threads are ready, then for the time to pass; `None` if interrupted.
    fn watch(
        &self,
        stop: &AtomicBool,
        edge: &mut dyn FnMut(MeasurementEdge),
    ) -> Option<[CounterSnapshot; 2]> {
        let over = || stop.load(Ordering::Relaxed) || self.halt.load(Ordering::Relaxed);
        while self.ready.load(Ordering::Relaxed) < self.load.threads() {
            if over() {
                return None;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        let wait = |time: Duration| {
            let until = Instant::now() + time;
            loop {
                let left = until.saturating_duration_since(Instant::now());
                if over() || left.is_zero() {
                    return !over();
                }
                std::thread::sleep(left.min(LOOK));
            }
        };
        if !wait(self.load.warm) {
            return None;
        }
        edge(MeasurementEdge::Begin);
        let begin = self.reading();
        self.measuring.store(true, Ordering::Relaxed);
        let whole = wait(self.load.time);
        let end = self.reading();
        self.measuring.store(false, Ordering::Relaxed);
        edge(MeasurementEdge::End);
        whole.then_some([begin, end])
    }

    fn moved(
        &self,
        begin: &CounterSnapshot,
        end: &CounterSnapshot,
        all: &[LatencyHistograms],
        bystander: &Histogram<u64>,
    ) -> BackupIoResult {
        let mut seen = LatencyHistograms::new();
        all.iter().for_each(|one| seen.add(one));
        let by_target: Vec<Bytes> = (begin.written.iter().zip(&end.written))
            .map(|(a, b)| Bytes(b - a))
            .collect();
        BackupIoResult {
            time: end.at.duration_since(begin.at),
            read: Bytes(end.read - begin.read),
            written: by_target.iter().copied().sum(),
            by_target,
            usage: end.usage.since(begin.usage),
            io: Latency::from_histogram(&seen.io),
            lock: Latency::from_histogram(&seen.lock),
            bystander: Latency::from_histogram(bystander),
            threads: self.load.threads(),
        }
    }

    /// Runs a thread from start to end. A thread that fails ends the run.
    fn worker(&self, task: TransferTask<'b>) -> Result<LatencyHistograms, BackupIoError> {
        let done = match self.load.mode {
            IoMode::Direct | IoMode::Lock => {
                let lock = self.load.mode == IoMode::Lock;
                let carrier = SyncEngine::new(task.area, task.direction, lock);
                self.ready.fetch_add(1, Ordering::Relaxed);
                self.work(&task, carrier)
            }
            IoMode::Uring | IoMode::UringRegistered => self.in_ring(&task),
        };
        if done.is_err() {
            self.halt.store(true, Ordering::Relaxed);
        }
        done
    }

    fn in_ring(&self, task: &TransferTask<'b>) -> Result<LatencyHistograms, BackupIoError> {
        let depth = u32::try_from(self.load.depth()).unwrap_or(1);
        with_ring(depth, |ring: &mut Ring<'b>| {
            if self.load.mode == IoMode::UringRegistered {
                let part = PageSize::new(PART).unwrap_or(self.load.base);
                ring.register(&self.space.chunks(part).collect::<Vec<Range>>())?;
            }
            self.ready.fetch_add(1, Ordering::Relaxed);
            self.work(task, UringEngine::new(ring, task.area, task.direction))
        })?
    }

    fn work(
        &self,
        task: &TransferTask<'b>,
        mut carrier: impl IoEngine<'b>,
    ) -> Result<LatencyHistograms, BackupIoError> {
        let mut seen = LatencyHistograms::new();
        let is_write = task.direction == Direction::Write;
        let mut pace = WriterPace::new(self.load.rate.filter(|_| is_write));
        while !self.halt.load(Ordering::Relaxed) {
            let mut over = false;
            while carrier.flying() < self.load.depth() {
                let idle = carrier.flying() == 0;
                if !pace.is_due(idle) {
                    break;
                }
                let item = match next(&task.from, idle) {
                    Ok(Some(item)) => item,
                    Ok(None) => break,
                    Err(()) => {
                        over = true;
                        break;
                    }
                };
                pace.step(self.load.block);
                let index = task.area.take_next();
                if is_write {
                    task.area.note_write(index, item.stamp);
                }
                carrier.start(index, item.buffer)?;
            }
            let Some(done) = carrier.next()? else {
                if over {
                    break;
                }
                continue;
            };
            if self.measuring.load(Ordering::Relaxed) {
                record(&mut seen.io, done.io);
                if self.load.mode == IoMode::Lock {
                    record(&mut seen.lock, done.lock);
                }
            }
            let stamp = match task.direction {
                Direction::Read => task.area.check(done.index, done.buffer)?,
                Direction::Write => task.area.stamp(done.index),
            };
            self.count(task)
                .fetch_add(self.load.block.get(), Ordering::Relaxed);
            let item = QueuedBuffer {
                buffer: done.buffer,
                stamp,
            };
            if task.onward.send(item).is_err() {
                break;
            }
        }
        Ok(seen)
    }

    fn count(&self, task: &TransferTask<'_>) -> &AtomicU64 {
        match task.direction {
            Direction::Read => &self.read,
            Direction::Write => &self.written[task.number],
        }
    }
}

/// Returns the next slot; waits a little if `idle`. `Err` if no slot will come any more.
fn next<'b>(from: &Receiver<QueuedBuffer<'b>>, idle: bool) -> Result<Option<QueuedBuffer<'b>>, ()> {
    if !idle {
        return match from.try_recv() {
            Ok(item) => Ok(Some(item)),
            Err(TryRecvError::Empty) => Ok(None),
            Err(TryRecvError::Disconnected) => Err(()),
        };
    }
    match from.recv_timeout(LOOK) {
        Ok(item) => Ok(Some(item)),
        Err(RecvTimeoutError::Timeout) => Ok(None),
        Err(RecvTimeoutError::Disconnected) => Err(()),
    }
}

/// Due time of a writer's next block.
struct WriterPace {
    rate: Option<Bytes>,
    due: Instant,
}

impl WriterPace {
    fn new(rate: Option<Bytes>) -> WriterPace {
        WriterPace {
            rate,
            due: Instant::now(),
        }
    }

    /// Returns true if the block is due; waits a short time for it if there is nothing else to do.
    fn is_due(&self, idle: bool) -> bool {
        if self.rate.is_none() {
            return true;
        }
        let left = self.due.saturating_duration_since(Instant::now());
        if idle && !left.is_zero() {
            std::thread::sleep(left.min(LOOK));
        }
        self.due <= Instant::now()
    }

    fn step(&mut self, block: Bytes) {
        if let Some(rate) = self.rate {
            let seconds = block.get() as f64 / rate.get().max(1) as f64;
            self.due += Duration::from_secs_f64(seconds);
        }
    }
}

/// Reads back, through `memory`, the blocks since the last verification, and returns their number.
///
/// # Errors
/// [`BackupIoError::Block`] if a block differs from the written one; those of reading.
pub fn verify(
    memory: &mut IoMemory,
    targets: &[DeviceRange],
    block: Bytes,
) -> Result<u64, BackupIoError> {
    let block = usize::try_from(block.get()).unwrap_or(usize::MAX);
    let mut slots: Vec<&mut [u8]> = memory.bytes().chunks_exact_mut(block).collect();
    let targets: Vec<&DeviceRange> = targets.iter().collect();
    let share = targets.len().div_ceil(slots.len().max(1)).max(1);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (targets.chunks(share).zip(slots.iter_mut()))
            .map(|(areas, slot)| {
                scope.spawn(move || {
                    areas
                        .iter()
                        .map(|area| area.verify(slot))
                        .sum::<Result<u64, _>>()
                })
            })
            .collect();
        let counts = joined(workers)?;
        Ok(counts.into_iter().sum())
    })
}

/// Measures the devices without a data path: the same threads and transfers, nothing checked or
/// handed on. Returns the bytes moved and the duration.
///
/// # Errors
/// Those of the devices.
pub fn measure_devices(
    memory: &mut IoMemory,
    load: &BackupIoLoad<'_>,
    stop: &AtomicBool,
) -> Result<(Bytes, Duration), BackupIoError> {
    let block = usize::try_from(load.block.get()).unwrap_or(usize::MAX);
    let slots: Vec<&mut [u8]> = memory.bytes().chunks_exact_mut(block).collect();
    let areas = load.sources.iter().map(|area| (area, Direction::Read));
    let areas = areas.chain(load.targets.iter().map(|area| (area, Direction::Write)));
    let until = Instant::now() + load.time;
    let began = Instant::now();
    let done = std::thread::scope(|scope| {
        let workers: Vec<_> = areas
            .zip(slots)
            .enumerate()
            .map(|(at, ((area, direction), slot))| {
                scope.spawn(move || bare_thread(area, direction, slot, at as u64, until, stop))
            })
            .collect();
        joined(workers)
    })?;
    Ok((done.into_iter().sum(), began.elapsed()))
}

fn bare_thread<'b>(
    area: &'b DeviceRange,
    direction: Direction,
    slot: &'b mut [u8],
    number: u64,
    until: Instant,
    stop: &AtomicBool,
) -> Result<Bytes, BackupIoError> {
    let stamp = BlockOrigin {
        source: u64::MAX - 1,
        index: number,
    };
    let length = slot.len() as u64;
    if direction == Direction::Write {
        fill(slot, stamp, &mut fastrand::Rng::with_seed(number));
    }
    let mut carrier = SyncEngine::new(area, direction, false);
    let mut slot = Some(slot);
    let mut moved = 0;
    while Instant::now() < until && !stop.load(Ordering::Relaxed) {
        let Some(buffer) = slot.take() else {
            break;
        };
        let index = area.take_next();
        if direction == Direction::Write {
            area.note_write(index, stamp);
        }
        carrier.start(index, buffer)?;
        slot = carrier.next()?.map(|done| done.buffer);
        moved += length;
    }
    Ok(Bytes(moved))
}
