//! Decides when private memory is placed on huge pages.
//!
//! A small process is left alone: a partly used huge page would be a large share of its memory, and
//! starting it must cost nothing. The program's requests are summed, and its real size is read only
//! after every few megabytes (`/proc/self/statm`). Once the process holds `data_after`, new memory
//! gets huge pages and existing memory is promoted (`promote_existing`), some blocks per check as the process
//! grows. Without requests there are no checks: there is no thread, no timer and no signal.

use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use crate::density::{self, HugePageDecision};
use crate::promote_existing;
use crate::settings::number;
use crate::state::{GROWING, RESIDENT, growing, is_inactive, libc_break, settings};
use crate::syscalls;

/// Bytes requested since the last check.
static SINCE: AtomicUsize = AtomicUsize::new(0);
/// Reserved bytes made usable since then.
static COMMITTED: AtomicUsize = AtomicUsize::new(0);
/// Bytes to be requested before the next check.
static NEXT: AtomicUsize = AtomicUsize::new(0);
/// Resident bytes at the last sweep. Zero during a sweep.
static SWEPT: AtomicUsize = AtomicUsize::new(0);
/// True if memory that was handed out was also used.
/// False for a program that maps and unmaps without growing, for which windows would be waste.
static USED: AtomicBool = AtomicBool::new(true);
/// True if a completely used kind got base pages since the last check, because too many bytes were
/// unchecked. It triggers a check of a program that remaps memory without growing.
static CHECK_DUE: AtomicBool = AtomicBool::new(false);

/// Maximum bytes between two checks, for any program.
const RAREST: usize = 1 << 30;
/// Maximum bytes between two checks of a program that grows, but by a small part of its requests.
const OFTEN: usize = 64 << 20;

pub fn start() {
    let settings = settings();
    NEXT.store(first_look(settings.data_after, 0), Relaxed);
    let at_once = settings.data_after <= settings.pmd || settings.data.mandatory;
    if settings.data.wanted() && at_once {
        GROWING.store(true, Relaxed);
        NEXT.store(8 * settings.pmd, Relaxed);
    }
}

pub fn windows() -> bool {
    growing() && (USED.load(Relaxed) || settings().data.mandatory)
}

#[inline(always)]
pub fn note(bytes: usize) {
    look_after(SINCE.fetch_add(bytes, Relaxed).saturating_add(bytes));
}

#[inline(always)]
fn look_after(since: usize) {
    if since >= NEXT.load(Relaxed) && settings().data.thp && !is_inactive() {
        check();
    }
}

/// Records that the program made reserved memory usable. Some do so repeatedly with the same memory,
/// so it affects only the time of the next check, not the bytes requested.
pub fn note_commit(bytes: usize) {
    let since = COMMITTED.fetch_add(bytes, Relaxed).saturating_add(bytes);
    look_after(since.saturating_add(SINCE.load(Relaxed)));
}

/// Returns true if the next `length` bytes of a kind get huge pages from the first touch.
/// Call it after `note`. Runs a check if only that is missing.
pub fn use_huge(kind: usize, length: usize) -> bool {
    let judgement = density::judgement(kind, length);
    if judgement != HugePageDecision::NeedsCheck {
        return judgement == HugePageDecision::Huge;
    }
    CHECK_DUE.store(true, Relaxed);
    // A check takes as long as the first touch of a few hundred base pages.
    if SINCE.load(Relaxed) < 2 * settings().pmd {
        return false;
    }
    check();
    density::judgement(kind, length) == HugePageDecision::Huge
}

#[cold]
fn check() {
    let asked = SINCE.swap(0, Relaxed);
    let all = asked.saturating_add(COMMITTED.swap(0, Relaxed));
    density::watch();
    let Some(resident) = resident() else {
        NEXT.store(RAREST, Relaxed);
        return;
    };
    let before = RESIDENT.swap(resident, Relaxed);
    let gained = resident.saturating_sub(before);
    let settings = settings();
    let later = NEXT.load(Relaxed).saturating_mul(2);
    if growing() || resident >= settings.data_after {
        let first = !GROWING.swap(true, Relaxed);
        let used = first || gained >= asked / 4;
        let grew = CHECK_DUE.swap(false, Relaxed) || first || gained > all / 64;
        USED.store(used, Relaxed);
        let soon = density::credit() / 5;
        let next = match used {
            _ if !grew => later.min(RAREST),
            true => soon,
            // It still grows, and may use more of the next memory.
            false => later.min(soon.max(OFTEN)),
        };
        NEXT.store(next, Relaxed);
        if grew {
            density::check_samples(libc_break());
            go_on_sweeping(resident, all);
        }
    } else {
        let next = match gained >= asked / 8 {
            true => first_look(settings.data_after, resident),
            false => later.min(RAREST),
        };
        NEXT.store(next, Relaxed);
    }
}

/// Promotes existing memory if the last sweep is incomplete or the process has grown since.
fn go_on_sweeping(resident: usize, asked: usize) {
    let swept = SWEPT.load(Relaxed);
    let more = swept / promote_existing::every();
    if swept == 0 || resident > swept.saturating_add(more) {
        let done = promote_existing::step(asked);
        SWEPT.store(if done { resident } else { 0 }, Relaxed);
        if !done {
            NEXT.store((8 * settings().pmd).min(NEXT.load(Relaxed)), Relaxed);
        }
    }
}

/// Returns half of the missing bytes, at least four huge pages.
fn first_look(after: usize, resident: usize) -> usize {
    let missing = after.saturating_sub(resident);
    (missing / 2).max(4 * settings().pmd)
}

/// Returns this process's resident bytes that belong to no file, from `/proc/self/statm`: resident
/// pages minus shared ones.
fn resident() -> Option<usize> {
    let mut text = [0_u8; 128];
    let text = syscalls::read_file(b"/proc/self/statm\0", &mut text)?;
    let mut fields = text.split(|byte| *byte == b' ').skip(1).map(number);
    let (resident, shared) = (fields.next()??, fields.next()??);
    resident.saturating_sub(shared).checked_mul(settings().base)
}
