//! A drop of an elastic with granules, while others use the same memory. No lock is held during system
//! calls, nothing is lost, and no granule is handed out before it is returned.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::{Component, Elastic, ElasticError};
use hugeleaf_sys::{Errno, MemoryCall, MemorySyscalls, SyscallGate};
use hugeleaf_units::Bytes;

use super::elastic::{assert_written, assert_zeroed, in_use, pooled, write_all};
use super::support::{HostGuard, pages, pool};

/// Takes all free granules, which must be zeroed, uses them and returns them. Returns their number.
fn use_what_is_free(elastic: &Elastic, component: Component, seed: u64) -> usize {
    let mut taken = Vec::new();
    loop {
        match elastic.take(component) {
            Ok(granule) => taken.push(granule),
            Err(ElasticError::OverTarget { .. } | ElasticError::Full { .. }) => break,
            Err(error) => panic!("{error}"),
        }
    }
    taken.iter().for_each(|g| assert_zeroed(elastic, *g));
    taken.iter().for_each(|g| write_all(elastic, *g, seed));
    taken.iter().for_each(|g| assert_written(elastic, *g, seed));
    elastic.give_back(component, &taken).unwrap();
    taken.len()
}

/// Uses the same elastic before the call with a given number, once it is armed.
#[derive(Debug)]
struct Meanwhile {
    elastic: Arc<Elastic>,
    component: Component,
    armed: AtomicBool,
    at: usize,
    calls: AtomicUsize,
}

impl SyscallGate for Meanwhile {
    fn pass(&self, _: MemoryCall) -> Result<(), Errno> {
        if self.armed.load(Ordering::Relaxed)
            && self.calls.fetch_add(1, Ordering::Relaxed) == self.at
        {
            // A lock held across this call would never be released: the result would be an error.
            use_what_is_free(&self.elastic, self.component, 3);
            let recovered = self.elastic.recover().unwrap();
            assert_eq!(recovered.bytes, Bytes::ZERO, "it lives");
        }
        Ok(())
    }
}

#[test]
fn others_work_at_each_call_of_a_drop() {
    let test = "others_work_at_each_call_of_a_drop";
    let Some((_guard, size)) = HostGuard::with_pool(test, 8) else {
        return;
    };
    let before = pool(size);
    let elastic = Arc::new(pooled(size, 8));
    let handle = elastic.handle().unwrap();
    let cache = elastic.component("cache", true).unwrap();
    let mut calls = 0;
    for at in 0.. {
        let gate = Arc::new(Meanwhile {
            elastic: Arc::clone(&elastic),
            component: cache,
            armed: AtomicBool::new(false),
            at,
            calls: AtomicUsize::new(0),
        });
        let leaving = Elastic::attach_with(&handle, &MemorySyscalls::behind(gate.clone())).unwrap();
        let taken = leaving.take_many(cache, 6).unwrap();
        taken.iter().for_each(|g| write_all(&leaving, *g, 1));
        let kept = elastic.take(cache).unwrap();
        write_all(&elastic, kept, 2);
        gate.armed.store(true, Ordering::Relaxed);
        drop(leaving);
        assert_written(&elastic, kept, 2);
        assert_eq!((in_use(size), elastic.held()), (1, pages(size, 1)), "{at}");
        elastic.give_back(cache, &[kept]).unwrap();
        calls = gate.calls.load(Ordering::Relaxed);
        if calls <= at {
            break;
        }
    }
    assert!(calls > 1, "only {calls} calls");
    drop((elastic, handle));
    assert_eq!(pool(size), before);
}

#[test]
fn elastics_end_while_others_take_and_give_back() {
    let test = "elastics_end_while_others_take_and_give_back";
    let Some((_guard, size)) = HostGuard::with_pool(test, 6) else {
        return;
    };
    let before = pool(size);
    let elastic = pooled(size, 6);
    let handle = elastic.handle().unwrap();
    let cache = elastic.component("cache", true).unwrap();
    let working = AtomicUsize::new(3);
    std::thread::scope(|scope| {
        for seed in 0..3 {
            let (handle, working) = (&handle, &working);
            scope.spawn(move || {
                for round in 0..40 {
                    let leaving = Elastic::attach(handle).unwrap();
                    let wanted = 1 + round % 3;
                    let taken = leaving.take_many(cache, wanted).unwrap_or_default();
                    taken.iter().for_each(|g| assert_zeroed(&leaving, *g));
                    taken.iter().for_each(|g| write_all(&leaving, *g, seed));
                    taken
                        .iter()
                        .for_each(|g| assert_written(&leaving, *g, seed));
                }
                working.fetch_sub(1, Ordering::Relaxed);
            });
        }
        while working.load(Ordering::Relaxed) > 0 {
            use_what_is_free(&elastic, cache, 9);
            assert_eq!(elastic.recover().unwrap().bytes, Bytes::ZERO, "all live");
        }
    });
    assert_eq!((in_use(size), elastic.held()), (0, Bytes::ZERO));
    assert_eq!(
        use_what_is_free(&elastic, cache, 1),
        6,
        "all of it is there"
    );
    drop((elastic, handle));
    assert_eq!(pool(size), before);
}
