//! Whether this process is a child of the one that installed the cache, and did not execute another program since.
//!
//! A child has the locks of its parent as they were at the fork, without the threads that may have held them. So whoever
//! forks takes them all first, and both processes release them afterwards.
#![allow(unsafe_code)]
//! # Safety
//! The handlers take nothing. Each thread finds what it left before the fork, in both processes.

use std::cell::Cell;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, TryLockError};
use std::time::{Duration, Instant};

/// A lock is held for milliseconds. One that is not free after this long is held by the very thread that forks, in a
/// signal handler.
const PATIENCE: Duration = Duration::from_secs(2);

static IS_CHILD: AtomicBool = AtomicBool::new(false);
/// True if a lock could not be taken before the fork: nothing that it guards is used in this child.
static IS_LOST: AtomicBool = AtomicBool::new(false);

/// Locks that are held during a fork; `is_all` is false if one is missing.
pub(crate) struct Stopped<T> {
    pub _held: T,
    pub is_all: bool,
}

/// Takes the locks of what is installed; `None` where nothing is.
pub(crate) trait Stops {
    type Held;
    fn stop() -> Option<Stopped<Option<Self::Held>>>;
}

/// Has children of this process know that they are, and find the locks of `S` free.
pub(crate) fn watch<S: Stops>() {
    // SAFETY: the handlers may be called at any time, and take nothing. Where there is no memory for them, a child that
    // goes on with SQLite and executes no other program uses its parent's memory, copied page by page.
    unsafe { libc::pthread_atfork(Some(before::<S>), Some(in_parent::<S>), Some(in_child::<S>)) };
}

pub(crate) fn is_child() -> bool {
    IS_CHILD.load(Ordering::Relaxed)
}

/// Returns true in a child that must not use memory that its parent shared.
pub(crate) fn is_lost() -> bool {
    IS_LOST.load(Ordering::Relaxed)
}

/// Takes a lock, and does not wait for one that is never released.
pub(crate) fn lock_in_time<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    let mut since: Option<Instant> = None;
    loop {
        match mutex.try_lock() {
            Ok(guard) => return Some(guard),
            Err(TryLockError::Poisoned(guard)) => return Some(guard.into_inner()),
            Err(TryLockError::WouldBlock) => {}
        }
        if since.get_or_insert_with(Instant::now).elapsed() > PATIENCE {
            return None;
        }
        std::thread::yield_now();
    }
}

thread_local! {
    /// Locks that this thread holds during its fork, as a pointer: a value with a destructor could not be used any more at the
    /// end of a thread.
    static HELD: Cell<*mut ()> = const { Cell::new(null_mut()) };
}

unsafe extern "C" fn before<S: Stops>() {
    // Twice in one fork where two threads installed a cache at once: the second is refused, and its handlers stay.
    if !is_lost()
        && HELD.get().is_null()
        && let Some(stopped) = S::stop()
    {
        HELD.set(Box::into_raw(Box::new(stopped)).cast());
    }
}

/// Releases what this thread took before its fork; whether that was all.
fn release<S: Stops>() -> bool {
    let held = HELD.replace(null_mut()).cast::<Stopped<Option<S::Held>>>();
    // SAFETY: it is of `before`, and nobody else finds it again.
    held.is_null() || unsafe { Box::from_raw(held) }.is_all
}

unsafe extern "C" fn in_parent<S: Stops>() {
    release::<S>();
}

unsafe extern "C" fn in_child<S: Stops>() {
    IS_CHILD.store(true, Ordering::Relaxed);
    if !release::<S>() {
        IS_LOST.store(true, Ordering::Relaxed);
    }
}
