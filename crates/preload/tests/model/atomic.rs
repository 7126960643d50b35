//! Atomic types that let another thread take its turn at each access.

use std::sync::atomic;
pub use std::sync::atomic::Ordering;
use std::sync::atomic::Ordering::SeqCst;

use crate::schedule::turn;

macro_rules! atomic {
    ($name:ident, $value:ty) => {
        pub struct $name(atomic::$name);

        impl $name {
            pub const fn new(value: $value) -> $name {
                $name(atomic::$name::new(value))
            }

            pub fn load(&self, _: Ordering) -> $value {
                turn();
                self.0.load(SeqCst)
            }

            pub fn store(&self, value: $value, _: Ordering) {
                turn();
                self.0.store(value, SeqCst);
            }

            pub fn swap(&self, value: $value, _: Ordering) -> $value {
                turn();
                self.0.swap(value, SeqCst)
            }
        }
    };
}

atomic!(AtomicBool, bool);
atomic!(AtomicUsize, usize);

impl AtomicUsize {
    pub fn fetch_add(&self, value: usize, _: Ordering) -> usize {
        turn();
        self.0.fetch_add(value, SeqCst)
    }
}
