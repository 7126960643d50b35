//! Pages of the heap that nobody uses, kept for the next cache: a database that is opened and closed all the time has a
//! handful of pages each time, and to allocate and free each of them took longer than all else that a cache does.
#![allow(unsafe_code)]
//! # Safety
//! A spare page is nobody's: whoever gave it back keeps no pointer to it. It is used as memory of its shape only.

use std::alloc::{Layout, alloc, dealloc};
use std::ptr::null_mut;
use std::sync::Mutex;

use crate::chunk::Shape;
use crate::node::{LINE, Node};

/// So many bytes are kept at most.
const MOST: usize = 512 << 10;

/// Spare pages of one shape, for all caches.
#[derive(Debug)]
pub(crate) struct Spare(Mutex<Kept>);

#[derive(Debug)]
struct Kept {
    shape: Shape,
    nodes: Vec<*mut Node>,
}

// SAFETY: nobody else knows these nodes.
unsafe impl Send for Kept {}

impl Spare {
    pub const fn new() -> Spare {
        Spare(Mutex::new(Kept {
            shape: Shape { page: 0, extra: 0 },
            nodes: Vec::new(),
        }))
    }

    /// A page of its own allocation; null where there is no memory.
    pub fn take(&self, shape: Shape) -> *mut Node {
        // Nobody waits here: in a forked child the lock may be held for ever.
        let kept = self.0.try_lock().ok();
        let kept = kept.filter(|kept| kept.shape == shape);
        let kept = kept.and_then(|mut kept| kept.nodes.pop());
        // SAFETY: the layout is not empty; the allocation holds the node, what follows it, and the page, in this order.
        unsafe {
            let memory = match kept {
                Some(node) => node.cast::<u8>(),
                None => alloc(layout(shape)),
            };
            if memory.is_null() {
                return null_mut();
            }
            let node = memory.cast::<Node>();
            let buffer = memory.add(Node::bytes(shape.extra));
            Node::set_up(node, buffer.cast(), null_mut());
            node
        }
    }

    /// Keeps it for the next, or frees it.
    ///
    /// # Safety
    /// `node` comes from [`Spare::take`] of this shape, and nobody uses it after this.
    pub unsafe fn give(&self, shape: Shape, node: *mut Node) {
        if let Ok(mut kept) = self.0.try_lock() {
            if kept.nodes.is_empty() {
                kept.shape = shape;
            }
            if kept.shape == shape && kept.nodes.len() * layout(shape).size() < MOST {
                kept.nodes.push(node);
                return;
            }
        }
        // SAFETY: it was allocated with this layout.
        unsafe { dealloc(node.cast(), layout(shape)) };
    }
}

fn layout(shape: Shape) -> Layout {
    // Both are small: a page of 64K and a few hundred bytes at most.
    Layout::from_size_align(shape.bytes(), LINE).expect("a page and its node are small")
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: Shape = Shape {
        page: 2048,
        extra: 200,
    };

    #[test]
    fn what_is_given_is_taken_again_by_the_same_shape_only() {
        let spare = Spare::new();
        let other = Shape {
            page: 1024,
            ..SHAPE
        };
        let first = spare.take(SHAPE);
        // SAFETY: each is given once, as what it was taken as.
        unsafe {
            spare.give(SHAPE, first);
            let wrong = spare.take(other);
            assert_ne!(wrong, first);
            assert_eq!(spare.take(SHAPE), first);
            spare.give(other, wrong);
            spare.give(SHAPE, first);
        }
    }

    #[test]
    fn no_more_is_kept_than_it_says() {
        let spare = Spare::new();
        let nodes: Vec<_> = (0..2 * MOST / SHAPE.page)
            .map(|_| spare.take(SHAPE))
            .collect();
        for node in nodes {
            // SAFETY: as above.
            unsafe { spare.give(SHAPE, node) };
        }
        let kept = spare.0.lock().unwrap().nodes.len() * layout(SHAPE).size();
        assert!(
            kept <= MOST + layout(SHAPE).size() && kept > MOST / 2,
            "{kept}"
        );
        // While somebody else is at it, the heap has them.
        let held = spare.0.lock().unwrap();
        let node = spare.take(SHAPE);
        assert!(!node.is_null());
        // SAFETY: as above.
        unsafe { spare.give(SHAPE, node) };
        drop(held);
    }
}
