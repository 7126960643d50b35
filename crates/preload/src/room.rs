//! Addresses that are set aside, and how something is put there.
//!
//! `mmap` with `MAP_FIXED` unmaps what is there before it asks for what it needs: a pool that is
//! short, shared memory that is not accounted for, and on kernels before 6.12 private memory too,
//! leave a gap, which another thread's next mapping may get. So nothing here is mapped over. Where
//! the room is only a good address, it is given up and taken with `MAP_FIXED_NOREPLACE`: who comes
//! in between has the place. Private memory without rights is given rights where it is. And what
//! must keep its place is replaced by something that was made elsewhere, whole, and moved there by
//! `mremap`, which asks for nothing but a few bytes of the kernel's own.
//! `docs/internals/kernel-notes.md` has what was tried.
//!
//! # Safety
//!
//! Maps only over room that it reserved, or where the caller says that the place is its own; unmaps
//! only what it reserved and nothing can have taken since.

#![allow(unsafe_code)]

use crate::calls::{self, Advice, flag};
use crate::state::{down, settings, up};

use crate::calls::flag::MEMORY;

/// Addresses without memory: something can be put at `at` that is congruent to what was asked.
pub struct Room {
    pub at: usize,
    start: usize,
    end: usize,
}

/// Room for `size` bytes at an address that leaves the rest `offset` when divided by the huge
/// page.
pub fn reserve(size: usize, offset: usize) -> Option<Room> {
    reserve_as(size, offset, settings().pmd, 0, 0)
}

/// The same at a multiple of a page size.
pub fn reserve_for(size: usize, page: usize) -> Option<Room> {
    reserve_as(size, 0, page, 0, 0)
}

/// The same with rights, so that limits on memory count the room as they will count what takes its
/// place, and with more flags of `mmap`.
pub fn reserve_as(
    size: usize,
    offset: usize,
    page: usize,
    rights: usize,
    flags: usize,
) -> Option<Room> {
    let whole = up(size, settings().base)?.checked_add(page)?;
    let start = calls::map_new(whole, rights, flag::PRIVATE | flags)?;
    let rest = down(offset, settings().base).wrapping_sub(start) & page.wrapping_sub(1);
    Some(Room {
        at: start + rest,
        start,
        end: start + whole,
    })
}

/// Maps `size` bytes at an address that leaves the rest `wish` when divided by the huge page. The
/// address; or `-errno`: `-EEXIST` where other threads were faster each time.
///
/// Not moved there from elsewhere: where the place that it comes from shares a page table with a
/// neighbour, an empty one comes along, and what is faulted in there is no huge page.
pub fn put(
    size: usize,
    wish: usize,
    rights: usize,
    flags: usize,
    (file, offset): (usize, usize),
) -> isize {
    const TRIES: usize = 64;
    for _ in 0..TRIES {
        let Some(room) = reserve(size, wish) else {
            return calls::ENOMEM;
        };
        room.drop_all();
        let flags = flags | flag::FIXED_NOREPLACE;
        // SAFETY: replaces nothing.
        let made = unsafe { calls::mmap_file(room.at, size, rights, flags, file, offset) };
        if made as usize == room.at {
            return made;
        }
        if !calls::failed(made) {
            // Old kernels take the address as a wish.
            // SAFETY: mapped just now.
            unsafe { calls::munmap(made as usize, size) };
        } else if made != calls::EEXIST {
            return made;
        }
    }
    calls::EEXIST
}

impl Room {
    /// Gives rights to `size` bytes of the room: private memory. The address.
    ///
    /// # Errors
    ///
    /// `-errno`, and there is no room any more.
    pub fn open(&self, size: usize, rights: usize) -> Result<usize, isize> {
        // SAFETY: our own room, which nobody knows yet.
        let result = unsafe { calls::mprotect(self.at, size, rights) };
        if calls::failed(result) {
            self.drop_all();
            return Err(result);
        }
        self.trim(size);
        Ok(self.at)
    }

    /// Unmaps what is left of the room around the `size` bytes that were put there.
    pub fn trim(&self, size: usize) {
        let Some(used) = up(self.at + size, settings().base) else {
            return;
        };
        if self.at > self.start {
            // SAFETY: reserved above, nothing was put there.
            unsafe { calls::munmap(self.start, self.at - self.start) };
        }
        if self.end > used {
            // SAFETY: as above.
            unsafe { calls::munmap(used, self.end - used) };
        }
    }

    /// Unmaps all of it, where nothing was moved into it.
    pub fn drop_all(&self) {
        // SAFETY: reserved above, nothing was put there.
        unsafe { calls::munmap(self.start, self.end - self.start) };
    }

    /// Unmaps what is ours for sure, after a move of `size` bytes that failed: whether the
    /// kernel unmapped the place first differs between kernels and errors, and where it did, it
    /// may be another thread's by now. Only what is free can be taken, so what can is no one's.
    pub fn leave(&self, size: usize) {
        self.trim(size);
        let flags = flag::PRIVATE | flag::ANONYMOUS | flag::NORESERVE | flag::FIXED_NOREPLACE;
        // SAFETY: replaces nothing; old kernels take the address as a hint.
        let at = unsafe { calls::mmap(self.at, size, 0, flags) };
        if !calls::failed(at) {
            // SAFETY: mapped just now.
            unsafe { calls::munmap(at as usize, size) };
        }
    }
}

/// The most that is moved by one call. `mremap` of 4G or more of reserved pages fails, and leaves a
/// gap where they were to go; and where a shared mapping comes to hold a whole page table (1G with base
/// pages of 4K), the thread waits for itself for ever (kernel-notes.md, "A mapping in the place of another").
const MOVED_AT_ONCE: usize = 512 << 20;

/// Whether reserved pages of a size can be moved at all: not those of 16G (arm64 with base pages of 64K).
pub const fn can_move(page: usize) -> bool {
    page <= 1 << 30
}

/// Moves a mapping of our own that nobody knows yet, of pages of `page` bytes, to the place of what is
/// at `to`. The new address; or `-errno`, and the mapping is gone.
///
/// What is at `to` must be the caller's to replace.
pub fn move_over(made: usize, size: usize, to: usize, page: usize) -> isize {
    // SAFETY: ours until now, and by the caller the place is its own.
    match unsafe { move_parts(made, size, to, page) } {
        Ok(()) => to as isize,
        Err((done, error)) => {
            // SAFETY: it was not moved, and nobody knows of it.
            unsafe { calls::munmap(made + done, size - done) };
            error
        }
    }
}

/// The same of any mapping, as `mremap` with `MREMAP_FIXED` does it. How much was moved before the call
/// that failed, and its `-errno`.
///
/// # Safety
///
/// Both are the caller's, who knows that what is at `to` goes.
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
        // SAFETY: by the caller.
        let moved = unsafe { calls::mremap(from + done, part, part, how, to + done) };
        if calls::failed(moved) {
            return Err((done, moved));
        }
        done += part;
    }
    Ok(())
}

/// Puts reserved pages of one size, populated, in the place of our own room at `at`: all of
/// `length`, or what was there stays. `kind` is private or shared.
pub fn lay(at: usize, length: usize, size: usize, kind: usize) -> bool {
    length != 0
        && can_move(size)
        && reserved_pages(length, size, kind)
            .is_some_and(|made| !calls::failed(move_over(made, length, at, size)))
}

/// New memory on reserved pages of one size, populated. `kind` is private or shared.
pub fn reserved_pages(length: usize, size: usize, kind: usize) -> Option<usize> {
    let hugetlb = flag::HUGETLB | (size.trailing_zeros() as usize) << 26;
    let made = calls::map_new(length, MEMORY, kind | hugetlb)?;
    if populate(made, length, size) {
        return Some(made);
    }
    // SAFETY: mapped above.
    unsafe { calls::munmap(made, length) };
    None
}

/// Moves the content of reserved pages to transparent ones at the same addresses, or to base pages
/// where there are none: all of it, or nothing changes. Whether it was possible.
///
/// # Safety
///
/// The range can be read, is the caller's to replace, and no other thread writes to it meanwhile.
pub unsafe fn leave_reserved(start: usize, length: usize) -> bool {
    let Some(room) = reserve(length, start) else {
        return false;
    };
    if room.open(length, MEMORY).is_err() {
        return false;
    }
    calls::advise(room.at, length, Advice::HugePage);
    if !populate(room.at, length, settings().base) {
        // SAFETY: mapped above.
        unsafe { calls::munmap(room.at, length) };
        return false;
    }
    // SAFETY: by the caller, and the copy is as long as the original.
    unsafe { core::ptr::copy_nonoverlapping(start as *const u8, room.at as *mut u8, length) };
    !calls::failed(move_over(room.at, length, start, settings().base))
}

/// Moves what is there onto huge pages, in up to three attempts: what another thread or the kernel
/// holds for a moment refuses one. The last answer.
pub fn collapse(at: usize, length: usize) -> isize {
    let mut result = 0;
    for _ in 0..3 {
        result = calls::advise(at, length, Advice::Collapse);
        if !calls::failed(result) {
            break;
        }
    }
    result
}

/// Populates whole blocks and moves them to huge pages; whether all of them are.
pub fn on_huge_pages(start: usize, size: usize) -> bool {
    let pmd = settings().pmd;
    let mut blocks = (start..start + size).step_by(pmd.max(1));
    blocks.all(|at| {
        !calls::failed(calls::advise(at, pmd, Advice::PopulateWrite))
            && !calls::failed(collapse(at, pmd))
    })
}

/// Maps a buffer, lends it, and unmaps it; nothing is done where there is no memory for it. The stack
/// of a thread can be as small as 16K, and a library that is loaded into every program should not
/// bring memory that few of them use.
///
/// # Safety
///
/// All zeros must be a value of `T`.
pub unsafe fn lend<T>(work: impl FnOnce(&mut T)) {
    let Some(at) = calls::map_new(size_of::<T>(), MEMORY, flag::PRIVATE) else {
        return;
    };
    // SAFETY: mapped above, for this alone; by the caller zeros are valid.
    work(unsafe { &mut *(at as *mut T) });
    // SAFETY: mapped above, not lent any more.
    unsafe { calls::munmap(at, size_of::<T>()) };
}

/// Populates in steps: one call holds the address space's lock throughout.
pub fn populate(start: usize, length: usize, page: usize) -> bool {
    let step = page.max(64 << 20);
    let mut at = start;
    while at < start + length {
        let part = step.min(start + length - at);
        if calls::failed(calls::advise(at, part, Advice::PopulateWrite)) {
            return false;
        }
        at += part;
    }
    true
}
