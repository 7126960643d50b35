//! Who may touch a cache: the thread that SQLite calls it from, at every page, and rarely another one that takes pages
//! from it. The first pays a store and a load, no locked instruction; the second waits.

use std::sync::atomic::{AtomicBool, Ordering};

use hugeleaf_sys::Barrier;

/// The gate of one cache.
///
/// SQLite's thread is inside between [`Gate::enter`] and [`Gate::leave`]. Where that is refused it takes the lock of the
/// share, as those do who [`Gate::stop`] it: with the lock held nobody else is inside.
#[derive(Debug)]
pub(crate) struct Gate {
    busy: AtomicBool,
    stop: AtomicBool,
    barrier: Barrier,
}

impl Gate {
    pub fn new(barrier: Barrier) -> Gate {
        Gate {
            busy: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            barrier,
        }
    }

    /// Whether SQLite's thread is inside now. It must not wait for anything until it leaves.
    #[inline]
    pub fn enter(&self) -> bool {
        self.busy.store(true, Ordering::Relaxed);
        // The store is seen before the load is made; with `stop`, one of both sees the other.
        self.barrier.light();
        if self.stop.load(Ordering::Acquire) {
            self.leave();
            return false;
        }
        true
    }

    #[inline]
    pub fn leave(&self) {
        self.busy.store(false, Ordering::Release);
    }

    /// Keeps SQLite's thread out, and returns when it is. The caller holds the lock of the share.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
        self.barrier.heavy();
        while self.busy.load(Ordering::Acquire) {
            // It is inside for less than a microsecond, unless it has lost its processor.
            std::thread::yield_now();
        }
    }

    pub fn resume(&self) {
        self.stop.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::UnsafeCell;
    use std::sync::Mutex;

    use super::*;

    /// What the gate and the lock keep from being changed by two at a time.
    struct Kept(UnsafeCell<(u64, u64)>);

    // SAFETY: the test is about just that.
    #[allow(unsafe_code)]
    unsafe impl Sync for Kept {}

    impl Kept {
        fn change(&self) {
            // SAFETY: whoever is here is alone, or the test fails.
            #[allow(unsafe_code)]
            let both = unsafe { &mut *self.0.get() };
            assert_eq!(both.0, both.1);
            both.0 += 1;
            std::hint::black_box(&mut *both);
            both.1 += 1;
        }
    }

    fn nobody_meets(barrier: Barrier) {
        const OFTEN: u64 = 2_000_000;
        const RARELY: u64 = 5_000;
        let (gate, lock) = (Gate::new(barrier), Mutex::new(()));
        let kept = Kept(UnsafeCell::new((0, 0)));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..OFTEN {
                    if gate.enter() {
                        kept.change();
                        gate.leave();
                    } else {
                        let _held = lock.lock().unwrap();
                        kept.change();
                    }
                }
            });
            for _ in 0..2 {
                scope.spawn(|| {
                    for _ in 0..RARELY {
                        let _held = lock.lock().unwrap();
                        gate.stop();
                        kept.change();
                        gate.resume();
                    }
                });
            }
        });
        assert_eq!(kept.0.into_inner().0, OFTEN + 2 * RARELY);
    }

    #[test]
    fn nobody_meets_inside() {
        nobody_meets(Barrier::of_process());
        nobody_meets(Barrier::of_fences());
    }
}
