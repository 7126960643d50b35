//! When private memory goes onto larger pages.
//!
//! A process that holds little is left alone: a huge page that is partly used would be much of
//! its memory, and starting it must cost nothing. So what the program asks for is added up, and
//! only after every few megabytes of it the truth is looked up (`/proc/self/statm`). Once the
//! process holds `data_after`, larger pages are handed out for what comes, and what is there is
//! moved (`sweep`), some blocks a look, as it goes on growing. Nothing is looked at while nothing is
//! asked for: there is no thread, no timer and no signal.

use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use crate::calls;
use crate::judge::{self, Judgement};
use crate::settings::number;
use crate::state::{GROWING, RESIDENT, growing, libc_break, settings, stood_aside};
use crate::sweep;

/// Bytes asked for since the last look.
static SINCE: AtomicUsize = AtomicUsize::new(0);
/// Bytes made usable since then that were reserved before.
static COMMITTED: AtomicUsize = AtomicUsize::new(0);
/// Bytes to be asked for until the next one.
static NEXT: AtomicUsize = AtomicUsize::new(0);
/// Resident bytes at the last sweep; zero while one is under way.
static SWEPT: AtomicUsize = AtomicUsize::new(0);
/// Whether memory that was handed out was also used: not so in a program that maps and unmaps
/// without growing, for which windows would be waste.
static USED: AtomicBool = AtomicBool::new(true);
/// Whether something that is used as a whole got small pages since the last look, because too
/// much was not looked at yet: a program that no longer grows, and maps anew what it unmapped, is
/// to be looked at all the same.
static SHORT: AtomicBool = AtomicBool::new(false);

/// However rarely memory is used, a look is taken after this much of it.
const RAREST: usize = 1 << 30;
/// And after this much in a program that grows, but by a small part of what it asks for.
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

/// Whether a mapping of that length is worth a thought before the process has grown.
#[inline(always)]
pub fn watching(length: usize) -> bool {
    judge::is_watching() || length >= settings().data_after
}

#[inline(always)]
pub fn note(bytes: usize) {
    look_after(SINCE.fetch_add(bytes, Relaxed).saturating_add(bytes));
}

#[inline(always)]
fn look_after(since: usize) {
    if since >= NEXT.load(Relaxed) && settings().data.thp && !stood_aside() {
        look();
    }
}

/// Takes note that the program made memory usable that it had reserved. Some do so again and
/// again with the same memory, so it says when to look, and not how much was asked for.
pub fn note_commit(bytes: usize) {
    let since = COMMITTED.fetch_add(bytes, Relaxed).saturating_add(bytes);
    look_after(since.saturating_add(SINCE.load(Relaxed)));
}

/// Whether the next `length` bytes of a kind are to be on huge pages from their first touch on;
/// asked after `note`. Where only a look is missing, one is taken.
pub fn large(kind: usize, length: usize) -> bool {
    let judgement = judge::judgement(kind, length);
    if judgement != Judgement::Short {
        return judgement == Judgement::Large;
    }
    SHORT.store(true, Relaxed);
    // A look takes as long as the first touch of a few hundred small pages.
    if SINCE.load(Relaxed) < 2 * settings().pmd {
        return false;
    }
    look();
    judge::judgement(kind, length) == Judgement::Large
}

#[cold]
fn look() {
    let asked = SINCE.swap(0, Relaxed);
    let all = asked.saturating_add(COMMITTED.swap(0, Relaxed));
    judge::watch();
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
        let grew = SHORT.swap(false, Relaxed) || first || gained > all / 64;
        USED.store(used, Relaxed);
        let soon = judge::credit() / 5;
        let next = match used {
            _ if !grew => later.min(RAREST),
            true => soon,
            // It grows all the same, and may use more of what comes.
            false => later.min(soon.max(OFTEN)),
        };
        NEXT.store(next, Relaxed);
        if grew {
            judge::look(libc_break());
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

/// Moves what is there, where the last sweep is not done or the process has grown since.
fn go_on_sweeping(resident: usize, asked: usize) {
    let swept = SWEPT.load(Relaxed);
    let more = swept / sweep::every();
    if swept == 0 || resident > swept.saturating_add(more) {
        let done = sweep::step(asked);
        SWEPT.store(if done { resident } else { 0 }, Relaxed);
        if !done {
            NEXT.store((8 * settings().pmd).min(NEXT.load(Relaxed)), Relaxed);
        }
    }
}

/// Half of what is missing, but no more often than every fourth huge page.
fn first_look(after: usize, resident: usize) -> usize {
    let missing = after.saturating_sub(resident);
    (missing / 2).max(4 * settings().pmd)
}

/// Resident bytes of this process that belong to no file, from `/proc/self/statm`: resident
/// pages less shared ones.
fn resident() -> Option<usize> {
    let mut text = [0_u8; 128];
    let text = calls::read_file(b"/proc/self/statm\0", &mut text)?;
    let mut fields = text.split(|byte| *byte == b' ').skip(1).map(number);
    let (resident, shared) = (fields.next()??, fields.next()??);
    resident.saturating_sub(shared).checked_mul(settings().base)
}
