//! Scheduling of turns. One thread runs at a time. At each access to shared state, the turn may
//! pass to another thread, drawn from a seed.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

struct Turns {
    /// The thread whose turn it is.
    whose: usize,
    /// Threads that still take part.
    here: Vec<bool>,
    state: u64,
}

static TURNS: Mutex<Turns> = Mutex::new(Turns {
    whose: 0,
    here: Vec::new(),
    state: 0,
});
static PASSED: Condvar = Condvar::new();
/// True in a forked child, which has one thread.
static ALONE: AtomicBool = AtomicBool::new(false);

thread_local! {
    static ME: Cell<Option<usize>> = const { Cell::new(None) };
}

impl Turns {
    fn draw(&mut self, below: usize) -> usize {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        ((self.state >> 16) as usize) % below.max(1)
    }

    fn next(&mut self) {
        let here: Vec<usize> = (0..self.here.len()).filter(|n| self.here[*n]).collect();
        if !here.is_empty() {
            let drawn = self.draw(here.len());
            self.whose = here[drawn];
        }
        PASSED.notify_all();
    }
}

fn turns() -> MutexGuard<'static, Turns> {
    TURNS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Prepares the turns before the threads start.
pub fn begin(threads: usize, seed: u64) {
    let mut turns = turns();
    turns.here = vec![true; threads];
    turns.state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    turns.next();
}

fn wait(mut turns: MutexGuard<'static, Turns>, me: usize) {
    while turns.whose != me {
        turns = PASSED.wait(turns).unwrap_or_else(PoisonError::into_inner);
    }
}

/// Runs the work of one thread in its turns. The turn is passed on at the end, even after a panic.
pub fn take_part(me: usize, work: impl FnOnce()) {
    struct Leaves(usize);

    impl Drop for Leaves {
        fn drop(&mut self) {
            ME.set(None);
            let mut turns = turns();
            turns.here[self.0] = false;
            turns.next();
        }
    }

    let _leaves = Leaves(me);
    ME.set(Some(me));
    wait(turns(), me);
    work();
}

/// Lets another thread take its turn.
pub fn turn() {
    let Some(me) = ME.get().filter(|_| !ALONE.load(SeqCst)) else {
        return;
    };
    let mut turns = turns();
    if turns.draw(6) == 0 {
        turns.next();
        wait(turns, me);
    }
}

/// Draws a number below this one.
pub fn drawn(below: usize) -> usize {
    if ALONE.load(SeqCst) {
        return 0;
    }
    turns().draw(below)
}

/// Declares that there is only one thread, which never waits.
pub fn is_alone() {
    ALONE.store(true, SeqCst);
}
