//! Where changes of the host go. Nothing else here writes anything but the lock.

use std::path::Path;
use std::time::Duration;

use hugeleaf_sys::{FileLook, SysError};

/// Takes every change of the host, and every record of one, in order: the running host's calls, of
/// which a test can put itself in the way. Each call is one step that a crash can fall before or
/// after. Errors are those of the system call.
#[allow(clippy::missing_errors_doc)]
pub trait HostSink {
    /// Writes a value into a knob.
    fn write_value(&mut self, path: &Path, value: &str) -> Result<(), SysError> {
        hugeleaf_sys::write_value(path, value)
    }
    /// Makes a new file, on disk at return.
    fn create_file(
        &mut self,
        path: &Path,
        content: &[u8],
        look: &FileLook,
    ) -> Result<(), SysError> {
        hugeleaf_sys::create_file(path, content, look)
    }
    /// Appends to a file, which is made with this mode where it is missing; on disk at return.
    fn append_to(&mut self, path: &Path, content: &[u8], mode: u32) -> Result<(), SysError> {
        hugeleaf_sys::append_to(path, content, mode)
    }
    /// Renames a file over another.
    fn rename(&mut self, from: &Path, to: &Path) -> Result<(), SysError> {
        hugeleaf_sys::rename(from, to)
    }
    /// Removes a file.
    fn remove_file(&mut self, path: &Path) -> Result<(), SysError> {
        hugeleaf_sys::remove_file(path)
    }
    /// Makes a folder.
    fn make_folder(
        &mut self,
        path: &Path,
        mode: u32,
        owner: Option<(u32, u32)>,
    ) -> Result<(), SysError> {
        hugeleaf_sys::make_folder(path, mode, owner)
    }
    /// Removes an empty folder.
    fn remove_folder(&mut self, path: &Path) -> Result<(), SysError> {
        hugeleaf_sys::remove_folder(path)
    }
    /// Makes the names in a folder last.
    fn sync_folder(&mut self, path: &Path) -> Result<(), SysError> {
        hugeleaf_sys::sync_folder(path)
    }
    /// Mounts a hugetlbfs.
    fn mount(&mut self, path: &Path, options: &str) -> Result<(), SysError> {
        hugeleaf_sys::mount_hugetlbfs(path, options)
    }
    /// Unmounts it.
    fn unmount(&mut self, path: &Path) -> Result<(), SysError> {
        hugeleaf_sys::unmount(path)
    }
    /// Waits.
    fn pause(&mut self, time: Duration) {
        std::thread::sleep(time);
    }
    /// The time, as RFC 3339 has it, in UTC.
    fn now(&mut self) -> String {
        jiff::Timestamp::now()
            .strftime("%Y-%m-%dT%H:%M:%SZ")
            .to_string()
    }
}

/// The running host.
#[derive(Debug, Default)]
pub struct RealHost;

impl HostSink for RealHost {}
