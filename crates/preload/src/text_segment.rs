//! Places the program's own text on huge pages, only on request, because of its cost. The text
//! becomes private memory of this process, and tools that map addresses to files no longer find it.
//!
//! # Safety
//! Replaces code by a copy of itself in one step, in the constructor: the program's text does not
//! run yet, and this library's is not in it.

#![allow(unsafe_code)]

use crate::messages;
use crate::placement::{populate_and_promote, reserve};
use crate::state::{round_down, round_up, settings};
use crate::syscalls::{self, Advice, flag};

/// Promotes the whole blocks inside the ranges. Returns true if all of them are now on huge pages.
pub fn move_all(ranges: &[(usize, usize); 4]) -> bool {
    let pmd = settings().pmd;
    let mut moved = true;
    for (start, end) in ranges {
        let Some(start) = round_up(*start, pmd) else {
            continue;
        };
        let end = round_down(*end, pmd);
        if start != 0 && start < end {
            moved &= move_blocks(start, end - start);
        }
    }
    moved
}

/// Reports that the text was not promoted. If huge pages are mandatory, the program does not run:
/// two lines and status 125, as for every failure of `run` itself.
pub fn not_moved() {
    if !settings().text.mandatory {
        return messages::once(&[b"--text: the program's text was not promoted"]);
    }
    for text in [
        &b"hugeleaf: run: --text: huge pages are mandatory, and the text was not promoted\n"[..],
        b"  next: hugeleaf status shows free pages; omit the '!' of --text\n",
    ] {
        syscalls::write(2, text);
    }
    syscalls::exit(125);
}

fn move_blocks(start: usize, length: usize) -> bool {
    let Some(room) = reserve(length, 0) else {
        return false;
    };
    if room.open(length, flag::MEMORY).is_err() {
        return false;
    }
    syscalls::advise(room.at, length, Advice::HugePage);
    // SAFETY: text can be read; the copy is our own memory.
    unsafe { core::ptr::copy_nonoverlapping(start as *const u8, room.at as *mut u8, length) };
    let huge = populate_and_promote(room.at, length);
    // SAFETY: our own memory.
    let runs = unsafe { syscalls::mprotect(room.at, length, flag::READ | flag::EXEC) };
    if huge && !syscalls::failed(runs) {
        syscalls::name_range(room.at, length, c"hugeleaf-text");
        let how = flag::MAYMOVE | flag::MREMAP_FIXED;
        // SAFETY: the same bytes replace the text, in one step.
        let moved = unsafe { syscalls::mremap(room.at, length, length, how, start) };
        if !syscalls::failed(moved) {
            return true;
        }
    }
    // SAFETY: our own memory.
    unsafe { syscalls::munmap(room.at, length) };
    false
}
