//! A file system that never answers, as NFS without its server: FUSE without a program behind it.

use std::ffi::CString;
use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

use crate::not_run;

/// The mounted file system. Dropping it ends every call that waits for an answer, and unmounts it.
#[derive(Debug)]
pub struct HungMount {
    at: PathBuf,
    device: Option<File>,
}

impl HungMount {
    /// Mounts it on a folder, for all users. Returns `None`, and prints the reason, if that is not possible here.
    /// Call it in a mount namespace of the test ([`crate::apart_from_processes`]), because others would wait too.
    pub fn mount(test: &str, at: &Path) -> Option<HungMount> {
        let device = OpenOptions::new().read(true).write(true).open("/dev/fuse");
        let Ok(device) = device else {
            not_run(test, "needs /dev/fuse");
            return None;
        };
        let fd = device.as_raw_fd();
        let options = format!("fd={fd},rootmode=40000,user_id=0,group_id=0,allow_other");
        let options = CString::new(options).unwrap();
        let flags = MountFlags::empty();
        if mount("dead", at, "fuse", flags, options.as_c_str()).is_err() {
            not_run(test, "needs a kernel and rights to mount FUSE");
            return None;
        }
        Some(HungMount {
            at: at.to_owned(),
            device: Some(device),
        })
    }
}

impl Drop for HungMount {
    fn drop(&mut self) {
        // First, because unmounting asks the file system too.
        drop(self.device.take());
        let _ = unmount(&self.at, UnmountFlags::DETACH);
    }
}
