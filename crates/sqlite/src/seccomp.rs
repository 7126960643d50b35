//! Detects system call filters (seccomp) that were added after the cache was installed.
//!
//! A program that adds a filter allows its own system calls, but not those of this crate to populate memory, return
//! memory or start a thread. From then on this crate makes none of them. Each database keeps its memory.

use std::sync::OnceLock;

use hugeleaf_sys::SeccompFilters;

static BEFORE: OnceLock<Option<SeccompFilters>> = OnceLock::new();

/// Records the current filters as those present at installation.
pub(crate) fn note() {
    BEFORE.get_or_init(SeccompFilters::of_thread);
}

/// Returns true if this thread has no new filters, or no cache is installed. Takes microseconds: only for long work.
pub(crate) fn is_none_new() -> bool {
    BEFORE
        .get()
        .is_none_or(|before| before.is_some() && SeccompFilters::of_thread() == *before)
}
