//! Files, folders and mounts, for the code that changes host settings.
//! Each function makes one change, so that a journal can record exactly which changes were made.
//!
//! This module makes no decisions. It never follows a symbolic link in the last part of a path.

use std::ffi::CString;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::{Access, Gid, Mode, OFlags, Uid, XattrFlags};
use rustix::mount::{MountFlags, UnmountFlags};

use crate::{Errno, SysError, errno_of};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileKind {
    File,
    Folder,
    Link,
    Other,
}

/// Permissions, owner and attributes of a file, to be kept when its content is replaced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileMeta {
    /// Permission bits, such as `0o644`.
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    /// Extended attributes, such as access lists and SELinux labels.
    pub attributes: Vec<(String, Vec<u8>)>,
}

/// One change of the host, made by one function of this module. A crash comes before or after it.
#[derive(Debug, Clone, Copy)]
pub enum HostChange<'a> {
    /// A write by [`write_value`].
    Write(&'a Path, &'a str),
    /// Creates a file with this content and metadata, on disk when this returns.
    /// It fails if the file exists. After an error a part of the file may remain.
    Create(&'a Path, &'a [u8], &'a FileMeta),
    /// An append by [`append_to`].
    Append(&'a Path, &'a [u8], u32),
    /// A rename by [`rename`].
    Rename(&'a Path, &'a Path),
    /// unlink(2).
    Remove(&'a Path),
    /// Makes one folder with exactly these permissions, and this owner if one is given.
    MakeFolder(&'a Path, u32, Option<(u32, u32)>),
    /// rmdir(2), for an empty folder only.
    RemoveFolder(&'a Path),
    /// Makes the names in a folder durable by fsync(2) of the folder.
    SyncFolder(&'a Path),
    /// Mounts a hugetlbfs with options as in mount(8). EINVAL for an option or a page size unknown to this kernel.
    Mount(&'a Path, &'a str),
    /// umount(2) of the topmost mount at a path. EBUSY if a process uses it.
    Unmount(&'a Path),
}

impl HostChange<'_> {
    /// Makes the change.
    ///
    /// # Errors
    /// The errors of the system calls that it makes.
    pub fn execute(self) -> Result<(), SysError> {
        match self {
            HostChange::Write(path, value) => write_value(path, value),
            HostChange::Create(path, content, look) => create_file(path, content, look),
            HostChange::Append(path, content, mode) => append_to(path, content, mode),
            HostChange::Rename(from, to) => rename(from, to),
            HostChange::Remove(path) => remove_file(path),
            HostChange::MakeFolder(path, mode, owner) => make_folder(path, mode, owner),
            HostChange::RemoveFolder(path) => remove_folder(path),
            HostChange::SyncFolder(path) => sync_folder(path),
            HostChange::Mount(path, options) => mount_hugetlbfs(path, options),
            HostChange::Unmount(path) => unmount(path),
        }
    }
}

fn fail(call: &'static str, path: &Path, errno: Errno) -> SysError {
    SysError::new(call, path.display().to_string(), errno)
}

/// Returns the kind and metadata at a path without following a link, or `None` if nothing exists there.
///
/// # Errors
/// The errors of lstat(2) and listxattr(2).
pub fn metadata_at(path: &Path) -> Result<Option<(FileKind, FileMeta)>, SysError> {
    let meta = match std::fs::symlink_metadata(path) {
        Ok(meta) => meta,
        Err(e) if matches!(errno_of(&e), Errno::NOENT | Errno::NOTDIR) => return Ok(None),
        Err(e) => return Err(fail("lstat", path, errno_of(&e))),
    };
    let kind = match meta.file_type() {
        t if t.is_file() => FileKind::File,
        t if t.is_dir() => FileKind::Folder,
        t if t.is_symlink() => FileKind::Link,
        t if t.is_socket() => FileKind::Other,
        _ => FileKind::Other,
    };
    let attributes = match kind {
        FileKind::File => attributes(path)?,
        _ => Vec::new(),
    };
    let look = FileMeta {
        mode: meta.mode() & 0o7777,
        uid: meta.uid(),
        gid: meta.gid(),
        attributes,
    };
    Ok(Some((kind, look)))
}

/// Returns the visible extended attributes, or none if the file system does not support them.
fn attributes(path: &Path) -> Result<Vec<(String, Vec<u8>)>, SysError> {
    let mut names = vec![0; XATTR_LIST_MAX];
    let length = match rustix::fs::llistxattr(path, &mut names[..]) {
        Ok(length) => length,
        Err(Errno::NOTSUP | Errno::NOSYS) => return Ok(Vec::new()),
        Err(errno) => return Err(fail("listxattr", path, errno)),
    };
    let mut all = Vec::new();
    for name in names[..length].split(|b| *b == 0).filter(|n| !n.is_empty()) {
        let mut value = vec![0; XATTR_LIST_MAX];
        match rustix::fs::lgetxattr(path, name, &mut value[..]) {
            Ok(length) => {
                value.truncate(length);
                all.push((String::from_utf8_lossy(name).into_owned(), value));
            }
            // The attribute was removed meanwhile.
            Err(Errno::NODATA) => {}
            Err(errno) => return Err(fail("getxattr", path, errno)),
        }
    }
    Ok(all)
}

/// `XATTR_LIST_MAX` and `XATTR_SIZE_MAX` (include/uapi/linux/limits.h): both are 64K.
const XATTR_LIST_MAX: usize = 64 << 10;

/// Writes a value in one write(2), as files of /proc/sys and /sys require.
///
/// # Errors
/// The errors of open(2) and write(2).
pub fn write_value(path: &Path, value: &str) -> Result<(), SysError> {
    let mut file = OpenOptions::new()
        .write(true)
        // The kernel ignores it. A captured host has regular files.
        .truncate(true)
        .open(path)
        .map_err(|e| fail("open", path, errno_of(&e)))?;
    let line = format!("{value}\n");
    match file.write(line.as_bytes()) {
        Ok(length) if length == line.len() => Ok(()),
        // Part of a number is another number. Readers compare the value, and this error explains the difference.
        Ok(_) => Err(fail("write", path, Errno::IO)),
        Err(e) => Err(fail("write", path, errno_of(&e))),
    }
}

fn create_file(path: &Path, content: &[u8], look: &FileMeta) -> Result<(), SysError> {
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
        .map_err(|e| fail("open", path, errno_of(&e)))?;
    file.write_all(content)
        .map_err(|e| fail("write", path, errno_of(&e)))?;
    // Set the owner before the mode: a change of owner clears set-user-id bits.
    let (uid, gid) = (Uid::from_raw(look.uid), Gid::from_raw(look.gid));
    rustix::fs::fchown(&file, Some(uid), Some(gid)).map_err(|e| fail("fchown", path, e))?;
    for (name, value) in &look.attributes {
        rustix::fs::fsetxattr(&file, name.as_str(), value, XattrFlags::empty())
            .map_err(|e| fail("fsetxattr", path, e))?;
    }
    rustix::fs::fchmod(&file, Mode::from_raw_mode(look.mode))
        .map_err(|e| fail("fchmod", path, e))?;
    file.sync_all()
        .map_err(|e| fail("fsync", path, errno_of(&e)))
}

/// Appends to a file, and creates it with these permissions if it is missing. The content is on disk when this returns.
///
/// # Errors
/// The errors of open(2), write(2) and fsync(2). A part may then have been written.
pub fn append_to(path: &Path, content: &[u8], mode: u32) -> Result<(), SysError> {
    let mut file = OpenOptions::new()
        .append(true)
        .create(true)
        .mode(mode)
        .custom_flags(OFlags::NOFOLLOW.bits().cast_signed())
        .open(path)
        .map_err(|e| fail("open", path, errno_of(&e)))?;
    file.write_all(content)
        .map_err(|e| fail("write", path, errno_of(&e)))?;
    file.sync_all()
        .map_err(|e| fail("fsync", path, errno_of(&e)))
}

/// Renames a file by rename(2), which replaces `to` in one step.
///
/// # Errors
/// The errors of rename(2).
pub fn rename(from: &Path, to: &Path) -> Result<(), SysError> {
    std::fs::rename(from, to).map_err(|e| fail("rename", to, errno_of(&e)))
}

fn remove_file(path: &Path) -> Result<(), SysError> {
    std::fs::remove_file(path).map_err(|e| fail("unlink", path, errno_of(&e)))
}

fn make_folder(path: &Path, mode: u32, owner: Option<(u32, u32)>) -> Result<(), SysError> {
    DirBuilder::new()
        .mode(mode)
        .create(path)
        .map_err(|e| fail("mkdir", path, errno_of(&e)))?;
    if let Some((uid, gid)) = owner {
        std::os::unix::fs::lchown(path, Some(uid), Some(gid))
            .map_err(|e| fail("chown", path, errno_of(&e)))?;
    }
    // mkdir(2) applies the umask.
    rustix::fs::chmod(path, Mode::from_raw_mode(mode)).map_err(|e| fail("chmod", path, e))
}

fn remove_folder(path: &Path) -> Result<(), SysError> {
    std::fs::remove_dir(path).map_err(|e| fail("rmdir", path, errno_of(&e)))
}

fn sync_folder(path: &Path) -> Result<(), SysError> {
    let folder = File::open(path).map_err(|e| fail("open", path, errno_of(&e)))?;
    match folder.sync_all().map_err(|e| errno_of(&e)) {
        // Some file systems cannot sync a folder, and return EINVAL.
        Ok(()) | Err(Errno::INVAL) => Ok(()),
        Err(errno) => Err(fail("fsync", path, errno)),
    }
}

/// Checks that a file can be opened for writing now, without writing.
/// Detects a read-only file system, a missing right and an immutable file.
///
/// # Errors
/// The errors of open(2).
pub fn probe_write(path: &Path) -> Result<(), SysError> {
    OpenOptions::new()
        .write(true)
        .custom_flags(OFlags::NOFOLLOW.bits().cast_signed())
        .open(path)
        .map(drop)
        .map_err(|e| fail("open", path, errno_of(&e)))
}

/// Checks that files can be created in a folder now, without creating any.
///
/// # Errors
/// The errors of access(2), including EROFS.
pub fn probe_folder(path: &Path) -> Result<(), SysError> {
    rustix::fs::access(path, Access::WRITE_OK | Access::EXEC_OK)
        .map_err(|e| fail("access", path, e))
}

/// Separates the options that mount(2) takes as flags from those that the file system reads.
fn mount_hugetlbfs(path: &Path, options: &str) -> Result<(), SysError> {
    let mut flags = MountFlags::empty();
    let mut data = Vec::new();
    for option in options.split(',').filter(|o| !o.is_empty()) {
        match option {
            "rw" | "defaults" => {}
            "ro" => flags |= MountFlags::RDONLY,
            "nosuid" => flags |= MountFlags::NOSUID,
            "nodev" => flags |= MountFlags::NODEV,
            "noexec" => flags |= MountFlags::NOEXEC,
            "noatime" => flags |= MountFlags::NOATIME,
            "relatime" => flags |= MountFlags::RELATIME,
            other => data.push(other),
        }
    }
    let data = CString::new(data.join(",")).map_err(|_| fail("mount", path, Errno::INVAL))?;
    rustix::mount::mount("hugetlbfs", path, "hugetlbfs", flags, data.as_c_str())
        .map_err(|e| fail("mount", path, e))
}

fn unmount(path: &Path) -> Result<(), SysError> {
    rustix::mount::unmount(path, UnmountFlags::NOFOLLOW).map_err(|e| fail("umount", path, e))
}

pub fn effective_gid() -> u32 {
    rustix::process::getegid().as_raw()
}

/// Returns the major and minor number of a device, as `/proc` shows them.
pub fn device_numbers(device: u64) -> (u32, u32) {
    (rustix::fs::major(device), rustix::fs::minor(device))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(mode: u32) -> FileMeta {
        FileMeta {
            mode,
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
            attributes: Vec::new(),
        }
    }

    #[test]
    fn what_is_made_looks_as_asked() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("a");
        assert_eq!(metadata_at(&file).unwrap(), None);
        create_file(&file, b"x\n", &look(0o640)).unwrap();
        assert_eq!(
            metadata_at(&file).unwrap(),
            Some((FileKind::File, look(0o640)))
        );
        let twice = create_file(&file, b"y\n", &look(0o640)).unwrap_err();
        assert_eq!(twice.errno, Errno::EXIST);
        let folder = dir.path().join("d");
        make_folder(&folder, 0o771, None).unwrap();
        let (kind, seen) = metadata_at(&folder).unwrap().unwrap();
        assert_eq!((kind, seen.mode), (FileKind::Folder, 0o771));
        append_to(&file, b"z\n", 0o600).unwrap();
        assert_eq!(std::fs::read(&file).unwrap(), b"x\nz\n");
    }

    #[test]
    fn attributes_are_kept() {
        let dir = tempfile::tempdir().unwrap();
        let (one, two) = (dir.path().join("a"), dir.path().join("b"));
        create_file(&one, b"", &look(0o600)).unwrap();
        let set = rustix::fs::setxattr(&one, "user.note", b"kept", XattrFlags::empty());
        if set.is_err() {
            println!("not run: attributes_are_kept: the file system has none");
            return;
        }
        let (_, seen) = metadata_at(&one).unwrap().unwrap();
        assert_eq!(
            seen.attributes,
            [("user.note".to_owned(), b"kept".to_vec())]
        );
        create_file(&two, b"", &seen).unwrap();
        assert_eq!(metadata_at(&two).unwrap().unwrap().1, seen);
    }

    #[test]
    fn links_are_seen_and_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let link = dir.path().join("l");
        std::os::unix::fs::symlink("/nowhere", &link).unwrap();
        assert_eq!(metadata_at(&link).unwrap().unwrap().0, FileKind::Link);
        assert_eq!(probe_write(&link).unwrap_err().errno, Errno::LOOP);
    }

    #[test]
    fn errors_name_the_call_and_the_path() {
        let missing = Path::new("/nonexistent/file");
        for error in [
            write_value(missing, "1").unwrap_err(),
            append_to(missing, b"", 0o600).unwrap_err(),
            probe_write(missing).unwrap_err(),
            probe_folder(missing).unwrap_err(),
            remove_folder(missing).unwrap_err(),
            sync_folder(missing).unwrap_err(),
        ] {
            assert_eq!(error.errno, Errno::NOENT);
            assert!(error.to_string().contains("/nonexistent/file"), "{error}");
        }
    }
}
