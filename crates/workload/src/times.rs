//! Times of operations, and threads that are joined.

use std::thread::ScopedJoinHandle;
use std::time::Duration;

use hdrhistogram::Histogram;

/// Times in nanoseconds, three digits.
pub(crate) fn times() -> Histogram<u64> {
    /// An hour; what takes longer is counted as one.
    const LONGEST: u64 = 3_600_000_000_000;
    Histogram::new_with_bounds(1, LONGEST, 3).expect("the bounds are in order")
}

/// Records a time; what is past the bounds counts as the bound.
pub(crate) fn record(times: &mut Histogram<u64>, time: Duration) {
    let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    times.saturating_record(nanos.max(1));
}

/// What threads came to, or the first error of any, once all have ended. A panic goes on here.
pub(crate) fn joined<T, E>(workers: Vec<ScopedJoinHandle<'_, Result<T, E>>>) -> Result<Vec<T>, E> {
    let ended = workers.into_iter().map(|worker| match worker.join() {
        Ok(ended) => ended,
        Err(panic) => std::panic::resume_unwind(panic),
    });
    // All of them, and only then the first error.
    let ended: Vec<Result<T, E>> = ended.collect();
    ended.into_iter().collect()
}
