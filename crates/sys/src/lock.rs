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
}
