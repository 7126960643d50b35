//! The kernel's tracefs and debugfs, even if they are not mounted.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;

use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags};

use crate::SysError;

/// A file system that is not attached to any mount point.
/// Only its holder can access it, and it ends with this value. Nothing on the host changes.
#[derive(Debug)]
pub struct DetachedMount {
    mount: OwnedFd,
}

impl DetachedMount {
    /// Opens the tracefs, read-only (fsopen(2), fsmount(2)).
    ///
    /// # Errors
    /// EPERM without CAP_SYS_ADMIN or under kernel lockdown. ENODEV if the kernel has none.
    pub fn tracefs() -> Result<DetachedMount, SysError> {
        DetachedMount::open("tracefs", MountAttrFlags::MOUNT_ATTR_RDONLY)
    }

    /// Opens the debugfs.
    ///
    /// # Errors
    /// EPERM without CAP_SYS_ADMIN or under kernel lockdown. ENODEV if the kernel has none.
    pub fn debugfs() -> Result<DetachedMount, SysError> {
        DetachedMount::open("debugfs", MountAttrFlags::empty())
    }

    fn open(name: &'static str, attributes: MountAttrFlags) -> Result<DetachedMount, SysError> {
        let fail = |call, errno| SysError::new(call, name, errno);
        let context = rustix::mount::fsopen(name, FsOpenFlags::FSOPEN_CLOEXEC)
            .map_err(|e| fail("fsopen", e))?;
        rustix::mount::fsconfig_create(&context).map_err(|e| fail("fsconfig", e))?;
        let mount = rustix::mount::fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)
            .map_err(|e| fail("fsmount", e))?;
        Ok(DetachedMount { mount })
    }

    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.mount.as_fd()
    }

    /// Returns the path at which this process can access it.
    pub fn folder(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.mount.as_raw_fd()))
    }
}
