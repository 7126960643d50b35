//! Access control of a cache. SQLite's thread enters at every page; another thread rarely stops it to take pages.
//! Entering costs a store and a load without a locked instruction; the other side waits.

use std::sync::atomic::{AtomicBool, Ordering};

use hugeleaf_sys::AsymmetricBarrier;

use crate::fork;

/// The gate of one cache.
///
/// SQLite's thread is inside between [`AsymmetricLock::enter`] and [`AsymmetricLock::leave`]. If entering is refused, it takes the lock of
/// the share. Threads that call [`AsymmetricLock::stop`] hold that lock too, so the holder of the lock is alone inside.
#[derive(Debug)]
pub(crate) struct AsymmetricLock {
    busy: AtomicBool,
    stop: AtomicBool,
    /// True if SQLite's thread must take the lock each time instead of entering; changed with the lock.
    by_lock: AtomicBool,
    barrier: AsymmetricBarrier,
}

impl AsymmetricLock {
    pub fn new(barrier: AsymmetricBarrier) -> AsymmetricLock {
        AsymmetricLock {
            busy: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            by_lock: AtomicBool::new(false),
            barrier,
        }
    }

    /// Enters the gate; false if it is stopped. SQLite's thread must not wait for anything until it leaves.
    #[inline]
    pub fn enter(&self) -> bool {
        self.busy.store(true, Ordering::Relaxed);
        // The store is visible before the load. Together with `stop`, at least one side sees the other.
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

    /// Notes that SQLite's thread has the lock, so no other thread stops the gate. A gate still stopped stays so.
    pub fn note_locked_by_owner(&self) {
        if self.stop.load(Ordering::Relaxed) {
            self.by_lock.store(true, Ordering::Relaxed);
        }
    }

    /// Keeps SQLite's thread out, and waits until it has left. The caller holds the lock of the share.
    ///
    /// Returns false if this thread cannot keep it out. Either a filter of system calls was added since
    /// (`AsymmetricBarrier::heavy`), or this is a forked child without the thread that may have been inside. The gate then stays
    /// closed, and SQLite's thread takes the lock from its next call on. After that there is nothing to keep out.
    #[must_use]
    pub fn stop(&self) -> bool {
        if self.by_lock.load(Ordering::Relaxed) {
            return true;
        }
        self.stop.store(true, Ordering::Relaxed);
        if fork::is_child() || !self.barrier.heavy() {
            return false;
        }
        while self.busy.load(Ordering::Acquire) {
            // SQLite's thread is inside for less than a microsecond, unless it is preempted.
            std::thread::yield_now();
        }
        true
    }

    pub fn resume(&self) {
        if !self.by_lock.load(Ordering::Relaxed) {
            self.stop.store(false, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::UnsafeCell;
    use std::sync::Mutex;

    use super::*;

    /// Data that the gate and the lock protect from concurrent changes.
    struct Kept(UnsafeCell<(u64, u64)>);

    // SAFETY: the test is about just that.
    #[allow(unsafe_code)]
    unsafe impl Sync for Kept {}

    impl Kept {
        fn change(&self) {
            // SAFETY: the caller is alone here, or the test fails.
            #[allow(unsafe_code)]
            let both = unsafe { &mut *self.0.get() };
            assert_eq!(both.0, both.1);
            both.0 += 1;
            std::hint::black_box(&mut *both);
            both.1 += 1;
        }
    }

    fn nobody_meets(barrier: AsymmetricBarrier) {
        const OFTEN: u64 = if cfg!(miri) { 300 } else { 2_000_000 };
        const RARELY: u64 = if cfg!(miri) { 30 } else { 5_000 };
        let (gate, lock) = (AsymmetricLock::new(barrier), Mutex::new(()));
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
                        assert!(gate.stop());
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
        nobody_meets(AsymmetricBarrier::of_process());
        nobody_meets(AsymmetricBarrier::of_fences());
    }

    /// A filter that was added later has this effect.
    #[test]
    fn who_cannot_be_stopped_takes_the_lock_from_then_on() {
        let gate = AsymmetricLock::new(AsymmetricBarrier::of_fences());
        gate.stop.store(true, Ordering::Relaxed);
        assert!(!gate.enter());
        gate.note_locked_by_owner();
        assert!(gate.stop());
        gate.resume();
        assert!(!gate.enter(), "it was stopped for good");
    }
}
