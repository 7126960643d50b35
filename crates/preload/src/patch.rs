//! Puts a jump at the entry of a function of libc, so that libc's own calls come here as well:
//! malloc and thread stacks do not go through names that a library loaded earlier could take.
//!
//! The functions are wrappers of one system call, and what stands here replaces them wholly: no
//! instruction of theirs is run any more, so none has to be moved.
//!
//! The changed pages are put together in a sealed file in memory, which is then mapped over libc's
//! own: one step for other threads, no page is ever both writable and executable
//! (`MemoryDenyWriteExecute=`), and kernels that refuse writes through `/proc/self/mem`
//! (CONFIG_PROC_MEM_FORCE_PTRACE) have no part in it. Where such files may not be executed
//! (`vm.memfd_noexec=2`, a policy), the jumps are written through `/proc/self/mem`, as a debugger's
//! breakpoint is; that is not one step, so only while there is one thread.
//!
//! # Safety
//!
//! Changes code. Done in the constructor, while none runs in libc's wrappers; the length of each
//! function is checked first.

#![allow(unsafe_code)]

use crate::calls::{self, flag};
use crate::elf::Object;
use crate::{fork, state};

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
    /// Neither way of changing code is allowed here.
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

/// Replaces all of the functions, or none: where the second half of it is refused, what was
/// replaced makes the program's own calls (the caller sets [`state::IDLE`]).
///
/// # Safety
///
/// In the constructor only; each `to` must do what the function did.
pub unsafe fn replace(libc: &Object, replacements: &[Replacement; 5]) -> Result<(), Refusal> {
    if JUMP.is_empty() {
        return Err(Refusal::Unknown);
    }
    let mut jumps = [Jump { entry: 0, to: 0 }; 5];
    for (jump, replacement) in jumps.iter_mut().zip(replacements) {
        // SAFETY: libc is loaded.
        jump.entry = unsafe { entry_of(libc, replacement.name)? };
        jump.to = replacement.to;
    }
    // SAFETY: `entry_of` saw that each function is long enough.
    if unsafe { map_over(&jumps) }.is_some() {
        return Ok(());
    }
    if fork::threads() != Some(1) {
        return Err(Refusal::Denied);
    }
    // SAFETY: the same, and this is the only thread.
    unsafe { write_into(&jumps) }
}

/// A jump from the entry of a function.
#[derive(Clone, Copy)]
struct Jump {
    entry: usize,
    to: usize,
}

/// The pages that jumps lie in: start and end of each run of neighbours, in order; empty ones last.
/// A run is as short as can be: tools find no names for code in it.
fn runs_of(jumps: &[Jump; 5], base: usize) -> Option<[(usize, usize); 5]> {
    let mut sorted = *jumps;
    sorted.sort_unstable_by_key(|jump| jump.entry);
    let mut runs = [(0, 0); 5];
    let mut count = 0;
    for jump in &sorted {
        let start = state::down(jump.entry, base);
        let end = state::up(jump.entry + LONGEST, base)?;
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

/// Maps changed copies over the pages of libc; `None` where that is not allowed, and then nothing
/// was changed, unless memory for the kernel's own structures ran out in between.
///
/// # Safety
///
/// Functions at the entries must be as long as a jump, and a jump must do what they do.
unsafe fn map_over(jumps: &[Jump; 5]) -> Option<()> {
    let runs = runs_of(jumps, state::settings().base)?;
    let length: usize = runs.iter().map(|(start, end)| end - start).sum();
    // A longer file than this ends the process by a signal.
    if calls::soft_limit(FILE_SIZE)? < length {
        return None;
    }
    let file = calls::executable_file(c"hugeleaf-libc");
    if calls::failed(file) {
        return None;
    }
    let file = file as usize;
    // SAFETY: by the caller.
    let mapped = unsafe { fill(file, &runs, jumps).and_then(|()| map_all(file, &runs)) };
    calls::close(file);
    mapped
}

/// `RLIMIT_FSIZE`.
const FILE_SIZE: usize = 1;

/// Copies the pages into the file, puts the jumps there, and seals it.
unsafe fn fill(file: usize, runs: &[(usize, usize); 5], jumps: &[Jump; 5]) -> Option<()> {
    let mut offset = 0;
    for (start, end) in runs.iter().copied().filter(|(start, end)| start < end) {
        let length = end - start;
        // SAFETY: libc's code; where it cannot be read the kernel says so.
        let code = unsafe { core::slice::from_raw_parts(start as *const u8, length) };
        if calls::write(file, code) != length as isize {
            return None;
        }
        for inside in jumps
            .iter()
            .filter(|jump| (start..end).contains(&jump.entry))
        {
            let at = offset + inside.entry - start;
            // SAFETY: a file that nobody maps yet.
            if unsafe { calls::pwrite(file, &jump(inside.to), at) } != LONGEST as isize {
                return None;
            }
        }
        offset += length;
    }
    (!calls::failed(calls::seal(file))).then_some(())
}

unsafe fn map_all(file: usize, runs: &[(usize, usize); 5]) -> Option<()> {
    let code = flag::READ | flag::EXEC;
    let length: usize = runs.iter().map(|(start, end)| end - start).sum();
    // Anywhere first: a policy that refuses it must not do so halfway.
    // SAFETY: a new mapping, which is taken away again.
    unsafe {
        let trial = calls::mmap_file(0, length, code, flag::PRIVATE, file, 0);
        if calls::failed(trial) {
            return None;
        }
        calls::munmap(trial as usize, length);
    }
    let mut offset = 0;
    for (start, end) in runs.iter().copied().filter(|(start, end)| start < end) {
        let (length, how) = (end - start, flag::PRIVATE | flag::FIXED);
        // SAFETY: the same code as was there, but for the jumps; the kernel changes it in one step.
        let at = unsafe { calls::mmap_file(start, length, code, how, file, offset) };
        if calls::failed(at) {
            return None;
        }
        offset += length;
    }
    Some(())
}

/// Writes the jumps through `/proc/self/mem`.
///
/// # Safety
///
/// As of [`map_over`], and no other thread may run.
unsafe fn write_into(jumps: &[Jump; 5]) -> Result<(), Refusal> {
    set_apart(jumps);
    let file = calls::open(b"/proc/self/mem\0", calls::READ_WRITE);
    if calls::failed(file) {
        return Err(Refusal::Denied);
    }
    let file = file as usize;
    let mut written = 0;
    let mut before = [[0_u8; LONGEST]; 5];
    for (each, before) in jumps.iter().zip(&mut before) {
        // SAFETY: by the caller that many bytes can be read.
        unsafe { copy(each.entry, before) };
        // SAFETY: nothing runs there now; afterwards calls go to the replacement.
        if unsafe { calls::pwrite(file, &jump(each.to), each.entry) } != LONGEST as isize {
            break;
        }
        written += 1;
    }
    if written < jumps.len() {
        for (each, before) in jumps.iter().zip(&before).take(written) {
            // SAFETY: what was there before.
            unsafe { calls::pwrite(file, before, each.entry) };
        }
    }
    calls::close(file);
    if written < jumps.len() {
        Err(Refusal::Denied)
    } else {
        Ok(())
    }
}

/// Makes the pages that are written a mapping of their own, by an advice that nothing else has.
/// A mapping with a single private page is copied at every fork, page by page: all of libc's
/// text would be, and a fork took a tenth longer.
fn set_apart(jumps: &[Jump; 5]) {
    let base = state::settings().base;
    let first = jumps.iter().map(|j| j.entry).fold(usize::MAX, usize::min);
    let last = jumps.iter().map(|j| j.entry).fold(0, usize::max) + LONGEST;
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
