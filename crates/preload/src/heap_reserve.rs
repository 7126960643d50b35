//! Implements `--reserve`: heap allocated before the program runs.

use crate::heap;
use crate::messages::{self, decimal};
use crate::state::settings;
use crate::syscalls;

/// Takes the reserve. If huge pages are mandatory and it is unavailable, the program does not run:
/// two lines and status 125, as for every failure of `run` itself.
pub fn take() {
    let settings = settings();
    if settings.reserve == 0 || heap::reserve(settings.reserve) {
        return;
    }
    let bytes = decimal(settings.reserve >> 20);
    if !settings.data.mandatory {
        messages::once(&[
            b"--reserve: ",
            bytes.text(),
            b"M of heap was unavailable at the start",
        ]);
        return;
    }
    for text in [
        &b"hugeleaf: run: --reserve: "[..],
        bytes.text(),
        b"M of heap on huge pages is unavailable\n  next: hugeleaf status shows free pages; ",
        b"reserve less, or omit the '!' of --data\n",
    ] {
        syscalls::write(2, text);
    }
    syscalls::exit(125);
}
