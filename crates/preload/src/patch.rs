//! Writes jumps at the entries of libc functions, so that libc's own calls come here too.
//! Malloc and thread stacks do not call through names that a preloaded library could interpose.
//!
//! The functions are wrappers of one system call and are replaced completely. None of their
//! instructions runs any more, so none has to be moved.
//!
//! A jump overwrites several instructions. A thread that was interrupted between them, or is in a
//! system call of one of them, would continue in the middle of the jump, however it is written. So
//! code is changed only while no other thread runs in this memory: [`crate::start`] counts first.
//!
//! The pages are written in place: made writable and not executable, then executable and not
//! writable again. That costs least, and tools still find libc's names. If code may not become
//! executable again (`MemoryDenyWriteExecute=`, a policy), changed copies of the pages are mapped
//! over libc's own from a sealed file in memory. If such files may not be executed either
//! (`vm.memfd_noexec=2`), the jumps are written through `/proc/self/mem`, as by a debugger.
//!
//! # Safety
//! Changes code. Done in the constructor, while no other thread runs in this memory; the length of
//! each function is checked first.

#![allow(unsafe_code)]

use crate::elf::LoadedObject;
use crate::state;
use crate::syscalls::{self, flag};

/// A function to replace: its name in libc, and the new target of its calls.
pub struct FunctionReplacement(pub &'static [u8], pub usize);

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum PatchRefusal {
    /// Another copy of this library was loaded before.
    Already,
    /// Libc does not have such a function, or it is too short.
    Unknown,
    Denied,
}

#[cfg(target_arch = "x86_64")]
const JUMP: &[u8] = &[0xff, 0x25, 0, 0, 0, 0];
#[cfg(target_arch = "aarch64")]
const JUMP: &[u8] = &[0x50, 0, 0, 0x58, 0, 0x02, 0x1f, 0xd6];
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const JUMP: &[u8] = &[];

/// The marker at a function's entry that indirect calls require, which must stay: `endbr64`, `bti
/// c`.
#[cfg(target_arch = "aarch64")]
const LANDING: &[u8] = &[0x5f, 0x24, 0x03, 0xd5];
#[cfg(not(target_arch = "aarch64"))]
const LANDING: &[u8] = &[0xf3, 0x0f, 0x1e, 0xfa];

const LONGEST: usize = JUMP.len() + 8;

/// Replaces all of the functions, or none. On an error, functions already replaced make the
/// program's own calls (the caller sets [`state::IDLE`]).
///
/// # Safety
/// In the constructor only, while no other thread runs in this memory; each `to` must do what the
/// function did.
pub unsafe fn replace(
    libc: &LoadedObject,
    replacements: &[FunctionReplacement; 5],
) -> Result<(), PatchRefusal> {
    if JUMP.is_empty() {
        return Err(PatchRefusal::Unknown);
    }
    let mut jumps = [Jump { entry: 0, to: 0 }; 5];
    for (jump, FunctionReplacement(name, to)) in jumps.iter_mut().zip(replacements) {
        // SAFETY: libc is loaded.
        jump.entry = unsafe { entry_of(libc, name)? };
        jump.to = *to;
    }
    // SAFETY: ensured by the caller; `entry_of` checked that each function is long enough.
    unsafe {
        if in_place(libc, &jumps).is_some() || map_over(&jumps).is_some() {
            return Ok(());
        }
        write_into(libc, &jumps)
    }
}

#[derive(Clone, Copy)]
struct Jump {
    entry: usize,
    to: usize,
}

/// Returns start and end of each run of adjacent pages with jumps, in order, with empty runs last.
/// Runs are minimal, because tools find no names for code in them.
fn runs_of(jumps: &[Jump; 5], base: usize) -> Option<[(usize, usize); 5]> {
    let mut sorted = *jumps;
    sorted.sort_unstable_by_key(|jump| jump.entry);
    let mut runs = [(0, 0); 5];
    let mut count = 0;
    for jump in &sorted {
        let start = state::round_down(jump.entry, base);
        let end = state::round_up(jump.entry + LONGEST, base)?;
        match runs.get_mut(..count).and_then(<[_]>::last_mut) {
            Some(last) if start <= last.1 => last.1 = end.max(last.1),
            _ => {
                *runs.get_mut(count)? = (start, end);
                count += 1;
            }
        }
    }
    Some(runs)
}

/// Returns the range of pages from the first to the last jump.
/// One separate mapping costs less than several.
fn span_of(libc: &LoadedObject, jumps: &[Jump; 5]) -> Option<(usize, usize)> {
    let base = state::settings().base;
    let first = jumps.iter().map(|j| j.entry).fold(usize::MAX, usize::min);
    let last = jumps.iter().map(|j| j.entry).fold(0, usize::max);
    let (start, end) = (
        state::round_down(first, base),
        state::round_up(last.checked_add(LONGEST)?, base)?,
    );
    let (from, to) = libc.text;
    (from <= start && end <= state::round_up(to, base)?).then_some((start, end))
}

/// Writes the jumps in place. `None` if that is not allowed, with nothing changed.
///
/// No function of libc may be called meanwhile, including `memcpy`: its pages are not executable.
///
/// # Safety
/// As for [`replace`].
unsafe fn in_place(libc: &LoadedObject, jumps: &[Jump; 5]) -> Option<()> {
    let (start, end) = span_of(libc, jumps)?;
    if syscalls::denies_write_execute() {
        return None;
    }
    let mut before = [[0_u8; LONGEST]; 5];
    // SAFETY: the caller ensures that no thread runs there, and the functions are as long as a jump.
    unsafe {
        let writable = syscalls::mprotect(start, end - start, flag::MEMORY);
        if syscalls::failed(writable) {
            return None;
        }
        for (each, before) in jumps.iter().zip(&mut before) {
            copy(each.entry, before);
            put(each.entry, &jump(each.to));
        }
        let code = flag::READ | flag::EXEC;
        if !syscalls::failed(syscalls::mprotect(start, end - start, code)) {
            return Some(());
        }
        for (each, before) in jumps.iter().zip(&before) {
            put(each.entry, before);
        }
        if load_again(libc, start, end).is_none() {
            syscalls::write(2, UNLOADED);
            syscalls::exit(125);
        }
    }
    None
}

/// The message if libc's code is lost, after which the process cannot continue.
const UNLOADED: &[u8] = b"hugeleaf: run: a policy of this host made libc's code unusable while it \
was changed\n  next: start the program without hugeleaf run\n";

/// Maps libc's code again from its file, as the loader did, over pages that cannot be made
/// executable any more. `None` if the file differs from the loaded code.
///
/// # Safety
/// The range is in libc's text and can be read; no thread runs there.
unsafe fn load_again(libc: &LoadedObject, start: usize, end: usize) -> Option<()> {
    let length = end - start;
    let file = syscalls::open(libc.file?.to_bytes_with_nul(), 0)?;
    let offset = libc.text_offset + (start - libc.text.0);
    let code = flag::READ | flag::EXEC;
    // SAFETY: a new mapping, which replaces the same bytes, or is unmapped again.
    unsafe {
        let fresh = syscalls::mmap_file(0, length, code, flag::PRIVATE, file, offset);
        syscalls::close(file);
        if syscalls::failed(fresh) {
            return None;
        }
        let fresh = fresh as usize;
        let how = flag::MAYMOVE | flag::MREMAP_FIXED;
        let put = same(fresh, start, length)
            && !syscalls::failed(syscalls::mremap(fresh, length, length, how, start));
        if !put {
            syscalls::munmap(fresh, length);
        }
        put.then_some(())
    }
}

/// Maps changed copies over the pages of libc. `None` if that is not allowed, with nothing changed
/// unless the kernel ran out of memory for its own structures in between.
///
/// # Safety
/// As for [`replace`].
unsafe fn map_over(jumps: &[Jump; 5]) -> Option<()> {
    let runs = runs_of(jumps, state::settings().base)?;
    let length: usize = runs.iter().map(|(start, end)| end - start).sum();
    // Writing a file beyond this limit ends the process by a signal.
    if syscalls::soft_limit(FILE_SIZE)? < length {
        return None;
    }
    let file = syscalls::executable_file(c"hugeleaf-libc");
    if syscalls::failed(file) {
        return None;
    }
    let file = file as usize;
    // SAFETY: ensured by the caller.
    let mapped = unsafe { fill(file, &runs, jumps).and_then(|()| map_all(file, &runs)) };
    syscalls::close(file);
    mapped
}

/// `RLIMIT_FSIZE`.
const FILE_SIZE: usize = 1;

/// Copies the pages into the file, adds the jumps, and seals it.
unsafe fn fill(file: usize, runs: &[(usize, usize); 5], jumps: &[Jump; 5]) -> Option<()> {
    let mut offset = 0;
    for (start, end) in runs.iter().copied().filter(|(start, end)| start < end) {
        let length = end - start;
        // SAFETY: libc's code; if it is unreadable, write(2) fails.
        let code = unsafe { core::slice::from_raw_parts(start as *const u8, length) };
        if syscalls::write(file, code) != length as isize {
            return None;
        }
        for inside in jumps
            .iter()
            .filter(|jump| (start..end).contains(&jump.entry))
        {
            let at = offset + inside.entry - start;
            // SAFETY: no process maps this file yet.
            if unsafe { syscalls::pwrite(file, &jump(inside.to), at) } != LONGEST as isize {
                return None;
            }
        }
        offset += length;
    }
    (!syscalls::failed(syscalls::seal(file))).then_some(())
}

unsafe fn map_all(file: usize, runs: &[(usize, usize); 5]) -> Option<()> {
    let code = flag::READ | flag::EXEC;
    let length: usize = runs.iter().map(|(start, end)| end - start).sum();
    // Try it at any address first: a policy that refuses it must not do so halfway.
    // SAFETY: a new mapping, which is unmapped again.
    unsafe {
        let trial = syscalls::mmap_file(0, length, code, flag::PRIVATE, file, 0);
        if syscalls::failed(trial) {
            return None;
        }
        syscalls::munmap(trial as usize, length);
    }
    let mut offset = 0;
    for (start, end) in runs.iter().copied().filter(|(start, end)| start < end) {
        let (length, how) = (end - start, flag::PRIVATE | flag::FIXED);
        // SAFETY: the same code except for the jumps; the kernel replaces it in one step.
        let at = unsafe { syscalls::mmap_file(start, length, code, how, file, offset) };
        if syscalls::failed(at) {
            return None;
        }
        offset += length;
    }
    Some(())
}

/// Writes the jumps through `/proc/self/mem`.
///
/// # Safety
/// As for [`replace`].
unsafe fn write_into(libc: &LoadedObject, jumps: &[Jump; 5]) -> Result<(), PatchRefusal> {
    set_apart(libc, jumps);
    let file =
        syscalls::open(b"/proc/self/mem\0", syscalls::READ_WRITE).ok_or(PatchRefusal::Denied)?;
    let mut written = 0;
    let mut before = [[0_u8; LONGEST]; 5];
    for (each, before) in jumps.iter().zip(&mut before) {
        // SAFETY: the caller ensures that the function is long enough.
        unsafe { copy(each.entry, before) };
        // SAFETY: no thread runs there now; later calls go to the replacement.
        if unsafe { syscalls::pwrite(file, &jump(each.to), each.entry) } != LONGEST as isize {
            break;
        }
        written += 1;
    }
    if written < jumps.len() {
        for (each, before) in jumps.iter().zip(&before).take(written) {
            // SAFETY: restores the previous bytes.
            unsafe { syscalls::pwrite(file, before, each.entry) };
        }
    }
    syscalls::close(file);
    if written < jumps.len() {
        Err(PatchRefusal::Denied)
    } else {
        Ok(())
    }
}

/// Makes the written pages a separate mapping, by an advice that no other pages have.
/// At every fork, a mapping with a single private page is copied page by page. For all of libc's
/// text, that made a fork a tenth slower.
fn set_apart(libc: &LoadedObject, jumps: &[Jump; 5]) {
    if let Some((start, end)) = span_of(libc, jumps) {
        syscalls::advise(start, end - start, syscalls::Advice::Random);
    }
}

/// Returns the address of the jump, after the landing marker if there is one.
///
/// # Safety
/// The object must be loaded.
unsafe fn entry_of(libc: &LoadedObject, name: &[u8]) -> Result<usize, PatchRefusal> {
    let (start, length) = libc.symbol(name).ok_or(PatchRefusal::Unknown)?;
    if length < LANDING.len() + LONGEST {
        return Err(PatchRefusal::Unknown);
    }
    let mut code = [0_u8; 4 + LONGEST];
    // SAFETY: the function is at least that long.
    unsafe { copy(start, &mut code) };
    let rest = code.strip_prefix(LANDING).unwrap_or(&code);
    match rest.starts_with(JUMP) {
        true => Err(PatchRefusal::Already),
        false => Ok(start + code.len() - rest.len()),
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
        // SAFETY: the caller ensures that the range is readable.
        *byte = unsafe { (from as *const u8).add(index).read_volatile() };
    }
}

/// Writes bytes one by one, without libc.
unsafe fn put(at: usize, bytes: &[u8]) {
    for (index, byte) in bytes.iter().enumerate() {
        // SAFETY: the caller ensures that the range is writable.
        unsafe { (at as *mut u8).add(index).write_volatile(*byte) };
    }
}

/// Returns true if two ranges have the same content, without libc.
unsafe fn same(one: usize, other: usize, length: usize) -> bool {
    (0..length).all(|index| {
        // SAFETY: the caller ensures that both ranges are readable.
        unsafe {
            (one as *const u8).add(index).read_volatile()
                == (other as *const u8).add(index).read_volatile()
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs(entries: [usize; 5]) -> [(usize, usize); 5] {
        let jumps = entries.map(|entry| Jump { entry, to: 0 });
        runs_of(&jumps, 0x100).unwrap()
    }

    #[test]
    fn pages_are_taken_once_and_neighbours_together() {
        let none = (0, 0);
        let one = (0x1000, 0x1100);
        assert_eq!(runs([0x1010; 5]), [one, none, none, none, none]);
        // The last jump reaches into the next page.
        assert_eq!(
            runs([0x3000, 0x1020, 0x1010, 0x10fc, 0x5000]),
            [
                (0x1000, 0x1200),
                (0x3000, 0x3100),
                (0x5000, 0x5100),
                none,
                none
            ]
        );
    }
}
