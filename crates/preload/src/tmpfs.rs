//! A file for shared memory on huge pages from the first touch, independent of the host's setting
//! for shared memory.
//!
//! `shmem_enabled` controls the kernel's own tmpfs, which holds anonymous shared memory. It is
//! `never` on a stock host. Each tmpfs mount has its own setting (`huge=`). So this module creates
//! a detached mount with one unlinked file. An ordinary user gets one in a user namespace, created
//! in a child that shares the descriptor table and ends at once.
//!
//! # Safety
//! The child is a copy of one thread and makes system calls only.

#![allow(unsafe_code)]

use crate::messages::{decimal, joined};
use crate::syscalls::{self, flag};

/// Returns a file of that size, or `None` if this host allows neither way or none is safe.
pub fn file(size: usize) -> Option<usize> {
    if counts_strictly() {
        return None;
    }
    let file = mounted_file().or_else(file_of_namespace)?;
    if syscalls::failed(syscalls::ftruncate(file, size)) {
        syscalls::close(file);
        return None;
    }
    Some(file)
}

/// Returns true if the kernel does not overcommit memory (`vm.overcommit_memory` is 2).
/// Shared anonymous memory is then accounted when it is mapped, and touching it never fails. Pages
/// of a file are accounted when touched, which ends in SIGBUS without memory.
fn counts_strictly() -> bool {
    let mut text = [0_u8; 4];
    let known = syscalls::read_file(b"/proc/sys/vm/overcommit_memory\0", &mut text);
    known.is_some_and(|known| known.starts_with(b"2"))
}

fn mounted_file() -> Option<usize> {
    let system = syscalls::fsopen(c"tmpfs");
    if syscalls::failed(system) {
        return None;
    }
    let system = system as usize;
    // No size limit of the mount: the kernel's accounting and the cgroup's limit apply.
    let options = [(c"huge", c"within_size"), (c"size", c"0")];
    let mut options = options.into_iter().map(Some).chain([None]);
    let mount = match options.all(|option| !syscalls::failed(syscalls::fsconfig(system, option))) {
        true => syscalls::fsmount(system),
        false => syscalls::EINVAL,
    };
    syscalls::close(system);
    if syscalls::failed(mount) {
        return None;
    }
    let file = syscalls::unlinked_file(mount as usize, c"hugeleaf-shm");
    syscalls::close(mount as usize);
    (!syscalls::failed(file)).then_some(file as usize)
}

fn file_of_namespace() -> Option<usize> {
    const NEW_USER: usize = 0x1000_0000;
    const NEW_MOUNTS: usize = 0x0002_0000;
    const SAME_FILES: usize = 0x0000_0400;
    let (user, group) = syscalls::user_and_group();
    let page = crate::state::settings().base;
    // The page that returns the child's result.
    let answer = syscalls::map_new(page, flag::MEMORY, flag::SHARED)? as *mut usize;
    // SAFETY: the child makes system calls and ends.
    let child = unsafe { syscalls::clone(NEW_USER | NEW_MOUNTS | SAME_FILES) };
    if child == 0 {
        let file = become_root(user, group).then(mounted_file).flatten();
        // SAFETY: the page is shared with the parent, which waits.
        unsafe { answer.write_volatile(file.map_or(0, |file| file + 1)) };
        syscalls::exit(0);
    }
    let ended = child > 0 && syscalls::wait(child as usize) == Some(0);
    // SAFETY: mapped above; the child has ended.
    let file = unsafe { answer.read_volatile() };
    // SAFETY: mapped above.
    unsafe { syscalls::munmap(answer as usize, page) };
    if ended { file.checked_sub(1) } else { None }
}

/// Maps this user to root in the new namespace, where no other user exists (`user_namespaces(7)`).
fn become_root(user: usize, group: usize) -> bool {
    let (user, group) = (decimal(user), decimal(group));
    write_file(b"/proc/self/uid_map\0", &[b"0 ", user.text(), b" 1"])
        && write_file(b"/proc/self/setgroups\0", &[b"deny"])
        && write_file(b"/proc/self/gid_map\0", &[b"0 ", group.text(), b" 1"])
}

fn write_file(path: &[u8], parts: &[&[u8]]) -> bool {
    let mut line = [0_u8; 32];
    let line = joined(&mut line, parts);
    let Some(file) = syscalls::open(path, syscalls::WRITE_ONLY) else {
        return false;
    };
    let written = syscalls::write(file, line) == line.len() as isize;
    // Close it, because the parent shares the descriptor table.
    syscalls::close(file);
    written
}
