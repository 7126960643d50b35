//! Calls of `mmap` and `mremap` with mandatory huge pages (`mandatory`).
//!
//! Memory requested at a fixed address is completed elsewhere and moved there whole, so that a
//! failure leaves the existing mapping.
//!
//! # Safety
//! Replaces and unmaps only what the program's own call replaces, or what was made for it and not
//! handed out.

#![allow(unsafe_code)]

use crate::mandatory::{
    BasePageReason, MemoryRole, committed, is_private_memory, promote_range, refused,
    report_base_kind, small,
};
use crate::placement::{collapse, map_congruent, move_over, reserve_as};
use crate::shared_memory;
use crate::state::{round_down, round_up, settings};
use crate::syscalls::{self, Advice, flag};
use crate::{private_memory, shm_segments};

const AT_ADDRESS: usize = flag::FIXED | flag::FIXED_NOREPLACE;
/// Flags with a one-time effect at mapping, replaced by other calls here.
const AT_ONCE: usize = flag::POPULATE | flag::LOCKED | flag::NONBLOCK;

#[derive(Clone, Copy)]
pub struct MmapCall {
    pub address: usize,
    /// Length in bytes.
    pub length: usize,
    /// `PROT_…`.
    pub protection: usize,
    /// `MAP_…`.
    pub flags: usize,
    /// A descriptor, or the value for none.
    pub file: usize,
    /// Offset in the file, in bytes.
    pub offset: usize,
}

/// Returns the answer to an `mmap` call for which huge pages are mandatory.
/// `None` for any other call.
#[inline(always)]
pub fn mapped(call: &MmapCall) -> Option<isize> {
    let settings = settings();
    if !settings.data.mandatory && !settings.shm.mandatory || call.flags & flag::HUGETLB != 0 {
        return None;
    }
    mapped_for(call)
}

#[cold]
fn mapped_for(call: &MmapCall) -> Option<isize> {
    let settings = settings();
    let private = call.flags & flag::TYPE == flag::PRIVATE;
    let anonymous = call.flags & flag::ANONYMOUS != 0 || syscalls::is_zero_device(call.file);
    match (private, anonymous) {
        (true, true) if settings.data.mandatory => private_kind(call),
        (false, true) if settings.shm.mandatory => shared_kind(call),
        (false, false) if settings.shm.mandatory && syscalls::is_tmpfs(call.file) => {
            file_kind(call)
        }
        _ => None,
    }
}

impl MmapCall {
    /// Makes the program's own call without some flags.
    fn own(&self, without: usize) -> isize {
        let MmapCall {
            address,
            length,
            protection,
            flags,
            file,
            offset,
        } = *self;
        // SAFETY: the program's own call.
        unsafe { syscalls::mmap_file(address, length, protection, flags & !without, file, offset) }
    }

    /// Returns true if at least one whole huge page fits inside.
    fn holds_a_page(&self) -> bool {
        let pmd = settings().pmd;
        let start = match self.flags & AT_ADDRESS {
            0 => 0,
            _ => self.address,
        };
        let end = start.saturating_add(self.length);
        let first_ends = round_up(start, pmd).and_then(|first| first.checked_add(pmd));
        pmd != 0 && first_ends.is_some_and(|to| to <= end)
    }
}

/// Handles writable private memory of any kind.
fn private_kind(call: &MmapCall) -> Option<isize> {
    let settings = settings();
    if call.flags & flag::STACK != 0 || call.protection & flag::WRITE == 0 {
        return None;
    }
    if call.flags & flag::GROWSDOWN != 0 {
        report_base_kind(BasePageReason::GrowsDown);
        return None;
    }
    if !settings.data.thp {
        if call.length >= settings.data.pools[0] / 2 {
            return Some(refused(MemoryRole::Data));
        }
        small(call.length);
        return None;
    }
    if call.holds_a_page() {
        return Some(private_pages(call));
    }
    // A part of the program's reservation, which may complete a block.
    let at = call.own(0);
    if syscalls::failed(at) || committed(at as usize, call.length) {
        return Some(at);
    }
    // The place belonged to the program and stays reserved: no other thread may get it.
    // SAFETY: mapped above, not handed out.
    unsafe { syscalls::mprotect(at as usize, call.length, 0) };
    Some(refused(MemoryRole::Data))
}

/// Maps private memory whose whole blocks are huge pages.
fn private_pages(call: &MmapCall) -> isize {
    let hint = call.flags & AT_ADDRESS == 0 && call.address != 0;
    if hint || call.flags & flag::FIXED_NOREPLACE != 0 {
        let at = call.own(AT_ONCE);
        if syscalls::failed(at) || !hint || at as usize == call.address {
            return if syscalls::failed(at) {
                at
            } else {
                settled(at as usize, call)
            };
        }
        // The hint was not followed, so choose an address that fits huge pages.
        // SAFETY: mapped above, not handed out.
        unsafe { syscalls::munmap(at as usize, call.length) };
    }
    let fixed = call.flags & flag::FIXED != 0;
    if fixed && call.address & (settings().base - 1) != 0 {
        return syscalls::EINVAL;
    }
    let at = fresh(call, if fixed { call.address } else { 0 });
    match fixed && !syscalls::failed(at) {
        true => move_over(at as usize, call.length, call.address, settings().base),
        false => at,
    }
}

/// Maps private memory on huge pages, at an address congruent to `wish`.
fn fresh(call: &MmapCall, wish: usize) -> isize {
    let more = call.flags & (flag::NORESERVE | flag::LOW);
    let Some(room) = reserve_as(call.length, wish, settings().pmd, 0, more) else {
        return refused(MemoryRole::Data);
    };
    match room.open(call.length, call.protection) {
        Ok(at) => settled(at, call),
        Err(error) => error,
    }
}

/// Promotes a new mapping, and locks it if requested. On failure it is unmapped.
fn settled(at: usize, call: &MmapCall) -> isize {
    let error = match promote_range(at, call.length) {
        false => refused(MemoryRole::Data),
        true if call.flags & flag::LOCKED != 0 => lock(at, call.length),
        true => 0,
    };
    if error == 0 {
        return at as isize;
    }
    // SAFETY: the caller's new mapping, not handed out.
    unsafe { syscalls::munmap(at, call.length) };
    error
}

/// Returns 0, or the error of `mmap` with `MAP_LOCKED` above the limit.
fn lock(at: usize, length: usize) -> isize {
    const EPERM: isize = -1;
    const EAGAIN: isize = -11;
    match syscalls::mlock(at, length) {
        0 => 0,
        EPERM => EPERM,
        _ => EAGAIN,
    }
}

/// Grows private memory for `mremap` by copying it to a new mapping on huge pages.
/// `None` for other memory or another kind of call.
pub fn grow(
    old: usize,
    old_length: usize,
    length: usize,
    flags: usize,
    to: usize,
) -> Option<isize> {
    let (how, base) = (flag::MAYMOVE | flag::MREMAP_FIXED, settings().base);
    let (old_length, length) = (round_up(old_length, base)?, round_up(length, base)?);
    let end = old.checked_add(old_length)?;
    if old_length == 0 || flags & !how != 0 || !is_private_memory(old, end) {
        return None;
    }
    if flags & flag::MAYMOVE == 0 {
        return Some(refused(MemoryRole::Data));
    }
    let fixed = flags & flag::MREMAP_FIXED != 0;
    let at = match fixed {
        false => private_memory::map(length, || syscalls::ENOMEM),
        true => {
            let call = MmapCall {
                address: 0,
                length,
                protection: flag::MEMORY,
                flags: flag::PRIVATE | flag::ANONYMOUS,
                file: usize::MAX,
                offset: 0,
            };
            fresh(&call, to)
        }
    };
    if syscalls::failed(at) {
        return Some(at);
    }
    let at = at as usize;
    // SAFETY: the old range is readable, as checked above, and the program gives it up. The new mapping is
    // at least as long, and no other code knows it.
    unsafe { core::ptr::copy_nonoverlapping(old as *const u8, at as *mut u8, old_length) };
    let at = if fixed {
        move_over(at, length, to, base)
    } else {
        at as isize
    };
    if !syscalls::failed(at) {
        // SAFETY: the program gives up this range.
        unsafe { syscalls::munmap(old, old_length) };
    }
    Some(at)
}

/// Handles shared anonymous memory that is mapped in an unusual way.
fn shared_kind(call: &MmapCall) -> Option<isize> {
    let plain = flag::SHARED | flag::ANONYMOUS;
    let usual = call.flags & !flag::NORESERVE == plain && call.protection == flag::MEMORY;
    if call.length < settings().shm_after || usual && call.address == 0 {
        return None;
    }
    let made = match call.address {
        0 => match shared_memory::anonymous(call.length) {
            Ok(Some(at)) => Some((at, settings().base)),
            _ => None,
        },
        address => shared_memory::anonymous_for(call.length, address),
    };
    let Some((at, page)) = made else {
        return Some(refused(MemoryRole::Shm));
    };
    let length = shm_segments::mapped(at).unwrap_or(call.length);
    Some(placed((at, page), length, call))
}

/// Handles a file in memory: a memfd, or a file in `/dev/shm`.
fn file_kind(call: &MmapCall) -> Option<isize> {
    let settings = settings();
    if settings.pmd == 0 || call.length < settings.pmd {
        return None;
    }
    let congruent = call.address.wrapping_sub(call.offset) & (settings.pmd - 1) == 0;
    let at_address = call.flags & AT_ADDRESS != 0;
    if !settings.shm.thp || at_address && !congruent {
        return Some(refused(MemoryRole::Shm));
    }
    let call = &MmapCall {
        // A hint that does not fit huge pages is ignored.
        address: if congruent { call.address } else { 0 },
        ..*call
    };
    Some(file_pages(call))
}

fn file_pages(call: &MmapCall) -> isize {
    let flags = call.flags & !(AT_ONCE | AT_ADDRESS);
    let from = (call.file, call.offset);
    let at = map_congruent(call.length, call.offset, call.protection, flags, from);
    if syscalls::failed(at) {
        return at;
    }
    let at = at as usize;
    let size = syscalls::file_size(call.file).unwrap_or(0);
    let inside = size.saturating_sub(call.offset).min(call.length);
    if inside < call.length {
        report_base_kind(BasePageReason::ShortFile);
    }
    if settle_file(at, inside, call.protection) {
        return placed((at, settings().base), call.length, call);
    }
    // SAFETY: mapped above, not handed out.
    unsafe { syscalls::munmap(at, call.length) };
    refused(MemoryRole::Shm)
}

fn settle_file(at: usize, length: usize, protection: usize) -> bool {
    if protection & flag::WRITE != 0 {
        return promote_range(at, length);
    }
    // Read-only: existing pages, or a hole.
    let (base, pmd) = (settings().base, settings().pmd);
    let (Some(mut block), end) = (round_up(at, pmd), round_down(at + length, pmd)) else {
        return false;
    };
    while block < end {
        syscalls::advise(block, base, Advice::PopulateRead);
        if protection & flag::READ != 0 && syscalls::failed(collapse(block, pmd)) {
            return false;
        }
        block += pmd;
    }
    true
}

/// Applies rights, lock and address of a call to its new shared memory, whose pages have the size
/// `page`.
fn placed((at, page): (usize, usize), length: usize, call: &MmapCall) -> isize {
    let mut error = 0;
    if call.protection != flag::MEMORY && call.flags & flag::ANONYMOUS != 0 {
        // SAFETY: made for this call, not handed out.
        error = unsafe { syscalls::mprotect(at, length, call.protection) };
    }
    if error == 0 && call.flags & flag::LOCKED != 0 {
        error = lock(at, length);
    }
    if error == 0 && call.address != 0 && call.flags & flag::FIXED == 0 {
        let flags = flag::PRIVATE | flag::ANONYMOUS | flag::NORESERVE | flag::FIXED_NOREPLACE;
        // SAFETY: replaces nothing.
        let place = unsafe { syscalls::mmap(call.address, length, 0, flags) };
        if syscalls::failed(place) && call.flags & flag::FIXED_NOREPLACE == 0 {
            return at as isize; // It was a hint.
        }
        error = if syscalls::failed(place) { place } else { 0 };
    }
    if syscalls::failed(error) {
        // SAFETY: as above.
        unsafe { syscalls::munmap(at, length) };
        return error;
    }
    match call.address {
        0 => at as isize,
        address => move_over(at, length, address, page),
    }
}
