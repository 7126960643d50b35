//! Detects that this process is a forked child of the one that installed the cache, without an execve(2) since.
//!
//! A child has the locks of its parent in their state at the fork, without the threads that may have held them. The
//! forking thread therefore takes all of them first, and both processes release them afterwards.
#![allow(unsafe_code)]
//! # Safety
//! The handlers have no arguments. Each thread finds its own state from before the fork, in both processes.

use std::cell::Cell;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, TryLockError};
use std::time::{Duration, Instant};

/// Maximum wait for a lock. Locks are held for milliseconds. One that is still held after this time belongs to the
/// forking thread itself, which is in a signal handler.
const PATIENCE: Duration = Duration::from_secs(2);

static IS_CHILD: AtomicBool = AtomicBool::new(false);
/// True if a lock could not be taken before the fork. This child must not use the data that it guards.
static PARENT_LOCKS_LOST: AtomicBool = AtomicBool::new(false);

/// Takes the locks of the installed cache; `None` if no cache is installed. The flag is false if a lock could not be
/// taken.
pub(crate) trait ForkLocks {
    type Held;
    fn stop() -> Option<(Self::Held, bool)>;
}

/// Registers handlers that mark children as such and release the locks of `S` in them.
pub(crate) fn watch<S: ForkLocks>() {
    // SAFETY: the handlers may be called at any time, and have no arguments. If registering them fails for lack of
    // memory, a child that uses SQLite without an execve(2) uses its parent's memory, copied page by page.
    unsafe { libc::pthread_atfork(Some(before::<S>), Some(in_parent::<S>), Some(in_child::<S>)) };
}

pub(crate) fn is_child() -> bool {
    IS_CHILD.load(Ordering::Relaxed)
}

/// Returns true in a child that must not use memory shared with its parent.
pub(crate) fn parent_locks_lost() -> bool {
    PARENT_LOCKS_LOST.load(Ordering::Relaxed)
}

/// Takes a lock, or returns `None` if it is not released within [`PATIENCE`].
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
    /// Pointer to the locks that this thread holds during its fork. A value with a destructor would be unusable while a
    /// thread ends.
    static HELD: Cell<*mut ()> = const { Cell::new(null_mut()) };
}

unsafe extern "C" fn before<S: ForkLocks>() {
    // Runs twice per fork if two threads installed a cache at once: the second is refused, but its handlers stay.
    if !parent_locks_lost()
        && HELD.get().is_null()
        && let Some(stopped) = S::stop()
    {
        HELD.set(Box::into_raw(Box::new(stopped)).cast());
    }
}

/// Releases the locks that this thread took before its fork; false if one was missing.
fn release<S: ForkLocks>() -> bool {
    let held = HELD.replace(null_mut()).cast::<(S::Held, bool)>();
    // SAFETY: the pointer is from `before`, and this is its only use.
    held.is_null() || unsafe { Box::from_raw(held) }.1
}

unsafe extern "C" fn in_parent<S: ForkLocks>() {
    release::<S>();
}

unsafe extern "C" fn in_child<S: ForkLocks>() {
    IS_CHILD.store(true, Ordering::Relaxed);
    if !release::<S>() {
        PARENT_LOCKS_LOST.store(true, Ordering::Relaxed);
    }
}
