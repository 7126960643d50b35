//! A file for shared memory whose pages are huge from the first touch, whatever the host's knob
//! for shared memory says.
//!
//! `shmem_enabled` rules the kernel's own tmpfs, which anonymous shared memory is on; it is
//! `never` on a stock host. A tmpfs mount says for itself (`huge=`). So: a mount that is attached
//! nowhere, one file on it, unlinked. An ordinary user gets one in a user namespace of its own,
//! made in a child that shares the table of descriptors and ends at once.
//!
//! # Safety
//!
//! The child is a copy of one thread and makes system calls only.

#![allow(unsafe_code)]

use crate::calls::{self, flag};
use crate::say::{decimal, joined};

/// A file of that size, or `None` where this host allows neither way, or none is safe.
pub fn file(size: usize) -> Option<usize> {
    if counts_strictly() {
        return None;
    }
    let file = mounted_file().or_else(file_of_namespace)?;
    if calls::failed(calls::ftruncate(file, size)) {
        calls::close(file);
        return None;
    }
    Some(file)
}

/// Whether the kernel promises no more memory than there is (`vm.overcommit_memory` is 2). Then
/// shared anonymous memory is counted when it is mapped, and a touch never fails; of a file every
/// page is counted when it is touched, and where there is none left that is SIGBUS.
fn counts_strictly() -> bool {
    let mut text = [0_u8; 4];
    let known = calls::read_file(b"/proc/sys/vm/overcommit_memory\0", &mut text);
    known.is_some_and(|known| known.starts_with(b"2"))
}

fn mounted_file() -> Option<usize> {
    let system = calls::fsopen(c"tmpfs");
    if calls::failed(system) {
        return None;
    }
    let system = system as usize;
    // No size limit of its own: the kernel's accounting and the cgroup's limit stay.
    let options = [(c"huge", c"within_size"), (c"size", c"0")];
    let mut options = options.into_iter().map(Some).chain([None]);
    let mount = match options.all(|option| !calls::failed(calls::fsconfig(system, option))) {
        true => calls::fsmount(system),
        false => calls::EINVAL,
    };
    calls::close(system);
    if calls::failed(mount) {
        return None;
    }
    let file = calls::unlinked_file(mount as usize, c"hugeleaf-shm");
    calls::close(mount as usize);
    (!calls::failed(file)).then_some(file as usize)
}

fn file_of_namespace() -> Option<usize> {
    const NEW_USER: usize = 0x1000_0000;
    const NEW_MOUNTS: usize = 0x0002_0000;
    const SAME_FILES: usize = 0x0000_0400;
    let (user, group) = calls::user_and_group();
    let page = crate::state::settings().base;
    // To get the answer through.
    let answer = calls::map_new(page, flag::MEMORY, flag::SHARED)? as *mut usize;
    // SAFETY: the child makes system calls and ends.
    let child = unsafe { calls::clone(NEW_USER | NEW_MOUNTS | SAME_FILES) };
    if child == 0 {
        let file = become_root(user, group).then(mounted_file).flatten();
        // SAFETY: the page is shared with the parent, which waits.
        unsafe { answer.write_volatile(file.map_or(0, |file| file + 1)) };
        calls::exit(0);
    }
    let ended = child > 0 && calls::wait(child as usize) == Some(0);
    // SAFETY: mapped above; nobody writes any more.
    let file = unsafe { answer.read_volatile() };
    // SAFETY: mapped above.
    unsafe { calls::munmap(answer as usize, page) };
    if ended { file.checked_sub(1) } else { None }
}

/// In the new namespace this user is root, and nobody else exists (`user_namespaces(7)`).
fn become_root(user: usize, group: usize) -> bool {
    let (user, group) = (decimal(user), decimal(group));
    write_file(b"/proc/self/uid_map\0", &[b"0 ", user.text(), b" 1"])
        && write_file(b"/proc/self/setgroups\0", &[b"deny"])
        && write_file(b"/proc/self/gid_map\0", &[b"0 ", group.text(), b" 1"])
}

fn write_file(path: &[u8], parts: &[&[u8]]) -> bool {
    let mut line = [0_u8; 32];
    let line = joined(&mut line, parts);
    let Some(file) = calls::open(path, calls::WRITE_ONLY) else {
        return false;
    };
    let written = calls::write(file, line) == line.len() as isize;
    // The table of descriptors is the parent's too.
    calls::close(file);
    written
}
