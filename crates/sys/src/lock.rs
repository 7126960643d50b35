//! Locks that the kernel releases when their holder dies.
//!
//! Every process that can open a file can lock it (flock(2) requires no write permission), and thus block the lock's
//! owner. Only the owner can open a lock file, and a file of another user in its place is not accepted as a lock.

use std::fs::File;
use std::io::Write;
use std::path::Path;

use rustix::fs::{CWD, FileType, FlockOperation, Mode, OFlags, Stat};

use crate::{Errno, SysError, effective_uid, errno_of};

/// Permissions of a lock file: read and write for the owner only.
const LOCK_MODE: u32 = 0o600;

/// Number of times that another user's file may replace the lock before this is an error.
const MOST_TRIES: u32 = 20;

/// The host-wide lock, held while host-wide state is changed. Released when dropped.
#[derive(Debug)]
pub struct HostLock {
    file: File,
}

impl HostLock {
    /// Replaces the content of the lock file by a line for the next process that tries to lock.
    ///
    /// # Errors
    /// The errors of ftruncate(2) and write(2).
    pub fn write_holder(&self, line: &str) -> Result<(), SysError> {
        let fail = |e: std::io::Error| SysError::new("write", "the lock", errno_of(&e));
        self.file.set_len(0).map_err(fail)?;
        (&self.file)
            .write_all(format!("{line}\n").as_bytes())
            .map_err(fail)
    }
}

/// Takes the lock at `path` (by convention `/run/lock/hugeleaf.lock`), and waits for it if `wait` is true.
/// The kernel releases it when its holder dies in any way (flock(2)). Root replaces another user's file in this place:
/// by this rule it is not a lock.
///
/// # Errors
/// EWOULDBLOCK if another process holds it and `wait` is false. EPERM if another user's file is in its place. The errors
/// of open(2) and flock(2).
pub fn lock_host(path: &Path, wait: bool) -> Result<HostLock, SysError> {
    let fail = |call, errno| SysError::new(call, path.display().to_string(), errno);
    for _ in 0..MOST_TRIES {
        let Some(file) = open_lock(path).map_err(|errno| fail("open", errno))? else {
            continue;
        };
        take(&file, wait).map_err(|errno| fail("flock", errno))?;
        // The file may have been replaced during the wait. Then it locks nothing.
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

/// Opens or creates the lock file. Returns `None` if the caller must try again.
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
        // A link, a socket or a folder.
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

/// Removes another user's file in the place of the lock. Only root may do so; for others it is an error.
fn replace(path: &Path, stat: &Stat) -> Result<Option<File>, Errno> {
    if effective_uid() != 0 || stat.st_uid == 0 {
        return Err(Errno::PERM);
    }
    match rustix::fs::unlink(path) {
        Ok(()) | Err(Errno::NOENT) => Ok(None),
        Err(errno) => Err(errno),
    }
}

/// A mark on a file, visible to all in `/proc/locks`.
/// It ends when dropped or when its holder dies. Marks do not exclude each other.
#[derive(Debug)]
pub struct SharedFlock {
    _file: File,
    /// Major and minor number of the file's device.
    pub device: (u32, u32),
    pub inode: u64,
    /// True if the mark is set. False if another process holds an exclusive lock.
    pub is_set: bool,
}

/// Marks a readable file with a shared lock (flock(2)). Never waits.
///
/// # Errors
/// The errors of open(2), fstat(2) and flock(2), except EWOULDBLOCK.
pub fn mark(path: &Path) -> Result<SharedFlock, SysError> {
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
    Ok(SharedFlock {
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
    use hugeleaf_testkit::NOBODY;

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
        held.write_holder("one, and more").unwrap();
        drop(held);
        // Permissions as an earlier version left them.
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        // Waits: a program that another test is starting holds copies of all open files until exec.
        lock_host(&path, true).unwrap().write_holder("two").unwrap();
        assert_eq!(mode(), 0o600);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "two\n");
        // A link is not accepted as a lock.
        std::fs::rename(&path, dir.path().join("other")).unwrap();
        symlink("other", &path).unwrap();
        assert_eq!(lock_host(&path, false).unwrap_err().errno, Errno::LOOP);
    }

    #[test]
    fn what_another_user_put_in_the_place_of_a_lock_is_none() {
        if effective_uid() != 0 {
            println!("not run: what_another_user_put_in_the_place_of_a_lock_is_none: needs root");
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        std::fs::write(&path, "mine").unwrap();
        std::os::unix::fs::chown(&path, Some(NOBODY), Some(NOBODY)).unwrap();
        // The other user also holds a lock on the file.
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
