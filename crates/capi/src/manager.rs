//! `hl_manager_…`, `hl_ghost_…`: components that are resized by what they gain.
#![allow(unsafe_code)]
//! # Safety
//! An `hl_manager` or `hl_ghost` that is not NULL came from this module and was not freed. The functions of an
//! `hl_managed` can be called with its `data` until the manager is freed, from any thread, one at a time; they write
//! no more than they are given room for. The header says so to whoever calls.

use std::ffi::{c_char, c_void};
use std::mem::MaybeUninit;
use std::time::Duration;

use hugeleaf::balance::{
    Benefit, DynamicComponent, Estimate, Ghost, OperationKind, ResizeOperation, Settings, Status,
};
use hugeleaf::{Bytes, Granule, Managed, Manager, Running};

use super::call::{self, Failure, HL_TEXT, Options, answer, on};
use super::elastic::{HL_NAME, hl_component, hl_elastic, hl_granule};
use super::{hl_error, hl_status};

/// Something measured.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct hl_estimate {
    /// Seconds a second.
    pub value: f64,
    /// One standard error of it.
    pub error: f64,
    /// Of how many events it was made; 0: not measured.
    pub samples: f64,
}

/// What memory is worth to a component. All zeroes: not known.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct hl_benefit {
    /// What a granule more would save, in seconds a second.
    pub more: hl_estimate,
    /// What a granule less would cost, in seconds a second.
    pub less: hl_estimate,
    /// What the component loses altogether, in seconds a second: whether a try is worth it where `more` is not known.
    pub pressure: f64,
}

/// What a component does for a manager. Zero all of it, then set all fields. The functions are called by the
/// manager's thread, one at a time, and must return: no longjmp(3), no C++ exception, no call with this manager.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct hl_managed {
    /// `sizeof(hl_managed)`.
    pub size: usize,
    /// Given to each function.
    pub data: *mut c_void,
    /// Writes into `*benefit` what memory is worth, as measured in the time since the last call. It is zero before.
    pub benefit: Option<
        unsafe extern "C" fn(data: *mut c_void, elapsed_seconds: f64, benefit: *mut hl_benefit),
    >,
    /// `count` granules are the component's from now on, with what was in them before.
    pub grow:
        Option<unsafe extern "C" fn(data: *mut c_void, granules: *const hl_granule, count: usize)>,
    /// Empties up to `count` granules, writes their numbers into `granules` and returns how many: they are not the
    /// component's any more.
    pub shrink: Option<
        unsafe extern "C" fn(data: *mut c_void, granules: *mut hl_granule, count: usize) -> usize,
    >,
}

// SAFETY: integers, raw pointers and functions, in an order that leaves no gaps, the size first.
unsafe impl Options for hl_managed {}

/// A component of C's, with its functions.
struct FromC {
    data: *mut c_void,
    benefit: unsafe extern "C" fn(*mut c_void, f64, *mut hl_benefit),
    grow: unsafe extern "C" fn(*mut c_void, *const hl_granule, usize),
    shrink: unsafe extern "C" fn(*mut c_void, *mut hl_granule, usize) -> usize,
}

// SAFETY: the header says that any thread may call the functions with their data.
unsafe impl Send for FromC {}

impl Managed for FromC {
    fn benefit(&mut self, elapsed: Duration) -> Benefit {
        let mut benefit = hl_benefit::default();
        // SAFETY: by this module's contract; `benefit` lives beyond the call.
        unsafe { (self.benefit)(self.data, elapsed.as_secs_f64(), &raw mut benefit) };
        (&benefit).into()
    }

    fn grow(&mut self, granules: &[Granule]) {
        let numbers: Vec<hl_granule> = granules.iter().map(|g| g.to_number()).collect();
        // SAFETY: by this module's contract; the numbers live beyond the call.
        unsafe { (self.grow)(self.data, numbers.as_ptr(), numbers.len()) };
    }

    fn shrink(&mut self, count: usize) -> Vec<Granule> {
        let mut numbers: Vec<hl_granule> = vec![0; count];
        // SAFETY: as above, with room for `count`.
        let freed = unsafe { (self.shrink)(self.data, numbers.as_mut_ptr(), count) };
        numbers.truncate(freed);
        numbers.into_iter().map(Granule::from_number).collect()
    }
}

impl From<&hl_benefit> for Benefit {
    fn from(benefit: &hl_benefit) -> Benefit {
        let known = |estimate: hl_estimate| {
            (estimate.samples > 0.0).then_some(Estimate {
                value: estimate.value,
                error: estimate.error,
                samples: estimate.samples,
            })
        };
        Benefit {
            more: known(benefit.more),
            less: known(benefit.less),
            pressure: benefit.pressure,
        }
    }
}

impl From<Benefit> for hl_benefit {
    fn from(benefit: Benefit) -> hl_benefit {
        let known = |estimate: Option<Estimate>| {
            estimate.map_or_else(hl_estimate::default, |estimate| hl_estimate {
                value: estimate.value,
                error: estimate.error,
                samples: estimate.samples,
            })
        };
        hl_benefit {
            more: known(benefit.more),
            less: known(benefit.less),
            pressure: benefit.pressure,
        }
    }
}

/// Memory of one process under one target: a thread moves whole granules of an elastic between components, by what
/// they gain. Never more is held than the elastic's target.
pub struct hl_manager(Running);

/// Has a thread look every so many seconds (0: one). `*manager` is the caller's until `hl_manager_free`; it keeps the
/// memory of the elastic, which may be freed before it. Any thread.
///
/// Errors: `HL_INVALID`, `HL_TOO_MANY`, `HL_FIXED_SIZE`, `HL_SYSTEM`, `HL_FORKED`, `HL_STUCK`; `*manager` stays as it
/// was.
#[unsafe(no_mangle)]
pub extern "C" fn hl_manager_start(
    elastic: Option<&hl_elastic>,
    every_seconds: f64,
    manager: Option<&mut MaybeUninit<*mut hl_manager>>,
    error: Option<&mut MaybeUninit<hl_error>>,
) -> hl_status {
    answer(error, manager, "manager", || {
        let elastic = call::given(elastic, "elastic")?;
        let every = match every_seconds {
            0.0 => Duration::from_secs(1),
            seconds => Duration::try_from_secs_f64(seconds).map_err(|e| {
                Failure::invalid(
                    format!("every_seconds: {e}"),
                    "set it to 0, or to seconds from 0.001 on",
                )
            })?,
        };
        let manager = Manager::new(elastic.share(), Settings::in_process())?;
        let started = manager.start(every.max(Duration::from_millis(1)));
        let running = started.map_err(|e| {
            Failure::new(
                hl_status::HL_SYSTEM,
                format!("starting a thread: {e}"),
                "raise the limits on processes (ulimit -u, pids.max of the cgroup)",
            )
        })?;
        Ok(call::hand_out(hl_manager(running)))
    })
}

/// Ends the manager's thread; memory stays with the components that have it. NULL is nothing to do. No other thread may
/// be using the manager.
#[unsafe(no_mangle)]
pub extern "C" fn hl_manager_free(manager: *mut hl_manager) {
    call::free(manager);
}

/// Adds a component of that name (1 to 47 bytes) that is never smaller than `least_bytes` and never larger than
/// `most_bytes`, both rounded up to whole granules, and gives it its least at once. `managed` is copied; its `data` must
/// live until the manager is freed. `component` may be NULL. Any thread.
///
/// Errors: `HL_INVALID`, also where there is one of that name; `HL_OVER_TARGET`, `HL_FULL`, `HL_SHORT`, `HL_TOO_LARGE`,
/// `HL_TOO_MANY`, `HL_FIXED_SIZE`, `HL_SYSTEM`, `HL_FORKED`, `HL_STUCK`. It is not added then.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hl_manager_add(
    manager: Option<&hl_manager>,
    name: *const c_char,
    least_bytes: u64,
    most_bytes: u64,
    managed: *const hl_managed,
    component: Option<&mut MaybeUninit<hl_component>>,
    error: Option<&mut MaybeUninit<hl_error>>,
) -> hl_status {
    on(error, manager, "manager", |manager| {
        // SAFETY: NULL or a text, as the header says.
        let name = unsafe { call::text_of(name, "name") }?;
        // SAFETY: NULL or as the header says.
        let managed = unsafe { call::options_of(managed) }?;
        let its = FromC {
            data: managed.data,
            benefit: call::given(managed.benefit, "managed.benefit")?,
            grow: call::given(managed.grow, "managed.grow")?,
            shrink: call::given(managed.shrink, "managed.shrink")?,
        };
        let sizes = (Bytes(least_bytes), Bytes(most_bytes));
        let added = manager.0.add(name, sizes, Box::new(its))?;
        component.map(|to| to.write(added.to_number()));
        Ok(())
    })
}

/// Raises or lowers the target of the elastic, in bytes; the next looks take from the components what is held above
/// it. `above` as in `hl_elastic_set_target`. Any thread.
///
/// Errors: as there.
#[unsafe(no_mangle)]
pub extern "C" fn hl_manager_set_target(
    manager: Option<&hl_manager>,
    target_bytes: u64,
    above: Option<&mut MaybeUninit<u64>>,
    error: Option<&mut MaybeUninit<hl_error>>,
) -> hl_status {
    on(error, manager, "manager", |manager| {
        let more = manager.0.set_target(Bytes(target_bytes))?;
        above.map(|to| to.write(more.get()));
        Ok(())
    })
}

/// A component as it is now: a line of Oracle's v$memory_dynamic_components.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct hl_managed_info {
    /// Its name; UTF-8, ends in 0.
    pub name: [c_char; HL_NAME],
    /// How much it holds, in bytes.
    pub bytes: u64,
    /// The smallest it was since it was added, in bytes.
    pub smallest_bytes: u64,
    /// The largest it was, in bytes.
    pub largest_bytes: u64,
    /// How often it was resized.
    pub operations: u64,
    /// Where it stands and why, in words; UTF-8, ends in 0.
    pub standing: [c_char; HL_TEXT],
}

impl From<&DynamicComponent> for hl_managed_info {
    fn from(one: &DynamicComponent) -> hl_managed_info {
        hl_managed_info {
            name: call::text(&one.component),
            bytes: one.current_size_bytes.get(),
            smallest_bytes: one.min_size_bytes.get(),
            largest_bytes: one.max_size_bytes.get(),
            operations: one.oper_count,
            standing: call::text(&one.standing),
        }
    }
}

/// The components in `components`; `*count` is the room there and becomes how many there are, as in `hl_elastic_info`.
/// Any thread.
///
/// Errors: `HL_INVALID`, `HL_MORE`; `HL_SYSTEM` where the last look failed, with the reason, and `components` is filled
/// in all the same.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hl_manager_components(
    manager: Option<&hl_manager>,
    components: *mut hl_managed_info,
    count: *mut usize,
    error: Option<&mut MaybeUninit<hl_error>>,
) -> hl_status {
    on(error, manager, "manager", |manager| {
        let (view, failed) = manager.0.view();
        let lines = view.components.iter().map(hl_managed_info::from);
        // SAFETY: the caller's own, as the header says.
        unsafe { call::fill(components, count, "components", lines) }?;
        match failed {
            None => Ok(()),
            Some(why) => Err(Failure::new(
                hl_status::HL_SYSTEM,
                why,
                "mend that; memory stays as it is",
            )),
        }
    })
}

/// A change of a component's size: a line of Oracle's v$memory_resize_ops.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct hl_resize {
    /// Its number; they go up.
    pub id: u64,
    /// Whose; UTF-8, ends in 0.
    pub name: [c_char; HL_NAME],
    /// 1 where it grew, 0 where it shrank.
    pub grows: u32,
    /// 0: goes on; 1: complete; 2: a part of it; 3: an error; 4: given up.
    pub status: u32,
    /// From this size, in bytes.
    pub initial_bytes: u64,
    /// To this one, in bytes.
    pub target_bytes: u64,
    /// When it began, in seconds since the manager did.
    pub start_seconds: f64,
    /// Why, with the numbers; UTF-8, ends in 0.
    pub why: [c_char; HL_TEXT],
}

impl From<&ResizeOperation> for hl_resize {
    fn from(one: &ResizeOperation) -> hl_resize {
        hl_resize {
            id: one.id,
            name: call::text(&one.component),
            grows: u32::from(one.kind == OperationKind::Grow),
            status: match one.status {
                Status::Inactive => 4,
                Status::Pending => 0,
                Status::Complete => 1,
                Status::Partial => 2,
                Status::Error => 3,
            },
            initial_bytes: one.initial.get(),
            target_bytes: one.target.get(),
            start_seconds: one.start_seconds,
            why: call::text(&one.why),
        }
    }
}

/// What was resized lately, newest first, in `operations`; `*count` as in `hl_manager_components`. Any thread.
///
/// Errors: `HL_INVALID`, `HL_MORE`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hl_manager_operations(
    manager: Option<&hl_manager>,
    operations: *mut hl_resize,
    count: *mut usize,
    error: Option<&mut MaybeUninit<hl_error>>,
) -> hl_status {
    on(error, manager, "manager", |manager| {
        let (view, _) = manager.0.view();
        let lines = view.operations.iter().rev().map(hl_resize::from);
        // SAFETY: the caller's own, as the header says.
        unsafe { call::fill(operations, count, "operations", lines) }
    })
}

/// What a cache of another size would hit: a list of keys without what they stand for, sampled. Not for several
/// threads at a time.
pub struct hl_ghost(Ghost);

/// One for a cache of so many items that grows by `step_items` a granule; at most `max_samples` keys are kept, 80 bytes
/// each: 2000 are a good number. Never NULL. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn hl_ghost_new(
    capacity_items: u64,
    step_items: u64,
    max_samples: usize,
) -> *mut hl_ghost {
    call::hand_out(hl_ghost(Ghost::new(
        capacity_items,
        step_items,
        max_samples,
    )))
}

/// Frees it. NULL is nothing to do.
#[unsafe(no_mangle)]
pub extern "C" fn hl_ghost_free(ghost: *mut hl_ghost) {
    call::free(ghost);
}

/// A key was asked for, hit or miss; its hash. NULL is nothing to do.
#[unsafe(no_mangle)]
pub extern "C" fn hl_ghost_touch(ghost: Option<&mut hl_ghost>, key_hash: u64) {
    if let Some(ghost) = ghost {
        ghost.0.touch(key_hash);
    }
}

/// The cache has so many items now. NULL is nothing to do.
#[unsafe(no_mangle)]
pub extern "C" fn hl_ghost_set_capacity(ghost: Option<&mut hl_ghost>, capacity_items: u64) {
    if let Some(ghost) = ghost {
        ghost.0.set_capacity(capacity_items);
    }
}

/// So much time has passed, and what a granule of `granule_items` more or less is worth now, where a miss costs so many
/// seconds more than a hit: for `hl_managed.benefit`, which gets both.
///
/// Errors: `HL_INVALID`.
#[unsafe(no_mangle)]
pub extern "C" fn hl_ghost_benefit(
    ghost: Option<&mut hl_ghost>,
    elapsed_seconds: f64,
    granule_items: u64,
    seconds_per_miss: f64,
    benefit: Option<&mut MaybeUninit<hl_benefit>>,
    error: Option<&mut MaybeUninit<hl_error>>,
) -> hl_status {
    answer(error, benefit, "benefit", || {
        let ghost = call::given(ghost, "ghost")?;
        let elapsed = Duration::try_from_secs_f64(elapsed_seconds)
            .map_err(|e| Failure::invalid(format!("elapsed_seconds: {e}"), "seconds, from 0 on"))?;
        if !(seconds_per_miss.is_finite() && seconds_per_miss >= 0.0) {
            let what = format!("seconds_per_miss is {seconds_per_miss}");
            return Err(Failure::invalid(what, "seconds, from 0 on"));
        }
        ghost.0.pass(elapsed);
        Ok(ghost.0.benefit(granule_items, seconds_per_miss).into())
    })
}
