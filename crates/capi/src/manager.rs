//! `hl_manager_…`, `hl_ghost_…`: components that are resized by their benefit.
#![allow(unsafe_code)]
//! # Safety
//! An `hl_manager` or `hl_ghost` that is not NULL came from this module and was not freed. The functions of an
//! `hl_managed` can be called with its `data` until the manager is freed, from any thread, one at a time. They do not
//! write beyond the room that they are given. The header requires all of that.

use std::ffi::{c_char, c_void};
use std::mem::MaybeUninit;
use std::time::Duration;

use hugeleaf::balance::{
    Benefit, DynamicComponent, Estimate, GhostList, OperationKind, ResizeOperation, ResizeStatus,
    Settings,
};
use hugeleaf::{Bytes, Granule, Managed, Manager, ManagerThread};

use super::call::{self, CallFailure, HL_TEXT, SizedOptions, answer, call_on};
use super::elastic::{HL_NAME, hl_component, hl_elastic, hl_granule};
use super::{hl_error, hl_status};

/// A measured value.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct hl_estimate {
    /// Value in seconds per second.
    pub value: f64,
    /// Standard error of `value`.
    pub error: f64,
    /// Number of events behind the value; 0 if not measured.
    pub samples: f64,
}

/// Benefit of memory for a component. All zeroes if unknown.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct hl_benefit {
    /// Time that one more granule would save, in seconds per second.
    pub more: hl_estimate,
    /// Time that one granule less would cost, in seconds per second.
    pub less: hl_estimate,
    /// Total time that the component loses, in seconds per second; decides on growth if `more` is unknown.
    pub pressure: f64,
}

/// Callbacks of a component for a manager. Zero all of it, then set all fields. The manager's thread calls the
/// functions, one at a time. They must return: no longjmp(3), no C++ exception. They must not use this manager.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct hl_managed {
    /// `sizeof(hl_managed)`.
    pub size: usize,
    /// Passed to each function.
    pub data: *mut c_void,
    /// Writes the benefit of memory, measured since the last call, to `*benefit`, which is zeroed before.
    pub benefit: Option<
        unsafe extern "C" fn(data: *mut c_void, elapsed_seconds: f64, benefit: *mut hl_benefit),
    >,
    /// Gives `count` granules to the component, with their previous contents.
    pub grow:
        Option<unsafe extern "C" fn(data: *mut c_void, granules: *const hl_granule, count: usize)>,
    /// Empties up to `count` granules, writes their numbers to `granules`, and returns how many. The component must not
    /// use them any more.
    pub shrink: Option<
        unsafe extern "C" fn(data: *mut c_void, granules: *mut hl_granule, count: usize) -> usize,
    >,
}

// SAFETY: integers, raw pointers and functions, in an order that leaves no gaps, the size first.
unsafe impl SizedOptions for hl_managed {}

/// A component implemented in C, with its functions.
struct CallbackComponent {
    data: *mut c_void,
    benefit: unsafe extern "C" fn(*mut c_void, f64, *mut hl_benefit),
    grow: unsafe extern "C" fn(*mut c_void, *const hl_granule, usize),
    shrink: unsafe extern "C" fn(*mut c_void, *mut hl_granule, usize) -> usize,
}

// SAFETY: the header requires that any thread may call the functions with their data.
unsafe impl Send for CallbackComponent {}

impl Managed for CallbackComponent {
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

/// Memory of one process under one target. A thread moves whole granules of an elastic between components by their
/// benefit. The memory held never exceeds the elastic's target.
pub struct hl_manager(ManagerThread);

/// Starts a thread that checks the components every `every_seconds` seconds (0: 1 s). The caller owns `*manager` until
/// `hl_manager_free`. The manager keeps the memory of the elastic, which may be freed before it. Thread-safe.
///
/// Errors: `HL_INVALID`, `HL_TOO_MANY`, `HL_FIXED_SIZE`, `HL_SYSTEM`, `HL_FORKED`, `HL_STUCK`; `*manager` is unchanged
/// then.
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
                CallFailure::invalid(
                    format!("every_seconds: {e}"),
                    "set it to 0, or to at least 0.001 seconds",
                )
            })?,
        };
        let manager = Manager::new(elastic.0.clone(), Settings::in_process())?;
        let started = manager.start(every.max(Duration::from_millis(1)));
        let running = started.map_err(|e| {
            CallFailure::new(
                hl_status::HL_SYSTEM,
                format!("cannot start a thread: {e}"),
                "raise the limits on processes (ulimit -u, pids.max of the cgroup)",
            )
        })?;
        Ok(call::hand_out(hl_manager(running)))
    })
}

/// Ends the manager's thread; components keep their memory. NULL has no effect. No other thread may use the manager
/// during the call.
#[unsafe(no_mangle)]
pub extern "C" fn hl_manager_free(manager: *mut hl_manager) {
    call::free(manager);
}

/// Adds a component of that name (1 to 47 bytes) with a size between `least_bytes` and `most_bytes`, both rounded up to
/// whole granules. It gets its least at once. `managed` is copied; its `data` must live until the manager is freed.
/// `component` may be NULL. Thread-safe.
///
/// Errors: `HL_INVALID`, also if the name is taken; `HL_OVER_TARGET`, `HL_FULL`, `HL_SHORT`, `HL_TOO_LARGE`,
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
    call_on(error, manager, "manager", |manager| {
        // SAFETY: NULL or a text, as the header requires.
        let name = unsafe { call::text_of(name, "name") }?;
        // SAFETY: NULL or as the header requires.
        let managed = unsafe { call::options_of(managed) }?;
        let its = CallbackComponent {
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

/// Sets the target of the elastic, in bytes. The next checks take the memory above it from the components. `above` is
/// as in `hl_elastic_set_target`. Thread-safe.
///
/// Errors: as `hl_elastic_set_target`.
#[unsafe(no_mangle)]
pub extern "C" fn hl_manager_set_target(
    manager: Option<&hl_manager>,
    target_bytes: u64,
    above: Option<&mut MaybeUninit<u64>>,
    error: Option<&mut MaybeUninit<hl_error>>,
) -> hl_status {
    call_on(error, manager, "manager", |manager| {
        let more = manager.0.set_target(Bytes(target_bytes))?;
        above.map(|to| to.write(more.get()));
        Ok(())
    })
}

/// State of a component: a line of Oracle's v$memory_dynamic_components.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct hl_managed_info {
    /// Name; UTF-8, ends in 0.
    pub name: [c_char; HL_NAME],
    /// Size in bytes.
    pub bytes: u64,
    /// Smallest size since it was added, in bytes.
    pub smallest_bytes: u64,
    /// Largest size since it was added, in bytes.
    pub largest_bytes: u64,
    /// Number of resize operations.
    pub operations: u64,
    /// State and its reason; UTF-8, ends in 0.
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

/// Writes the components to `components`. `*count` is its capacity and becomes the number of components, as in
/// `hl_elastic_info`. Thread-safe.
///
/// Errors: `HL_INVALID`, `HL_MORE`; `HL_SYSTEM` with the reason if the last check failed, with `components` filled in.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hl_manager_components(
    manager: Option<&hl_manager>,
    components: *mut hl_managed_info,
    count: *mut usize,
    error: Option<&mut MaybeUninit<hl_error>>,
) -> hl_status {
    call_on(error, manager, "manager", |manager| {
        let (view, failed) = manager.0.view();
        let lines = view.components.iter().map(hl_managed_info::from);
        // SAFETY: the caller's own, as the header requires.
        unsafe { call::fill(components, count, "components", lines) }?;
        match failed {
            None => Ok(()),
            Some(why) => Err(CallFailure::new(
                hl_status::HL_SYSTEM,
                why,
                "fix the cause; memory is unchanged meanwhile",
            )),
        }
    })
}

/// A resize operation of a component: a line of Oracle's v$memory_resize_ops.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct hl_resize {
    /// Number of the operation; increasing.
    pub id: u64,
    /// Name of the component; UTF-8, ends in 0.
    pub name: [c_char; HL_NAME],
    /// 1 for growing, 0 for shrinking.
    pub grows: u32,
    /// 0: pending; 1: complete; 2: partial; 3: error; 4: abandoned.
    pub status: u32,
    /// Size before, in bytes.
    pub initial_bytes: u64,
    /// Target size, in bytes.
    pub target_bytes: u64,
    /// Start time, in seconds since the start of the manager.
    pub start_seconds: f64,
    /// Reason with numbers; UTF-8, ends in 0.
    pub why: [c_char; HL_TEXT],
}

impl From<&ResizeOperation> for hl_resize {
    fn from(one: &ResizeOperation) -> hl_resize {
        hl_resize {
            id: one.id,
            name: call::text(&one.component),
            grows: u32::from(one.kind == OperationKind::Grow),
            status: match one.status {
                ResizeStatus::Inactive => 4,
                ResizeStatus::Pending => 0,
                ResizeStatus::Complete => 1,
                ResizeStatus::Partial => 2,
                ResizeStatus::Error => 3,
            },
            initial_bytes: one.initial.get(),
            target_bytes: one.target.get(),
            start_seconds: one.start_seconds,
            why: call::text(&one.why),
        }
    }
}

/// Writes the recent resize operations, newest first; `*count` as in `hl_manager_components`. Thread-safe.
///
/// Errors: `HL_INVALID`, `HL_MORE`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hl_manager_operations(
    manager: Option<&hl_manager>,
    operations: *mut hl_resize,
    count: *mut usize,
    error: Option<&mut MaybeUninit<hl_error>>,
) -> hl_status {
    call_on(error, manager, "manager", |manager| {
        let (view, _) = manager.0.view();
        let lines = view.operations.iter().rev().map(hl_resize::from);
        // SAFETY: the caller's own, as the header requires.
        unsafe { call::fill(operations, count, "operations", lines) }
    })
}

/// A ghost list: a sample of keys without values that predicts the hits of a cache of another size. Only one thread may
/// use it at a time.
pub struct hl_ghost(GhostList);

/// Creates a ghost list for a cache of `capacity_items` that grows by `step_items` per granule. It keeps at most
/// `max_samples` keys of 80 bytes each; 2000 is a good number. Never returns NULL. Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn hl_ghost_new(
    capacity_items: u64,
    step_items: u64,
    max_samples: usize,
) -> *mut hl_ghost {
    call::hand_out(hl_ghost(GhostList::new(
        capacity_items,
        step_items,
        max_samples,
    )))
}

/// Frees a ghost list. NULL has no effect.
#[unsafe(no_mangle)]
pub extern "C" fn hl_ghost_free(ghost: *mut hl_ghost) {
    call::free(ghost);
}

/// Records a request for a key, hit or miss, by its hash. NULL has no effect.
#[unsafe(no_mangle)]
pub extern "C" fn hl_ghost_touch(ghost: Option<&mut hl_ghost>, key_hash: u64) {
    if let Some(ghost) = ghost {
        ghost.0.touch(key_hash);
    }
}

/// Sets the current number of items in the cache. NULL has no effect.
#[unsafe(no_mangle)]
pub extern "C" fn hl_ghost_set_capacity(ghost: Option<&mut hl_ghost>, capacity_items: u64) {
    if let Some(ghost) = ghost {
        ghost.0.set_capacity(capacity_items);
    }
}

/// Advances the time and computes the benefit of `granule_items` more or less, if a miss takes `seconds_per_miss`
/// longer than a hit. For use in `hl_managed.benefit`, which receives `elapsed_seconds` and `*benefit`.
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
        let elapsed = Duration::try_from_secs_f64(elapsed_seconds).map_err(|e| {
            CallFailure::invalid(format!("elapsed_seconds: {e}"), "seconds, 0 or more")
        })?;
        if !(seconds_per_miss.is_finite() && seconds_per_miss >= 0.0) {
            let what = format!("seconds_per_miss is {seconds_per_miss}");
            return Err(CallFailure::invalid(what, "seconds, 0 or more"));
        }
        ghost.0.pass(elapsed);
        Ok(ghost.0.benefit(granule_items, seconds_per_miss).into())
    })
}
