//! The root of the library that is loaded into programs: the modules of `lib.rs` and the entry
//! points. `crates/cli/build.rs` compiles it without the standard library and without libc.
//!
//! # Safety
//! Entry points are called by the dynamic loader and by the program, under their manuals' terms.
#![no_std]
#![allow(unsafe_code)]
#![allow(dead_code)]

mod arena;
mod atomic;
mod syscalls;
mod elf;
mod fork;
mod process_size_threshold;
mod heap;
mod hooks;
mod density;
mod maps;
mod mandatory;
mod mandatory_mmap;
mod patch;
mod shm_segments;
mod private_hugetlb;
mod exit_notice;
mod private_memory;
mod heap_reserve;
mod placement;
mod range_usage;
mod messages;
mod settings;
mod shared_memory;
mod stack;
mod start;
mod state;
mod promote_existing;
mod text_segment;
mod tmpfs;
mod mapping_window;

use core::arch::naked_asm;
use core::ffi::{c_char, c_int};

unsafe extern "C" {
    /// Is never defined. The build fails if this name is in the finished library, which means that
    /// a panic is possible.
    fn hugeleaf_run_must_not_panic() -> !;
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    // SAFETY: never linked in, see above.
    unsafe { hugeleaf_run_must_not_panic() }
}

type Constructor = unsafe extern "C" fn(c_int, *const *const c_char, *const *const c_char);
type Destructor = extern "C" fn();

#[used]
#[unsafe(link_section = ".init_array")]
static START: Constructor = start_up;

#[used]
#[unsafe(link_section = ".fini_array")]
static END: Destructor = end;

unsafe extern "C" fn start_up(
    _count: c_int,
    _arguments: *const *const c_char,
    environment: *const *const c_char,
) {
    // SAFETY: called by the loader, once.
    unsafe { start::start(environment, mprotect as *const () as usize) };
}

extern "C" fn end() {
    exit_notice::ending();
}

/// Implements `mprotect(2)`, passing on the return address.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
extern "C" fn mprotect(_address: usize, _length: usize, _protection: usize) -> usize {
    naked_asm!("mov rcx, [rsp]", "jmp {to}", to = sym hooks::mprotect)
}

/// Implements `mprotect(2)`, passing on the return address.
#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
extern "C" fn mprotect(_address: usize, _length: usize, _protection: usize) -> usize {
    naked_asm!("mov x3, x30", "b {to}", to = sym hooks::mprotect)
}

#[unsafe(no_mangle)]
pub extern "C" fn shmget(key: c_int, size: usize, flags: c_int) -> c_int {
    hooks::shmget(key, size, flags)
}

#[unsafe(no_mangle)]
pub extern "C" fn shmat(id: c_int, address: usize, flags: c_int) -> usize {
    hooks::shmat(id, address, flags)
}

/// Replaces libc's `fork(2)`. Refused if a child could lose memory.
#[unsafe(no_mangle)]
pub extern "C" fn fork() -> c_int {
    if hooks::fork_refused() {
        return -1;
    }
    fork::fork().unwrap_or_else(hooks::not_there)
}

/// Replaces libc's `prctl(2)`.
/// C declares it with variable arguments. These are all that the call has.
#[unsafe(no_mangle)]
pub extern "C" fn prctl(option: c_int, b: usize, c: usize, d: usize, e: usize) -> c_int {
    hooks::prctl(option, [b, c, d, e])
}

#[unsafe(no_mangle)]
pub extern "C" fn syscall(
    number: usize,
    a: usize,
    b: usize,
    c: usize,
    d: usize,
    e: usize,
    f: usize,
) -> usize {
    hooks::syscall(number, [a, b, c, d, e, f])
}

#[unsafe(no_mangle)]
pub extern "C" fn mlockall(flags: c_int) -> c_int {
    hooks::mlockall(flags)
}
