//! The atomic types of the standard library. The model test (`tests/model`) compiles the same code
//! with others, which let threads take turns at each access.

pub use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
