//! Resolves paths and checks who could redirect them.
//! Each part is opened separately, so that the checked object is the used one, even if others rename meanwhile.
//!
//! There are two rules. **A link** is followed if root or the caller owns it. Any other link is an error, because
//! its owner chose where root would read or write. **A folder or file that others could change** is an error if its
//! content is trusted ([`open_trusted`]). Root or the caller must own it, and nobody else may write to it. A
//! world-writable folder is allowed if its sticky bit protects files of others, as in /tmp (the rule of
//! `StrictModes` in sshd_config(5)).
//!
//! These rules are for paths that the caller has chosen, to write there or to trust the content. The owner of a
//! link decides, and the link may lead anywhere. [`crate::ConfinedFolder`] resolves paths that others have chosen. There
//! the owner of a link does not matter, but links never lead out of a folder, and that user's rights apply. Neither
//! rule suits the other's paths.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, Stat};

use crate::{Errno, SysError, effective_uid};

/// Maximum number of links followed, as in the kernel (path_resolution(7)).
pub(crate) const MOST_LINKS: u32 = 40;

/// Mode bits for writing by the group or others.
const OTHERS_WRITE: u32 = 0o022;
const STICKY: u32 = 0o1000;

/// The reason for rejecting a path.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    #[error("{0}")]
    Call(#[from] SysError),
    /// A link that neither root nor the caller owns.
    #[error("{} is a link of user {uid}: not followed", path.display())]
    Link { path: PathBuf, uid: u32 },
    /// A file or folder that others than root and the caller can change.
    #[error("{} could be changed by others (owner {uid}, mode {mode:04o})", path.display())]
    Others { path: PathBuf, uid: u32, mode: u32 },
    /// A pipe, socket or device in place of a file.
    #[error("{} is {what}", path.display())]
    Special { path: PathBuf, what: &'static str },
}

impl PathError {
    /// Returns the reason, for a text that already names the path. For a failed call, only the error's text.
    pub fn reason(&self) -> String {
        match self {
            PathError::Call(error) => std::io::Error::from(error.errno).to_string(),
            other => other.to_string(),
        }
    }

    /// Returns the path that root or the caller can secure by changing permissions alone, or `None` if that is not
    /// sufficient.
    pub fn fixable_permissions(&self) -> Option<&Path> {
        match self {
            PathError::Others { path, uid, .. } if is_trusted(*uid) => Some(path),
            _ => None,
        }
    }

    /// Returns the errno if the error is a failed call.
    pub const fn errno(&self) -> Option<Errno> {
        match self {
            PathError::Call(error) => Some(error.errno),
            _ => None,
        }
    }
}

pub(crate) fn fail(call: &'static str, path: &Path, errno: Errno) -> PathError {
    PathError::Call(SysError::new(call, path.display().to_string(), errno))
}

pub(crate) struct ResolvedPath {
    pub folder: OwnedFd,
    pub name: OsString,
    pub shown: PathBuf,
    /// True if the last part is a link that only the kernel can follow, as in /proc/PID/fd.
    pub is_magic: bool,
    /// Status of the target, or `None` if it does not exist.
    pub stat: Option<Stat>,
}

/// Returns true for root, the caller, and the owner of the root folder, who is root in a user namespace.
fn is_trusted(uid: u32) -> bool {
    let of_all = || rustix::fs::stat("/").map(|stat| stat.st_uid);
    uid == 0 || uid == effective_uid() || of_all() == Ok(uid)
}

fn permissions(stat: &Stat) -> u32 {
    stat.st_mode & 0o7777
}

fn kind(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}

/// Checks that only root and the caller can change the entries of a folder or the content of a file.
fn check_others(stat: &Stat, path: &Path) -> Result<(), PathError> {
    let mode = permissions(stat);
    let is_shared = kind(stat) == FileType::Directory && mode & STICKY != 0;
    match is_trusted(stat.st_uid) && (mode & OTHERS_WRITE == 0 || is_shared) {
        true => Ok(()),
        false => Err(PathError::Others {
            path: path.to_owned(),
            uid: stat.st_uid,
            mode,
        }),
    }
}

struct PathWalk {
    folder: OwnedFd,
    shown: PathBuf,
    rest: VecDeque<OsString>,
    links: u32,
    is_strict: bool,
}

const AS_PLACE: OFlags = OFlags::PATH.union(OFlags::CLOEXEC);

impl PathWalk {
    fn push_front(&mut self, path: &Path) {
        for part in path.components().rev() {
            match part {
                Component::Normal(name) => self.rest.push_front(name.to_owned()),
                Component::ParentDir => self.rest.push_front("..".into()),
                Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
            }
        }
    }

    fn begin_at_root(&mut self) -> Result<(), PathError> {
        self.shown = PathBuf::from("/");
        let opened = rustix::fs::open("/", AS_PLACE | OFlags::DIRECTORY, Mode::empty());
        self.folder = opened.map_err(|e| fail("open", &self.shown, e))?;
        self.enter()
    }

    fn enter(&self) -> Result<(), PathError> {
        if !self.is_strict {
            return Ok(());
        }
        let stat = rustix::fs::fstat(&self.folder).map_err(|e| fail("fstat", &self.shown, e))?;
        check_others(&stat, &self.shown)
    }

    fn go_down(&mut self, name: &OsStr, flags: OFlags) -> Result<(), PathError> {
        let path = self.shown.join(name);
        let flags = flags | AS_PLACE | OFlags::DIRECTORY;
        let opened = rustix::fs::openat(&self.folder, name, flags, Mode::empty());
        self.folder = opened.map_err(|e| fail("open", &path, e))?;
        match name == ".." {
            true => drop(self.shown.pop()),
            false => self.shown = path,
        }
        self.enter()
    }

    /// Returns the target of a link, or `None` for a link that only the kernel can follow.
    fn read_link(&mut self, name: &OsStr, stat: &Stat) -> Result<Option<PathBuf>, PathError> {
        let path = self.shown.join(name);
        self.links += 1;
        if self.links > MOST_LINKS {
            return Err(fail("open", &path, Errno::LOOP));
        }
        let text = rustix::fs::readlinkat(&self.folder, name, Vec::new());
        let text = text.map_err(|e| fail("readlink", &path, e))?;
        let text = PathBuf::from(OsString::from_vec(text.into_bytes()));
        // The kernel makes all links of procfs. Those that are not relative names stand for open files, which the
        // text only describes.
        let system = rustix::fs::fstatfs(&self.folder).map_err(|e| fail("statfs", &path, e))?;
        if system.f_type == rustix::fs::PROC_SUPER_MAGIC {
            let is_name = !text.is_absolute() && !text.as_os_str().as_bytes().contains(&b':');
            return Ok(is_name.then_some(text));
        }
        match is_trusted(stat.st_uid) {
            true => Ok(Some(text)),
            false => Err(PathError::Link {
                path,
                uid: stat.st_uid,
            }),
        }
    }

    fn follow(&mut self, to: &Path) -> Result<(), PathError> {
        if to.is_absolute() {
            self.begin_at_root()?;
        }
        self.push_front(to);
        Ok(())
    }

    fn stat(&self, name: &OsStr) -> Result<Option<Stat>, PathError> {
        match rustix::fs::statat(&self.folder, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(stat)),
            Err(Errno::NOENT) => Ok(None),
            Err(e) => Err(fail("stat", &self.shown.join(name), e)),
        }
    }

    fn finish(mut self) -> Result<ResolvedPath, PathError> {
        while let Some(name) = self.rest.pop_front() {
            let is_last = self.rest.is_empty();
            let path = self.shown.join(&name);
            let stat = if name == ".." {
                None
            } else {
                self.stat(&name)?
            };
            let is_link = stat.is_some_and(|stat| kind(&stat) == FileType::Symlink);
            let target = match stat {
                Some(stat) if is_link => self.read_link(&name, &stat)?,
                _ => None,
            };
            if let Some(to) = target {
                self.follow(&to)?;
            } else if is_last && name != ".." {
                return Ok(ResolvedPath {
                    folder: self.folder,
                    name,
                    shown: path,
                    is_magic: is_link,
                    stat,
                });
            } else {
                // Only the kernel can follow a link that gets here.
                let flags = match is_link {
                    true => OFlags::empty(),
                    false => OFlags::NOFOLLOW,
                };
                self.go_down(&name, flags)?;
            }
        }
        // The path ends in a folder, such as / or .. .
        Err(fail("open", &self.shown, Errno::ISDIR))
    }
}

/// Resolves a path by the rule for links, and if `is_strict` also by the rule for folders.
pub(crate) fn walk(path: &Path, is_strict: bool) -> Result<ResolvedPath, PathError> {
    if path.as_os_str().is_empty() {
        return Err(fail("open", path, Errno::NOENT));
    }
    let is_relative = path.is_relative() && !is_strict;
    let (start, shown) = if is_relative { (".", "") } else { ("/", "/") };
    let folder = rustix::fs::openat(CWD, start, AS_PLACE | OFlags::DIRECTORY, Mode::empty());
    let mut walk = PathWalk {
        folder: folder.map_err(|e| fail("open", path, e))?,
        shown: PathBuf::from(shown),
        rest: VecDeque::new(),
        links: 0,
        is_strict,
    };
    if is_strict {
        let whole = std::path::absolute(path);
        let whole = whole.map_err(|e| fail("getcwd", path, crate::errno_of(&e)))?;
        walk.enter()?;
        walk.push_front(&whole);
    } else {
        walk.push_front(path);
    }
    walk.finish()
}

/// Opens a trusted file for reading. Only root and the caller can change the regular file and its folders.
///
/// # Errors
/// [`PathError`]. Never waits for a writer of a pipe.
pub fn open_trusted(path: &Path) -> Result<File, PathError> {
    let found = walk(path, true)?;
    let shown = &found.shown;
    let special = |what| PathError::Special {
        path: shown.clone(),
        what,
    };
    if found.is_magic {
        return Err(special("an open file of a process"));
    }
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = rustix::fs::openat(&found.folder, &found.name, flags, Mode::empty());
    let file = file.map_err(|e| fail("open", shown, e))?;
    let stat = rustix::fs::fstat(&file).map_err(|e| fail("fstat", shown, e))?;
    match kind(&stat) {
        FileType::RegularFile => check_others(&stat, shown)?,
        other => return Err(special(name_of(other))),
    }
    Ok(File::from(file))
}

/// Checks that only root and the caller can change the target of a path, which need not exist.
///
/// # Errors
/// [`PathError::Link`] and [`PathError::Others`] if others can. The errors of the lookup.
pub fn check_trusted(path: &Path) -> Result<(), PathError> {
    let found = walk(path, true)?;
    match &found.stat {
        Some(stat) => check_others(stat, &found.shown),
        None => Ok(()),
    }
}

pub(crate) const fn name_of(kind: FileType) -> &'static str {
    match kind {
        FileType::Directory => "a folder",
        FileType::Symlink => "a link",
        FileType::Fifo => "a pipe",
        FileType::Socket => "a socket",
        FileType::CharacterDevice => "a device",
        FileType::BlockDevice => "a disk",
        _ => "an unknown type of file",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hugeleaf_testkit::NOBODY;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn allow(path: &Path, mode: u32) {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn only_what_nobody_else_can_change_is_believed() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("folder");
        let file = folder.join("plan");
        std::fs::create_dir(&folder).unwrap();
        std::fs::write(&file, "x").unwrap();
        allow(&folder, 0o755);
        allow(&file, 0o644);
        open_trusted(&file).unwrap();
        check_trusted(&folder.join("not there yet")).unwrap();
        for (path, mode, back) in [
            (&file, 0o664, 0o644),
            (&file, 0o646, 0o644),
            (&folder, 0o775, 0o755),
            (&folder, 0o757, 0o755),
        ] {
            allow(path, mode);
            let error = open_trusted(&file).unwrap_err();
            let named = matches!(&error, PathError::Others { path: at, mode: m, .. } if at == path && *m == mode);
            assert!(named, "{error}");
            assert_eq!(error.fixable_permissions(), Some(path.as_path()));
            assert!(check_trusted(&file).is_err());
            allow(path, back);
        }
        // As in /tmp: others may add files and not remove any.
        allow(&folder, 0o1777);
        open_trusted(&file).unwrap();
        allow(&folder, 0o755);
        // Targets other than files, and a link of the caller's own.
        symlink("plan", folder.join("link")).unwrap();
        open_trusted(&folder.join("link")).unwrap();
        assert!(matches!(
            open_trusted(&folder),
            Err(PathError::Special { .. })
        ));
        for device in ["/dev/zero", "/proc/self/fd/0"] {
            assert!(open_trusted(Path::new(device)).is_err(), "{device}");
        }
        let missing = open_trusted(&folder.join("none")).unwrap_err();
        assert_eq!(missing.errno(), Some(Errno::NOENT));
        assert_eq!(missing.fixable_permissions(), None);
    }

    #[test]
    fn files_and_folders_of_another_user_are_not_believed() {
        if effective_uid() != 0 {
            println!("not run: files_and_folders_of_another_user_are_not_believed: needs root");
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("folder");
        std::fs::create_dir(&folder).unwrap();
        std::fs::write(folder.join("plan"), "x").unwrap();
        symlink("folder", dir.path().join("link")).unwrap();
        for path in [folder.join("plan"), folder.clone(), dir.path().join("link")] {
            let through = dir.path().join("link/plan");
            open_trusted(&through).unwrap();
            std::os::unix::fs::lchown(&path, Some(NOBODY), Some(NOBODY)).unwrap();
            let error = open_trusted(&through).unwrap_err();
            assert!(
                error.to_string().contains(&path.display().to_string()),
                "{error}"
            );
            assert_eq!(error.fixable_permissions(), None);
            std::os::unix::fs::lchown(&path, Some(0), Some(0)).unwrap();
        }
    }
}
