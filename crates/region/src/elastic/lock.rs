//! The word of the lock: who has it, and how it is taken, taken over and opened.
//!
//! Whoever writes the word keeps what was written, and opens the lock only where it still stands
//! there: a holder that was taken for dead, and was not, must not open the lock of the one who
//! took it over. The ticket differs between two takings of one process.

use std::sync::atomic::{AtomicU64, Ordering};

/// A word that several processes read and write; in a test that of a model.
pub(crate) trait Word {
    /// What it is now. Nothing that the lock guards may be concluded from it.
    fn look(&self) -> u64;
    /// Replaces what was seen; what the one before did under the lock is seen then.
    fn take(&self, seen: u64, by: u64) -> bool;
    /// Replaces what this one wrote; what was done under the lock is seen by the next.
    fn open(&self, mine: u64, by: u64) -> bool;
}

/// The memory orders stand here once, for the word itself and for that of the model.
macro_rules! impl_word {
    ($atomic:ty) => {
        impl Word for $atomic {
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

/// What one taking wrote, and no other: it opens the lock again.
#[derive(Debug)]
pub(crate) struct Token(u64);

/// Takes the lock as it was seen: open, or with a holder that is dead. `None` where it has changed
/// since.
pub(crate) fn take(word: &impl Word, seen: u64, slot: u16) -> Option<Token> {
    let mine = held_by(slot, seen);
    word.take(seen, mine).then_some(Token(mine))
}

/// Opens the lock; whether it was still this one's.
pub(crate) fn open(word: &impl Word, token: &Token) -> bool {
    word.open(token.0, token.0 & !u64::from(u32::MAX))
}

/// The holder's place, plus one, in the low half; the ticket in the other.
pub(crate) fn held_by(slot: u16, before: u64) -> u64 {
    let ticket = (before >> 32).wrapping_add(1);
    ticket << 32 | (u64::from(slot) + 1)
}

/// The place of who has the lock; `None` where it is open.
pub(crate) fn holder_of(word: u64) -> Option<u16> {
    // A number that no list has is a place without a process.
    let low = (word & u64::from(u32::MAX)).checked_sub(1)?;
    Some(u16::try_from(low).unwrap_or(u16::MAX))
}

/// All interleavings of a few takers, with the memory orders as they are written (loom).
#[cfg(test)]
mod model_tests {
    use super::*;
    use loom::cell::UnsafeCell;
    use loom::sync::Arc;
    use loom::sync::atomic::{AtomicBool as ModelBool, AtomicU64 as ModelWord};

    impl_word!(ModelWord);

    struct Shared {
        word: ModelWord,
        /// What the lock guards. Loom fails where two are there that nothing orders.
        guarded: UnsafeCell<()>,
        /// Whether process 0 counts as dead.
        ended: ModelBool,
    }

    /// All interleavings with so many switches that no taker asked for; `HUGELEAF_SOAK` asks for
    /// more of them.
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

    /// As [`super::super::ledger`] waits, without its clock.
    fn lock(shared: &Shared, slot: u16) -> Token {
        loop {
            let seen = shared.word.look();
            let dead = |holder| holder == 0 && shared.ended.load(Ordering::Acquire);
            let free = holder_of(seen).is_none_or(dead);
            if let Some(token) = free.then(|| take(&shared.word, seen, slot)).flatten() {
                return token;
            }
            loom::thread::yield_now();
        }
    }

    fn work(shared: &Shared, slot: u16) {
        let token = lock(shared, slot);
        shared.guarded.with_mut(|_| ());
        assert!(open(&shared.word, &token), "nobody takes it from who lives");
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

    /// Process 0 has the lock, is taken for dead, lets go all the same, and comes again as
    /// another: whoever took the lock over keeps it.
    #[test]
    fn who_was_taken_for_dead_opens_nobodys_lock() {
        explore(|shared| {
            let token = lock(&shared, 0);
            shared.ended.store(true, Ordering::Release);
            let other = {
                let shared = Arc::clone(&shared);
                loom::thread::spawn(move || work(&shared, 1))
            };
            open(&shared.word, &token);
            work(&shared, 2);
            other.join().unwrap();
            assert_eq!(holder_of(shared.word.look()), None);
        });
    }
}
