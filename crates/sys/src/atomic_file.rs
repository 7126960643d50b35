//! Atomic replacement of a file, in folders where other users may write.
//!
//! The content is written to a new file with a random name in the same folder. Nobody can have
//! created it before (O_EXCL), it is not a link, and it is on disk before it is renamed. After a
//! crash or on a full disk, the old file still exists. [`crate::trusted_path`] has the rules for following
//! paths and links.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, RenameFlags, Stat};

use crate::trusted_path::{PathError, ResolvedPath, fail, name_of, walk};
use crate::{Errno, SysError, effective_uid};

/// Permissions of a new file before the umask.
const FRESH: u32 = 0o644;

/// Suffix of a draft's name.
/// The name begins with a dot, so that programs that read all files of a folder skip it.
const END: &str = "hugeleaf-new";

/// Maximum length of a file name (NAME_MAX).
const LONGEST_NAME: usize = 255;

/// Treatment of an existing file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnExisting {
    /// It is replaced in one step. Its permissions are kept if the caller owns it.
    Replaced,
    /// It stays, and the result is an error (EEXIST).
    Kept,
}

/// New content of a file. It is removed if it is dropped before the commit.
#[derive(Debug)]
pub struct StagedFile {
    file: File,
    shown: PathBuf,
    /// The remaining rename. `None` for a device or pipe, which can be written to but not replaced.
    waiting: Option<PendingRename>,
}

#[derive(Debug)]
struct PendingRename {
    folder: OwnedFd,
    from: OsString,
    to: OsString,
    existing: OnExisting,
}

/// Returns an unpredictable name, from the random keys of the standard library's hash tables.
fn random_name(of: &OsStr) -> OsString {
    let end = format!(".{:016x}.{END}", RandomState::new().hash_one(0_u8));
    let room = LONGEST_NAME - 1 - end.len();
    let bytes = of.as_bytes();
    let mut name = OsString::from(".");
    name.push(OsStr::from_bytes(&bytes[..bytes.len().min(room)]));
    name.push(end);
    name
}

/// Returns true if `name` is that of a draft for `file`.
pub fn is_draft_of(name: &OsStr, file: &OsStr) -> bool {
    let own = name.as_bytes().strip_prefix(b".");
    let rest = own.and_then(|own| own.strip_prefix(file.as_bytes()));
    let random = rest.and_then(|rest| rest.strip_suffix(format!(".{END}").as_bytes()));
    let digits = random.and_then(|random| random.strip_prefix(b"."));
    digits.is_some_and(|d| d.len() == 16 && d.iter().all(u8::is_ascii_hexdigit))
}

/// Returns a name for a draft next to the file at a path. Each call returns a different name.
pub fn draft_beside(path: &Path) -> PathBuf {
    path.with_file_name(random_name(path.file_name().unwrap_or_default()))
}

impl StagedFile {
    /// Begins new content for the file at a path.
    /// A device, or a pipe with a reader, is written to directly.
    ///
    /// # Errors
    /// [`PathError`] for another user's link or pipe, for a folder, socket or disk, and for a
    /// folder that is not writable.
    pub fn begin(path: &Path, existing: OnExisting) -> Result<StagedFile, PathError> {
        let found = walk(path, false)?;
        if existing == OnExisting::Kept && found.stat.is_some() {
            return Err(fail("open", &found.shown, Errno::EXIST));
        }
        match found.stat {
            Some(stat) => match FileType::from_raw_mode(stat.st_mode) {
                _ if found.is_magic => StagedFile::write_directly(found),
                FileType::RegularFile => StagedFile::beside(found, kept_mode(&stat), existing),
                FileType::CharacterDevice => StagedFile::write_directly(found),
                FileType::Fifo if is_own(&stat) => StagedFile::write_directly(found),
                other => Err(PathError::Special {
                    what: name_of(other),
                    path: found.shown,
                }),
            },
            None => StagedFile::beside(found, None, existing),
        }
    }

    fn beside(
        found: ResolvedPath,
        mode: Option<u32>,
        existing: OnExisting,
    ) -> Result<StagedFile, PathError> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        let first = mode.map_or(FRESH, |_| 0o600);
        let (from, file) = loop {
            let from = random_name(&found.name);
            let mode = Mode::from_raw_mode(first);
            match rustix::fs::openat(&found.folder, &from, flags | OFlags::CLOEXEC, mode) {
                Ok(file) => break (from, File::from(file)),
                Err(Errno::EXIST | Errno::INTR) => {}
                Err(e) => return Err(fail("open", &found.shown, e)),
            }
        };
        let draft = StagedFile {
            file,
            shown: found.shown,
            waiting: Some(PendingRename {
                folder: found.folder,
                from,
                to: found.name,
                existing,
            }),
        };
        if let Some(mode) = mode {
            rustix::fs::fchmod(&draft.file, Mode::from_raw_mode(mode))
                .map_err(|e| fail("fchmod", &draft.shown, e))?;
        }
        Ok(draft)
    }

    fn write_directly(found: ResolvedPath) -> Result<StagedFile, PathError> {
        // Does not wait for a reader, which may never come.
        let follows = if found.is_magic {
            OFlags::APPEND
        } else {
            OFlags::NOFOLLOW
        };
        let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC | follows;
        let file = rustix::fs::openat(&found.folder, &found.name, flags, Mode::empty());
        let file = file.map_err(|e| fail("open", &found.shown, e))?;
        let flags = rustix::fs::fcntl_getfl(&file).map_err(|e| fail("fcntl", &found.shown, e))?;
        rustix::fs::fcntl_setfl(&file, flags - OFlags::NONBLOCK)
            .map_err(|e| fail("fcntl", &found.shown, e))?;
        Ok(StagedFile {
            file: File::from(file),
            shown: found.shown,
            waiting: None,
        })
    }

    /// Returns true for a file, false for a device or pipe.
    pub const fn is_file(&self) -> bool {
        self.waiting.is_some()
    }

    /// Returns the number of bytes written so far, or 0 for a device or pipe.
    pub fn length(&self) -> u64 {
        let known = self.file.metadata().ok().filter(|_| self.is_file());
        known.map_or(0, |meta| meta.len())
    }

    /// Puts the content in place. When this returns, it is on disk under its final name.
    ///
    /// # Errors
    /// The errors of fsync(2) and rename(2), including ENOSPC. The old file then still exists.
    pub fn commit(mut self) -> Result<(), PathError> {
        let Some(waiting) = &self.waiting else {
            return Ok(());
        };
        rustix::fs::fsync(&self.file).map_err(|e| fail("fsync", &self.shown, e))?;
        waiting
            .rename()
            .map_err(|e| fail("rename", &self.shown, e))?;
        waiting.sync().map_err(|e| fail("fsync", &self.shown, e))?;
        self.waiting = None;
        Ok(())
    }
}

/// Returns the permissions to keep, or `None` if another user owns the file.
fn kept_mode(stat: &Stat) -> Option<u32> {
    is_own(stat).then_some(stat.st_mode & 0o777)
}

fn is_own(stat: &Stat) -> bool {
    stat.st_uid == effective_uid()
}

impl PendingRename {
    fn rename(&self) -> Result<(), Errno> {
        let (folder, from, to) = (&self.folder, &self.from, &self.to);
        if self.existing == OnExisting::Replaced {
            return rustix::fs::renameat(folder, from, folder, to);
        }
        match rustix::fs::renameat_with(folder, from, folder, to, RenameFlags::NOREPLACE) {
            // File systems without it, such as NFS: linkat(2) does not replace an existing file
            // either.
            Err(Errno::INVAL | Errno::NOSYS) => {
                rustix::fs::linkat(folder, from, folder, to, AtFlags::empty())?;
                rustix::fs::unlinkat(folder, from, AtFlags::empty())
            }
            other => other,
        }
    }

    fn sync(&self) -> Result<(), Errno> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = match rustix::fs::openat(&self.folder, ".", flags, Mode::empty()) {
            // A user may be allowed to write to a folder and not to read it.
            Err(Errno::ACCESS) => return Ok(()),
            other => other?,
        };
        match rustix::fs::fsync(opened) {
            // Some file systems cannot sync a folder, and return EINVAL.
            Err(Errno::INVAL) => Ok(()),
            other => other,
        }
    }
}

impl Write for StagedFile {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.file.flush()
    }
}

impl Drop for StagedFile {
    fn drop(&mut self) {
        if let Some(waiting) = &self.waiting {
            // The caller receives the original error.
            let _ = rustix::fs::unlinkat(&waiting.folder, &waiting.from, AtFlags::empty());
        }
    }
}

/// Writes a file completely or not at all ([`StagedFile`]).
///
/// # Errors
/// The errors of [`StagedFile::begin`], write(2) and [`StagedFile::commit`]. No draft is left behind.
pub fn write_whole(path: &Path, content: &[u8], existing: OnExisting) -> Result<(), PathError> {
    let mut draft = StagedFile::begin(path, existing)?;
    draft.write_all(content).map_err(|e| {
        let shown = draft.shown.display().to_string();
        SysError::new("write", shown, crate::errno_of(&e))
    })?;
    draft.commit()
}

#[cfg(test)]
mod tests {
    use super::*;
    use hugeleaf_testkit::NOBODY;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

    fn mode(path: &Path) -> u32 {
        std::fs::symlink_metadata(path).unwrap().mode() & 0o7777
    }

    fn put(path: &Path, text: &str) -> Result<(), PathError> {
        write_whole(path, text.as_bytes(), OnExisting::Replaced)
    }

    fn names(folder: &Path) -> usize {
        std::fs::read_dir(folder).unwrap().count()
    }

    #[test]
    fn whole_or_not_at_all() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        put(&path, "one").unwrap();
        assert_eq!(mode(&path) & !FRESH, 0);
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
        put(&path, "two").unwrap();
        assert_eq!((mode(&path), names(dir.path())), (0o640, 1));
        let mut half = StagedFile::begin(&path, OnExisting::Replaced).unwrap();
        half.write_all(b"th").unwrap();
        assert_eq!((names(dir.path()), half.length()), (2, 2));
        drop(half);
        assert_eq!(std::fs::read(&path).unwrap(), b"two");
        let kept = write_whole(&path, b"four", OnExisting::Kept).unwrap_err();
        assert_eq!(kept.errno(), Some(Errno::EXIST));
        write_whole(&dir.path().join("b"), b"five", OnExisting::Kept).unwrap();
        assert_eq!(names(dir.path()), 2);
        let missing = put(&dir.path().join("no/such/folder"), "x").unwrap_err();
        assert!(missing.to_string().contains("/no:"), "{missing}");
        assert!(
            put(dir.path(), "x")
                .unwrap_err()
                .reason()
                .ends_with("is a folder")
        );
        put(&dir.path().join("x".repeat(LONGEST_NAME)), "long").unwrap();
    }

    #[test]
    fn names_of_drafts_are_known_again_and_never_the_same() {
        let path = Path::new("/etc/a.conf");
        let (one, two) = (draft_beside(path), draft_beside(path));
        assert_ne!(one, two);
        let name = one.file_name().unwrap();
        assert!(is_draft_of(name, OsStr::new("a.conf")), "{name:?}");
        assert!(!is_draft_of(name, OsStr::new("a.con")) && !is_draft_of(name, OsStr::new("a")));
        for other in [
            ".a.conf.hugeleaf-new",
            ".a.conf.00.hugeleaf-new",
            "a.conf",
            ".a.conf.bak",
        ] {
            assert!(
                !is_draft_of(OsStr::new(other), OsStr::new("a.conf")),
                "{other}"
            );
        }
    }

    #[test]
    fn devices_and_open_files_are_written_as_they_stand() {
        put(Path::new("/dev/null"), "x").unwrap();
        let full = put(Path::new("/dev/full"), "x").unwrap_err();
        assert_eq!(full.errno(), Some(Errno::NOSPC));
        // The targets of /dev/stdout and of a shell's <(…).
        let mut file = tempfile::tempfile().unwrap();
        let number = std::os::fd::AsRawFd::as_raw_fd(&file);
        put(Path::new(&format!("/proc/self/fd/{number}")), "open").unwrap();
        let mut text = String::new();
        std::io::Seek::rewind(&mut file).unwrap();
        std::io::Read::read_to_string(&mut file, &mut text).unwrap();
        assert_eq!(text, "open");
    }

    #[test]
    fn a_pipe_that_nobody_reads_is_not_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pipe");
        let made = std::process::Command::new("mkfifo").arg(&path).status();
        if !made.is_ok_and(|status| status.success()) {
            println!("not run: a_pipe_that_nobody_reads_is_not_waited_for: needs mkfifo");
            return;
        }
        assert_eq!(put(&path, "x").unwrap_err().errno(), Some(Errno::NXIO));
    }

    #[test]
    fn own_links_are_followed_and_round_in_circles_nobody_goes() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::create_dir(at("real")).unwrap();
        symlink("real", at("folder")).unwrap();
        symlink("folder/../folder/file", at("link")).unwrap();
        put(&at("link"), "through").unwrap();
        assert_eq!(std::fs::read(at("real/file")).unwrap(), b"through");
        assert!(std::fs::symlink_metadata(at("link")).unwrap().is_symlink());
        symlink("circle", at("circle")).unwrap();
        assert_eq!(
            put(&at("circle"), "x").unwrap_err().errno(),
            Some(Errno::LOOP)
        );
    }

    #[test]
    fn what_another_user_has_placed_is_not_written_through() {
        if effective_uid() != 0 {
            println!("not run: what_another_user_has_placed_is_not_written_through: needs root");
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let theirs = |name: &str| {
            std::os::unix::fs::lchown(at(name), Some(NOBODY), Some(NOBODY)).unwrap();
        };
        std::fs::create_dir_all(at("theirs/out")).unwrap();
        std::fs::write(at("secret"), "secret").unwrap();
        theirs("theirs");
        // Links at the end of the path and in the middle.
        symlink("../secret", at("theirs/end")).unwrap();
        symlink("..", at("theirs/way")).unwrap();
        theirs("theirs/end");
        theirs("theirs/way");
        for path in ["theirs/end", "theirs/way/secret"] {
            let error = put(&at(path), "x").unwrap_err();
            assert!(
                matches!(error, PathError::Link { uid: NOBODY, .. }),
                "{error}"
            );
        }
        // A file that the other user owns and can write to. It is replaced by a new one that root
        // owns.
        std::fs::write(at("theirs/file"), "").unwrap();
        theirs("theirs/file");
        std::fs::set_permissions(at("theirs/file"), PermissionsExt::from_mode(0o666)).unwrap();
        put(&at("theirs/file"), "result").unwrap();
        let meta = std::fs::metadata(at("theirs/file")).unwrap();
        assert_eq!((meta.uid(), meta.mode() & 0o022), (0, 0));
        assert_eq!(std::fs::read(at("secret")).unwrap(), b"secret");
    }

    /// The child of the next test, killed after the given number of steps. Not a test of its own.
    #[test]
    fn child_that_is_killed() {
        let Ok(order) = std::env::var("HUGELEAF_TEST_DRAFT") else {
            return;
        };
        let (steps, path) = order.split_once(' ').unwrap();
        let mut left: u32 = steps.parse().unwrap();
        let mut step = || {
            if left == 0 {
                let own = rustix::process::getpid();
                rustix::process::kill_process(own, rustix::process::Signal::KILL).unwrap();
            }
            left -= 1;
        };
        step();
        let mut draft = StagedFile::begin(Path::new(path), OnExisting::Replaced).unwrap();
        step();
        draft.write_all(b"new, ").unwrap();
        step();
        draft.write_all(b"and whole").unwrap();
        step();
        draft.commit().unwrap();
        step();
    }

    #[test]
    fn killed_at_any_step_the_old_file_or_the_new_one_is_there() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let mut seen = Vec::new();
        for steps in 0..6 {
            std::fs::write(&path, "old").unwrap();
            let ended = std::process::Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "atomic_file::tests::child_that_is_killed"])
                .env("HUGELEAF_TEST_DRAFT", format!("{steps} {}", path.display()))
                .stdout(std::process::Stdio::null())
                .status()
                .unwrap();
            assert_eq!(ended.success(), steps == 5, "{steps}: {ended}");
            seen.push(std::fs::read_to_string(&path).unwrap());
        }
        let (old, new) = ("old", "new, and whole");
        assert_eq!(seen, [old, old, old, old, new, new]);
        // The remaining drafts are recognized.
        for entry in std::fs::read_dir(dir.path()).unwrap() {
            let name = entry.unwrap().file_name();
            let known = name == "file" || is_draft_of(&name, OsStr::new("file"));
            assert!(known, "{name:?}");
        }
    }
}
