//! Files of a mounted hugetlbfs. A new one is removed again unless it is kept.

use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::path::Path;

use hugeleaf_units::{Bytes, PageSize};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags};

use crate::fault_hook::MemorySyscalls;
use crate::memory_file::MemoryFile;
use crate::{Errno, SysError};

/// A file of a hugetlbfs.
#[derive(Debug)]
pub struct HugetlbFile {
    file: MemoryFile,
    page: PageSize,
    length: Bytes,
    held: Bytes,
    /// The folder and the name of a new file, until it is kept.
    made: Option<(OwnedFd, OsString)>,
}

impl HugetlbFile {
    /// Opens an existing file. A link is not followed.
    ///
    /// # Errors
    /// The errors of open(2). EINVAL if it is not a regular file of a hugetlbfs.
    pub fn open(memory: &MemorySyscalls, path: &Path) -> Result<HugetlbFile, SysError> {
        let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let opened = rustix::fs::openat(CWD, path, flags, Mode::empty());
        let opened = opened.map_err(|errno| failed("open", path, errno))?;
        HugetlbFile::of(memory, path, opened, None)
    }

    /// Makes a file of `length` rounded up to whole pages, readable and writable by its owner only.
    ///
    /// # Errors
    /// The errors of open(2) and ftruncate(2). EEXIST if the file exists. EINVAL if the folder is not on a hugetlbfs;
    /// nothing was made then.
    pub fn create(
        memory: &MemorySyscalls,
        path: &Path,
        length: Bytes,
    ) -> Result<HugetlbFile, SysError> {
        let name = path.file_name();
        let name: &OsStr = name.ok_or_else(|| failed("open", path, Errno::ISDIR))?;
        let parent = path
            .parent()
            .filter(|parent| !parent.as_os_str().is_empty());
        let parent = parent.unwrap_or(Path::new("."));
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = rustix::fs::openat(CWD, parent, flags, Mode::empty());
        let folder = folder.map_err(|errno| failed("open", parent, errno))?;
        let kind =
            rustix::fs::fstatfs(&folder).map_err(|errno| failed("fstatfs", parent, errno))?;
        if !is_hugetlbfs(&kind) {
            return Err(failed("open", path, Errno::INVAL));
        }
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let opened = rustix::fs::openat(&folder, name, flags, Mode::RUSR | Mode::WUSR);
        let opened = opened.map_err(|errno| failed("open", path, errno))?;
        let mut made = HugetlbFile::of(memory, path, opened, Some((folder, name.to_owned())))?;
        let whole = made.page.round_up(length.get()).map(Bytes);
        made.length = whole.ok_or_else(|| failed("ftruncate", path, Errno::FBIG))?;
        memory.set_length(&made.file, made.length)?;
        Ok(made)
    }

    fn of(
        memory: &MemorySyscalls,
        path: &Path,
        opened: OwnedFd,
        made: Option<(OwnedFd, OsString)>,
    ) -> Result<HugetlbFile, SysError> {
        let stat = rustix::fs::fstat(&opened).map_err(|errno| failed("fstat", path, errno))?;
        let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
        let file = MemoryFile::from_fd(opened);
        let facts = memory.facts(&file);
        let facts = facts.map_err(|error| failed("open", path, error.errno))?;
        let page = facts.hugetlb.filter(|_| is_file);
        Ok(HugetlbFile {
            file,
            page: page.ok_or_else(|| failed("open", path, Errno::INVAL))?,
            length: facts.length,
            held: facts.held,
            made,
        })
    }

    pub const fn file(&self) -> &MemoryFile {
        &self.file
    }

    pub const fn page(&self) -> PageSize {
        self.page
    }

    pub const fn length(&self) -> Bytes {
        self.length
    }

    /// Returns the memory that the file had when it was opened.
    pub const fn held(&self) -> Bytes {
        self.held
    }

    /// Keeps a new file.
    pub fn keep(&mut self) {
        self.made = None;
    }
}

impl Drop for HugetlbFile {
    fn drop(&mut self) {
        let Some((folder, name)) = &self.made else {
            return;
        };
        // Somebody may have put another file in its place.
        let own = rustix::fs::fstat(self.file.file());
        let there = rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW);
        if let (Ok(own), Ok(there)) = (own, there)
            && (own.st_dev, own.st_ino) == (there.st_dev, there.st_ino)
        {
            let _ = rustix::fs::unlinkat(folder, name, AtFlags::empty());
        }
    }
}

fn is_hugetlbfs(stat: &rustix::fs::StatFs) -> bool {
    // linux/magic.h. The width of `f_type` differs between architectures.
    const HUGETLBFS_MAGIC: i64 = 0x9584_58f6;
    #[allow(clippy::unnecessary_cast)]
    let kind = stat.f_type as i64;
    kind == HUGETLBFS_MAGIC
}

fn failed(call: &'static str, path: &Path, errno: Errno) -> SysError {
    SysError::new(call, path.display().to_string(), errno)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_of_a_hugetlbfs_are_taken() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let memory = MemorySyscalls::new();
        let refused = HugetlbFile::create(&memory, &path, Bytes(1)).unwrap_err();
        assert_eq!(refused.errno, Errno::INVAL);
        assert!(!path.exists(), "nothing was made");
        std::fs::write(&path, "text").unwrap();
        let refused = HugetlbFile::open(&memory, &path).unwrap_err();
        assert_eq!(refused.errno, Errno::INVAL);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "text");
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        let refused = HugetlbFile::open(&memory, &link).unwrap_err();
        assert_eq!(refused.errno, Errno::LOOP);
        let refused = HugetlbFile::open(&memory, folder.path()).unwrap_err();
        assert_eq!(refused.errno, Errno::ISDIR);
    }
}
