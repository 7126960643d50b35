//! `hl_elastic_…`: memory that components take and return.
#![allow(unsafe_code)]
//! # Safety
//! An `hl_elastic` that is not NULL came from this module and was not freed; the header requires
//! that. [`Elastic`] may be shared between threads. Granules and components are plain numbers: an
//! unknown one is an error, not a hazard.

use std::ffi::{c_char, c_void};
use std::mem::MaybeUninit;
use std::sync::Arc;

use super::call::{self, CallFailure, SizedOptions, answer, call_on};
use super::{hl_error, hl_extent, hl_handle, hl_kind, hl_status};
use hugeleaf::{
    Bytes, Component, ComponentInfo, Elastic, ElasticError, ElasticInfo, ElasticOptions, Granule,
    Handle, MemoryError, PageSize, PageSizeTotal, Recovered,
};

/// Size of a component's name in bytes, with the terminating 0.
pub const HL_NAME: usize = 48;
/// Maximum number of page sizes per component; more than any ladder has.
pub const HL_PAGE_SIZES: usize = 16;

/// Number of a component: a buffer pool, a lock list, a sort heap. The same in all processes.
pub type hl_component = u32;
/// Number of a granule from taking it to returning or transferring it. The same in all processes,
/// and never reused.
pub type hl_granule = u64;

/// An address range from which components take and return granules of whole huge pages. Any number
/// of threads may use it at a time; only `hl_elastic_free` requires exclusive use.
///
/// A granule belongs to a component and to the process that took it. After that process has ended
/// for any reason, `hl_elastic_recover` in any other process returns the granule.
pub struct hl_elastic(pub(super) Arc<Elastic>);

impl hl_elastic {
    fn new(elastic: Elastic) -> *mut hl_elastic {
        call::hand_out(hl_elastic(Arc::new(elastic)))
    }
}

/// Options of `hl_elastic_new`. Zero all of it; set at least `size`, `max_bytes` and `ladder`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct hl_elastic_options {
    /// `sizeof(hl_elastic_options)`.
    pub size: usize,
    /// Maximum size in bytes; addresses are reserved for all of it. A multiple of the granule.
    pub max_bytes: u64,
    /// Initial limit of the held memory, in bytes; 0 for `max_bytes`.
    pub target_bytes: u64,
    /// Unit of taking and returning, in bytes: a multiple of the ladder's first size; 0 for that.
    pub granule_bytes: u64,
    /// Page sizes to try for each granule; as in `hl_region_options`.
    pub ladder: *const c_char,
    /// `HL_PRIVATE` or `HL_SHARED`.
    pub sharing: u32,
    /// One of `HL_NODES_…`.
    pub node_policy: u32,
    /// Array of `node_count` nodes for `node_policy`.
    pub nodes: *const u32,
    /// Number of nodes; 0 for `HL_NODES_INHERIT` and `HL_NODES_LOCAL`.
    pub node_count: usize,
}

// SAFETY: integers and raw pointers, in an order that leaves no gaps, the size first.
unsafe impl SizedOptions for hl_elastic_options {}

/// Memory on pages of one size and kind.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct hl_share {
    /// Size of the pages in bytes; 0 ends the list.
    pub page_bytes: u64,
    /// Memory on these pages, in bytes.
    pub bytes: u64,
    /// Kind of the pages.
    pub kind: hl_kind,
    /// Unused; 0.
    pub reserved: u32,
}

const NO_SHARE: hl_share = hl_share {
    page_bytes: 0,
    bytes: 0,
    kind: hl_kind::HL_ANY,
    reserved: 0,
};

/// A line of the table of components.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct hl_component_info {
    /// Name; UTF-8, ends in 0.
    pub name: [c_char; HL_NAME],
    /// Number of the component.
    pub component: hl_component,
    /// 1 if it can take and return at any time; 0 if its size is fixed.
    pub resizable: u32,
    /// Memory that it holds, in bytes.
    pub bytes: u64,
    /// Memory by page size, largest first. A `page_bytes` of 0 ends the list unless it is full.
    pub by_page_size: [hl_share; HL_PAGE_SIZES],
}

impl From<&PageSizeTotal> for hl_share {
    fn from(share: &PageSizeTotal) -> hl_share {
        hl_share {
            page_bytes: share.page.bytes().get(),
            bytes: share.bytes.get(),
            kind: share.kind.into(),
            reserved: 0,
        }
    }
}

impl From<&ComponentInfo> for hl_component_info {
    fn from(info: &ComponentInfo) -> hl_component_info {
        let mut by_page_size = [NO_SHARE; HL_PAGE_SIZES];
        for (to, share) in by_page_size.iter_mut().zip(&info.by_page) {
            *to = share.into();
        }
        hl_component_info {
            name: call::text(&info.name),
            component: info.component.to_number(),
            resizable: info.resizable.into(),
            bytes: info.bytes.get(),
            by_page_size,
        }
    }
}

/// Totals of an elastic.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct hl_elastic_totals {
    /// Unit of taking and returning, in bytes.
    pub granule_bytes: u64,
    /// Maximum size, in bytes.
    pub max_bytes: u64,
    /// Limit of the held memory, in bytes.
    pub target_bytes: u64,
    /// Memory held, in bytes, including granules being taken or returned.
    pub held_bytes: u64,
    /// Memory that may still be taken, in bytes.
    pub free_bytes: u64,
    /// Memory without an owner that the system refused to accept, in bytes. `hl_elastic_recover`
    /// tries again.
    pub unclean_bytes: u64,
    /// Number of processes that have it attached, or ended without freeing it.
    pub processes: u64,
}

impl From<&ElasticInfo> for hl_elastic_totals {
    fn from(info: &ElasticInfo) -> hl_elastic_totals {
        hl_elastic_totals {
            granule_bytes: info.granule.bytes().get(),
            max_bytes: info.max.get(),
            target_bytes: info.target.get(),
            held_bytes: info.held.get(),
            free_bytes: info.free.get(),
            unclean_bytes: info.unclean.get(),
            processes: info.processes as u64,
        }
    }
}

/// Result of `hl_elastic_recover`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct hl_recovered {
    /// Number of processes that had ended without returning their memory.
    pub processes: u64,
    /// Memory that they held, or were taking or returning, in bytes.
    pub bytes: u64,
    /// Other memory without an owner, in bytes: memory that the system had refused before, and
    /// pages that were accessed after they were returned.
    pub cleaned_bytes: u64,
}

impl From<Recovered> for hl_recovered {
    fn from(recovered: Recovered) -> hl_recovered {
        hl_recovered {
            processes: recovered.processes as u64,
            bytes: recovered.bytes.get(),
            cleaned_bytes: recovered.cleaned.get(),
        }
    }
}

impl From<ElasticError> for CallFailure {
    fn from(error: ElasticError) -> CallFailure {
        use ElasticError as E;
        use hl_status::*;
        let status = match &error {
            E::Memory(memory) => return CallFailure::from(MemoryError::clone(memory)),
            E::NotHeld { .. }
            | E::Stale { .. }
            | E::DuplicateGranule { .. }
            | E::HeldByOther { .. } => HL_NOT_HELD,
            E::OverTarget { .. } => HL_OVER_TARGET,
            E::OverMemory { .. } => HL_TOO_LARGE,
            E::Full { .. } => HL_FULL,
            E::NoSuchComponent(_) => HL_NO_COMPONENT,
            E::TooManyComponents { .. } | E::TooManyProcesses { .. } => HL_TOO_MANY,
            E::OverMax { .. }
            | E::NameTooLong { .. }
            | E::NoName
            | E::NameTaken { .. }
            | E::TooManyGranules { .. } => HL_INVALID,
            E::OtherKind { .. } | E::NotResizable { .. } => HL_FIXED_SIZE,
            E::Forked { .. } => HL_FORKED,
            E::OtherNamespace => HL_BAD_HANDLE,
            E::LockTimeout { .. } => HL_STUCK,
            E::Damaged(_) => HL_DAMAGED,
            E::ReturnPending { .. } => HL_NOT_YET_BACK,
            // A newer error than this list; its text describes it.
            _ => HL_SYSTEM,
        };
        let errno = match &error {
            E::ReturnPending { error, .. } => error.errno.raw_os_error(),
            _ => 0,
        };
        CallFailure {
            errno,
            ..CallFailure::new(status, error.to_string(), error.next())
        }
    }
}

/// Reserves addresses; takes no memory for granules yet. The caller owns `*elastic` until
/// `hl_elastic_free`. Thread-safe.
///
/// Errors: `HL_INVALID`, `HL_NO_SUCH_SIZE`, `HL_TOO_LARGE`, `HL_SYSTEM`, `HL_UNREADABLE`;
/// `*elastic` is unchanged then.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hl_elastic_new(
    options: *const hl_elastic_options,
    elastic: Option<&mut MaybeUninit<*mut hl_elastic>>,
    error: Option<&mut MaybeUninit<hl_error>>,
) -> hl_status {
    answer(error, elastic, "elastic", || {
        // SAFETY: NULL or options, as the header requires.
        let options = unsafe { read_options(options) }?;
        Ok(hl_elastic::new(Elastic::new(&options)?))
    })
}

/// Reads the options.
///
/// # Safety
/// `options` is NULL or as the header requires.
unsafe fn read_options(options: *const hl_elastic_options) -> Result<ElasticOptions, CallFailure> {
    // SAFETY: by this function's contract, as for the two below.
    let given = unsafe { call::options_of(options) }?;
    // SAFETY: as above.
    let ladder = unsafe { call::ladder_of(given.ladder) }?;
    // SAFETY: as above.
    let nodes = unsafe { super::nodes_of(given.node_policy, given.nodes, given.node_count) }?;
    let granule = match given.granule_bytes {
        0 => None,
        bytes => Some(PageSize::new(Bytes(bytes)).map_err(|_| {
            CallFailure::invalid(
                format!("granule_bytes is {bytes}"),
                "set it to a power of two, or to 0 for the ladder's first size",
            )
        })?),
    };
    let mut read = ElasticOptions::new(Bytes(given.max_bytes), ladder)
        .sharing(super::sharing_of(given.sharing)?)
        .nodes(nodes);
    read.target = (given.target_bytes > 0).then_some(Bytes(given.target_bytes));
    read.granule = granule;
    Ok(read)
}

/// Gives back the granules that this process took, and unmaps the addresses. Other processes keep
/// theirs. NULL has no effect. No other thread may use the elastic during the call.
#[unsafe(no_mangle)]
pub extern "C" fn hl_elastic_free(elastic: *mut hl_elastic) {
    call::free(elastic);
}

/// Returns the unit of taking and returning, in bytes; 0 for NULL. Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn hl_elastic_granule(elastic: Option<&hl_elastic>) -> u64 {
    elastic.map_or(0, |e| e.0.granule().bytes().get())
}

/// Returns the maximum size in bytes; 0 for NULL. Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn hl_elastic_max(elastic: Option<&hl_elastic>) -> u64 {
    elastic.map_or(0, |e| e.0.max().get())
}

/// Returns the limit of the held memory, in bytes; 0 for NULL. Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn hl_elastic_target(elastic: Option<&hl_elastic>) -> u64 {
    elastic.map_or(0, |e| e.0.target().get())
}

/// Returns the memory held by all components, in bytes, including granules being taken or returned;
/// 0 for NULL. Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn hl_elastic_held(elastic: Option<&hl_elastic>) -> u64 {
    elastic.map_or(0, |e| e.0.held().get())
}

/// Sets the target, in bytes, for all processes. No memory is taken away: `*above` (may be NULL)
/// becomes the memory held above the target, which components must return. Until they have, nothing
/// more can be taken. Thread-safe.
///
/// Errors: `HL_INVALID` above the maximum size; `HL_FORKED`, `HL_STUCK`.
#[unsafe(no_mangle)]
pub extern "C" fn hl_elastic_set_target(
    elastic: Option<&hl_elastic>,
    target_bytes: u64,
    above: Option<&mut MaybeUninit<u64>>,
    error: Option<&mut MaybeUninit<hl_error>>,
) -> hl_status {
    call_on(error, elastic, "elastic", |elastic| {
        let more = elastic.0.set_target(Bytes(target_bytes))?;
        above.map(|to| to.write(more.get()));
        Ok(())
    })
}

/// Finds the component of that name (1 to 47 bytes), or creates it. If `resizable` is 0, it takes
/// granules in one call and keeps them until the process that took them ends. Thread-safe.
///
/// Errors: `HL_INVALID`, `HL_TOO_MANY`, `HL_FIXED_SIZE` if it exists with the other value of
/// `resizable`; `HL_FORKED`, `HL_STUCK`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hl_elastic_component(
    elastic: Option<&hl_elastic>,
    name: *const c_char,
    resizable: u32,
    component: Option<&mut MaybeUninit<hl_component>>,
    error: Option<&mut MaybeUninit<hl_error>>,
) -> hl_status {
    answer(error, component, "component", || {
        let elastic = call::given(elastic, "elastic")?;
        // SAFETY: NULL or a text, as the header requires.
        let name = unsafe { call::text_of(name, "name") }?;
        Ok(elastic.0.component(name, resizable != 0)?.to_number())
    })
}

/// Takes `count` granules into `granules`, or none. They are populated, zeroed and within all
/// limits, so a later access never raises SIGBUS. They are adjacent if enough adjacent ones are
/// free, and always in address order. Each is on the first rung of the ladder that has the pages.
/// Thread-safe.
///
/// Errors: `HL_OVER_TARGET`, `HL_FULL`, `HL_SHORT` on a mandatory ladder, `HL_TOO_LARGE` if memory
/// is short, `HL_NO_COMPONENT`, `HL_FIXED_SIZE`, `HL_INVALID`, `HL_SYSTEM`, `HL_FORKED`,
/// `HL_STUCK`. None is taken then.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hl_elastic_take(
    elastic: Option<&hl_elastic>,
    component: hl_component,
    granules: *mut hl_granule,
    count: usize,
    error: Option<&mut MaybeUninit<hl_error>>,
) -> hl_status {
    call_on(error, elastic, "elastic", |elastic| {
        if count > 0 {
            call::check_out(granules, "granules")?;
        }
        let component = Component::from_number(component);
        let taken = elastic.0.take_many(component, count)?;
        // SAFETY: the caller's own and of that length, as the header requires.
        unsafe { write_names(granules, count, &taken) };
        Ok(())
    })
}

/// Writes granule numbers to the caller's array.
///
/// # Safety
/// `to` is the caller's own and has `count` elements, or the count is 0.
unsafe fn write_names(to: *mut hl_granule, count: usize, names: &[Granule]) {
    for (at, granule) in names.iter().take(count).enumerate() {
        // SAFETY: less than `count`, by this function's contract.
        unsafe { to.add(at).write(granule.to_number()) };
    }
}

/// Reads granule numbers from the caller's array.
///
/// # Safety
/// `from` is NULL, or the caller's own and of that length.
unsafe fn read_names(
    elastic: &hl_elastic,
    from: *const hl_granule,
    count: usize,
) -> Result<Vec<Granule>, CallFailure> {
    let all = elastic.0.max().get() / elastic.0.granule().bytes().get();
    let all = usize::try_from(all).unwrap_or(usize::MAX);
    // SAFETY: by this function's contract.
    let numbers = unsafe { call::array(from, count, all, "granules") }?;
    Ok(numbers.iter().map(|n| Granule::from_number(*n)).collect())
}

/// Gives back `count` granules of a component, all or none. Their memory goes to the pool or the
/// system at once, for all processes. No process may access them any more. Thread-safe.
///
/// Errors: `HL_NOT_HELD` if one is not held, belongs to another component, or is listed twice;
/// `HL_NO_COMPONENT`, `HL_FIXED_SIZE`, `HL_INVALID`, `HL_FORKED`, `HL_STUCK`: none was returned.
/// `HL_NOT_YET_BACK`: none is held any more, but the system refused some of the memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hl_elastic_give_back(
    elastic: Option<&hl_elastic>,
    component: hl_component,
    granules: *const hl_granule,
    count: usize,
    error: Option<&mut MaybeUninit<hl_error>>,
) -> hl_status {
    call_on(error, elastic, "elastic", |elastic| {
        // SAFETY: the caller's own and of that length, as the header requires.
        let names = unsafe { read_names(elastic, granules, count) }?;
        let component = Component::from_number(component);
        Ok(elastic.0.give_back(component, &names)?)
    })
}

/// Transfers `count` granules with their contents from one component to another, all or none. No
/// memory moves. The calling process becomes their owner, and their new numbers replace the old
/// ones in `granules`. With the same component twice, it takes over granules of another process.
/// Thread-safe.
///
/// Errors: as `hl_elastic_give_back`, for either component. Nothing has changed then.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hl_elastic_transfer(
    elastic: Option<&hl_elastic>,
    from: hl_component,
    to: hl_component,
    granules: *mut hl_granule,
    count: usize,
    error: Option<&mut MaybeUninit<hl_error>>,
) -> hl_status {
    call_on(error, elastic, "elastic", |elastic| {
        // SAFETY: the caller's own and of that length, as the header requires.
        let names = unsafe { read_names(elastic, granules, count) }?;
        let (from, to) = (Component::from_number(from), Component::from_number(to));
        let renamed = elastic.0.transfer(from, to, &names)?;
        // SAFETY: as above.
        unsafe { write_names(granules, count, &renamed) };
        Ok(())
    })
}

/// Sets `*address` to the address of a granule in this process, valid for `hl_elastic_granule`
/// bytes until the granule is returned or this elastic is freed. Thread-safe.
///
/// Errors: `HL_NOT_HELD`, `HL_INVALID`, `HL_SYSTEM`, `HL_FORKED`, `HL_STUCK`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hl_elastic_address(
    elastic: Option<&hl_elastic>,
    granule: hl_granule,
    address: Option<&mut MaybeUninit<*mut c_void>>,
    error: Option<&mut MaybeUninit<hl_error>>,
) -> hl_status {
    answer(error, address, "address", || {
        let elastic = call::given(elastic, "elastic")?;
        Ok(elastic.0.address(Granule::from_number(granule))?.cast())
    })
}

/// Reads the current pages of all held granules of all components, in address order. `extents` and
/// `*count` are as in `hl_region_extents`. Thread-safe.
///
/// Errors: `HL_INVALID`, `HL_MORE`, `HL_SYSTEM`, `HL_FORKED`, `HL_STUCK`, `HL_DAMAGED`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hl_elastic_extents(
    elastic: Option<&hl_elastic>,
    extents: *mut hl_extent,
    count: *mut usize,
    error: Option<&mut MaybeUninit<hl_error>>,
) -> hl_status {
    call_on(error, elastic, "elastic", |elastic| {
        let found = elastic.0.extents()?;
        let found = found.iter().map(hl_extent::from);
        // SAFETY: the caller's own, as the header requires.
        unsafe { call::fill(extents, count, "extents", found) }
    })
}

/// Writes the table of components, as Oracle shows it in v$sgainfo: the totals to `*totals` (may be
/// NULL), a line per component to `components`, in order of creation. `*count` is the capacity of
/// `components` and becomes the number of components. If they do not fit, the call returns
/// `HL_MORE`. Thread-safe.
///
/// Errors: `HL_INVALID`, `HL_MORE`, `HL_SYSTEM`, `HL_FORKED`, `HL_STUCK`, `HL_DAMAGED`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hl_elastic_info(
    elastic: Option<&hl_elastic>,
    totals: Option<&mut MaybeUninit<hl_elastic_totals>>,
    components: *mut hl_component_info,
    count: *mut usize,
    error: Option<&mut MaybeUninit<hl_error>>,
) -> hl_status {
    call_on(error, elastic, "elastic", |elastic| {
        call::check_out(count, "count")?;
        let table = elastic.0.info()?;
        totals.map(|to| to.write((&table).into()));
        let lines = table.components.iter().map(hl_component_info::from);
        // SAFETY: the caller's own, as the header requires.
        unsafe { call::fill(components, count, "components", lines) }
    })
}

/// Frees the granules of processes that have ended for any reason; `*recovered` (may be NULL)
/// becomes the result. Call it after a worker has died, or when memory is short. Thread-safe.
///
/// Errors: `HL_NOT_YET_BACK`, `HL_FORKED`, `HL_STUCK`, `HL_DAMAGED`.
#[unsafe(no_mangle)]
pub extern "C" fn hl_elastic_recover(
    elastic: Option<&hl_elastic>,
    recovered: Option<&mut MaybeUninit<hl_recovered>>,
    error: Option<&mut MaybeUninit<hl_error>>,
) -> hl_status {
    call_on(error, elastic, "elastic", |elastic| {
        let done = hl_recovered::from(elastic.0.recover()?);
        recovered.map(|to| to.write(done));
        Ok(())
    })
}

/// Sends a shared elastic over a connected Unix stream socket, as `hl_region_send`. Thread-safe.
///
/// Errors: `HL_INVALID`, `HL_NOT_SHARED`, `HL_SYSTEM`, `HL_FORKED`.
#[unsafe(no_mangle)]
pub extern "C" fn hl_elastic_send(
    elastic: Option<&hl_elastic>,
    socket: i32,
    error: Option<&mut MaybeUninit<hl_error>>,
) -> hl_status {
    call_on(error, elastic, "elastic", |elastic| {
        let handle = elastic.0.handle()?;
        Ok(handle.send(&call::socket_of(socket)?)?)
    })
}

/// Waits for an elastic from `hl_elastic_send`, and attaches it, as `hl_region_receive`. The caller
/// owns `*elastic` until `hl_elastic_free`. Thread-safe.
///
/// Errors: `HL_INVALID`, `HL_BAD_HANDLE`, `HL_TOO_MANY`, `HL_DAMAGED`, `HL_SYSTEM`; `*elastic` is
/// unchanged then.
#[unsafe(no_mangle)]
pub extern "C" fn hl_elastic_receive(
    socket: i32,
    elastic: Option<&mut MaybeUninit<*mut hl_elastic>>,
    error: Option<&mut MaybeUninit<hl_error>>,
) -> hl_status {
    answer(error, elastic, "elastic", || {
        let handle = Handle::receive(&call::socket_of(socket)?)?;
        Ok(hl_elastic::new(Elastic::attach(&handle)?))
    })
}

/// Prepares a shared elastic for children that this process starts, as `hl_region_inheritable`.
/// Thread-safe.
///
/// Errors: `HL_INVALID`, `HL_NOT_SHARED`, `HL_SYSTEM`, `HL_FORKED`; `*handle` is unchanged then.
#[unsafe(no_mangle)]
pub extern "C" fn hl_elastic_inheritable(
    elastic: Option<&hl_elastic>,
    handle: Option<&mut MaybeUninit<*mut hl_handle>>,
    error: Option<&mut MaybeUninit<hl_error>>,
) -> hl_status {
    answer(error, handle, "handle", || {
        let elastic = call::given(elastic, "elastic")?;
        hl_handle::inheritable(elastic.0.handle()?)
    })
}

/// Attaches, in a child, the elastic of a line that its parent got from `hl_handle_line`, as
/// `hl_region_attach_inherited`. Thread-safe.
///
/// Errors: `HL_INVALID`, `HL_BAD_HANDLE`, `HL_TOO_MANY`, `HL_DAMAGED`, `HL_SYSTEM`; `*elastic` is
/// unchanged then.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hl_elastic_attach_inherited(
    line: *const c_char,
    elastic: Option<&mut MaybeUninit<*mut hl_elastic>>,
    error: Option<&mut MaybeUninit<hl_error>>,
) -> hl_status {
    answer(error, elastic, "elastic", || {
        // SAFETY: NULL or a text, as the header requires.
        let handle = unsafe { call::inherited(line) }?;
        Ok(hl_elastic::new(Elastic::attach(&handle)?))
    })
}
