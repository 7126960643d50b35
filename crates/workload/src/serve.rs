//! The workload's process: one thread works on the database, one answers the parent.

#![expect(
    clippy::disallowed_methods,
    reason = "the main loop of a process of its own"
)]

use std::io::{BufRead, BufReader, Read};
use std::num::NonZeroU16;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use hugeleaf_sys::{Advice, advise_own};
use hugeleaf_units::{Bytes, Range};

use crate::child::{self, ChildError, parse};
use crate::database::{Database, RowStatements};
use crate::latency_histogram::{record, times};
use crate::protocol::{
    LINE_LIMIT, ReadyMessage, StartupProgress, StartupStage, WorkloadMessage, WorkloadRequest,
    WorkloadSettings, WorkloadStats,
};
use crate::sqlite_cache::{CacheError, DATABASE_PAGE, SqlitePageCache};

/// Number of operations per update.
const UPDATE_EVERY: u64 = 10;

/// Number of operations per timed one, because two clock reads cost a tenth of a read. The random
/// mix has no fixed pattern that this interval could match.
const SAMPLE_EVERY: u64 = 8;

const WARM_OPERATIONS: u64 = 1_000_000;

#[derive(Debug)]
struct SharedCounters {
    operations: AtomicU64,
    updates: AtomicU64,
    /// Latencies in nanoseconds since the last request for statistics.
    latencies: Mutex<Histogram<u64>>,
    began: Mutex<Option<Instant>>,
}

/// Runs the workload in this process, controlled over standard input, which must be a stream
/// socket. Returns only without a `start` request. The process exits with status 0 when the other
/// end closes or sends `quit`. If the load fails, it reports the reason and exits with status 1.
///
/// Call it before any other use of SQLite in the process.
///
/// # Errors
/// Standard input is no socket, or its first line is no `start`.
pub fn serve() -> Result<std::convert::Infallible, ChildError> {
    let input = std::io::stdin().as_fd().try_clone_to_owned()?;
    let reader = UnixStream::from(input);
    // Rejects a terminal or a pipe early, instead of with an obscure error later.
    reader.local_addr()?;
    let writer = Arc::new(Mutex::new(reader.try_clone()?));
    let shared = Arc::new(SharedCounters {
        operations: AtomicU64::new(0),
        updates: AtomicU64::new(0),
        latencies: Mutex::new(times()),
        began: Mutex::new(None),
    });
    let (sender, receiver) = mpsc::channel();
    let control = ControlThread {
        shared: Arc::clone(&shared),
        writer: Arc::clone(&writer),
    };
    std::thread::Builder::new()
        .name("control".into())
        .stack_size(256 * 1024)
        .spawn(move || control.run(reader, &sender))?;
    let Ok(settings) = receiver.recv() else {
        return Err(ChildError::Answer("no start".into()));
    };
    let Err(error) = work(settings, &shared, &writer);
    say(&writer, &WorkloadMessage::Failed(error.to_string()));
    std::process::exit(1)
}

fn work(
    settings: WorkloadSettings,
    shared: &SharedCounters,
    writer: &Mutex<UnixStream>,
) -> Result<std::convert::Infallible, CacheError> {
    let mut progress = |stage, done, total| {
        say(
            writer,
            &WorkloadMessage::Progress(StartupProgress { stage, done, total }),
        );
    };
    let size = settings.align.round_down(settings.cache.get());
    let mut there = |done| progress(StartupStage::Populate, done, size);
    let cache = SqlitePageCache::install_movable(settings.cache, settings.align, &mut there)?;
    let database = Database::open(settings.seed)?;
    let rows = fill(&database, &cache, &mut progress)?;
    let mut load = QueryClient {
        row: database.row()?,
        rows,
        random: fastrand::Rng::with_seed(settings.seed),
        operations: 0,
        updates: 0,
    };
    warm(&mut load, &mut progress)?;
    let ready = ReadyMessage {
        rows,
        segment: cache.range(),
        outside: Bytes(cache.heap_pages() * DATABASE_PAGE as u64),
    };
    *lock(&shared.began) = Some(Instant::now());
    say(writer, &WorkloadMessage::Ready(ready));
    let (operations, updates) = (load.operations, load.updates);
    loop {
        for _ in 1..SAMPLE_EVERY {
            load.step()?;
        }
        let before = Instant::now();
        load.step()?;
        let took = before.elapsed();
        record(&mut lock(&shared.latencies), took);
        let done = load.operations - operations;
        shared.operations.store(done, Ordering::Relaxed);
        shared
            .updates
            .store(load.updates - updates, Ordering::Relaxed);
    }
}

/// Inserts rows until nearly all slots of the page cache are used. The rest is for pages that
/// SQLite needs occasionally, beside those of the table.
fn fill(
    database: &Database,
    cache: &SqlitePageCache,
    progress: &mut dyn FnMut(StartupStage, u64, u64),
) -> Result<u64, CacheError> {
    const BETWEEN_WORDS: Duration = Duration::from_millis(50);
    let (slots, _) = cache.slots();
    let full = slots.saturating_sub((slots / 64).max(128));
    let each = cache.length().get() / slots.max(1);
    let mut said = Instant::now();
    database.fill(&mut |_| {
        let (_, used) = cache.slots();
        if said.elapsed() > BETWEEN_WORDS {
            said = Instant::now();
            progress(StartupStage::Fill, used.min(full) * each, full * each);
        }
        used < full
    })
}

/// Runs the load until CPU caches and allocator are in their steady state.
fn warm(
    load: &mut QueryClient<'_>,
    progress: &mut dyn FnMut(StartupStage, u64, u64),
) -> Result<(), CacheError> {
    const STEP: u64 = 1 << 15;
    let total = load.rows.min(WARM_OPERATIONS);
    while load.operations < total {
        for _ in 0..STEP {
            load.step()?;
        }
        progress(StartupStage::Warm, load.operations.min(total), total);
    }
    Ok(())
}

struct QueryClient<'c> {
    row: RowStatements<'c>,
    rows: u64,
    random: fastrand::Rng,
    operations: u64,
    updates: u64,
}

impl QueryClient<'_> {
    fn step(&mut self) -> Result<(), CacheError> {
        let key = self.random.u64(1..=self.rows);
        self.operations += 1;
        if self.random.u64(0..UPDATE_EVERY) == 0 {
            self.updates += 1;
            self.row.update(key, self.operations)
        } else {
            self.row.read(key).map(drop)
        }
    }
}

struct ControlThread {
    shared: Arc<SharedCounters>,
    writer: Arc<Mutex<UnixStream>>,
}

impl ControlThread {
    /// Reads requests until none is left, then ends the process because the parent is gone.
    fn run(self, reader: UnixStream, start: &mpsc::Sender<WorkloadSettings>) {
        let mut reader = BufReader::new(reader);
        let mut line = String::new();
        loop {
            line.clear();
            let limited = &mut (&mut reader).take(LINE_LIMIT as u64);
            match limited.read_line(&mut line) {
                Ok(n) if n > 0 && line.ends_with('\n') => {}
                // The other end is closed or uses another protocol.
                _ => std::process::exit(0),
            }
            match parse(line.trim_end_matches('\n')) {
                Ok(WorkloadRequest::Start(settings)) => {
                    // A running workload ignores a second start.
                    let _ = start.send(settings);
                }
                Ok(WorkloadRequest::Stats) => {
                    say(&self.writer, &WorkloadMessage::Stats(self.stats()))
                }
                Ok(WorkloadRequest::Advise { advice, ranges }) => {
                    say(&self.writer, &advise(&ranges, advice));
                }
                Ok(WorkloadRequest::Quit) => std::process::exit(0),
                Err(error) => {
                    say(&self.writer, &WorkloadMessage::Failed(error.to_string()));
                    std::process::exit(1);
                }
            }
        }
    }

    fn stats(&self) -> WorkloadStats {
        // The lock covers only the swap, so the load does not wait for the evaluation.
        let latencies = std::mem::replace(&mut *lock(&self.shared.latencies), times());
        let began = *lock(&self.shared.began);
        let nanoseconds = began.map_or(0, |b| b.elapsed().as_nanos());
        WorkloadStats {
            operations: self.shared.operations.load(Ordering::Relaxed),
            updates: self.shared.updates.load(Ordering::Relaxed),
            nanoseconds: u64::try_from(nanoseconds).unwrap_or(u64::MAX),
            cpu_nanoseconds: cpu_nanoseconds(),
            samples: latencies.len(),
            p50_nanoseconds: latencies.value_at_quantile(0.5),
            p99_nanoseconds: latencies.value_at_quantile(0.99),
        }
    }
}

/// Returns the CPU time of this process, which is almost entirely the load's.
fn cpu_nanoseconds() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanoseconds = u64::try_from(time.tv_nsec).unwrap_or(0);
    seconds * 1_000_000_000 + nanoseconds
}

/// Processes the ranges as process_madvise(2) does.
fn advise(ranges: &[Range], advice: Advice) -> WorkloadMessage {
    let mut done = Bytes::ZERO;
    for range in ranges {
        match advise_own(*range, advice) {
            Ok(()) => done += range.len(),
            Err(error) if done.is_zero() => {
                let number = u16::try_from(error.errno.raw_os_error()).ok();
                let number = number.and_then(NonZeroU16::new);
                return WorkloadMessage::Errno(number.unwrap_or(NonZeroU16::MAX));
            }
            Err(_) => break,
        }
    }
    WorkloadMessage::Advised(done)
}

/// Sends a line. The reader of requests notices a parent that is gone.
fn say(writer: &Mutex<UnixStream>, event: &WorkloadMessage) {
    let _ = child::say(&mut *lock(writer), event);
}

/// Locks a mutex; ignores poisoning, because a panicked thread leaves no relevant state incomplete.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
