//! Populates memory on the requested number of threads.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use hugeleaf_sys::{Advice, Errno, ReservedAddresses, SysError};
use hugeleaf_units::{Bytes, PageSize, Range};

use crate::error::MemoryError;
use crate::host_memory::HostMemory;

/// Limit of the memory that all threads together populate at one time. The kernel holds the mmap
/// lock during a call and every mmap(2) of the process waits for it, including that of a new
/// thread's stack. The limit is small, but large enough to keep the cost of the calls negligible.
const IN_FLIGHT_LIMIT: Bytes = Bytes::from_mib(8);
/// Interval between checks of the host's available memory.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Number of times that EAGAIN and EINTR are retried.
const TRIES: u32 = 16;

/// Callback for progress: bytes done, bytes in total.
pub(crate) type ProgressCallback<'a> = &'a mut dyn FnMut(Bytes, Bytes);

pub(crate) struct Populator<'a> {
    threads: usize,
    progress: ProgressCallback<'a>,
    done: Bytes,
    /// Highest progress reported. Memory that is populated a second time is no progress.
    reported: Bytes,
    total: Bytes,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PopulateMethod {
    Plain,
    /// As `Plain`, from a pool: the host's other memory is not checked.
    FromPool,
    /// Each block of `huge` is collapsed to one page first.
    Collapsing {
        huge: PageSize,
        base: PageSize,
    },
}

#[derive(Debug)]
pub(crate) enum PopulateError {
    /// A page was unavailable: the pool, a limit or a node is short.
    NoPage(SysError),
    NoRoom(MemoryError),
    Failed(SysError),
}

impl From<PopulateError> for MemoryError {
    fn from(stopped: PopulateError) -> MemoryError {
        match stopped {
            PopulateError::NoPage(error) | PopulateError::Failed(error) => MemoryError::Sys(error),
            PopulateError::NoRoom(error) => error,
        }
    }
}

impl<'a> Populator<'a> {
    /// Returns a filler of `total` bytes; without `threads`, one per processor of this process.
    pub(crate) fn new(
        threads: Option<usize>,
        total: Bytes,
        progress: ProgressCallback<'a>,
    ) -> Populator<'a> {
        let all = || std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Populator {
            threads: threads.unwrap_or_else(all).max(1),
            progress,
            done: Bytes::ZERO,
            reported: Bytes::ZERO,
            total,
        }
    }

    /// Populates `part` in chunks of whole `page`s. For memory outside the pools it checks the
    /// available memory meanwhile, and stops before the kernel has to kill a process.
    pub(crate) fn populate(
        &mut self,
        space: &ReservedAddresses,
        part: Range,
        page: PageSize,
        method: PopulateMethod,
    ) -> Result<(), PopulateError> {
        let chunks: Vec<Range> = part.chunks(self.step(page)).collect();
        let threads = self.threads.min(chunks.len());
        let work = PopulateJob {
            space,
            method,
            chunks,
            next: AtomicUsize::new(0),
            stop: AtomicBool::new(false),
            begun: AtomicU64::new(0),
            filled: AtomicU64::new(0),
        };
        let mut watch = PopulateMonitor {
            length: part.len(),
            from_pool: method == PopulateMethod::FromPool,
            looked: Instant::now(),
        };
        let outcome = match threads {
            // A single-threaded process stays single-threaded.
            1 => self.populate_inline(&work, &mut watch),
            _ => self.populate_on_helpers(threads, &work, &mut watch),
        };
        self.report(work.filled());
        if outcome.is_ok() {
            self.done += part.len();
        }
        outcome
    }

    fn step(&self, page: PageSize) -> PageSize {
        let threads = u64::try_from(self.threads).unwrap_or(u64::MAX);
        let each = IN_FLIGHT_LIMIT.get() / threads.min(IN_FLIGHT_LIMIT.get()).next_power_of_two();
        PageSize::new(Bytes(each)).map_or(page, |each| each.max(page))
    }

    fn report(&mut self, filled: Bytes) {
        self.reported = self.reported.max(self.done + filled);
        (self.progress)(self.reported, self.total);
    }

    fn populate_inline(
        &mut self,
        work: &PopulateJob<'_>,
        watch: &mut PopulateMonitor,
    ) -> Result<(), PopulateError> {
        while work.populate_next()? {
            if watch.is_due() {
                self.report(work.filled());
                watch.check_memory(work).map_err(PopulateError::NoRoom)?;
            }
        }
        Ok(())
    }

    /// Populates on helper threads while this one watches. A limit may allow fewer, or none.
    fn populate_on_helpers(
        &mut self,
        threads: usize,
        work: &PopulateJob<'_>,
        watch: &mut PopulateMonitor,
    ) -> Result<(), PopulateError> {
        std::thread::scope(|scope| {
            // Stops the helpers soon if progress panics.
            let _stop = StopOnDrop(&work.stop);
            let (sender, receiver) = mpsc::channel();
            let mut helpers = Vec::new();
            for _ in 0..threads {
                let sender = sender.clone();
                let helper = move || {
                    let _ = sender.send(work.all());
                };
                let named = std::thread::Builder::new().name("hugeleaf-fill".to_owned());
                match named.spawn_scoped(scope, helper) {
                    Ok(helper) => helpers.push(helper),
                    Err(_) => break,
                }
            }
            drop(sender);
            if helpers.is_empty() {
                return self.populate_inline(work, watch);
            }
            let outcome = self.wait(&receiver, work, watch);
            for helper in helpers {
                // The scope waits for the closures only; join waits for the threads.
                if let Err(panic) = helper.join() {
                    std::panic::resume_unwind(panic);
                }
            }
            outcome
        })
    }

    /// Waits for the helpers, reports progress, and stops them if the host runs out of memory.
    fn wait(
        &mut self,
        receiver: &mpsc::Receiver<Result<(), PopulateError>>,
        work: &PopulateJob<'_>,
        watch: &mut PopulateMonitor,
    ) -> Result<(), PopulateError> {
        let mut outcome = Ok(());
        loop {
            match receiver.recv_timeout(LOOK_EVERY) {
                Ok(ended) => outcome = outcome.and(ended),
                Err(mpsc::RecvTimeoutError::Disconnected) => return outcome,
                Err(mpsc::RecvTimeoutError::Timeout) => {}
            }
            if outcome.is_ok() && watch.is_due() {
                self.report(work.filled());
                outcome = watch.check_memory(work).map_err(PopulateError::NoRoom);
                if outcome.is_err() {
                    work.stop.store(true, Ordering::Relaxed);
                }
            }
        }
    }
}

struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

struct PopulateMonitor {
    length: Bytes,
    from_pool: bool,
    looked: Instant,
}

impl PopulateMonitor {
    fn is_due(&self) -> bool {
        self.looked.elapsed() >= LOOK_EVERY
    }

    fn check_memory(&mut self, work: &PopulateJob<'_>) -> Result<(), MemoryError> {
        self.looked = Instant::now();
        // Begun chunks count as populated: they are in part, and the margin covers the rest.
        let begun = Bytes(work.begun.load(Ordering::Relaxed));
        let left = self.length - begun;
        match self.from_pool || left.is_zero() {
            true => Ok(()),
            false => HostMemory::check(left),
        }
    }
}

struct PopulateJob<'a> {
    space: &'a ReservedAddresses,
    method: PopulateMethod,
    chunks: Vec<Range>,
    next: AtomicUsize,
    stop: AtomicBool,
    begun: AtomicU64,
    filled: AtomicU64,
}

impl PopulateJob<'_> {
    fn filled(&self) -> Bytes {
        Bytes(self.filled.load(Ordering::Relaxed))
    }

    /// Populates the next chunk; false if none is left.
    fn populate_next(&self) -> Result<bool, PopulateError> {
        if self.stop.load(Ordering::Relaxed) {
            return Ok(false);
        }
        let Some(chunk) = self.chunks.get(self.next.fetch_add(1, Ordering::Relaxed)) else {
            return Ok(false);
        };
        self.begun.fetch_add(chunk.len().get(), Ordering::Relaxed);
        if let PopulateMethod::Collapsing { huge, base } = self.method {
            collapse_empty(self.space, *chunk, huge, base);
        }
        if let Err(stopped) = populate_chunk(self.space, *chunk) {
            self.stop.store(true, Ordering::Relaxed);
            return Err(stopped);
        }
        self.filled.fetch_add(chunk.len().get(), Ordering::Relaxed);
        Ok(true)
    }

    fn all(&self) -> Result<(), PopulateError> {
        while self.populate_next()? {}
        Ok(())
    }
}

/// Populates a range on this thread; `page` is its page size.
pub(crate) fn populate_in_steps(
    space: &ReservedAddresses,
    part: Range,
    page: PageSize,
) -> Result<(), PopulateError> {
    let step = PageSize::new(IN_FLIGHT_LIMIT).map_or(page, |step| step.max(page));
    part.chunks(step)
        .try_for_each(|chunk| populate_chunk(space, chunk))
}

fn populate_chunk(space: &ReservedAddresses, chunk: Range) -> Result<(), PopulateError> {
    populate(space, chunk).map_err(|error| match is_short(&error) {
        true => PopulateError::NoPage(error),
        false => PopulateError::Failed(error),
    })
}

/// Populates a range with one call, repeated if interrupted.
pub(crate) fn populate(space: &ReservedAddresses, part: Range) -> Result<(), SysError> {
    let mut tries = 0;
    loop {
        match space.advise(part, Advice::PopulateWrite) {
            Err(e) if matches!(e.errno, Errno::AGAIN | Errno::INTR) && tries < TRIES => tries += 1,
            done => return done,
        }
    }
}

/// True if a page was unavailable. EFAULT replaces the SIGBUS of an ordinary fault (madvise(2)).
pub(crate) fn is_short(error: &SysError) -> bool {
    matches!(error.errno, Errno::FAULT | Errno::NOMEM)
}

/// Collapses blocks that are still empty to huge pages. At a fault, shared memory gets huge pages
/// only if a knob allows it; collapse ignores that knob. Collapsing a block with one page takes a
/// tenth of the time of populating it with base pages and copying them. (Tried: a block without any
/// page is refused.) The result is read back later.
fn collapse_empty(space: &ReservedAddresses, part: Range, huge: PageSize, base: PageSize) {
    let Some(inside) = part.aligned_inside(huge) else {
        return;
    };
    for block in inside.chunks(huge) {
        let first = Range::new(block.start(), block.start() + base.bytes().get());
        let made = first.ok().map(|first| {
            space.advise(first, Advice::PopulateWrite)?;
            space.advise(block, Advice::Collapse)
        });
        // EINVAL: this memory or this kernel does not support it, so the other blocks are skipped.
        if made.is_some_and(|made| made.is_err_and(|error| error.errno == Errno::INVAL)) {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_filled_again_is_no_progress() {
        let mut reported = Vec::new();
        let mut progress = |done, of| reported.push((done, of));
        let total = Bytes::from_mib(9);
        let mut filler = Populator::new(Some(0), total, &mut progress);
        for filled in [5, 2, 4, 9] {
            filler.report(Bytes::from_mib(filled));
        }
        let expected = [5, 5, 5, 9].map(|filled| (Bytes::from_mib(filled), total));
        assert_eq!(reported, expected);
    }

    #[test]
    fn all_threads_together_have_little_under_way() {
        let page: PageSize = "4K".parse().unwrap();
        let step = |threads| Populator::new(Some(threads), Bytes::ZERO, &mut |_, _| {}).step(page);
        for threads in [1, 2, 3, 7, 64, 1000, usize::MAX] {
            let each = step(threads);
            let count = u64::try_from(threads).unwrap();
            let all = each.bytes().get().saturating_mul(count);
            assert!(
                all <= IN_FLIGHT_LIMIT.get() || each == page,
                "{threads}: {each}"
            );
        }
        let huge: PageSize = "1G".parse().unwrap();
        let mut none = |_, _| {};
        assert_eq!(
            Populator::new(Some(2), Bytes::ZERO, &mut none).step(huge),
            huge
        );
    }
}
