//! Waiting: for a condition, and never for a fixed time.

use std::fmt::Display;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How long a condition is waited for. Generous: a busy machine is not a failure.
pub const PATIENCE: Duration = Duration::from_secs(180);

/// Waits until a condition holds.
///
/// # Panics
/// Where it does not hold within [`PATIENCE`].
#[track_caller]
pub fn until(what: &str, holds: impl FnMut() -> bool) {
    until_at_most(what, PATIENCE, holds);
}

/// The same with a longer deadline; a shorter one than [`PATIENCE`] is raised to it.
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

/// Lets time pass where its passing is what is tested: a rate, an interval, an idle process.
/// A condition is waited for by [`until`].
pub fn pause(time: Duration) {
    sleep(time);
}

/// Short pauses at first, so that what comes soon is seen soon.
fn step(begin: Instant) {
    sleep((begin.elapsed() / 8).clamp(Duration::from_millis(2), Duration::from_millis(50)));
}
