//! A granule of memory cut into slots of one node and its page each.
#![allow(unsafe_code)]
//! # Safety
//! A slot is within the granule by construction, since only as many are made as fit. It has one owner at a time.

use std::ffi::c_void;
use std::ptr::null;

use hugeleaf::Granule;

use crate::fallible_vec::{filled, listed};
use crate::page_index::PageHeader;

/// Owner of a slot: the address of a cache.
pub(crate) type SlotOwner = *const ();

/// Contents of a slot: SQLite's page and its extra data, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SlotLayout {
    pub page: usize,
    pub extra: usize,
}

impl SlotLayout {
    pub const fn bytes(self) -> usize {
        self.page + PageHeader::bytes(self.extra)
    }
}

/// Memory that is not cut yet.
#[derive(Debug)]
pub(crate) struct UncutMemory {
    /// Name of the granule in elastic memory; `None` if it is never returned.
    pub granule: Option<Granule>,
    pub start: *mut u8,
    pub length: usize,
}

#[derive(Debug)]
pub(crate) struct Chunk {
    pub blank: UncutMemory,
    pub shape: SlotLayout,
    free: Vec<u32>,
    /// Owner of each slot; null if it is free.
    owners: Vec<SlotOwner>,
}

impl Chunk {
    /// Cuts a blank into slots; returns it if not even one slot fits.
    ///
    /// Nodes point to a chunk, so it is handled by address, and becomes a box again when it ends.
    pub fn cut(blank: UncutMemory, shape: SlotLayout) -> Result<*mut Chunk, UncutMemory> {
        let slots = blank.length / shape.bytes();
        // In reverse order, so that the first slot is taken first.
        let free = u32::try_from(slots).ok();
        let free = free.and_then(|last| listed(slots, (0..last).rev()));
        match (free, filled(slots, null())) {
            (Some(free), Some(owners)) if slots > 0 => Ok(Box::into_raw(Box::new(Chunk {
                blank,
                shape,
                free,
                owners,
            }))),
            _ => Err(blank),
        }
    }

    pub fn slots(&self) -> usize {
        self.owners.len()
    }

    pub fn free(&self) -> usize {
        self.free.len()
    }

    pub fn is_empty(&self) -> bool {
        self.free.len() == self.owners.len()
    }

    /// Returns the address of a slot: a node, followed by its page. Pages at multiples of their size would share few
    /// sets of the CPU caches. A search reads the start of each page first, and those lines would evict each other.
    fn node_at(&self, slot: usize) -> *mut PageHeader {
        // SAFETY: slots × (node + page) bytes fit into the granule.
        unsafe { self.blank.start.add(slot * self.shape.bytes()).cast() }
    }

    /// Takes a slot for a cache and initialises its node; `None` if all are taken.
    ///
    /// # Safety
    /// `chunk` is of [`Chunk::cut`], and no other code uses it now.
    pub unsafe fn take(chunk: *mut Chunk, owner: SlotOwner) -> Option<*mut PageHeader> {
        // SAFETY: as the caller promises.
        let this = unsafe { &mut *chunk };
        let slot = this.free.pop()? as usize;
        *this.owners.get_mut(slot)? = owner;
        let node = this.node_at(slot);
        let extra = this.shape.extra;
        // SAFETY: both parts are within the granule and aligned to a cache line, and no other code has this slot.
        unsafe {
            let buffer = node.byte_add(PageHeader::bytes(extra));
            PageHeader::set_up(node, buffer.cast::<c_void>(), chunk.cast());
        }
        Some(node)
    }

    pub fn give_back(&mut self, node: *const PageHeader) {
        let slot = (node as usize - self.blank.start as usize) / self.shape.bytes();
        if let (Some(owner), Ok(slot)) = (self.owners.get_mut(slot), u32::try_from(slot)) {
            *owner = null();
            self.free.push(slot);
        }
    }

    /// Returns owner and node of each slot in use.
    pub fn used(&self) -> impl Iterator<Item = (SlotOwner, *mut PageHeader)> + '_ {
        let owners = self.owners.iter().enumerate();
        let used = owners.filter(|(_, owner)| !owner.is_null());
        used.map(|(slot, owner)| (*owner, self.node_at(slot)))
    }
}
