//! `hl_region_…`: a contiguous address range.
#![allow(unsafe_code)]
//! # Safety
//! An `hl_region` that is not NULL came from this module and was not freed; the header requires
//! that. [`Region`] may be shared between threads.

use std::ffi::{CString, c_char, c_void};
use std::mem::MaybeUninit;

use super::call::{self, CallFailure, SizedOptions, answer, call_on};
use super::{hl_error, hl_extent, hl_progress, hl_status};
use hugeleaf::{Bytes, Handle, Region, RegionOptions};

/// A contiguous, populated address range on the best pages available. Any number of threads may use
/// it at a time; only `hl_region_free` requires exclusive use.
pub struct hl_region(Region);

/// Descriptors for a child process, with the line that names them.
pub struct hl_handle {
    line: CString,
    /// Keeps the descriptors open.
    _handle: Handle,
}

impl hl_handle {
    pub(super) fn inheritable(handle: Handle) -> Result<*mut hl_handle, CallFailure> {
        let line = handle.inheritable()?;
        let line = CString::new(line)
            .map_err(|_| CallFailure::new(hl_status::HL_PANIC, "line contains a 0", "report it"))?;
        Ok(call::hand_out(hl_handle {
            line,
            _handle: handle,
        }))
    }
}

/// Options of `hl_region_new`. Zero all of it; set at least `size`, `length_bytes` and `ladder`. In C:
/// `hl_region_options o = { .size = sizeof o, .length_bytes = …, .ladder = "2M" };`
#[repr(C)]
#[derive(Clone, Copy)]
pub struct hl_region_options {
    /// `sizeof(hl_region_options)`.
    pub size: usize,
    /// Length in bytes: a multiple of the base page, or of a mandatory ladder's smallest page.
    pub length_bytes: u64,
    /// Page sizes to try, from largest to smallest: "1G,2M". A size without a kind means
    /// transparent huge pages for private memory; for shared memory, the pool of that size, then
    /// transparent huge pages. "hugetlb:2M" and "thp:2M" name the kind. The rest is on base pages.
    /// A ladder that ends in "!" is mandatory: all memory is on the named sizes, or the call fails.
    pub ladder: *const c_char,
    /// `HL_PRIVATE` or `HL_SHARED`.
    pub sharing: u32,
    /// Not 0: lock the region in memory (mlock(2)). Reserved pages are always locked and count
    /// towards no limit.
    pub locked: u32,
    /// One of `HL_NODES_…`.
    pub node_policy: u32,
    /// Number of threads that populate the region; 0 for one per processor.
    pub threads: u32,
    /// Array of `node_count` nodes for `node_policy`.
    pub nodes: *const u32,
    /// Number of nodes; 0 for `HL_NODES_INHERIT` and `HL_NODES_LOCAL`.
    pub node_count: usize,
    /// Progress callback; NULL for none.
    pub progress: hl_progress,
    /// Passed to `progress` unchanged.
    pub progress_data: *mut c_void,
}

// SAFETY: integers, raw pointers and an optional function, in an order that leaves no gaps, the
// size first.
unsafe impl SizedOptions for hl_region_options {}

/// Reads the options.
///
/// # Safety
/// `options` is NULL or as the header requires.
unsafe fn read_options(
    options: *const hl_region_options,
) -> Result<(RegionOptions, hl_region_options), CallFailure> {
    // SAFETY: by this function's contract, as for the two below.
    let given = unsafe { call::options_of(options) }?;
    // SAFETY: as above.
    let ladder = unsafe { call::ladder_of(given.ladder) }?;
    // SAFETY: as above.
    let nodes = unsafe { super::nodes_of(given.node_policy, given.nodes, given.node_count) }?;
    let threads = usize::try_from(given.threads).ok().filter(|n| *n > 0);
    let mut read = RegionOptions::new(Bytes(given.length_bytes), ladder)
        .sharing(super::sharing_of(given.sharing)?)
        .nodes(nodes)
        .locked(given.locked != 0);
    read.threads = threads;
    Ok((read, given))
}

/// Allocates and populates memory, and locks it if requested. The caller owns `*region` until
/// `hl_region_free`. The call takes the time that the kernel needs to zero the memory. Thread-safe.
///
/// Errors: `HL_INVALID`, `HL_NO_SUCH_SIZE`, `HL_SHORT`, `HL_TOO_LARGE`, `HL_LOCK_LIMIT`,
/// `HL_SYSTEM`, `HL_UNREADABLE`. No memory is kept then, and `*region` is unchanged.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hl_region_new(
    options: *const hl_region_options,
    region: Option<&mut MaybeUninit<*mut hl_region>>,
    error: Option<&mut MaybeUninit<hl_error>>,
) -> hl_status {
    answer(error, region, "region", || {
        // SAFETY: the caller's, as the header requires.
        let (options, given) = unsafe { read_options(options) }?;
        let made = Region::with_progress(&options, &mut |done, total| {
            if let Some(progress) = given.progress {
                // SAFETY: the caller's function with the caller's data, in the caller's thread.
                unsafe { progress(done.get(), total.get(), given.progress_data) };
            }
        })?;
        Ok(call::hand_out(hl_region(made)))
    })
}

/// Frees all memory of the region; its addresses become invalid. NULL has no effect. No other
/// thread may use the region during the call.
#[unsafe(no_mangle)]
pub extern "C" fn hl_region_free(region: *mut hl_region) {
    call::free(region);
}

/// Returns the address of the first byte; NULL for NULL. It is valid for `hl_region_length` bytes
/// until `hl_region_free`, and zeroed at creation. It never moves. Do not use mremap(2) or
/// munmap(2) on it. Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn hl_region_address(region: Option<&hl_region>) -> *mut c_void {
    region.map_or(std::ptr::null_mut(), |r| r.0.as_ptr().cast())
}

/// Returns the length in bytes; 0 for NULL. Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn hl_region_length(region: Option<&hl_region>) -> u64 {
    region.map_or(0, |r| r.0.len().get())
}

/// Reads the current extents from the kernel, in address order. On entry `*count` is the capacity
/// of `extents`; on return it is the number of extents. If they do not fit, the call returns
/// `HL_MORE` with `extents` filled. If `*count` is 0, `extents` may be NULL. Thread-safe.
///
/// Errors: `HL_INVALID`, `HL_MORE`, `HL_SYSTEM`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hl_region_extents(
    region: Option<&hl_region>,
    extents: *mut hl_extent,
    count: *mut usize,
    error: Option<&mut MaybeUninit<hl_error>>,
) -> hl_status {
    call_on(error, region, "region", |region| {
        let found = region.0.extents()?;
        let found = found.iter().map(hl_extent::from);
        // SAFETY: the caller's own, as the header requires.
        unsafe { call::fill(extents, count, "extents", found) }
    })
}

/// Sets `*coverage` to the share on pages larger than the base page, from 0.0 to 1.0. Thread-safe.
///
/// Errors: `HL_INVALID`, `HL_SYSTEM`.
#[unsafe(no_mangle)]
pub extern "C" fn hl_region_coverage(
    region: Option<&hl_region>,
    coverage: Option<&mut MaybeUninit<f64>>,
    error: Option<&mut MaybeUninit<hl_error>>,
) -> hl_status {
    answer(error, coverage, "coverage", || {
        let region = call::given(region, "region")?;
        Ok(region.0.coverage()?)
    })
}

/// Sends a shared region over a connected Unix stream socket (unix(7), SCM_RIGHTS). The other
/// process calls `hl_region_receive`. The socket stays open and belongs to the caller. The memory
/// lives until the last process has freed it. Thread-safe.
///
/// Errors: `HL_INVALID`, `HL_NOT_SHARED`, `HL_SYSTEM`.
#[unsafe(no_mangle)]
pub extern "C" fn hl_region_send(
    region: Option<&hl_region>,
    socket: i32,
    error: Option<&mut MaybeUninit<hl_error>>,
) -> hl_status {
    call_on(error, region, "region", |region| {
        let handle = region.0.handle()?;
        Ok(handle.send(&call::socket_of(socket)?)?)
    })
}

/// Waits for a region from `hl_region_send`, and maps it at an address of this process. The message
/// is not trusted: mismatched descriptors are refused. The caller owns `*region` until
/// `hl_region_free`. Set a timeout on the socket (SO_RCVTIMEO) if the other side may not send.
/// Thread-safe.
///
/// Errors: `HL_INVALID`, `HL_BAD_HANDLE`, `HL_SYSTEM`; `*region` is unchanged then.
#[unsafe(no_mangle)]
pub extern "C" fn hl_region_receive(
    socket: i32,
    region: Option<&mut MaybeUninit<*mut hl_region>>,
    error: Option<&mut MaybeUninit<hl_error>>,
) -> hl_status {
    answer(error, region, "region", || {
        let handle = Handle::receive(&call::socket_of(socket)?)?;
        Ok(call::hand_out(hl_region(Region::attach(&handle)?)))
    })
}

/// Prepares a shared region for children that this process starts with exec(3); pass them
/// `hl_handle_line`. The caller owns `*handle` until `hl_handle_free`. Keep it until the children
/// have started. Other processes started meanwhile inherit the descriptors as well. Thread-safe.
///
/// Errors: `HL_INVALID`, `HL_NOT_SHARED`, `HL_SYSTEM`; `*handle` is unchanged then.
#[unsafe(no_mangle)]
pub extern "C" fn hl_region_inheritable(
    region: Option<&hl_region>,
    handle: Option<&mut MaybeUninit<*mut hl_handle>>,
    error: Option<&mut MaybeUninit<hl_error>>,
) -> hl_status {
    answer(error, handle, "handle", || {
        let region = call::given(region, "region")?;
        hl_handle::inheritable(region.0.handle()?)
    })
}

/// Returns a line for an environment variable or an argument of a child; NULL for NULL. The text is
/// valid until `hl_handle_free`. Thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hl_handle_line(handle: Option<&hl_handle>) -> *const c_char {
    handle.map_or(std::ptr::null(), |h| h.line.as_ptr())
}

/// Closes a handle's descriptors in this process. NULL has no effect.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hl_handle_free(handle: *mut hl_handle) {
    call::free(handle);
}

/// Maps, in a child, the region of a line that its parent got from `hl_handle_line`. The inherited
/// descriptors stay open. The caller owns `*region` until `hl_region_free`. Thread-safe.
///
/// Errors: `HL_INVALID`, `HL_BAD_HANDLE`, `HL_SYSTEM`; `*region` is unchanged then.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hl_region_attach_inherited(
    line: *const c_char,
    region: Option<&mut MaybeUninit<*mut hl_region>>,
    error: Option<&mut MaybeUninit<hl_error>>,
) -> hl_status {
    answer(error, region, "region", || {
        // SAFETY: NULL or a text, as the header requires.
        let handle = unsafe { call::inherited(line) }?;
        Ok(call::hand_out(hl_region(Region::attach(&handle)?)))
    })
}
