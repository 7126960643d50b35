//! What a fork means for larger pages.
//!
//! Transparent pages: nothing; the kernel shares and copies them as it does base pages. The
//! child only opens locks that another thread may have held.
//!
//! Private reserved pages: when the pool is short at a write to a shared page, the kernel takes
//! the page from the child, which dies of SIGBUS. So before a process forks it leaves its
//! reserved pages, for good: their content moves to transparent pages at the same addresses.
//! That is possible only while no other thread can write; with more threads `fork` is refused.
//!
//! # Safety
//!
//! Copies memory and puts the copy in its place while the process has one thread.

#![allow(unsafe_code)]

use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use crate::calls::{self, Advice, flag};
use crate::settings::number;
use crate::state;
use crate::{heap, judge, pool, say, sweep, window};

/// `__register_atfork` of libc, where it was found.
static REGISTER: AtomicUsize = AtomicUsize::new(0);
static WATCHED: AtomicBool = AtomicBool::new(false);
static LEFT: AtomicBool = AtomicBool::new(false);

type Handler = extern "C" fn();
type Register = extern "C" fn(Option<Handler>, Option<Handler>, Option<Handler>, usize) -> i32;

/// Tells where libc's function is that registers handlers.
pub fn start(register: usize) {
    REGISTER.store(register, Relaxed);
}

/// Has libc call here at each fork. To be called in the constructor: libc holds the lock of its
/// list while it waits for malloc's, so from inside malloc it would wait for itself.
pub fn watch() {
    let register = REGISTER.load(Relaxed);
    if register == 0 || WATCHED.swap(true, Relaxed) {
        return;
    }
    // SAFETY: the function of glibc with that name has these arguments.
    let register: Register = unsafe { core::mem::transmute(register) };
    register(Some(before), None, Some(in_child), 0);
}

extern "C" fn in_child() {
    state::LOCK.reopen();
    sweep::LOCK.reopen();
    window::leave();
    judge::leave();
}

extern "C" fn before() {
    if heap::own().is_some() && threads() == Some(1) {
        leave_pools();
    }
}

/// Libc's `fork`, where it was found.
static FORK: AtomicUsize = AtomicUsize::new(0);

/// Tells where libc's `fork` is.
pub fn libc_fork(function: usize) {
    FORK.store(function, Relaxed);
}

/// Libc's own `fork`; `None` where this libc has none.
pub fn fork() -> Option<i32> {
    let function = match FORK.load(Relaxed) {
        0 => crate::elf::process().any_libc?.symbol(b"fork")?.0,
        known => known,
    };
    // SAFETY: `fork` has no arguments and returns an int.
    let function: extern "C" fn() -> i32 = unsafe { core::mem::transmute(function) };
    Some(function())
}

/// Whether the heap has left its reserved pages.
pub fn left_pools() -> bool {
    LEFT.load(Relaxed)
}

/// Whether a fork must be refused: reserved pages are private, and other threads write to them.
pub fn must_refuse() -> bool {
    let refused = heap::own().is_some() && !left_pools() && threads() != Some(1);
    if refused {
        say::once(&[
            b"fork refused: private memory is on reserved pages and other threads use it; \
            use --data thp",
        ]);
    }
    refused
}

fn leave_pools() {
    let Some((start, end)) = heap::own() else {
        return;
    };
    if LEFT.load(Relaxed) || !pool::leave() || LEFT.swap(true, Relaxed) || start == end {
        return;
    }
    let length = end - start;
    let rights = flag::READ | flag::WRITE;
    let Some(room) = crate::window::reserve(length, start) else {
        return;
    };
    let flags = flag::PRIVATE | flag::ANONYMOUS | flag::FIXED;
    // SAFETY: into the room.
    let at = unsafe { calls::mmap(room.at, length, rights, flags) };
    room.trim(length);
    if calls::failed(at) {
        LEFT.store(false, Relaxed);
        return;
    }
    calls::advise(room.at, length, Advice::HugePage);
    if calls::failed(calls::advise(room.at, length, Advice::PopulateWrite)) {
        // SAFETY: mapped above.
        unsafe { calls::munmap(room.at, length) };
        LEFT.store(false, Relaxed);
        return;
    }
    // SAFETY: one thread; the copy takes the place of the original in one step.
    unsafe {
        core::ptr::copy_nonoverlapping(start as *const u8, room.at as *mut u8, length);
        calls::munmap(start, length);
        calls::mremap(
            room.at,
            length,
            length,
            flag::MAYMOVE | flag::MREMAP_FIXED,
            start,
        );
    }
}

/// Threads of this process: field 20 of `/proc/self/stat`, behind the name in parentheses.
pub fn threads() -> Option<usize> {
    let mut text = [0_u8; 512];
    let file = calls::open(b"/proc/self/stat\0", 0);
    if calls::failed(file) {
        return None;
    }
    let length = calls::read(file as usize, &mut text);
    calls::close(file as usize);
    let text = text.get(..usize::try_from(length).ok()?)?;
    let name_ends = text.iter().rposition(|byte| *byte == b')')?;
    text.get(name_ends + 2..)?
        .split(|byte| *byte == b' ')
        .nth(17)
        .and_then(number)
}
