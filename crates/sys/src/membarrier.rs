//! An asymmetric memory barrier (membarrier(2)).
//! The frequent side runs without a fence. The rare side runs a fence on all processors with a thread of this process.
//!
//! # Safety
//! membarrier(2) takes numbers and touches no memory of the caller.
#![allow(unsafe_code)]

use std::sync::OnceLock;
use std::sync::atomic::{Ordering, compiler_fence, fence};

use crate::seccomp::SeccompFilters;

/// The two sides of an asymmetric barrier. Between a store and a load, [`AsymmetricBarrier::light`] on the frequent side and
/// [`AsymmetricBarrier::heavy`] on the other together have the effect of `fence(SeqCst)` on both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AsymmetricBarrier {
    /// True if the kernel provides the barrier. Otherwise both sides fence.
    by_kernel: bool,
}

impl AsymmetricBarrier {
    /// Returns the barrier of this process. If the kernel has none (before 4.14), or a system call filter applies to this thread,
    /// both sides fence, which is equally correct and slower.
    pub fn of_process() -> AsymmetricBarrier {
        static KNOWN: OnceLock<AsymmetricBarrier> = OnceLock::new();
        *KNOWN.get_or_init(|| AsymmetricBarrier {
            by_kernel: call(libc::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED),
        })
    }

    /// Returns a barrier in which both sides fence.
    pub const fn of_fences() -> AsymmetricBarrier {
        AsymmetricBarrier { by_kernel: false }
    }

    #[inline]
    pub fn light(self) {
        match self.by_kernel {
            true => compiler_fence(Ordering::SeqCst),
            false => fence(Ordering::SeqCst),
        }
    }

    /// Runs the barrier of the rare side. Takes microseconds and interrupts each processor that runs a thread of this process.
    /// Returns false if a system call filter was added since: the frequent side can then no longer be stopped.
    #[must_use]
    pub fn heavy(self) -> bool {
        fence(Ordering::SeqCst);
        !self.by_kernel || call(libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED)
    }
}

/// Returns true if the kernel ran the command. A thread with a filter makes no call, because the answer may be a signal.
fn call(command: libc::c_int) -> bool {
    let may_ask = !cfg!(miri) && SeccompFilters::of_thread().is_some_and(SeccompFilters::is_none);
    // SAFETY: the call takes numbers only.
    may_ask && unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;

    use hugeleaf_testkit::RepeatingThread;

    use super::*;

    /// Dekker's test: each side stores, then loads the other's value. Without a barrier, both may miss the other's store.
    fn never_both_blind(barrier: AsymmetricBarrier) {
        let (often, rarely) = (AtomicU32::new(0), AtomicU32::new(0));
        let (round, seen) = (AtomicU32::new(0), AtomicU32::new(0));
        std::thread::scope(|scope| {
            let _other = RepeatingThread::start(scope, || {
                let now = round.load(Ordering::Acquire);
                if now == 0 {
                    std::hint::spin_loop();
                    return;
                }
                often.store(now, Ordering::Relaxed);
                barrier.light();
                seen.store(rarely.load(Ordering::Relaxed), Ordering::Relaxed);
                round.store(0, Ordering::Release);
            });
            for now in 1..2000 {
                round.store(now, Ordering::Release);
                rarely.store(now, Ordering::Relaxed);
                assert!(barrier.heavy());
                let saw = often.load(Ordering::Relaxed);
                while round.load(Ordering::Acquire) != 0 {
                    std::thread::yield_now();
                }
                let other = seen.load(Ordering::Relaxed);
                assert!(saw == now || other == now, "round {now}: {saw} {other}");
            }
        });
    }

    #[test]
    fn of_two_sides_one_sees_the_other() {
        never_both_blind(AsymmetricBarrier::of_process());
        never_both_blind(AsymmetricBarrier::of_fences());
    }

    #[test]
    fn a_thread_under_a_filter_does_not_ask() {
        let barrier = AsymmetricBarrier::of_process();
        let under_a_filter = std::thread::spawn(move || {
            crate::seccomp::refuse_in_this_thread(libc::SYS_membarrier);
            barrier.heavy()
        });
        assert_eq!(under_a_filter.join().unwrap(), !barrier.by_kernel);
        assert!(barrier.heavy());
    }
}
