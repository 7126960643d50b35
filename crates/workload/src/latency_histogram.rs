//! Histograms of operation times.

use std::time::Duration;

use hdrhistogram::Histogram;

/// Returns an empty histogram of times in nanoseconds, with three significant digits.
pub fn times() -> Histogram<u64> {
    /// Maximum recorded time: one hour. Longer times count as one hour.
    const LONGEST: u64 = 3_600_000_000_000;
    Histogram::new_with_bounds(1, LONGEST, 3).expect("the bounds are in order")
}

/// Records a time; values beyond the bounds count as the bound.
pub fn record(times: &mut Histogram<u64>, time: Duration) {
    let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    times.saturating_record(nanos.max(1));
}
