//! A file for shared memory whose pages are huge from the first touch, whatever the host's knob
//! for shared memory says.
//!
//! `shmem_enabled` rules the kernel's own tmpfs, which anonymous shared memory lies on; it is
//! `never` on a stock host. A tmpfs mount says for itself (`huge=`). So: a mount that is attached
//! nowhere, one file on it, unlinked. An ordinary user gets one in a user namespace of its own,
//! made in a child that shares the table of descriptors and ends at once.
//!
//! # Safety
//!
//! The child is a copy of one thread and makes system calls only.

#![allow(unsafe_code)]

use crate::calls::{self, flag};

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
    let file = calls::open(b"/proc/sys/vm/overcommit_memory\0", 0);
    if calls::failed(file) {
        return false;
    }
    let mut text = [0_u8; 4];
    calls::read(file as usize, &mut text);
    calls::close(file as usize);
    text[0] == b'2'
}

fn mounted_file() -> Option<usize> {
    let system = calls::fsopen(c"tmpfs");
    if calls::failed(system) {
        return None;
    }
    let system = system as usize;
    // No size limit of its own: the kernel's accounting and the cgroup's limit stay.
    let options = [(c"huge", c"within_size"), (c"size", c"0")];
    let made = options
        .iter()
        .all(|option| !calls::failed(calls::fsconfig(system, Some(*option))))
        && !calls::failed(calls::fsconfig(system, None));
    let mount = if made {
        calls::fsmount(system)
    } else {
        calls::EINVAL
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
    let rights = flag::READ | flag::WRITE;
    let page = crate::state::settings().base;
    // SAFETY: a page to get the answer through.
    let answer = unsafe { calls::mmap(0, page, rights, flag::SHARED | flag::ANONYMOUS) };
    if calls::failed(answer) {
        return None;
    }
    let answer = answer as *mut usize;
    // SAFETY: the child makes system calls and ends.
    let child = unsafe { calls::clone(NEW_USER | NEW_MOUNTS | SAME_FILES) };
    if child == 0 {
        let file = if become_root(user, group) {
            mounted_file()
        } else {
            None
        };
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
    write_file(b"/proc/self/uid_map\0", user)
        && {
            let file = calls::open(b"/proc/self/setgroups\0", calls::WRITE_ONLY);
            !calls::failed(file) && calls::write(file as usize, b"deny") == 4
        }
        && write_file(b"/proc/self/gid_map\0", group)
}

fn write_file(path: &[u8], id: usize) -> bool {
    let mut line = [0_u8; 32];
    let digits = decimal(id);
    let parts: [&[u8]; 3] = [b"0 ", digits.text(), b" 1"];
    let mut length = 0;
    for (to, byte) in line
        .iter_mut()
        .zip(parts.iter().flat_map(|part| part.iter()))
    {
        *to = *byte;
        length += 1;
    }
    let file = calls::open(path, calls::WRITE_ONLY);
    let Some(line) = line.get(..length) else {
        return false;
    };
    !calls::failed(file) && calls::write(file as usize, line) == length as isize
}

/// A number as text.
pub struct Decimal {
    digits: [u8; 20],
    start: usize,
}

/// A number as text.
pub fn decimal(mut value: usize) -> Decimal {
    let mut text = Decimal {
        digits: [b'0'; 20],
        start: 20,
    };
    for (index, digit) in text.digits.iter_mut().enumerate().rev() {
        *digit = b'0' + (value % 10) as u8;
        text.start = index;
        value /= 10;
        if value == 0 {
            break;
        }
    }
    text
}

impl Decimal {
    /// Its digits.
    pub fn text(&self) -> &[u8] {
        self.digits.get(self.start..).unwrap_or(b"")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_in_full() {
        assert_eq!(decimal(0).text(), b"0");
        assert_eq!(decimal(65534).text(), b"65534");
        assert_eq!(
            decimal(usize::MAX).text(),
            usize::MAX.to_string().as_bytes()
        );
    }
    use std::string::ToString;
}
