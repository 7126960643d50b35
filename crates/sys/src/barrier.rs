//! A memory barrier that one side pays for: whoever does something often runs without one, whoever wants to stop it
//! runs one on all processors where this process has a thread (membarrier(2)).
//!
//! # Safety
//! membarrier(2) takes numbers and touches no memory of the caller.
#![allow(unsafe_code)]

use std::sync::OnceLock;
use std::sync::atomic::{Ordering, compiler_fence, fence};

use crate::filter::Filters;

/// The two sides of an asymmetric barrier. Between a store and a load, [`Barrier::light`] on the side that runs often
/// and [`Barrier::heavy`] on the other are together what `fence(SeqCst)` is on both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Barrier {
    /// Whether the kernel does it; otherwise both sides fence.
    by_kernel: bool,
}

impl Barrier {
    /// Returns the barrier of this process. If the kernel has none (before 4.14), or this thread is under a filter of system calls,
    /// both sides fence: as right, and slower.
    pub fn of_process() -> Barrier {
        static KNOWN: OnceLock<Barrier> = OnceLock::new();
        *KNOWN.get_or_init(|| Barrier {
            by_kernel: call(libc::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED),
        })
    }

    /// Both sides fence.
    pub const fn of_fences() -> Barrier {
        Barrier { by_kernel: false }
    }

    #[inline]
    pub fn light(self) {
        match self.by_kernel {
            true => compiler_fence(Ordering::SeqCst),
            false => fence(Ordering::SeqCst),
        }
    }

    /// The side that runs rarely: microseconds, and an interrupt for each processor that runs a thread of this process.
    /// False where a filter of system calls came since: the other side, which relies on it, cannot be stopped any more.
    #[must_use]
    pub fn heavy(self) -> bool {
        fence(Ordering::SeqCst);
        !self.by_kernel || call(libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED)
    }
}

/// Returns true if the kernel did it. A thread under a filter does not ask: the answer may be a signal.
fn call(command: libc::c_int) -> bool {
    let may_ask = !cfg!(miri) && Filters::of_thread().is_some_and(Filters::is_none);
    // SAFETY: the call takes numbers only.
    may_ask && unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicU32};

    use super::*;

    /// Dekker's test: each side stores and then loads what the other stored. Without a barrier both may see nothing.
    fn never_both_blind(barrier: Barrier) {
        let (often, rarely) = (AtomicU32::new(0), AtomicU32::new(0));
        let (round, end) = (AtomicU32::new(0), AtomicBool::new(false));
        let seen = AtomicU32::new(0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !end.load(Ordering::Acquire) {
                    let now = round.load(Ordering::Acquire);
                    if now == 0 {
                        std::hint::spin_loop();
                        continue;
                    }
                    often.store(now, Ordering::Relaxed);
                    barrier.light();
                    seen.store(rarely.load(Ordering::Relaxed), Ordering::Relaxed);
                    round.store(0, Ordering::Release);
                }
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
            end.store(true, Ordering::Release);
        });
    }

    #[test]
    fn of_two_sides_one_sees_the_other() {
        never_both_blind(Barrier::of_process());
        never_both_blind(Barrier::of_fences());
    }

    #[test]
    fn a_thread_under_a_filter_does_not_ask() {
        let barrier = Barrier::of_process();
        let under_a_filter = std::thread::spawn(move || {
            crate::filter::refuse_in_this_thread(libc::SYS_membarrier);
            barrier.heavy()
        });
        assert_eq!(under_a_filter.join().unwrap(), !barrier.by_kernel);
        assert!(barrier.heavy());
    }
}
