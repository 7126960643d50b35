//! Notices filters of system calls that were added since the cache was installed.
//!
//! A program that adds one knows the calls that it makes itself, and not those that are made here: to populate memory, to
//! return it, to start a thread. So none of them is made from then on. Each database keeps the memory that it has.

use std::sync::OnceLock;

use hugeleaf_sys::Filters;

static BEFORE: OnceLock<Option<Filters>> = OnceLock::new();

/// Those of now are the ones that were there before.
pub(crate) fn note() {
    BEFORE.get_or_init(Filters::of_thread);
}

/// Returns true if this thread is under the filters of before only, or no cache is installed. It takes some microseconds,
/// so it is asked before long work only.
pub(crate) fn is_none_new() -> bool {
    BEFORE
        .get()
        .is_none_or(|before| before.is_some() && Filters::of_thread() == *before)
}
