//! Puts a jump at the entry of a function of libc, so that libc's own calls come here as well:
//! malloc and thread stacks do not go through names that a library loaded earlier could take.
//!
//! The functions are wrappers of one system call, and what stands here replaces them wholly: no
//! instruction of theirs is run any more, so none has to be moved. The write goes through
//! `/proc/self/mem`, as a debugger's breakpoint does: rights of the page never change, so a
//! process that may not make memory executable (`MemoryDenyWriteExecute=`) is fine, and a write
//! that is refused leaves everything as it was.
//!
//! # Safety
//!
//! Changes code. Done in the constructor, while there is one thread and none runs in libc's
//! wrappers; the length of each function is checked first.

#![allow(unsafe_code)]

use crate::calls;
use crate::elf::Object;
use crate::state;

/// One function to replace.
pub struct Replacement {
    /// Its name in libc.
    pub name: &'static [u8],
    /// Where calls of it are to go.
    pub to: usize,
}

/// Why nothing was replaced.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// Another copy of this library was here before.
    Already,
    /// Libc does not have such a function, or it is too short.
    Unknown,
    /// `/proc/self/mem` cannot be written.
    Denied,
}

#[cfg(target_arch = "x86_64")]
const JUMP: &[u8] = &[0xff, 0x25, 0, 0, 0, 0];
#[cfg(target_arch = "aarch64")]
const JUMP: &[u8] = &[0x50, 0, 0, 0x58, 0, 0x02, 0x1f, 0xd6];
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const JUMP: &[u8] = &[];

/// What marks the entry of a function that may be jumped to, and must stay: `endbr64`, `bti c`.
#[cfg(target_arch = "aarch64")]
const LANDING: &[u8] = &[0x5f, 0x24, 0x03, 0xd5];
#[cfg(not(target_arch = "aarch64"))]
const LANDING: &[u8] = &[0xf3, 0x0f, 0x1e, 0xfa];

const LONGEST: usize = JUMP.len() + 8;

/// Replaces all of the functions, or none.
///
/// # Safety
///
/// In the constructor only, while there is one thread; each `to` must do what the function did.
pub unsafe fn replace(libc: &Object, replacements: &[Replacement; 5]) -> Result<(), Refusal> {
    if JUMP.is_empty() {
        return Err(Refusal::Unknown);
    }
    let mut entries = [0_usize; 5];
    for (entry, replacement) in entries.iter_mut().zip(replacements) {
        // SAFETY: libc is loaded.
        *entry = unsafe { entry_of(libc, replacement.name)? };
    }
    set_apart(&entries);
    let file = calls::open(b"/proc/self/mem\0", calls::READ_WRITE);
    if calls::failed(file) {
        return Err(Refusal::Denied);
    }
    let file = file as usize;
    let mut written = 0;
    let mut before = [[0_u8; LONGEST]; 5];
    for ((entry, replacement), before) in entries.iter().zip(replacements).zip(&mut before) {
        // SAFETY: `entry_of` saw that the function is that long.
        unsafe { copy(*entry, before) };
        // SAFETY: nothing runs there now; afterwards calls go to the replacement.
        if unsafe { calls::pwrite(file, &jump(replacement.to), *entry) } != LONGEST as isize {
            break;
        }
        written += 1;
    }
    if written < entries.len() {
        for (entry, before) in entries.iter().zip(&before).take(written) {
            // SAFETY: what was there before.
            unsafe { calls::pwrite(file, before, *entry) };
        }
    }
    calls::close(file);
    if written < entries.len() {
        Err(Refusal::Denied)
    } else {
        Ok(())
    }
}

/// Makes the pages that are written a mapping of their own, by an advice that nothing else has.
/// A mapping with a single private page is copied at every fork, page by page: all of libc's
/// text would be, and a fork took a tenth longer.
fn set_apart(entries: &[usize; 5]) {
    let base = state::settings().base;
    let first = entries.iter().copied().fold(usize::MAX, usize::min);
    let last = entries.iter().copied().fold(0, usize::max) + LONGEST;
    if let Some(end) = state::up(last, base) {
        let start = state::down(first, base);
        calls::advise(start, end - start, calls::Advice::Random);
    }
}

/// Where the jump goes: behind the landing mark, where there is one.
///
/// # Safety
///
/// The object must be loaded.
unsafe fn entry_of(libc: &Object, name: &[u8]) -> Result<usize, Refusal> {
    let (start, length) = libc.symbol(name).ok_or(Refusal::Unknown)?;
    if length < LANDING.len() + LONGEST {
        return Err(Refusal::Unknown);
    }
    let mut code = [0_u8; 4 + LONGEST];
    // SAFETY: the function is at least that long.
    unsafe { copy(start, &mut code) };
    let marked = code.starts_with(LANDING);
    let entry = if marked { start + LANDING.len() } else { start };
    let rest = if marked {
        code.get(LANDING.len()..)
    } else {
        code.get(..)
    };
    match rest.is_some_and(|rest| rest.starts_with(JUMP)) {
        true => Err(Refusal::Already),
        false => Ok(entry),
    }
}

fn jump(to: usize) -> [u8; LONGEST] {
    let mut code = [0_u8; LONGEST];
    for (byte, from) in code.iter_mut().zip(JUMP.iter().chain(&to.to_le_bytes())) {
        *byte = *from;
    }
    code
}

unsafe fn copy(from: usize, to: &mut [u8]) {
    for (index, byte) in to.iter_mut().enumerate() {
        // SAFETY: by the caller that many bytes can be read there.
        *byte = unsafe { (from as *const u8).add(index).read_volatile() };
    }
}
