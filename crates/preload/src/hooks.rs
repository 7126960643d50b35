//! The functions of libc that lead here, with the program's arguments.
//! They behave as documented and set `errno`.
//!
//! # Safety
//! Called by the program under the terms of the manual page of each.
//! Their additional work affects only memory that is not handed out yet.

#![allow(unsafe_code)]

use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use crate::placement::{self, populate, reserve_as};
use crate::private_memory::{self, judged};
use crate::shared_memory;
use crate::state::{growing, is_inactive, libc_text, round_up, settings};
use crate::syscalls::flag::MEMORY;
use crate::syscalls::{self, Advice, failed, flag};
use crate::{
    arena, density, elf, fork, heap, mandatory, mandatory_mmap, mapping_window, private_hugetlb,
    process_size_threshold, shm_segments, stack,
};

unsafe extern "C" {
    fn __errno_location() -> *mut i32;
}

const ALL: usize = usize::MAX;
const PRIVATE: usize = flag::PRIVATE | flag::ANONYMOUS;
const SHARED: usize = flag::SHARED | flag::ANONYMOUS;

/// Converts a result to the C convention: -1 and `errno`, or the value.
#[inline(always)]
fn finish(result: isize) -> usize {
    if failed(result) {
        // SAFETY: libc's error variable of this thread.
        unsafe { *__errno_location() = -result as i32 };
        return ALL;
    }
    result as usize
}

pub extern "C" fn mmap(
    address: usize,
    length: usize,
    protection: usize,
    flags: usize,
    file: usize,
    offset: usize,
) -> usize {
    let (protection, flags) = (protection & 0xffff_ffff, flags & 0xffff_ffff);
    let file = file as i32 as isize as usize;
    finish(map(address, length, protection, flags, file, offset))
}

#[inline(always)]
fn map(
    address: usize,
    length: usize,
    protection: usize,
    flags: usize,
    file: usize,
    offset: usize,
) -> isize {
    let own = || {
        // SAFETY: the program's own call.
        unsafe { syscalls::mmap_file(address, length, protection, flags, file, offset) }
    };
    if address == 0 && protection == MEMORY && flags & !flag::NORESERVE == PRIVATE {
        return private_memory::map(length, own);
    }
    if flags & flag::FIXED != 0 {
        heap::changed(address, length);
        shm_segments::record_change(address, length);
    }
    if is_inactive() {
        return own();
    }
    let settings = settings();
    let call = mandatory_mmap::MmapCall {
        address,
        length,
        protection,
        flags,
        file,
        offset,
    };
    if let Some(answer) = mandatory_mmap::mapped(&call) {
        return answer;
    }
    if flags & flag::ANONYMOUS != 0 {
        if flags & (flag::HUGETLB | flag::GROWSDOWN | flag::LOW) != 0 {
            return own();
        }
        return match flags & flag::TYPE {
            flag::PRIVATE => other_private(address, length, protection, flags, own),
            flag::SHARED if address == 0 && flags & !flag::NORESERVE == SHARED => {
                shared_memory(length, protection, own)
            }
            _ => own(),
        };
    }
    let large = length >= settings.pmd.max(settings.shm_after) && settings.pmd != 0;
    if flags == flag::SHARED && address == 0 && large && settings.shm.thp {
        return shared_memory::file(length, protection, flags, file, offset);
    }
    own()
}

/// Maps other private memory: reserved without access rights, at an address, or as a stack.
fn other_private(
    address: usize,
    length: usize,
    protection: usize,
    flags: usize,
    own: impl Fn() -> isize,
) -> isize {
    let settings = settings();
    let at_address = flags & (flag::FIXED | flag::FIXED_NOREPLACE) != 0;
    if flags & flag::STACK != 0 {
        let large = settings.stack.thp && length >= settings.stack_after;
        if large && address == 0 && !at_address {
            return stack::of_thread(length, protection, flags).unwrap_or_else(own);
        }
        if length >= settings.stack_after && settings.stack.mandatory {
            return mandatory::refused(mandatory::MemoryRole::Stack);
        }
        return own();
    }
    let whole = flag::NORESERVE | flag::POPULATE;
    let is_whole = address == 0 && protection == MEMORY && flags & !whole == PRIVATE;
    if is_whole {
        process_size_threshold::note(length);
        if let Some(at) = populated(length, flags) {
            return at;
        }
    }
    let over = flags & flag::FIXED != 0 && protection == MEMORY && settings.data.wanted();
    let inside = over && is_part(address);
    let at = own();
    if failed(at) || !settings.data.wanted() {
        return at;
    }
    if protection == 0 {
        arena::reserved(at as usize, length);
        return at;
    }
    if protection != MEMORY {
        return at;
    }
    if !is_whole {
        process_size_threshold::note(length);
    }
    if inside {
        fits_in(at as usize, length);
        return at;
    }
    judged(at, density::COMMIT, length)
}

/// Returns true if the address is inside memory in use, which `MAP_FIXED` replaces in part. Memory that
/// is only reserved is not readable. A page read in for this check goes with the replaced mapping.
fn is_part(address: usize) -> bool {
    let settings = settings();
    let begins = address & settings.base.wrapping_sub(1) == 0;
    growing()
        && settings.touch
        && begins
        && !failed(syscalls::advise(
            address,
            settings.base,
            Advice::PopulateRead,
        ))
}

/// Maps memory requested with all its pages. It is used completely, so its kind does not matter.
fn populated(length: usize, flags: usize) -> Option<isize> {
    let settings = settings();
    let large = length >= settings.pmd.max(1) && (growing() || length >= settings.data_after);
    if !large || !settings.touch || !settings.data.thp {
        return None;
    }
    let room = reserve_as(length, 0, settings.pmd, 0, flags & flag::NORESERVE)?;
    room.open(length, MEMORY).ok()?;
    syscalls::advise(room.at, length, Advice::HugePage);
    // As with mmap, pages that cannot be populated now come with their first touch.
    populate(room.at, length, settings.base);
    Some(room.at as isize)
}

/// Advises memory that replaced a part of a mapping, however small. With different advice than its
/// surroundings it would always remain a separate mapping, and the kernel does not move two at once
/// (`mremap`). It is not advised if the kernel merged it with a neighbour, which then has no advice
/// either. Advise before the first touch, because pages touched under different advice do not merge.
fn fits_in(start: usize, length: usize) {
    let end = start + length;
    if !is_one_at(start) && !is_one_at(end) {
        syscalls::advise(start, length, Advice::HugePage);
    }
}

/// Returns true if the pages on both sides of an address belong to one mapping. An attempt to extend them
/// in place shows it: EFAULT if they do not, ENOMEM if they do and another mapping follows.
fn is_one_at(address: usize) -> bool {
    let page = settings().base;
    let Some(at) = round_up(address, page).and_then(|at| at.checked_sub(page)) else {
        return false;
    };
    // SAFETY: in place, so nothing moves; an extension that succeeds is reverted.
    unsafe {
        let result = syscalls::mremap(at, 2 * page, 3 * page, 0, 0);
        if !failed(result) {
            syscalls::mremap(at, 3 * page, 2 * page, 0, 0);
        }
        !failed(result) || result == syscalls::ENOMEM
    }
}

fn shared_memory(length: usize, protection: usize, own: impl Fn() -> isize) -> isize {
    let settings = settings();
    if protection != MEMORY || length < settings.shm_after || !settings.shm.wanted() {
        return own();
    }
    match shared_memory::anonymous(length) {
        Ok(Some(at)) => at as isize,
        Ok(None) => own(),
        Err(error) => error,
    }
}

pub extern "C" fn munmap(address: usize, length: usize) -> usize {
    arena::unmapped(address, length);
    density::unmapped(address, length);
    heap::changed(address, length);
    if private_hugetlb::holds(address, length) && address & (settings().base - 1) == 0 {
        private_hugetlb::unmap(address, length);
        return 0;
    }
    let length = shm_segments::unmap_length(address, length);
    // SAFETY: the program's own call; hugetlb pages are unmapped whole.
    let result = unsafe { syscalls::munmap(address, length) };
    if result == syscalls::EINVAL
        && let Some((start, length)) = shm_segments::whole_pages(address, length)
    {
        if length != 0 {
            // SAFETY: inside the range that the program gives up.
            unsafe { syscalls::munmap(start, length) };
        }
        return 0;
    }
    finish(result)
}

/// Implements `mprotect(2)`. `caller` is its return address.
pub extern "C" fn mprotect(
    address: usize,
    length: usize,
    protection: usize,
    caller: usize,
) -> usize {
    let protection = protection & 0xffff_ffff;
    // SAFETY: the program's own call.
    let call = || unsafe { syscalls::mprotect(address, length, protection) };
    let result = match call() {
        // With other threads the pages cannot leave the pool.
        syscalls::EINVAL
            if private_hugetlb::holds(address, length)
                && fork::threads() == Some(1)
                && private_hugetlb::move_off_pool_part(address, length) =>
        {
            call()
        }
        result => result,
    };
    if protection != MEMORY {
        heap::changed(address, length);
    }
    if result == 0 && protection & flag::WRITE != 0 {
        return finish(writable(address, length, protection, caller));
    }
    finish(result)
}

/// Handles memory that was made writable.
/// Returns 0, or `-ENOMEM` if huge pages are mandatory for it and unavailable.
fn writable(address: usize, length: usize, protection: usize, caller: usize) -> isize {
    let settings = settings();
    let libc = libc_text().contains(&caller);
    let heap = libc && protection == MEMORY && arena::grew(address, length);
    // Other mappings of libc are stacks.
    if libc && !heap && settings.stack.mandatory && length >= settings.stack_after {
        return match mandatory::promote_range(address, length) {
            true => 0,
            false => mandatory::refused(mandatory::MemoryRole::Stack),
        };
    }
    let must = settings.data.mandatory && growing() && (heap || !libc);
    if must && !mandatory::usable(address, length) {
        return mandatory::refused(mandatory::MemoryRole::Data);
    }
    if !heap && protection == MEMORY && settings.data.wanted() && !is_inactive() {
        process_size_threshold::note_commit(length);
        judged(address as isize, density::COMMIT, length);
    }
    0
}

/// Implements `mremap(2)`.
/// If memory must move to grow, it moves to an address that keeps its huge pages whole.
pub extern "C" fn mremap(
    old: usize,
    old_length: usize,
    length: usize,
    flags: usize,
    to: usize,
) -> usize {
    let flags = flags & 0xffff_ffff;
    let settings = settings();
    heap::changed(old, old_length);
    if flags == flag::MAYMOVE && private_hugetlb::holds(old, old_length) {
        let own = || {
            // SAFETY: a new mapping.
            unsafe { syscalls::mmap(0, length, MEMORY, PRIVATE) }
        };
        return finish(private_hugetlb::remap(old, old_length, length, || {
            private_memory::map(length, own)
        }));
    }
    if length > old_length && settings.data.mandatory && growing() {
        process_size_threshold::note(length - old_length);
        if let Some(answer) = mandatory_mmap::grow(old, old_length, length, flags, to) {
            return finish(answer);
        }
    }
    let may_grow = flags == flag::MAYMOVE && length > old_length && length >= 2 * settings.pmd;
    if may_grow && growing() {
        if let Some(at) = grow_elsewhere(old, old_length, length) {
            return grown(at as isize, old_length, length);
        }
    } else if length > old_length && settings.data.wanted() {
        process_size_threshold::note(length - old_length);
    }
    grown(
        remap(old, old_length, length, flags, to),
        old_length,
        length,
    )
}

/// Judges a mapping that has grown as a new one.
fn grown(at: isize, old_length: usize, length: usize) -> usize {
    if length > old_length && growing() && settings().data.wanted() {
        density::unmapped(0, old_length);
        judged(at, density::kind_of(length), length);
    }
    finish(at)
}

/// Makes the program's own call on memory that the program considers one mapping.
///
/// While one thread promotes memory (`promote_existing`), another may remap ranges of the list that it has read.
/// Advice on a part of such a mapping splits it, and the kernel does not move two mappings at once
/// (EFAULT). The same advice on all of it merges it again.
fn remap(old: usize, old_length: usize, length: usize, flags: usize, to: usize) -> isize {
    // SAFETY: the program's own call.
    let call = || unsafe { syscalls::mremap(old, old_length, length, flags, to) };
    let join = || syscalls::advise(old, old_length, Advice::HugePage);
    let touch = settings().touch && !is_inactive();
    // A failed call may have unmapped the memory at a fixed address, and another thread may map there
    // before a second call. Such a call is made once.
    if flags & flag::MREMAP_FIXED != 0 {
        if let Some(page) = shm_segments::page_of(old)
            && flags == flag::MAYMOVE | flag::MREMAP_FIXED
            && old_length == length
            && old.abs_diff(to) >= length
        {
            return move_segment(old, length, to, page);
        }
        if touch && growing() {
            join();
        }
        return call();
    }
    let result = call();
    if result != syscalls::EFAULT || !touch || failed(join()) {
        return result;
    }
    call()
}

/// Moves shared memory that is on hugetlb pages without the program's knowledge.
/// Moving much of it in one call fails or never ends.
fn move_segment(old: usize, length: usize, to: usize, page: usize) -> isize {
    // SAFETY: the program's own call.
    match unsafe { placement::move_parts(old, length, to, page) } {
        Ok(()) => {
            shm_segments::record_move(old, length, to);
            to as isize
        }
        Err((_, error)) => error,
    }
}

fn grow_elsewhere(old: usize, old_length: usize, length: usize) -> Option<usize> {
    process_size_threshold::note(length - old_length);
    let at = remap(old, old_length, length, 0, 0);
    if !failed(at) {
        return Some(at as usize);
    }
    // Memory that is locked as it is mapped would be populated here for nothing.
    if mapping_window::LOCKED.load(Relaxed) {
        return None;
    }
    // Reserve with access rights, so that limits refuse it here, before the old place is given up.
    let room = reserve_as(length, old, settings().pmd, MEMORY, 0)?;
    let how = flag::MAYMOVE | flag::MREMAP_FIXED;
    // SAFETY: moves into the room; the program gives up its old range.
    let at = unsafe { syscalls::mremap(old, old_length, length, how, room.at) };
    if failed(at) {
        room.leave(length);
        return None;
    }
    room.trim(length);
    Some(at as usize)
}

pub extern "C" fn brk(to: usize) -> i32 {
    let result = heap::set(to);
    if finish(result) == ALL { -1 } else { 0 }
}

/// A function of the same name in another library (libhugetlbfs has `shmget`).
/// The program requested that library, so its call goes there. Resolved at the first call.
struct NextFunction {
    name: &'static [u8],
    function: AtomicUsize,
}

impl NextFunction {
    const NONE: usize = 1;

    const fn named(name: &'static [u8]) -> NextFunction {
        NextFunction {
            name,
            function: AtomicUsize::new(0),
        }
    }

    fn get(&self) -> Option<usize> {
        let mut known = self.function.load(Relaxed);
        if known == 0 {
            let own = shmget as *const () as usize;
            known = elf::find_next_function(self.name, own).unwrap_or(NextFunction::NONE);
            self.function.store(known, Relaxed);
        }
        (known != NextFunction::NONE).then_some(known)
    }
}

static SHMGET: NextFunction = NextFunction::named(b"shmget");
static SHMAT: NextFunction = NextFunction::named(b"shmat");

pub fn shmget(key: i32, size: usize, flags: i32) -> i32 {
    if let Some(function) = SHMGET.get() {
        // SAFETY: a function of that name has the arguments of shmget(2).
        let function: extern "C" fn(i32, usize, i32) -> i32 =
            unsafe { core::mem::transmute(function) };
        return function(key, size, flags);
    }
    finish(shared_memory::segment(
        key as u32 as usize,
        size,
        flags as u32 as usize,
    )) as i32
}

pub fn shmat(id: i32, address: usize, flags: i32) -> usize {
    if let Some(function) = SHMAT.get() {
        // SAFETY: a function of that name has the arguments of shmat(2).
        let function: extern "C" fn(i32, usize, i32) -> usize =
            unsafe { core::mem::transmute(function) };
        return function(id, address, flags);
    }
    let (id, flags) = (id as u32 as usize, flags as u32 as usize);
    if address == 0 && settings().shm.wanted() && !is_inactive() {
        return finish(shared_memory::attach(id, flags));
    }
    // SAFETY: the program's own call.
    let at = unsafe { syscalls::shmat(id, address, flags) };
    if settings().shm.mandatory && !failed(at) && at as usize & settings().pmd.wrapping_sub(1) != 0
    {
        mandatory::report_base_kind(mandatory::BasePageReason::Misaligned);
    }
    finish(at)
}

/// Returns true if `fork` must fail, with `errno` set.
pub fn fork_refused() -> bool {
    let refused = fork::must_refuse();
    if refused {
        finish(syscalls::ENOMEM);
    }
    refused
}

/// Returns -1 with `errno` set, for a function that this libc does not have.
pub fn not_there() -> i32 {
    const ENOSYS: isize = -38;
    finish(ENOSYS);
    -1
}

/// Implements `prctl(2)`.
/// After a system call filter is set, the library makes no further calls of its own.
pub fn prctl(option: i32, arguments: [usize; 4]) -> i32 {
    const SET_SECCOMP: i32 = 22;
    if option == SET_SECCOMP {
        filtered();
    }
    let [b, c, d, e] = arguments;
    // SAFETY: the program's own call.
    finish(unsafe { syscalls::prctl([option as u32 as usize, b, c, d, e, 0]) }) as i32
}

fn filtered() {
    let settings = settings();
    if settings.data.mandatory || settings.shm.mandatory {
        mandatory::report_base_kind(mandatory::BasePageReason::Filtered);
    }
    crate::state::deactivate();
}

/// Implements `syscall(2)`, with the same rule for `seccomp(2)`, which has no function in libc.
pub fn syscall(number: usize, arguments: [usize; 6]) -> usize {
    if number == syscalls::SECCOMP {
        filtered();
    }
    // SAFETY: the program's own call.
    finish(unsafe { syscalls::call(number, arguments) })
}

/// Implements `mlockall(2)`. Memory that is locked as it is mapped is not mapped ahead.
pub fn mlockall(flags: i32) -> i32 {
    const FUTURE: i32 = 2;
    mapping_window::LOCKED.store(flags & FUTURE != 0, Relaxed);
    finish(syscalls::mlockall(flags as u32 as usize)) as i32
}
