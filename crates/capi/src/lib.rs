//! The C interface that `hugeleaf.h` declares. cbindgen generates the header from this crate, so
//! doc comments here are written for C programmers.
//!
//! Options are structures whose first field is their size, and where zero means the default. A
//! program built with an older header works with a newer library. An older library refuses a newer
//! program only if it uses a field that the library does not know (the rule of openat2(2)). Setters
//! would need one call per field, and each could fail.
//!
//! This crate must not decide anything. It checks for mistakes that C allows (NULL, undefined
//! numbers, invalid text), calls `hugeleaf`, and turns errors into numbers and text. No panic
//! passes through it.
//!
//! Main types: [`hl_region`], [`hl_elastic`], [`hl_status`], [`hl_error`].
#![warn(missing_docs)] // public API
#![cfg_attr(not(test), warn(clippy::disallowed_macros, clippy::disallowed_methods))]
#![allow(unsafe_code)]
// Names are those of the header.
#![allow(non_camel_case_types)]
// The obligations of a caller are at the top of the header, once for all functions.
#![allow(clippy::missing_safety_doc)]
//! # Safety
//! Pointers come from C. Each function states what they must point to. A pointer to an object of
//! this library, or to a result, is an optional reference, and NULL is `None`. Others are raw until
//! they are checked. No value from C is a Rust enum before it is checked.

mod call;
mod region;

// This order is that of the header.
mod elastic;
mod manager;
mod sqlite;

pub use call::{HL_TEXT, hl_error, hl_status, hl_status_text};
pub use elastic::*;
pub use manager::*;
pub use region::*;
pub use sqlite::*;

use std::ffi::{c_char, c_void};

use call::CallFailure;
use hugeleaf::{Extent, FallbackReason, NodePolicy, PageKind, Sharing};

/// Kind of pages.
#[repr(i32)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum hl_kind {
    /// Any kind: the ladder names only a size.
    HL_ANY = 0,
    /// Base pages: the kernel's smallest pages.
    HL_BASE = 1,
    /// Transparent huge pages.
    HL_THP = 2,
    /// Reserved pages from a hugetlb pool.
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

/// Reason why memory is not on the first page size of its ladder.
#[repr(i32)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum hl_why {
    /// The memory is on the first page size.
    HL_WHY_AS_ASKED = 0,
    /// This host has no pages of that size.
    HL_WHY_NO_SUCH_SIZE = 1,
    /// The rest of a length that is not a multiple of the page size.
    HL_WHY_REST = 2,
    /// The pool provided fewer pages than requested.
    HL_WHY_POOL_SHORT = 3,
    /// The kernel found no contiguous memory.
    HL_WHY_NOT_CONTIGUOUS = 4,
    /// Transparent huge pages are off for this process or this host.
    HL_WHY_THP_OFF = 5,
    /// A knob of this host disables pages of that size.
    HL_WHY_KNOB_OFF = 6,
    /// The kernel does not tell an unprivileged process which size it chose.
    HL_WHY_NOT_TOLD = 7,
    /// The memory was on a huge page that was split later.
    HL_WHY_SPLIT = 8,
    /// Another process made the region and knows the reason.
    HL_WHY_ATTACHED = 9,
}

impl From<&FallbackReason> for hl_why {
    fn from(why: &FallbackReason) -> hl_why {
        match why {
            FallbackReason::NoSuchSize { .. } => hl_why::HL_WHY_NO_SUCH_SIZE,
            FallbackReason::Remainder { .. } => hl_why::HL_WHY_REST,
            FallbackReason::PoolShort { .. } => hl_why::HL_WHY_POOL_SHORT,
            FallbackReason::NotContiguous { .. } => hl_why::HL_WHY_NOT_CONTIGUOUS,
            FallbackReason::ThpOff => hl_why::HL_WHY_THP_OFF,
            FallbackReason::KnobOff { .. } => hl_why::HL_WHY_KNOB_OFF,
            FallbackReason::NotReported { .. } => hl_why::HL_WHY_NOT_TOLD,
            FallbackReason::Split { .. } => hl_why::HL_WHY_SPLIT,
            FallbackReason::Attached => hl_why::HL_WHY_ATTACHED,
            // A newer reason than this list; `why_text` describes it.
            _ => hl_why::HL_WHY_NOT_TOLD,
        }
    }
}

/// Value of `sharing`: private to this process. The default.
pub const HL_PRIVATE: u32 = 0;
/// Value of `sharing`: other processes can attach it, and children inherit it.
pub const HL_SHARED: u32 = 1;

/// Value of `node_policy`: the policy of the calling thread (set_mempolicy(2)). The default.
pub const HL_NODES_INHERIT: u32 = 0;
/// Value of `node_policy`: the node of the CPU that populates the page.
pub const HL_NODES_LOCAL: u32 = 1;
/// Value of `node_policy`: only the nodes in `nodes`.
pub const HL_NODES_BIND: u32 = 2;
/// Value of `node_policy`: the nodes in `nodes`, in turn.
pub const HL_NODES_INTERLEAVE: u32 = 3;

/// A range of memory on pages of one size and kind, with the request and the result.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct hl_extent {
    /// First address.
    pub start: u64,
    /// Length in bytes; never 0.
    pub length_bytes: u64,
    /// Resident memory in bytes. Less than `length_bytes` only if the kernel swapped part of it out
    /// or reclaimed zero pages, or another process punched a hole.
    pub resident_bytes: u64,
    /// Size of the pages, in bytes.
    pub page_bytes: u64,
    /// First page size of the ladder, in bytes.
    pub asked_page_bytes: u64,
    /// Kind of the pages: `HL_BASE`, `HL_THP` or `HL_HUGETLB`.
    pub kind: hl_kind,
    /// Kind that the first rung of the ladder names; `HL_ANY` if it names only a size.
    pub asked_kind: hl_kind,
    /// Reason for any difference from the first rung.
    pub why: hl_why,
    /// Unused; 0.
    pub reserved: u32,
    /// `why` as a sentence with numbers; empty if the pages are as requested. UTF-8, ends in 0.
    pub why_text: [c_char; HL_TEXT],
    /// Remedy: a command, or a different request; empty if the pages are as requested.
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
            asked_page_bytes: extent.requested.size.bytes().get(),
            kind: extent.kind.into(),
            asked_kind: extent.requested.kind.map_or(hl_kind::HL_ANY, hl_kind::from),
            why: why.map_or(hl_why::HL_WHY_AS_ASKED, hl_why::from),
            reserved: 0,
            why_text: call::text(&why.map(FallbackReason::to_string).unwrap_or_default()),
            next: call::text(&why.map(FallbackReason::next).unwrap_or_default()),
        }
    }
}

/// Progress callback: `done_bytes` of `total_bytes` are populated. The thread that called the library
/// calls it about 20 times a second and at the end. `data` is `progress_data` of the options. It must
/// return: no longjmp(3), no C++ exception. It must not use the object that is being created.
pub type hl_progress =
    Option<unsafe extern "C" fn(done_bytes: u64, total_bytes: u64, data: *mut c_void)>;

/// Returns the version of the library, for example "0.1.0". The text is static. Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn hl_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}

/// Converts `HL_PRIVATE` or `HL_SHARED`.
fn sharing_of(number: u32) -> Result<Sharing, CallFailure> {
    match number {
        HL_PRIVATE => Ok(Sharing::Private),
        HL_SHARED => Ok(Sharing::Shared),
        other => Err(CallFailure::invalid(
            format!("sharing is {other}"),
            "use HL_PRIVATE or HL_SHARED",
        )),
    }
}

/// Maximum number of nodes that a Linux kernel can be built for (`NODES_SHIFT` of 10).
const MOST_NODES: usize = 1 << 10;

/// Converts one of `HL_NODES_…` and its nodes.
///
/// # Safety
/// `nodes` is NULL, or points to `count` numbers.
unsafe fn nodes_of(
    policy: u32,
    nodes: *const u32,
    count: usize,
) -> Result<NodePolicy, CallFailure> {
    // SAFETY: by this function's contract.
    let list = unsafe { call::array(nodes, count, MOST_NODES, "nodes") }?.to_vec();
    let named = !list.is_empty();
    match (policy, named) {
        (HL_NODES_INHERIT, false) => Ok(NodePolicy::Inherit),
        (HL_NODES_LOCAL, false) => Ok(NodePolicy::Local),
        (HL_NODES_BIND, true) => Ok(NodePolicy::Bind(list)),
        (HL_NODES_INTERLEAVE, true) => Ok(NodePolicy::Interleave(list)),
        (HL_NODES_BIND | HL_NODES_INTERLEAVE, false) => Err(CallFailure::invalid(
            "node_policy requires nodes, and none are given",
            "set nodes and node_count",
        )),
        (HL_NODES_INHERIT | HL_NODES_LOCAL, true) => Err(CallFailure::invalid(
            "nodes are given, and node_policy takes none",
            "use HL_NODES_BIND or HL_NODES_INTERLEAVE",
        )),
        (other, _) => Err(CallFailure::invalid(
            format!("node_policy is {other}"),
            "use one of HL_NODES_…",
        )),
    }
}
