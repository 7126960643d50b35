//! Stacks. Those of threads come through `mmap` with `MAP_STACK`, which prevents huge pages since
//! Linux 6.7. The first thread's stack exists before the program runs.
//!
//! # Safety
//! Has the kernel write a few bytes to the stack far below its end, which makes it extend the
//! stack.

#![allow(unsafe_code)]

use crate::mandatory;
use crate::placement::reserve_as;
use crate::state::{round_down, settings};
use crate::syscalls::{self, Advice, flag};

/// Maps a thread's stack without the flag that forbids huge pages, its top at the end of one.
pub fn of_thread(length: usize, protection: usize, flags: usize) -> Option<isize> {
    let settings = settings();
    // Stacks with flags to lock or populate them are left to the program's own call.
    if flags & !(flag::PRIVATE | flag::ANONYMOUS | flag::STACK | flag::NORESERVE) != 0 {
        return None;
    }
    let end = 0usize.wrapping_sub(length);
    let room = reserve_as(length, end, settings.pmd, 0, flags & flag::NORESERVE)?;
    let at = room.open(length, protection).ok()?;
    syscalls::name_range(room.at, length, c"hugeleaf-stack");
    if settings.touch {
        syscalls::advise(room.at, length, Advice::HugePage);
    }
    // Without access rights so far (glibc's way), promotion waits until it gets them.
    if settings.stack.mandatory
        && protection & flag::WRITE != 0
        && !mandatory::promote_range(room.at, length)
    {
        // SAFETY: made above, not handed out.
        unsafe { syscalls::munmap(room.at, length) };
        return Some(mandatory::refused(mandatory::MemoryRole::Stack));
    }
    Some(at as isize)
}

/// Extends the first thread's stack far down now, so that it can grow into huge pages.
/// Costs one base page, and addresses. So this is done only if stacks were requested explicitly,
/// which sets a bound of one huge page.
pub fn of_first_thread() {
    const LIMIT: usize = 3;
    const FARTHEST: usize = 64 << 20;
    let settings = settings();
    let Some(limit) = syscalls::soft_limit(LIMIT) else {
        return;
    };
    let asked = settings.stack.thp && settings.stack_after <= settings.pmd;
    if !asked || !settings.touch || limit < settings.stack_after {
        return;
    }
    let here = &raw const limit as usize;
    let far = (limit - limit / 4).min(FARTHEST);
    let low = round_down(here.saturating_sub(far), settings.base);
    // The kernel extends it on touch, without a call that could be refused.
    if settings.stack.mandatory {
        mandatory::report_base_kind(mandatory::BasePageReason::FirstStack);
    }
    // A touch refused by the kernel (`ulimit -v`) would end the program; a system call fails.
    // SAFETY: the first thread's stack, far below its used part.
    if syscalls::failed(unsafe { syscalls::limit_into(LIMIT, low) }) {
        return;
    }
    syscalls::advise(
        low,
        round_down(here, settings.pmd).saturating_sub(low),
        Advice::HugePage,
    );
}
