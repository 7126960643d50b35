//! Where larger pages are mandatory (`--data 2M!`): each kind of memory is on them, or the program's
//! call fails with ENOMEM, or it is said that this kind is not. Never nothing of the three. The
//! table of kinds is in `docs/guide/run.md`; `run_compat` holds it against programs.
//!
//! # Safety
//!
//! Returns only what was made here and not handed out.

#![allow(unsafe_code)]

use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use crate::calls::{self, Advice, flag};
use crate::maps::private_memory;
use crate::room::{collapse, on_huge_pages, reserve};
use crate::state::{down, settings, up};
use crate::{say, sweep};

/// A kind of memory that stays on base pages, to be said once.
#[derive(Clone, Copy)]
pub enum Kind {
    /// `MAP_GROWSDOWN`.
    GrowsDown = 0,
    /// Less than a large page each, and together more than one.
    Small = 1,
    ShortFile = 2,
    /// Made usable by `mprotect`, and the kernel has no huge pages for it.
    Protected = 3,
    /// A segment of System V at an address that huge pages do not fit.
    Misaligned = 4,
    Filtered = 5,
    FirstStack = 6,
}

static SAID: AtomicUsize = AtomicUsize::new(0);

pub fn stays(kind: Kind) {
    let bit = 1 << kind as usize;
    if SAID.fetch_or(bit, Relaxed) & bit != 0 {
        return;
    }
    let what: &[u8] = match kind {
        Kind::GrowsDown => b"memory mapped with MAP_GROWSDOWN",
        Kind::Small => b"what is mapped in ranges smaller than a large page",
        Kind::ShortFile => b"the part of a file in memory that was mapped before it had its length",
        Kind::Protected => b"memory that mprotect made usable where no huge page fits",
        Kind::Misaligned => b"a segment attached at an address that no huge page fits",
        Kind::Filtered => b"what comes after the program's own filter of system calls",
        Kind::FirstStack => b"what the first thread's stack grows into",
    };
    say::line(&[
        what,
        b" stays on base pages, although larger ones are mandatory",
    ]);
}

/// What memory is for, as the flags of `run` call it.
#[derive(Clone, Copy)]
pub enum Role {
    Data = 8,
    Shm = 9,
    Stack = 10,
}

/// ENOMEM; said once a role where that is because larger pages are mandatory.
pub fn refused(role: Role) -> isize {
    let settings = settings();
    let (name, rungs): (&[u8], _) = match role {
        Role::Data => (b"--data", &settings.data),
        Role::Shm => (b"--shm", &settings.shm),
        Role::Stack => (b"--stack", &settings.stack),
    };
    let bit = 1 << role as usize;
    if rungs.mandatory && SAID.fetch_or(bit, Relaxed) & bit == 0 {
        say::line(&[
            name,
            b": larger pages are mandatory (!), and there is none for what was asked for (ENOMEM); \
            hugeleaf status shows what is free",
        ]);
    }
    calls::ENOMEM
}

pub fn small(length: usize) {
    static TOTAL: AtomicUsize = AtomicUsize::new(0);
    let total = TOTAL.fetch_add(length, Relaxed).saturating_add(length);
    if total >= settings().pmd.max(settings().data.pools[0]) {
        stays(Kind::Small);
    }
}

/// Private memory as allocators ask for it, where the window has none: on huge pages of its own.
pub fn plain(length: usize) -> isize {
    let made = || {
        let whole = up(length, settings().pmd)?;
        let at = reserve(whole, 0)?.open(whole, flag::MEMORY).ok()?;
        let keep = if settle(at, whole) { length } else { 0 };
        if keep < whole {
            // SAFETY: mapped above, not handed out.
            unsafe { calls::munmap(at + keep, whole - keep) };
        }
        (keep != 0).then_some(at as isize)
    };
    made().unwrap_or_else(|| refused(Role::Data))
}

/// Puts all whole huge pages inside a range on huge pages, populated; whether all are.
pub fn settle(start: usize, length: usize) -> bool {
    let pmd = settings().pmd;
    let (Some(first), last) = (up(start, pmd), down(start + length, pmd)) else {
        return false;
    };
    calls::advise(start, length, Advice::HugePage);
    first >= last || on_huge_pages(first, last - first)
}

/// After private memory in `[start, start + length)` became usable: every huge page that it fills is
/// put on one, and those that it completes. Whether that was possible where it had to be.
pub fn committed(start: usize, length: usize) -> bool {
    let pmd = settings().pmd;
    let (block, end) = (down(start, pmd), start + length);
    calls::advise(start, length, Advice::HugePage);
    let mut at = block;
    while at < end {
        let first = at.max(start);
        // One page, so that there is something to move; what else the page holds is kept.
        calls::advise(first, settings().base, Advice::PopulateWrite);
        let result = collapse(at, pmd);
        let whole = at >= start && at + pmd <= end;
        // A page that this range is a part of may have a hole, or be another's too: then it is not
        // complete yet.
        let part = end.min(at + pmd) - at.max(start);
        if !calls::failed(result) {
            completed(pmd - part);
        } else if whole || is_private_memory(at, at + pmd) {
            match result {
                calls::EINVAL => stays(Kind::Protected),
                _ => return false,
            }
        } else {
            incomplete(part);
        }
        at += pmd;
    }
    true
}

/// Bytes in parts of large pages that are not complete.
static INCOMPLETE: AtomicUsize = AtomicUsize::new(0);

fn incomplete(part: usize) {
    /// As many pages' worth may be on their way.
    const PAGES: usize = 8;
    let all = INCOMPLETE.fetch_add(part, Relaxed).saturating_add(part);
    if all >= PAGES * settings().pmd {
        stays(Kind::Small);
    }
}

fn completed(others: usize) {
    let rest = |all: usize| Some(all.saturating_sub(others));
    let _ = INCOMPLETE.fetch_update(Relaxed, Relaxed, rest);
}

/// After `mprotect` made a range writable: whether it may stay so.
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

/// Whether a range is private anonymous memory that can be written, all of it.
#[cold]
pub fn is_private_memory(start: usize, end: usize) -> bool {
    let mut at = start;
    sweep::own_maps(|line| {
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
