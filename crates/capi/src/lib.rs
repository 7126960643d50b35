//! The C interface: what `hugeleaf.h` declares. The header is generated from this crate by cbindgen, so
//! each text here is written for somebody who reads C.
//!
//! Options are structures whose first field is their size, and where zero means "as usual": a
//! program that was built with an older header works with a newer library, and a newer program
//! is refused by an older library only where it uses what that one does not know (the rule of
//! openat2(2)). Setters would need a call a field and could fail one by one.
//!
//! This crate must not decide anything: it checks what C can get wrong (NULL, a number that
//! stands for nothing, text that is none), calls `hugeleaf`, and turns errors into numbers and text.
//! No panic goes through it.
//!
//! Main types: [`hl_region`], [`hl_elastic`], [`hl_status`], [`hl_error`].
#![warn(missing_docs)] // people program against it
#![cfg_attr(not(test), warn(clippy::disallowed_macros, clippy::disallowed_methods))]
#![allow(unsafe_code)]
// Names are those of the header.
#![allow(non_camel_case_types)]
// What a caller has to keep to stands at the head of the header, once for all functions.
#![allow(clippy::missing_safety_doc)]
//! # Safety
//! Pointers come from C. Each function says what they must point to. One that leads to an object of
//! ours or to where a result goes is an optional reference, and NULL is none; the others are raw until
//! they were checked. Nothing that C can set is a Rust enum before it was checked.

mod call;
mod region;

// The header has them in this order.
mod elastic;
mod manager;
mod sqlite;

pub use call::{HL_TEXT, hl_error, hl_status, hl_status_text};
pub use elastic::*;
pub use manager::*;
pub use region::*;
pub use sqlite::*;

use std::ffi::{c_char, c_void};

use call::Failure;
use hugeleaf::{Extent, NodePolicy, PageKind, Sharing, Why};

/// Where pages come from.
#[repr(i32)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum hl_kind {
    /// Any: a ladder that names a size alone.
    HL_ANY = 0,
    /// The kernel's smallest pages.
    HL_BASE = 1,
    /// Transparent huge pages.
    HL_THP = 2,
    /// A pool of reserved pages.
    HL_HUGETLB = 3,
}

impl From<PageKind> for hl_kind {
    fn from(kind: PageKind) -> hl_kind {
        match kind {
            PageKind::Base => hl_kind::HL_BASE,
            PageKind::Thp => hl_kind::HL_THP,
            PageKind::Hugetlb => hl_kind::HL_HUGETLB,
        }
    }
}

/// Why memory is not on the first size of its ladder.
#[repr(i32)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum hl_why {
    /// It is.
    HL_WHY_AS_ASKED = 0,
    /// This host has no pages of that size.
    HL_WHY_NO_SUCH_SIZE = 1,
    /// The rest of a length that is no multiple of the page size.
    HL_WHY_REST = 2,
    /// Fewer reserved pages were available than were wanted.
    HL_WHY_POOL_SHORT = 3,
    /// No contiguous memory was found.
    HL_WHY_NOT_CONTIGUOUS = 4,
    /// Transparent huge pages are off for this process or host.
    HL_WHY_THP_OFF = 5,
    /// A knob of this host keeps pages of that size away.
    HL_WHY_KNOB_OFF = 6,
    /// The kernel does not tell an ordinary program which size it chose.
    HL_WHY_NOT_TOLD = 7,
    /// It was on a huge page, which was split since.
    HL_WHY_SPLIT = 8,
    /// Another process made it, and that one knows.
    HL_WHY_ATTACHED = 9,
}

impl From<&Why> for hl_why {
    fn from(why: &Why) -> hl_why {
        match why {
            Why::NoSuchSize { .. } => hl_why::HL_WHY_NO_SUCH_SIZE,
            Why::Rest { .. } => hl_why::HL_WHY_REST,
            Why::PoolShort { .. } => hl_why::HL_WHY_POOL_SHORT,
            Why::NotContiguous { .. } => hl_why::HL_WHY_NOT_CONTIGUOUS,
            Why::ThpOff => hl_why::HL_WHY_THP_OFF,
            Why::KnobOff { .. } => hl_why::HL_WHY_KNOB_OFF,
            Why::NotTold { .. } => hl_why::HL_WHY_NOT_TOLD,
            Why::Split { .. } => hl_why::HL_WHY_SPLIT,
            Why::Attached => hl_why::HL_WHY_ATTACHED,
            // Newer than this list: `why_text` says what it is.
            _ => hl_why::HL_WHY_NOT_TOLD,
        }
    }
}

/// `sharing`: private to this process. The usual.
pub const HL_PRIVATE: u32 = 0;
/// `sharing`: other processes can attach it, and children inherit it.
pub const HL_SHARED: u32 = 1;

/// `node_policy`: as the thread's own policy says (set_mempolicy(2)). The usual.
pub const HL_NODES_INHERIT: u32 = 0;
/// `node_policy`: from the node of the processor that populates.
pub const HL_NODES_LOCAL: u32 = 1;
/// `node_policy`: from the nodes of `nodes` only.
pub const HL_NODES_BIND: u32 = 2;
/// `node_policy`: from the nodes of `nodes` in turn.
pub const HL_NODES_INTERLEAVE: u32 = 3;

/// A range of memory on pages of one size and kind: what was asked for, and what was got.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct hl_extent {
    /// Its first address.
    pub start: u64,
    /// How long it is, in bytes; never 0.
    pub length_bytes: u64,
    /// How much of it is in memory now; less than `length_bytes` only where the kernel has
    /// swapped it out or taken zeroes back.
    pub resident_bytes: u64,
    /// The size of the pages it is on, in bytes.
    pub page_bytes: u64,
    /// The first size of the ladder, in bytes.
    pub asked_page_bytes: u64,
    /// Where its pages come from: `HL_BASE`, `HL_THP` or `HL_HUGETLB`.
    pub kind: hl_kind,
    /// What the ladder's first rung says of that; `HL_ANY` where it names a size alone.
    pub asked_kind: hl_kind,
    /// Why the two are not the same.
    pub why: hl_why,
    /// Not used; 0.
    pub reserved: u32,
    /// `why` as a sentence with its numbers; empty where it is as asked. UTF-8, ends in 0.
    pub why_text: [c_char; HL_TEXT],
    /// A command, or what to ask for instead, that would change it; empty where it is as asked.
    pub next: [c_char; HL_TEXT],
}

impl From<&Extent> for hl_extent {
    fn from(extent: &Extent) -> hl_extent {
        let why = extent.why.as_ref();
        hl_extent {
            start: extent.range.start(),
            length_bytes: extent.range.len().get(),
            resident_bytes: extent.resident.get(),
            page_bytes: extent.page.bytes().get(),
            asked_page_bytes: extent.asked.size.bytes().get(),
            kind: extent.kind.into(),
            asked_kind: extent.asked.kind.map_or(hl_kind::HL_ANY, hl_kind::from),
            why: why.map_or(hl_why::HL_WHY_AS_ASKED, hl_why::from),
            reserved: 0,
            why_text: call::text(&why.map(Why::to_string).unwrap_or_default()),
            next: call::text(&why.map(Why::next).unwrap_or_default()),
        }
    }
}

/// Called with how much is populated: `done_bytes` of `total_bytes`, some twenty times a second and at
/// the end, by the thread that called the library. `data` is the options' `progress_data`. It must
/// return: no longjmp(3), no C++ exception, no call with the object that is being made.
pub type hl_progress =
    Option<unsafe extern "C" fn(done_bytes: u64, total_bytes: u64, data: *mut c_void)>;

/// The version of the library, as in "0.1.0". Lives for ever; any thread.
#[unsafe(no_mangle)]
pub extern "C" fn hl_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}

/// `HL_PRIVATE` or `HL_SHARED`.
fn sharing_of(number: u32) -> Result<Sharing, Failure> {
    match number {
        HL_PRIVATE => Ok(Sharing::Private),
        HL_SHARED => Ok(Sharing::Shared),
        other => Err(Failure::invalid(
            format!("sharing is {other}"),
            "HL_PRIVATE or HL_SHARED",
        )),
    }
}

/// The most nodes that Linux can be built for (`NODES_SHIFT` of 10).
const MOST_NODES: usize = 1 << 10;

/// One of `HL_NODES_…`, and the nodes it speaks of.
///
/// # Safety
/// `nodes` is NULL, or points to `count` numbers.
unsafe fn nodes_of(policy: u32, nodes: *const u32, count: usize) -> Result<NodePolicy, Failure> {
    // SAFETY: by this function's contract.
    let list = unsafe { call::array(nodes, count, MOST_NODES, "nodes") }?.to_vec();
    let named = !list.is_empty();
    match (policy, named) {
        (HL_NODES_INHERIT, false) => Ok(NodePolicy::Inherit),
        (HL_NODES_LOCAL, false) => Ok(NodePolicy::Local),
        (HL_NODES_BIND, true) => Ok(NodePolicy::Bind(list)),
        (HL_NODES_INTERLEAVE, true) => Ok(NodePolicy::Interleave(list)),
        (HL_NODES_BIND | HL_NODES_INTERLEAVE, false) => Err(Failure::invalid(
            "a node policy that names no nodes",
            "set nodes and node_count",
        )),
        (HL_NODES_INHERIT | HL_NODES_LOCAL, true) => Err(Failure::invalid(
            "nodes, and a node policy that takes none",
            "HL_NODES_BIND or HL_NODES_INTERLEAVE",
        )),
        (other, _) => Err(Failure::invalid(
            format!("node_policy is {other}"),
            "one of HL_NODES_…",
        )),
    }
}
