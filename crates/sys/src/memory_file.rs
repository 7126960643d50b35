//! Files in memory (memfd_create(2)) on base pages or from a hugetlb pool, and their transfer to
//! other processes.
#![allow(unsafe_code)]
//! # Safety
//! A raw descriptor number from a caller is borrowed for one call, and that call checks it.

use std::fs::File;
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;

use hugeleaf_units::{Bytes, PageSize, Range};
use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};

use crate::fault_hook::{MemoryCall, MemorySyscalls};
use crate::{Errno, SysError};

/// A file in memory. Its pages exist as long as a process has it open or mapped.
#[derive(Debug)]
pub struct MemoryFile(File);

/// Facts that the kernel reports about a [`MemoryFile`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryFileFacts {
    /// Page size of the file's hugetlb pool, or `None` for ordinary shared memory.
    pub hugetlb: Option<PageSize>,
    pub length: Bytes,
    pub held: Bytes,
    /// True if the file is sealed against shrinking. Only then is a mapping safe from SIGBUS.
    pub keeps_length: bool,
}

/// Maximum number of descriptors that the kernel passes in one message (SCM_MAX_FD).
pub const DESCRIPTORS_A_MESSAGE: usize = 253;

impl MemoryFile {
    pub const fn file(&self) -> &File {
        &self.0
    }

    /// Wraps a descriptor without a check. [`MemorySyscalls::facts`] returns its properties.
    pub fn from_fd(fd: OwnedFd) -> MemoryFile {
        MemoryFile(File::from(fd))
    }
}

impl MemorySyscalls {
    /// Creates an empty file in memory of `length` bytes, closed on exec.
    /// `hugetlb` names the pool; without it the file is ordinary shared memory.
    ///
    /// # Errors
    /// ENODEV or EINVAL if this kernel has no pool of that size. EINVAL if `length` is not a
    /// multiple of the page size. EMFILE, ENFILE, ENOMEM.
    pub fn create_file(
        &self,
        name: &str,
        length: Bytes,
        hugetlb: Option<PageSize>,
    ) -> Result<MemoryFile, SysError> {
        let subject = || match hugetlb {
            Some(size) => format!("{name} of hugetlb {size}"),
            None => name.to_owned(),
        };
        let mut flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        if let Some(size) = hugetlb {
            // The binary logarithm of the page size starts at bit 26 (linux/memfd.h).
            let size = size.bytes().get().trailing_zeros() << 26;
            flags |= MemfdFlags::HUGETLB | MemfdFlags::from_bits_retain(size);
        }
        let fd = self.call(MemoryCall::Create, "memfd_create", subject, || {
            rustix::fs::memfd_create(name, flags)
        })?;
        let file = MemoryFile(File::from(fd));
        self.set_length(&file, length)?;
        Ok(file)
    }

    /// Sets the length of a file. Pages past the new end are freed.
    ///
    /// # Errors
    /// EPERM if it is sealed. EINVAL if the length is not a multiple of its page size. EFBIG.
    pub fn set_length(&self, file: &MemoryFile, length: Bytes) -> Result<(), SysError> {
        let subject = || format!("to {length}");
        self.call(MemoryCall::SetLength, "ftruncate", subject, || {
            rustix::fs::ftruncate(&file.0, length.get())
        })
    }

    /// Allocates the pages of a part of a file now (fallocate(2)).
    ///
    /// # Errors
    /// ENOSPC or ENOMEM if the pool, a limit or memory is exhausted; some pages may then be
    /// allocated. EINTR: try again.
    pub fn allocate(&self, file: &MemoryFile, part: Range) -> Result<(), SysError> {
        self.fallocate(MemoryCall::Allocate, file, part, FallocateFlags::empty())
    }

    /// Frees the pages of a part of a file at once. Every process that maps them loses them.
    ///
    /// # Errors
    /// EPERM if the file is sealed against writing. EINTR: try again.
    pub fn punch(&self, file: &MemoryFile, part: Range) -> Result<(), SysError> {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        self.fallocate(MemoryCall::Punch, file, part, flags)
    }

    fn fallocate(
        &self,
        call: MemoryCall,
        file: &MemoryFile,
        part: Range,
        flags: FallocateFlags,
    ) -> Result<(), SysError> {
        let name = match call {
            MemoryCall::Punch => "fallocate(FALLOC_FL_PUNCH_HOLE)",
            _ => "fallocate",
        };
        self.call(
            call,
            name,
            || part.to_string(),
            || rustix::fs::fallocate(&file.0, flags, part.start(), part.len().get()),
        )
    }

    /// Forbids any change of a file's length, permanently.
    /// A mapped page then exists until it is punched out.
    ///
    /// # Errors
    /// EPERM if the file is sealed against sealing.
    pub fn seal_length(&self, file: &MemoryFile) -> Result<(), SysError> {
        let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
        self.call(MemoryCall::Seal, "fcntl(F_ADD_SEALS)", String::new, || {
            rustix::fs::fcntl_add_seals(&file.0, seals)
        })
    }

    /// Returns the properties of a file in memory.
    ///
    /// # Errors
    /// EINVAL if the descriptor is not a file in memory. The errors of fstat(2) and fstatfs(2).
    pub fn facts(&self, file: &MemoryFile) -> Result<MemoryFileFacts, SysError> {
        // linux/magic.h.
        const HUGETLBFS_MAGIC: i64 = 0x9584_58f6;
        const TMPFS_MAGIC: i64 = 0x0102_1994;
        // stat(2) counts blocks of 512 bytes on every file system.
        const BLOCK: u64 = 512;
        let subject = || "of a handle's descriptor".to_owned();
        self.call(MemoryCall::Look, "fstat", subject, || {
            let stat = rustix::fs::fstat(&file.0)?;
            // The width of `f_type` differs between architectures.
            #[allow(clippy::unnecessary_cast)]
            let hugetlb = match rustix::fs::fstatfs(&file.0)?.f_type as i64 {
                HUGETLBFS_MAGIC => {
                    let size = u64::try_from(stat.st_blksize).map_err(|_| Errno::INVAL)?;
                    Some(PageSize::new(Bytes(size)).map_err(|_| Errno::INVAL)?)
                }
                TMPFS_MAGIC => None,
                _ => return Err(Errno::INVAL),
            };
            // A file without seals is not one of our memfds.
            let seals = rustix::fs::fcntl_get_seals(&file.0)?;
            let blocks = u64::try_from(stat.st_blocks).unwrap_or(0);
            Ok(MemoryFileFacts {
                hugetlb,
                length: Bytes(u64::try_from(stat.st_size).unwrap_or(0)),
                held: Bytes(blocks.saturating_mul(BLOCK)),
                keeps_length: seals.contains(SealFlags::SHRINK),
            })
        })
    }

    /// Returns a second descriptor of the same file, closed on exec.
    ///
    /// # Errors
    /// EMFILE.
    pub fn duplicate(&self, file: &MemoryFile) -> Result<MemoryFile, SysError> {
        self.call(MemoryCall::Duplicate, "dup", String::new, || {
            let copy = file.0.try_clone();
            copy.map(MemoryFile).map_err(|e| crate::errno_of(&e))
        })
    }

    /// Sends a text and descriptors over a Unix socket, in one message.
    ///
    /// # Errors
    /// EPIPE or ECONNRESET if the peer is gone. ETOOMANYREFS, EMSGSIZE. EINVAL for more descriptors
    /// than [`DESCRIPTORS_A_MESSAGE`].
    pub fn send_files(
        &self,
        socket: &UnixStream,
        text: &[u8],
        files: &[&MemoryFile],
    ) -> Result<(), SysError> {
        let handle = || "a handle".to_owned();
        self.call(MemoryCall::Send, "sendmsg", handle, || {
            let descriptors: Vec<BorrowedFd<'_>> = files.iter().map(|f| f.0.as_fd()).collect();
            let message = || SendAncillaryMessage::ScmRights(&descriptors);
            let mut room = vec![MaybeUninit::uninit(); message().size()];
            let mut ancillary = SendAncillaryBuffer::new(&mut room);
            if !descriptors.is_empty() && !ancillary.push(message()) {
                return Err(Errno::INVAL);
            }
            let (text_slice, flags) = ([IoSlice::new(text)], SendFlags::NOSIGNAL);
            // A blocking Unix stream sends a message of this size completely or not at all. Part of
            // a handle is useless.
            match rustix::net::sendmsg(socket, &text_slice, &mut ancillary, flags)? {
                sent if sent == text.len() => Ok(()),
                _ => Err(Errno::MSGSIZE),
            }
        })
    }

    /// Receives a message of [`MemorySyscalls::send_files`]: the text, at most `most` bytes, and
    /// descriptors that are closed on exec. An empty text means that the peer closed the socket.
    ///
    /// # Errors
    /// EMSGSIZE if the message is longer or brings too many descriptors. EAGAIN after the socket's
    /// time-out. ECONNRESET.
    pub fn receive_files(
        &self,
        socket: &UnixStream,
        most: usize,
    ) -> Result<(Vec<u8>, Vec<MemoryFile>), SysError> {
        let handle = || "a handle".to_owned();
        self.call(MemoryCall::Receive, "recvmsg", handle, || {
            let mut text = vec![0; most];
            let mut room =
                vec![MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_A_MESSAGE))];
            let mut ancillary = RecvAncillaryBuffer::new(&mut room);
            let (mut slices, flags) = ([IoSliceMut::new(&mut text)], RecvFlags::CMSG_CLOEXEC);
            let got = rustix::net::recvmsg(socket, &mut slices, &mut ancillary, flags)?;
            let rights = ancillary.drain().filter_map(|message| match message {
                RecvAncillaryMessage::ScmRights(rights) => Some(rights),
                _ => None,
            });
            let files = rights.flatten().map(MemoryFile::from_fd).collect();
            let cut = ReturnFlags::TRUNC | ReturnFlags::CTRUNC;
            if got.flags.intersects(cut) {
                return Err(Errno::MSGSIZE);
            }
            text.truncate(got.bytes);
            Ok((text, files))
        })
    }
}

/// Lets child programs inherit a descriptor (fcntl(2), F_SETFD).
///
/// # Errors
/// The errors of fcntl(2).
pub fn keep_on_exec(file: &File) -> Result<(), SysError> {
    rustix::io::fcntl_setfd(file, rustix::io::FdFlags::empty())
        .map_err(|errno| SysError::new("fcntl(F_SETFD)", "", errno))
}

/// Duplicates the descriptor with this number, closed on exec. The original stays open.
///
/// # Errors
/// EBADF if no descriptor has this number.
pub fn duplicate_raw(number: RawFd) -> Result<OwnedFd, SysError> {
    let fail = |errno| SysError::new("fcntl(F_DUPFD)", number.to_string(), errno);
    if number < 0 {
        return Err(fail(Errno::BADF));
    }
    // SAFETY: borrowed for one call, which answers EBADF if no descriptor has the number;
    // it is neither closed nor kept.
    let borrowed = unsafe { BorrowedFd::borrow_raw(number) };
    rustix::io::fcntl_dupfd_cloexec(borrowed, 0).map_err(fail)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{HugetlbReservation, Kernel};

    fn page() -> u64 {
        Kernel::new().base_page().bytes().get()
    }

    #[test]
    fn pages_are_held_until_they_are_punched_out() {
        let memory = MemorySyscalls::new();
        let file = memory.create_file("t", Bytes(4 * page()), None).unwrap();
        assert_eq!(memory.facts(&file).unwrap().held, Bytes::ZERO);
        memory
            .allocate(&file, Range::new(0, 4 * page()).unwrap())
            .unwrap();
        assert_eq!(memory.facts(&file).unwrap().held, Bytes(4 * page()));
        memory
            .punch(&file, Range::new(page(), 3 * page()).unwrap())
            .unwrap();
        let facts = memory.facts(&file).unwrap();
        assert_eq!(
            (facts.held, facts.length),
            (Bytes(2 * page()), Bytes(4 * page()))
        );
        assert!(facts.hugetlb.is_none() && !facts.keeps_length);
        memory.seal_length(&file).unwrap();
        assert!(memory.facts(&file).unwrap().keeps_length);
        assert_eq!(
            memory.set_length(&file, Bytes(page())).unwrap_err().errno,
            Errno::PERM
        );
    }

    #[test]
    fn files_travel_over_a_socket() {
        let memory = MemorySyscalls::new();
        let file = memory.create_file("t", Bytes(page()), None).unwrap();
        let (here, there) = UnixStream::pair().unwrap();
        memory.send_files(&here, b"hello", &[&file]).unwrap();
        let (text, files) = memory.receive_files(&there, 100).unwrap();
        assert_eq!((text.as_slice(), files.len()), (&b"hello"[..], 1));
        let base = Kernel::new().base_page();
        let at = |file: &MemoryFile| {
            let space = memory.reserve_addresses(Bytes(page()), base).unwrap();
            space
                .map_file(space.range(), file, 0, HugetlbReservation::All)
                .unwrap();
            space
        };
        let (one, two) = (at(&file), at(&files[0]));
        std::fs::write(
            format!(
                "/proc/self/fd/{}",
                std::os::fd::AsRawFd::as_raw_fd(file.file())
            ),
            b"x",
        )
        .unwrap();
        assert_ne!(one.range(), two.range());
        memory.send_files(&here, b"longer than that", &[]).unwrap();
        assert!(memory.receive_files(&there, 4).is_ok());
        drop(here);
        let (rest, _) = memory.receive_files(&there, 100).unwrap();
        assert_eq!(rest, b"er than that");
        assert!(memory.receive_files(&there, 100).unwrap().0.is_empty());
    }

    #[test]
    fn an_ordinary_file_is_none() {
        let file = tempfile::tempfile().unwrap();
        let file = MemoryFile::from_fd(file.into());
        assert!(MemorySyscalls::new().facts(&file).is_err());
    }
}
