//! One run of `hugeleaf-lab oltp`: fills if necessary, drives, and checks.

use std::time::Duration;

use crate::kits::tpcc::{
    DatasetSpec, DriverSettings, FillProgress, TableCardinality, TpccStore, TransactionPace, check,
    drive, load,
};
use serde_json::json;

use super::rows::{AS_IT_IS, of_run};
use super::settings::{DerivedSettings, EventSink, OltpSettings};
use super::watch::DatabaseWatcher;
use hugeleaf_proof::bench::{BenchContext, BenchError, BenchEvent};
use hugeleaf_proof::result_format::{PageLayout, Results, Sample, fields};

/// Beginning of the note that explains why the processor did not count.
pub(super) const NOT_COUNTED: &str = "processor counters were not available: ";

pub(super) fn fill(
    store: &dyn TpccStore,
    order: &OltpSettings,
    machine: &BenchContext<'_>,
    progress: EventSink<'_>,
) -> Result<DatasetSpec, BenchError> {
    let mut shown = |event: FillProgress| progress(filling(event));
    let origin = DatasetSpec {
        warehouses: order.warehouses,
        shards: store.shards(order.warehouses),
        scale: TableCardinality::shrunk(order.shrink),
        seed: order.seed,
        filled_at: FILLED_AT,
    };
    Ok(load(
        store,
        &origin,
        order.may_fill,
        &mut shown,
        machine.stop,
    )?)
}

/// Fills if necessary, runs once, and checks. An inconsistent database has no result.
pub(super) fn run_once(
    store: &dyn TpccStore,
    order: &OltpSettings,
    setup: DerivedSettings,
    machine: &BenchContext<'_>,
    watcher: &mut DatabaseWatcher<'_>,
    progress: EventSink<'_>,
) -> Result<Results, BenchError> {
    let version = store.version()?;
    let origin = fill(store, order, machine, progress)?;
    let run = DriverSettings {
        connections: setup.connections,
        ramp_up: order.ramp_up,
        time: order.time,
        pace: match order.think {
            0.0 => TransactionPace::Full,
            factor => TransactionPace::People(factor),
        },
        touched: setup.touch,
        seed: order.seed,
    };
    let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let mut running = |done, of| progress(at(millis(done), millis(of), "running".to_owned()));
    let outcome = drive(store, &origin, run, watcher, &mut running, machine.stop)?;
    let mut checking = |done, of| {
        progress(at(
            done as u64,
            of as u64,
            "checking consistency".to_owned(),
        ))
    };
    let violations = check(store, &origin, &mut checking, machine.stop)?;
    if !violations.is_empty() {
        let each: Vec<String> = violations.iter().map(ToString::to_string).collect();
        let what = format!(
            "bench oltp: the database is not consistent: {}",
            each.join("; ")
        );
        let next = "refill it: --refill; report it if it happens again";
        return Err(BenchError::no(what, next));
    }
    let mut results = Results::empty("oltp", "");
    describe(&mut results, (store, &version), order, setup, &origin);
    let seen = &watcher.seen;
    for (quantity, value) in of_run(&outcome, seen) {
        results.add(AS_IT_IS, &[], quantity, Sample::new(0, value));
    }
    let layout = |pages: &Vec<_>| PageLayout::new(AS_IT_IS, &[], "end", pages.clone());
    results.layouts.extend(seen.pages.as_ref().map(layout));
    results.caveats = caveats(&origin, order);
    let why = seen.why_not_counted.as_ref();
    results
        .caveats
        .extend(why.map(|why| format!("{NOT_COUNTED}{why}")));
    if let Some((_, by)) = &seen.counted {
        let by = json!([{ "by": by }]);
        results.settings.insert("counted_by".to_owned(), by);
    }
    Ok(results)
}

/// Fills in the title, the method and the settings of the results.
fn describe(
    results: &mut Results,
    (store, version): (&dyn TpccStore, &str),
    order: &OltpSettings,
    setup: DerivedSettings,
    origin: &DatasetSpec,
) {
    let (warehouses, connections) = (origin.warehouses, setup.connections);
    let touched = setup.touch.unwrap_or(warehouses);
    let (time, ramp_up) = (order.time.as_secs_f64(), order.ramp_up.as_secs_f64());
    results.experiment.title = format!(
        "New-Order transactions a minute on {version}, {warehouses} warehouses; a load by the rules of TPC-C"
    );
    results.experiment.how = format!(
        "{connections} connections, {time} s after {ramp_up} s of ramp-up, each run in a process of its own; {touched} \
         of {warehouses} warehouses touched; seed {}; the twelve consistency conditions held after each run",
        order.seed
    );
    results.settings = fields(&json!({
        "connections": connections, "ramp_up_seconds": ramp_up, "for_seconds": time,
        "touched_warehouses": touched, "think": order.think, "io": setup.io,
        "copied_file_bytes": order.copy_beside,
        "database": {
            "name": store.name(), "version": version, "warehouses": warehouses,
            "databases": origin.shards, "items": origin.scale.items,
            "customers": origin.scale.customers, "cache_bytes": setup.cache,
            "durability": order.durability.name(),
        },
    }));
}

/// Timestamp of all rows at the start, 2024-01-01. A fixed value makes the same rows in each run;
/// the value itself does not matter.
pub(crate) const FILLED_AT: i64 = 1_704_067_200_000_000;

fn at(done: u64, of: u64, what: String) -> BenchEvent {
    BenchEvent::At { done, of, what }
}

fn filling(event: FillProgress) -> BenchEvent {
    match event {
        FillProgress::Continued { missing, of } => BenchEvent::Note(format!(
            "the database was partly filled; {missing} of {of} parts follow"
        )),
        FillProgress::At { done, of, part } => {
            at(done as u64, of as u64, format!("filling: {part}"))
        }
    }
}

fn caveats(origin: &DatasetSpec, order: &OltpSettings) -> Vec<String> {
    let mut caveats = vec![
        "the load follows the rules of TPC-C, but this is no TPC-C result: compare it only with \
         results of hugeleaf"
            .to_owned(),
    ];
    if origin.scale != TableCardinality::STANDARD {
        caveats.push(format!(
            "{} items and {} customers a district instead of the standard's 100000 and 3000: no \
             statement about memory",
            origin.scale.items, origin.scale.customers
        ));
    }
    if origin.shards > 1 {
        caveats.push(format!(
            "{} databases: a remote warehouse of the standard is one of the same database",
            origin.shards
        ));
    }
    if order.time < Duration::from_secs(10) {
        caveats.push("measured for less than 10 s".to_owned());
    }
    caveats
}
