//! Memory that a hypervisor took away is brought back before a call, and not where it is there.

use std::sync::Mutex;
use std::time::Duration;

use hugeleaf_change::PromoteOptions;
use hugeleaf_sys::{Advice, Call, Errno, Fault, Faulty, Kernel, PidFd, RealKernel, SysError};
use hugeleaf_units::{Bytes, PageSize, Range};

use super::{Bench, fast};

const PAGES: u64 = 24;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Made {
    Fetch(u64),
    Move(u64),
}

/// The kernel of this host below a hypervisor: every page that is fetched takes so long, by its clock.
struct Guest {
    inner: RealKernel,
    each: Duration,
    huge: PageSize,
    made: Mutex<Vec<Made>>,
    passed: Mutex<Duration>,
}

impl Guest {
    fn new(bench: &Bench, each: Duration) -> Guest {
        Guest {
            inner: RealKernel::new(),
            each,
            huge: bench.huge,
            made: Mutex::default(),
            passed: Mutex::default(),
        }
    }
}

impl Kernel for Guest {
    fn inner(&self) -> &dyn Kernel {
        &self.inner
    }

    fn now(&self) -> Duration {
        self.inner.now() + *self.passed.lock().unwrap()
    }

    fn sleep(&self, time: Duration) {
        *self.passed.lock().unwrap() += time;
    }

    fn fetch(&self, page: PageSize, pages: u64) -> Result<(), SysError> {
        assert_eq!(page, self.huge);
        self.made.lock().unwrap().push(Made::Fetch(pages));
        *self.passed.lock().unwrap() += self.each * u32::try_from(pages).unwrap();
        Ok(())
    }

    fn process_madvise(
        &self,
        process: &PidFd,
        ranges: &[Range],
        advice: Advice,
    ) -> Result<Bytes, SysError> {
        let bytes: Bytes = ranges.iter().map(|range| range.len()).sum();
        if advice == Advice::Collapse && !bytes.is_zero() {
            let pages = self.huge.pages_for(bytes).get();
            self.made.lock().unwrap().push(Made::Move(pages));
        }
        self.inner.process_madvise(process, ranges, advice)
    }
}

#[test]
fn what_is_taken_is_fetched_before_it_is_needed() {
    let Some(bench) = Bench::new("what_is_taken_is_fetched_before_it_is_needed") else {
        return;
    };
    if bench.huge.bytes() > Bytes::from_mib(16) {
        return println!(
            "not run: what_is_taken_is_fetched_before_it_is_needed: {} are more than is fetched",
            bench.huge
        );
    }
    let (victim, _) = bench.private_victim(PAGES);
    let slow = Guest::new(&bench, Duration::from_millis(500));
    let options = PromoteOptions::default();
    let outcome = bench.promote_with(&slow, &[victim.pid()], &options, &mut |_| {});
    let outcome = outcome.unwrap();
    assert!(outcome.is_complete(), "{outcome:#?}");
    // All that is moved was fetched before, and the program did not wait for it.
    let mut there = 0;
    for made in slow.made.lock().unwrap().iter() {
        match made {
            Made::Fetch(pages) => there += pages,
            Made::Move(pages) => {
                assert!(there >= *pages, "{made:?}");
                there -= pages;
            }
        }
    }
    // Fetching took twelve seconds by its clock.
    assert!(outcome.moving_seconds < 6.0, "{}", outcome.moving_seconds);
}

#[test]
fn where_memory_is_there_nothing_is_fetched() {
    let Some(bench) = Bench::new("where_memory_is_there_nothing_is_fetched") else {
        return;
    };
    let (victim, _) = bench.private_victim(PAGES);
    let quick = Guest::new(&bench, Duration::ZERO);
    let outcome = bench.promote_with(&quick, &[victim.pid()], &fast(), &mut |_| {});
    assert!(outcome.unwrap().is_complete());
    let made = quick.made.lock().unwrap();
    let fetched = made.iter().filter(|made| matches!(made, Made::Fetch(_)));
    // A look at one page.
    assert!(fetched.clone().count() <= 1, "{made:?}");
    assert!(
        fetched.clone().all(|made| *made == Made::Fetch(1)),
        "{made:?}"
    );
}

#[test]
fn without_memory_for_it_the_work_goes_on() {
    let Some(bench) = Bench::new("without_memory_for_it_the_work_goes_on") else {
        return;
    };
    let (victim, _) = bench.private_victim(PAGES);
    let fault = Fault {
        call: Call::Fetch,
        after: 0,
        times: u64::MAX,
        errno: Errno::NOMEM,
    };
    let kernel = Faulty::new(RealKernel::new(), vec![fault]);
    let outcome = bench.promote_with(&kernel, &[victim.pid()], &fast(), &mut |_| {});
    assert!(outcome.unwrap().is_complete());
}
