//! `hl_elastic_…`: memory that components take and return.
#![allow(unsafe_code)]
//! # Safety
//! An `hl_elastic` that is not NULL came from this module and was not freed; the header says so to
//! whoever calls. [`Elastic`] is shared between threads as it is. Granules and components are plain
//! numbers: one that stands for nothing is an error, not a hazard.

use std::ffi::{c_char, c_void};
use std::mem::MaybeUninit;
use std::sync::Arc;

use super::call::{self, Failure, Options, answer, on};
use super::{hl_error, hl_extent, hl_handle, hl_kind, hl_status};
use hugeleaf::{
    Bytes, Component, ComponentInfo, Elastic, ElasticError, ElasticOptions, Granule, Handle, Info,
    MemoryError, PageSize, Recovered, Share,
};

/// The room for a component's name, in bytes, with the 0 at its end.
pub const HL_NAME: usize = 48;
/// More page sizes than a ladder comes to.
pub const HL_PAGE_SIZES: usize = 16;

/// A component: a buffer pool, a lock list, a sort heap. The same number in all processes.
pub type hl_component = u32;
/// A granule from when it is taken until it is returned or transferred. The same number in all
/// processes, and never used again.
pub type hl_granule = u64;

/// A range of addresses from which components take granules, whole large pages, and to which they
/// return them. Any thread may use it, several at a time; only `hl_elastic_free` needs it alone.
///
/// A granule belongs to a component, and to the process that took it: when that one has ended,
/// however that happened, `hl_elastic_recover` in any other returns it.
pub struct hl_elastic(Arc<Elastic>);

impl hl_elastic {
    fn new(elastic: Elastic) -> *mut hl_elastic {
        call::hand_out(hl_elastic(Arc::new(elastic)))
    }

    pub(super) fn share(&self) -> Arc<Elastic> {
        Arc::clone(&self.0)
    }
}

/// What is asked for. Zero all of it, then set `size`, `max_bytes` and `ladder`; the rest may stay 0.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct hl_elastic_options {
    /// `sizeof(hl_elastic_options)`.
    pub size: usize,
    /// The most there can ever be, in bytes: so many addresses are set aside. A multiple of the
    /// granule.
    pub max_bytes: u64,
    /// How much may be held at a time at first, in bytes; 0 for all of it.
    pub target_bytes: u64,
    /// What is taken and returned as one, in bytes: a multiple of the ladder's first size; 0 for
    /// just that.
    pub granule_bytes: u64,
    /// The page sizes to try for each granule; as in `hl_region_options`.
    pub ladder: *const c_char,
    /// `HL_PRIVATE` or `HL_SHARED`.
    pub sharing: u32,
    /// One of `HL_NODES_…`.
    pub node_policy: u32,
    /// The nodes that `node_policy` speaks of; `node_count` of them.
    pub nodes: *const u32,
    /// How many nodes; 0 for `HL_NODES_INHERIT` and `HL_NODES_LOCAL`.
    pub node_count: usize,
}

// SAFETY: integers and raw pointers, in an order that leaves no gaps, the size first.
unsafe impl Options for hl_elastic_options {}

/// How much is on pages of one size and kind.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct hl_share {
    /// The size of the pages, in bytes; 0 ends the list.
    pub page_bytes: u64,
    /// How much is on them, in bytes.
    pub bytes: u64,
    /// Where they come from.
    pub kind: hl_kind,
    /// Not used; 0.
    pub reserved: u32,
}

const NO_SHARE: hl_share = hl_share {
    page_bytes: 0,
    bytes: 0,
    kind: hl_kind::HL_ANY,
    reserved: 0,
};

/// One line of the table of components.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct hl_component_info {
    /// Its name; UTF-8, ends in 0.
    pub name: [c_char; HL_NAME],
    /// Its number.
    pub component: hl_component,
    /// 1 where it can take and return at any time; 0 where its size is fixed.
    pub resizable: u32,
    /// How much it holds.
    pub bytes: u64,
    /// On what pages, largest first; a `page_bytes` of 0 ends the list where it is not full.
    pub by_page_size: [hl_share; HL_PAGE_SIZES],
}

impl From<&Share> for hl_share {
    fn from(share: &Share) -> hl_share {
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

/// What stands around the table of components.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct hl_elastic_totals {
    /// What is taken and returned as one.
    pub granule_bytes: u64,
    /// The most there can ever be.
    pub max_bytes: u64,
    /// How much may be held at a time.
    pub target_bytes: u64,
    /// How much is, with what is being taken and returned just now.
    pub held_bytes: u64,
    /// How much more may be taken.
    pub free_bytes: u64,
    /// Nobody's, and not returned yet, because the system refused: `hl_elastic_recover` tries
    /// again.
    pub unclean_bytes: u64,
    /// How many processes have it attached, or ended without freeing it.
    pub processes: u64,
}

impl From<&Info> for hl_elastic_totals {
    fn from(info: &Info) -> hl_elastic_totals {
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

/// What came back.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct hl_recovered {
    /// How many processes had ended without returning.
    pub processes: u64,
    /// What they held, or were taking or returning.
    pub bytes: u64,
    /// Memory that nobody held: what the system had refused before, and what was touched after it
    /// was returned.
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

impl From<ElasticError> for Failure {
    fn from(error: ElasticError) -> Failure {
        use ElasticError as E;
        use hl_status::*;
        let status = match &error {
            E::Memory(memory) => return Failure::from(MemoryError::clone(memory)),
            E::NotHeld { .. } | E::Stale { .. } | E::Twice { .. } | E::NotItsOwn { .. } => {
                HL_NOT_HELD
            }
            E::OverTarget { .. } => HL_OVER_TARGET,
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
            E::Stuck { .. } => HL_STUCK,
            E::Damaged(_) => HL_DAMAGED,
            E::NotYetBack { .. } => HL_NOT_YET_BACK,
            // Newer than this list: its text says what it is.
            _ => HL_SYSTEM,
        };
        let errno = match &error {
            E::NotYetBack { error, .. } => error.errno.raw_os_error(),
            _ => 0,
        };
        Failure {
            errno,
            ..Failure::new(status, error.to_string(), error.next())
        }
    }
}

/// Sets addresses aside; takes no memory for granules yet. `*elastic` is the caller's until
/// `hl_elastic_free`. Any thread.
///
/// Errors: `HL_INVALID`, `HL_NO_SUCH_SIZE`, `HL_TOO_LARGE`, `HL_SYSTEM`, `HL_UNREADABLE`; `*elastic`
/// stays as it was.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hl_elastic_new(
    options: *const hl_elastic_options,
    elastic: Option<&mut MaybeUninit<*mut hl_elastic>>,
    error: Option<&mut MaybeUninit<hl_error>>,
) -> hl_status {
    answer(error, elastic, "elastic", || {
        // SAFETY: NULL or options, as the header says.
        let options = unsafe { read_options(options) }?;
        Ok(hl_elastic::new(Elastic::new(&options)?))
    })
}

/// Reads the options.
///
/// # Safety
/// `options` is NULL or as the header says.
unsafe fn read_options(options: *const hl_elastic_options) -> Result<ElasticOptions, Failure> {
    // SAFETY: by this function's contract, as for the two below.
    let given = unsafe { call::options_of(options) }?;
    // SAFETY: as above.
    let ladder = unsafe { call::ladder_of(given.ladder) }?;
    // SAFETY: as above.
    let nodes = unsafe { super::nodes_of(given.node_policy, given.nodes, given.node_count) }?;
    let granule = match given.granule_bytes {
        0 => None,
        bytes => Some(PageSize::new(Bytes(bytes)).map_err(|_| {
            Failure::invalid(
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

/// Returns what this process took, and its addresses. Other processes keep what they took. NULL
/// is nothing to do. No other thread may be using the elastic.
#[unsafe(no_mangle)]
pub extern "C" fn hl_elastic_free(elastic: *mut hl_elastic) {
    call::free(elastic);
}

/// What is taken and returned as one, in bytes; 0 of NULL. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn hl_elastic_granule(elastic: Option<&hl_elastic>) -> u64 {
    elastic.map_or(0, |e| e.0.granule().bytes().get())
}

/// The most there can ever be, in bytes; 0 of NULL. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn hl_elastic_max(elastic: Option<&hl_elastic>) -> u64 {
    elastic.map_or(0, |e| e.0.max().get())
}

/// How much may be held at a time, in bytes; 0 of NULL. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn hl_elastic_target(elastic: Option<&hl_elastic>) -> u64 {
    elastic.map_or(0, |e| e.0.target().get())
}

/// How much is held by all components, in bytes, with what is being taken and returned just now;
/// 0 of NULL. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn hl_elastic_held(elastic: Option<&hl_elastic>) -> u64 {
    elastic.map_or(0, |e| e.0.held().get())
}

/// Raises or lowers the target, in bytes, for all processes. Lowering takes nothing away: `*above`
/// (may be NULL) is how much is held above it, which the components are to return; until they
/// have, nothing more can be taken. Any thread.
///
/// Errors: `HL_INVALID` for more than the maximum; `HL_FORKED`, `HL_STUCK`.
#[unsafe(no_mangle)]
pub extern "C" fn hl_elastic_set_target(
    elastic: Option<&hl_elastic>,
    target_bytes: u64,
    above: Option<&mut MaybeUninit<u64>>,
    error: Option<&mut MaybeUninit<hl_error>>,
) -> hl_status {
    on(error, elastic, "elastic", |elastic| {
        let more = elastic.0.set_target(Bytes(target_bytes))?;
        above.map(|to| to.write(more.get()));
        Ok(())
    })
}

/// Finds the component of that name (1 to 47 bytes), or makes it. One that is not `resizable` (0)
/// takes granules in one call, and keeps them until the process that took them ends. Any thread.
///
/// Errors: `HL_INVALID`, `HL_TOO_MANY`, `HL_FIXED_SIZE` where it is there and of the other kind;
/// `HL_FORKED`, `HL_STUCK`.
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
        // SAFETY: NULL or a text, as the header says.
        let name = unsafe { call::text_of(name, "name") }?;
        Ok(elastic.0.component(name, resizable != 0)?.to_number())
    })
}

/// Takes `count` granules into `granules`, or none: populated, zeroed, within all limits, and so
/// never a SIGBUS later. They are neighbours where there are so many, and in order of address in any case.
/// Each is on the first rung of the ladder that has the pages. Any thread.
///
/// Errors: `HL_OVER_TARGET`, `HL_FULL`, `HL_SHORT` on a mandatory ladder, `HL_TOO_LARGE` where memory is
/// short, `HL_NO_COMPONENT`, `HL_FIXED_SIZE`, `HL_INVALID`, `HL_SYSTEM`, `HL_FORKED`, `HL_STUCK`. None is
/// taken then.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hl_elastic_take(
    elastic: Option<&hl_elastic>,
    component: hl_component,
    granules: *mut hl_granule,
    count: usize,
    error: Option<&mut MaybeUninit<hl_error>>,
) -> hl_status {
    on(error, elastic, "elastic", |elastic| {
        if count > 0 {
            call::check_out(granules, "granules")?;
        }
        let component = Component::from_number(component);
        let taken = elastic.0.take_many(component, count)?;
        // SAFETY: the caller's own and of that length, as the header says.
        unsafe { write_names(granules, count, &taken) };
        Ok(())
    })
}

/// Writes names into the caller's array.
///
/// # Safety
/// `to` is the caller's own and of that length, or the count is 0.
unsafe fn write_names(to: *mut hl_granule, count: usize, names: &[Granule]) {
    for (at, granule) in names.iter().take(count).enumerate() {
        // SAFETY: less than `count`, by this function's contract.
        unsafe { to.add(at).write(granule.to_number()) };
    }
}

/// Reads names from the caller's array.
///
/// # Safety
/// `from` is NULL, or the caller's own and of that length.
unsafe fn read_names(
    elastic: &hl_elastic,
    from: *const hl_granule,
    count: usize,
) -> Result<Vec<Granule>, Failure> {
    let all = elastic.0.max().get() / elastic.0.granule().bytes().get();
    let all = usize::try_from(all).unwrap_or(usize::MAX);
    // SAFETY: by this function's contract.
    let numbers = unsafe { call::array(from, count, all, "granules") }?;
    Ok(numbers.iter().map(|n| Granule::from_number(*n)).collect())
}

/// Gives `count` granules of a component back, all or none: their memory goes to the pool or the
/// system at once, in all processes. Nobody may touch them any more. Any thread.
///
/// Errors: `HL_NOT_HELD` for one that is not held, not by this component, or stands in the list twice;
/// `HL_NO_COMPONENT`, `HL_FIXED_SIZE`, `HL_INVALID`, `HL_FORKED`, `HL_STUCK`: none was returned then.
/// `HL_NOT_YET_BACK`: none is held any more, but the system refused some of the memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hl_elastic_give_back(
    elastic: Option<&hl_elastic>,
    component: hl_component,
    granules: *const hl_granule,
    count: usize,
    error: Option<&mut MaybeUninit<hl_error>>,
) -> hl_status {
    on(error, elastic, "elastic", |elastic| {
        // SAFETY: the caller's own and of that length, as the header says.
        let names = unsafe { read_names(elastic, granules, count) }?;
        let component = Component::from_number(component);
        Ok(elastic.0.give_back(component, &names)?)
    })
}

/// Hands `count` granules from one component to another, all or none, with what they hold: no
/// memory moves. They are this process's from then on and have new names, which replace the old
/// ones in `granules`. To the same component it makes another process's granules this one's. Any
/// thread.
///
/// Errors: as `hl_elastic_give_back`, for either component; nothing has changed then.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hl_elastic_transfer(
    elastic: Option<&hl_elastic>,
    from: hl_component,
    to: hl_component,
    granules: *mut hl_granule,
    count: usize,
    error: Option<&mut MaybeUninit<hl_error>>,
) -> hl_status {
    on(error, elastic, "elastic", |elastic| {
        // SAFETY: the caller's own and of that length, as the header says.
        let names = unsafe { read_names(elastic, granules, count) }?;
        let (from, to) = (Component::from_number(from), Component::from_number(to));
        let renamed = elastic.0.transfer(from, to, &names)?;
        // SAFETY: as above.
        unsafe { write_names(granules, count, &renamed) };
        Ok(())
    })
}

/// Where a granule is in this process, in `*address`: valid for `hl_elastic_granule` bytes until it
/// is returned or this elastic is freed. Other processes have it elsewhere. Any thread.
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

/// What every granule that is held is on now, whoever holds it, in order of address; `extents` and
/// `*count` as in `hl_region_extents`. Any thread.
///
/// Errors: `HL_INVALID`, `HL_MORE`, `HL_SYSTEM`, `HL_FORKED`, `HL_STUCK`, `HL_DAMAGED`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hl_elastic_extents(
    elastic: Option<&hl_elastic>,
    extents: *mut hl_extent,
    count: *mut usize,
    error: Option<&mut MaybeUninit<hl_error>>,
) -> hl_status {
    on(error, elastic, "elastic", |elastic| {
        let found = elastic.0.extents()?;
        let found = found.iter().map(hl_extent::from);
        // SAFETY: the caller's own, as the header says.
        unsafe { call::fill(extents, count, "extents", found) }
    })
}

/// The table of components, as Oracle shows it in v$sgainfo: what stands around it in `*totals` (may
/// be NULL), a line a component in `components`, in the order in which they were made. `*count` is
/// the room of `components` and becomes how many there are; with more than fit the answer is `HL_MORE`.
/// Any thread.
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
    on(error, elastic, "elastic", |elastic| {
        call::check_out(count, "count")?;
        let table = elastic.0.info()?;
        totals.map(|to| to.write((&table).into()));
        let lines = table.components.iter().map(hl_component_info::from);
        // SAFETY: the caller's own, as the header says.
        unsafe { call::fill(components, count, "components", lines) }
    })
}

/// Frees what processes held that have ended, however they did; what came back in `*recovered`
/// (may be NULL). Call it when a worker has died, or when memory is short. Any thread.
///
/// Errors: `HL_NOT_YET_BACK`, `HL_FORKED`, `HL_STUCK`, `HL_DAMAGED`.
#[unsafe(no_mangle)]
pub extern "C" fn hl_elastic_recover(
    elastic: Option<&hl_elastic>,
    recovered: Option<&mut MaybeUninit<hl_recovered>>,
    error: Option<&mut MaybeUninit<hl_error>>,
) -> hl_status {
    on(error, elastic, "elastic", |elastic| {
        let done = hl_recovered::from(elastic.0.recover()?);
        recovered.map(|to| to.write(done));
        Ok(())
    })
}

/// Sends a shared elastic over a connected Unix stream socket; as `hl_region_send`. Any thread.
///
/// Errors: `HL_INVALID`, `HL_NOT_SHARED`, `HL_SYSTEM`, `HL_FORKED`.
#[unsafe(no_mangle)]
pub extern "C" fn hl_elastic_send(
    elastic: Option<&hl_elastic>,
    socket: i32,
    error: Option<&mut MaybeUninit<hl_error>>,
) -> hl_status {
    on(error, elastic, "elastic", |elastic| {
        let handle = elastic.0.handle()?;
        Ok(handle.send(&call::socket_of(socket)?)?)
    })
}

/// Waits for what `hl_elastic_send` sends, and attaches it; as `hl_region_receive`. `*elastic` is the
/// caller's until `hl_elastic_free`. Any thread.
///
/// Errors: `HL_INVALID`, `HL_BAD_HANDLE`, `HL_TOO_MANY`, `HL_DAMAGED`, `HL_SYSTEM`; `*elastic` stays as it
/// was.
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

/// Readies a shared elastic for children that this process starts; as `hl_region_inheritable`. Any
/// thread.
///
/// Errors: `HL_INVALID`, `HL_NOT_SHARED`, `HL_SYSTEM`, `HL_FORKED`; `*handle` stays as it was.
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

/// In a child: attaches the elastic behind the line that its parent got from `hl_handle_line`; as
/// `hl_region_attach_inherited`. Any thread.
///
/// Errors: `HL_INVALID`, `HL_BAD_HANDLE`, `HL_TOO_MANY`, `HL_DAMAGED`, `HL_SYSTEM`; `*elastic` stays as it
/// was.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hl_elastic_attach_inherited(
    line: *const c_char,
    elastic: Option<&mut MaybeUninit<*mut hl_elastic>>,
    error: Option<&mut MaybeUninit<hl_error>>,
) -> hl_status {
    answer(error, elastic, "elastic", || {
        // SAFETY: NULL or a text, as the header says.
        let handle = unsafe { call::inherited(line) }?;
        Ok(hl_elastic::new(Elastic::attach(&handle)?))
    })
}
