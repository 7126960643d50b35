//! The kernel's file for splitting huge pages of any process: `split_huge_pages` of debugfs.
#![allow(unsafe_code)]
//! # Safety
//! process_vm_readv(2) has no safe wrapper in any library used here.
//! It writes one byte for each address into a buffer of that many bytes; addresses of the other
//! process are never dereferenced here.

use std::fs::File;
use std::path::Path;

use hugeleaf_units::{Bytes, PageSize, Range};
use rustix::fs::{Mode, OFlags};

use crate::address_space::iovec;
use crate::detached_mount::DetachedMount;
use crate::remote_populate::in_time;
use crate::{Errno, Pid, PidFd, SysError, last_errno};

const NAME: &str = "split_huge_pages";
/// Maximum number of parts of one process_vm_readv(2) (UIO_MAXIOV).
const MOST_PARTS: usize = 1024;

/// The open file. Writing `PID,START,END` splits every huge page in that range of the process.
/// Shared pages are split too, in all processes that map them.
#[derive(Debug)]
pub struct ThpSplitFile {
    file: File,
}

impl ThpSplitFile {
    pub(crate) fn open(path: Option<&Path>) -> Result<ThpSplitFile, SysError> {
        let flags = OFlags::WRONLY | OFlags::CLOEXEC;
        let opened = match path {
            Some(path) => rustix::fs::open(path, flags, Mode::empty())
                .map_err(|e| SysError::new("open", path.display().to_string(), e)),
            // The open file keeps the file system, which is not mounted.
            None => rustix::fs::openat(
                DetachedMount::debugfs()?.descriptor(),
                NAME,
                flags,
                Mode::empty(),
            )
            .map_err(|e| SysError::new("open", format!("debugfs {NAME}"), e)),
        };
        Ok(ThpSplitFile {
            file: File::from(opened?),
        })
    }

    /// Wraps an open file. For tests that replace the kernel.
    pub fn from_file(file: File) -> ThpSplitFile {
        ThpSplitFile { file }
    }

    pub(crate) fn split(&self, process: &PidFd, range: Range) -> Result<(), SysError> {
        let line = line(process, range);
        let fail = |errno| SysError::new("write", format!("{line} to debugfs {NAME}"), errno);
        match rustix::io::write(&self.file, line.as_bytes()) {
            Ok(n) if n == line.len() => Ok(()),
            Ok(_) => Err(fail(Errno::IO)),
            Err(errno) => Err(fail(errno)),
        }
    }
}

/// Returns the line to write. The kernel requires the prefix `0x`. A single number would have
/// another meaning: `1` splits every huge page of the host.
fn line(process: &PidFd, range: Range) -> String {
    let (start, end) = (range.start(), range.end());
    format!("{},{start:#x},{end:#x}", process.pid())
}

/// Maps all pages of `range` in another process by reading one byte of each.
pub(crate) fn map_in(process: &PidFd, range: Range, page: PageSize) -> Result<Bytes, SysError> {
    let pid = process.pid();
    in_time("process_vm_readv", process, move || {
        read_each(pid, range, page)
    })
}

fn read_each(pid: Pid, range: Range, page: PageSize) -> Result<Bytes, SysError> {
    let fail = |errno| SysError::new("process_vm_readv", format!("of {pid}"), errno);
    let pid = i32::try_from(pid.0).map_err(|_| fail(Errno::SRCH))?;
    let mut buffer = [0u8; MOST_PARTS];
    let pages: Vec<Range> = range.chunks(page).collect();
    let mut done = Bytes::ZERO;
    for part in pages.chunks(MOST_PARTS) {
        let remote = part.iter().map(|p| iovec(p.start(), 1));
        let remote = remote.collect::<Result<Vec<_>, _>>().map_err(fail)?;
        let local = libc::iovec {
            iov_base: buffer.as_mut_ptr().cast(),
            iov_len: part.len(),
        };
        // SAFETY: `local` is `part.len()` bytes of `buffer`, which holds MOST_PARTS; both vectors
        // outlive the call. The other process's addresses are checked by the kernel.
        let read = unsafe {
            libc::process_vm_readv(
                pid,
                &raw const local,
                1,
                remote.as_ptr(),
                part.len() as libc::c_ulong,
                0,
            )
        };
        let read = usize::try_from(read).map_err(|_| fail(last_errno()))?;
        done += part[..read.min(part.len())].iter().map(|p| p.len()).sum();
        if read < part.len() {
            break;
        }
    }
    Ok(done)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Kernel, OwnMapping, Sharing, own_pid};
    use std::io::Read;

    fn range(start: u64, end: u64) -> Range {
        Range::new(start, end).unwrap()
    }

    #[test]
    fn a_line_always_has_its_three_parts() {
        let kernel = Kernel::new();
        let own = kernel.pidfd_open(own_pid()).unwrap();
        let text = line(&own, range(0, 0x20_0000));
        assert_eq!(text, format!("{},0x0,0x200000", own_pid()));
        let (mut reader, writer) = std::io::pipe().unwrap();
        let file = ThpSplitFile::from_file(File::from(std::os::fd::OwnedFd::from(writer)));
        kernel.split(&file, &own, range(0x1000, 0x2000)).unwrap();
        drop(file);
        let mut written = String::new();
        reader.read_to_string(&mut written).unwrap();
        assert_eq!(written, format!("{},0x1000,0x2000", own_pid()));
    }

    #[test]
    fn what_cannot_be_opened_or_written_says_so() {
        let kernel = Kernel::new();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(NAME);
        let error = kernel.open_split(Some(&path)).unwrap_err();
        assert_eq!((error.call, error.errno), ("open", Errno::NOENT));
        let full = kernel.open_split(Some(Path::new("/dev/full"))).unwrap();
        let own = kernel.pidfd_open(own_pid()).unwrap();
        let error = kernel.split(&full, &own, range(0, 0x1000)).unwrap_err();
        assert_eq!((error.call, error.errno), ("write", Errno::NOSPC));
        assert!(error.to_string().contains(NAME), "{error}");
    }

    #[test]
    fn pages_are_mapped_by_reading_them() {
        let kernel = Kernel::new();
        let page = kernel.base_page();
        let size = Bytes(page.bytes().get() * 3000);
        let mapping = OwnMapping::anonymous(size, Sharing::Shared).unwrap();
        let own = kernel.pidfd_open(own_pid()).unwrap();
        assert_eq!(kernel.fault_in(&own, mapping.range()).unwrap(), size);
        let gone = mapping.range();
        drop(mapping);
        assert!(kernel.fault_in(&own, gone).is_err());
    }
}
