//! Memory of this process with an explicit layout: a reserved address range, into which files in memory and pages
//! are mapped part by part.
#![allow(unsafe_code)]
//! # Safety
//! A [`ReservedAddresses`] owns its addresses from mmap(2) until it is dropped. Only parts of it are replaced, which is checked
//! at each call. No part is unmapped before its replacement is certain, so that no other thread's mapping can be
//! placed there and be replaced. The content of the pages can change under raw pointers from [`ReservedAddresses::as_ptr`] by
//! `discard`, `clear` and `map_*`; code that reads through them states so in its own safety rules.

use std::fs::File;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use hugeleaf_units::{Bytes, PageSize, Range};

use crate::advice::Advice;
use crate::fault_hook::{MemoryCall, MemorySyscalls};
use crate::memory_file::MemoryFile;
use crate::{Errno, SysError, last_errno};

/// NUMA policy of a part (mbind(2)).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum NodePolicy {
    #[default]
    Inherit,
    /// Pages from the node of the processor that populates them.
    Local,
    /// Pages from these nodes only.
    Bind(Vec<u32>),
    Interleave(Vec<u32>),
}

/// Reservation of the missing hugetlb pages when a file is mapped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HugetlbReservation {
    /// Reserves all of them, or fails with ENOMEM.
    All,
    /// Reserves none. Touching a missing page allocates it or ends in SIGBUS.
    None,
}

impl MemorySyscalls {
    /// Reserves addresses, starting at a multiple of `align`, without memory.
    ///
    /// # Errors
    /// EINVAL for a length of 0. ENOMEM if the address space or a limit on it is exhausted.
    pub fn reserve_addresses(
        &self,
        length: Bytes,
        align: PageSize,
    ) -> Result<ReservedAddresses, SysError> {
        let subject = || format!("of {length} of addresses");
        let range = self.call(MemoryCall::ReserveAddresses, "mmap", subject, || {
            if length.is_zero() {
                return Err(Errno::INVAL);
            }
            let room = length.get().checked_add(align.bytes().get());
            let room = room.ok_or(Errno::NOMEM)?;
            let start = mmap(0, Bytes(room), NO_ACCESS, NOTHING, -1, 0)?;
            let aligned = align.round_up(start).ok_or(Errno::NOMEM)?;
            let range = Range::new(aligned, aligned + length.get()).map_err(|_| Errno::INVAL)?;
            // Unmap the surplus at both ends.
            for (from, to) in [(start, range.start()), (range.end(), start + room)] {
                if let Ok(slack) = Range::new(from, to) {
                    munmap(slack);
                }
            }
            Ok(range)
        })?;
        Ok(ReservedAddresses {
            memory: self.clone(),
            range,
            owner: AtomicU32::new(ANYBODY),
            has_file: AtomicBool::new(false),
        })
    }

    /// Reserves the pages of a hugetlb file up to `length`, in its pool.
    /// The reservation lasts until the file is shortened or freed. (Tested: the reservation of a shared mapping
    /// belongs to the file and outlives the mapping.)
    ///
    /// # Errors
    /// ENOMEM if the pool or the cgroup's reservation limit is exhausted. None of the missing pages was then
    /// reserved.
    pub fn reserve(&self, file: &MemoryFile, length: Bytes) -> Result<(), SysError> {
        let subject = || format!("of {length}, to reserve it");
        self.call(MemoryCall::Reserve, "mmap", subject, || {
            let descriptor = file.file().as_raw_fd();
            let start = mmap(0, length, READ_WRITE, libc::MAP_SHARED, descriptor, 0)?;
            if let Ok(range) = Range::new(start, start + length.get()) {
                munmap(range);
            }
            Ok(())
        })
    }
}

/// Addresses of this process and the memory mapped there. Unmapped when dropped.
#[derive(Debug)]
pub struct ReservedAddresses {
    memory: MemorySyscalls,
    range: Range,
    /// The only process that has these addresses, once they are kept from children.
    owner: AtomicU32,
    /// True if a file was ever mapped into it. Others may map that file too.
    has_file: AtomicBool,
}

/// Value for no single owner. No process has this id.
const ANYBODY: u32 = 0;

pub(crate) const NO_ACCESS: i32 = libc::PROT_NONE;
pub(crate) const READ_WRITE: i32 = libc::PROT_READ | libc::PROT_WRITE;
pub(crate) const NOTHING: i32 = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;

impl ReservedAddresses {
    pub const fn range(&self) -> Range {
        self.range
    }

    /// Returns the first byte. Its access rights depend on the mapping.
    pub const fn as_ptr(&self) -> *mut u8 {
        self.range.start() as *mut u8
    }

    pub const fn memory(&self) -> &MemorySyscalls {
        &self.memory
    }

    /// Returns the range of `length` bytes at `offset`, or `None` if it is not inside.
    pub fn part(&self, offset: u64, length: Bytes) -> Option<Range> {
        let start = self.range.start().checked_add(offset)?;
        let part = Range::new(start, start.checked_add(length.get())?).ok()?;
        (part.intersect(self.range) == Some(part)).then_some(part)
    }

    /// Makes a call on a part, passing its length. EINVAL if the part is outside.
    fn on<T>(
        &self,
        call: MemoryCall,
        name: &'static str,
        part: Range,
        make: impl FnOnce(usize) -> Result<T, Errno>,
    ) -> Result<T, SysError> {
        let subject = || part.to_string();
        self.memory.call(call, name, subject, || {
            if part.intersect(self.range) != Some(part) {
                return Err(Errno::INVAL);
            }
            make(usize::try_from(part.len().get()).map_err(|_| Errno::INVAL)?)
        })
    }

    /// Maps private anonymous memory into a part, replacing its mapping.
    ///
    /// MAP_FIXED is not sufficient. Kernels before 6.12 unmap first and check the accounting afterwards. If it
    /// refuses, any thread's next mapping may take the gap. The new mapping is therefore made elsewhere and moved by
    /// one call that allocates nothing.
    ///
    /// # Errors
    /// EINVAL if `part` is outside or not made of whole base pages. ENOMEM past a limit. The old mapping then still
    /// exists. The new mapping briefly has its own addresses, so a limit on them (RLIMIT_AS) must leave room for the
    /// length of `part`.
    pub fn map_private(&self, part: Range) -> Result<(), SysError> {
        let made = self.on(MemoryCall::MapPrivate, "mmap", part, |_| make_aligned(part))?;
        mremap_over(made, part).map_err(|errno| {
            munmap(made);
            SysError::new("mremap", part.to_string(), errno)
        })
    }

    /// Maps a file in memory into a part, shared, replacing its mapping.
    ///
    /// A temporary mapping elsewhere requests everything that can be refused. The pages it reserved then belong to
    /// the file, so the mapping in place requests nothing. It is not moved like private memory, because mremap(2) of
    /// 4G or more of hugetlb pages fails and leaves a gap (kernel-notes.md, "A mapping in the place of another").
    ///
    /// # Errors
    /// As [`ReservedAddresses::map_private`]. ENOMEM if `reserve` requests more pages than the pool or the cgroup's reservation
    /// limit has.
    pub fn map_file(
        &self,
        part: Range,
        file: &MemoryFile,
        offset: u64,
        reserve: HugetlbReservation,
    ) -> Result<(), SysError> {
        self.on(MemoryCall::MapFile, "mmap", part, |_| {
            self.has_file.store(true, Ordering::Relaxed);
            let flags = match reserve {
                HugetlbReservation::All => libc::MAP_SHARED,
                HugetlbReservation::None => libc::MAP_SHARED | libc::MAP_NORESERVE,
            };
            let descriptor = file.file().as_raw_fd();
            let map = |at, flags| mmap(at, part.len(), READ_WRITE, flags, descriptor, offset);
            let first = map(0, flags)?;
            let placed = map(part.start(), flags | libc::MAP_FIXED);
            if let Ok(first) = Range::new(first, first + part.len().get()) {
                munmap(first);
            }
            placed.map(drop)
        })
    }

    /// Removes the pages of a part. Its addresses stay reserved.
    ///
    /// # Errors
    /// As [`ReservedAddresses::map_private`].
    pub fn clear(&self, part: Range) -> Result<(), SysError> {
        // Reserving addresses cannot fail after the old mapping is unmapped.
        let flags = NOTHING | libc::MAP_FIXED;
        self.on(MemoryCall::Clear, "mmap", part, |_| {
            mmap(part.start(), part.len(), NO_ACCESS, flags, -1, 0).map(drop)
        })
    }

    /// Advises on a part (madvise(2)).
    ///
    /// # Errors
    /// EINVAL if `part` is outside or the kernel refuses the advice. EFAULT if a page was unavailable (a pool or a
    /// limit is exhausted). ENOMEM, EAGAIN, EBUSY as in madvise(2).
    pub fn advise(&self, part: Range, advice: Advice) -> Result<(), SysError> {
        let call = MemoryCall::Advise(advice);
        self.on(call, advice.call_name(), part, |_| {
            madvise(part, advice.number())
        })
    }

    /// Keeps a part out of children: their copy of the address space has a gap there (MADV_DONTFORK), where the
    /// kernel may place other mappings. The whole space then belongs to this process, and a child that drops its
    /// copy unmaps nothing.
    ///
    /// # Errors
    /// EINVAL if `part` is outside.
    pub fn dont_fork(&self, part: Range) -> Result<(), SysError> {
        let name = "madvise(MADV_DONTFORK)";
        self.on(MemoryCall::DontFork, name, part, |_| {
            self.owner.store(std::process::id(), Ordering::Relaxed);
            madvise(part, libc::MADV_DONTFORK)
        })
    }

    /// Frees the pages of private memory. Their content is lost and later reads return zeroes (MADV_DONTNEED). For
    /// shared memory, it only removes this process's page-table entries.
    ///
    /// # Errors
    /// EINVAL if `part` is outside or locked.
    pub fn discard(&self, part: Range) -> Result<(), SysError> {
        let name = "madvise(MADV_DONTNEED)";
        self.on(MemoryCall::Discard, name, part, |_| {
            madvise(part, libc::MADV_DONTNEED)
        })
    }

    /// Sets the NUMA policy of a part. Call it before the part is populated (mbind(2)).
    ///
    /// # Errors
    /// EINVAL for a node that does not exist or has no memory. ENOSYS on a kernel without NUMA.
    pub fn bind(&self, part: Range, policy: &NodePolicy) -> Result<(), SysError> {
        // linux/mempolicy.h; libc has MPOL_LOCAL for some targets only.
        const MPOL_LOCAL: i32 = 4;
        let (mode, nodes): (i32, &[u32]) = match policy {
            NodePolicy::Inherit => return Ok(()),
            NodePolicy::Local => (MPOL_LOCAL, &[]),
            NodePolicy::Bind(nodes) => (libc::MPOL_BIND, nodes),
            NodePolicy::Interleave(nodes) => (libc::MPOL_INTERLEAVE, nodes),
        };
        let subject = || format!("{part} to nodes {nodes:?}");
        self.on(MemoryCall::Bind, "mbind", part, |len| {
            let mask = node_mask(nodes).ok_or(Errno::INVAL)?;
            let (mask, bits) = mask_and_bits(&mask, nodes);
            let start = part.start() as *mut libc::c_void;
            // SAFETY: the part is ours; the mask outlives the call, and its length goes with it.
            match unsafe { libc::syscall(libc::SYS_mbind, start, len, mode, mask, bits, 0u32) } {
                0 => Ok(()),
                _ => Err(last_errno()),
            }
        })
        .map_err(|error| SysError::new("mbind", subject(), error.errno))
    }

    /// Locks a part in memory (mlock(2)).
    ///
    /// # Errors
    /// ENOMEM past the memlock limit. EPERM if that limit is 0. EAGAIN.
    pub fn lock(&self, part: Range) -> Result<(), SysError> {
        self.on(MemoryCall::Lock, "mlock", part, |_| mlock(part))
    }
}

impl ReservedAddresses {
    /// Returns true if only private memory was ever mapped into it.
    pub fn is_private(&self) -> bool {
        !self.has_file.load(Ordering::Relaxed)
    }

    /// Returns true if its addresses belong to this process. False in a child that it is kept from.
    pub fn is_here(&self) -> bool {
        let owner = self.owner.load(Ordering::Relaxed);
        owner == ANYBODY || owner == std::process::id()
    }
}

impl Drop for ReservedAddresses {
    fn drop(&mut self) {
        if self.is_here() {
            munmap(self.range);
        }
    }
}

/// Returns a mask with one bit per node, or `None` for a number that no kernel has.
pub(crate) fn node_mask(nodes: &[u32]) -> Option<Vec<libc::c_ulong>> {
    const MOST: u32 = 1 << 16;
    let bits = libc::c_ulong::BITS;
    let last = nodes.iter().copied().max().unwrap_or(0);
    if last >= MOST {
        return None;
    }
    let mut mask = vec![0; usize::try_from(last / bits + 1).ok()?];
    for node in nodes {
        mask[usize::try_from(node / bits).ok()?] |= 1 << (node % bits);
    }
    Some(mask)
}

/// Returns a mask for set_mempolicy(2) and mbind(2), with its length in bits plus one, because the kernel reads one
/// bit less (mm/mempolicy.c, get_nodes).
pub(crate) fn mask_and_bits(
    mask: &[libc::c_ulong],
    nodes: &[u32],
) -> (*const libc::c_ulong, usize) {
    match nodes {
        [] => (std::ptr::null(), 0),
        _ => (mask.as_ptr(), mask.len() * libc::c_ulong::BITS as usize + 1),
    }
}

/// Maps `length` bytes at `at` if `flags` has MAP_FIXED or MAP_FIXED_NOREPLACE, otherwise anywhere.
pub(crate) fn mmap(
    at: u64,
    length: Bytes,
    protection: i32,
    flags: i32,
    descriptor: RawFd,
    offset: u64,
) -> Result<u64, Errno> {
    let len = usize::try_from(length.get()).map_err(|_| Errno::NOMEM)?;
    let offset = libc::off_t::try_from(offset).map_err(|_| Errno::OVERFLOW)?;
    let at = usize::try_from(at).map_err(|_| Errno::INVAL)?;
    let at = at as *mut libc::c_void;
    // SAFETY: MAP_FIXED is requested only for a part of a `ReservedAddresses`, which owns the replaced mapping. Without it,
    // no mapping is replaced.
    match unsafe { libc::mmap(at, len, protection, flags, descriptor, offset) } {
        libc::MAP_FAILED => Err(last_errno()),
        start => Ok(start as u64),
    }
}

/// Maps private memory with the length and alignment of `part`.
/// A page table shared with a neighbour would be moved too, and prevent a huge page there.
fn make_aligned(part: Range) -> Result<Range, Errno> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    let map = |at, flags| {
        let start = mmap(at, part.len(), READ_WRITE, flags, -1, 0)?;
        Range::new(start, start + part.len().get()).map_err(|_| Errno::INVAL)
    };
    let unit = 1 << (part.start() | part.len().get()).trailing_zeros().min(62);
    // The first address is often aligned.
    let made = map(0, flags)?;
    if made.start() % unit == 0 {
        return Ok(made);
    }
    let room = part.len().get().checked_add(unit).ok_or(Errno::NOMEM)?;
    let Ok(start) = mmap(0, Bytes(room), NO_ACCESS, NOTHING, -1, 0) else {
        // No room for an aligned address. The ends then cannot be huge pages.
        return Ok(made);
    };
    if let Ok(room) = Range::new(start, start + room) {
        munmap(room);
    }
    // If another thread took the address, use the first mapping.
    match map(
        start.next_multiple_of(unit),
        flags | libc::MAP_FIXED_NOREPLACE,
    ) {
        Ok(better) => {
            munmap(made);
            Ok(better)
        }
        Err(_) => Ok(made),
    }
}

/// Moves a mapping of ours over the mapping at `to`, in one step.
fn mremap_over(made: Range, to: Range) -> Result<(), Errno> {
    let fit = |value: u64| usize::try_from(value).map_err(|_| Errno::INVAL);
    let (from, at, len) = (fit(made.start())?, fit(to.start())?, fit(made.len().get())?);
    // SAFETY: `made` is a new mapping that no other code knows. `to` is a part of a `ReservedAddresses`, which owns the
    // replaced mapping.
    let moved = unsafe {
        libc::mremap(
            from as *mut libc::c_void,
            len,
            len,
            libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED,
            at as *mut libc::c_void,
        )
    };
    match moved {
        libc::MAP_FAILED => Err(last_errno()),
        _ => Ok(()),
    }
}

/// Returns the vector of a range. EINVAL if its addresses do not fit in this build's `usize`.
pub(crate) fn iovec(start: u64, length: u64) -> Result<libc::iovec, Errno> {
    Ok(libc::iovec {
        iov_base: usize::try_from(start).map_err(|_| Errno::INVAL)? as *mut libc::c_void,
        iov_len: usize::try_from(length).map_err(|_| Errno::INVAL)?,
    })
}

pub(crate) fn munmap(range: Range) {
    if let Ok(part) = iovec(range.start(), range.len().get()) {
        // SAFETY: called only on addresses from `mmap` above that no other code uses.
        unsafe { libc::munmap(part.iov_base, part.iov_len) };
    }
}

pub(crate) fn mlock(part: Range) -> Result<(), Errno> {
    let part = iovec(part.start(), part.len().get())?;
    // SAFETY: does not change the content of the pages.
    match unsafe { libc::mlock(part.iov_base, part.iov_len) } {
        0 => Ok(()),
        _ => Err(last_errno()),
    }
}

pub(crate) fn madvise(part: Range, advice: i32) -> Result<(), Errno> {
    let part = iovec(part.start(), part.len().get())?;
    // SAFETY: advice that discards content is only given for parts of a `ReservedAddresses`, whose owner is responsible for
    // that. The kernel checks the addresses.
    match unsafe { libc::madvise(part.iov_base, part.iov_len, advice) } {
        0 => Ok(()),
        _ => Err(last_errno()),
    }
}

/// Returns how much memory this process may lock (getrlimit(2), RLIMIT_MEMLOCK).
/// `None` if the limit is infinite or the process has CAP_IPC_LOCK.
pub fn may_lock() -> Option<Bytes> {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Memlock).current?;
    let capable = rustix::thread::capabilities(None).is_ok_and(|sets| {
        sets.effective
            .contains(rustix::thread::CapabilitySet::IPC_LOCK)
    });
    (!capable).then_some(Bytes(limit))
}

/// Opens a page map of this process.
///
/// # Errors
/// The errors of open(2).
pub fn own_page_map() -> Result<File, SysError> {
    const PATH: &str = "/proc/self/pagemap";
    File::open(PATH).map_err(|e| SysError::new("open", PATH, crate::errno_of(&e)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Kernel;
    use crate::fault_hook::SyscallGate;
    use hugeleaf_testkit::RepeatingThread;
    use std::sync::Arc;

    fn base() -> PageSize {
        Kernel::new().base_page()
    }

    #[test]
    fn addresses_are_aligned_and_parts_stay_inside() {
        let align: PageSize = "64M".parse().unwrap();
        let length = Bytes(base().bytes().get() * 8);
        let space = MemorySyscalls::new()
            .reserve_addresses(length, align)
            .unwrap();
        assert!(align.divides(space.range().start()));
        assert_eq!(space.range().len(), length);
        assert!(space.part(0, length).is_some());
        assert!(space.part(1, length).is_none());
        let outside = Range::new(space.range().end(), space.range().end() + 4096).unwrap();
        assert_eq!(space.map_private(outside).unwrap_err().errno, Errno::INVAL);
        assert_eq!(
            MemorySyscalls::new()
                .reserve_addresses(Bytes::ZERO, align)
                .unwrap_err()
                .errno,
            Errno::INVAL
        );
    }

    #[test]
    fn pages_come_and_go() {
        let page = base().bytes();
        let space = MemorySyscalls::new()
            .reserve_addresses(Bytes(page.get() * 4), base())
            .unwrap();
        let part = space.part(page.get(), page).unwrap();
        space.map_private(part).unwrap();
        let at = part.start() as *mut u8;
        // SAFETY: the part was just mapped for reading and writing.
        unsafe { at.write_volatile(7) };
        space.discard(part).unwrap();
        // SAFETY: as above; it reads as zeroes now.
        assert_eq!(unsafe { at.read_volatile() }, 0);
        space.clear(part).unwrap();
        assert!(space.advise(part, Advice::PopulateWrite).is_err());
    }

    /// Creates a file with more reserved pages than memory holds.
    /// Returns it with its length, or `None` without a pool.
    fn no_pages(memory: &MemorySyscalls) -> Option<(MemoryFile, Bytes)> {
        let text = std::fs::read_to_string("/proc/meminfo").unwrap();
        let field = |name: &str| {
            let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
            let kilobytes = rest.trim().strip_suffix(" kB")?;
            Some(kilobytes.parse::<u64>().ok()? * 1024)
        };
        let page = PageSize::new(Bytes(field("Hugepagesize:")?)).unwrap();
        let length = page.round_up(field("MemTotal:")? + 1).map(Bytes)?;
        let file = memory.create_file("test", length, Some(page)).ok()?;
        Some((file, length))
    }

    #[test]
    fn what_cannot_be_replaced_stays() {
        let memory = MemorySyscalls::new();
        let Some((file, length)) = no_pages(&memory) else {
            println!("not run: what_cannot_be_replaced_stays: needs hugetlb");
            return;
        };
        let align: PageSize = "1G".parse().unwrap();
        let space = memory.reserve_addresses(length, align).unwrap();
        let first = space.part(0, base().bytes()).unwrap();
        space.map_private(first).unwrap();
        // SAFETY: mapped just now, for reading and writing.
        unsafe { space.as_ptr().write_volatile(7) };
        let error = space.map_file(space.range(), &file, 0, HugetlbReservation::All);
        assert_eq!(error.unwrap_err().errno, Errno::NOMEM);
        // SAFETY: still mapped, which is tested here: otherwise the test crashes.
        assert_eq!(unsafe { space.as_ptr().read_volatile() }, 7);
    }

    /// Another thread keeps mapping, so that it would get any gap that exists for a moment.
    #[test]
    fn nobody_gets_the_place_of_what_cannot_be_replaced() {
        let memory = MemorySyscalls::new();
        let Some((file, length)) = no_pages(&memory) else {
            println!("not run: nobody_gets_the_place_of_what_cannot_be_replaced: needs hugetlb");
            return;
        };
        let space = memory
            .reserve_addresses(length, "1G".parse().unwrap())
            .unwrap();
        let (range, mut taken) = (space.range(), None);
        std::thread::scope(|scope| {
            let _other = RepeatingThread::start(scope, || {
                let at = mmap(0, length, NO_ACCESS, NOTHING, -1, 0).unwrap();
                let got = Range::new(at, at + length.get()).unwrap();
                taken = taken.or(got.intersect(range));
                munmap(got);
            });
            let tries = (0..1000).map(|_| space.map_file(range, &file, 0, HugetlbReservation::All));
            let errors: Vec<Errno> = tries.filter_map(|done| Some(done.err()?.errno)).collect();
            assert_eq!(errors, [Errno::NOMEM; 1000]);
        });
        assert_eq!(taken, None, "of {range}");
    }

    #[test]
    fn a_gate_refuses() {
        #[derive(Debug)]
        struct Shut;
        impl SyscallGate for Shut {
            fn pass(&self, call: MemoryCall) -> Result<(), Errno> {
                match call {
                    MemoryCall::MapPrivate => Err(Errno::AGAIN),
                    _ => Ok(()),
                }
            }
        }
        let memory = MemorySyscalls::behind(Arc::new(Shut));
        let space = memory.reserve_addresses(base().bytes(), base()).unwrap();
        let error = space.map_private(space.range()).unwrap_err();
        assert_eq!(error.errno, Errno::AGAIN);
    }

    #[test]
    fn masks_of_nodes() {
        assert_eq!(node_mask(&[0, 2]).unwrap(), [5]);
        assert_eq!(
            node_mask(&[64]).unwrap().len() * libc::c_ulong::BITS as usize,
            128
        );
        assert!(node_mask(&[1 << 20]).is_none());
    }
}
