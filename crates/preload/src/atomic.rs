//! The atomic types: of the processor. The model test (`tests/model`) has the same code use others,
//! which let threads take turns at each access.

pub use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
