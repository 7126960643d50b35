//! The end of a program that the launcher reports on: it is notified, and waited for, so that it can
//! take a last look at memory that is still there.

use crate::calls;
use crate::say::{decimal, joined};
use crate::state::settings;

/// Longest wait for the launcher's look, in seconds.
const PATIENCE: usize = 2;

pub fn ending() {
    let path = settings().report;
    if path.is_empty() {
        return;
    }
    let socket = calls::connect(path);
    if calls::failed(socket) {
        return;
    }
    let socket = socket as usize;
    let mut line = [0_u8; 32];
    let pid = decimal(calls::getpid());
    let line = joined(&mut line, &[b"exit ", pid.text(), b"\n"]);
    if calls::send(socket, line) == line.len() as isize && calls::readable_within(socket, PATIENCE)
    {
        calls::read(socket, &mut [0]);
    }
    calls::close(socket);
}
