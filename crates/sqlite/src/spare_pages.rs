//! Free heap pages, kept for the next cache. A database that is opened and closed repeatedly uses a handful of pages
//! each time. Allocating and freeing each of them took longer than all other work of a cache.
#![allow(unsafe_code)]
//! # Safety
//! A spare page has no owner: the cache that returned it keeps no pointer. It is used as memory of its shape only.

use std::alloc::{Layout, alloc, dealloc};
use std::ptr::null_mut;
use std::sync::Mutex;

use crate::chunk::SlotLayout;
use crate::fallible_vec::pushed;
use crate::page_index::{LINE, PageHeader};

/// Maximum number of bytes kept.
const MOST: usize = 512 << 10;
/// Number of pages that a cache fetches at once, so that it does not lock for each.
const FEW: usize = 8;

#[derive(Debug)]
pub(crate) struct SparePool(Mutex<SpareList>);

#[derive(Debug)]
struct SpareList {
    shape: SlotLayout,
    nodes: Vec<*mut PageHeader>,
}

/// A few spare pages held by a cache, all of its shape.
#[derive(Debug)]
pub(crate) struct LocalSpares {
    nodes: [*mut PageHeader; FEW],
    count: usize,
}

// SAFETY: no other code knows these nodes.
unsafe impl Send for SpareList {}

impl LocalSpares {
    pub const NONE: LocalSpares = LocalSpares {
        nodes: [null_mut(); FEW],
        count: 0,
    };

    fn pop(&mut self) -> Option<*mut PageHeader> {
        self.count = self.count.checked_sub(1)?;
        Some(self.nodes[self.count])
    }

    /// Adds a page; false if it is full.
    fn push(&mut self, node: *mut PageHeader) -> bool {
        let has_room = self.count < FEW;
        if has_room {
            self.nodes[self.count] = node;
            self.count += 1;
        }
        has_room
    }
}

impl SparePool {
    pub const fn new() -> SparePool {
        SparePool(Mutex::new(SpareList {
            shape: SlotLayout { page: 0, extra: 0 },
            nodes: Vec::new(),
        }))
    }

    /// Returns a heap page, from those at hand first; null if there is no memory.
    pub fn take(&self, shape: SlotLayout, few: &mut LocalSpares) -> *mut PageHeader {
        if few.count == 0 {
            self.fetch(shape, few);
        }
        // SAFETY: the layout is not empty; the allocation holds the node, its extra data and the page, in this order.
        unsafe {
            let memory = match few.pop() {
                Some(node) => node.cast::<u8>(),
                None => layout(shape).map_or(null_mut(), |layout| alloc(layout)),
            };
            if memory.is_null() {
                return null_mut();
            }
            let node = memory.cast::<PageHeader>();
            let buffer = memory.add(PageHeader::bytes(shape.extra));
            PageHeader::set_up(node, buffer.cast(), null_mut());
            node
        }
    }

    fn fetch(&self, shape: SlotLayout, few: &mut LocalSpares) {
        // Does not wait: in a forked child the lock may be held forever.
        if let Ok(mut kept) = self.0.try_lock()
            && kept.shape == shape
        {
            let from = kept.nodes.len().saturating_sub(FEW);
            for node in kept.nodes.drain(from..) {
                few.push(node);
            }
        }
    }

    /// Keeps a page at hand or for the next cache, or frees it.
    ///
    /// # Safety
    /// `node` comes from [`SparePool::take`] of this shape, as all in `few`, and no code uses it after this.
    pub unsafe fn give(&self, shape: SlotLayout, few: &mut LocalSpares, node: *mut PageHeader) {
        if !few.push(node) {
            // SAFETY: as the caller promises.
            unsafe { self.give_back(shape, [node]) };
        }
    }

    /// Gives back all pages at hand of a cache that ends.
    ///
    /// # Safety
    /// As of [`SparePool::give`].
    pub unsafe fn give_all(&self, shape: SlotLayout, few: &mut LocalSpares) {
        let nodes = few.nodes;
        let count = std::mem::take(&mut few.count);
        // SAFETY: as the caller promises.
        unsafe { self.give_back(shape, nodes.into_iter().take(count)) };
    }

    /// # Safety
    /// As of [`SparePool::give`].
    unsafe fn give_back(
        &self,
        shape: SlotLayout,
        nodes: impl IntoIterator<Item = *mut PageHeader>,
    ) {
        let mut kept = self.0.try_lock().ok();
        for node in nodes {
            let is_kept = kept.as_mut().is_some_and(|kept| kept.push(shape, node));
            if let Some(layout) = layout(shape).filter(|_| !is_kept) {
                // SAFETY: it was allocated with this layout.
                unsafe { dealloc(node.cast(), layout) };
            }
        }
    }
}

impl SpareList {
    /// Keeps a page; false if it is full. All pages have the shape of the first one.
    fn push(&mut self, shape: SlotLayout, node: *mut PageHeader) -> bool {
        if self.nodes.is_empty() {
            self.shape = shape;
        }
        let has_room = self.nodes.len() * shape.bytes() < MOST;
        has_room && self.shape == shape && pushed(&mut self.nodes, node)
    }
}

fn layout(shape: SlotLayout) -> Option<Layout> {
    Layout::from_size_align(shape.bytes(), LINE).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: SlotLayout = SlotLayout {
        page: 2048,
        extra: 200,
    };

    #[test]
    fn what_is_given_is_taken_again_by_the_same_shape_only() {
        let spare = SparePool::new();
        let other = SlotLayout {
            page: 1024,
            ..SHAPE
        };
        let (mut few, mut others) = (LocalSpares::NONE, LocalSpares::NONE);
        let first = spare.take(SHAPE, &mut few);
        // SAFETY: each is given once, as what it was taken as.
        unsafe {
            spare.give(SHAPE, &mut few, first);
            spare.give_all(SHAPE, &mut few);
            let wrong = spare.take(other, &mut others);
            assert_ne!(wrong, first);
            assert_eq!(spare.take(SHAPE, &mut few), first);
            spare.give(other, &mut others, wrong);
            spare.give_all(other, &mut others);
            spare.give(SHAPE, &mut few, first);
            spare.give_all(SHAPE, &mut few);
        }
    }

    #[test]
    fn no_more_is_kept_than_it_says() {
        let spare = SparePool::new();
        let mut few = LocalSpares::NONE;
        let nodes: Vec<_> = (0..2 * MOST / SHAPE.page)
            .map(|_| spare.take(SHAPE, &mut few))
            .collect();
        for node in nodes {
            // SAFETY: as above.
            unsafe { spare.give(SHAPE, &mut few, node) };
        }
        // SAFETY: as above.
        unsafe { spare.give_all(SHAPE, &mut few) };
        let kept = spare.0.lock().unwrap().nodes.len() * SHAPE.bytes();
        assert!(kept <= MOST + SHAPE.bytes() && kept > MOST / 2, "{kept}");
        // While another thread holds the lock, the heap is used.
        let held = spare.0.lock().unwrap();
        let node = spare.take(SHAPE, &mut few);
        assert!(!node.is_null());
        // SAFETY: as above.
        unsafe {
            spare.give(SHAPE, &mut few, node);
            spare.give_all(SHAPE, &mut few);
        }
        drop(held);
    }
}
