//! Allocates the data of NumPy's arrays on huge pages (NEP 49, version 1 of its handler).
#![allow(unsafe_code)]
//! # Safety
//! NumPy calls a handler's functions with its `ctx`, and keeps the handler's capsule alive in each array that it
//! allocated. So the [`Handler`] behind `ctx` outlives every call. Pointers that NumPy passes came from this handler:
//! from a mapping that [`MAPPINGS`] lists, or else from NumPy's default handler, to which they go back. NumPy and C
//! programs fork, so no lock may be held here: the child would find it locked.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};

use hugeleaf::{Bytes, Ladder, MemoryError, PageSize};
use hugeleaf_sys::Kernel;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;
use pyo3::{PyErr, ffi};

use crate::error;
use crate::page_sizes;

/// Name of a handler's capsule (numpy/_core/include/numpy/ndarraytypes.h, `MEM_HANDLER_CAPSULE_NAME`).
const CAPSULE: &CStr = c"mem_handler";
/// Places of functions and of the default handler in NumPy's table `_ARRAY_API`, the same since NumPy 1.22.
const SET_HANDLER: usize = 304;
const DEFAULT_HANDLER: usize = 306;

/// `PyDataMemAllocator`.
#[repr(C)]
struct Allocator {
    ctx: *mut c_void,
    malloc: unsafe extern "C" fn(*mut c_void, usize) -> *mut c_void,
    calloc: unsafe extern "C" fn(*mut c_void, usize, usize) -> *mut c_void,
    realloc: unsafe extern "C" fn(*mut c_void, *mut c_void, usize) -> *mut c_void,
    free: unsafe extern "C" fn(*mut c_void, *mut c_void, usize),
}

/// `PyDataMem_Handler`.
#[repr(C)]
struct NumpyHandler {
    name: [c_char; 127],
    version: u8,
    allocator: Allocator,
}

/// A handler of this module, behind its capsule.
#[repr(C)]
struct Handler {
    /// The part that NumPy reads. Its `ctx` points to this `Handler`.
    numpy: NumpyHandler,
    /// NumPy's default handler, for small arrays and for memory that cannot be mapped. NumPy never frees it.
    small: NonNull<NumpyHandler>,
    /// Arrays of at least this size are mapped.
    least: usize,
    layout: Layout,
}

/// Placement of mapped arrays.
#[derive(Clone, Copy)]
struct Layout {
    base: PageSize,
    page: PageSize,
    /// MADV_HUGEPAGE, or MADV_NOHUGEPAGE if base pages are requested.
    advice: c_int,
}

/// Address and length of a mapped array. An address of 0 marks a free slot.
struct Slot {
    address: AtomicUsize,
    length: AtomicUsize,
}

const SLOTS: usize = 1 << 16;
/// Length of the run of slots, from the one that its address selects, that can hold a mapping.
const RUN: usize = 64;

/// The mapped arrays of all handlers: as many as the kernel allows mappings by default (vm.max_map_count). An array
/// that finds no slot is not mapped.
static MAPPINGS: [Slot; SLOTS] = [const {
    Slot {
        address: AtomicUsize::new(0),
        length: AtomicUsize::new(0),
    }
}; SLOTS];

fn slots_for(address: usize) -> impl Iterator<Item = &'static Slot> {
    // Fibonacci hashing spreads multiples of a page size over all slots.
    const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
    let hash = (address as u64).wrapping_mul(GOLDEN) >> (u64::BITS - SLOTS.trailing_zeros());
    let first = usize::try_from(hash).unwrap_or(0);
    (0..RUN).map(move |at| &MAPPINGS[(first + at) % SLOTS])
}

/// Lists a mapping; false if no slot is free.
fn list(address: usize, length: usize) -> bool {
    // Claimed first, so that no other thread writes the length. A reader compares the whole address.
    const CLAIMED: usize = 1;
    let claim = |slot: &&Slot| {
        let (taken, order) = (CLAIMED, Ordering::Relaxed);
        slot.address
            .compare_exchange(0, taken, Ordering::Acquire, order)
            .is_ok()
    };
    let Some(slot) = slots_for(address).find(claim) else {
        return false;
    };
    slot.length.store(length, Ordering::Relaxed);
    slot.address.store(address, Ordering::Release);
    true
}

/// Returns the slot of a mapped array; `None` for a pointer of the default handler.
fn slot_of(address: usize) -> Option<&'static Slot> {
    let mut slots = slots_for(address);
    let slot = slots.find(|slot| slot.address.load(Ordering::Acquire) == address);
    // A null pointer would match a free slot.
    slot.filter(|_| address != 0)
}

impl Handler {
    /// Returns memory filled with zeroes on the pages of the layout, aligned to them. Nothing is populated: an array
    /// that is never written takes no memory. Null for a small array, and if the kernel refuses or no slot is free.
    fn map(&self, size: usize) -> *mut c_void {
        let none = std::ptr::null_mut();
        if size < self.least {
            return none;
        }
        let Some((length, room)) = self.layout.lengths(size) else {
            return none;
        };
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: without MAP_FIXED no mapping is replaced.
        let start = unsafe { libc::mmap(none, room, protection, flags, -1, 0) };
        if start == libc::MAP_FAILED {
            return none;
        }
        let start = start as usize;
        let end = start + room;
        let aligned = self.layout.page.round_up(start as u64);
        let data = aligned
            .and_then(|at| usize::try_from(at).ok())
            .unwrap_or(start);
        if !list(data, length) {
            unmap(start, room);
            return none;
        }
        // The surplus at both ends only made room for the alignment.
        unmap(start, data - start);
        unmap(data + length, end - (data + length));
        // SAFETY: the range was mapped above. Advice does not change its contents. A kernel without THP refuses it.
        unsafe { libc::madvise(data as *mut c_void, length, self.layout.advice) };
        data as *mut c_void
    }

    const fn small(&self) -> &Allocator {
        // SAFETY: NumPy's default handler is a static of NumPy, which is never unloaded.
        unsafe { &self.small.as_ref().allocator }
    }
}

impl Layout {
    /// Returns the length of the mapping and the room that its alignment needs.
    fn lengths(&self, size: usize) -> Option<(usize, usize)> {
        let length = page_sizes::rounded(self.page, self.base, size as u64)?;
        let room = length.checked_add(self.page.bytes().get())?;
        let in_bounds = isize::try_from(room).is_ok();
        in_bounds.then_some((usize::try_from(length).ok()?, usize::try_from(room).ok()?))
    }
}

fn unmap(start: usize, length: usize) {
    if length > 0 {
        // SAFETY: the callers own the range and nothing refers to it any more.
        unsafe { libc::munmap(start as *mut c_void, length) };
    }
}

/// # Safety
/// `ctx` is the `ctx` of a handler of this module that is alive.
unsafe fn handler<'a>(ctx: *mut c_void) -> &'a Handler {
    // SAFETY: by the contract above.
    unsafe { &*ctx.cast::<Handler>() }
}

/// # Safety
/// As NumPy calls it.
unsafe extern "C" fn malloc(ctx: *mut c_void, size: usize) -> *mut c_void {
    // SAFETY: NumPy passes the handler's own ctx.
    let handler = unsafe { handler(ctx) };
    let mapped = handler.map(size);
    if !mapped.is_null() {
        return mapped;
    }
    let small = handler.small();
    // SAFETY: as NumPy would call its default handler.
    unsafe { (small.malloc)(small.ctx, size) }
}

/// # Safety
/// As NumPy calls it.
unsafe extern "C" fn calloc(ctx: *mut c_void, count: usize, each: usize) -> *mut c_void {
    // SAFETY: NumPy passes the handler's own ctx.
    let handler = unsafe { handler(ctx) };
    let size = count.checked_mul(each);
    let mapped = size.map_or(std::ptr::null_mut(), |size| handler.map(size));
    if !mapped.is_null() {
        return mapped;
    }
    let small = handler.small();
    // SAFETY: as NumPy would call its default handler.
    unsafe { (small.calloc)(small.ctx, count, each) }
}

/// # Safety
/// As NumPy calls it: `data` is null, or memory of this handler.
unsafe extern "C" fn realloc(ctx: *mut c_void, data: *mut c_void, size: usize) -> *mut c_void {
    // SAFETY: NumPy passes the handler's own ctx.
    let handler = unsafe { handler(ctx) };
    let Some(slot) = slot_of(data as usize) else {
        let small = handler.small();
        // SAFETY: `data` is no mapping, so it is null or of the default handler.
        return unsafe { (small.realloc)(small.ctx, data, size) };
    };
    let length = slot.length.load(Ordering::Relaxed);
    if size >= handler.least && size <= length {
        return data;
    }
    // SAFETY: the contract of this function.
    let moved = unsafe { malloc(ctx, size) };
    if !moved.is_null() {
        // SAFETY: both have at least this length, and the new memory is not the old.
        unsafe { data.copy_to_nonoverlapping(moved, length.min(size)) };
        // SAFETY: NumPy uses `moved` from now on.
        unsafe { free(ctx, data, length) };
    }
    moved
}

/// # Safety
/// As NumPy calls it: `data` is null, or memory of this handler that nothing refers to any more.
unsafe extern "C" fn free(ctx: *mut c_void, data: *mut c_void, size: usize) {
    let Some(slot) = slot_of(data as usize) else {
        // SAFETY: NumPy passes the handler's own ctx.
        let small = unsafe { handler(ctx) }.small();
        // SAFETY: `data` is no mapping, so it is null or of the default handler.
        return unsafe { (small.free)(small.ctx, data, size) };
    };
    let length = slot.length.load(Ordering::Relaxed);
    // Before the addresses are free: a mapping that another thread then gets there has a slot of its own.
    slot.address.store(0, Ordering::Release);
    unmap(data as usize, length);
}

/// Frees a handler with its capsule.
///
/// # Safety
/// CPython calls it once, for a capsule of [`new_handler`].
unsafe extern "C" fn forget(capsule: *mut ffi::PyObject) {
    // SAFETY: the capsule holds the pointer of `Box::into_raw`, and no array refers to it any more.
    unsafe {
        let handler = ffi::PyCapsule_GetPointer(capsule, CAPSULE.as_ptr());
        drop(Box::from_raw(handler.cast::<Handler>()));
    }
}

/// Returns the layout for the first size of a ladder that this host has as THP. `None` if it has none.
fn layout_on(ladder: &Ladder, base: PageSize, thp: &[PageSize]) -> Option<Layout> {
    let of = |page, advice| Layout { base, page, advice };
    ladder.rungs().iter().find_map(|rung| match rung.size {
        page if page <= base => Some(of(base, libc::MADV_NOHUGEPAGE)),
        page => thp.contains(&page).then(|| of(page, libc::MADV_HUGEPAGE)),
    })
}

/// Makes a handler from NumPy's table of C functions. Returns its capsule and the page size that it uses, which is
/// `None` if this host has none of the ladder.
#[pyfunction]
pub(crate) fn new_handler(
    py: Python<'_>,
    api: &Bound<'_, PyCapsule>,
    pages: &str,
    least: Option<usize>,
) -> PyResult<(Py<PyAny>, Option<u64>)> {
    let ladder: Ladder = pages.parse().map_err(|e| error::of_ladder(&e))?;
    if page_sizes::names_pool(&ladder) {
        return Err(error::invalid(
            &format!(
                "numpy_arrays cannot use '{pages}': a child process would share arrays on a pool with its parent"
            ),
            "use \"2M\", or make single arrays on a pool: hugeleaf.empty(shape, pages=\"hugetlb:2M\")",
        ));
    }
    let fail = |e: MemoryError| error::of_memory("arrays of NumPy", &e);
    let base = Kernel::new().base_page();
    let thp = page_sizes::thp_sizes().map_err(fail)?;
    let found = layout_on(&ladder, base, thp);
    if found.is_none() && ladder.is_mandatory() {
        return Err(fail(MemoryError::NoSuchSize(ladder)));
    }
    let layout = found.unwrap_or(Layout {
        base,
        page: base,
        advice: libc::MADV_NORMAL,
    });
    let page = usize::try_from(layout.page.bytes().get()).unwrap_or(usize::MAX);
    let mut handler = Box::new(Handler {
        numpy: NumpyHandler {
            name: name_of(&ladder),
            version: 1,
            allocator: Allocator {
                ctx: std::ptr::null_mut(),
                malloc,
                calloc,
                realloc,
                free,
            },
        },
        small: default_handler(api)?,
        // Without such pages there is nothing to gain from a mapping of its own.
        least: match found {
            Some(_) => least.unwrap_or(page).max(1),
            None => usize::MAX,
        },
        layout,
    });
    handler.numpy.allocator.ctx = std::ptr::from_mut(&mut *handler).cast();
    let handler = Box::into_raw(handler);
    // SAFETY: the pointer is valid until `forget` frees it. `numpy` is its first field in NumPy's layout.
    let capsule = unsafe {
        let numpy = (&raw mut (*handler).numpy).cast();
        ffi::PyCapsule_New(numpy, CAPSULE.as_ptr(), Some(forget))
    };
    if capsule.is_null() {
        // SAFETY: nothing else has the pointer.
        drop(unsafe { Box::from_raw(handler) });
        return Err(PyErr::fetch(py));
    }
    // SAFETY: PyCapsule_New returned a new reference.
    let capsule = unsafe { Bound::from_owned_ptr(py, capsule) }.unbind();
    Ok((capsule, found.map(|layout| Bytes::get(layout.page.bytes()))))
}

/// Returns the name that NumPy shows for arrays of a handler (`get_handler_name`), cut to its length.
fn name_of(ladder: &Ladder) -> [c_char; 127] {
    let mut name = [0; 127];
    let text = format!("hugeleaf {ladder}");
    for (to, from) in name.iter_mut().take(126).zip(text.bytes()) {
        // Signed on some processors only.
        *to = c_char::from_ne_bytes([from]);
    }
    name
}

/// Returns an entry of NumPy's table.
fn entry(api: &Bound<'_, PyCapsule>, at: usize) -> PyResult<*mut c_void> {
    // SAFETY: NumPy's capsule has no name and holds its table.
    let table = unsafe { ffi::PyCapsule_GetPointer(api.as_ptr(), std::ptr::null()) };
    if table.is_null() {
        return Err(PyErr::fetch(api.py()));
    }
    // SAFETY: the table of NumPy 1.22 and newer has these entries; the caller has checked the version.
    Ok(unsafe { *table.cast::<*mut c_void>().add(at) })
}

fn default_handler(api: &Bound<'_, PyCapsule>) -> PyResult<NonNull<NumpyHandler>> {
    let variable = entry(api, DEFAULT_HANDLER)?.cast::<*mut ffi::PyObject>();
    // SAFETY: the entry is the address of NumPy's variable, which holds a capsule as long as NumPy is loaded.
    let handler = unsafe { ffi::PyCapsule_GetPointer(*variable, CAPSULE.as_ptr()) };
    NonNull::new(handler.cast()).ok_or_else(|| PyErr::fetch(api.py()))
}

/// Makes a handler that of the current context (contextvars), and returns the one before.
#[pyfunction]
pub(crate) fn set_handler<'py>(
    api: &Bound<'py, PyCapsule>,
    handler: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    let set = entry(api, SET_HANDLER)?;
    // SAFETY: the entry is PyDataMem_SetHandler, with this signature.
    let set: unsafe extern "C" fn(*mut ffi::PyObject) -> *mut ffi::PyObject =
        unsafe { std::mem::transmute(set) };
    // SAFETY: it takes a borrowed reference to a handler's capsule, and returns a new one.
    let before = unsafe { set(handler.as_ptr()) };
    // SAFETY: a new reference, or null with an exception set.
    unsafe { Bound::from_owned_ptr_or_err(api.py(), before) }
}
