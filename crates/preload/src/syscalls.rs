//! System calls without libc, whose entries may lead here: numbers, constants, and one function per
//! call. A negative result is `-errno`, as returned by the kernel.
//!
//! # Safety
//! The hazard of each is the call's effect on memory: addresses given here must be ones that the
//! caller owns. The functions are unsafe if a wrong address could remove memory in use, and safe if
//! the kernel checks everything that is passed.

#![allow(unsafe_code)]

use core::arch::asm;

/// System call numbers on x86-64 and with the generic headers (`asm/unistd.h`).
mod number {
    const fn syscall_number(x86_64: usize, generic: usize) -> usize {
        if cfg!(target_arch = "x86_64") {
            x86_64
        } else {
            generic
        }
    }

    pub const READ: usize = syscall_number(0, 63);
    pub const WRITE: usize = syscall_number(1, 64);
    pub const CLOSE: usize = syscall_number(3, 57);
    pub const MMAP: usize = syscall_number(9, 222);
    pub const MPROTECT: usize = syscall_number(10, 226);
    pub const MUNMAP: usize = syscall_number(11, 215);
    pub const BRK: usize = syscall_number(12, 214);
    pub const IOCTL: usize = syscall_number(16, 29);
    pub const PREAD: usize = syscall_number(17, 67);
    pub const PWRITE: usize = syscall_number(18, 68);
    pub const MREMAP: usize = syscall_number(25, 216);
    pub const MINCORE: usize = syscall_number(27, 232);
    pub const MADVISE: usize = syscall_number(28, 233);
    pub const SHMGET: usize = syscall_number(29, 194);
    pub const SHMAT: usize = syscall_number(30, 196);
    pub const SHMCTL: usize = syscall_number(31, 195);
    pub const GETPID: usize = syscall_number(39, 172);
    pub const SOCKET: usize = syscall_number(41, 198);
    pub const CONNECT: usize = syscall_number(42, 203);
    pub const SENDTO: usize = syscall_number(44, 206);
    pub const CLONE: usize = syscall_number(56, 220);
    pub const WAIT4: usize = syscall_number(61, 260);
    pub const SHMDT: usize = syscall_number(67, 197);
    pub const FCNTL: usize = syscall_number(72, 25);
    pub const FTRUNCATE: usize = syscall_number(77, 46);
    pub const SYSINFO: usize = syscall_number(99, 179);
    pub const GETUID: usize = syscall_number(102, 174);
    pub const GETGID: usize = syscall_number(104, 176);
    pub const FSTATFS: usize = syscall_number(138, 44);
    pub const MLOCK: usize = syscall_number(149, 228);
    pub const MLOCKALL: usize = syscall_number(151, 230);
    pub const PRCTL: usize = syscall_number(157, 167);
    pub const EXIT_GROUP: usize = syscall_number(231, 94);
    pub const OPENAT: usize = syscall_number(257, 56);
    pub const UNLINKAT: usize = syscall_number(263, 35);
    pub const PPOLL: usize = syscall_number(271, 73);
    pub const UNSHARE: usize = syscall_number(272, 97);
    pub const PRLIMIT: usize = syscall_number(302, 261);
    pub const PROCESS_VM_READV: usize = syscall_number(310, 270);
    pub const SECCOMP: usize = syscall_number(317, 277);
    pub const MEMFD_CREATE: usize = syscall_number(319, 279);
    pub const STATX: usize = syscall_number(332, 291);
    pub const FSOPEN: usize = syscall_number(430, 430);
    pub const FSCONFIG: usize = syscall_number(431, 431);
    pub const FSMOUNT: usize = syscall_number(432, 432);
}

/// Constants of `mman.h`, `fcntl.h` and others. They are the same on x86-64 and on all 64-bit
/// architectures with the generic headers. Names are those of the headers, without the prefix.
pub mod flag {
    // `PROT_…`
    pub const READ: usize = 1;
    pub const WRITE: usize = 2;
    pub const EXEC: usize = 4;
    /// Access rights of ordinary data memory.
    pub const MEMORY: usize = READ | WRITE;

    // `MAP_…`
    pub const SHARED: usize = 1;
    pub const PRIVATE: usize = 2;
    /// Mask of the mapping's type: shared, private, or shared with validation.
    pub const TYPE: usize = 0x0f;
    pub const FIXED: usize = 0x10;
    pub const ANONYMOUS: usize = 0x20;
    /// `MAP_32BIT` (x86-64).
    pub const LOW: usize = 0x40;
    pub const GROWSDOWN: usize = 0x100;
    pub const LOCKED: usize = 0x2000;
    pub const NORESERVE: usize = 0x4000;
    pub const POPULATE: usize = 0x8000;
    pub const NONBLOCK: usize = 0x1_0000;
    pub const STACK: usize = 0x2_0000;
    /// `MAP_HUGETLB`, with the logarithm of the page size from bit 26.
    pub const HUGETLB: usize = 0x4_0000;
    pub const FIXED_NOREPLACE: usize = 0x10_0000;

    // `MREMAP_…`
    pub const MAYMOVE: usize = 1;
    pub const MREMAP_FIXED: usize = 2;
}

pub const SECCOMP: usize = number::SECCOMP;

pub const ENOENT: isize = -2;
pub const ENOMEM: isize = -12;
pub const EACCES: isize = -13;
pub const EFAULT: isize = -14;
pub const EEXIST: isize = -17;
pub const EINVAL: isize = -22;

/// Returns true for an error (`-errno`, at most 4095, by the kernel's convention).
pub const fn failed(result: isize) -> bool {
    result < 0 && result >= -4095
}

/// Makes one system call.
///
/// # Safety
/// The effect on memory must be intended by the caller, who owns that memory.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub unsafe fn call(number: usize, arguments: [usize; 6]) -> isize {
    let [a, b, c, d, e, f] = arguments;
    let result: isize;
    // SAFETY: the kernel's convention: arguments in these registers, rcx and r11 lost.
    unsafe {
        asm!("syscall", inlateout("rax") number => result, in("rdi") a, in("rsi") b, in("rdx") c,
            in("r10") d, in("r8") e, in("r9") f, lateout("rcx") _, lateout("r11") _,
            options(nostack));
    }
    result
}

/// Makes one system call.
///
/// # Safety
/// The effect on memory must be intended by the caller, who owns that memory.
#[cfg(target_arch = "aarch64")]
#[inline(always)]
pub unsafe fn call(number: usize, arguments: [usize; 6]) -> isize {
    let [a, b, c, d, e, f] = arguments;
    let result: usize;
    // SAFETY: the kernel's convention: number in x8, arguments in x0 to x5, result in x0.
    unsafe {
        asm!("svc 0", in("x8") number, inlateout("x0") a => result, in("x1") b, in("x2") c,
            in("x3") d, in("x4") e, in("x5") f, options(nostack));
    }
    result as isize
}

/// Fails on other architectures, where the library stays inactive.
///
/// # Safety
/// None is needed.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
pub unsafe fn call(_number: usize, _arguments: [usize; 6]) -> isize {
    -38
}

/// # Safety
/// With `MAP_FIXED`, the existing mapping is lost: it must be the caller's.
pub unsafe fn mmap(address: usize, length: usize, protection: usize, flags: usize) -> isize {
    // SAFETY: ensured by the caller.
    unsafe { mmap_file(address, length, protection, flags, usize::MAX, 0) }
}

/// Maps new memory at a free address. `how` is private or shared, with optional further flags.
pub fn map_new(length: usize, protection: usize, how: usize) -> Option<usize> {
    // SAFETY: the kernel chooses a free address.
    let at = unsafe { mmap(0, length, protection, how | flag::ANONYMOUS) };
    (!failed(at)).then_some(at as usize)
}

/// `mmap(2)` of a file.
///
/// # Safety
/// With `MAP_FIXED`, the existing mapping is lost: it must be the caller's.
pub unsafe fn mmap_file(
    address: usize,
    length: usize,
    protection: usize,
    flags: usize,
    file: usize,
    offset: usize,
) -> isize {
    let arguments = [address, length, protection, flags, file, offset];
    // SAFETY: ensured by the caller.
    unsafe { call(number::MMAP, arguments) }
}

/// # Safety
/// Nothing may use the range any more.
pub unsafe fn munmap(address: usize, length: usize) -> isize {
    // SAFETY: ensured by the caller.
    unsafe { call(number::MUNMAP, [address, length, 0, 0, 0, 0]) }
}

/// # Safety
/// Nothing may rely on rights that are removed.
pub unsafe fn mprotect(address: usize, length: usize, protection: usize) -> isize {
    // SAFETY: ensured by the caller.
    unsafe { call(number::MPROTECT, [address, length, protection, 0, 0, 0]) }
}

/// # Safety
/// Nothing may use the old range, nor the previous content of the new one, after the move.
pub unsafe fn mremap(old: usize, length: usize, new: usize, flags: usize, to: usize) -> isize {
    // SAFETY: ensured by the caller.
    unsafe { call(number::MREMAP, [old, length, new, flags, to, 0]) }
}

/// Sets the break (`brk(2)`). Returns the new break, or the old one if it could not be moved.
///
/// # Safety
/// Nothing may use memory above the new break.
pub unsafe fn brk(to: usize) -> usize {
    // SAFETY: ensured by the caller.
    unsafe { call(number::BRK, [to, 0, 0, 0, 0, 0]) as usize }
}

/// Advises, populates or collapses (`madvise(2)`). This changes the pages of a range, never its
/// content. The kernel rounds a program's length up to whole pages, as it did for the mapping.
pub fn advise(address: usize, length: usize, advice: Advice) -> isize {
    let arguments = [address, length, advice as usize, 0, 0, 0];
    // SAFETY: no advice changes the content.
    unsafe { call(number::MADVISE, arguments) }
}

/// # Safety
/// The option's conditions must hold.
pub unsafe fn prctl(arguments: [usize; 6]) -> isize {
    // SAFETY: ensured by the caller.
    unsafe { call(number::PRCTL, arguments) }
}

pub fn mlock(address: usize, length: usize) -> isize {
    // SAFETY: changes no content.
    unsafe { call(number::MLOCK, [address, length, 0, 0, 0, 0]) }
}

/// Returns true if this process forbids writable memory to become executable (`PR_GET_MDWE`, 6.3).
/// An equivalent system call filter is not detected.
pub fn denies_write_execute() -> bool {
    const GET_MDWE: usize = 66;
    // SAFETY: only reads a setting.
    let answer = unsafe { prctl([GET_MDWE, 0, 0, 0, 0, 0]) };
    answer > 0
}

/// Unshares memory by `unshare(2)`. Returns 0 without effect if no thread and no other process
/// shares this process's memory, and `EINVAL` otherwise.
pub fn unshare_memory() -> isize {
    const CLONE_VM: usize = 0x100;
    // SAFETY: has no effect, or fails.
    unsafe { call(number::UNSHARE, [CLONE_VM, 0, 0, 0, 0, 0]) }
}

pub fn mlockall(flags: usize) -> isize {
    // SAFETY: changes no content.
    unsafe { call(number::MLOCKALL, [flags, 0, 0, 0, 0, 0]) }
}

/// Advice that does not change content (`madvise(2)`).
#[derive(Clone, Copy)]
pub enum Advice {
    /// Disable readahead.
    Random = 1,
    HugePage = 14,
    NoHugePage = 15,
    /// Not needed soon.
    Cold = 20,
    PopulateRead = 22,
    PopulateWrite = 23,
    Collapse = 25,
}

pub fn read(file: usize, buffer: &mut [u8]) -> isize {
    let arguments = [file, buffer.as_mut_ptr() as usize, buffer.len(), 0, 0, 0];
    // SAFETY: the buffer is ours for the length that is passed.
    unsafe { call(number::READ, arguments) }
}

pub fn pread(file: usize, buffer: &mut [u8], offset: usize) -> isize {
    let (to, length) = (buffer.as_mut_ptr() as usize, buffer.len());
    // SAFETY: the buffer is ours for the length that is passed.
    unsafe { call(number::PREAD, [file, to, length, offset, 0, 0]) }
}

pub fn write(file: usize, text: &[u8]) -> isize {
    let arguments = [file, text.as_ptr() as usize, text.len(), 0, 0, 0];
    // SAFETY: the text is only read.
    unsafe { call(number::WRITE, arguments) }
}

/// # Safety
/// On `/proc/self/mem` it changes memory, code included: the caller must intend that.
pub unsafe fn pwrite(file: usize, bytes: &[u8], offset: usize) -> isize {
    let arguments = [file, bytes.as_ptr() as usize, bytes.len(), offset, 0, 0];
    // SAFETY: ensured by the caller.
    unsafe { call(number::PWRITE, arguments) }
}

pub const READ_WRITE: usize = 2;
pub const WRITE_ONLY: usize = 1;
const CLOSE_ON_EXEC: usize = 0o2_000_000;
const AT_FDCWD: usize = -100_isize as usize;

/// Opens a path that ends in a zero byte by `openat(2)`, closed on exec.
pub fn open(path: &[u8], how: usize) -> Option<usize> {
    debug_assert!(path.ends_with(&[0]));
    let (name, how) = (path.as_ptr() as usize, how | CLOSE_ON_EXEC);
    // SAFETY: the path ends in zero and is only read.
    let file = unsafe { call(number::OPENAT, [AT_FDCWD, name, how, 0, 0, 0]) };
    (!failed(file)).then_some(file as usize)
}

/// Returns the content of a short file, up to the length of the buffer.
pub fn read_file<'a>(path: &[u8], buffer: &'a mut [u8]) -> Option<&'a [u8]> {
    let file = open(path, 0)?;
    let length = read(file, buffer);
    close(file);
    buffer.get(..usize::try_from(length).ok()?)
}

/// Creates a file in the folder open at `folder`, and unlinks it at once.
/// Its name then appears only in `/proc/PID/maps`.
pub fn unlinked_file(folder: usize, name: &core::ffi::CStr) -> isize {
    const CREATE: usize = 0o100;
    const EXCLUSIVE: usize = 0o200;
    let how = CREATE | EXCLUSIVE | READ_WRITE | CLOSE_ON_EXEC;
    let name = name.as_ptr() as usize;
    // SAFETY: the path ends in zero and is only read.
    unsafe {
        let file = call(number::OPENAT, [folder, name, how, 0o600, 0, 0]);
        call(number::UNLINKAT, [folder, name, 0, 0, 0, 0]);
        file
    }
}

/// Closes a descriptor that this library opened (`close(2)`).
pub fn close(file: usize) {
    // SAFETY: touches no memory.
    unsafe { call(number::CLOSE, [file, 0, 0, 0, 0, 0]) };
}

/// Creates a sealable and executable file in memory, closed on exec (`memfd_create(2)`).
/// Kernels before 6.3 do not have `MFD_EXEC`.
pub fn executable_file(name: &core::ffi::CStr) -> isize {
    const CLOSE: usize = 1;
    const SEALABLE: usize = 2;
    const EXECUTABLE: usize = 0x10;
    let name = name.as_ptr() as usize;
    // SAFETY: the name ends in zero and is only read.
    let create = |how| unsafe { call(number::MEMFD_CREATE, [name, how, 0, 0, 0, 0]) };
    match create(CLOSE | SEALABLE | EXECUTABLE) {
        EINVAL => create(CLOSE | SEALABLE),
        answer => answer,
    }
}

/// Seals a file in memory against all changes (`fcntl(2)`, `F_ADD_SEALS`).
pub fn seal(file: usize) -> isize {
    const ADD_SEALS: usize = 1033;
    const WRITE_GROW_SHRINK_SEAL: usize = 0xf;
    let arguments = [file, ADD_SEALS, WRITE_GROW_SHRINK_SEAL, 0, 0, 0];
    // SAFETY: touches no memory.
    unsafe { call(number::FCNTL, arguments) }
}

pub fn ftruncate(file: usize, length: usize) -> isize {
    // SAFETY: touches no memory; only files that this library made are passed.
    unsafe { call(number::FTRUNCATE, [file, length, 0, 0, 0, 0]) }
}

/// Returns true for a file on tmpfs, such as a memfd or a file in `/dev/shm` (`statfs(2)`:
/// `TMPFS_MAGIC`).
pub fn is_tmpfs(file: usize) -> bool {
    const TMPFS_MAGIC: usize = 0x0102_1994;
    let mut status = [0_usize; 32];
    let arguments = [file, status.as_mut_ptr() as usize, 0, 0, 0, 0];
    // SAFETY: struct statfs is 120 bytes; the buffer has 256.
    let result = unsafe { call(number::FSTATFS, arguments) };
    result == 0 && status[0] == TMPFS_MAGIC
}

/// Returns `struct statx` of a descriptor as 64-bit words, or `None` on error.
fn statx(file: usize) -> Option<[u64; 32]> {
    const EMPTY_PATH: usize = 0x1000; // not a page size
    const TYPE_AND_SIZE: usize = 0x201;
    let mut status = [0_u64; 32];
    let path = c"".as_ptr() as usize;
    let to = status.as_mut_ptr() as usize;
    let arguments = [file, path, EMPTY_PATH, TYPE_AND_SIZE, to, 0];
    // SAFETY: struct statx is 256 bytes, as the buffer is; the path ends in zero.
    let result = unsafe { call(number::STATX, arguments) };
    (result == 0).then_some(status)
}

/// Returns the length of a file in bytes (`statx(2)`: `stx_size`, at byte 40).
pub fn file_size(file: usize) -> Option<usize> {
    statx(file).map(|status| status[5] as usize)
}

/// Returns true for `/dev/zero`, whose mappings are anonymous memory.
/// By `statx(2)`, it is a character device (`stx_mode` at byte 28) with number 1:5
/// (`stx_rdev_major` at byte 128, `devices.txt` of the kernel's documents).
pub fn is_zero_device(file: usize) -> bool {
    const CHARACTER_DEVICE: u64 = 0o020_000;
    const FORMAT: u64 = 0o170_000;
    statx(file).is_some_and(|status| {
        (status[3] >> 32) & FORMAT == CHARACTER_DEVICE && status[16] == (5 << 32 | 1)
    })
}

/// Reports the base pages of a range that are in memory, by bit 0 of one byte per page
/// (`mincore(2)`).
pub fn mincore(address: usize, length: usize, pages: &mut [u8]) -> isize {
    let arguments = [address, length, pages.as_mut_ptr() as usize, 0, 0, 0];
    // SAFETY: callers pass one byte per page of the range.
    unsafe { call(number::MINCORE, arguments) }
}

/// Reads this process's own memory (`process_vm_readv(2)`).
/// Unreadable memory gives an error, not a fault.
pub fn read_own(address: usize, buffer: &mut [u8]) -> isize {
    let to = [buffer.as_mut_ptr() as usize, buffer.len()];
    let from = [address, buffer.len()];
    let (to, from) = (to.as_ptr() as usize, from.as_ptr() as usize);
    // SAFETY: writes into the buffer for its length only.
    unsafe { call(number::PROCESS_VM_READV, [getpid(), to, 1, from, 1, 0]) }
}

pub fn shmget(key: usize, size: usize, flags: usize) -> isize {
    // SAFETY: touches no memory.
    unsafe { call(number::SHMGET, [key, size, flags, 0, 0, 0]) }
}

/// # Safety
/// With `SHM_REMAP`, the existing mapping is lost: it must be the caller's.
pub unsafe fn shmat(id: usize, address: usize, flags: usize) -> isize {
    // SAFETY: ensured by the caller.
    unsafe { call(number::SHMAT, [id, address, flags, 0, 0, 0]) }
}

/// # Safety
/// Nothing may use the attached range any more.
pub unsafe fn shmdt(address: usize) -> isize {
    // SAFETY: ensured by the caller.
    unsafe { call(number::SHMDT, [address, 0, 0, 0, 0, 0]) }
}

/// Removes a segment that was just created (`shmctl(2)`, `IPC_RMID`).
pub fn shm_remove(id: usize) {
    // SAFETY: touches no memory.
    unsafe { call(number::SHMCTL, [id, 0, 0, 0, 0, 0]) };
}

/// Returns the size of a segment in bytes (`shmctl(2)`, `IPC_STAT`: the field after `struct
/// ipc64_perm`, 48 bytes on all 64-bit architectures).
pub fn shm_size(id: usize) -> Option<usize> {
    const STAT: usize = 2;
    let mut status = [0_usize; 32];
    let arguments = [id, STAT, status.as_mut_ptr() as usize, 0, 0, 0];
    // SAFETY: struct shmid64_ds is 112 bytes; the buffer has 256.
    let result = unsafe { call(number::SHMCTL, arguments) };
    (result == 0).then_some(status[6])
}

pub fn getpid() -> usize {
    // SAFETY: touches no memory.
    unsafe { call(number::GETPID, [0; 6]) as usize }
}

pub fn user_and_group() -> (usize, usize) {
    // SAFETY: touches no memory.
    let asked = |number| unsafe { call(number, [0; 6]) as usize };
    (asked(number::GETUID), asked(number::GETGID))
}

/// Names a range in `/proc/PID/maps` (`PR_SET_VMA_ANON_NAME`). Kernels without it return an error.
pub fn name_range(address: usize, length: usize, name: &core::ffi::CStr) {
    const SET_VMA: usize = 0x5356_4d41;
    // SAFETY: changes a name, no content.
    unsafe { prctl([SET_VMA, 0, address, length, name.as_ptr() as usize, 0]) };
}

/// Returns the soft limit of a resource (`getrlimit(2)`), `usize::MAX` if unlimited.
pub fn soft_limit(resource: usize) -> Option<usize> {
    let mut limits = [0_usize; 2];
    // SAFETY: the kernel writes two words.
    let result = unsafe { limit_into(resource, limits.as_mut_ptr() as usize) };
    (result == 0).then_some(limits[0])
}

/// Makes the kernel write the two limits of a resource to an address.
/// `EFAULT` if it is not mapped and no stack may be extended to it.
///
/// # Safety
/// Memory at that address, if any, must be unused.
pub unsafe fn limit_into(resource: usize, to: usize) -> isize {
    // SAFETY: ensured by the caller.
    unsafe { call(number::PRLIMIT, [0, resource, 0, to, 0, 0]) }
}

/// Opens a file system context by `fsopen(2)`, closed on exec.
pub fn fsopen(name: &core::ffi::CStr) -> isize {
    // SAFETY: the name ends in zero and is only read.
    unsafe { call(number::FSOPEN, [name.as_ptr() as usize, 1, 0, 0, 0, 0]) }
}

/// Sets one text option by `fsconfig(2)`, or creates the file system for `None`.
pub fn fsconfig(file: usize, option: Option<(&core::ffi::CStr, &core::ffi::CStr)>) -> isize {
    const SET_STRING: usize = 1;
    const CREATE: usize = 6;
    let arguments = match option {
        Some((key, value)) => {
            let (key, value) = (key.as_ptr() as usize, value.as_ptr() as usize);
            [file, SET_STRING, key, value, 0, 0]
        }
        None => [file, CREATE, 0, 0, 0, 0],
    };
    // SAFETY: texts end in zero and are only read.
    unsafe { call(number::FSCONFIG, arguments) }
}

/// Returns the file system as a detached mount (`fsmount(2)`), closed on exec.
pub fn fsmount(file: usize) -> isize {
    // SAFETY: touches no memory.
    unsafe { call(number::FSMOUNT, [file, 1, 0, 0, 0, 0]) }
}

/// Creates a child on a copy of this stack by `clone(2)`, as `fork` does, with more flags.
///
/// # Safety
/// The child is a copy of one thread: it may make system calls and must end in `exit`.
pub unsafe fn clone(flags: usize) -> isize {
    // SAFETY: ensured by the caller.
    unsafe { call(number::CLONE, [flags, 0, 0, 0, 0, 0]) }
}

/// Waits for one child (`wait4(2)`).
/// Returns its exit status, or `None` if it did not exit normally.
pub fn wait(child: usize) -> Option<usize> {
    // __WALL: the child sends no signal at its end.
    const ALL: usize = 0x4000_0000;
    let mut status = 0_usize;
    let arguments = [child, &raw mut status as usize, ALL, 0, 0, 0];
    // SAFETY: the kernel writes an int.
    let result = unsafe { call(number::WAIT4, arguments) };
    (result as usize == child && status & 0x7f == 0).then_some((status >> 8) & 0xff)
}

pub fn exit(status: usize) -> ! {
    loop {
        // SAFETY: does not return.
        unsafe { call(number::EXIT_GROUP, [status, 0, 0, 0, 0, 0]) };
    }
}

/// Connects a stream socket to a path. Returns the socket or `-errno`.
pub fn connect(path: &[u8]) -> isize {
    const UNIX: usize = 1;
    const STREAM: usize = 1 | CLOSE_ON_EXEC;
    let mut address = [0_u8; 110];
    address[0] = UNIX as u8;
    for (to, from) in address[2..109].iter_mut().zip(path) {
        *to = *from;
    }
    // SAFETY: the address is read only, for its own length.
    unsafe {
        let socket = call(number::SOCKET, [UNIX, STREAM, 0, 0, 0, 0]);
        if failed(socket) {
            return socket;
        }
        let file = socket as usize;
        let arguments = [file, address.as_ptr() as usize, address.len(), 0, 0, 0];
        let result = call(number::CONNECT, arguments);
        if failed(result) {
            close(file);
            return result;
        }
        socket
    }
}

/// Returns true if data can be read within `seconds`.
pub fn readable_within(file: usize, seconds: usize) -> bool {
    const IN: u64 = 1 << 32;
    let mut poll = [file as u64 | IN];
    let mut time = [seconds, 0];
    let (poll, time) = (poll.as_mut_ptr() as usize, time.as_mut_ptr() as usize);
    // SAFETY: the kernel writes events into `poll`, and may write the time left.
    unsafe { call(number::PPOLL, [poll, 1, time, 0, 0, 0]) > 0 }
}

/// Sends on a stream socket (`send(2)`) without SIGPIPE.
pub fn send(socket: usize, text: &[u8]) -> isize {
    const NO_SIGNAL: usize = 0x4000;
    let arguments = [socket, text.as_ptr() as usize, text.len(), NO_SIGNAL, 0, 0];
    // SAFETY: the text is only read.
    unsafe { call(number::SENDTO, arguments) }
}

/// Returns the host's memory in bytes (`sysinfo(2)`: the fifth word, times the unit).
pub fn memory() -> Option<usize> {
    let mut words = [0_usize; 32];
    let to = words.as_mut_ptr() as usize;
    // SAFETY: struct sysinfo is 112 bytes; the buffer has 256.
    let result = unsafe { call(number::SYSINFO, [to, 0, 0, 0, 0, 0]) };
    // The unit, an int, is in one half of the last word but one.
    let unit = words[13] & 0xffff_ffff;
    (result == 0).then(|| words[4].saturating_mul(unit.max(1)))
}

/// Returns the first page in `[start, end)` that is present and not mapped by a huge page
/// (`PAGEMAP_SCAN` of `pagemap.rst`, since Linux 6.7). `None` if there is none or the kernel does
/// not support it.
pub fn next_small_page(pagemap: usize, start: usize, end: usize) -> Option<usize> {
    const PRESENT: u64 = 1 << 3;
    const HUGE: u64 = 1 << 6;
    let mut found = [0_u64; 3];
    let vector = found.as_mut_ptr() as u64;
    let (start, end) = (start as u64, end as u64);
    // struct pm_scan_arg: size, flags, start, end, walk end, vector, its length, maximum pages,
    // inverted, mask, any of, return mask.
    let wanted = PRESENT | HUGE;
    let mut scan = [96, 0, start, end, 0, vector, 1, 1, HUGE, wanted, 0, PRESENT];
    let arguments = [pagemap, PAGEMAP_SCAN, scan.as_mut_ptr() as usize, 0, 0, 0];
    // SAFETY: the structure has the size in its first field, and the vector one entry.
    let result = unsafe { call(number::IOCTL, arguments) };
    (result == 1).then_some(found[0] as usize)
}

/// Returns true if this kernel has `PAGEMAP_SCAN`, by an empty scan.
pub fn can_scan(pagemap: usize) -> bool {
    let mut scan = [96_u64, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let arguments = [pagemap, PAGEMAP_SCAN, scan.as_mut_ptr() as usize, 0, 0, 0];
    // SAFETY: the structure has the size in its first field.
    !failed(unsafe { call(number::IOCTL, arguments) })
}

/// `_IOWR('f', 16, struct pm_scan_arg)`.
const PAGEMAP_SCAN: usize = 0xc060_6610;
