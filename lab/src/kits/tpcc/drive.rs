//! The run: connections that send transactions at full speed, or at the speed of people.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender};
use hdrhistogram::Histogram;
use hugeleaf_sys::{ResourceUsage, process_usage};

use super::counters::DatabaseCounters;
use super::error::{TpccError, joined};
use super::input::{TpccTerminal, TransactionInput};
use super::random::{NurandConstants, Random};
use super::rules::TransactionKind;
use super::store::{DatasetSpec, TpccSession, TpccStore, TransactionResult};
use hugeleaf_workload::latency_histogram::{record, times};

#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum TransactionPace {
    /// No waiting.
    #[default]
    Full,
    /// The standard's keying and think times, multiplied by this factor.
    People(f64),
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DriverSettings {
    pub connections: usize,
    /// Duration of the load before the measurement.
    pub ramp_up: Duration,
    pub time: Duration,
    pub pace: TransactionPace,
    /// Number of warehouses to touch, from the first on; all if `None`.
    pub touched: Option<i32>,
    pub seed: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct TransactionStats {
    pub committed: u64,
    /// Number of rollbacks that the standard prescribes (New-Order only).
    pub rolled_back: u64,
    /// Number of repeated transactions after a conflict with another.
    pub conflicts: u64,
    /// Seconds from the first statement to the end of the commit, including repetitions.
    pub mean: f64,
    pub p50: f64,
    pub p90: f64,
    /// 99th percentile.
    pub p99: f64,
    pub max: f64,
}

#[derive(Debug, Clone, PartialEq)]
pub struct DriverResult {
    pub seconds: f64,
    /// Latencies by kind, in the order of [`TransactionKind::ALL`].
    pub kinds: [TransactionStats; 5],
    pub counters: DatabaseCounters,
    /// Number of transactions during which `counters` were counted, including those in progress at
    /// the end of the interval.
    pub counted: u64,
    pub usage: ResourceUsage,
}

impl DriverResult {
    /// Returns the New-Order transactions committed a minute, without rolled back ones.
    pub fn notpm(&self) -> f64 {
        let orders = self.kinds[TransactionKind::NewOrder.index()].committed;
        orders as f64 / self.seconds * 60.0
    }

    /// Returns the completed transactions of all kinds, including rolled back ones.
    pub fn transactions(&self) -> u64 {
        self.kinds.iter().map(|k| k.committed + k.rolled_back).sum()
    }

    /// Returns the transactions a second.
    pub fn tps(&self) -> f64 {
        self.transactions() as f64 / self.seconds
    }
}

/// An observer of the measurement. At both moments all connections are open, so all processes of a
/// server exist.
pub trait MeasurementObserver {
    fn begins(&mut self) {}
    /// Called when counting has stopped, before any connection is closed.
    fn ends(&mut self) {}
}

/// Observes nothing.
impl MeasurementObserver for () {}

/// Number of attempts before a transaction is given up.
const TRIES: u32 = 1000;

struct DriverState<'a> {
    run: DriverSettings,
    start: OnceLock<Instant>,
    failed: AtomicBool,
    /// All observations are complete, so connections may be closed.
    seen: AtomicBool,
    stop: &'a AtomicBool,
}

impl DriverState<'_> {
    fn is_over(&self) -> bool {
        self.stop.load(Ordering::Relaxed) || self.failed.load(Ordering::Relaxed)
    }

    /// Keeps a connection open until all observations are complete.
    fn stay(&self) {
        while !self.seen.load(Ordering::Relaxed) && !self.is_over() {
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Waits until a moment, or until the end of the run.
    fn sleep_until(&self, when: Instant) {
        const SLICE: Duration = Duration::from_millis(20);
        while !self.is_over() {
            let left = when.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            thread::sleep(left.min(SLICE));
        }
    }
}

struct ConnectionAssignment {
    shard: i32,
    terminal: TpccTerminal,
}

struct TransactionTally {
    latency: [Histogram<u64>; 5],
    committed: [u64; 5],
    rolled_back: [u64; 5],
    conflicts: [u64; 5],
    counters: DatabaseCounters,
    counted: u64,
}

/// Runs the load. `onlooker` is told when counting begins and ends.
///
/// # Errors
/// The first error of any connection; [`TpccError::NoOrders`]; [`TpccError::Stopped`]. There is no
/// result then.
pub fn drive(
    store: &dyn TpccStore,
    origin: &DatasetSpec,
    run: DriverSettings,
    onlooker: &mut dyn MeasurementObserver,
    progress: &mut dyn FnMut(Duration, Duration),
    stop: &AtomicBool,
) -> Result<DriverResult, TpccError> {
    let drive = DriverState {
        run,
        start: OnceLock::new(),
        failed: AtomicBool::new(false),
        seen: AtomicBool::new(false),
        stop,
    };
    let (tell, ready) = crossbeam_channel::unbounded();
    let posts = posts(origin, &run);
    thread::scope(|scope| {
        let drive = &drive;
        let workers: Vec<_> = posts
            .into_iter()
            .map(|post| {
                let tell = tell.clone();
                scope.spawn(move || work(store, post, drive, &tell))
            })
            .collect();
        drop(tell);
        let watched = wait_for_all(drive, workers.len(), &ready)
            .and_then(|start| watch(store, drive, start, onlooker, progress));
        drive.seen.store(true, Ordering::Relaxed);
        if watched.is_err() {
            drive.failed.store(true, Ordering::Relaxed);
        }
        match (joined(workers), watched) {
            (Err(TpccError::Stopped) | Ok(_), Err(error)) | (Err(error), _) => Err(error),
            (Ok(tallies), Ok(interval)) => {
                // Read after all connections are closed: some servers count at the end of a
                // connection.
                let counters = (store.counters()? - interval.before)?;
                summed(tallies, &interval, counters)
            }
        }
    })
}

/// Distributes connections over databases, and warehouses over the connections of each.
fn posts(origin: &DatasetSpec, run: &DriverSettings) -> Vec<ConnectionAssignment> {
    let shards: Vec<(i32, (i32, i32))> = (0..origin.shards)
        .filter_map(|shard| Some((shard, origin.touched_of(shard, run.touched)?)))
        .collect();
    let constants = NurandConstants::for_run(NurandConstants::for_load(origin.seed), run.seed);
    (0..run.connections)
        .map(|connection| {
            let (shard, reach) = shards[connection % shards.len()];
            let turn = connection / shards.len();
            let others = (run.connections - connection % shards.len()).div_ceil(shards.len());
            let homes: Vec<i32> = (reach.0..=reach.1).collect();
            let own: Vec<i32> = match homes.len() >= others {
                true => homes.iter().copied().skip(turn).step_by(others).collect(),
                false => vec![homes[turn % homes.len()]],
            };
            let random = Random::new(run.seed, &[connection as u64]);
            ConnectionAssignment {
                shard,
                terminal: TpccTerminal::new(random, constants, origin.scale, own, reach),
            }
        })
        .collect()
}

/// Measurements of the main thread over the interval.
struct MeasuredInterval {
    seconds: f64,
    usage: ResourceUsage,
    before: DatabaseCounters,
}

fn wait_for_all(
    drive: &DriverState<'_>,
    workers: usize,
    ready: &Receiver<()>,
) -> Result<Instant, TpccError> {
    for _ in 0..workers {
        // A worker that could not begin has hung up; its error is found when it is joined.
        if ready.recv().is_err() {
            return Err(TpccError::Stopped);
        }
    }
    Ok(*drive.start.get_or_init(Instant::now))
}

/// Measures the process's usage over the interval, and reads the database's counters at its start.
fn watch(
    store: &dyn TpccStore,
    drive: &DriverState<'_>,
    start: Instant,
    onlooker: &mut dyn MeasurementObserver,
    progress: &mut dyn FnMut(Duration, Duration),
) -> Result<MeasuredInterval, TpccError> {
    let (from, to) = edges(drive, start);
    let whole = to - start;
    let mut rest_until = |when: Instant| {
        while Instant::now() < when && !drive.is_over() {
            progress(start.elapsed().min(whole), whole);
            let next = Instant::now() + Duration::from_millis(250);
            drive.sleep_until(next.min(when));
        }
    };
    rest_until(from);
    onlooker.begins();
    let (usage, before) = (process_usage(), store.counters()?);
    rest_until(to);
    let usage = process_usage().since(usage);
    if drive.is_over() {
        return Err(TpccError::Stopped);
    }
    onlooker.ends();
    Ok(MeasuredInterval {
        seconds: (to - from).as_secs_f64(),
        usage,
        before,
    })
}

/// Returns the moments at which counting begins and ends.
fn edges(drive: &DriverState<'_>, start: Instant) -> (Instant, Instant) {
    let from = start + drive.run.ramp_up;
    (from, from + drive.run.time)
}

fn work(
    store: &dyn TpccStore,
    mut post: ConnectionAssignment,
    drive: &DriverState<'_>,
    ready: &Sender<()>,
) -> Result<TransactionTally, TpccError> {
    let mut tally = None;
    let worked = store.session(post.shard, &mut |session| {
        let _ = ready.send(());
        let start = loop {
            if let Some(start) = drive.start.get() {
                break *start;
            }
            if drive.is_over() {
                return Err(TpccError::Stopped);
            }
            thread::sleep(Duration::from_millis(1));
        };
        tally = Some(loop_until_the_end(
            session,
            &mut post.terminal,
            drive,
            start,
        )?);
        drive.stay();
        Ok(())
    });
    if worked.is_err() {
        drive.failed.store(true, Ordering::Relaxed);
    }
    worked?;
    tally.ok_or(TpccError::Thread)
}

/// Runs the measured loop. It allocates almost nothing and reads the clock twice per transaction.
fn loop_until_the_end(
    session: &mut dyn TpccSession,
    terminal: &mut TpccTerminal,
    drive: &DriverState<'_>,
    start: Instant,
) -> Result<TransactionTally, TpccError> {
    let (from, to) = edges(drive, start);
    let mut tally = TransactionTally::new();
    let mut before = None;
    let mut now = Instant::now();
    while now < to {
        if drive.is_over() {
            return Err(TpccError::Stopped);
        }
        if now >= from && before.is_none() {
            before = Some(session.counters()?);
        }
        let input = terminal.deal();
        let kind = input.kind();
        let waits = match drive.run.pace {
            TransactionPace::Full => None,
            TransactionPace::People(factor) => Some((factor, terminal.waits(kind))),
        };
        if let Some((factor, (keying, _))) = waits {
            rest(drive, factor * keying, to);
            if Instant::now() >= to {
                break;
            }
        }
        let sent = Instant::now();
        let (answer, conflicts) = send(session, &input, drive)?;
        now = Instant::now();
        tally.counted += u64::from(before.is_some());
        if before.is_some() && now <= to {
            tally.count(kind, answer, conflicts, now - sent);
        }
        if let Some((factor, (_, thinking))) = waits {
            rest(drive, factor * thinking, to);
            now = Instant::now();
        }
    }
    if let Some(before) = before {
        tally.counters = (session.counters()? - before)?;
    }
    Ok(tally)
}

fn rest(drive: &DriverState<'_>, seconds: f64, to: Instant) {
    let length = Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX);
    let end = Instant::now().checked_add(length).map_or(to, |e| e.min(to));
    drive.sleep_until(end);
}

/// Sends a transaction until it succeeds.
fn send(
    session: &mut dyn TpccSession,
    input: &TransactionInput,
    drive: &DriverState<'_>,
) -> Result<(TransactionResult, u64), TpccError> {
    for tries in 0..TRIES {
        let answer = session.run(input)?;
        if answer != TransactionResult::Conflict {
            return Ok((answer, tries.into()));
        }
        if drive.is_over() {
            return Err(TpccError::Stopped);
        }
    }
    Err(TpccError::TooManyConflicts {
        kind: input.kind(),
        tries: TRIES,
    })
}

impl TransactionTally {
    fn new() -> TransactionTally {
        TransactionTally {
            latency: std::array::from_fn(|_| times()),
            committed: [0; 5],
            rolled_back: [0; 5],
            conflicts: [0; 5],
            counters: DatabaseCounters::default(),
            counted: 0,
        }
    }

    fn count(
        &mut self,
        kind: TransactionKind,
        answer: TransactionResult,
        conflicts: u64,
        took: Duration,
    ) {
        let at = kind.index();
        self.conflicts[at] += conflicts;
        match answer {
            TransactionResult::Committed(_) => self.committed[at] += 1,
            TransactionResult::RolledBack => self.rolled_back[at] += 1,
            TransactionResult::Conflict => {}
        }
        record(&mut self.latency[at], took);
    }
}

fn summed(
    tallies: Vec<TransactionTally>,
    interval: &MeasuredInterval,
    counters: DatabaseCounters,
) -> Result<DriverResult, TpccError> {
    let mut all = TransactionTally::new();
    for tally in &tallies {
        all.counters = all.counters + tally.counters;
        all.counted += tally.counted;
        for at in 0..TransactionKind::ALL.len() {
            all.committed[at] += tally.committed[at];
            all.rolled_back[at] += tally.rolled_back[at];
            all.conflicts[at] += tally.conflicts[at];
            // Both have the same bounds, so nothing is out of range.
            let _ = all.latency[at].add(&tally.latency[at]);
        }
    }
    if all.committed[TransactionKind::NewOrder.index()] == 0 {
        return Err(TpccError::NoOrders(interval.seconds));
    }
    let kinds = std::array::from_fn(|at| latency(&all, at));
    Ok(DriverResult {
        seconds: interval.seconds,
        kinds,
        counters: all.counters + counters,
        counted: all.counted,
        usage: interval.usage,
    })
}

fn latency(all: &TransactionTally, at: usize) -> TransactionStats {
    let histogram = &all.latency[at];
    let seconds = |q: f64| Duration::from_nanos(histogram.value_at_quantile(q)).as_secs_f64();
    TransactionStats {
        committed: all.committed[at],
        rolled_back: all.rolled_back[at],
        conflicts: all.conflicts[at],
        mean: histogram.mean() / 1e9,
        p50: seconds(0.5),
        p90: seconds(0.9),
        p99: seconds(0.99),
        max: Duration::from_nanos(histogram.max()).as_secs_f64(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kits::tpcc::rules::TableCardinality;

    fn posts_of(
        warehouses: i32,
        shards: i32,
        connections: usize,
        touched: Option<i32>,
    ) -> Vec<ConnectionAssignment> {
        let origin = DatasetSpec {
            warehouses,
            shards,
            scale: TableCardinality::STANDARD,
            seed: 1,
            filled_at: 0,
        };
        let run = DriverSettings {
            connections,
            ramp_up: Duration::ZERO,
            time: Duration::ZERO,
            pace: TransactionPace::Full,
            touched,
            seed: 1,
        };
        posts(&origin, &run)
    }

    fn homes(posts: &mut [ConnectionAssignment]) -> Vec<i32> {
        let mut homes: Vec<i32> = posts
            .iter_mut()
            .flat_map(|post| {
                (0..100)
                    .map(|_| match post.terminal.deal() {
                        TransactionInput::NewOrder(i) => i.warehouse,
                        TransactionInput::Payment(i) => i.warehouse,
                        TransactionInput::OrderStatus(i) => i.warehouse,
                        TransactionInput::Delivery(i) => i.warehouse,
                        TransactionInput::StockLevel(i) => i.warehouse,
                    })
                    .collect::<Vec<_>>()
            })
            .collect();
        homes.sort_unstable();
        homes.dedup();
        homes
    }

    #[test]
    fn every_touched_warehouse_has_a_terminal_and_no_other() {
        for (warehouses, shards, connections) in [(7, 2, 2), (7, 2, 5), (3, 3, 3), (10, 1, 4)] {
            let all = homes(&mut posts_of(warehouses, shards, connections, None));
            assert_eq!(all, (1..=warehouses).collect::<Vec<_>>());
        }
        // With two databases of five warehouses each: two of the first and two of the second.
        assert_eq!(homes(&mut posts_of(10, 2, 2, Some(4))), [1, 2, 6, 7]);
        // One warehouse can only be in one of them.
        assert_eq!(homes(&mut posts_of(10, 2, 3, Some(1))).len(), 1);
        // More connections than warehouses share them.
        assert_eq!(homes(&mut posts_of(2, 2, 5, None)), [1, 2]);
    }
}
