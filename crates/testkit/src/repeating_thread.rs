//! Threads that work beside a test.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::Scope;

/// A thread of a scope that repeats its work until this is dropped. A failed assertion drops it too: otherwise the scope
/// would wait for the thread for ever, and the test would hang instead of failing.
#[must_use]
#[derive(Debug)]
pub struct RepeatingThread(Arc<AtomicBool>);

impl RepeatingThread {
    pub fn start<'scope>(
        scope: &'scope Scope<'scope, '_>,
        mut work: impl FnMut() + Send + 'scope,
    ) -> RepeatingThread {
        let is_over = Arc::new(AtomicBool::new(false));
        let stop = Arc::clone(&is_over);
        scope.spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                work();
            }
        });
        RepeatingThread(is_over)
    }
}

impl Drop for RepeatingThread {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn a_failed_assertion_ends_the_thread() {
    let fails = || {
        std::thread::scope(|scope| {
            let _beside = RepeatingThread::start(scope, std::thread::yield_now);
            panic!("expected by a test");
        })
    };
    assert!(std::panic::catch_unwind(fails).is_err());
}
