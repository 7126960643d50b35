//! One apply or undo at a time: a lock that the kernel lets go when its holder dies.

use hugeleaf_host::Root;
use hugeleaf_sys::{Errno, HostLock, SysError, lock_host, own_pid, sync_folder};

use super::error::HostError;

const FOLDER: &str = "var/lib/hugeleaf";
const LOCK: &str = "var/lib/hugeleaf/lock";

/// Takes the lock, and leaves this process's id in it for whoever comes second.
///
/// # Errors
/// [`HostError::Locked`] where another has it; [`HostError::State`] where there can be none.
pub fn lock(root: &Root) -> Result<HostLock, HostError> {
    let state = |call: &'static str, e: &std::io::Error| {
        let errno = Errno::from_io_error(e).unwrap_or(Errno::IO);
        HostError::State(SysError::new(
            call,
            root.path(FOLDER).display().to_string(),
            errno,
        ))
    };
    if !root.path(FOLDER).exists() {
        std::fs::create_dir_all(root.path(FOLDER)).map_err(|e| state("mkdir", &e))?;
        // The journal is to outlast a power cut, so its folder has to.
        let above = root.path(FOLDER).parent().map(sync_folder);
        above.unwrap_or(Ok(())).map_err(HostError::State)?;
    }
    let path = root.path(LOCK);
    let held = lock_host(&path, false).map_err(|error| match error.errno {
        Errno::WOULDBLOCK => {
            let text = root.read(LOCK);
            let pid = text.known().and_then(|text| text.trim().parse().ok());
            let path = path.clone();
            HostError::Locked { pid, path }
        }
        _ => HostError::State(error),
    })?;
    std::fs::write(&path, format!("{}\n", own_pid())).map_err(|e| state("write", &e))?;
    Ok(held)
}
