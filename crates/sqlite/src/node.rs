//! A page as SQLite knows it, and where it stands in its cache.
#![allow(unsafe_code)]
//! # Safety
//! Nodes are reached by pointers, since SQLite holds them that way. One is live from when its cache takes it until its
//! cache releases it; only whoever is inside the cache (`gate`) follows pointers to it.

use std::ffi::{c_uint, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use hugeleaf::{Bytes, PageSize};
use hugeleaf_sys::{Advice, Memory, Space};

use crate::ffi::Page;
use crate::filter;
use crate::memory::filled;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Place {
    Small,
    Main,
    /// In none: it was in use when it was its turn to go. It returns to the queue for pages seen again.
    Aside,
}

/// A page with its place. What SQLite keeps for the page follows it in memory.
#[repr(C)]
pub(crate) struct Node {
    /// First, so that a pointer to it is one to the node.
    pub page: Page,
    pub key: c_uint,
    pub place: Place,
    /// Others look at this one and the next, and may be wrong (`Inner::by_worth`).
    pub pinned: AtomicBool,
    /// How often it was asked for since it was last looked at, up to 3.
    pub used: AtomicU8,
    /// The batch of touches that has this page already, if the ghost list has its key in its sample; otherwise 0.
    pub batch: u8,
    /// The next with the same place in the table.
    pub next: *mut Node,
    pub newer: *mut Node,
    pub older: *mut Node,
    /// The chunk that its memory is of (`chunk::Chunk`); null: an allocation of its own.
    pub chunk: *mut c_void,
}

/// Nodes and pages begin at the beginning of a cache line.
pub(crate) const LINE: usize = 64;

impl Node {
    /// A node with what follows it, in whole cache lines.
    pub const fn bytes(extra: usize) -> usize {
        (size_of::<Node>() + extra).next_multiple_of(LINE)
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

    /// Makes a node of memory that nobody uses.
    ///
    /// # Safety
    /// `node` is aligned and has room for [`Node::bytes`]; `buffer` has room for a page.
    pub unsafe fn set_up(node: *mut Node, buffer: *mut c_void, chunk: *mut c_void) {
        // SAFETY: as the caller promises.
        unsafe {
            let extra = node.add(1).cast::<c_void>();
            node.write(Node {
                page: Page { buffer, extra },
                key: 0,
                place: Place::Aside,
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

/// Nodes in the order in which they came.
#[derive(Debug)]
pub(crate) struct Queue {
    newest: *mut Node,
    oldest: *mut Node,
    pub length: usize,
}

impl Queue {
    pub const EMPTY: Queue = Queue {
        newest: null_mut(),
        oldest: null_mut(),
        length: 0,
    };

    /// # Safety
    /// `node` is live and in no queue.
    pub unsafe fn push(&mut self, node: *mut Node) {
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

    pub const fn oldest(&self) -> *mut Node {
        self.oldest
    }

    /// # Safety
    /// `node` is live and in this queue.
    pub unsafe fn remove(&mut self, node: *mut Node) {
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

/// Nodes by key. A chain of those that have one place is short: there are as many places as nodes, at least.
#[derive(Debug)]
pub(crate) struct Table {
    /// Of [`Places`]; read at every page, so it stands here.
    first: *mut *mut Node,
    /// One less than there are places, of which there are a power of two.
    mask: usize,
    /// Keeps that memory.
    _places: Places,
    pub count: usize,
}

impl Table {
    /// `None` where there is no memory, as of [`Table::with`].
    pub fn new() -> Option<Table> {
        Table::with(64)
    }

    fn with(places: usize) -> Option<Table> {
        let mut memory = Places::new(places)?;
        Some(Table {
            first: memory.first(),
            mask: places - 1,
            _places: memory,
            count: 0,
        })
    }

    #[inline]
    fn place(&self, key: c_uint) -> *mut *mut Node {
        // SAFETY: the mask keeps it inside.
        unsafe { self.first.add(key as usize & self.mask) }
    }

    #[inline]
    pub fn find(&self, key: c_uint) -> *mut Node {
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
    pub unsafe fn insert(&mut self, node: *mut Node) {
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
    pub unsafe fn remove(&mut self, node: *mut Node) {
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

    /// Without memory for it chains become longer.
    fn grow(&mut self) {
        let Some(mut longer) = Table::with((self.mask + 1) * 2) else {
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

    /// One with a key from this one on; none is larger than `highest`. `from_place` is where to go on looking, 0 at first.
    pub fn one_from(&self, from: c_uint, highest: c_uint, from_place: &mut usize) -> *mut Node {
        let keys = (highest as usize + 1).saturating_sub(from as usize);
        // Few keys are looked for one by one.
        let (places, is_few) = match keys > self.mask {
            true => (self.mask + 1, false),
            false => (keys, true),
        };
        while *from_place < places {
            // SAFETY: the mask keeps it inside; chains hold live nodes, and end in null.
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

/// The memory of a table: a small one is on the heap, a large one in memory of its own, which is on large pages where the
/// host gives them.
#[derive(Debug)]
enum Places {
    Heap(Vec<*mut Node>),
    Mapped(Space),
}

impl Places {
    /// From so many bytes on a table has memory of its own.
    const LARGE: usize = 1 << 20;

    fn new(length: usize) -> Option<Places> {
        let bytes = length * size_of::<*mut Node>();
        let is_large = bytes >= Places::LARGE && filter::is_none_new();
        let own = is_large.then(|| mapped(bytes)).flatten();
        own.map(Places::Mapped)
            .or_else(|| filled(length, null_mut()).map(Places::Heap))
    }

    fn first(&mut self) -> *mut *mut Node {
        match self {
            Places::Heap(list) => list.as_mut_ptr(),
            Places::Mapped(space) => space.as_ptr().cast(),
        }
    }
}

/// Private memory of so many bytes, zeroed, that asks for huge pages; `None` where there is none.
fn mapped(bytes: usize) -> Option<Space> {
    let size = Bytes(bytes as u64);
    // A power of two, as all tables are: aligned to itself it begins and ends at the edges of huge pages.
    let align = PageSize::new(size).ok()?;
    let space = Memory::new().set_aside(size, align).ok()?;
    space.map_private(space.range()).ok()?;
    // Where that is refused the table is on base pages.
    let _ = space.advise(space.range(), Advice::HugePage);
    Some(space)
}
