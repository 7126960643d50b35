//! Writes one line to standard error.
//!
//! # Safety
//! The calls get a buffer and its length.

#![allow(unsafe_code)]

use std::ffi::c_void;

/// Writes a line, unless standard error has no reader: such a pipe would end the program with SIGPIPE.
pub fn say(line: &str) {
    let line = format!("hugeleaf: run: --sqlite: {line}\n");
    let mut stream = libc::pollfd {
        fd: libc::STDERR_FILENO,
        events: libc::POLLOUT,
        revents: 0,
    };
    // SAFETY: there is one stream, and the line has this length.
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
