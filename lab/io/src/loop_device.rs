//! Block devices that are memory: a loop device over a memory file.
//!
//! Such a device clears itself at its last close, and its memory is freed with it. A killed program
//! leaves neither behind.
#![allow(unsafe_code)]
//! # Safety
//! ioctl(2) on loop devices reads a structure of this module that outlives the call.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use hugeleaf_units::Bytes;

use crate::direct::{OpenMode, open_direct};
use hugeleaf_sys::{Errno, MemoryFile, MemorySyscalls, SysError, errno_of, last_errno};

// linux/loop.h
const LOOP_CTL_GET_FREE: u64 = 0x4C82;
const LOOP_CONFIGURE: u64 = 0x4C0A;
const LO_FLAGS_AUTOCLEAR: u32 = 4;

/// `struct loop_info64`.
#[repr(C)]
#[derive(Clone, Copy)]
struct LoopInfo {
    numbers: [u64; 5],
    number: u32,
    encryption: [u32; 2],
    flags: u32,
    file_name: [u8; 64],
    crypt_name: [u8; 64],
    key: [u8; 32],
    init: [u64; 2],
}

/// `struct loop_config`.
#[repr(C)]
#[derive(Clone, Copy)]
struct LoopConfig {
    fd: u32,
    block_size: u32,
    info: LoopInfo,
    reserved: [u64; 8],
}

/// A block device whose blocks are memory; it disappears when dropped and when its holder dies.
#[derive(Debug)]
pub struct MemoryDevice {
    path: PathBuf,
    file: File,
    _memory: MemoryFile,
}

impl MemoryDevice {
    /// Makes a device of `length` bytes, whose memory is populated only by writes.
    ///
    /// # Errors
    /// ENOENT: no `/dev/loop-control`. EACCES, EPERM: needs root. EBUSY: no device was free.
    pub fn new(length: Bytes) -> Result<MemoryDevice, SysError> {
        let memory = MemorySyscalls::new().create_file("hugeleaf-device", length, None)?;
        MemoryDevice::over(memory)
    }

    /// Makes a device over an existing memory file.
    ///
    /// # Errors
    /// As [`MemoryDevice::new`].
    pub fn over(memory: MemoryFile) -> Result<MemoryDevice, SysError> {
        const CONTROL: &str = "/dev/loop-control";
        /// Number of attempts: another program may take the device that was just free.
        const TRIES: usize = 64;
        let control = File::options()
            .read(true)
            .write(true)
            .open(CONTROL)
            .map_err(|e| SysError::new("open", CONTROL, errno_of(&e)))?;
        for _ in 0..TRIES {
            // SAFETY: takes no argument.
            let number = unsafe { libc::ioctl(control.as_raw_fd(), LOOP_CTL_GET_FREE as _) };
            if number < 0 {
                return Err(SysError::new(
                    "ioctl(LOOP_CTL_GET_FREE)",
                    CONTROL,
                    last_errno(),
                ));
            }
            let path = PathBuf::from(format!("/dev/loop{number}"));
            let file = open_direct(&path, OpenMode::WriteShared)?;
            match configure(&file, &memory, &path) {
                Ok(()) => {
                    return Ok(MemoryDevice {
                        path,
                        file,
                        _memory: memory,
                    });
                }
                Err(error) if error.errno == Errno::BUSY => {}
                Err(error) => return Err(error),
            }
        }
        Err(SysError::new("ioctl(LOOP_CONFIGURE)", CONTROL, Errno::BUSY))
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub const fn file(&self) -> &File {
        &self.file
    }
}

fn configure(device: &File, memory: &MemoryFile, path: &Path) -> Result<(), SysError> {
    let fail = |errno| SysError::new("ioctl(LOOP_CONFIGURE)", path.display().to_string(), errno);
    let fd = u32::try_from(memory.file().as_raw_fd()).map_err(|_| fail(Errno::BADF))?;
    let config = LoopConfig {
        fd,
        // 0 selects the kernel's default.
        block_size: 0,
        info: LoopInfo {
            numbers: [0; 5],
            number: 0,
            encryption: [0; 2],
            flags: LO_FLAGS_AUTOCLEAR,
            file_name: [0; 64],
            crypt_name: [0; 64],
            key: [0; 32],
            init: [0; 2],
        },
        reserved: [0; 8],
    };
    // SAFETY: the structure has the kernel's layout and outlives the call, which reads it.
    match unsafe { libc::ioctl(device.as_raw_fd(), LOOP_CONFIGURE as _, &raw const config) } {
        0 => Ok(()),
        _ => Err(fail(last_errno())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::direct::length_of;

    #[test]
    fn the_kernel_s_structures_have_this_size() {
        assert_eq!((size_of::<LoopInfo>(), size_of::<LoopConfig>()), (232, 304));
    }

    #[test]
    fn a_device_is_there_and_gone() {
        let length = Bytes::from_mib(1);
        let device = match MemoryDevice::new(length) {
            Ok(device) => device,
            Err(error) => {
                println!("not run: a_device_is_there_and_gone: {error}");
                return;
            }
        };
        assert_eq!(length_of(device.file()).unwrap(), length);
        let path = device.path().to_owned();
        drop(device);
        // Another test may have the device by now, but it no longer has this memory.
        let again = open_direct(&path, OpenMode::Read).unwrap();
        assert_eq!(length_of(&again).unwrap(), Bytes::ZERO);
    }
}
