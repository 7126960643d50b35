//! Fills a database, or continues with a partly filled one.

use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::thread;

use crossbeam_channel::Sender;
use hugeleaf_units::Bytes;

use super::error::{TpccError, joined};
use super::rules::TableCardinality;
use super::store::{DatasetSpec, FillUnit, TpccLoader, TpccStore};

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FillProgress {
    /// An earlier run began to fill this database without completing it; filling continues.
    Continued {
        /// Number of missing parts.
        missing: usize,
        of: usize,
    },
    At {
        done: usize,
        of: usize,
        part: String,
    },
}

/// Returns the size of `warehouses`, if one with the standard's rows takes `each`.
pub fn data_bytes(each: Bytes, warehouses: i32, scale: TableCardinality) -> Bytes {
    let each = shrunk(each.get(), scale);
    Bytes(each.saturating_mul(u64::from(warehouses.unsigned_abs())))
}

/// Returns the number of warehouses that fit `room`, likewise.
pub fn warehouses_in(room: Bytes, each: Bytes, scale: TableCardinality) -> u64 {
    room.get() / shrunk(each.get(), scale)
}

fn shrunk(each: u64, scale: TableCardinality) -> u64 {
    let share = |rows: i32, of: i32| f64::from(rows) / f64::from(of);
    let share = share(scale.items, TableCardinality::STANDARD.items)
        .max(share(scale.customers, TableCardinality::STANDARD.customers));
    // The share is at most 1, so the result fits.
    #[allow(clippy::cast_possible_truncation)]
    let each = (each as f64 * share) as u64;
    each.max(1)
}

/// Checks that a store holds the wanted data, and returns what it holds. An empty store is filled
/// if `may_fill` is set, a partly filled one is completed, and one with other data is refused.
///
/// # Errors
/// [`TpccError::OtherOrigin`], [`TpccError::Empty`], [`TpccError::PartlyFilled`], [`TpccError::NoRoom`],
/// [`TpccError::Stopped`]; those of the database.
pub fn load(
    store: &dyn TpccStore,
    wanted: &DatasetSpec,
    may_fill: bool,
    progress: &mut dyn FnMut(FillProgress),
    stop: &AtomicBool,
) -> Result<DatasetSpec, TpccError> {
    let origin = agree(store, wanted, may_fill)?;
    let shards = 0..origin.shards;
    let mut missing = Vec::new();
    let mut of = 0;
    for shard in shards {
        let parts = parts(&origin, shard);
        of += parts.len();
        missing.push(lacking(store, &origin, shard, parts)?);
    }
    let left: usize = missing.iter().map(Vec::len).sum();
    if left == 0 {
        return Ok(origin);
    }
    if !may_fill {
        return Err(TpccError::PartlyFilled {
            place: store.name(),
            missing: left,
            parts: of,
        });
    }
    check_room(store, &origin, &missing)?;
    if left < of {
        progress(FillProgress::Continued { missing: left, of });
    }
    fill_all(store, &origin, &missing, of, progress, stop)?;
    Ok(origin)
}

fn agree(
    store: &dyn TpccStore,
    wanted: &DatasetSpec,
    may_fill: bool,
) -> Result<DatasetSpec, TpccError> {
    let Some(held) = store.loader(0)?.origin()? else {
        return match may_fill {
            true => Ok(*wanted),
            false => Err(TpccError::Empty(store.name())),
        };
    };
    if (held.warehouses, held.scale) != (wanted.warehouses, wanted.scale) {
        return Err(TpccError::OtherOrigin {
            place: store.name(),
            has: described(&held),
            asked: described(wanted),
        });
    }
    Ok(held)
}

fn described(origin: &DatasetSpec) -> String {
    let warehouses = match origin.warehouses {
        1 => "1 warehouse".to_owned(),
        n => format!("{n} warehouses"),
    };
    match origin.scale {
        TableCardinality::STANDARD => warehouses,
        scale => format!("{warehouses} of {} items", scale.items),
    }
}

fn parts(origin: &DatasetSpec, shard: i32) -> Vec<FillUnit> {
    let (first, last) = origin.warehouses_of(shard);
    let mut parts = vec![FillUnit::Items];
    parts.extend((first..=last).map(FillUnit::Warehouse));
    parts.push(FillUnit::Indexes);
    parts
}

/// Returns the missing parts.
fn lacking(
    store: &dyn TpccStore,
    origin: &DatasetSpec,
    shard: i32,
    parts: Vec<FillUnit>,
) -> Result<Vec<FillUnit>, TpccError> {
    let mut loader = store.loader(shard)?;
    match loader.origin()? {
        None => return Ok(parts),
        Some(held) if held != *origin => {
            return Err(TpccError::OtherOrigin {
                place: store.name(),
                has: format!("parts of two loads, one of them of {}", described(&held)),
                asked: described(origin),
            });
        }
        Some(_) => {}
    }
    let mut missing = Vec::new();
    for part in parts {
        if !loader.has(part)? {
            missing.push(part);
        }
    }
    Ok(missing)
}

fn check_room(
    store: &dyn TpccStore,
    origin: &DatasetSpec,
    missing: &[Vec<FillUnit>],
) -> Result<(), TpccError> {
    let Some(free) = store.free_bytes() else {
        return Ok(());
    };
    let is_warehouse = |part: &&FillUnit| matches!(part, FillUnit::Warehouse(_));
    let count = missing.iter().flatten().filter(is_warehouse).count();
    let warehouses = i32::try_from(count).unwrap_or(i32::MAX);
    let each = Bytes(store.bytes_per_warehouse());
    // A twentieth of the free space is kept free.
    let fit = warehouses_in(Bytes(free - free / 20), each, origin.scale);
    if fit >= u64::from(warehouses.unsigned_abs()) {
        return Ok(());
    }
    Err(TpccError::NoRoom {
        warehouses,
        needs: data_bytes(each, warehouses, origin.scale),
        place: store.name(),
        free: Bytes(free),
        fit,
    })
}

/// Fills databases in parallel, as many at a time as there are processors.
fn fill_all(
    store: &dyn TpccStore,
    origin: &DatasetSpec,
    missing: &[Vec<FillUnit>],
    of: usize,
    progress: &mut dyn FnMut(FillProgress),
    stop: &AtomicBool,
) -> Result<(), TpccError> {
    let processors = thread::available_parallelism().map_or(1, usize::from);
    let (next, failed) = (AtomicI32::new(0), AtomicBool::new(false));
    let (sender, receiver) = crossbeam_channel::unbounded();
    let mut done = of - missing.iter().map(Vec::len).sum::<usize>();
    let work = |sender: Sender<FillUnit>| {
        let filled = fill_some(store, origin, missing, &next, &sender, &|| {
            stop.load(Ordering::Relaxed) || failed.load(Ordering::Relaxed)
        });
        if filled.is_err() {
            failed.store(true, Ordering::Relaxed);
        }
        filled
    };
    thread::scope(|scope| {
        let work = &work;
        let workers: Vec<_> = (0..processors.min(missing.len()))
            .map(|_| {
                let sender = sender.clone();
                scope.spawn(move || work(sender))
            })
            .collect();
        drop(sender);
        for part in receiver {
            done += 1;
            let part = FillUnit::name(part);
            progress(FillProgress::At { done, of, part });
        }
        joined(workers).map(drop)
    })
}

/// Fills one database after the other until none is left.
fn fill_some(
    store: &dyn TpccStore,
    origin: &DatasetSpec,
    missing: &[Vec<FillUnit>],
    next: &AtomicI32,
    sender: &Sender<FillUnit>,
    stopped: &dyn Fn() -> bool,
) -> Result<(), TpccError> {
    loop {
        let shard = next.fetch_add(1, Ordering::Relaxed);
        let Some(parts) = usize::try_from(shard).ok().and_then(|at| missing.get(at)) else {
            return Ok(());
        };
        let mut loader: Box<dyn TpccLoader + '_> = store.loader(shard)?;
        if loader.origin()?.is_none() {
            loader.create(origin)?;
        }
        for part in parts {
            if stopped() {
                return Err(TpccError::Stopped);
            }
            loader.fill(*part, origin)?;
            // Without the caller nobody receives the progress.
            let _ = sender.send(*part);
        }
    }
}
