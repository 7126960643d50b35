//! io_uring(7) for buffers of this process: asynchronous reads and writes, with or without
//! registered memory, which is pinned once.
#![allow(unsafe_code)]
//! # Safety
//! From the start of an operation to its end, the kernel reads or writes its buffer without the
//! compiler's knowledge. A buffer is therefore passed by value (`&'b mut [u8]`) and returned with
//! the answer. A ring exists only inside [`with_ring`], which waits for all operations in flight
//! before it returns, also if the closure panics.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::AsRawFd;

use hugeleaf_units::Range;
use io_uring::{IoUring, opcode, types};

use hugeleaf_sys::{Errno, SysError, errno_of};

/// Direction of a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    Read,
    Write,
}

#[derive(Debug)]
pub struct Completion<'b> {
    pub tag: u64,
    pub buffer: &'b mut [u8],
    /// Number of bytes transferred.
    pub result: Result<usize, Errno>,
}

/// A ring; see [`with_ring`].
pub struct Ring<'b> {
    ring: IoUring,
    /// Operations in flight: tag and buffer.
    flying: BTreeMap<u64, (u64, &'b mut [u8])>,
    registered: Vec<Range>,
    next: u64,
}

impl std::fmt::Debug for Ring<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Ring with {} under way", self.flying.len())
    }
}

/// Makes a ring for `depth` operations at a time, and passes it to `work`.
///
/// # Errors
/// ENOSYS: no io_uring in this kernel. EPERM: `kernel.io_uring_disabled`, or a filter of system
/// calls. ENOMEM: past the memlock limit, on kernels before 5.12.
pub fn with_ring<'b, T>(depth: u32, work: impl FnOnce(&mut Ring<'b>) -> T) -> Result<T, SysError> {
    let ring = IoUring::new(depth.max(1))
        .map_err(|e| SysError::new("io_uring_setup", "", errno_of(&e)))?;
    let mut ring = Ring {
        ring,
        flying: BTreeMap::new(),
        registered: Vec::new(),
        next: 0,
    };
    // In all cases, `drop` below waits for the operations in flight.
    Ok(work(&mut ring))
}

impl<'b> Ring<'b> {
    /// Registers memory, which stays pinned until [`Ring::unregister`] or the end of the ring
    /// (IORING_REGISTER_BUFFERS). A part may be at most 1 GiB.
    ///
    /// # Errors
    /// ENOMEM: past the memlock limit. EFAULT: not mapped, or longer. EBUSY: memory is already
    /// registered. EOPNOTSUPP: memory of a file.
    pub fn register(&mut self, parts: &[Range]) -> Result<(), SysError> {
        let vector = |part: &Range| libc::iovec {
            iov_base: part.start() as *mut libc::c_void,
            iov_len: usize::try_from(part.len().get()).unwrap_or(usize::MAX),
        };
        // One part is the case that is timed, so nothing is allocated for it.
        let (one, many);
        let vectors: &[libc::iovec] = match parts {
            [part] => {
                one = [vector(part)];
                &one
            }
            parts => {
                many = parts.iter().map(vector).collect::<Vec<_>>();
                &many
            }
        };
        // SAFETY: the kernel pins the pages and keeps no address. Only operations read or write
        // there, and they own their buffers.
        unsafe { self.ring.submitter().register_buffers(vectors) }
            .map_err(|e| fail("io_uring_register(BUFFERS)", &e))?;
        self.registered.clear();
        self.registered.extend_from_slice(parts);
        Ok(())
    }

    /// Unregisters all registered memory.
    ///
    /// # Errors
    /// ENXIO if none is registered.
    pub fn unregister(&mut self) -> Result<(), SysError> {
        self.registered.clear();
        self.ring
            .submitter()
            .unregister_buffers()
            .map_err(|e| fail("io_uring_register(UNREGISTER_BUFFERS)", &e))
    }

    pub fn flying(&self) -> usize {
        self.flying.len()
    }

    /// Starts a transfer of a buffer. No page has to be pinned if the buffer is in registered
    /// memory.
    ///
    /// # Errors
    /// Those of io_uring_enter(2); [`Ring::wait`] returns the buffer nevertheless.
    pub fn start(
        &mut self,
        direction: Direction,
        file: &'b File,
        offset: u64,
        buffer: &'b mut [u8],
        tag: u64,
    ) -> Result<(), SysError> {
        let fd = types::Fd(file.as_raw_fd());
        let length = u32::try_from(buffer.len())
            .map_err(|_| SysError::new("io_uring_enter", "", Errno::INVAL))?;
        let at = buffer.as_mut_ptr();
        let fixed = self.index_of(at as u64, buffer.len());
        let entry = match (direction, fixed) {
            (Direction::Read, None) => opcode::Read::new(fd, at, length).offset(offset).build(),
            (Direction::Write, None) => opcode::Write::new(fd, at, length).offset(offset).build(),
            (Direction::Read, Some(index)) => opcode::ReadFixed::new(fd, at, length, index)
                .offset(offset)
                .build(),
            (Direction::Write, Some(index)) => opcode::WriteFixed::new(fd, at, length, index)
                .offset(offset)
                .build(),
        };
        let id = self.next;
        self.next += 1;
        self.flying.insert(id, (tag, buffer));
        // SAFETY: the buffer is in `flying` and leaves it only with the answer; the descriptor is
        // borrowed for as long as buffers are.
        let pushed = unsafe { self.ring.submission().push(&entry.user_data(id)) };
        if pushed.is_err() {
            self.flying.remove(&id);
            return Err(SysError::new("io_uring_enter", "ring full", Errno::BUSY));
        }
        self.enter(0)
    }

    /// Waits for the next operation to end; `None` if none is in flight.
    ///
    /// # Errors
    /// Those of io_uring_enter(2).
    pub fn wait(&mut self) -> Result<Option<Completion<'b>>, SysError> {
        loop {
            let done = self.ring.completion().next();
            if let Some(done) = done {
                let Some((tag, buffer)) = self.flying.remove(&done.user_data()) else {
                    continue;
                };
                let result = usize::try_from(done.result())
                    .map_err(|_| Errno::from_raw_os_error(-done.result()));
                return Ok(Some(Completion {
                    tag,
                    buffer,
                    result,
                }));
            }
            if self.flying.is_empty() {
                return Ok(None);
            }
            self.enter(1)?;
        }
    }

    fn enter(&mut self, want: usize) -> Result<(), SysError> {
        loop {
            match self.ring.submit_and_wait(want) {
                Ok(_) => return Ok(()),
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                Err(e) => return Err(fail("io_uring_enter", &e)),
            }
        }
    }

    /// Returns the index of the registered part that contains all of a buffer.
    fn index_of(&self, at: u64, length: usize) -> Option<u16> {
        let end = at.checked_add(length as u64)?;
        let holds = |part: &Range| part.start() <= at && end <= part.end();
        u16::try_from(self.registered.iter().position(holds)?).ok()
    }
}

impl Drop for Ring<'_> {
    fn drop(&mut self) {
        while let Ok(Some(_)) = self.wait() {}
        if !self.flying.is_empty() {
            // The kernel may still write into them, and nothing can report when it has finished. The
            // owner of the memory must not get it back.
            std::process::abort();
        }
    }
}

fn fail(call: &'static str, error: &std::io::Error) -> SysError {
    SysError::new(call, "", errno_of(error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn file() -> File {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[7; 512]).unwrap();
        file
    }

    /// Runs `work` with a ring; returns `None`, with a note, if there is no io_uring.
    fn ring<'b, T>(test: &str, work: impl FnOnce(&mut Ring<'b>) -> T) -> Option<T> {
        with_ring(4, work)
            .map_err(|error| println!("not run: {test}: {error}"))
            .ok()
    }

    #[test]
    fn buffers_come_back_filled() {
        let file = file();
        let mut memory = vec![0u8; 1024];
        let (first, second) = memory.split_at_mut(512);
        ring("buffers_come_back_filled", |ring| {
            ring.start(Direction::Read, &file, 0, first, 1).unwrap();
            ring.start(Direction::Read, &file, 500, second, 2).unwrap();
            let mut ended = [ring.wait().unwrap().unwrap(), ring.wait().unwrap().unwrap()];
            ended.sort_by_key(|e| e.tag);
            assert_eq!(ended[0].result, Ok(512));
            assert!(ended[0].buffer.iter().all(|b| *b == 7));
            assert_eq!((ended[1].tag, ended[1].result), (2, Ok(12)));
            assert!(ring.wait().unwrap().is_none());
        });
    }

    #[test]
    fn registered_memory_works_too_and_is_let_go() {
        let file = file();
        let mut memory = vec![0u8; 512];
        let start = memory.as_ptr() as u64;
        let part = Range::new(start, start + 512).unwrap();
        ring("registered_memory_works_too_and_is_let_go", |ring| {
            ring.register(&[part]).unwrap();
            assert_eq!(ring.index_of(start, 512), Some(0));
            assert_eq!(ring.index_of(start + 1, 512), None);
            ring.start(Direction::Read, &file, 0, &mut memory, 1)
                .unwrap();
            let ended = ring.wait().unwrap().unwrap();
            assert_eq!(ended.result, Ok(512));
            assert!(ended.buffer.iter().all(|b| *b == 7));
            ring.unregister().unwrap();
            assert_eq!(ring.unregister().unwrap_err().errno, Errno::NXIO);
        });
    }

    #[test]
    fn what_is_under_way_ends_before_the_ring() {
        let file = file();
        let mut memory = vec![0u8; 512];
        let ran = ring("what_is_under_way_ends_before_the_ring", |ring| {
            ring.start(Direction::Read, &file, 0, &mut memory, 1)
                .unwrap();
        });
        if ran.is_some() {
            assert!(memory.iter().all(|b| *b == 7));
        }
    }

    #[test]
    fn errors_are_answers() {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let mut memory = vec![0u8; 512];
        ring("errors_are_answers", |ring| {
            ring.start(Direction::Write, &full, 0, &mut memory, 1)
                .unwrap();
            let ended = ring.wait().unwrap().unwrap();
            assert_eq!(ended.result, Err(Errno::NOSPC));
        });
    }
}
