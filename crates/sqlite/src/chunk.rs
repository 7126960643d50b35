//! A granule of memory cut into slots: a node, and its page.
#![allow(unsafe_code)]
//! # Safety
//! A slot is within the granule by construction: as many are made as fit. It has one owner at a time.

use std::ffi::c_void;
use std::ptr::null;

use hugeleaf::Granule;

use crate::memory::{filled, listed};
use crate::node::Node;

/// Who has a slot: the address of a cache.
pub(crate) type Owner = *const ();

/// What a slot has room for: SQLite's page, and what it keeps for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shape {
    pub page: usize,
    pub extra: usize,
}

impl Shape {
    pub const fn bytes(self) -> usize {
        self.page + Node::bytes(self.extra)
    }
}

/// Memory that is not cut yet.
#[derive(Debug)]
pub(crate) struct Blank {
    /// Its name among the elastic memory; `None` where it is never returned.
    pub granule: Option<Granule>,
    pub start: *mut u8,
    pub length: usize,
}

#[derive(Debug)]
pub(crate) struct Chunk {
    pub blank: Blank,
    pub shape: Shape,
    free: Vec<u32>,
    /// Whose each slot is; null: nobody's.
    owners: Vec<Owner>,
}

impl Chunk {
    /// The blank comes back where not even one slot fits.
    ///
    /// Nodes point to a chunk, so it is known by its address, and made a box again where it ends.
    pub fn cut(blank: Blank, shape: Shape) -> Result<*mut Chunk, Blank> {
        let slots = blank.length / shape.bytes();
        // The first is taken first.
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

    /// A node, and behind it its page. Pages that stand at multiples of their size begin in the same few sets of the
    /// processor's caches, and what a search reads first of each, its beginning, pushes that of others out.
    fn node_at(&self, slot: usize) -> *mut Node {
        // SAFETY: slots × (node + page) bytes fit into the granule.
        unsafe { self.blank.start.add(slot * self.shape.bytes()).cast() }
    }

    /// A slot for a cache, its node made anew; `None` where all are taken.
    ///
    /// # Safety
    /// `chunk` is of [`Chunk::cut`], and nobody else uses it now.
    pub unsafe fn take(chunk: *mut Chunk, owner: Owner) -> Option<*mut Node> {
        // SAFETY: as the caller promises.
        let this = unsafe { &mut *chunk };
        let slot = this.free.pop()? as usize;
        *this.owners.get_mut(slot)? = owner;
        let node = this.node_at(slot);
        let extra = this.shape.extra;
        // SAFETY: both parts are within the granule and aligned to a cache line, and nobody else has this slot.
        unsafe {
            let buffer = node.byte_add(Node::bytes(extra));
            Node::set_up(node, buffer.cast::<c_void>(), chunk.cast());
        }
        Some(node)
    }

    pub fn give_back(&mut self, node: *const Node) {
        let slot = (node as usize - self.blank.start as usize) / self.shape.bytes();
        if let (Some(owner), Ok(slot)) = (self.owners.get_mut(slot), u32::try_from(slot)) {
            *owner = null();
            self.free.push(slot);
        }
    }

    /// The slots in use: whose, and the node.
    pub fn used(&self) -> impl Iterator<Item = (Owner, *mut Node)> + '_ {
        let owners = self.owners.iter().enumerate();
        let used = owners.filter(|(_, owner)| !owner.is_null());
        used.map(|(slot, owner)| (*owner, self.node_at(slot)))
    }
}
