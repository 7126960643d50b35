//! Recovers free memory that a hypervisor reclaimed, before a program has to wait for it. Pure.
//!
//! A guest may tell its hypervisor which blocks are free (virtio-balloon's free page reporting). The first touch of
//! such a block waits for the hypervisor, about ten times as long as moving a huge page. It would fall into a call,
//! which holds up the program. The kernel hands out recently freed memory first. So this process allocates, touches
//! and frees as many huge pages before the calls. If free memory is present, as on most hosts, this costs almost
//! nothing, because one test page per few hundred megabytes shows that.

use std::time::Duration;

use hugeleaf_units::{Bytes, PageSize};

/// Bytes recovered at a time, which this process holds meanwhile. Blocks are reported again some seconds after they
/// were freed (mm/page_reporting.c), so the amount must be used up by then.
const BATCH: Bytes = Bytes::from_mib(16);
/// Bytes promoted between two checks for missing free memory.
const LOOK_EVERY: Bytes = Bytes::from_mib(256);
/// Lower bound, in bytes per second, of the rate at which any current machine zeroes present memory.
const SLOW: f64 = (1_u64 << 30) as f64;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FreePagePrefault {
    /// Number of huge pages that can be taken before the next check.
    good: u64,
    slow: bool,
}

impl FreePagePrefault {
    /// Returns how many huge pages to touch before a call that takes `pages`; mostly 0, and at most `most` bytes.
    pub fn before(&mut self, pages: u64, huge: PageSize, most: Bytes) -> u64 {
        let batch = BATCH.min(most).get() / huge.bytes().get();
        // A larger page would be most of what this process may hold.
        if batch == 0 {
            return 0;
        }
        if self.good >= pages {
            self.good -= pages;
            return 0;
        }
        match self.slow {
            true => batch,
            false => 1,
        }
    }

    /// Records the time to touch `fetched` pages before a call that takes `pages`.
    pub fn learn(&mut self, fetched: u64, pages: u64, took: Duration, huge: PageSize) {
        let bytes = huge.bytes().as_f64() * Bytes(fetched).as_f64();
        self.slow = took.as_secs_f64() * SLOW > bytes;
        self.good = match self.slow {
            // The following call takes its pages from these.
            true => fetched.saturating_sub(pages),
            false => LOOK_EVERY.get() / huge.bytes().get(),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn huge(mib: u64) -> PageSize {
        PageSize::new(Bytes::from_mib(mib)).unwrap()
    }

    /// Returns how many pages are fetched for `calls` calls of one page, each fetch taking `each`.
    fn fetched(calls: u64, each: Duration, huge: PageSize) -> u64 {
        let mut fetch = FreePagePrefault::default();
        let mut all = 0;
        for _ in 0..calls {
            let pages = fetch.before(1, huge, BATCH);
            if pages > 0 {
                let times = u32::try_from(pages).unwrap();
                fetch.learn(pages, 1, each * times, huge);
            }
            all += pages;
        }
        all
    }

    #[test]
    fn where_memory_is_there_one_page_in_many_tells() {
        assert_eq!(fetched(1290, Duration::from_micros(300), huge(2)), 10);
    }

    #[test]
    fn where_it_is_not_all_is_fetched_before() {
        let pages = fetched(1024, Duration::from_millis(10), huge(2));
        assert!((1024..1024 + 8).contains(&pages), "{pages}");
    }

    #[test]
    fn a_host_that_becomes_slow_is_noticed_and_one_that_is_no_longer_too() {
        let mut fetch = FreePagePrefault::default();
        assert_eq!(fetch.before(1, huge(2), BATCH), 1);
        fetch.learn(1, 1, Duration::from_millis(11), huge(2));
        // The following call uses this page.
        assert_eq!(fetch.before(1, huge(2), BATCH), 8);
        fetch.learn(8, 1, Duration::from_millis(2), huge(2));
        assert_eq!(fetch.before(100, huge(2), BATCH), 0);
        assert_eq!(fetch.before(28, huge(2), BATCH), 0);
        assert_eq!(fetch.before(1, huge(2), BATCH), 1);
    }

    #[test]
    fn a_call_of_several_pages_takes_them_all() {
        let (mut fetch, slow) = (FreePagePrefault::default(), Duration::from_millis(88));
        assert_eq!(fetch.before(8, huge(2), BATCH), 1);
        fetch.learn(1, 8, Duration::from_millis(11), huge(2));
        for pages in [8, 4, 1] {
            // The previous call has used all pages fetched before.
            assert_eq!(fetch.before(pages, huge(2), BATCH), 8);
            fetch.learn(8, 8, slow, huge(2));
        }
        fetch.learn(8, 3, slow, huge(2));
        assert_eq!(
            (
                fetch.before(5, huge(2), BATCH),
                fetch.before(1, huge(2), BATCH)
            ),
            (0, 8)
        );
    }

    #[test]
    fn huge_pages_that_are_too_large_are_left_alone() {
        assert_eq!(FreePagePrefault::default().before(1, huge(512), BATCH), 0);
        assert_eq!(FreePagePrefault::default().before(1, huge(32), BATCH), 0);
    }

    #[test]
    fn no_more_than_it_may_have() {
        for (most, first, slow) in [(0, 0, 0), (1, 0, 0), (5, 1, 2), (1 << 20, 1, 8)] {
            let (mut fetch, most) = (FreePagePrefault::default(), Bytes::from_mib(most));
            let now = fetch.before(1, huge(2), most);
            fetch.learn(1, 1, Duration::from_millis(11), huge(2));
            assert_eq!(
                (now, fetch.before(1, huge(2), most)),
                (first, slow),
                "{most}"
            );
        }
    }
}
