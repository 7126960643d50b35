//! Files that are memory: memfd_create(2), on base pages or from a hugetlb pool, and how they are
//! handed to other processes.
#![allow(unsafe_code)]
//! # Safety
//! A number that somebody says is a descriptor is borrowed for one call, which checks it.

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

use crate::gate::{Memory, MemoryCall};
use crate::{Errno, SysError};

/// A file that is memory; its pages live as long as somebody has it open or mapped.
#[derive(Debug)]
pub struct MemoryFile(File);

/// What the kernel says of a [`MemoryFile`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryFileFacts {
    /// The page size of the hugetlb pool it is from; `None` for ordinary shared memory.
    pub hugetlb: Option<PageSize>,
    pub length: Bytes,
    pub held: Bytes,
    /// Whether nobody can make it shorter: only then is mapping it safe from SIGBUS.
    pub keeps_length: bool,
}

/// More descriptors than the kernel passes in one message (SCM_MAX_FD).
pub const DESCRIPTORS_A_MESSAGE: usize = 253;

impl MemoryFile {
    pub const fn file(&self) -> &File {
        &self.0
    }

    /// Takes a descriptor for what it may be; [`Memory::look`] tells what it is.
    pub fn from_fd(fd: OwnedFd) -> MemoryFile {
        MemoryFile(File::from(fd))
    }
}

impl AsFd for MemoryFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Memory {
    /// A new file in memory of `length` bytes that hold nothing yet, closed on exec.
    /// `hugetlb` names the pool; without it the file is ordinary shared memory.
    ///
    /// # Errors
    /// ENODEV or EINVAL: this kernel has no pool of that size. EMFILE, ENFILE, ENOMEM. EINVAL
    /// where `length` is not a multiple of the page size.
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
            // linux/memfd.h: the binary logarithm of the size in the bits from 26 up.
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

    /// Makes a file shorter or longer; pages past its end are freed.
    ///
    /// # Errors
    /// EPERM where it is sealed, EINVAL where the length is no multiple of its page size, EFBIG.
    pub fn set_length(&self, file: &MemoryFile, length: Bytes) -> Result<(), SysError> {
        let subject = || format!("to {length}");
        self.call(MemoryCall::SetLength, "ftruncate", subject, || {
            rustix::fs::ftruncate(file, length.get())
        })
    }

    /// Gives a part of a file its pages now (fallocate(2)).
    ///
    /// # Errors
    /// ENOSPC or ENOMEM where the pool, a limit or memory is short: some pages may have been had.
    /// EINTR: try again.
    pub fn allocate(&self, file: &MemoryFile, part: Range) -> Result<(), SysError> {
        self.fallocate(MemoryCall::Allocate, file, part, FallocateFlags::empty())
    }

    /// Gives the pages of a part of a file back at once; every process that maps them loses them.
    ///
    /// # Errors
    /// EPERM where it is sealed against writing; EINTR: try again.
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
            || rustix::fs::fallocate(file, flags, part.start(), part.len().get()),
        )
    }

    /// Forbids everybody, for good, to change a file's length: a page that is mapped stays there
    /// until it is punched out.
    ///
    /// # Errors
    /// EPERM where it is sealed against sealing.
    pub fn seal_length(&self, file: &MemoryFile) -> Result<(), SysError> {
        let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
        self.call(MemoryCall::Seal, "fcntl(F_ADD_SEALS)", String::new, || {
            rustix::fs::fcntl_add_seals(file, seals)
        })
    }

    /// What a descriptor is.
    ///
    /// # Errors
    /// EINVAL: it is no file in memory. Those of fstat(2) and fstatfs(2).
    pub fn look(&self, file: &MemoryFile) -> Result<MemoryFileFacts, SysError> {
        // linux/magic.h.
        const HUGETLBFS_MAGIC: i64 = 0x9584_58f6;
        const TMPFS_MAGIC: i64 = 0x0102_1994;
        // stat(2): blocks of 512 bytes, whatever the file system's own.
        const BLOCK: u64 = 512;
        let subject = || "of a handle's descriptor".to_owned();
        self.call(MemoryCall::Look, "fstat", subject, || {
            let stat = rustix::fs::fstat(file)?;
            // The width of `f_type` differs between architectures.
            #[allow(clippy::unnecessary_cast)]
            let hugetlb = match rustix::fs::fstatfs(file)?.f_type as i64 {
                HUGETLBFS_MAGIC => {
                    let size = u64::try_from(stat.st_blksize).map_err(|_| Errno::INVAL)?;
                    Some(PageSize::new(Bytes(size)).map_err(|_| Errno::INVAL)?)
                }
                TMPFS_MAGIC => None,
                _ => return Err(Errno::INVAL),
            };
            // A file that cannot be sealed is no memfd of ours.
            let seals = rustix::fs::fcntl_get_seals(file)?;
            let blocks = u64::try_from(stat.st_blocks).unwrap_or(0);
            Ok(MemoryFileFacts {
                hugetlb,
                length: Bytes(u64::try_from(stat.st_size).unwrap_or(0)),
                held: Bytes(blocks.saturating_mul(BLOCK)),
                keeps_length: seals.contains(SealFlags::SHRINK),
            })
        })
    }

    /// A second descriptor of the same file, closed on exec.
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
    /// EPIPE or ECONNRESET: nobody is there. ETOOMANYREFS, EMSGSIZE; EINVAL for more descriptors
    /// than [`DESCRIPTORS_A_MESSAGE`].
    pub fn send_files(
        &self,
        socket: &UnixStream,
        text: &[u8],
        files: &[&MemoryFile],
    ) -> Result<(), SysError> {
        let handle = || "a handle".to_owned();
        self.call(MemoryCall::Send, "sendmsg", handle, || {
            let descriptors: Vec<BorrowedFd<'_>> = files.iter().map(|f| f.as_fd()).collect();
            let message = || SendAncillaryMessage::ScmRights(&descriptors);
            let mut room = vec![MaybeUninit::uninit(); message().size()];
            let mut ancillary = SendAncillaryBuffer::new(&mut room);
            if !descriptors.is_empty() && !ancillary.push(message()) {
                return Err(Errno::INVAL);
            }
            let (text_slice, flags) = ([IoSlice::new(text)], SendFlags::NOSIGNAL);
            // A Unix stream takes a message of this size whole or not at all, unless it is told to
            // not wait; a part of a handle is none.
            match rustix::net::sendmsg(socket, &text_slice, &mut ancillary, flags)? {
                sent if sent == text.len() => Ok(()),
                _ => Err(Errno::MSGSIZE),
            }
        })
    }

    /// Receives what [`Memory::send_files`] sent: the text, at most `most` bytes, and descriptors,
    /// closed on exec. An empty text: the other side has gone.
    ///
    /// # Errors
    /// EMSGSIZE where the message is longer or brings more descriptors than fit; EAGAIN past the
    /// socket's time-out; ECONNRESET.
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

/// Lets programs that this one starts inherit a descriptor (fcntl(2), F_SETFD).
///
/// # Errors
/// Those of fcntl(2).
pub fn keep_on_exec(file: &File) -> Result<(), SysError> {
    rustix::io::fcntl_setfd(file, rustix::io::FdFlags::empty())
        .map_err(|errno| SysError::new("fcntl(F_SETFD)", "", errno))
}

/// A second descriptor of whatever has this number, closed on exec; the first one stays open.
///
/// # Errors
/// EBADF: nothing has it.
pub fn duplicate_raw(number: RawFd) -> Result<OwnedFd, SysError> {
    let fail = |errno| SysError::new("fcntl(F_DUPFD)", number.to_string(), errno);
    if number < 0 {
        return Err(fail(Errno::BADF));
    }
    // SAFETY: borrowed for one call, which answers EBADF where nothing is open under the number;
    // it is neither closed nor kept.
    let borrowed = unsafe { BorrowedFd::borrow_raw(number) };
    rustix::io::fcntl_dupfd_cloexec(borrowed, 0).map_err(fail)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Kernel, Reserve};

    fn page() -> u64 {
        Kernel::new().base_page().bytes().get()
    }

    #[test]
    fn pages_are_held_until_they_are_punched_out() {
        let memory = Memory::new();
        let file = memory.create_file("t", Bytes(4 * page()), None).unwrap();
        assert_eq!(memory.look(&file).unwrap().held, Bytes::ZERO);
        memory
            .allocate(&file, Range::new(0, 4 * page()).unwrap())
            .unwrap();
        assert_eq!(memory.look(&file).unwrap().held, Bytes(4 * page()));
        memory
            .punch(&file, Range::new(page(), 3 * page()).unwrap())
            .unwrap();
        let facts = memory.look(&file).unwrap();
        assert_eq!(
            (facts.held, facts.length),
            (Bytes(2 * page()), Bytes(4 * page()))
        );
        assert!(facts.hugetlb.is_none() && !facts.keeps_length);
        memory.seal_length(&file).unwrap();
        assert!(memory.look(&file).unwrap().keeps_length);
        assert_eq!(
            memory.set_length(&file, Bytes(page())).unwrap_err().errno,
            Errno::PERM
        );
    }

    #[test]
    fn files_travel_over_a_socket() {
        let memory = Memory::new();
        let file = memory.create_file("t", Bytes(page()), None).unwrap();
        let (here, there) = UnixStream::pair().unwrap();
        memory.send_files(&here, b"hello", &[&file]).unwrap();
        let (text, files) = memory.receive_files(&there, 100).unwrap();
        assert_eq!((text.as_slice(), files.len()), (&b"hello"[..], 1));
        let base = Kernel::new().base_page();
        let at = |file: &MemoryFile| {
            let space = memory.set_aside(Bytes(page()), base).unwrap();
            space
                .map_file(space.range(), file, 0, Reserve::All)
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
        assert!(Memory::new().look(&file).is_err());
    }
}
