//! Reserved addresses, and safe placement of memory there.
//!
//! `mmap` with `MAP_FIXED` unmaps the old mapping before it allocates. An exhausted pool, unaccounted shared
//! memory, and before Linux 6.12 private memory too, then leave a gap, which another thread's next mapping
//! may take. So this module does not map over mappings. Room that is only a good address is unmapped and
//! mapped again with `MAP_FIXED_NOREPLACE`; another thread may take it in between. Private memory without
//! rights is made accessible in place. A mapping that must keep its place is replaced by one that is
//! completed elsewhere and moved by `mremap`, which needs only a few bytes in the kernel.
//! `docs/internals/kernel-notes.md` lists the experiments.
//!
//! # Safety
//! Maps only over room that it reserved, or at a place that the caller owns; unmaps only what it reserved and
//! nothing can have taken since.

#![allow(unsafe_code)]

use crate::state::{round_down, round_up, settings};
use crate::syscalls::{self, Advice, flag};

use crate::syscalls::flag::MEMORY;

/// Reserved addresses without memory. `at` has the requested alignment.
pub struct AddressReservation {
    pub at: usize,
    start: usize,
    end: usize,
}

/// Reserves room for `size` bytes at an address congruent to `offset` modulo the huge page.
pub fn reserve(size: usize, offset: usize) -> Option<AddressReservation> {
    reserve_as(size, offset, settings().pmd, 0, 0)
}

/// Reserves room with access rights, so that limits on memory count it like its replacement, and with more
/// flags of `mmap`.
pub fn reserve_as(
    size: usize,
    offset: usize,
    page: usize,
    rights: usize,
    flags: usize,
) -> Option<AddressReservation> {
    let whole = round_up(size, settings().base)?.checked_add(page)?;
    let start = syscalls::map_new(whole, rights, flag::PRIVATE | flags)?;
    let rest = round_down(offset, settings().base).wrapping_sub(start) & page.wrapping_sub(1);
    Some(AddressReservation {
        at: start + rest,
        start,
        end: start + whole,
    })
}

/// Maps `size` bytes at an address congruent to `wish` modulo the huge page.
/// Returns the address or `-errno`, `-EEXIST` if other threads were faster each time.
///
/// It is not moved there from elsewhere. If the old place shares a page table with a neighbour, an empty
/// table is moved too, and faults there do not give huge pages.
pub fn map_congruent(
    size: usize,
    wish: usize,
    rights: usize,
    flags: usize,
    (file, offset): (usize, usize),
) -> isize {
    const TRIES: usize = 64;
    for _ in 0..TRIES {
        let Some(room) = reserve(size, wish) else {
            return syscalls::ENOMEM;
        };
        room.drop_all();
        let flags = flags | flag::FIXED_NOREPLACE;
        // SAFETY: replaces nothing.
        let made = unsafe { syscalls::mmap_file(room.at, size, rights, flags, file, offset) };
        if made as usize == room.at {
            return made;
        }
        if !syscalls::failed(made) {
            // Old kernels treat the address as a hint.
            // SAFETY: mapped just now.
            unsafe { syscalls::munmap(made as usize, size) };
        } else if made != syscalls::EEXIST {
            return made;
        }
    }
    syscalls::EEXIST
}

impl AddressReservation {
    /// Gives access rights to `size` bytes of the room as private memory, and returns the address.
    ///
    /// # Errors
    /// `-errno`, and the room is released.
    pub fn open(&self, size: usize, rights: usize) -> Result<usize, isize> {
        // SAFETY: our own room, which no other code knows yet.
        let result = unsafe { syscalls::mprotect(self.at, size, rights) };
        if syscalls::failed(result) {
            self.drop_all();
            return Err(result);
        }
        self.trim(size);
        Ok(self.at)
    }

    /// Unmaps the rest of the room around the `size` bytes in use.
    pub fn trim(&self, size: usize) {
        let Some(used) = round_up(self.at + size, settings().base) else {
            return;
        };
        if self.at > self.start {
            // SAFETY: reserved above, nothing was put there.
            unsafe { syscalls::munmap(self.start, self.at - self.start) };
        }
        if self.end > used {
            // SAFETY: as above.
            unsafe { syscalls::munmap(used, self.end - used) };
        }
    }

    /// Unmaps all of it. Nothing may have been moved into it.
    pub fn drop_all(&self) {
        // SAFETY: reserved above, nothing was put there.
        unsafe { syscalls::munmap(self.start, self.end - self.start) };
    }

    /// Unmaps the part that is certainly ours, after a failed move of `size` bytes.
    /// Depending on kernel and error, the kernel may have unmapped the place first, and another thread may
    /// have it now. Only free addresses can be mapped, so a successful mapping is ours.
    pub fn leave(&self, size: usize) {
        self.trim(size);
        let flags = flag::PRIVATE | flag::ANONYMOUS | flag::NORESERVE | flag::FIXED_NOREPLACE;
        // SAFETY: replaces nothing; old kernels treat the address as a hint.
        let at = unsafe { syscalls::mmap(self.at, size, 0, flags) };
        if !syscalls::failed(at) {
            // SAFETY: mapped just now.
            unsafe { syscalls::munmap(at as usize, size) };
        }
    }
}

/// Maximum bytes moved by one call. `mremap` of 4G or more of hugetlb pages fails and leaves a gap at the
/// target. If a shared mapping then fills a whole page table (1G with 4K base pages), the thread deadlocks
/// (kernel-notes.md, "A mapping in the place of another").
const MOVED_AT_ONCE: usize = 512 << 20;

/// Returns true if hugetlb pages of a size can be moved. Not those of 16G (arm64 with 64K base pages).
pub const fn can_move(page: usize) -> bool {
    page <= 1 << 30
}

/// Moves a new mapping of ours, of pages of `page` bytes, over the mapping at `to`.
/// Returns the new address, or `-errno` after unmapping it.
///
/// The mapping at `to` must be the caller's to replace.
pub fn move_over(made: usize, size: usize, to: usize, page: usize) -> isize {
    // SAFETY: ours until now, and the caller ensures that the place is its own.
    match unsafe { move_parts(made, size, to, page) } {
        Ok(()) => to as isize,
        Err((done, error)) => {
            // SAFETY: it was not moved, and no other code knows it.
            unsafe { syscalls::munmap(made + done, size - done) };
            error
        }
    }
}

/// Moves any mapping as `mremap` with `MREMAP_FIXED` does.
/// On error, returns the bytes moved before it and its `-errno`.
///
/// # Safety
/// Both ranges are the caller's, who knows that the mapping at `to` is lost.
pub unsafe fn move_parts(
    from: usize,
    size: usize,
    to: usize,
    page: usize,
) -> Result<(), (usize, isize)> {
    let how = flag::MAYMOVE | flag::MREMAP_FIXED;
    let mut done = 0;
    while done < size {
        let part = (size - done).min(MOVED_AT_ONCE.max(page));
        // SAFETY: ensured by the caller.
        let moved = unsafe { syscalls::mremap(from + done, part, part, how, to + done) };
        if syscalls::failed(moved) {
            return Err((done, moved));
        }
        done += part;
    }
    Ok(())
}

/// Replaces our room at `at` by populated hugetlb pages of one size.
/// Either all of `length` is replaced, or nothing. `kind` is private or shared.
pub fn place_hugetlb(at: usize, length: usize, size: usize, kind: usize) -> bool {
    length != 0
        && can_move(size)
        && reserved_pages(length, size, kind)
            .is_some_and(|made| !syscalls::failed(move_over(made, length, at, size)))
}

/// Maps new populated hugetlb pages of one size. `kind` is private or shared.
pub fn reserved_pages(length: usize, size: usize, kind: usize) -> Option<usize> {
    let hugetlb = flag::HUGETLB | (size.trailing_zeros() as usize) << 26;
    let made = syscalls::map_new(length, MEMORY, kind | hugetlb)?;
    if populate(made, length, size) {
        return Some(made);
    }
    // SAFETY: mapped above.
    unsafe { syscalls::munmap(made, length) };
    None
}

/// Moves the content of hugetlb pages to THP at the same addresses, or to base pages if unavailable.
/// Returns true if all was moved, false if nothing changed.
///
/// # Safety
/// The range can be read, is the caller's to replace, and no other thread writes to it meanwhile.
pub unsafe fn move_off_hugetlb(start: usize, length: usize) -> bool {
    let Some(room) = reserve(length, start) else {
        return false;
    };
    if room.open(length, MEMORY).is_err() {
        return false;
    }
    syscalls::advise(room.at, length, Advice::HugePage);
    if !populate(room.at, length, settings().base) {
        // SAFETY: mapped above.
        unsafe { syscalls::munmap(room.at, length) };
        return false;
    }
    // SAFETY: ensured by the caller, and the copy is as long as the original.
    unsafe { core::ptr::copy_nonoverlapping(start as *const u8, room.at as *mut u8, length) };
    !syscalls::failed(move_over(room.at, length, start, settings().base))
}

/// Collapses a range to huge pages, in up to three attempts, because pages in use for a moment make one fail.
/// Returns the last result.
pub fn collapse(at: usize, length: usize) -> isize {
    let mut result = 0;
    for _ in 0..3 {
        result = syscalls::advise(at, length, Advice::Collapse);
        if !syscalls::failed(result) {
            break;
        }
    }
    result
}

/// Populates and promotes whole blocks. Returns true if all of them are huge pages.
pub fn populate_and_promote(start: usize, size: usize) -> bool {
    let pmd = settings().pmd;
    let mut blocks = (start..start + size).step_by(pmd.max(1));
    blocks.all(|at| {
        !syscalls::failed(syscalls::advise(at, pmd, Advice::PopulateWrite))
            && !syscalls::failed(collapse(at, pmd))
    })
}

/// Maps a buffer, lends it, and unmaps it. Does nothing without memory for it. A thread's stack can be as
/// small as 16K, and a library loaded into every program should not hold memory that few of them use.
///
/// # Safety
/// All zeros must be a value of `T`.
pub unsafe fn with_buffer<T>(work: impl FnOnce(&mut T)) {
    let Some(at) = syscalls::map_new(size_of::<T>(), MEMORY, flag::PRIVATE) else {
        return;
    };
    // SAFETY: mapped above for this call only; the caller ensures that zeros are valid.
    work(unsafe { &mut *(at as *mut T) });
    // SAFETY: mapped above, no longer lent.
    unsafe { syscalls::munmap(at, size_of::<T>()) };
}

/// Populates in steps, because one call holds the address space's lock throughout.
pub fn populate(start: usize, length: usize, page: usize) -> bool {
    let step = page.max(64 << 20);
    let mut at = start;
    while at < start + length {
        let part = step.min(start + length - at);
        if syscalls::failed(syscalls::advise(at, part, Advice::PopulateWrite)) {
            return false;
        }
        at += part;
    }
    true
}
