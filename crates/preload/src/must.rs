//! Where larger pages are mandatory (`--data 2M!`): each kind of memory is on them, or the program's
//! call fails with ENOMEM, or it is said that this kind is not. Never nothing of the three. The
//! table of kinds is in `docs/guide/run.md`; `run_compat` holds it against programs.
//!
//! What is asked for at an address of the program's own is made elsewhere and moved there whole,
//! so that a refusal leaves what the program has there.
//!
//! # Safety
//!
//! Replaces and returns only what the program's own call replaces, or what was made for it and
//! not handed out.

#![allow(unsafe_code)]

use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use crate::calls::{self, Advice, flag};
use crate::maps::private_memory;
use crate::room::{collapse, move_over, reserve_as};
use crate::shared::{self, Answer};
use crate::state::{down, settings, up};
use crate::{hooks, pieces, say, sweep, window};

const MEMORY: usize = flag::READ | flag::WRITE;
const AT_ADDRESS: usize = flag::FIXED | flag::FIXED_NOREPLACE;
/// What is done once when memory is mapped, and is done here by other calls.
const AT_ONCE: usize = flag::POPULATE | flag::LOCKED | flag::NONBLOCK;

/// A call of `mmap`, as the program made it.
#[derive(Clone, Copy)]
pub struct Call {
    /// Where: asked for, wished for, or zero.
    pub address: usize,
    /// In bytes.
    pub length: usize,
    /// `PROT_…`.
    pub protection: usize,
    /// `MAP_…`.
    pub flags: usize,
    /// A descriptor, or what stands for none.
    pub file: usize,
    /// In bytes, in the file.
    pub offset: usize,
}

/// A kind of memory that stays on base pages, to be said once.
#[derive(Clone, Copy)]
pub enum Kind {
    /// `MAP_GROWSDOWN`.
    GrowsDown = 0,
    /// Less than a large page each, and together more than one.
    Small = 1,
    /// A file that is shorter than its mapping.
    ShortFile = 2,
    /// Made usable by `mprotect`, and the kernel has no huge pages for it.
    Protected = 3,
    /// A segment of System V at an address that huge pages do not fit.
    Misaligned = 4,
    /// The program filters its system calls.
    Filtered = 5,
    /// The first thread's stack.
    FirstStack = 6,
}

static SAID: AtomicUsize = AtomicUsize::new(0);

/// Says that a kind stays on base pages, once a kind.
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
    /// Private memory.
    Data = 8,
    /// Shared memory.
    Shm = 9,
    /// Stacks of threads.
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

/// The answer to a call of `mmap` where larger pages are mandatory for what it asks for; `None`: it
/// is as any other.
#[inline(always)]
pub fn mapped(call: &Call) -> Option<isize> {
    let settings = settings();
    if !settings.data.mandatory && !settings.shm.mandatory || call.flags & flag::HUGETLB != 0 {
        return None;
    }
    mapped_for(call)
}

#[cold]
fn mapped_for(call: &Call) -> Option<isize> {
    let settings = settings();
    let private = call.flags & flag::TYPE == flag::PRIVATE;
    let anonymous = call.flags & flag::ANONYMOUS != 0 || calls::is_zero_device(call.file);
    match (private, anonymous) {
        (true, true) if settings.data.mandatory => private_kind(call),
        (false, true) if settings.shm.mandatory => shared_kind(call),
        (false, false) if settings.shm.mandatory && calls::is_tmpfs(call.file) => file_kind(call),
        _ => None,
    }
}

impl Call {
    /// The program's own call, less what is done here.
    fn own(&self, without: usize) -> isize {
        let Call {
            address,
            length,
            protection,
            flags,
            file,
            offset,
        } = *self;
        // SAFETY: the program's own call.
        unsafe { calls::mmap_file(address, length, protection, flags & !without, file, offset) }
    }

    /// Whether at least one huge page lies wholly inside.
    fn holds_a_page(&self) -> bool {
        let pmd = settings().pmd;
        let first = match self.flags & AT_ADDRESS != 0 {
            true => up(self.address, pmd),
            false => Some(0),
        };
        let start = if self.flags & AT_ADDRESS != 0 {
            self.address
        } else {
            0
        };
        let end = start.saturating_add(self.length);
        pmd != 0
            && first
                .and_then(|first| first.checked_add(pmd))
                .is_some_and(|to| to <= end)
    }
}

/// Private memory that is writable at once, of whatever kind.
fn private_kind(call: &Call) -> Option<isize> {
    let settings = settings();
    if call.flags & flag::STACK != 0 || call.protection & flag::WRITE == 0 {
        return None;
    }
    if call.flags & flag::GROWSDOWN != 0 {
        stays(Kind::GrowsDown);
        return None;
    }
    if !settings.data.thp {
        if call.length >= settings.data.pools[0] / 2 {
            return Some(refused(Role::Data));
        }
        small(call.length);
        return None;
    }
    if call.holds_a_page() {
        return Some(private_pages(call));
    }
    // A part of what the program reserved: it may complete a page.
    let at = call.own(0);
    if calls::failed(at) || committed(at as usize, call.length) {
        return Some(at);
    }
    // Its place was the program's and stays so: no other may get it.
    // SAFETY: mapped above, not handed out.
    unsafe { calls::mprotect(at as usize, call.length, 0) };
    Some(refused(Role::Data))
}

/// Takes note of private memory that no larger page can hold.
pub fn small(length: usize) {
    static TOTAL: AtomicUsize = AtomicUsize::new(0);
    let total = TOTAL.fetch_add(length, Relaxed).saturating_add(length);
    if total >= settings().pmd.max(settings().data.pools[0]) {
        stays(Kind::Small);
    }
}

/// Private memory on huge pages: the whole ones inside it.
fn private_pages(call: &Call) -> isize {
    let hint = call.flags & AT_ADDRESS == 0 && call.address != 0;
    if hint || call.flags & flag::FIXED_NOREPLACE != 0 {
        let at = call.own(AT_ONCE);
        if calls::failed(at) || !hint || at as usize == call.address {
            return if calls::failed(at) {
                at
            } else {
                settled(at as usize, call)
            };
        }
        // Not where it was wished for: then where huge pages fit.
        // SAFETY: mapped above, not handed out.
        unsafe { calls::munmap(at as usize, call.length) };
    }
    let fixed = call.flags & flag::FIXED != 0;
    if fixed && call.address & (settings().base - 1) != 0 {
        return calls::EINVAL;
    }
    let at = fresh(call, if fixed { call.address } else { 0 });
    match fixed && !calls::failed(at) {
        true => move_over(at as usize, call.length, call.address),
        false => at,
    }
}

/// A new mapping of private memory on huge pages, congruent to an address.
fn fresh(call: &Call, wish: usize) -> isize {
    let more = call.flags & (flag::NORESERVE | flag::LOW);
    let Some(room) = reserve_as(call.length, wish, settings().pmd, 0, more) else {
        return refused(Role::Data);
    };
    let at = room.open(call.length, call.protection);
    if calls::failed(at) {
        return at;
    }
    settled(at as usize, call)
}

/// A mapping of a new call's, not handed out: it is settled on huge pages, and locked where that was
/// asked for, or it goes.
fn settled(at: usize, call: &Call) -> isize {
    let error = match settle(at, call.length) {
        false => refused(Role::Data),
        true if call.flags & flag::LOCKED != 0 => lock(at, call.length),
        true => 0,
    };
    if error == 0 {
        return at as isize;
    }
    // SAFETY: the caller's new mapping, not handed out.
    unsafe { calls::munmap(at, call.length) };
    error
}

/// 0, or what `mmap` with `MAP_LOCKED` answers where the limit is too low.
fn lock(at: usize, length: usize) -> isize {
    const EPERM: isize = -1;
    const EAGAIN: isize = -11;
    match calls::mlock(at, length) {
        0 => 0,
        EPERM => EPERM,
        _ => EAGAIN,
    }
}

/// Private memory as allocators ask for it, where the window has none: on huge pages of its own.
pub fn plain(length: usize) -> isize {
    let made = || {
        let whole = up(length, settings().pmd)?;
        let at = crate::room::reserve(whole, 0)?.open(whole, MEMORY);
        if calls::failed(at) {
            return None;
        }
        let at = at as usize;
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
    calls::advise_pages(start, length);
    first >= last || window::on_huge_pages(first, last - first)
}

/// After private memory in `[start, start + length)` became usable: every huge page that it fills is
/// put on one, and those that it completes. Whether that was possible where it had to be.
pub fn committed(start: usize, length: usize) -> bool {
    let pmd = settings().pmd;
    let (block, end) = (down(start, pmd), start + length);
    calls::advise_pages(start, length);
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
fn is_private_memory(start: usize, end: usize) -> bool {
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

/// `mremap` that makes private memory longer: a new mapping on larger pages, with the content of the
/// old one. `None`: it is not private memory, or the call is another one.
pub fn grow(
    old: usize,
    old_length: usize,
    length: usize,
    flags: usize,
    to: usize,
) -> Option<isize> {
    let (how, base) = (flag::MAYMOVE | flag::MREMAP_FIXED, settings().base);
    let (old_length, length) = (up(old_length, base)?, up(length, base)?);
    let end = old.checked_add(old_length)?;
    if old_length == 0 || flags & !how != 0 || !is_private_memory(old, end) {
        return None;
    }
    if flags & flag::MAYMOVE == 0 {
        return Some(refused(Role::Data));
    }
    let fixed = flags & flag::MREMAP_FIXED != 0;
    let at = match fixed {
        false => hooks::private(length, || calls::ENOMEM),
        true => {
            let call = Call {
                address: 0,
                length,
                protection: MEMORY,
                flags: flag::PRIVATE | flag::ANONYMOUS,
                file: usize::MAX,
                offset: 0,
            };
            fresh(&call, to)
        }
    };
    if calls::failed(at) {
        return Some(at);
    }
    let at = at as usize;
    // SAFETY: readable, as was seen above, and gone to by the program's own call; the new mapping is
    // at least as long and nobody knows of it.
    unsafe { core::ptr::copy_nonoverlapping(old as *const u8, at as *mut u8, old_length) };
    let at = if fixed {
        move_over(at, length, to)
    } else {
        at as isize
    };
    if !calls::failed(at) {
        // SAFETY: what the program gives up.
        unsafe { calls::munmap(old, old_length) };
    }
    Some(at)
}

/// Shared anonymous memory in a way that is not the usual one.
fn shared_kind(call: &Call) -> Option<isize> {
    let plain = flag::SHARED | flag::ANONYMOUS;
    let usual = call.flags & !flag::NORESERVE == plain && call.protection == MEMORY;
    if call.length < settings().shm_after || usual && call.address == 0 {
        return None;
    }
    let made = match call.address {
        0 => match shared::anonymous(call.length) {
            Answer::At(at) => Some(at),
            Answer::Pass | Answer::Fail(_) => None,
        },
        address => shared::anonymous_for(call.length, address),
    };
    let Some(at) = made else {
        return Some(refused(Role::Shm));
    };
    Some(placed(at, pieces::mapped(at).unwrap_or(call.length), call))
}

/// A file in memory: a memfd, a file in `/dev/shm`.
fn file_kind(call: &Call) -> Option<isize> {
    let settings = settings();
    if settings.pmd == 0 || call.length < settings.pmd {
        return None;
    }
    let congruent = call.address.wrapping_sub(call.offset) & (settings.pmd - 1) == 0;
    let at_address = call.flags & AT_ADDRESS != 0;
    if !settings.shm.thp || at_address && !congruent {
        return Some(refused(Role::Shm));
    }
    let call = &Call {
        // A wish that huge pages do not fit is not followed.
        address: if congruent { call.address } else { 0 },
        ..*call
    };
    Some(file_pages(call))
}

fn file_pages(call: &Call) -> isize {
    let flags = call.flags & !(AT_ONCE | AT_ADDRESS);
    let from = (call.file, call.offset);
    let at = crate::room::put(call.length, call.offset, call.protection, flags, from);
    if calls::failed(at) {
        return at;
    }
    let at = at as usize;
    let size = calls::file_size(call.file).unwrap_or(0);
    let inside = size.saturating_sub(call.offset).min(call.length);
    if inside < call.length {
        stays(Kind::ShortFile);
    }
    if settle_file(at, inside, call.protection) {
        return placed(at, call.length, call);
    }
    // SAFETY: mapped above, not handed out.
    unsafe { calls::munmap(at, call.length) };
    refused(Role::Shm)
}

fn settle_file(at: usize, length: usize, protection: usize) -> bool {
    if protection & flag::WRITE != 0 {
        return settle(at, length);
    }
    // Without the right to write: what is there already, or is a hole.
    let (base, pmd) = (settings().base, settings().pmd);
    let (Some(mut block), end) = (up(at, pmd), down(at + length, pmd)) else {
        return false;
    };
    while block < end {
        calls::advise(block, base, Advice::PopulateRead);
        if protection & flag::READ != 0 && calls::failed(collapse(block, pmd)) {
            return false;
        }
        block += pmd;
    }
    true
}

/// Shared memory that was made for a call: its rights, its lock, and its address.
fn placed(at: usize, length: usize, call: &Call) -> isize {
    let mut error = 0;
    if call.protection != MEMORY && call.flags & flag::ANONYMOUS != 0 {
        // SAFETY: made for this call, not handed out.
        error = unsafe { calls::mprotect(at, length, call.protection) };
    }
    if error == 0 && call.flags & flag::LOCKED != 0 {
        error = lock(at, length);
    }
    if error == 0 && call.address != 0 && call.flags & flag::FIXED == 0 {
        let flags = flag::PRIVATE | flag::ANONYMOUS | flag::NORESERVE | flag::FIXED_NOREPLACE;
        // SAFETY: replaces nothing.
        let place = unsafe { calls::mmap(call.address, length, 0, flags) };
        if calls::failed(place) && call.flags & flag::FIXED_NOREPLACE == 0 {
            return at as isize; // It was a wish.
        }
        error = if calls::failed(place) { place } else { 0 };
    }
    if calls::failed(error) {
        // SAFETY: as above.
        unsafe { calls::munmap(at, length) };
        return error;
    }
    match call.address {
        0 => at as isize,
        address => move_over(at, length, address),
    }
}
