//! Locks that the kernel lets go when their holder dies.
//!
//! Whoever can open a file can lock it (flock(2) asks for no right to write), so a lock that others
//! can open is one with which they stop its owner's work. Lock files can be opened by their owner
//! only, and one that somebody else has put in the place is no lock.

use std::fs::File;
use std::io::Write;
use std::path::Path;

use rustix::fs::{CWD, FileType, FlockOperation, Mode, OFlags, Stat};

use crate::{Errno, SysError, effective_uid, errno_of};

/// The owner only.
const LOCK_MODE: u32 = 0o600;

/// So often others may put something in the place of a lock before that is an error.
const MOST_TRIES: u32 = 20;

/// The one lock that whoever changes host-wide state holds; let go when dropped.
#[derive(Debug)]
pub struct HostLock {
    file: File,
}

impl HostLock {
    /// Leaves a line for whoever comes second, in place of what stands in the file.
    ///
    /// # Errors
    /// Those of ftruncate(2) and write(2).
    pub fn note(&self, line: &str) -> Result<(), SysError> {
        let fail = |e: std::io::Error| SysError::new("write", "the lock", errno_of(&e));
        self.file.set_len(0).map_err(fail)?;
        (&self.file)
            .write_all(format!("{line}\n").as_bytes())
            .map_err(fail)
    }
}

/// Takes the lock at `path` (by custom `/run/lock/hugeleaf.lock`), waiting for it where `wait`.
/// The kernel lets it go when its holder dies, however that happens (flock(2)). Root replaces what
/// somebody else has put there: nobody who keeps to this rule holds that.
///
/// # Errors
/// EWOULDBLOCK where another holds it and `wait` is false; EPERM where somebody else's file is in
/// its place; those of open(2) and flock(2).
pub fn lock_host(path: &Path, wait: bool) -> Result<HostLock, SysError> {
    let fail = |call, errno| SysError::new(call, path.display().to_string(), errno);
    for _ in 0..MOST_TRIES {
        let Some(file) = open_lock(path).map_err(|errno| fail("open", errno))? else {
            continue;
        };
        take(&file, wait).map_err(|errno| fail("flock", errno))?;
        // While this waited the file may have been replaced: then it locks nothing any more.
        let now = rustix::fs::lstat(path).ok();
        let held = rustix::fs::fstat(&file).map_err(|errno| fail("fstat", errno))?;
        if now.is_some_and(|now| (now.st_dev, now.st_ino) == (held.st_dev, held.st_ino)) {
            return Ok(HostLock { file });
        }
    }
    Err(fail("open", Errno::PERM))
}

fn take(file: &File, wait: bool) -> Result<(), Errno> {
    let how = match wait {
        true => FlockOperation::LockExclusive,
        false => FlockOperation::NonBlockingLockExclusive,
    };
    loop {
        match rustix::fs::flock(file, how) {
            Err(Errno::INTR) => {}
            other => return other,
        }
    }
}

/// The lock's file, made where there is none; nothing where it has to be tried again.
fn open_lock(path: &Path) -> Result<Option<File>, Errno> {
    let plain = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let mode = Mode::from_raw_mode(LOCK_MODE);
    match rustix::fs::openat(CWD, path, plain | OFlags::NOCTTY, mode) {
        Ok(file) => {
            let stat = rustix::fs::fstat(&file)?;
            if !is_own_file(&stat) {
                return replace(path, &stat);
            }
            if stat.st_mode & 0o777 != LOCK_MODE {
                rustix::fs::fchmod(&file, mode)?;
            }
            Ok(Some(File::from(file)))
        }
        Err(Errno::NOENT) => {
            let new = plain | OFlags::CREATE | OFlags::EXCL;
            match rustix::fs::openat(CWD, path, new, mode) {
                Ok(file) => Ok(Some(File::from(file))),
                Err(Errno::EXIST) => Ok(None),
                Err(errno) => Err(errno),
            }
        }
        // A link, a socket, a folder.
        Err(errno @ (Errno::LOOP | Errno::NXIO | Errno::ISDIR)) => match rustix::fs::lstat(path) {
            Ok(stat) if stat.st_uid != effective_uid() => replace(path, &stat),
            _ => Err(errno),
        },
        Err(errno) => Err(errno),
    }
}

fn is_own_file(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile && stat.st_uid == effective_uid()
}

/// Root removes what somebody else has put in the place of the lock; for others it is an error.
fn replace(path: &Path, stat: &Stat) -> Result<Option<File>, Errno> {
    if effective_uid() != 0 || stat.st_uid == 0 {
        return Err(Errno::PERM);
    }
    match rustix::fs::unlink(path) {
        Ok(()) | Err(Errno::NOENT) => Ok(None),
        Err(errno) => Err(errno),
    }
}

/// A mark on a file, seen by all that look into `/proc/locks`; gone when dropped, and when its
/// holder dies. Marks do not exclude each other.
#[derive(Debug)]
pub struct Mark {
    _file: File,
    /// Device of the file: major and minor number.
    pub device: (u32, u32),
    pub inode: u64,
    /// Whether it is marked; `false` where somebody holds it for himself alone.
    pub is_set: bool,
}

/// Marks a file that can be read, by a shared lock (flock(2)); never waits.
///
/// # Errors
/// Those of open(2), fstat(2) and flock(2); EWOULDBLOCK is none.
pub fn mark(path: &Path) -> Result<Mark, SysError> {
    let fail = |call, errno| SysError::new(call, path.display().to_string(), errno);
    let file = File::open(path).map_err(|e| fail("open", errno_of(&e)))?;
    let stat = rustix::fs::fstat(&file).map_err(|e| fail("fstat", e))?;
    let is_set = loop {
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared) {
            Ok(()) => break true,
            Err(Errno::INTR) => {}
            Err(Errno::WOULDBLOCK) => break false,
            Err(errno) => return Err(fail("flock", errno)),
        }
    };
    Ok(Mark {
        _file: file,
        device: (
            rustix::fs::major(stat.st_dev),
            rustix::fs::minor(stat.st_dev),
        ),
        inode: stat.st_ino,
        is_set,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_holder_at_a_time() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let held = lock_host(&path, false).unwrap();
        assert_eq!(
            lock_host(&path, false).unwrap_err().errno,
            Errno::WOULDBLOCK
        );
        drop(held);
        lock_host(&path, true).unwrap();
    }

    #[test]
    fn only_its_owner_can_open_a_lock() {
        use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let mode = || std::fs::symlink_metadata(&path).unwrap().mode() & 0o777;
        let held = lock_host(&path, false).unwrap();
        assert_eq!(mode(), 0o600);
        held.note("one, and more").unwrap();
        drop(held);
        // One that an earlier version has left.
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        // With patience: a program that another test starts just now holds a copy of what was open until it is executed.
        lock_host(&path, true).unwrap().note("two").unwrap();
        assert_eq!(mode(), 0o600);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "two\n");
        // A link is none.
        std::fs::rename(&path, dir.path().join("other")).unwrap();
        symlink("other", &path).unwrap();
        assert_eq!(lock_host(&path, false).unwrap_err().errno, Errno::LOOP);
    }

    #[test]
    fn what_another_user_put_in_the_place_of_a_lock_is_none() {
        const NOBODY: u32 = 65534;
        if effective_uid() != 0 {
            println!("not run: what_another_user_put_in_the_place_of_a_lock_is_none: needs root");
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        std::fs::write(&path, "mine").unwrap();
        std::os::unix::fs::chown(&path, Some(NOBODY), Some(NOBODY)).unwrap();
        // It is held by that user, too.
        let theirs = File::open(&path).unwrap();
        take(&theirs, false).unwrap();
        let held = lock_host(&path, false).unwrap();
        assert_eq!(
            lock_host(&path, false).unwrap_err().errno,
            Errno::WOULDBLOCK
        );
        drop((held, theirs));
        std::fs::remove_file(&path).unwrap();
        let made = std::process::Command::new("mkfifo").arg(&path).status();
        if !made.is_ok_and(|status| status.success()) {
            return;
        }
        std::os::unix::fs::chown(&path, Some(NOBODY), Some(NOBODY)).unwrap();
        lock_host(&path, false).unwrap();
    }

    #[test]
    fn marks_stand_beside_each_other() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("marked");
        assert_eq!(mark(&path).unwrap_err().errno, Errno::NOENT);
        std::fs::write(&path, "").unwrap();
        let (a, b) = (mark(&path).unwrap(), mark(&path).unwrap());
        assert!(a.is_set && b.is_set);
        assert_eq!((a.device, a.inode), (b.device, b.inode));
        drop((a, b));
        let _held = lock_host(&path, false).unwrap();
        assert!(!mark(&path).unwrap().is_set);
    }
}
