//! What a fork means for larger pages.
//!
//! Transparent pages: nothing is done. The kernel shares them; while both processes live, a write
//! copies one base page, and the block is on base pages from then on for whoever wrote. The
//! child only opens locks that another thread may have held.
//!
//! Private reserved pages: when the pool is short at a write to a shared page, the kernel takes
//! the page from the child, which dies of SIGBUS. So before a process forks it leaves its
//! reserved pages: their content moves to transparent pages at the same addresses. That is
//! possible only while no other thread can write; with more threads `fork` is refused.
//!
//! A process leaves them for good, so that it can fork again whatever threads it has by then.
//! Where nothing but reserved pages will do (`--data hugetlb:2M!`), that would leave it without any
//! memory: there, what it takes after a fork comes from the pool again, and each fork moves what
//! came since the last one.
//!
//! # Safety
//!
//! Copies memory and puts the copy in its place while the process has one thread.

#![allow(unsafe_code)]

use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use crate::calls;
use crate::settings::number;
use crate::state;
use crate::{elf, heap, judge, pool, say, sweep, window};

/// `__register_atfork` of libc, where it was found.
static REGISTER: AtomicUsize = AtomicUsize::new(0);
static WATCHED: AtomicBool = AtomicBool::new(false);

type Handler = extern "C" fn();
type Register = extern "C" fn(Option<Handler>, Option<Handler>, Option<Handler>, usize) -> i32;

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
    // Forks inside libc come here only, and cannot be refused any more.
    if heap::may_use_pools() && threads() == Some(1) && !leave_pools() {
        say_not_left();
    }
}

/// Libc's `fork`, where it was found.
static FORK: AtomicUsize = AtomicUsize::new(0);

pub fn libc_fork(function: usize) {
    FORK.store(function, Relaxed);
}

/// Libc's own `fork`; `None` where this libc has none.
pub fn fork() -> Option<i32> {
    let function = match FORK.load(Relaxed) {
        0 => elf::process().any_libc?.symbol(b"fork")?.0,
        known => known,
    };
    // SAFETY: `fork` has no arguments and returns an int.
    let function: extern "C" fn() -> i32 = unsafe { core::mem::transmute(function) };
    Some(function())
}

/// Whether a fork must be refused: reserved pages are private, and other threads write to them, or
/// there is no memory to move them to.
pub fn must_refuse() -> bool {
    if !heap::may_use_pools() {
        return false;
    }
    if threads() != Some(1) {
        say::once(&[
            b"fork refused: private memory is on reserved pages and other threads use it; \
            use --data thp",
        ]);
        return true;
    }
    let refused = !leave_pools();
    if refused {
        say_not_left();
    }
    refused
}

fn say_not_left() {
    say::once(&[b"fork: no memory to move private memory to from reserved pages; use --data thp"]);
}

/// Moves what is on reserved pages to transparent ones. Whether none is left there.
fn leave_pools() -> bool {
    // SAFETY: one thread, as the callers made sure of.
    pool::leave() && unsafe { heap::leave_pools() }
}

/// Whether nobody else runs in this process's memory: no thread, and no process that shares it.
/// Where neither the kernel nor `/proc` tells, it is not known to be alone.
pub fn alone() -> bool {
    match calls::unshare_memory() {
        0 => true,
        calls::EINVAL => false,
        _ => threads() == Some(1),
    }
}

/// Threads of this process: field 20 of `/proc/self/stat`, behind the name in parentheses.
pub fn threads() -> Option<usize> {
    let mut text = [0_u8; 512];
    let text = calls::read_file(b"/proc/self/stat\0", &mut text)?;
    let name_ends = text.iter().rposition(|byte| *byte == b')')?;
    text.get(name_ends + 2..)?
        .split(|byte| *byte == b' ')
        .nth(17)
        .and_then(number)
}
