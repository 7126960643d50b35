//! The word of the lock: its holder, and how it is taken, taken over and released.
//!
//! A holder keeps the word that it wrote and releases the lock only if that word is still there. A
//! holder that was mistaken for dead must not release the lock of the process that took it over.
//! The ticket distinguishes two acquisitions by one process.

use std::sync::atomic::{AtomicU64, Ordering};

/// A word that several processes read and write; tests use a model.
pub(crate) trait LockWord {
    /// Returns the current value. It implies nothing about the data that the lock guards.
    fn look(&self) -> u64;
    /// Replaces the value seen. The writes of the previous holder are visible afterwards.
    fn take(&self, seen: u64, by: u64) -> bool;
    /// Replaces the value that this holder wrote. Its writes are visible to the next holder.
    fn open(&self, mine: u64, by: u64) -> bool;
}

/// Defines the memory orders once, for the real word and for the model.
macro_rules! impl_word {
    ($atomic:ty) => {
        impl LockWord for $atomic {
            fn look(&self) -> u64 {
                self.load(Ordering::Relaxed)
            }

            fn take(&self, seen: u64, by: u64) -> bool {
                self.compare_exchange(seen, by, Ordering::Acquire, Ordering::Relaxed)
                    .is_ok()
            }

            fn open(&self, mine: u64, by: u64) -> bool {
                self.compare_exchange(mine, by, Ordering::Release, Ordering::Relaxed)
                    .is_ok()
            }
        }
    };
}

impl_word!(AtomicU64);

/// The unique value that one acquisition wrote; required to release the lock.
#[derive(Debug)]
pub(crate) struct LockToken(u64);

/// Takes the lock from the state seen: open, or held by a dead process. `None` if it has changed.
pub(crate) fn try_acquire(word: &impl LockWord, seen: u64, slot: u16) -> Option<LockToken> {
    let mine = held_by(slot, seen);
    word.take(seen, mine).then_some(LockToken(mine))
}

/// Releases the lock; false if another process has taken it over.
pub(crate) fn release(word: &impl LockWord, token: &LockToken) -> bool {
    word.open(token.0, token.0 & !u64::from(u32::MAX))
}

/// Returns the word of a held lock: the holder's slot plus one below, the ticket in the high half.
pub(crate) fn held_by(slot: u16, before: u64) -> u64 {
    let ticket = (before >> 32).wrapping_add(1);
    ticket << 32 | (u64::from(slot) + 1)
}

/// Returns the slot of the holder; `None` if the lock is open.
pub(crate) fn holder_of(word: u64) -> Option<u16> {
    // A number beyond the list becomes a slot without a process.
    let low = (word & u64::from(u32::MAX)).checked_sub(1)?;
    Some(u16::try_from(low).unwrap_or(u16::MAX))
}

/// Explores all interleavings of a few takers, with the real memory orders (loom).
#[cfg(test)]
mod model_tests {
    use super::*;
    use loom::cell::UnsafeCell;
    use loom::sync::Arc;
    use loom::sync::atomic::{AtomicBool as ModelBool, AtomicU64 as ModelWord};

    impl_word!(ModelWord);

    struct Shared {
        word: ModelWord,
        /// The data that the lock guards. Loom fails if two accesses to it are unordered.
        guarded: UnsafeCell<()>,
        /// True if process 0 counts as dead.
        ended: ModelBool,
    }

    /// Explores all interleavings with few preemptions; `HUGELEAF_SOAK` allows more.
    fn explore(test: impl Fn(Arc<Shared>) + Sync + Send + 'static) {
        let mut model = loom::model::Builder::new();
        let soak = std::env::var_os("HUGELEAF_SOAK").is_some();
        model.preemption_bound = Some(if soak { 4 } else { 2 });
        model.check(move || {
            test(Arc::new(Shared {
                word: ModelWord::new(0),
                guarded: UnsafeCell::new(()),
                ended: ModelBool::new(false),
            }));
        });
    }

    /// Waits as [`super::super::ledger`] does, without its clock.
    fn lock(shared: &Shared, slot: u16) -> LockToken {
        loop {
            let seen = shared.word.look();
            let dead = |holder| holder == 0 && shared.ended.load(Ordering::Acquire);
            let free = holder_of(seen).is_none_or(dead);
            if let Some(token) = free
                .then(|| try_acquire(&shared.word, seen, slot))
                .flatten()
            {
                return token;
            }
            loom::thread::yield_now();
        }
    }

    fn work(shared: &Shared, slot: u16) {
        let token = lock(shared, slot);
        shared.guarded.with_mut(|_| ());
        assert!(
            release(&shared.word, &token),
            "nobody takes it from who lives"
        );
    }

    #[test]
    fn takers_exclude_each_other_and_see_what_was_done() {
        explore(|shared| {
            let other = {
                let shared = Arc::clone(&shared);
                loom::thread::spawn(move || work(&shared, 1))
            };
            work(&shared, 2);
            other.join().unwrap();
            assert_eq!(holder_of(shared.word.look()), None);
        });
    }

    /// Process 0 holds the lock, is mistaken for dead, releases the lock anyway and comes back as
    /// another process. The process that took the lock over must keep it.
    #[test]
    fn who_was_taken_for_dead_opens_nobodys_lock() {
        explore(|shared| {
            let token = lock(&shared, 0);
            shared.ended.store(true, Ordering::Release);
            let other = {
                let shared = Arc::clone(&shared);
                loom::thread::spawn(move || work(&shared, 1))
            };
            release(&shared.word, &token);
            work(&shared, 2);
            other.join().unwrap();
            assert_eq!(holder_of(shared.word.look()), None);
        });
    }
}
