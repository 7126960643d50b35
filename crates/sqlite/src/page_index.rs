//! A page as SQLite knows it, and its position in its cache.
#![allow(unsafe_code)]
//! # Safety
//! Nodes are accessed by pointer, because SQLite holds them that way. A node is live from its allocation by its cache
//! until its release. Only the thread inside the cache (`gate`) follows pointers to it.

use std::ffi::{c_uint, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use hugeleaf::{Bytes, PageSize};
use hugeleaf_sys::{Advice, MemorySyscalls, ReservedAddresses};

use crate::fallible_vec::filled;
use crate::ffi::SqlitePage;
use crate::seccomp;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum QueueKind {
    Small,
    Main,
    /// In no queue: the page was in use when it was to be evicted. It joins the main queue when it is unpinned.
    Aside,
}

/// A page and its position. SQLite's data for the page follows it in memory.
#[repr(C)]
pub(crate) struct PageHeader {
    /// First field, so that a pointer to it is also a pointer to the node.
    pub page: SqlitePage,
    pub key: c_uint,
    pub place: QueueKind,
    /// Other threads read this field and the next without synchronisation (`Inner::least_requested_chunks`).
    pub pinned: AtomicBool,
    /// Number of requests since the last eviction check, at most 3.
    pub used: AtomicU8,
    /// Batch of touches that already contains this page, if the ghost list samples its key; otherwise 0.
    pub batch: u8,
    /// Next node in the same bucket of the table.
    pub next: *mut PageHeader,
    pub newer: *mut PageHeader,
    pub older: *mut PageHeader,
    /// Chunk that owns its memory (`chunk::Chunk`); null for a heap allocation.
    pub chunk: *mut c_void,
}

/// Cache line size; nodes and pages are aligned to it.
pub(crate) const LINE: usize = 64;

impl PageHeader {
    /// Returns the size of a node with its extra data, in whole cache lines.
    pub const fn bytes(extra: usize) -> usize {
        (size_of::<PageHeader>() + extra).next_multiple_of(LINE)
    }

    pub fn is_pinned(&self) -> bool {
        self.pinned.load(Ordering::Relaxed)
    }

    pub fn set_pinned(&self, pinned: bool) {
        self.pinned.store(pinned, Ordering::Relaxed);
    }

    pub fn used(&self) -> u8 {
        self.used.load(Ordering::Relaxed)
    }

    pub fn set_used(&self, used: u8) {
        self.used.store(used, Ordering::Relaxed);
    }

    /// Initialises a node in unused memory.
    ///
    /// # Safety
    /// `node` is aligned and has room for [`PageHeader::bytes`]; `buffer` has room for a page.
    pub unsafe fn set_up(node: *mut PageHeader, buffer: *mut c_void, chunk: *mut c_void) {
        // SAFETY: as the caller promises.
        unsafe {
            let extra = node.add(1).cast::<c_void>();
            node.write(PageHeader {
                page: SqlitePage { buffer, extra },
                key: 0,
                place: QueueKind::Aside,
                pinned: AtomicBool::new(true),
                used: AtomicU8::new(0),
                batch: 0,
                next: null_mut(),
                newer: null_mut(),
                older: null_mut(),
                chunk,
            });
        }
    }
}

/// A queue of nodes in order of arrival.
#[derive(Debug)]
pub(crate) struct PageQueue {
    newest: *mut PageHeader,
    pub oldest: *mut PageHeader,
    pub length: usize,
}

impl PageQueue {
    pub const EMPTY: PageQueue = PageQueue {
        newest: null_mut(),
        oldest: null_mut(),
        length: 0,
    };

    /// # Safety
    /// `node` is live and in no queue.
    pub unsafe fn push(&mut self, node: *mut PageHeader) {
        // SAFETY: as the caller promises; the newest of a queue is live.
        unsafe {
            (*node).newer = null_mut();
            (*node).older = self.newest;
            match self.newest.is_null() {
                true => self.oldest = node,
                false => (*self.newest).newer = node,
            }
        }
        self.newest = node;
        self.length += 1;
    }

    /// # Safety
    /// `node` is live and in this queue.
    pub unsafe fn remove(&mut self, node: *mut PageHeader) {
        // SAFETY: as the caller promises; neighbours in a queue are live.
        unsafe {
            let (newer, older) = ((*node).newer, (*node).older);
            match newer.is_null() {
                true => self.newest = older,
                false => (*newer).older = older,
            }
            match older.is_null() {
                true => self.oldest = newer,
                false => (*older).newer = newer,
            }
        }
        self.length -= 1;
    }
}

/// Nodes by key. Chains are short, because there are at least as many buckets as nodes.
#[derive(Debug)]
pub(crate) struct PageHash {
    /// First bucket of [`BucketMemory`]. It is kept here because every request reads it.
    first: *mut *mut PageHeader,
    /// Number of buckets minus one; the number is a power of two.
    mask: usize,
    /// Owns that memory.
    _places: BucketMemory,
    pub count: usize,
}

impl PageHash {
    /// Creates a table of `places` buckets, a power of two; `None` if there is no memory.
    pub fn with(places: usize) -> Option<PageHash> {
        let mut memory = BucketMemory::new(places)?;
        Some(PageHash {
            first: memory.first(),
            mask: places - 1,
            _places: memory,
            count: 0,
        })
    }

    #[inline]
    fn place(&self, key: c_uint) -> *mut *mut PageHeader {
        // SAFETY: the mask keeps it in bounds.
        unsafe { self.first.add(key as usize & self.mask) }
    }

    #[inline]
    pub fn find(&self, key: c_uint) -> *mut PageHeader {
        // SAFETY: chains hold live nodes, and end in null.
        unsafe {
            let mut node = *self.place(key);
            while !node.is_null() && (*node).key != key {
                node = (*node).next;
            }
            node
        }
    }

    /// # Safety
    /// `node` is live and in no table.
    pub unsafe fn insert(&mut self, node: *mut PageHeader) {
        if self.count > self.mask {
            self.grow();
        }
        // SAFETY: as the caller promises.
        unsafe {
            let place = self.place((*node).key);
            (*node).next = *place;
            *place = node;
        }
        self.count += 1;
    }

    /// # Safety
    /// `node` is live and in this table.
    pub unsafe fn remove(&mut self, node: *mut PageHeader) {
        // SAFETY: as the caller promises; its chain holds it.
        unsafe {
            let mut link = self.place((*node).key);
            while *link != node {
                link = &raw mut (**link).next;
            }
            *link = (*node).next;
        }
        self.count -= 1;
    }

    /// Doubles the table. If there is no memory for that, chains become longer.
    fn grow(&mut self) {
        let Some(mut longer) = PageHash::with((self.mask + 1) * 2) else {
            return;
        };
        for place in 0..=self.mask {
            // SAFETY: chains hold live nodes, and end in null; the old chain is not followed any more.
            unsafe {
                let mut node = *self.first.add(place);
                while !node.is_null() {
                    let next = (*node).next;
                    longer.insert(node);
                    node = next;
                }
            }
        }
        *self = longer;
    }

    /// Returns a node with a key of at least `from`; null if there is none. No key exceeds `highest`. `from_place` is
    /// the bucket to continue from, 0 at first.
    pub fn one_from(
        &self,
        from: c_uint,
        highest: c_uint,
        from_place: &mut usize,
    ) -> *mut PageHeader {
        let keys = (highest as usize + 1).saturating_sub(from as usize);
        // A few keys are looked up one by one.
        let (places, is_few) = match keys > self.mask {
            true => (self.mask + 1, false),
            false => (keys, true),
        };
        while *from_place < places {
            // SAFETY: the mask keeps it in bounds; chains hold live nodes, and end in null.
            let found = unsafe {
                let first = if is_few { from as usize } else { 0 };
                let mut node = *self.first.add((first + *from_place) & self.mask);
                while !node.is_null() && (*node).key < from {
                    node = (*node).next;
                }
                node
            };
            if !found.is_null() {
                return found;
            }
            *from_place += 1;
        }
        null_mut()
    }
}

/// The memory of a table: small ones are on the heap, large ones in their own mapping, on huge pages if possible.
#[derive(Debug)]
enum BucketMemory {
    Heap(Vec<*mut PageHeader>),
    Mapped(ReservedAddresses),
}

impl BucketMemory {
    /// Minimum size in bytes of a table with its own mapping.
    const LARGE: usize = 1 << 20;

    fn new(length: usize) -> Option<BucketMemory> {
        let bytes = length * size_of::<*mut PageHeader>();
        let is_large = bytes >= BucketMemory::LARGE && seccomp::is_none_new();
        let own = is_large.then(|| mapped(bytes)).flatten();
        own.map(BucketMemory::Mapped)
            .or_else(|| filled(length, null_mut()).map(BucketMemory::Heap))
    }

    fn first(&mut self) -> *mut *mut PageHeader {
        match self {
            BucketMemory::Heap(list) => list.as_mut_ptr(),
            BucketMemory::Mapped(space) => space.as_ptr().cast(),
        }
    }
}

/// Maps private, zeroed memory and advises huge pages; `None` if it fails.
fn mapped(bytes: usize) -> Option<ReservedAddresses> {
    let size = Bytes(bytes as u64);
    // All tables are powers of two. Aligned to its own size, the mapping begins and ends at huge page boundaries.
    let align = PageSize::new(size).ok()?;
    let space = MemorySyscalls::new().reserve_addresses(size, align).ok()?;
    space.map_private(space.range()).ok()?;
    // If the kernel refuses, the table stays on base pages.
    let _ = space.advise(space.range(), Advice::HugePage);
    Some(space)
}
