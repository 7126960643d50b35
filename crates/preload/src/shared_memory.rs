//! Shared memory: anonymous, System V, and mapped tmpfs files (memfd, `/dev/shm`).
//!
//! The rungs are tried in order, with the whole segment on one if possible. The first is hugetlb
//! pages of a pool, populated before they are handed out, because exceeding a limit at a fault kills
//! the program. The next is THP, at a suitable address. If neither can hold all of it, the segment
//! gets the available hugetlb pages, followed by base pages.
//!
//! # Safety
//! Attaches and creates new mappings only; memory for a fixed address is moved there (`placement`).

#![allow(unsafe_code)]

use crate::messages::{self, decimal};
use crate::placement::{self, move_over, populate, reserve, reserve_as, reserved_pages};
use crate::settings::number;
use crate::state::{round_down, round_up, settings};
use crate::syscalls::flag::MEMORY;
use crate::syscalls::{self, Advice, flag};
use crate::{mandatory, shm_segments, tmpfs};

/// Maps shared anonymous memory. Returns its address, or `None` if the caller must issue the
/// program's own call. The error is `-errno`, if huge pages are mandatory.
pub fn anonymous(length: usize) -> Result<Option<usize>, isize> {
    let settings = settings();
    let whole = (settings.shm.sizes()).find_map(|size| from_pool(length, size));
    match whole.or_else(|| transparent(length, 0)) {
        Some(at) => Ok(Some(at)),
        None if settings.shm.mandatory => Err(mandatory::refused(mandatory::MemoryRole::Shm)),
        None => Ok(mosaic(length)),
    }
}

fn from_pool(length: usize, size: usize) -> Option<usize> {
    let whole = round_up(length, size)?;
    // Do not use a page that is mostly beyond the segment: try the next size, or a mosaic.
    if size > settings().pmd && whole - length > length / 16 {
        return None;
    }
    let at = reserved_pages(whole, size, flag::SHARED)?;
    if shm_segments::remember(at, length, whole, size) {
        return Some(at);
    }
    // SAFETY: mapped above.
    unsafe { syscalls::munmap(at, whole) };
    None
}

/// Maps it on THP, if requested, at an address congruent to `offset` modulo the huge page.
fn transparent(length: usize, offset: usize) -> Option<usize> {
    let settings = settings();
    if !settings.shm.thp || settings.pmd == 0 {
        return None;
    }
    let rest = round_down(offset, settings.base) & settings.pmd.wrapping_sub(1);
    let at = if settings.shmem_touch && rest == 0 {
        let flags = flag::SHARED | flag::ANONYMOUS;
        placement::map_congruent(length, 0, MEMORY, flags, (usize::MAX, 0))
    } else {
        // Address and file offset must be congruent modulo the huge page.
        let file = tmpfs::file(round_up(length.checked_add(rest)?, settings.base)?)?;
        let at = placement::map_congruent(length, rest, MEMORY, flag::SHARED, (file, rest));
        syscalls::close(file);
        at
    };
    if syscalls::failed(at) {
        return None;
    }
    let at = at as usize;
    syscalls::advise(at, length, Advice::HugePage);
    if settings.shm.mandatory && !mandatory::promote_range(at, length) {
        // SAFETY: mapped above, not handed out.
        unsafe { syscalls::munmap(at, length) };
        return None;
    }
    Some(at)
}

/// Maps shared anonymous memory on huge pages that can replace the mapping at an address.
/// Returns it with its page size.
pub fn anonymous_for(length: usize, address: usize) -> Option<(usize, usize)> {
    let fits = |size: &usize| (address | length) & (size - 1) == 0 && placement::can_move(*size);
    let mut sizes = settings().shm.sizes().filter(fits);
    let reserved = sizes.find_map(|size| Some((reserved_pages(length, size, flag::SHARED)?, size)));
    reserved.or_else(|| Some((transparent(length, address)?, settings().base)))
}

/// Maps all available hugetlb pages, of each size in turn, followed by base pages.
fn mosaic(length: usize) -> Option<usize> {
    let largest = settings().shm.pools[0];
    if largest == 0 {
        return None;
    }
    let room = reserve_as(length, 0, largest.max(settings().base), 0, 0)?;
    let mut done = 0;
    for size in settings().shm.sizes() {
        let pages = free_pages(size).unwrap_or(0);
        let pages = pages.min((length - done) >> size.trailing_zeros());
        let bytes = pages << size.trailing_zeros();
        if placement::place_hugetlb(room.at + done, bytes, size, flag::SHARED) {
            done += bytes;
        }
    }
    say_short(length, done);
    if done == 0 || !base_pages_behind(room.at + done, length - done) {
        // SAFETY: laid above, not handed out.
        unsafe { syscalls::munmap(room.at, done) };
        room.leave(length);
        return None;
    }
    room.trim(length);
    Some(room.at)
}

fn base_pages_behind(at: usize, length: usize) -> bool {
    length == 0
        || syscalls::map_new(length, MEMORY, flag::SHARED)
            .is_some_and(|made| !syscalls::failed(move_over(made, length, at, settings().base)))
}

fn say_short(length: usize, got: usize) {
    let (asked, got) = (decimal(length >> 20), decimal(got >> 20));
    messages::once(&[
        b"shared memory of ",
        asked.text(),
        b"M got ",
        got.text(),
        b"M of reserved pages; the rest is on base pages: see hugeleaf mem",
    ]);
}

/// Returns the number of free and unreserved pages of a pool.
fn free_pages(size: usize) -> Option<usize> {
    let free = pool_file(size, b"free_hugepages\0")?;
    let promised = pool_file(size, b"resv_hugepages\0")?;
    Some(free.saturating_sub(promised))
}

fn pool_file(size: usize, name: &[u8]) -> Option<usize> {
    let mut path = [0_u8; 96];
    let kilobytes = decimal(size >> 10);
    let folder = b"/sys/kernel/mm/hugepages/hugepages-";
    let path = messages::joined(&mut path, &[folder, kilobytes.text(), b"kB/", name]);
    let mut text = [0_u8; 24];
    let text = syscalls::read_file(path, &mut text)?;
    number(text.strip_suffix(b"\n").unwrap_or(text))
}

/// Maps a tmpfs file with address and file offset congruent modulo the huge page, as huge pages
/// require.
pub fn file(length: usize, protection: usize, flags: usize, file: usize, offset: usize) -> isize {
    let pass = || {
        // SAFETY: the program's own call.
        unsafe { syscalls::mmap_file(0, length, protection, flags, file, offset) }
    };
    if !syscalls::is_tmpfs(file) {
        return pass();
    }
    let at = match placement::map_congruent(length, offset, protection, flags, (file, offset)) {
        syscalls::EEXIST | syscalls::ENOMEM => return pass(),
        at => at,
    };
    if syscalls::failed(at) {
        return at;
    }
    // Advise independently of `shmem_enabled`: a separate mount has its own option (`huge=advise`).
    syscalls::advise(at as usize, length, Advice::HugePage);
    at
}

/// Implements `shmget(2)`, with huge pages for a new segment.
pub fn segment(key: usize, size: usize, flags: usize) -> isize {
    const CREATE: usize = 0o1000;
    const SHM_HUGETLB: usize = 0o4000;
    let settings = settings();
    let new = key == 0 || flags & CREATE != 0;
    if new && flags & SHM_HUGETLB == 0 && size >= settings.shm_after && settings.shm.wanted() {
        for page in settings.shm.sizes() {
            let beyond = round_up(size, page).map_or(size, |whole| whole - size);
            if page > settings.pmd && beyond > size / 16 {
                continue;
            }
            let shift = (page.trailing_zeros() as usize) << 26;
            let id = syscalls::shmget(key, size, flags | SHM_HUGETLB | shift);
            match id {
                syscalls::EEXIST | syscalls::ENOENT | syscalls::EACCES => return id,
                id if syscalls::failed(id) => {}
                // The segment may exist already and be in use. It then keeps its pages, and
                // populating it is harmless.
                id if fill(id as usize, size, page) => return id,
                id => syscalls::shm_remove(id as usize),
            }
        }
        if settings.shm.mandatory && !settings.shm.thp {
            return mandatory::refused(mandatory::MemoryRole::Shm);
        }
    }
    let id = syscalls::shmget(key, size, flags);
    if settings.shm.mandatory && new && size >= settings.pmd && id >= 0 && !fill_thp(id as usize) {
        syscalls::shm_remove(id as usize);
        return mandatory::refused(mandatory::MemoryRole::Shm);
    }
    id
}

/// Populates a segment of hugetlb pages. Returns false on failure.
fn fill(id: usize, size: usize, page: usize) -> bool {
    // SAFETY: a new mapping.
    let at = unsafe { syscalls::shmat(id, 0, 0) };
    if syscalls::failed(at) {
        return false;
    }
    let filled = round_up(size, page).is_some_and(|whole| populate(at as usize, whole, page));
    // SAFETY: attached above.
    unsafe { syscalls::shmdt(at as usize) };
    filled
}

/// Populates a segment and promotes all of it to THP. Returns false on failure.
fn fill_thp(id: usize) -> bool {
    let at = attach(id, 0);
    if syscalls::failed(at) {
        return false;
    }
    let size = syscalls::shm_size(id).unwrap_or(0);
    let huge = mandatory::promote_range(at as usize, size);
    // SAFETY: attached above.
    unsafe { syscalls::shmdt(at as usize) };
    huge
}

/// Implements `shmat(2)` without an address, choosing one that fits huge pages.
pub fn attach(id: usize, flags: usize) -> isize {
    let settings = settings();
    // SAFETY: a new mapping.
    let at = unsafe { syscalls::shmat(id, 0, flags) };
    let size = syscalls::shm_size(id).unwrap_or(0);
    if syscalls::failed(at) || settings.pmd == 0 || size < settings.pmd.max(settings.shm_after) {
        return at;
    }
    if at as usize & (settings.pmd - 1) == 0 {
        advise_shared(at as usize, size);
        return at;
    }
    let Some(room) = reserve(size, 0) else {
        return at;
    };
    room.drop_all();
    // SAFETY: the kernel refuses an address in use.
    let better = unsafe { syscalls::shmat(id, room.at, flags) };
    if syscalls::failed(better) {
        return at;
    }
    // SAFETY: attached above, not handed out.
    unsafe { syscalls::shmdt(at as usize) };
    advise_shared(room.at, size);
    better
}

fn advise_shared(start: usize, size: usize) {
    if settings().shmem_touch
        && let Some(length) = round_up(size, settings().base)
    {
        syscalls::advise(start, length, Advice::HugePage);
    }
}
