//! One line on standard error, once a process; where larger pages are mandatory, one for each kind
//! of memory that does not get them. This library prints nothing else, and never to standard
//! output.

use core::sync::atomic::{AtomicBool, Ordering};

use crate::calls;

static SAID: AtomicBool = AtomicBool::new(false);

/// Says a line, if nothing was said before.
pub fn once(parts: &[&[u8]]) {
    if !SAID.swap(true, Ordering::Relaxed) {
        line(parts);
    }
}

/// Says a line; its caller sees to it that it is said once.
pub fn line(parts: &[&[u8]]) {
    let mut line = [0_u8; 256];
    let mut length = 0;
    let start: &[u8] = b"hugeleaf: run: ";
    for byte in [start].iter().chain(parts).flat_map(|part| part.iter()) {
        let Some(to) = line.get_mut(length) else {
            break;
        };
        *to = *byte;
        length += 1;
    }
    if let Some(to) = line.get_mut(length.min(255)) {
        *to = b'\n';
    }
    if let Some(line) = line.get(..=length.min(255)) {
        calls::write(2, line);
    }
}
