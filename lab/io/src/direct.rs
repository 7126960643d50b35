//! Direct I/O: files and block devices past the page cache, and memory that is locked for it.
#![allow(unsafe_code)]
//! # Safety
//! mlock(2) and munlock(2) are given slices. Their memory is mapped, and the calls do not change
//! its content.

use std::fs::{File, OpenOptions};
use std::io::{Seek, SeekFrom};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

use hugeleaf_units::Bytes;
use rustix::fs::{AtFlags, FallocateFlags, StatxFlags};

use hugeleaf_sys::{Errno, SysError, errno_of, last_errno};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpenMode {
    /// An existing one, for reading only.
    Read,
    /// An existing one, for reading and writing; a block device is opened exclusively.
    Write,
    /// As [`OpenMode::Write`], while others have it open.
    WriteShared,
    /// A new one, for reading and writing; an existing one is never opened.
    New,
}

/// Requirements of direct I/O on a file (statx(2), STATX_DIOALIGN, Linux 6.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DirectIoSupport {
    /// Addresses and file offsets must be multiples of these.
    Aligned { memory: u32, offset: u32 },
    /// The file system has no direct I/O and copies, even if open(2) accepts the flag.
    None,
    /// The kernel does not report the requirements.
    Unreported,
}

/// Opens a file or block device with O_DIRECT.
///
/// # Errors
/// EINVAL if the file system has no direct I/O; EEXIST if a new one already exists; EBUSY if a
/// block device is in use; those of open(2).
pub fn open_direct(path: &Path, how: OpenMode) -> Result<File, SysError> {
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(libc::O_DIRECT);
    match how {
        OpenMode::Read => {}
        OpenMode::Write => {
            // A block device that is mounted, or claimed by another program, is refused.
            options.custom_flags(libc::O_DIRECT | libc::O_EXCL);
            options.write(true);
        }
        OpenMode::WriteShared => {
            options.write(true);
        }
        OpenMode::New => {
            options.write(true).create_new(true).mode(0o600);
        }
    }
    options
        .open(path)
        .map_err(|e| SysError::new("open(O_DIRECT)", path.display().to_string(), errno_of(&e)))
}

/// Returns the requirements of direct I/O on an open file.
///
/// # Errors
/// Those of statx(2).
pub fn direct_rules(file: &File) -> Result<DirectIoSupport, SysError> {
    let meta = rustix::fs::statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN)
        .map_err(|errno| SysError::new("statx", "", errno))?;
    if !StatxFlags::from_bits_retain(meta.stx_mask).contains(StatxFlags::DIOALIGN) {
        return Ok(match is_in_memory(file)? {
            true => DirectIoSupport::None,
            false => DirectIoSupport::Unreported,
        });
    }
    let (memory, offset) = (meta.stx_dio_mem_align, meta.stx_dio_offset_align);
    Ok(match offset {
        0 => DirectIoSupport::None,
        _ => DirectIoSupport::Aligned { memory, offset },
    })
}

/// Returns true if a file is on an in-memory file system. Such a file system accepts O_DIRECT
/// (tmpfs since Linux 6.6), but copies, and reports no requirements.
fn is_in_memory(file: &File) -> Result<bool, SysError> {
    // linux/magic.h
    const TMPFS: u64 = 0x0102_1994;
    const RAMFS: u64 = 0x8584_58f6;
    if file
        .metadata()
        .is_ok_and(|meta| meta.file_type().is_block_device())
    {
        return Ok(false);
    }
    let facts = rustix::fs::fstatfs(file).map_err(|errno| SysError::new("fstatfs", "", errno))?;
    let kind = u64::try_from(facts.f_type).unwrap_or(0);
    Ok(matches!(kind & u64::from(u32::MAX), TMPFS | RAMFS))
}

/// Returns the length of a file, or of the block device behind it.
///
/// # Errors
/// Those of lseek(2).
pub fn length_of(mut file: &File) -> Result<Bytes, SysError> {
    file.seek(SeekFrom::End(0))
        .map(Bytes)
        .map_err(|e| SysError::new("lseek", "to the end", errno_of(&e)))
}

/// Allocates `length` bytes for a file, so that a full disk is reported here and not later
/// (fallocate(2)).
///
/// # Errors
/// ENOSPC, EFBIG, EDQUOT; EOPNOTSUPP if the file system does not support it.
pub fn allocate_file(file: &File, length: Bytes) -> Result<(), SysError> {
    loop {
        match rustix::fs::fallocate(file, FallocateFlags::empty(), 0, length.get()) {
            Ok(()) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(SysError::new("fallocate", length.to_string(), errno)),
        }
    }
}

/// Locks a part of memory (mlock(2)). Each page of ordinary memory is pinned. A huge page that is
/// locked in part is mapped by base pages from then on.
///
/// # Errors
/// ENOMEM past the memlock limit, EPERM if that is 0, EAGAIN.
pub fn lock_memory(part: &[u8]) -> Result<(), SysError> {
    // SAFETY: the slice is mapped; locking does not change its content.
    match unsafe { libc::mlock(part.as_ptr().cast(), part.len()) } {
        0 => Ok(()),
        _ => Err(SysError::new("mlock", size(part), last_errno())),
    }
}

/// Unlocks a part of memory (munlock(2)).
///
/// # Errors
/// ENOMEM if splitting the mapping would exceed the number of mappings of a process.
pub fn unlock_memory(part: &[u8]) -> Result<(), SysError> {
    // SAFETY: the slice is mapped; unlocking does not change its content.
    match unsafe { libc::munlock(part.as_ptr().cast(), part.len()) } {
        0 => Ok(()),
        _ => Err(SysError::new("munlock", size(part), last_errno())),
    }
}

fn size(part: &[u8]) -> String {
    format!("of {}", Bytes(part.len() as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_file_is_new_and_has_its_room() {
        // The folder of the build is on a disk, not on a tmpfs.
        let dir = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let path = dir.path().join("file");
        let Ok(file) = open_direct(&path, OpenMode::New) else {
            println!("not run: a_new_file_is_new_and_has_its_room: no direct I/O here");
            return;
        };
        allocate_file(&file, Bytes::from_kib(64)).unwrap();
        assert_eq!(length_of(&file).unwrap(), Bytes::from_kib(64));
        let again = open_direct(&path, OpenMode::New).unwrap_err();
        assert_eq!(again.errno, Errno::EXIST);
        assert_ne!(direct_rules(&file).unwrap(), DirectIoSupport::None);
    }

    #[test]
    fn memory_that_copies_says_so() {
        let Ok(dir) = tempfile::tempdir_in("/dev/shm") else {
            println!("not run: memory_that_copies_says_so: no /dev/shm");
            return;
        };
        match open_direct(&dir.path().join("file"), OpenMode::New) {
            // Kernels before 6.6.
            Err(error) => assert_eq!(error.errno, Errno::INVAL),
            Ok(file) => assert_eq!(direct_rules(&file).unwrap(), DirectIoSupport::None),
        }
    }

    #[test]
    fn locking_comes_and_goes() {
        let memory = vec![0u8; 1 << 10];
        lock_memory(&memory).unwrap();
        unlock_memory(&memory).unwrap();
    }
}
