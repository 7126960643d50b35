//! Every call of every kind of region fails, once and permanently, with each errno. The error is
//! typed, and no resources are left.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::{MemoryError, NodePolicy, Region, RegionOptions};
use hugeleaf_sys::{Advice, Errno, MemoryCall, MemorySyscalls, SyscallGate};

use super::child::{Part, Words};
use super::support::{
    Holdings, HostGuard, assert_whole, host, huge, options, pages, pool, use_all,
};

const ERRNOS: [Errno; 10] = [
    Errno::NOMEM,
    Errno::INVAL,
    Errno::FAULT,
    Errno::AGAIN,
    Errno::INTR,
    Errno::MFILE,
    Errno::NOSPC,
    Errno::PERM,
    Errno::BUSY,
    Errno::NODEV,
];

/// Refuses the call with a given number, or all from it on.
#[derive(Debug)]
struct Refuse {
    at: usize,
    ever_after: bool,
    errno: Errno,
    calls: AtomicUsize,
    open: AtomicBool,
}

impl SyscallGate for Refuse {
    fn pass(&self, _: MemoryCall) -> Result<(), Errno> {
        if self.open.load(Ordering::Relaxed) {
            return Ok(());
        }
        let n = self.calls.fetch_add(1, Ordering::Relaxed);
        match n == self.at || (self.ever_after && n > self.at) {
            true => Err(self.errno),
            false => Ok(()),
        }
    }
}

/// Creates a kind of region, by name; the pool has 5 pages.
fn make(kind: &str, memory: MemorySyscalls) -> Result<Region, MemoryError> {
    let host = host();
    let size = host.memory.default_hugetlb_page.get().unwrap();
    let wide = pages(size, 8) + pages(host.base_page, 3);
    let few = pages(size, 2) + pages(host.base_page, 3);
    let asked = match kind {
        "thp" => options(few, &size.to_string()),
        "base" => options(few, &host.base_page.to_string()).shared(),
        "shared-thp" => options(few, &format!("thp:{size}")).shared(),
        "pool" => options(wide, &size.to_string()).shared(),
        "private-pool" => options(wide, &format!("hugetlb:{size}")),
        "mandatory" => options(pages(size, 4), &format!("hugetlb:{size}!")),
        "locked" => RegionOptions {
            locked: true,
            ..options(wide, &format!("hugetlb:{size}"))
        },
        "nodes" => RegionOptions {
            nodes: NodePolicy::Bind(vec![host.nodes[0]]),
            ..options(wide, &size.to_string()).shared()
        },
        "attach" => {
            let region = make("pool", MemorySyscalls::new())?;
            return Region::attach_with(&region.handle()?, &memory);
        }
        other => panic!("no kind {other}"),
    };
    Region::new(&RegionOptions {
        memory,
        // glibc keeps stacks of ended threads mapped for the next thread.
        threads: Some(1),
        ..asked
    })
}

/// Returns the resources held here and the state of the pool.
fn held() -> (Holdings, super::support::Pool) {
    let size = host().memory.default_hugetlb_page.get().unwrap();
    (Holdings::now(), pool(size))
}

/// Returns true if the gate was reached.
fn refuse_one(kind: &str, at: usize, ever_after: bool, errno: Errno) -> bool {
    let gate = Arc::new(Refuse {
        at,
        ever_after,
        errno,
        calls: AtomicUsize::new(0),
        open: AtomicBool::new(false),
    });
    let before = held();
    let what = format!("{kind}, call {at}, {errno:?}, ever after: {ever_after}");
    match make(kind, MemorySyscalls::behind(gate.clone())) {
        Ok(region) => {
            use_all(&region);
            if let Err(error) = region.extents() {
                assert!(matches!(error, MemoryError::Sys(_)), "{what}: {error}");
            }
            gate.open.store(true, Ordering::Relaxed);
            assert_whole(&region);
        }
        Err(error) => {
            assert!(!error.next().is_empty() && !error.to_string().is_empty());
            let reached = gate.calls.load(Ordering::Relaxed) > at;
            assert!(reached, "{what}: fails by itself: {error}");
        }
    }
    assert_eq!(held(), before, "{what}");
    gate.calls.load(Ordering::Relaxed) > at
}

/// Tests each call of a kind of region with each errno.
pub fn part(words: &Words) {
    let kind = words.get(0);
    for _ in 0..2 {
        // Allocates buffers and files of the first use.
        drop(make(kind, MemorySyscalls::new()).unwrap());
        held();
    }
    let mut at = 0;
    loop {
        let mut reached = false;
        for errno in ERRNOS {
            for ever_after in [false, true] {
                reached |= refuse_one(kind, at, ever_after, errno);
            }
        }
        if !reached {
            break;
        }
        at += 1;
    }
    assert!(at > 3, "{kind}: only {at} calls");
}

fn each_call_fails(test: &str, kind: &str) {
    if huge(test).is_none() {
        return;
    }
    let Some((_guard, size)) = HostGuard::with_pool(test, 5) else {
        return;
    };
    let before = pool(size);
    Part::start("faults", &[kind]).succeed();
    assert_eq!(pool(size), before);
}

#[test]
fn private_memory_loses_nothing() {
    each_call_fails("private_memory_loses_nothing", "thp");
}

#[test]
fn shared_base_pages_lose_nothing() {
    each_call_fails("shared_base_pages_lose_nothing", "base");
}

#[test]
fn shared_transparent_pages_lose_nothing() {
    each_call_fails("shared_transparent_pages_lose_nothing", "shared-thp");
}

#[test]
fn a_mosaic_loses_nothing() {
    each_call_fails("a_mosaic_loses_nothing", "pool");
}

#[test]
fn a_private_pool_loses_nothing() {
    each_call_fails("a_private_pool_loses_nothing", "private-pool");
}

#[test]
fn a_mandatory_ladder_loses_nothing() {
    each_call_fails("a_mandatory_ladder_loses_nothing", "mandatory");
}

#[test]
fn locked_memory_loses_nothing() {
    each_call_fails("locked_memory_loses_nothing", "locked");
}

#[test]
fn bound_memory_loses_nothing() {
    each_call_fails("bound_memory_loses_nothing", "nodes");
}

#[test]
fn attaching_loses_nothing() {
    each_call_fails("attaching_loses_nothing", "attach");
}

/// Panics in the thread that populates.
#[derive(Debug)]
struct Panics;

impl SyscallGate for Panics {
    fn pass(&self, call: MemoryCall) -> Result<(), Errno> {
        assert!(
            call != MemoryCall::Advise(Advice::PopulateWrite),
            "meant by the test"
        );
        Ok(())
    }
}

/// Memory that a helper did not populate is not handed out.
#[test]
fn a_panic_of_a_helper_is_no_success() {
    let Some(huge) = huge("a_panic_of_a_helper_is_no_success") else {
        return;
    };
    for threads in [1, 4] {
        let asked = RegionOptions {
            threads: Some(threads),
            memory: MemorySyscalls::behind(Arc::new(Panics)),
            ..options(pages(huge, 16), &huge.to_string())
        };
        let make = || Region::new(&asked);
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(make)).is_err());
    }
}

/// A panic leaves no helper thread, and a panic in `progress` leaks no memory.
#[test]
fn a_panic_of_the_caller_loses_nothing() {
    let test = "a_panic_of_the_caller_loses_nothing";
    let Some((_guard, size)) = HostGuard::with_pool(test, 16) else {
        return;
    };
    let before = pool(size);
    let asked = RegionOptions {
        threads: Some(4),
        ..options(pages(size, 16), &format!("hugetlb:{size}")).shared()
    };
    let make = || Region::with_progress(&asked, &mut |_, _| panic!("meant by the test"));
    let made = std::panic::catch_unwind(std::panic::AssertUnwindSafe(make));
    assert!(made.is_err());
    assert_eq!(pool(size), before);
}
