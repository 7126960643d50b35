//! Notifies the launcher of the program's end and waits for it, so that it can read the memory state
//! before it is gone.

use crate::calls;
use crate::say::{decimal, joined};
use crate::state::settings;

/// Maximum time to wait for the launcher's check, in seconds.
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
