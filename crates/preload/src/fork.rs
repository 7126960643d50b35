//! Effects of a fork on huge pages.
//!
//! For THP, nothing is done. The kernel shares them. While both processes live, a write copies one
//! base page, and the writer's block is on base pages from then on. The child only releases locks
//! that another thread may have held.
//!
//! For private hugetlb pages, if the pool is exhausted at a write to a shared page, the kernel
//! takes the page from the child, which is killed by SIGBUS. So a process leaves its hugetlb pages
//! before it forks: their content moves to THP at the same addresses. That is possible only while
//! no other thread can write. With more threads, `fork` is refused.
//!
//! A process leaves them permanently, so that it can fork again with any number of threads. If only
//! hugetlb pages are acceptable (`--data hugetlb:2M!`), it would get no more memory. In that case,
//! memory requested after a fork comes from the pool again, and each fork moves the memory added
//! since the last one.
//!
//! # Safety
//! Copies memory and replaces the original by the copy while the process has one thread.

#![allow(unsafe_code)]

use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use crate::settings::number;
use crate::state;
use crate::syscalls;
use crate::{density, elf, heap, mapping_window, messages, private_hugetlb, promote_existing};

type AtforkHandler = extern "C" fn();
type RegisterAtforkFn = extern "C" fn(
    Option<AtforkHandler>,
    Option<AtforkHandler>,
    Option<AtforkHandler>,
    usize,
) -> i32;

/// Registers handlers for each fork. Call it in the constructor: libc holds the lock of its handler
/// list while it waits for malloc's, so a call from inside malloc would deadlock.
pub fn watch(libc: &elf::LoadedObject) {
    let Some((register, _)) = libc.symbol(b"__register_atfork") else {
        return;
    };
    // SAFETY: the function of glibc with that name has these arguments.
    let register: RegisterAtforkFn = unsafe { core::mem::transmute(register) };
    register(Some(before), None, Some(in_child), 0);
}

extern "C" fn in_child() {
    state::LOCK.reopen();
    promote_existing::LOCK.reopen();
    mapping_window::leave();
    density::leave();
}

extern "C" fn before() {
    // Forks inside libc run only this handler, and can no longer be refused.
    if heap::may_use_pools() && threads() == Some(1) {
        move_off_pools();
    }
}

/// Address of libc's `fork`, if found.
static FORK: AtomicUsize = AtomicUsize::new(0);

pub fn libc_fork(function: usize) {
    FORK.store(function, Relaxed);
}

/// Calls libc's own `fork`. `None` if this libc has none.
pub fn fork() -> Option<i32> {
    let function = match FORK.load(Relaxed) {
        0 => elf::process().any_libc?.symbol(b"fork")?.0,
        known => known,
    };
    // SAFETY: `fork` has no arguments and returns an int.
    let function: extern "C" fn() -> i32 = unsafe { core::mem::transmute(function) };
    Some(function())
}

/// Returns true if a fork must be refused: private memory is on hugetlb pages, and either other
/// threads write to it or no memory is available to move it to.
pub fn must_refuse() -> bool {
    if !heap::may_use_pools() {
        return false;
    }
    if threads() != Some(1) {
        messages::once(&[
            b"fork refused: private memory is on reserved pages and other threads use it; \
            use --data thp",
        ]);
        return true;
    }
    !move_off_pools()
}

/// Moves memory from hugetlb pages to THP. Returns true if none is left, and says so otherwise.
fn move_off_pools() -> bool {
    // SAFETY: one thread, as ensured by the callers.
    let is_moved = private_hugetlb::move_off_pool() && unsafe { heap::move_off_pools() };
    if !is_moved {
        messages::once(&[
            b"fork: no memory to copy private memory off reserved pages; use --data thp",
        ]);
    }
    is_moved
}

/// Returns true if no other thread and no other process shares this process's memory.
/// False if neither the kernel nor `/proc` tells.
pub fn is_memory_unshared() -> bool {
    match syscalls::unshare_memory() {
        0 => true,
        syscalls::EINVAL => false,
        _ => threads() == Some(1),
    }
}

/// Returns the number of threads of this process: field 20 of `/proc/self/stat`, behind the name in
/// parentheses.
pub fn threads() -> Option<usize> {
    let mut text = [0_u8; 512];
    let text = syscalls::read_file(b"/proc/self/stat\0", &mut text)?;
    let name_ends = text.iter().rposition(|byte| *byte == b')')?;
    text.get(name_ends + 2..)?
        .split(|byte| *byte == b' ')
        .nth(17)
        .and_then(number)
}
