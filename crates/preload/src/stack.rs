//! Stacks: those of threads come through `mmap` with `MAP_STACK`, which keeps huge pages away
//! since Linux 6.7; the first thread's is there before the program runs.
//!
//! # Safety
//!
//! Maps only over room that it reserved; reads one byte of the stack below its end, which is
//! what makes the kernel extend it.

#![allow(unsafe_code)]

use crate::calls::{self, Advice, flag};
use crate::state::{down, settings};
use crate::window::reserve;

/// The stack of a thread: without the mark that forbids huge pages, its top at the end of one.
pub fn of_thread(length: usize, protection: usize, flags: usize) -> Option<isize> {
    let settings = settings();
    let room = reserve(length, 0usize.wrapping_sub(length))?;
    let flags = (flags & !flag::STACK) | flag::FIXED;
    // SAFETY: into the room.
    let at = unsafe { calls::mmap(room.at, length, protection, flags) };
    if calls::failed(at) {
        room.drop_all();
        return None;
    }
    room.trim(length);
    calls::name_range(room.at, length, c"hugeleaf-stack");
    if settings.touch {
        calls::advise(room.at, length, Advice::HugePage);
    }
    Some(at)
}

/// Lets the first thread's stack be mapped far down now, so that what it grows into can be huge
/// pages. Costs one base page.
pub fn of_first_thread() {
    const LIMIT: usize = 3;
    const FARTHEST: usize = 64 << 20;
    let settings = settings();
    let Some(limit) = calls::soft_limit(LIMIT) else {
        return;
    };
    if !settings.stack.thp || !settings.touch || limit < settings.stack_after {
        return;
    }
    let here = &raw const limit as usize;
    let far = (limit - limit / 4).min(FARTHEST);
    let low = down(here.saturating_sub(far), settings.base);
    // SAFETY: within the limit the kernel maps the stack down to where it is read.
    unsafe { (low as *const u8).read_volatile() };
    calls::advise(
        low,
        down(here, settings.pmd).saturating_sub(low),
        Advice::HugePage,
    );
}
