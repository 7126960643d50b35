//! Waits for conditions, never for a fixed time.

use std::fmt::Display;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Time limit for conditions. It is generous because a busy machine is not a failure.
pub const PATIENCE: Duration = Duration::from_secs(180);

/// Waits until a condition holds.
///
/// # Panics
/// If it does not hold within [`PATIENCE`].
#[track_caller]
pub fn until(what: &str, holds: impl FnMut() -> bool) {
    until_at_most(what, PATIENCE, holds);
}

/// Waits with a longer deadline; one shorter than [`PATIENCE`] is raised to it.
#[track_caller]
pub fn until_at_most(what: &str, at_most: Duration, mut holds: impl FnMut() -> bool) {
    let at_most = at_most.max(PATIENCE);
    let begin = Instant::now();
    while !holds() {
        assert!(begin.elapsed() < at_most, "waited {at_most:?} for: {what}");
        step(begin);
    }
}

/// Repeats an attempt until it succeeds, and returns its value.
///
/// # Panics
/// With the last error, after [`PATIENCE`].
#[track_caller]
pub fn eventually<T, E: Display>(mut attempt: impl FnMut() -> Result<T, E>) -> T {
    let begin = Instant::now();
    loop {
        match attempt() {
            Ok(value) => return value,
            Err(e) => assert!(begin.elapsed() < PATIENCE, "{e}"),
        }
        step(begin);
    }
}

/// Lets time pass if the test is about its passing: a rate, an interval, a random moment. `why` names what must not happen meanwhile, or
/// what the pause is for. Use [`until`] to wait for a condition.
#[track_caller]
pub fn pause(time: Duration, why: &str) {
    assert!(!why.is_empty(), "a pause needs a reason");
    sleep(time);
}

/// Starts with short pauses, so that early events are noticed early.
pub(crate) fn step(begin: Instant) {
    sleep((begin.elapsed() / 8).clamp(Duration::from_millis(2), Duration::from_millis(50)));
}
