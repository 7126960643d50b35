//! Holds a host-wide lock so that only one instance runs: one guard, one balancer.

use std::path::Path;

use hugeleaf_sys::{Errno, HostLock, lock_host};

/// Another process has the lock, the lock cannot be taken, or the last instance ended by a fault.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what}")]
pub struct InstanceLockError {
    pub what: String,
    pub is_held: bool,
}

/// Takes the host-wide lock of `whom`, and writes this process's id into it.
pub(crate) fn lock_instance(path: &Path, whom: &str) -> Result<HostLock, InstanceLockError> {
    lock_host(path, false)
        .inspect(|lock| {
            let _ = lock.write_holder(&std::process::id().to_string());
        })
        .map_err(|error| {
            let is_held = error.errno == Errno::AGAIN;
            let holder = std::fs::read_to_string(path).unwrap_or_default();
            let holder = holder.trim();
            let what = match is_held {
                true => format!("another {whom} runs on this host (process {holder})"),
                false => error.to_string(),
            };
            InstanceLockError { what, is_held }
        })
}
