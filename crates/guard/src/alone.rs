//! That there is one of something on a host: one guard, one balancer.

use std::path::Path;

use hugeleaf_sys::{Errno, HostLock, lock_host};

/// Why this process is not the only one: another one has the lock, or it cannot be had.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what}")]
pub struct NoLock {
    pub what: String,
    pub is_held: bool,
}

/// Takes the lock of a host's one `whom`, and writes this process's id into it.
pub(crate) fn alone(path: &Path, whom: &str) -> Result<HostLock, NoLock> {
    lock_host(path, false)
        .inspect(|lock| {
            let _ = lock.note(&std::process::id().to_string());
        })
        .map_err(|error| {
            let is_held = error.errno == Errno::AGAIN;
            let holder = std::fs::read_to_string(path).unwrap_or_default();
            let holder = holder.trim();
            let what = match is_held {
                true => format!("another {whom} runs on this host (process {holder})"),
                false => error.to_string(),
            };
            NoLock { what, is_held }
        })
}
