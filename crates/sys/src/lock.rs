use std::fs::{File, OpenOptions};
use std::path::Path;

use rustix::fs::FlockOperation;

use crate::pagemap::errno_of;
use crate::{Errno, SysError};

/// The one lock that whoever changes host-wide state holds; let go when dropped.
#[derive(Debug)]
pub struct HostLock {
    _file: File,
}

/// Takes the lock at `path` (by custom `/run/lock/hugeleaf.lock`), waiting for it where `wait`.
/// The kernel lets it go when its holder dies, however that happens (flock(2)).
///
/// # Errors
/// EWOULDBLOCK where another holds it and `wait` is false; those of open(2) and flock(2).
pub fn lock_host(path: &Path, wait: bool) -> Result<HostLock, SysError> {
    let fail = |call, errno| SysError::new(call, path.display().to_string(), errno);
    let file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .open(path)
        .map_err(|e| fail("open", errno_of(&e)))?;
    let how = if wait {
        FlockOperation::LockExclusive
    } else {
        FlockOperation::NonBlockingLockExclusive
    };
    loop {
        match rustix::fs::flock(&file, how) {
            Ok(()) => return Ok(HostLock { _file: file }),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(fail("flock", errno)),
        }
    }
}

/// A mark on a file, seen by all that look into `/proc/locks`; gone when dropped, and when its
/// holder dies. Marks do not exclude each other.
#[derive(Debug)]
pub struct Mark {
    _file: File,
    /// Device of the file: major and minor number.
    pub device: (u32, u32),
    /// Its inode.
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
