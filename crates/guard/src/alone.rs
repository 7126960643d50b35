//! That there is one of something on a host: one guard, one balancer.

use std::path::Path;

use hugeleaf_sys::{Errno, HostLock, lock_host};

/// Why this process is not the only one.
pub(crate) enum NotAlone {
    /// Another one is, of this process id as it wrote it down.
    Held(String),
    /// There is no lock to be held, and why.
    Failed(String),
}

/// Takes a lock and writes this process's id into it.
pub(crate) fn alone(path: &Path) -> Result<HostLock, NotAlone> {
    match lock_host(path, false) {
        Ok(lock) => {
            let _ = lock.note(&std::process::id().to_string());
            Ok(lock)
        }
        Err(error) if error.errno == Errno::AGAIN => {
            let holder = std::fs::read_to_string(path).unwrap_or_default();
            Err(NotAlone::Held(holder.trim().to_owned()))
        }
        Err(error) => Err(NotAlone::Failed(error.to_string())),
    }
}
