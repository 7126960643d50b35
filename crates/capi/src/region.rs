//! `hl_region_…`: one contiguous range of memory.
#![allow(unsafe_code)]
//! # Safety
//! An `hl_region` that is not NULL came from this module and was not freed; the header says so to
//! whoever calls. [`Region`] is shared between threads as it is.

use std::ffi::{CString, c_char, c_void};
use std::mem::MaybeUninit;

use super::call::{self, Failure, Options, answer, on};
use super::{hl_error, hl_extent, hl_progress, hl_status};
use hugeleaf::{Bytes, Handle, Region, RegionOptions};

/// One contiguous range of memory, populated, on the best pages available. Any thread may
/// use it, several at a time; only `hl_region_free` needs it alone.
pub struct hl_region(Region);

/// Descriptors on their way to a child, and the line that names them.
pub struct hl_handle {
    line: CString,
    /// Keeps the descriptors open.
    _handle: Handle,
}

impl hl_handle {
    pub(super) fn inheritable(handle: Handle) -> Result<*mut hl_handle, Failure> {
        let line = handle.inheritable()?;
        let line = CString::new(line)
            .map_err(|_| Failure::new(hl_status::HL_PANIC, "a line with a 0 in it", "report it"))?;
        Ok(call::hand_out(hl_handle {
            line,
            _handle: handle,
        }))
    }
}

/// What is asked for. Zero all of it, then set `size`, `length_bytes` and `ladder`; the rest may
/// stay 0. In C: `hl_region_options o = { .size = sizeof o, .length_bytes = …, .ladder = "2M" };`
#[repr(C)]
#[derive(Clone, Copy)]
pub struct hl_region_options {
    /// `sizeof(hl_region_options)`.
    pub size: usize,
    /// How long, in bytes: a multiple of the base page, or of a mandatory ladder's smallest page.
    pub length_bytes: u64,
    /// The page sizes to try, from large to small: "1G,2M". A size alone means, for private memory,
    /// transparent huge pages; for shared memory the pool of that size, then transparent huge
    /// pages. "hugetlb:2M" and "thp:2M" name the kind. The rest comes on base pages, unless it ends
    /// in "!": then all of it is on the named sizes, or the call fails.
    pub ladder: *const c_char,
    /// `HL_PRIVATE` or `HL_SHARED`.
    pub sharing: u32,
    /// Not 0: lock it in memory (mlock(2)). Reserved pages always are, and count for no limit.
    pub locked: u32,
    /// One of `HL_NODES_…`.
    pub node_policy: u32,
    /// How many threads populate it; 0 for one a processor.
    pub threads: u32,
    /// The nodes that `node_policy` speaks of; `node_count` of them.
    pub nodes: *const u32,
    /// How many nodes; 0 for `HL_NODES_INHERIT` and `HL_NODES_LOCAL`.
    pub node_count: usize,
    /// Called with how far it is; NULL for none.
    pub progress: hl_progress,
    /// Goes to `progress` as it is.
    pub progress_data: *mut c_void,
}

// SAFETY: integers, raw pointers and an optional function, in an order that leaves no gaps, the
// size first.
unsafe impl Options for hl_region_options {}

/// Reads the options.
///
/// # Safety
/// `options` is NULL or as the header says.
unsafe fn read_options(
    options: *const hl_region_options,
) -> Result<(RegionOptions, hl_region_options), Failure> {
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

/// Takes, populates and, where asked, locks memory. `*region` is the caller's until
/// `hl_region_free`. Takes as long as the kernel needs to zero the memory; any thread.
///
/// Errors: `HL_INVALID`, `HL_NO_SUCH_SIZE`, `HL_SHORT`, `HL_TOO_LARGE`, `HL_LOCK_LIMIT`,
/// `HL_SYSTEM`, `HL_UNREADABLE`. Nothing is taken then, and `*region` stays as it was.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hl_region_new(
    options: *const hl_region_options,
    region: Option<&mut MaybeUninit<*mut hl_region>>,
    error: Option<&mut MaybeUninit<hl_error>>,
) -> hl_status {
    answer(error, region, "region", || {
        // SAFETY: the caller's, as the header says.
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

/// Gives all of its memory back; its addresses are no longer valid. NULL is nothing to do. No
/// other thread may be using the region.
#[unsafe(no_mangle)]
pub extern "C" fn hl_region_free(region: *mut hl_region) {
    call::free(region);
}

/// Its first byte, zeroed when it was made; NULL of NULL. Valid for `hl_region_length` bytes until
/// `hl_region_free`. It never moves. Do not use mremap(2) or munmap(2) on it. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn hl_region_address(region: Option<&hl_region>) -> *mut c_void {
    region.map_or(std::ptr::null_mut(), |r| r.0.as_ptr().cast())
}

/// Its length in bytes; 0 of NULL. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn hl_region_length(region: Option<&hl_region>) -> u64 {
    region.map_or(0, |r| r.0.len().get())
}

/// What it is on now, in order of address: read back from the kernel at each call. `*count` is the
/// room of `extents` and becomes how many there are. With more than fit the answer is `HL_MORE`, and
/// those that fit are right; with a room of 0 `extents` may be NULL. Any thread.
///
/// Errors: `HL_INVALID`, `HL_MORE`, `HL_SYSTEM`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hl_region_extents(
    region: Option<&hl_region>,
    extents: *mut hl_extent,
    count: *mut usize,
    error: Option<&mut MaybeUninit<hl_error>>,
) -> hl_status {
    on(error, region, "region", |region| {
        let found = region.0.extents()?;
        let found = found.iter().map(hl_extent::from);
        // SAFETY: the caller's own, as the header says.
        unsafe { call::fill(extents, count, "extents", found) }
    })
}

/// How much of it is on pages larger than the base page, from 0.0 to 1.0, in `*coverage`. Any
/// thread.
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

/// Sends a shared region to the process at the other end of a connected Unix stream socket
/// (unix(7), SCM_RIGHTS): that one calls `hl_region_receive`. The socket stays open and the
/// caller's. Its memory lives until the last process has freed it. Any thread.
///
/// Errors: `HL_INVALID`, `HL_NOT_SHARED`, `HL_SYSTEM`.
#[unsafe(no_mangle)]
pub extern "C" fn hl_region_send(
    region: Option<&hl_region>,
    socket: i32,
    error: Option<&mut MaybeUninit<hl_error>>,
) -> hl_status {
    on(error, region, "region", |region| {
        let handle = region.0.handle()?;
        Ok(handle.send(&call::socket_of(socket)?)?)
    })
}

/// Waits for what `hl_region_send` sends, and maps it here, at an address of this process's own.
/// Nothing in it is believed: descriptors that do not hold what they should are refused. `*region`
/// is the caller's until `hl_region_free`. Set a time-out on the socket (SO_RCVTIMEO) where the other
/// side may be silent. Any thread.
///
/// Errors: `HL_INVALID`, `HL_BAD_HANDLE`, `HL_SYSTEM`; `*region` stays as it was.
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

/// Readies a shared region for children that this process starts with exec(3): `hl_handle_line`
/// is what such a child needs. `*handle` is the caller's until `hl_handle_free`, and must live until
/// the children have started; others that start meanwhile inherit the descriptors as well. Any
/// thread.
///
/// Errors: `HL_INVALID`, `HL_NOT_SHARED`, `HL_SYSTEM`; `*handle` stays as it was.
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

/// One line for an environment variable or an argument of a child; NULL of NULL. Lives as long as
/// the handle. Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hl_handle_line(handle: Option<&hl_handle>) -> *const c_char {
    handle.map_or(std::ptr::null(), |h| h.line.as_ptr())
}

/// Closes a handle's descriptors in this process. NULL is nothing to do.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hl_handle_free(handle: *mut hl_handle) {
    call::free(handle);
}

/// In a child: maps the region behind the line that its parent got from `hl_handle_line`. The
/// inherited descriptors stay open. `*region` is the caller's until `hl_region_free`. Any thread.
///
/// Errors: `HL_INVALID`, `HL_BAD_HANDLE`, `HL_SYSTEM`; `*region` stays as it was.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hl_region_attach_inherited(
    line: *const c_char,
    region: Option<&mut MaybeUninit<*mut hl_region>>,
    error: Option<&mut MaybeUninit<hl_error>>,
) -> hl_status {
    answer(error, region, "region", || {
        // SAFETY: NULL or a text, as the header says.
        let handle = unsafe { call::inherited(line) }?;
        Ok(call::hand_out(hl_region(Region::attach(&handle)?)))
    })
}
