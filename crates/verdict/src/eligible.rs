//! What the kernel will and will not put on a large page, and why.

mod reason;

pub use reason::{Reason, Remedy};
