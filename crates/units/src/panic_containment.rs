//! Contains panics: one ends the part that has it, and others never wait for that part.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};

/// The text for a part of this program that panicked. The panic itself is on standard error.
pub const FAULT: &str = "a fault in hugeleaf; please report it";

/// Runs a part that is restarted or given up as a whole if it panics; returns `None` then.
pub fn caught<T>(part: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(part)).ok()
}

/// Sets a flag if the thread that holds it panics, so that other threads stop too.
pub struct StopOnPanic<'a>(
    /// The flag.
    pub &'a AtomicBool,
);

impl Drop for StopOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.store(true, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_stops_the_threads_beside_it() {
        let stop = AtomicBool::new(false);
        let beside = caught(|| {
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    let _others = StopOnPanic(&stop);
                    panic!("expected by a test");
                });
                while !stop.load(Ordering::Relaxed) {
                    std::thread::yield_now();
                }
            });
        });
        assert!(beside.is_none());
    }
}
