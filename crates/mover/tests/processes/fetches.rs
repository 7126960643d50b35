//! Memory that a hypervisor took away is recovered before a call, but not if it is present.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use hugeleaf_mover::PromoteOptions;
use hugeleaf_sys::{Advice, Errno, GateReply, Kernel, ProcessCall, SyscallGate};
use hugeleaf_testkit::cgroup::MemoryCgroup;
use hugeleaf_units::{Bytes, PageSize};

use super::faulty::{Call, failing};
use super::{Bench, fast};

const PAGES: u64 = 24;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Made {
    Fetch(u64),
    Move(u64),
}

/// This host's kernel below a hypervisor: every fetched page takes a fixed time, by a clock that only waiting
/// advances otherwise.
#[derive(Debug)]
struct Guest {
    each: Duration,
    huge: PageSize,
    made: Mutex<Vec<Made>>,
    passed: Mutex<Duration>,
}

impl Guest {
    fn new(bench: &Bench, each: Duration) -> Arc<Guest> {
        Arc::new(Guest {
            each,
            huge: bench.huge,
            made: Mutex::default(),
            passed: Mutex::default(),
        })
    }
}

impl SyscallGate for Guest {
    fn now(&self, _: Duration) -> Duration {
        *self.passed.lock().unwrap()
    }

    fn process(&self, call: ProcessCall<'_>) -> Result<Option<GateReply>, Errno> {
        match call {
            ProcessCall::Sleep(time) => *self.passed.lock().unwrap() += time,
            ProcessCall::Fetch(page, pages) => {
                assert_eq!(page, self.huge);
                self.made.lock().unwrap().push(Made::Fetch(pages));
                *self.passed.lock().unwrap() += self.each * u32::try_from(pages).unwrap();
            }
            ProcessCall::Madvise(_, ranges, advice) => {
                let bytes: Bytes = ranges.iter().map(|range| range.len()).sum();
                if advice == Advice::Collapse && !bytes.is_zero() {
                    let pages = self.huge.pages_for(bytes).get();
                    self.made.lock().unwrap().push(Made::Move(pages));
                }
                return Ok(None);
            }
            _ => return Ok(None),
        }
        Ok(Some(GateReply::Done))
    }
}

#[test]
fn what_is_taken_is_fetched_before_it_is_needed() {
    let Some(bench) = Bench::new("what_is_taken_is_fetched_before_it_is_needed") else {
        return;
    };
    if bench.huge.bytes() > Bytes::from_mib(16) {
        let name = "what_is_taken_is_fetched_before_it_is_needed";
        return hugeleaf_testkit::not_run(name, "one huge page is more than is fetched");
    }
    let (victim, _) = bench.private_victim(PAGES);
    let slow = Guest::new(&bench, Duration::from_millis(500));
    let options = PromoteOptions::default();
    let outcome = bench.promote_with(
        &Kernel::behind(slow.clone()),
        &[victim.pid()],
        &options,
        &mut |_| {},
    );
    let outcome = outcome.unwrap();
    assert!(outcome.is_complete(), "{outcome:#?}");
    // All promoted memory was fetched before, so the program did not wait for it.
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
    assert!(outcome.stalls.total.as_secs() < 6, "{outcome:?}");
}

#[test]
fn where_memory_is_there_nothing_is_fetched() {
    let Some(bench) = Bench::new("where_memory_is_there_nothing_is_fetched") else {
        return;
    };
    let (victim, _) = bench.private_victim(PAGES);
    let quick = Guest::new(&bench, Duration::ZERO);
    let outcome = bench.promote_with(
        &Kernel::behind(quick.clone()),
        &[victim.pid()],
        &fast(),
        &mut |_| {},
    );
    assert!(outcome.unwrap().is_complete());
    let made = quick.made.lock().unwrap();
    let fetched = made.iter().filter(|made| matches!(made, Made::Fetch(_)));
    // A check of one page.
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
    let kernel = failing(Call::Fetch, Errno::NOMEM, 0, u64::MAX);
    let outcome = bench.promote_with(&kernel, &[victim.pid()], &fast(), &mut |_| {});
    assert!(outcome.unwrap().is_complete());
}

/// A server may share the cgroup, and need the remaining room.
#[test]
fn a_small_share_of_its_own_cgroup_is_taken() {
    const NAME: &str = "processes::fetches::a_small_share_of_its_own_cgroup_is_taken";
    if !hugeleaf_testkit::in_own_process(NAME) {
        return;
    }
    let Some(bench) = Bench::new(NAME) else {
        return;
    };
    if bench.huge.bytes() > Bytes::from_mib(4) {
        return hugeleaf_testkit::not_run(NAME, "one huge page is more than is fetched");
    }
    let huge = bench.huge.bytes().get();
    // Its room is reduced by the memory of this process.
    for (share, most) in [(3, 2), (1, 0)] {
        let (victim, _) = bench.private_victim(PAGES);
        let slow = Guest::new(&bench, Duration::from_millis(500));
        let name = format!("hugeleaf-fetches-{}", std::process::id());
        let Some(cgroup) = MemoryCgroup::new(&name, Bytes(16 * share * huge)) else {
            return hugeleaf_testkit::not_run(NAME, "no memory cgroup can be made");
        };
        cgroup.add(std::process::id());
        let kernel = Kernel::behind(slow.clone());
        let options = PromoteOptions::default();
        let outcome = bench.promote_with(&kernel, &[victim.pid()], &options, &mut |_| {});
        assert!(outcome.unwrap().is_complete());
        let fetched = |made: &Made| match made {
            Made::Fetch(pages) => *pages,
            Made::Move(_) => 0,
        };
        let made = slow.made.lock().unwrap();
        assert_eq!(made.iter().map(fetched).max(), Some(most), "{made:?}");
    }
}
