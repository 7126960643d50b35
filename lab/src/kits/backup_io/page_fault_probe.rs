//! A bystander thread in the same process that needs a page of memory now and then.
//!
//! It maps one base page, touches it and unmaps it. This is a page fault and two changes of the
//! address space, which need the locks that pinning needs.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use hugeleaf_sys::{OwnMapping, Sharing};
use hugeleaf_units::PageSize;

use hugeleaf_workload::latency_histogram::{record, times};

const PAUSE: Duration = Duration::from_millis(1);

/// Runs until `halt`; times are recorded while `measuring`.
pub(super) fn run_bystander(
    base: PageSize,
    halt: &AtomicBool,
    measuring: &AtomicBool,
) -> Histogram<u64> {
    let mut seen = times();
    while !halt.load(Ordering::Relaxed) {
        std::thread::sleep(PAUSE);
        let began = Instant::now();
        if let Ok(page) = OwnMapping::anonymous(base.bytes(), Sharing::Private) {
            let _ = page.touch(base.bytes());
            drop(page);
            if measuring.load(Ordering::Relaxed) {
                record(&mut seen, began.elapsed());
            }
        }
    }
    seen
}
