//! Somebody else in the same process, who wants little: a page of memory now and then.
//!
//! It maps one base page, touches it and unmaps it: a page fault, and two changes of the address
//! space, for which it needs the locks that pinning needs.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use hugeleaf_sys::{Mapping, Sharing};
use hugeleaf_units::PageSize;

use hugeleaf_workload::times::{record, times};

const PAUSE: Duration = Duration::from_millis(1);

/// Goes on until `halt`; times are kept while `measuring`.
pub(super) fn stand_by(
    base: PageSize,
    halt: &AtomicBool,
    measuring: &AtomicBool,
) -> Histogram<u64> {
    let mut seen = times();
    while !halt.load(Ordering::Relaxed) {
        std::thread::sleep(PAUSE);
        let began = Instant::now();
        if let Ok(page) = Mapping::anonymous(base.bytes(), Sharing::Private) {
            let _ = page.touch(base.bytes());
            drop(page);
            if measuring.load(Ordering::Relaxed) {
                record(&mut seen, began.elapsed());
            }
        }
    }
    seen
}
