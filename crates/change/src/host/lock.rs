//! One apply or undo at a time: a lock that the kernel lets go when its holder dies.

use hugeleaf_host::Root;
use hugeleaf_sys::{Errno, HostLock, Kernel, check_trusted, lock_host, own_pid};

use super::error::HostError;
use super::make::make_folders;
use super::place::missing_folders;

const FOLDER: &str = "var/lib/hugeleaf";
const LOCK: &str = "var/lib/hugeleaf/lock";

/// Takes the lock, and leaves this process's id in it for whoever comes second.
///
/// # Errors
/// [`HostError::Locked`] where another has it; [`HostError::State`] where there can be none;
/// [`HostError::Others`] where others could change what is kept there.
pub fn lock(root: &Root) -> Result<HostLock, HostError> {
    let folder = root.path(FOLDER);
    // The journal is to outlast a power cut, so its folder has to. Everybody may read what was
    // applied, as `verify` does; the lock in it only its owner may open.
    make_folders(&Kernel::new(), &missing_folders(&folder)).map_err(HostError::State)?;
    check_trusted(&folder).map_err(HostError::Others)?;
    let path = root.path(LOCK);
    let held = lock_host(&path, false).map_err(|error| match error.errno {
        Errno::WOULDBLOCK => {
            let text = root.read(LOCK);
            let pid = text.known().and_then(|text| text.trim().parse().ok());
            HostError::Locked { pid, path }
        }
        _ => HostError::State(error),
    })?;
    held.note(&own_pid().to_string())
        .map_err(HostError::State)?;
    Ok(held)
}
