//! Capabilities of a file system, determined without writing.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{AtFlags, Dir, FileType, IFlags, Mode, OFlags, SeekFrom, StatxFlags};

use hugeleaf_units::Bytes;

use crate::{Errno, SysError};

/// Maximum number of names read to find a regular file to query.
const NAMES: usize = 500;
/// Flag of a file whose blocks are listed as extents (`FS_EXTENT_FL`, include/uapi/linux/fs.h).
const EXTENTS: IFlags = IFlags::from_bits_retain(0x0008_0000);

/// Capabilities of a file system. `None` if unknown, because the kernel is too old or no file was found to query.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize)]
pub struct FileSystemFeatures {
    /// Required alignment of direct I/O buffers, in bytes. 0 without direct I/O (`STATX_DIOALIGN`, Linux 6.1).
    pub direct_memory_bytes: Option<u32>,
    /// Required alignment of direct I/O offsets and lengths, in bytes.
    pub direct_offset_bytes: Option<u32>,
    /// Maximum file size in bytes, as accepted by lseek(2).
    pub largest_file_bytes: Option<u64>,
    /// True if the queried file is stored as extents. File systems that support only extents may not report it.
    pub extents: Option<bool>,
    pub attributes: Option<bool>,
    pub acls: Option<bool>,
}

/// Queries the file system mounted at a folder. Writes nothing and reads no file content.
///
/// # Errors
/// The errors of open(2) on the folder.
pub fn file_system_at(folder: &Path) -> Result<FileSystemFeatures, SysError> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let opened = rustix::fs::open(folder, flags, Mode::empty())
        .map_err(|errno| SysError::new("open", folder.display().to_string(), errno))?;
    let mut found = FileSystemFeatures {
        attributes: has_attribute(&opened, "user.hugeleaf"),
        acls: has_attribute(&opened, "system.posix_acl_access"),
        ..FileSystemFeatures::default()
    };
    let Some(file) = a_file_below(folder) else {
        return Ok(found);
    };
    if let Ok(told) = rustix::fs::statx(&file, c"", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN)
        && StatxFlags::from_bits_retain(told.stx_mask).contains(StatxFlags::DIOALIGN)
    {
        found.direct_memory_bytes = Some(told.stx_dio_mem_align);
        found.direct_offset_bytes = Some(told.stx_dio_offset_align);
    }
    found.largest_file_bytes = largest(&file);
    found.extents = rustix::fs::ioctl_getflags(&file)
        .ok()
        .map(|flags| flags.contains(EXTENTS));
    Ok(found)
}

/// Returns the used part of the file system mounted at a folder (statfs(2)). Only a hugetlbfs with a limit on its size
/// counts its use.
///
/// # Errors
/// The errors of statfs(2).
pub fn file_system_used(folder: &Path) -> Result<Bytes, SysError> {
    let stat = rustix::fs::statvfs(folder)
        .map_err(|errno| SysError::new("statfs", folder.display().to_string(), errno))?;
    let blocks = stat.f_blocks.saturating_sub(stat.f_bfree);
    Ok(Bytes(blocks.saturating_mul(stat.f_bsize)))
}

/// A missing attribute gives a different error than unsupported attributes.
fn has_attribute(folder: &OwnedFd, name: &str) -> Option<bool> {
    let mut none: [u8; 0] = [];
    match rustix::fs::fgetxattr(folder, name, &mut none[..]) {
        Ok(_) | Err(Errno::NODATA) => Some(true),
        Err(Errno::OPNOTSUPP) => Some(false),
        Err(_) => None,
    }
}

/// Returns the largest offset that lseek(2) accepts, which is the maximum file size.
fn largest(file: &OwnedFd) -> Option<u64> {
    let goes_to = |place| rustix::fs::seek(file, SeekFrom::Start(place)).is_ok();
    let (mut yes, mut no) = (0, 1 << 63);
    while no - yes > 1 {
        let middle = yes + (no - yes) / 2;
        match goes_to(middle) {
            true => yes = middle,
            false => no = middle,
        }
    }
    (yes > 0).then_some(yes)
}

/// Opens the nearest regular file on the same file system, without breaking or awaiting a lease.
fn a_file_below(folder: &Path) -> Option<OwnedFd> {
    let device = std::fs::symlink_metadata(folder).ok()?.dev();
    let (mut folders, mut left) = (VecDeque::from([folder.to_owned()]), NAMES);
    while let Some(at) = folders.pop_front() {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let Ok(opened) = rustix::fs::open(&at, flags, Mode::empty()) else {
            continue;
        };
        for entry in Dir::read_from(&opened).into_iter().flatten().flatten() {
            let name = entry.file_name().to_bytes();
            if matches!(name, b"." | b"..") {
                continue;
            }
            left = left.checked_sub(1)?;
            let path = at.join(std::ffi::OsStr::from_bytes(name));
            match entry.file_type() {
                FileType::Directory => folders.push_back(path),
                FileType::RegularFile => {
                    if let Some(file) = opened_file(&path, device) {
                        return Some(file);
                    }
                }
                _ => {}
            }
        }
    }
    None
}

fn opened_file(path: &Path, device: u64) -> Option<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = rustix::fs::open(path, flags, Mode::empty()).ok()?;
    let stat = rustix::fs::fstat(&file).ok()?;
    let is_regular = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
    (is_regular && stat.st_dev == device).then_some(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_build_folder_is_on_one_that_says_something() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
        let before = std::fs::read_dir(folder).unwrap().count();
        let found = file_system_at(folder).unwrap();
        // At least files of 2 GiB.
        assert!(
            found.largest_file_bytes.unwrap() >= i32::MAX as u64,
            "{found:?}"
        );
        assert_eq!(std::fs::read_dir(folder).unwrap().count(), before);
        assert!(file_system_at(&folder.join("none")).is_err());
    }

    #[test]
    fn files_elsewhere_and_pipes_are_not_asked() {
        let folder = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink("/proc/self/status", folder.path().join("a")).unwrap();
        let pipe = folder.path().join("b");
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, FileType::Fifo, Mode::RUSR, 0).unwrap();
        assert!(a_file_below(folder.path()).is_none());
        std::fs::create_dir(folder.path().join("c")).unwrap();
        std::fs::write(folder.path().join("c/file"), "x").unwrap();
        assert!(a_file_below(folder.path()).is_some());
    }
}
