//! Allows one apply or undo at a time, by a lock that the kernel releases when its holder dies.

use hugeleaf_host::Root;
use hugeleaf_sys::{Errno, HostLock, Kernel, check_trusted, lock_host, own_pid};

use super::apply_step::make_folders;
use super::error::HostChangeError;
use super::path_state::missing_folders;

const FOLDER: &str = "var/lib/hugeleaf";
const LOCK: &str = "var/lib/hugeleaf/lock";

/// Takes the lock, and writes this process's id into it for the next process that tries.
///
/// # Errors
/// [`HostChangeError::Locked`] if another process holds it; [`HostChangeError::State`] if it cannot be created;
/// [`HostChangeError::Others`] if other users could change the folder.
pub fn lock(root: &Root) -> Result<HostLock, HostChangeError> {
    let folder = root.path(FOLDER);
    // The journal must survive a power failure, and so must its folder. Everybody may read the
    // journal, as `verify` does; only its owner may open the lock.
    make_folders(&Kernel::new(), &missing_folders(&folder)).map_err(HostChangeError::State)?;
    check_trusted(&folder).map_err(HostChangeError::Others)?;
    let path = root.path(LOCK);
    let held = lock_host(&path, false).map_err(|error| match error.errno {
        Errno::WOULDBLOCK => {
            let text = root.read(LOCK);
            let pid = text.known().and_then(|text| text.trim().parse().ok());
            HostChangeError::Locked { pid, path }
        }
        _ => HostChangeError::State(error),
    })?;
    held.write_holder(&own_pid().to_string())
        .map_err(HostChangeError::State)?;
    Ok(held)
}
