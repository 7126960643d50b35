//! Mandatory huge pages (`--data 2M!`). Each kind of memory is on huge pages, or the program's call
//! fails with ENOMEM, or a message says that this kind is not. One of the three always holds.
//! `docs/guide/run.md` has the table of kinds, and `run_compat` tests it with programs.
//!
//! # Safety
//! Unmaps only what was made here and not handed out.

#![allow(unsafe_code)]

use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use crate::maps::private_memory;
use crate::placement::{collapse, populate_and_promote, reserve};
use crate::state::{round_down, round_up, settings};
use crate::syscalls::{self, Advice, flag};
use crate::{messages, promote_existing};

/// A kind of memory that stays on base pages, reported once.
#[derive(Clone, Copy)]
pub enum BasePageReason {
    /// `MAP_GROWSDOWN`.
    GrowsDown = 0,
    /// Mappings smaller than a huge page that together exceed one.
    Small = 1,
    ShortFile = 2,
    /// Made usable by `mprotect`, where the kernel supports no huge pages.
    Protected = 3,
    /// A System V segment at an address not aligned to huge pages.
    Misaligned = 4,
    Filtered = 5,
    FirstStack = 6,
}

static SAID: AtomicUsize = AtomicUsize::new(0);

pub fn report_base_kind(kind: BasePageReason) {
    let bit = 1 << kind as usize;
    if SAID.fetch_or(bit, Relaxed) & bit != 0 {
        return;
    }
    let what: &[u8] = match kind {
        BasePageReason::GrowsDown => b"memory mapped with MAP_GROWSDOWN",
        BasePageReason::Small => b"memory in mappings smaller than a huge page",
        BasePageReason::ShortFile => b"the part of a mapping beyond the length of its memory file",
        BasePageReason::Protected => b"memory that mprotect made usable where no huge page fits",
        BasePageReason::Misaligned => b"a segment attached at an address that no huge page fits",
        BasePageReason::Filtered => b"memory mapped after the program's own seccomp filter",
        BasePageReason::FirstStack => b"growth of the main thread's stack",
    };
    messages::line(&[
        what,
        b" stays on base pages, although huge pages are mandatory",
    ]);
}

/// The role of memory, as in the flags of `run`.
#[derive(Clone, Copy)]
pub enum MemoryRole {
    Data = 8,
    Shm = 9,
    Stack = 10,
}

/// Returns ENOMEM. Reports it once per role if mandatory huge pages are the reason.
pub fn refused(role: MemoryRole) -> isize {
    let settings = settings();
    let (name, rungs): (&[u8], _) = match role {
        MemoryRole::Data => (b"--data", &settings.data),
        MemoryRole::Shm => (b"--shm", &settings.shm),
        MemoryRole::Stack => (b"--stack", &settings.stack),
    };
    let bit = 1 << role as usize;
    if rungs.mandatory && SAID.fetch_or(bit, Relaxed) & bit == 0 {
        messages::line(&[
            name,
            b": huge pages are mandatory (!), and a request got none (ENOMEM); \
            hugeleaf status shows free pages",
        ]);
    }
    syscalls::ENOMEM
}

pub fn small(length: usize) {
    static TOTAL: AtomicUsize = AtomicUsize::new(0);
    let total = TOTAL.fetch_add(length, Relaxed).saturating_add(length);
    if total >= settings().pmd.max(settings().data.pools[0]) {
        report_base_kind(BasePageReason::Small);
    }
}

/// Maps private memory for allocators on separate huge pages, if the window has none.
pub fn plain(length: usize) -> isize {
    let made = || {
        let whole = round_up(length, settings().pmd)?;
        let at = reserve(whole, 0)?.open(whole, flag::MEMORY).ok()?;
        let keep = if promote_range(at, whole) { length } else { 0 };
        if keep < whole {
            // SAFETY: mapped above, not handed out.
            unsafe { syscalls::munmap(at + keep, whole - keep) };
        }
        (keep != 0).then_some(at as isize)
    };
    made().unwrap_or_else(|| refused(MemoryRole::Data))
}

/// Populates and promotes all whole blocks inside a range. Returns true if all are huge pages.
pub fn promote_range(start: usize, length: usize) -> bool {
    let pmd = settings().pmd;
    let (Some(first), last) = (round_up(start, pmd), round_down(start + length, pmd)) else {
        return false;
    };
    syscalls::advise(start, length, Advice::HugePage);
    first >= last || populate_and_promote(first, last - first)
}

/// Promotes each huge page that newly usable private memory fills or completes.
/// Returns false if a mandatory one failed.
pub fn committed(start: usize, length: usize) -> bool {
    let pmd = settings().pmd;
    let (block, end) = (round_down(start, pmd), start + length);
    syscalls::advise(start, length, Advice::HugePage);
    let mut at = block;
    while at < end {
        let first = at.max(start);
        // Populate one page, so that there is something to collapse. Other content of the block is
        // kept.
        syscalls::advise(first, settings().base, Advice::PopulateWrite);
        let result = collapse(at, pmd);
        let whole = at >= start && at + pmd <= end;
        // A partly covered block may have a hole or contain other mappings. It is then not complete
        // yet.
        let part = end.min(at + pmd) - at.max(start);
        if !syscalls::failed(result) {
            completed(pmd - part);
        } else if whole || is_private_memory(at, at + pmd) {
            match result {
                syscalls::EINVAL => report_base_kind(BasePageReason::Protected),
                _ => return false,
            }
        } else {
            incomplete(part);
        }
        at += pmd;
    }
    true
}

/// Bytes in incomplete parts of blocks.
static INCOMPLETE: AtomicUsize = AtomicUsize::new(0);

fn incomplete(part: usize) {
    /// Number of blocks that may be incomplete for now.
    const PAGES: usize = 8;
    let all = INCOMPLETE.fetch_add(part, Relaxed).saturating_add(part);
    if all >= PAGES * settings().pmd {
        report_base_kind(BasePageReason::Small);
    }
}

fn completed(others: usize) {
    let rest = |all: usize| Some(all.saturating_sub(others));
    let _ = INCOMPLETE.fetch_update(Relaxed, Relaxed, rest);
}

/// Handles a range that `mprotect` made writable. Returns false if it must not stay so.
pub fn usable(start: usize, length: usize) -> bool {
    let settings = settings();
    if !settings.data.mandatory || length == 0 || !is_private_memory(start, start + length) {
        return true;
    }
    if !settings.data.thp {
        let large = length >= settings.data.pools[0] / 2;
        if !large {
            small(length);
        }
        return !large;
    }
    committed(start, length)
}

/// Returns true if all of a range is writable private anonymous memory.
#[cold]
pub fn is_private_memory(start: usize, end: usize) -> bool {
    let mut at = start;
    promote_existing::own_maps(|line| {
        if let Some((from, to)) = private_memory(line)
            && from <= at
            && at < to
        {
            at = to;
        }
        at < end
    });
    at >= end
}
