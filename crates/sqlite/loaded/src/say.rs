//! One line to standard error.
//!
//! # Safety
//! The calls are given a buffer and its length.

use std::ffi::c_void;

/// Writes it, unless nobody reads: a pipe without a reader would end the program with SIGPIPE.
pub fn say(line: &str) {
    let line = format!("hugeleaf: run: --sqlite: {line}\n");
    let mut stream = libc::pollfd {
        fd: libc::STDERR_FILENO,
        events: libc::POLLOUT,
        revents: 0,
    };
    // SAFETY: one stream is there, and the line has this length.
    unsafe {
        if libc::poll(&raw mut stream, 1, 0) == 1 && stream.revents == libc::POLLOUT {
            libc::write(
                libc::STDERR_FILENO,
                line.as_ptr().cast::<c_void>(),
                line.len(),
            );
        }
    }
}
