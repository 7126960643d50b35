//! A granule of memory cut into slots: a node, and its page.
#![allow(unsafe_code)]
//! # Safety
//! A slot is within the granule by construction: as many are made as fit. It has one owner at a time.

use std::ffi::c_void;
use std::ptr::null;

use hugeleaf::Granule;

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
    /// `None` where not even one slot fits.
    pub fn cut(blank: Blank, shape: Shape) -> Result<Box<Chunk>, Blank> {
        let slots = blank.length / shape.bytes();
        let Ok(last) = u32::try_from(slots) else {
            return Err(blank);
        };
        if slots == 0 {
            return Err(blank);
        }
        Ok(Box::new(Chunk {
            blank,
            shape,
            // The first is taken first.
            free: (0..last).rev().collect(),
            owners: vec![null(); slots],
        }))
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
    pub fn take(&mut self, owner: Owner) -> Option<*mut Node> {
        let slot = self.free.pop()? as usize;
        self.owners[slot] = owner;
        let node = self.node_at(slot);
        let chunk = std::ptr::from_mut(self).cast::<c_void>();
        // SAFETY: both parts are within the granule and aligned to a cache line, and nobody else has this slot.
        unsafe {
            let buffer = node.byte_add(Node::bytes(self.shape.extra));
            Node::set_up(node, buffer.cast::<c_void>(), chunk);
        }
        Some(node)
    }

    pub fn give_back(&mut self, node: *const Node) {
        let slot = (node as usize - self.blank.start as usize) / self.shape.bytes();
        self.owners[slot] = null();
        // As many as there are slots: within 32 bits.
        self.free.extend(u32::try_from(slot));
    }

    /// The slots in use: whose, and the node.
    pub fn used(&self) -> impl Iterator<Item = (Owner, *mut Node)> + '_ {
        let owners = self.owners.iter().enumerate();
        let used = owners.filter(|(_, owner)| !owner.is_null());
        used.map(|(slot, owner)| (*owner, self.node_at(slot)))
    }
}
