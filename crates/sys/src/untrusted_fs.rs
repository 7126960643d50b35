//! Files and folders that another user controls, of a process or of a server.
//! If root opens such a path, it may meet a FIFO, a link to a device or out of a container, an endless
//! file, or a folder of a million names.
//!
//! A path is first resolved without opening its target (`O_PATH`). Links cannot leave a root, and the
//! user's rights apply if they are given. The target must be a regular file. Exactly that file is then
//! opened, so it cannot be replaced meanwhile. No open blocks or affects a device, and no read exceeds its
//! limit.
//!
//! For paths that the caller has chosen, `trusted_path` has a different rule: a link may lead anywhere, and its
//! owner decides if it is followed.
#![allow(unsafe_code)]
//! # Safety
//! `setfsuid` and `setfsgid` have no safe wrapper in any library used here; they take and return integers
//! and change the calling thread alone, which is made for it and ends right after.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{Error, ErrorKind, Read, Result};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use hugeleaf_units::Bytes;
use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags};
use rustix::process::Gid;

use crate::Errno;
use crate::trusted_path::{MOST_LINKS, name_of};

/// Most files that the kernel generates are shorter than this.
const MOSTLY_ENOUGH: usize = 4 << 10;

/// The rights of a user. Files that this user cannot open are not opened on their behalf.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserCredentials {
    pub uid: u32,
    pub gid: u32,
    pub groups: Vec<u32>,
}

impl UserCredentials {
    /// Returns the rights of a process, from its effective user and the groups of its status.
    /// The first group is the effective one.
    pub fn of_ids(uid: u32, groups: &[u64]) -> UserCredentials {
        let groups: Vec<u32> = groups
            .iter()
            .filter_map(|group| u32::try_from(*group).ok())
            .collect();
        UserCredentials {
            uid,
            gid: groups.first().copied().unwrap_or(uid),
            groups,
        }
    }
}

/// A folder in which paths from others are resolved. No link and no `..` leads out of it.
#[derive(Debug)]
pub struct ConfinedFolder {
    folder: OwnedFd,
    rights: Option<UserCredentials>,
    /// Follows links step by step even if the kernel could resolve the path. For tests.
    by_steps: bool,
    no_links: bool,
}

impl ConfinedFolder {
    /// Opens the folder. This path itself is trusted, including its links (`/proc/PID/root` is one).
    ///
    /// With `rights`, files in it are opened with the rights of that user, if this process is root and the
    /// user is not.
    ///
    /// # Errors
    /// The errors of open(2).
    pub fn new(folder: &Path, rights: Option<UserCredentials>) -> Result<ConfinedFolder> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let is_root = rustix::process::geteuid().is_root();
        Ok(ConfinedFolder {
            folder: rustix::fs::openat(CWD, folder, flags, Mode::empty())?,
            rights: rights.filter(|rights| is_root && rights.uid != 0),
            by_steps: false,
            no_links: false,
        })
    }

    /// Makes every link in the folder an error (ELOOP).
    /// For names that any user can have created: a link would expose files that only root may read.
    #[must_use]
    pub fn without_links(self) -> ConfinedFolder {
        ConfinedFolder {
            no_links: true,
            ..self
        }
    }

    /// Opens a regular file for reading. A leading `/` means the folder itself.
    ///
    /// # Errors
    /// The errors of openat2(2) and open(2). If it is not a regular file, the error names its type.
    pub fn open(&self, path: &Path) -> Result<File> {
        self.with_rights(|| {
            let found = self.find(path)?;
            open_found(&found)
        })
    }

    /// Reads a whole file of at most `most` bytes.
    ///
    /// # Errors
    /// The errors of [`ConfinedFolder::open`] and read(2). The file is larger.
    pub fn read(&self, path: &Path, most: Bytes) -> Result<Vec<u8>> {
        read_at_most(&self.open(path)?, most)
    }

    /// Returns the names in a folder, unordered.
    ///
    /// # Errors
    /// The errors of openat2(2) and getdents(2). There are more than `most` names.
    pub fn list(&self, path: &Path, most: usize) -> Result<Vec<OsString>> {
        self.with_rights(|| {
            let found = self.find(path)?;
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NONBLOCK;
            let folder = rustix::fs::openat(&found, ".", flags, Mode::empty())?;
            names_in(folder, most)
        })
    }

    /// Returns the owner of the target of a path, as user and group. Links are followed.
    ///
    /// # Errors
    /// The errors of openat2(2).
    pub fn owner(&self, path: &Path) -> Result<(u32, u32)> {
        let meta = File::from(self.with_rights(|| self.find(path))?).metadata()?;
        Ok((meta.uid(), meta.gid()))
    }

    /// Resolves a path without opening its target.
    fn find(&self, path: &Path) -> Result<OwnedFd> {
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let mut resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        resolve.set(ResolveFlags::NO_SYMLINKS, self.no_links);
        // The kernel returns EAGAIN while another process keeps renaming folders.
        for _ in 0..8 {
            if self.by_steps {
                break;
            }
            match rustix::fs::openat2(&self.folder, path, flags, Mode::empty(), resolve) {
                Err(Errno::AGAIN) => {}
                // The call does not exist before Linux 5.6, and container filters may refuse it.
                Err(Errno::NOSYS | Errno::PERM) => break,
                answer => return Ok(answer?),
            }
        }
        step_by_step(self.folder.as_fd(), path, self.no_links)
    }

    /// Runs `act` with the rights of the user.
    fn with_rights<T: Send>(&self, act: impl FnOnce() -> Result<T> + Send) -> Result<T> {
        let Some(rights) = &self.rights else {
            return act();
        };
        // Rights on files belong to a thread. Its other ids stay, so that the user cannot send it signals.
        std::thread::scope(|scope| {
            let theirs = scope.spawn(|| {
                take_rights(rights)?;
                act()
            });
            theirs
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }
}

/// Gives the calling thread a user's rights on files.
/// Changing `fsuid` from root to another user also drops root's capabilities on files (capabilities(7)).
fn take_rights(rights: &UserCredentials) -> Result<()> {
    let groups: Vec<Gid> = rights.groups.iter().copied().map(Gid::from_raw).collect();
    // Changes this thread only, like the calls below. Other threads keep their groups.
    rustix::thread::set_thread_groups(&groups)?;
    let ask = libc::uid_t::MAX;
    // SAFETY: takes and returns integers; an invalid id changes nothing.
    let changed = unsafe {
        libc::setfsgid(rights.gid);
        libc::setfsuid(rights.uid);
        (libc::setfsgid(ask), libc::setfsuid(ask))
    };
    let wanted = (rights.gid.cast_signed(), rights.uid.cast_signed());
    match changed == wanted {
        true => Ok(()),
        false => Err(Error::from(Errno::PERM)),
    }
}

/// Resolves a path within `root`, one name at a time, on kernels without a call for it.
fn step_by_step(root: BorrowedFd<'_>, path: &Path, no_links: bool) -> Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut way: Vec<OwnedFd> = Vec::new();
    let mut left: VecDeque<OsString> = parts(path.as_os_str()).collect();
    let mut links = 0;
    while let Some(name) = left.pop_front() {
        match name.as_bytes() {
            b"/" => way.clear(),
            b"." => {}
            b".." => {
                way.pop();
            }
            _ => {
                let here = way.last().map_or(root, AsFd::as_fd);
                let found = rustix::fs::openat(here, &name, flags, Mode::empty())?;
                let meta = File::from(found.try_clone()?).metadata()?;
                if !meta.file_type().is_symlink() {
                    way.push(found);
                    continue;
                }
                links += 1;
                if no_links || links > MOST_LINKS || is_of_proc(&found)? {
                    return Err(Error::from(Errno::LOOP));
                }
                let to = rustix::fs::readlinkat(&found, "", Vec::new())?;
                let to = OsString::from_vec(to.into_bytes());
                for part in parts(&to).collect::<Vec<_>>().into_iter().rev() {
                    left.push_front(part);
                }
            }
        }
    }
    match way.pop() {
        Some(found) => Ok(found),
        None => Ok(root.try_clone_to_owned()?),
    }
}

/// Returns the components of a path, `/` first if it is absolute.
fn parts(path: &OsStr) -> impl Iterator<Item = OsString> {
    let bytes = path.as_bytes();
    let top = bytes.starts_with(b"/").then(|| OsString::from("/"));
    let names = bytes.split(|byte| *byte == b'/').filter(|n| !n.is_empty());
    top.into_iter()
        .chain(names.map(|name| OsStr::from_bytes(name).to_owned()))
        .collect::<Vec<_>>()
        .into_iter()
}

/// Returns true for a link of /proc. Its target is independent of its text.
fn is_of_proc(found: &OwnedFd) -> Result<bool> {
    Ok(rustix::fs::fstatfs(found)?.f_type == libc::PROC_SUPER_MAGIC)
}

/// Opens a resolved path if it is a regular file.
fn open_found(found: &OwnedFd) -> Result<File> {
    let meta = File::from(found.try_clone()?).metadata()?;
    need_regular(meta.mode())?;
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    // This name refers to exactly the resolved file, even if the path has changed since.
    let itself = format!("/proc/self/fd/{}", found.as_raw_fd());
    match rustix::fs::openat(CWD, itself, flags, Mode::empty()) {
        Ok(file) => Ok(File::from(file)),
        Err(Errno::NOENT) => Err(Error::other("/proc is not mounted: mount it to read files")),
        Err(errno) => Err(errno.into()),
    }
}

/// Refuses everything but regular files.
fn need_regular(mode: u32) -> Result<()> {
    match FileType::from_raw_mode(mode) {
        FileType::RegularFile => Ok(()),
        FileType::Directory => Err(Error::from(Errno::ISDIR)),
        other => Err(Error::other(format!(
            "{} instead of a regular file: not opened",
            name_of(other)
        ))),
    }
}

/// Opens a trusted path with an untrusted target.
/// Never blocks. Returns a regular file, or an error that names the target's type.
///
/// # Errors
/// The errors of open(2). The target is not a regular file.
pub fn open_regular(path: &Path) -> Result<File> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    open_found(&rustix::fs::openat(CWD, path, flags, Mode::empty())?)
}

/// Copies a file of at most `most` bytes into memory.
/// No other user can truncate the copy while it is mapped, which would kill the reader (SIGBUS).
///
/// # Errors
/// The errors of memfd_create(2), read(2) and write(2). [`ErrorKind::FileTooLarge`].
pub fn copy_in_memory(file: &File, most: Bytes) -> Result<File> {
    let flags = rustix::fs::MemfdFlags::CLOEXEC;
    let mut copy = File::from(rustix::fs::memfd_create("copy", flags)?);
    let length = std::io::copy(&mut file.take(most.get().saturating_add(1)), &mut copy)?;
    match length > most.get() {
        true => Err(too_large(&format!("more than {most}"))),
        false => Ok(copy),
    }
}

/// Reads a whole file of at most `most` bytes.
///
/// # Errors
/// The errors of read(2). [`ErrorKind::FileTooLarge`] for a larger file.
pub fn read_at_most(mut file: &File, most: Bytes) -> Result<Vec<u8>> {
    // With this capacity, most kernel files take one read. Without it, std starts with 32 bytes and
    // doubles.
    let mut bytes = Vec::with_capacity(MOSTLY_ENOUGH);
    file.by_ref()
        .take(most.get().saturating_add(1))
        .read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most.get() {
        return Err(too_large(&format!("more than {most}")));
    }
    Ok(bytes)
}

/// Returns the names in a trusted folder, unordered.
///
/// # Errors
/// The errors of open(2) and getdents(2). There are more than `most` names.
pub fn list_at_most(folder: &Path, most: usize) -> Result<Vec<OsString>> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    names_in(rustix::fs::openat(CWD, folder, flags, Mode::empty())?, most)
}

fn names_in(folder: OwnedFd, most: usize) -> Result<Vec<OsString>> {
    let mut names = Vec::new();
    for entry in rustix::fs::Dir::new(folder)? {
        let entry = match entry {
            Ok(entry) => entry,
            // A process ended while its folder was listed.
            Err(Errno::NOENT | Errno::SRCH) => break,
            Err(errno) => return Err(errno.into()),
        };
        let name = entry.file_name().to_bytes();
        if name == b"." || name == b".." {
            continue;
        }
        if names.len() == most {
            return Err(too_large(&format!("more than {most} names")));
        }
        names.push(OsStr::from_bytes(name).to_owned());
    }
    Ok(names)
}

fn too_large(how: &str) -> Error {
    Error::new(ErrorKind::FileTooLarge, format!("{how}: too large"))
}

/// Returns true if only root and `uid` can replace this file.
/// The file and every folder above it belong to one of them, and others may not write there. If `uid` is
/// root, a group other than root's may not write either.
///
/// # Errors
/// The errors of realpath(3) and stat(2).
pub fn is_safe_from_others(path: &Path, uid: u32) -> Result<bool> {
    let path = std::fs::canonicalize(path)?;
    for part in path.ancestors() {
        let meta = std::fs::symlink_metadata(part)?;
        let is_ours = meta.uid() == 0 || meta.uid() == uid;
        let others = meta.mode() & 0o002 != 0;
        let group = uid == 0 && meta.mode() & 0o020 != 0 && meta.gid() != 0;
        // In a sticky folder nobody can replace another user's file, and the entry below was checked.
        let is_sticky = meta.is_dir() && meta.mode() & 0o1000 != 0;
        if !is_ours || (others || group) && !is_sticky {
            return Ok(false);
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use hugeleaf_testkit::{NOBODY, RepeatingThread};
    use std::os::unix::fs::{PermissionsExt, chown, symlink};

    const SOME: Bytes = Bytes(1 << 20);

    fn inside(folder: &Path) -> [ConfinedFolder; 2] {
        let way = |by_steps| ConfinedFolder {
            by_steps,
            ..ConfinedFolder::new(folder, None).unwrap()
        };
        [way(false), way(true)]
    }

    /// Both ways to resolve a path give the same result.
    fn read(folder: &Path, path: &str) -> std::result::Result<String, String> {
        let text = |inside: &ConfinedFolder| {
            let answer = inside.read(Path::new(path), SOME);
            answer
                .map(|bytes| String::from_utf8(bytes).unwrap())
                .map_err(|e| e.to_string())
        };
        let [one, other] = inside(folder).map(|inside| text(&inside));
        assert_eq!(one, other, "{path}");
        one
    }

    fn fifo(path: &Path) {
        let kind = rustix::fs::FileType::Fifo;
        rustix::fs::mknodat(CWD, path, kind, Mode::from_raw_mode(0o666), 0).unwrap();
    }

    #[test]
    fn links_stay_inside() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::create_dir_all(at("root/a/b")).unwrap();
        std::fs::write(at("secret"), "outside").unwrap();
        std::fs::write(at("root/secret"), "inside").unwrap();
        std::fs::write(at("root/a/x"), "x").unwrap();
        let root = &at("root");
        for (link, to) in [
            ("up", "../secret"),
            ("top", "/secret"),
            ("many", "../../../../../secret"),
            ("a/near", "x"),
            ("a/b/far", "../../a/./near"),
            ("folder", "a/b"),
        ] {
            symlink(to, root.join(link)).unwrap();
            let want = if to.ends_with("secret") {
                "inside"
            } else {
                "x"
            };
            if link != "folder" {
                assert_eq!(read(root, link).as_deref(), Ok(want), "{link}");
                assert_eq!(read(root, &format!("/{link}")).as_deref(), Ok(want));
            }
        }
        assert_eq!(read(root, "folder/far").as_deref(), Ok("x"));
        assert_eq!(read(root, "../secret").as_deref(), Ok("inside"));
        assert!(read(root, "folder").unwrap_err().contains("directory"));
        assert!(read(root, "secret/x").unwrap_err().contains("directory"));
        assert!(read(root, "nothing").is_err());
        // A loop, too many levels, and a link of a process.
        symlink("loop", root.join("loop")).unwrap();
        symlink(at("secret"), root.join("absolute")).unwrap();
        assert!(read(root, "loop").unwrap_err().contains("symbolic links"));
        assert!(read(root, "absolute").is_err());
        let mut before = "secret".to_owned();
        for n in 0..60 {
            let link = format!("deep{n}");
            symlink(&before, root.join(&link)).unwrap();
            before = link;
        }
        assert_eq!(read(root, "deep30").as_deref(), Ok("inside"));
        assert!(read(root, "deep50").unwrap_err().contains("symbolic links"));
    }

    #[test]
    fn links_of_proc_are_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        std::fs::write(&file, "text").unwrap();
        let open = File::open(&file).unwrap();
        let path = format!("/proc/self/fd/{}", open.as_raw_fd());
        for inside in inside(Path::new("/")) {
            let error = inside.open(Path::new(&path)).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::ELOOP), "{error}");
        }
    }

    #[test]
    fn only_files_are_opened_and_nothing_blocks() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fifo(&at("fifo"));
        symlink("fifo", at("link")).unwrap();
        std::os::unix::net::UnixListener::bind(at("socket")).unwrap();
        for (name, what) in [("fifo", "pipe"), ("link", "pipe"), ("socket", "socket")] {
            let error = read(dir.path(), name).unwrap_err();
            assert!(error.contains(what), "{name}: {error}");
            let error = open_regular(&at(name)).unwrap_err().to_string();
            assert!(error.contains(what), "{name}: {error}");
        }
        let error = read(Path::new("/"), "/dev/zero").unwrap_err();
        assert!(error.contains("a device"), "{error}");
    }

    #[test]
    fn no_more_is_read_than_the_limit() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("large");
        let file = File::create(&path).unwrap();
        file.set_len(SOME.get()).unwrap();
        assert_eq!(
            read_at_most(&open_regular(&path).unwrap(), SOME)
                .unwrap()
                .len(),
            1 << 20
        );
        file.set_len(1 << 40).unwrap();
        let error = read(dir.path(), "large").unwrap_err();
        assert!(error.contains("more than 1M"), "{error}");
        for n in 0..5 {
            std::fs::write(dir.path().join(format!("n{n}")), "").unwrap();
        }
        let [inside, _] = inside(dir.path());
        assert_eq!(inside.list(Path::new("/"), 6).unwrap().len(), 6);
        let error = inside.list(Path::new("."), 5).unwrap_err().to_string();
        assert!(error.contains("more than 5 names"), "{error}");
        assert_eq!(list_at_most(dir.path(), 6).unwrap().len(), 6);
        assert!(list_at_most(dir.path(), 5).is_err());
    }

    /// Another thread keeps replacing the file by a FIFO and back. Both are handled without blocking.
    #[test]
    fn a_file_that_becomes_a_fifo_blocks_nobody() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::write(at("one"), "text").unwrap();
        fifo(&at("two"));
        let (mut texts, mut fifos) = (0, 0);
        std::thread::scope(|scope| {
            let _exchanger = RepeatingThread::start(scope, || {
                let exchange = rustix::fs::RenameFlags::EXCHANGE;
                rustix::fs::renameat_with(CWD, at("one"), CWD, at("two"), exchange).unwrap();
            });
            let [inside, by_steps] = inside(dir.path());
            while texts < 20 || fifos < 20 {
                for way in [&inside, &by_steps] {
                    match way.read(Path::new("one"), SOME) {
                        Ok(text) => {
                            assert_eq!(text, b"text");
                            texts += 1;
                        }
                        Err(error) => {
                            assert!(error.to_string().contains("a pipe"), "{error}");
                            fifos += 1;
                        }
                    }
                }
            }
        });
    }

    #[test]
    fn a_file_is_opened_with_the_rights_of_the_user() {
        if !rustix::process::geteuid().is_root() {
            println!("not run: a_file_is_opened_with_the_rights_of_the_user: needs root");
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        for (name, mode) in [
            ("open", 0o644),
            ("mine", 0o600),
            ("secret", 0o600),
            ("team", 0o640),
        ] {
            std::fs::write(at(name), name).unwrap();
            std::fs::set_permissions(at(name), std::fs::Permissions::from_mode(mode)).unwrap();
        }
        std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        chown(at("mine"), Some(NOBODY), Some(NOBODY)).unwrap();
        chown(at("team"), None, Some(12345)).unwrap();
        let rights = |groups: &[u32]| UserCredentials {
            uid: NOBODY,
            gid: NOBODY,
            groups: groups.to_vec(),
        };
        let inside = ConfinedFolder::new(dir.path(), Some(rights(&[]))).unwrap();
        let text = |inside: &ConfinedFolder, name: &str| inside.read(Path::new(name), SOME);
        assert_eq!(text(&inside, "open").unwrap(), b"open");
        assert_eq!(text(&inside, "mine").unwrap(), b"mine");
        for name in ["secret", "team"] {
            let error = text(&inside, name).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{name}");
        }
        let in_team = ConfinedFolder::new(dir.path(), Some(rights(&[12345]))).unwrap();
        assert_eq!(text(&in_team, "team").unwrap(), b"team");
        assert_eq!(inside.owner(Path::new("mine")).unwrap(), (NOBODY, NOBODY));
        // This thread kept its own rights.
        assert_eq!(std::fs::read(at("secret")).unwrap(), b"secret");
    }

    #[test]
    fn what_others_can_change_is_not_safe() {
        if !rustix::process::geteuid().is_root() {
            println!("not run: what_others_can_change_is_not_safe: needs root");
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("program");
        std::fs::write(&file, "").unwrap();
        let mode = |path: &Path, mode| {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
        };
        mode(dir.path(), 0o755);
        mode(&file, 0o755);
        let safe = |uid| is_safe_from_others(&file, uid).unwrap();
        assert!(safe(0) && safe(NOBODY));
        mode(&file, 0o757);
        assert!(!safe(0) && !safe(NOBODY));
        mode(&file, 0o755);
        chown(&file, Some(NOBODY), None).unwrap();
        assert!(!safe(0) && safe(NOBODY) && !safe(NOBODY - 1));
        chown(&file, Some(0), None).unwrap();
        mode(dir.path(), 0o777);
        assert!(!safe(0) && !safe(NOBODY));
        chown(dir.path(), None, Some(NOBODY)).unwrap();
        mode(dir.path(), 0o775);
        assert!(!safe(0) && safe(NOBODY));
    }
}
