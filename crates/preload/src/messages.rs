//! Messages on standard error: one line per process, or one per kind of memory that does not get
//! its mandatory huge pages. This library prints nothing else, and never to standard output.

use core::sync::atomic::{AtomicBool, Ordering};

use crate::syscalls;

static SAID: AtomicBool = AtomicBool::new(false);

/// Prints a line unless one was printed before.
pub fn once(parts: &[&[u8]]) {
    if !SAID.swap(true, Ordering::Relaxed) {
        line(parts);
    }
}

/// Prints a line. The caller ensures that it is printed once.
pub fn line(parts: &[&[u8]]) {
    let (mut text, mut line) = ([0_u8; 240], [0_u8; 256]);
    let text = joined(&mut text, parts);
    syscalls::write(2, joined(&mut line, &[b"hugeleaf: run: ", text, b"\n"]));
}

/// Joins the parts, up to the length of the buffer.
pub fn joined<'a>(buffer: &'a mut [u8], parts: &[&[u8]]) -> &'a [u8] {
    let mut length = 0;
    let bytes = parts.iter().flat_map(|part| part.iter());
    for (to, byte) in buffer.iter_mut().zip(bytes) {
        *to = *byte;
        length += 1;
    }
    buffer.get(..length).unwrap_or(b"")
}

pub struct DecimalText {
    digits: [u8; 20],
    start: usize,
}

pub fn decimal(mut value: usize) -> DecimalText {
    let mut text = DecimalText {
        digits: [b'0'; 20],
        start: 20,
    };
    for (index, digit) in text.digits.iter_mut().enumerate().rev() {
        *digit = b'0' + (value % 10) as u8;
        text.start = index;
        value /= 10;
        if value == 0 {
            break;
        }
    }
    text
}

impl DecimalText {
    pub fn text(&self) -> &[u8] {
        self.digits.get(self.start..).unwrap_or(b"")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_in_full() {
        assert_eq!(decimal(0).text(), b"0");
        assert_eq!(decimal(65534).text(), b"65534");
        assert_eq!(
            decimal(usize::MAX).text(),
            usize::MAX.to_string().as_bytes()
        );
    }
    use std::string::ToString;
}
