//! Whether this process is a child of the one that installed the cache, and did not execute another program since.
#![allow(unsafe_code)]
//! # Safety
//! The function that a child runs first stores a flag, which may be done at any time.

use std::sync::atomic::{AtomicBool, Ordering};

static IS_CHILD: AtomicBool = AtomicBool::new(false);

/// Has children of this process know that they are.
pub(crate) fn watch() {
    // SAFETY: the handler may be called at any time, and takes nothing. Where there is no memory for it, a child that goes
    // on with SQLite and executes no other program uses its parent's memory, copied page by page.
    unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
}

pub(crate) fn is_child() -> bool {
    IS_CHILD.load(Ordering::Relaxed)
}

unsafe extern "C" fn in_child() {
    IS_CHILD.store(true, Ordering::Relaxed);
}
