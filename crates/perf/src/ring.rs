//! The ring buffer into which the kernel writes the events of a CPU.
#![allow(unsafe_code)]
//! # Safety
//! A [`PerfRing`] owns its mapping until it is dropped. The kernel writes to it at any time. The
//! first page holds two positions, which are accessed as atomics. Record bytes are copied out
//! through raw pointers, only between the two positions. The kernel does not write there until the
//! second position has moved.

use std::os::fd::AsRawFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use hugeleaf_units::{Bytes, PageSize};
use perf_event_open_sys::bindings as abi;

use crate::event::PerfEvent;
use hugeleaf_sys::{Errno, SysError, last_errno};

#[derive(Debug)]
pub struct PerfRing {
    start: NonNull<u8>,
    mapped: usize,
    /// Offset of the records, and their space (a power of two).
    data: usize,
    room: usize,
    /// Assembles a record that wraps around the end of the ring.
    record: Vec<u8>,
}

// SAFETY: this value owns the mapping, and nothing in it depends on the thread.
unsafe impl Send for PerfRing {}

impl PerfRing {
    /// Maps a ring of at least `room` bytes, rounded up to a power of two of pages.
    ///
    /// # Errors
    /// EPERM or ENOMEM if `kernel.perf_event_mlock_kb` or the memlock limit is too small.
    pub fn map(event: &PerfEvent, room: Bytes, base: PageSize) -> Result<PerfRing, SysError> {
        let fail = |errno| {
            let subject = format!("a ring of {room} for CPU {}", event.cpu());
            SysError::new("mmap", subject, errno)
        };
        let page = base.bytes().get();
        let pages = room.get().div_ceil(page).max(1).next_power_of_two();
        let room = usize::try_from(pages * page).map_err(|_| fail(Errno::INVAL))?;
        let page = usize::try_from(page).map_err(|_| fail(Errno::INVAL))?;
        let mapped = room + page;
        // SAFETY: a new mapping at an address that the kernel chooses, over no memory in use.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                mapped,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                event.file().as_raw_fd(),
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(fail(last_errno()));
        }
        let start = NonNull::new(start.cast::<u8>()).ok_or_else(|| fail(Errno::INVAL))?;
        Ok(PerfRing {
            start,
            mapped,
            data: page,
            room,
            record: Vec::new(),
        })
    }

    /// Returns the unread share of the ring, 0 to 1.
    pub fn filled(&self) -> f64 {
        let waiting = self.head().load(Ordering::Acquire) - self.tail().load(Ordering::Relaxed);
        waiting as f64 / self.room as f64
    }

    /// Passes every whole record, including its header of eight bytes, to `each`, oldest first, and
    /// returns the space to the kernel.
    pub fn drain(&mut self, mut each: impl FnMut(&[u8])) {
        let head = self.head().load(Ordering::Acquire);
        let mut tail = self.tail().load(Ordering::Relaxed);
        let mut record = std::mem::take(&mut self.record);
        while head.wrapping_sub(tail) >= 8 {
            let mut header = [0u8; 8];
            self.copy(tail, &mut header);
            let length = usize::from(u16::from_ne_bytes([header[6], header[7]]));
            // The kernel writes no such record. Accepting one would loop for ever.
            if length < 8 || head.wrapping_sub(tail) < length as u64 {
                tail = head;
                break;
            }
            record.resize(length, 0);
            self.copy(tail, &mut record);
            each(&record);
            tail = tail.wrapping_add(length as u64);
        }
        self.record = record;
        self.tail().store(tail, Ordering::Release);
    }

    /// Copies out of the ring. The position `from` only ever grows.
    fn copy(&self, from: u64, to: &mut [u8]) {
        // The space is a power of two below the address space size, so the result fits.
        #[allow(clippy::cast_possible_truncation)]
        let at = (from & (self.room as u64 - 1)) as usize;
        let first = to.len().min(self.room - at);
        // SAFETY: `at + first` and `to.len() - first` are within the space of the records; the
        // kernel does not write between tail and head; `to` is separate memory of this process.
        unsafe {
            let data = self.start.as_ptr().add(self.data);
            std::ptr::copy_nonoverlapping(data.add(at), to.as_mut_ptr(), first);
            let rest = to.as_mut_ptr().add(first);
            std::ptr::copy_nonoverlapping(data, rest, to.len() - first);
        }
    }

    fn head(&self) -> &AtomicU64 {
        self.position(std::mem::offset_of!(abi::perf_event_mmap_page, data_head))
    }

    fn tail(&self) -> &AtomicU64 {
        self.position(std::mem::offset_of!(abi::perf_event_mmap_page, data_tail))
    }

    fn position(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: the first page holds a perf_event_mmap_page; both positions are aligned u64s
        // that are only touched as atomics, and live as long as the mapping.
        unsafe { AtomicU64::from_ptr(self.start.as_ptr().add(offset).cast()) }
    }
}

impl Drop for PerfRing {
    fn drop(&mut self) {
        // SAFETY: this value owns the mapping, and nothing borrows from it any more.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.mapped) };
    }
}
