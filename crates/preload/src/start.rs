//! The constructor. Glibc's loader calls it before those of all other libraries and of the program
//! (`-z initfirst`), so there is one thread. This is checked, because another library may also ask
//! to be first, and start threads. This library then stays inactive.
//!
//! # Safety
//! Reads the arguments and the environment as the loader of glibc passes them to constructors: only
//! after glibc was found in the process.

#![allow(unsafe_code)]

use crate::elf::{self, LoadedObject};
use crate::patch::{FunctionReplacement, PatchRefusal, replace};
use crate::settings::LaunchSettings;
use crate::{
    fork, heap, heap_reserve, hooks, messages, process_size_threshold, stack, state, syscalls,
    text_segment,
};
use core::ffi::{CStr, c_char};

/// Runs the constructor's work.
///
/// # Safety
/// Call it once by the dynamic loader, with the arguments that it passes to constructors.
/// `mprotect_entry` must pass its return address on to `hooks::mprotect`.
pub unsafe fn start(environment: *const *const c_char, mprotect_entry: usize) {
    let process = elf::process();
    let Some(libc) = process.libc.filter(|_| !process.sanitized) else {
        return;
    };
    // SAFETY: glibc passes the environment to constructors.
    let Some(settings) = (unsafe { from_environment(environment) }) else {
        return;
    };
    // SAFETY: glibc's environment is followed by the auxiliary vector.
    if !settings.only.is_empty() && !settings.are_for(unsafe { executable(environment) }) {
        return;
    }
    if !fork::is_memory_unshared() {
        messages::once(&[b"not active: threads were started before libc's code could be changed"]);
        return;
    }
    // SAFETY: the only thread.
    unsafe { state::set(settings) };
    // SAFETY: the only thread.
    if unsafe { attach(&libc, mprotect_entry) }.is_some() {
        heaps(&libc, &process, environment);
    } else {
        // SAFETY: the only thread.
        unsafe { state::set(state::IDLE) };
    }
}

const NAME: &[u8] = b"HUGELEAF_RUN=";

/// Reads the settings of `run` from the environment.
unsafe fn from_environment(environment: *const *const c_char) -> Option<LaunchSettings<'static>> {
    // SAFETY: ensured by the caller.
    let mut texts = unsafe { texts(environment) };
    let (_, text) = texts.find(|(_, text)| text.starts_with(NAME))?;
    // SAFETY: runs in the constructor, and the text is kept once.
    let settings = unsafe { state::keep(text, NAME.len()) }.and_then(LaunchSettings::parse);
    if settings.is_none() {
        messages::once(&[b"not active: HUGELEAF_RUN is damaged or of another version"]);
    }
    settings
}

/// Returns the texts of the environment with their addresses.
///
/// # Safety
/// It must be the one that the loader passed: a list that ends in a null pointer.
unsafe fn texts(
    environment: *const *const c_char,
) -> impl Iterator<Item = (*const c_char, &'static [u8])> {
    // SAFETY: ensured by the caller; nothing after the null pointer is read.
    let all = (0..).map(move |index| unsafe { *environment.add(index) });
    let all = all.take_while(|text| !text.is_null());
    // SAFETY: ensured by the caller.
    all.map(|text| (text, unsafe { CStr::from_ptr(text) }.to_bytes()))
}

/// Returns the base name of the executed file (`getauxval(3)`, `AT_EXECFN`).
unsafe fn executable(environment: *const *const c_char) -> &'static [u8] {
    const FILE_NAME: usize = 31;
    // SAFETY: the auxiliary vector follows the environment, and ends in an entry of kind 0.
    unsafe {
        let behind = environment.add(texts(environment).count() + 1);
        let mut entry = behind.cast::<[usize; 2]>();
        while (*entry)[0] != 0 {
            if (*entry)[0] == FILE_NAME {
                let name: &'static CStr = CStr::from_ptr((*entry)[1] as *const c_char);
                return elf::file_name(name.to_bytes());
            }
            entry = entry.add(1);
        }
    }
    b""
}

unsafe fn attach(libc: &LoadedObject, mprotect_entry: usize) -> Option<()> {
    let unknown = || messages::once(&[b"not active: this libc is unknown"]);
    let Some((curbrk, _)) = libc.symbol(b"__curbrk") else {
        unknown();
        return None;
    };
    state::set_libc(libc.text, curbrk);
    if let Some((function, _)) = libc.symbol(b"fork") {
        fork::libc_fork(function);
    }
    let replacements = [
        FunctionReplacement(b"mmap", hooks::mmap as *const () as usize),
        FunctionReplacement(b"munmap", hooks::munmap as *const () as usize),
        FunctionReplacement(b"mprotect", mprotect_entry),
        FunctionReplacement(b"mremap", hooks::mremap as *const () as usize),
        FunctionReplacement(b"brk", hooks::brk as *const () as usize),
    ];
    // SAFETY: runs in the constructor, in the only thread; each does what libc's function does.
    match unsafe { replace(libc, &replacements) } {
        Ok(()) => Some(()),
        Err(PatchRefusal::Already) => None,
        Err(PatchRefusal::Unknown) => {
            unknown();
            None
        }
        Err(PatchRefusal::Denied) => {
            messages::once(&[b"not active: this host forbids changing code in place, by a memory file and by /proc/self/mem"]);
            None
        }
    }
}

fn heaps(libc: &LoadedObject, process: &elf::ProcessImage, environment: *const *const c_char) {
    let settings = state::settings();
    if settings.data.pools[0] != 0 {
        begin_pool_heap(libc);
    }
    process_size_threshold::start();
    if settings.data.wanted() {
        fork::watch(libc);
    }
    if settings.reserve != 0 {
        large_chunks_from_the_heap(libc);
        heap_reserve::take();
        // SAFETY: the only thread; the environment that was passed.
        unsafe { forget_reserve(environment) };
    }
    if settings.stack.thp {
        stack::of_first_thread();
    }
    if settings.touch && settings.data.wanted() {
        own_variables(&process.data);
    }
    if settings.text.thp && settings.pmd != 0 && !text_segment::move_all(&process.text) {
        text_segment::not_moved();
    }
}

/// Removes the reserve from the environment by zeroing the digits of `reserve=`, because it is not
/// meant for child programs.
unsafe fn forget_reserve(environment: *const *const c_char) {
    let key = b";reserve=";
    // SAFETY: ensured by the caller.
    let texts = unsafe { texts(environment) };
    for (at, text) in texts.filter(|(_, text)| text.starts_with(NAME)) {
        let Some(found) = text.windows(key.len()).position(|part| part == key) else {
            continue;
        };
        // SAFETY: the text ends in a zero, and can be written.
        unsafe {
            let mut digit = at.cast_mut().cast::<u8>().add(found + key.len());
            while (*digit).is_ascii_digit() {
                *digit = b'0';
                digit = digit.add(1);
            }
        }
    }
}

/// Advises large arrays of the program itself before they are touched.
fn own_variables(ranges: &[(usize, usize); 4]) {
    let settings = state::settings();
    for (start, end) in ranges {
        if end - start >= settings.data_after && settings.pmd != 0 {
            let start = state::round_down(*start, settings.base);
            let length = state::round_down(*end - start, settings.base);
            syscalls::advise(start, length, syscalls::Advice::HugePage);
        }
    }
}

fn begin_pool_heap(libc: &LoadedObject) {
    const ADDRESS_SPACE: usize = 9;
    let Some(memory) = syscalls::memory() else {
        return;
    };
    // The reservation counts for a limit on addresses: leave half of it for everything else.
    let limit = syscalls::soft_limit(ADDRESS_SPACE).unwrap_or(usize::MAX);
    let mut size = memory.min(limit / 2);
    let least = state::settings().pmd.max(state::settings().base);
    while !heap::begin_own(size) {
        size /= 2;
        if size < least {
            // The heap stays at its place. If only hugetlb pages are acceptable, it does not grow,
            // and malloc must not use mappings instead.
            if state::settings().data.hugetlb_only() {
                large_chunks_from_the_heap(libc);
            }
            return;
        }
    }
    large_chunks_from_the_heap(libc);
}

/// Makes malloc take chunks of up to 32M from the heap instead of separate mappings (`mallopt(3)`,
/// the largest threshold that it accepts).
fn large_chunks_from_the_heap(libc: &LoadedObject) {
    const MMAP_THRESHOLD: i32 = -3;
    const TRIM_THRESHOLD: i32 = -1;
    const ARENA_MAX: i32 = -8;
    const LARGEST: i32 = 32 << 20;
    if let Some((mallopt, _)) = libc.symbol(b"mallopt") {
        // SAFETY: the function of glibc with that name has these arguments.
        let mallopt: extern "C" fn(i32, i32) -> i32 = unsafe { core::mem::transmute(mallopt) };
        mallopt(MMAP_THRESHOLD, LARGEST);
        // Twice that, as glibc does by default. With less, a heap split by another caller's `sbrk`
        // is trimmed by memory just taken for a large chunk, and malloc fails.
        mallopt(TRIM_THRESHOLD, 2 * LARGEST);
        // Heaps of threads are mappings, but hugetlb pages belong to the heap.
        if state::settings().data.hugetlb_only() {
            mallopt(ARENA_MAX, 1);
        }
    }
}
