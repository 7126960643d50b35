//! Free memory that a hypervisor took away is brought back before a program has to wait for it. Pure.
//!
//! A guest may tell its hypervisor which blocks are free (virtio-balloon's free page reporting). The first touch of
//! such a block waits until it is back: some ten times as long as moving a huge page takes otherwise, in the middle
//! of a call for which the program waits too. The kernel hands out first what was freed last; so this process takes
//! as many huge pages before such calls, touches and frees them. Where free memory is there, as on most hosts, that
//! costs nothing: one page in some hundred megabytes tells.

use std::time::Duration;

use hugeleaf_units::{Bytes, PageSize};

/// So much is brought back at a time: what this process has resident meanwhile. Blocks are reported again some
/// seconds after they were freed (mm/page_reporting.c), so it must be little enough to be used by then.
const BATCH: Bytes = Bytes::from_mib(16);
/// So much is moved between two looks whether free memory is there.
const LOOK_EVERY: Bytes = Bytes::from_mib(256);
/// Memory that is there is filled with zeroes faster than this, in bytes a second, by any machine of today.
const SLOW: f64 = (1_u64 << 30) as f64;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Fetch {
    /// So many huge pages can be taken before the next look.
    good: u64,
    slow: bool,
}

impl Fetch {
    /// Number of huge pages to touch before a call that takes `pages`; mostly 0, and `most` bytes at most.
    pub fn before(&mut self, pages: u64, huge: PageSize, most: Bytes) -> u64 {
        let batch = BATCH.min(most).get() / huge.bytes().get();
        // Larger ones would be most of what this process may take.
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

    /// Takes over how long it took to touch so many, before a call that takes `pages`.
    pub fn learn(&mut self, fetched: u64, pages: u64, took: Duration, huge: PageSize) {
        let bytes = huge.bytes().as_f64() * Bytes(fetched).as_f64();
        self.slow = took.as_secs_f64() * SLOW > bytes;
        self.good = match self.slow {
            // The call that it was for takes its pages of them.
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

    /// Pages that are fetched for so many calls of one page, where each takes so long.
    fn fetched(calls: u64, each: Duration, huge: PageSize) -> u64 {
        let mut fetch = Fetch::default();
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
        let mut fetch = Fetch::default();
        assert_eq!(fetch.before(1, huge(2), BATCH), 1);
        fetch.learn(1, 1, Duration::from_millis(11), huge(2));
        // That one is used by the call it was for.
        assert_eq!(fetch.before(1, huge(2), BATCH), 8);
        fetch.learn(8, 1, Duration::from_millis(2), huge(2));
        assert_eq!(fetch.before(100, huge(2), BATCH), 0);
        assert_eq!(fetch.before(28, huge(2), BATCH), 0);
        assert_eq!(fetch.before(1, huge(2), BATCH), 1);
    }

    #[test]
    fn a_call_of_several_pages_takes_them_all() {
        let (mut fetch, slow) = (Fetch::default(), Duration::from_millis(88));
        assert_eq!(fetch.before(8, huge(2), BATCH), 1);
        fetch.learn(1, 8, Duration::from_millis(11), huge(2));
        for pages in [8, 4, 1] {
            // Of what was fetched before, the call before took all.
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
        assert_eq!(Fetch::default().before(1, huge(512), BATCH), 0);
        assert_eq!(Fetch::default().before(1, huge(32), BATCH), 0);
    }

    #[test]
    fn no_more_than_it_may_have() {
        for (most, first, slow) in [(0, 0, 0), (1, 0, 0), (5, 1, 2), (1 << 20, 1, 8)] {
            let (mut fetch, most) = (Fetch::default(), Bytes::from_mib(most));
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
