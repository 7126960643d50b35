//! The run: connections that send transactions as fast as they can, or as people would.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender};
use hdrhistogram::Histogram;
use hugeleaf_sys::{Usage, process_usage};

use super::counters::Counters;
use super::error::{TpccError, joined};
use super::input::{Input, Terminal};
use super::random::{Constants, Random};
use super::rules::Kind;
use super::store::{Answer, Origin, Session, Store};
use hugeleaf_workload::times::{record, times};

#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum Pace {
    /// Not at all.
    #[default]
    Full,
    /// As long as people type and think in the standard, times this.
    People(f64),
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Run {
    pub connections: usize,
    /// How long to run before anything counts.
    pub ramp_up: Duration,
    pub time: Duration,
    pub pace: Pace,
    /// The first so many warehouses are touched, and no other; all where `None`.
    pub touched: Option<i32>,
    pub seed: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Latency {
    pub committed: u64,
    /// How many were rolled back because the standard wants it: New-Order alone.
    pub rolled_back: u64,
    /// How often one had to be sent again because another was in the way.
    pub conflicts: u64,
    /// Seconds from the first statement to the end of the commit, sending again included.
    pub mean: f64,
    pub p50: f64,
    pub p90: f64,
    /// 99 of a hundred are faster.
    pub p99: f64,
    pub max: f64,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    pub seconds: f64,
    /// By kind, in the order of [`Kind::ALL`].
    pub kinds: [Latency; 5],
    pub counters: Counters,
    /// During how many transactions `counters` were counted: those that were under way at the
    /// interval's end are among them.
    pub counted: u64,
    pub usage: Usage,
}

impl Outcome {
    /// New-Order transactions committed a minute. Those that are rolled back do not count.
    pub fn notpm(&self) -> f64 {
        let orders = self.kinds[Kind::NewOrder.index()].committed;
        rate(orders, self.seconds) * 60.0
    }

    /// Transactions of all kinds that came to their end, rolled back or not.
    pub fn transactions(&self) -> u64 {
        self.kinds.iter().map(|k| k.committed + k.rolled_back).sum()
    }

    /// Transactions a second.
    pub fn tps(&self) -> f64 {
        rate(self.transactions(), self.seconds)
    }
}

// Counts of minutes are far below 2^52.
fn rate(count: u64, seconds: f64) -> f64 {
    count as f64 / seconds
}

/// Who looks on while it is measured. At both moments all connections are open: a server's
/// processes are all there.
pub trait Onlooker {
    fn begins(&mut self) {}
    /// It has stopped counting, and no connection is closed yet.
    fn ends(&mut self) {}
}

/// Nobody.
impl Onlooker for () {}

/// How often a transaction is sent before it is given up.
const TRIES: u32 = 1000;

struct Drive<'a> {
    run: Run,
    start: OnceLock<Instant>,
    failed: AtomicBool,
    /// All has been looked at: connections may be closed.
    seen: AtomicBool,
    stop: &'a AtomicBool,
}

impl Drive<'_> {
    fn is_over(&self) -> bool {
        self.stop.load(Ordering::Relaxed) || self.failed.load(Ordering::Relaxed)
    }

    /// Keeps a connection open until everybody has looked.
    fn stay(&self) {
        while !self.seen.load(Ordering::Relaxed) && !self.is_over() {
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Waits until a moment, or until all is over.
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

struct Post {
    shard: i32,
    terminal: Terminal,
}

struct Tally {
    latency: [Histogram<u64>; 5],
    committed: [u64; 5],
    rolled_back: [u64; 5],
    conflicts: [u64; 5],
    counters: Counters,
    counted: u64,
}

/// Runs the load. `onlooker` learns when it counts and when no longer.
///
/// # Errors
/// The first that any connection met; [`TpccError::Nothing`]; [`TpccError::Stopped`]. Then there is
/// no result.
pub fn drive(
    store: &dyn Store,
    origin: &Origin,
    run: Run,
    onlooker: &mut dyn Onlooker,
    progress: &mut dyn FnMut(Duration, Duration),
    stop: &AtomicBool,
) -> Result<Outcome, TpccError> {
    let drive = Drive {
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
                // Once all connections are closed: some servers count what each did when it ends.
                let counters = (store.counters()? - interval.before)?;
                summed(tallies, &interval, counters)
            }
        }
    })
}

/// Spreads connections over databases, and warehouses over the connections of each.
fn posts(origin: &Origin, run: &Run) -> Vec<Post> {
    let shards: Vec<(i32, (i32, i32))> = (0..origin.shards)
        .filter_map(|shard| Some((shard, origin.touched_of(shard, run.touched)?)))
        .collect();
    let constants = Constants::for_run(Constants::for_load(origin.seed), run.seed);
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
            Post {
                shard,
                terminal: Terminal::new(random, constants, origin.scale, own, reach),
            }
        })
        .collect()
}

/// What the main thread sees of the measured interval.
struct Interval {
    seconds: f64,
    usage: Usage,
    before: Counters,
}

fn wait_for_all(
    drive: &Drive<'_>,
    workers: usize,
    ready: &Receiver<()>,
) -> Result<Instant, TpccError> {
    for _ in 0..workers {
        // A worker that could not begin has hung up, and its error is found when it is joined.
        if ready.recv().is_err() {
            return Err(TpccError::Stopped);
        }
    }
    Ok(*drive.start.get_or_init(Instant::now))
}

/// Reads what is counted as a whole at both ends.
fn watch(
    store: &dyn Store,
    drive: &Drive<'_>,
    start: Instant,
    onlooker: &mut dyn Onlooker,
    progress: &mut dyn FnMut(Duration, Duration),
) -> Result<Interval, TpccError> {
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
    Ok(Interval {
        seconds: (to - from).as_secs_f64(),
        usage,
        before,
    })
}

/// When counting begins and ends.
fn edges(drive: &Drive<'_>, start: Instant) -> (Instant, Instant) {
    let from = start + drive.run.ramp_up;
    (from, from + drive.run.time)
}

fn work(
    store: &dyn Store,
    mut post: Post,
    drive: &Drive<'_>,
    ready: &Sender<()>,
) -> Result<Tally, TpccError> {
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

/// The loop that is measured. It allocates next to nothing and asks the clock twice a transaction.
fn loop_until_the_end(
    session: &mut dyn Session,
    terminal: &mut Terminal,
    drive: &Drive<'_>,
    start: Instant,
) -> Result<Tally, TpccError> {
    let (from, to) = edges(drive, start);
    let mut tally = Tally::new();
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
            Pace::Full => None,
            Pace::People(factor) => Some((factor, terminal.waits(kind))),
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

fn rest(drive: &Drive<'_>, seconds: f64, to: Instant) {
    let length = Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX);
    let end = Instant::now().checked_add(length).map_or(to, |e| e.min(to));
    drive.sleep_until(end);
}

/// Sends a transaction until it is through.
fn send(
    session: &mut dyn Session,
    input: &Input,
    drive: &Drive<'_>,
) -> Result<(Answer, u64), TpccError> {
    for tries in 0..TRIES {
        let answer = session.run(input)?;
        if answer != Answer::Conflict {
            return Ok((answer, tries.into()));
        }
        if drive.is_over() {
            return Err(TpccError::Stopped);
        }
    }
    Err(TpccError::Stuck {
        kind: input.kind(),
        tries: TRIES,
    })
}

impl Tally {
    fn new() -> Tally {
        Tally {
            latency: std::array::from_fn(|_| times()),
            committed: [0; 5],
            rolled_back: [0; 5],
            conflicts: [0; 5],
            counters: Counters::default(),
            counted: 0,
        }
    }

    fn count(&mut self, kind: Kind, answer: Answer, conflicts: u64, took: Duration) {
        let at = kind.index();
        self.conflicts[at] += conflicts;
        match answer {
            Answer::Committed(_) => self.committed[at] += 1,
            Answer::RolledBack => self.rolled_back[at] += 1,
            Answer::Conflict => {}
        }
        record(&mut self.latency[at], took);
    }
}

fn summed(
    tallies: Vec<Tally>,
    interval: &Interval,
    counters: Counters,
) -> Result<Outcome, TpccError> {
    let mut all = Tally::new();
    for tally in &tallies {
        all.counters = all.counters + tally.counters;
        all.counted += tally.counted;
        for at in 0..Kind::ALL.len() {
            all.committed[at] += tally.committed[at];
            all.rolled_back[at] += tally.rolled_back[at];
            all.conflicts[at] += tally.conflicts[at];
            // Both have the same bounds, so nothing is out of range.
            let _ = all.latency[at].add(&tally.latency[at]);
        }
    }
    if all.committed[Kind::NewOrder.index()] == 0 {
        return Err(TpccError::Nothing(interval.seconds));
    }
    let kinds = std::array::from_fn(|at| latency(&all, at));
    Ok(Outcome {
        seconds: interval.seconds,
        kinds,
        counters: all.counters + counters,
        counted: all.counted,
        usage: interval.usage,
    })
}

fn latency(all: &Tally, at: usize) -> Latency {
    let histogram = &all.latency[at];
    let seconds = |q: f64| Duration::from_nanos(histogram.value_at_quantile(q)).as_secs_f64();
    Latency {
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
    use crate::kits::tpcc::rules::Scale;

    fn posts_of(
        warehouses: i32,
        shards: i32,
        connections: usize,
        touched: Option<i32>,
    ) -> Vec<Post> {
        let origin = Origin {
            warehouses,
            shards,
            scale: Scale::STANDARD,
            seed: 1,
            filled_at: 0,
        };
        let run = Run {
            connections,
            ramp_up: Duration::ZERO,
            time: Duration::ZERO,
            pace: Pace::Full,
            touched,
            seed: 1,
        };
        posts(&origin, &run)
    }

    fn homes(posts: &mut [Post]) -> Vec<i32> {
        let mut homes: Vec<i32> = posts
            .iter_mut()
            .flat_map(|post| {
                (0..100)
                    .map(|_| match post.terminal.deal() {
                        Input::NewOrder(i) => i.warehouse,
                        Input::Payment(i) => i.warehouse,
                        Input::OrderStatus(i) => i.warehouse,
                        Input::Delivery(i) => i.warehouse,
                        Input::StockLevel(i) => i.warehouse,
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
        // Of two databases of five warehouses each, two of the first and two of the second.
        assert_eq!(homes(&mut posts_of(10, 2, 2, Some(4))), [1, 2, 6, 7]);
        // One warehouse can only be in one of them.
        assert_eq!(homes(&mut posts_of(10, 2, 3, Some(1))).len(), 1);
        // More connections than warehouses share them.
        assert_eq!(homes(&mut posts_of(2, 2, 5, None)), [1, 2]);
    }
}
