//! `hugeleaf-lab pin`: the cost of pinning one buffer, by its pages and by the number of concurrent threads.
//!
//! Round by round, every method runs on every kind of pages with every number of threads, in a new random order. The
//! results show the published model next to the measurement: one lock turn per unit, so the cost is proportional to
//! the pages of a buffer. Locking parts of memory splits its transparent huge pages. That method therefore has memory
//! of its own, and all layouts are read back at the end.

use std::time::Duration;

use crate::kits::backup_io::{
    BackupIoError, DeviceLocation as DevicePlace, DeviceOptions, Devices, IoPages,
};
use crate::kits::memory_pinning::{PinLoad, PinMethod, PinResult, pin};
use hugeleaf_sys::may_lock;
use hugeleaf_units::Bytes;
use serde_json::json;

use super::io_arms::{IoArm, IoArmRequest};
use hugeleaf_proof::bench::BenchRun;
use hugeleaf_proof::bench::{BenchContext, BenchError, BenchEvent};
use hugeleaf_proof::result_format::{
    ArmInfo, Chart, Parameter, Quantity, ResultRow, Results, Sample,
};

const PIN: &str = "pin and let go";

#[derive(Debug, Clone)]
pub struct PinSettings {
    pub methods: Vec<PinMethod>,
    /// The layouts of memory; the first is the baseline of the others.
    pub pages: Vec<IoPages>,
    pub threads: Vec<usize>,
    pub block: Bytes,
    /// Length of the memory whose parts all threads pin.
    pub space: Bytes,
    pub rounds: usize,
    pub sample: Duration,
    pub place: DevicePlace,
    pub each: Bytes,
    pub seed: u64,
    pub memory_limit: Bytes,
}

/// Measures all arms.
///
/// # Errors
/// [`BenchError`]; all memory and the file are released then.
pub fn measure(
    settings: &PinSettings,
    machine: &BenchContext<'_>,
    progress: &mut dyn FnMut(BenchEvent),
) -> Result<Results, BenchError> {
    let s = settings;
    let take = IoArmRequest {
        ways: &s.methods,
        pages: &s.pages,
        locks: |method| method == PinMethod::Mlock,
        place: "method",
        space: s.space,
        block: s.block,
        seed: s.seed,
        called: "memory",
    };
    check(s, take.ordinary(machine.host))?;
    let used = json!({
        "block_bytes": s.block, "space_bytes": s.space, "devices": [], "rounds": s.rounds,
        "sample_seconds": s.sample.as_secs_f64(),
    });
    let mut run = BenchRun::new("pin", (s.seed, used), machine, progress);
    let mut arms = take.take(&mut run)?;
    for arm in &arms.all {
        for threads in &s.threads {
            run.expect(ArmInfo::named(&arm.label), place(arm, *threads), s.rounds);
        }
    }
    describe(s, &mut run.results);
    let devices = devices(s, &mut run)?;
    let source = devices.as_ref().and_then(|d| d.sources.first());
    let of = |of: (usize, usize)| s.threads.iter().map(move |threads| (of, *threads));
    let plan: Vec<_> = arms.available().into_iter().flat_map(of).collect();
    let went = run.rounds(s.rounds, &plan, |run, round, ((arm, space), threads)| {
        let arm = &arms.all[arm];
        let (label, at) = (arm.label.clone(), place(arm, threads));
        run.step(format!("{} on {label}, {threads}", arm.way));
        let load = PinLoad {
            method: arm.way,
            threads,
            block: s.block,
            time: s.sample,
            source,
        };
        let pinned = pin(arms.memory(space), &load, machine.stop)?;
        for (quantity, value) in quantities(&pinned) {
            run.results
                .add(&label, &at, quantity, Sample::new(round, value));
        }
        Ok(())
    });
    run.ended(went)?;
    for arm in &arms.all {
        let first = arms.all.iter().find(|first| first.way == arm.way);
        add_derived(arm, first.unwrap_or(arm), s, &mut run);
    }
    arms.look_again(&mut run)?;
    caveats(&mut run);
    run.finish(&main())
}

fn main() -> Quantity {
    Quantity::time(PIN, "µs").main()
}

fn place(arm: &IoArm<PinMethod>, threads: usize) -> Vec<Parameter> {
    let threads = Parameter::number("threads", threads as u64);
    arm.at.iter().cloned().chain([threads]).collect()
}

/// Fills in the title, the method and the charts of the results.
fn describe(s: &PinSettings, results: &mut Results) {
    results.experiment.title = format!(
        "pinning and releasing {}: the time of one pin, by page layout and number of threads",
        s.block
    );
    results.experiment.how = format!(
        "threads pin parts of {} of memory; {} rounds of {:.2} s, everything in a new random order in each, from \
         seed {}",
        s.space,
        s.rounds,
        s.sample.as_secs_f64(),
        s.seed
    );
    results.charts = vec![Chart::by(
        "threads",
        PIN,
        "Time of one pin by number of threads",
    )];
    results.remarks = vec![
        "the published model: while there are pages to pin: lock the segment, pin a page, unlock the segment; lock \
         cycles for 256K: 64 on 4K pages, 4 on 64K pages, 1 on 16M pages"
            .to_owned(),
    ];
}

/// Refuses settings that exceed the limits of memory or of locked memory.
fn check(settings: &PinSettings, asked: Bytes) -> Result<(), BenchError> {
    if asked > settings.memory_limit {
        return Err(BenchError::TooLarge {
            what: format!("memory of {} for each kind of pages", settings.space),
            asked,
            most: settings.memory_limit,
        });
    }
    let threads = settings.threads.iter().copied().max().unwrap_or(1);
    let asked = Bytes(settings.block.get().saturating_mul(threads as u64));
    let pins = settings.methods.iter().find(|m| **m != PinMethod::Direct);
    match (may_lock(), pins) {
        (Some(most), Some(method)) if asked > most => {
            let mode = method.name();
            Err(BackupIoError::MemlockLimit { mode, asked, most }.into())
        }
        _ => Ok(()),
    }
}

fn devices(s: &PinSettings, run: &mut BenchRun<'_>) -> Result<Option<Devices>, BenchError> {
    if !s.methods.contains(&PinMethod::Direct) {
        return Ok(None);
    }
    run.taking("a file to read");
    let wanted = DeviceOptions {
        places: vec![s.place.clone()],
        sources: 1,
        targets: 0,
        each: s.each,
        block: s.block,
        overwrite: false,
        seed: s.seed,
    };
    let devices = Devices::make(&wanted, run.machine.host, run.machine.stop)?;
    let places = devices.places.clone().into();
    run.results.settings.insert("devices".to_owned(), places);
    Ok(Some(devices))
}

fn quantities(pinned: &PinResult) -> [(Quantity, f64); 4] {
    let count = pinned.count.max(1) as f64;
    let processor = pinned.usage.processor().as_secs_f64();
    [
        (main(), pinned.each.mean * 1e6),
        (
            Quantity::amount("CPU of one", "µs"),
            processor * 1e6 / count,
        ),
        (
            Quantity::amount("waits of one", ""),
            pinned.usage.waits as f64 / count,
        ),
        (Quantity::plain("pinned", ""), pinned.count as f64),
    ]
}

/// Adds derived values and notes to the samples of an arm; `first` is the arm on the first pages.
fn add_derived(
    arm: &IoArm<PinMethod>,
    first: &IoArm<PinMethod>,
    s: &PinSettings,
    run: &mut BenchRun<'_>,
) {
    let host = run.machine.host;
    let medians = |of: &IoArm<PinMethod>| -> Vec<(usize, f64)> {
        let of_one = |threads: &usize| {
            let row = run.results.row(&of.label, &place(of, *threads), PIN)?;
            Some((*threads, row.spread()?.median))
        };
        s.threads.iter().filter_map(of_one).collect()
    };
    let units = |of: &IoArm<PinMethod>| of.pages.mapped(host).size.pages_for(s.block).get() as f64;
    let (own, parts) = (medians(arm), units(arm) / units(first).max(1.0));
    let all = compare(
        &own,
        &medians(first),
        parts,
        run.machine.circumstances.host.cpus,
    );
    for ((threads, _), (contention, by_model)) in own.iter().zip(all) {
        let at = place(arm, *threads);
        let beyond = "time over one thread's, less what sharing processors explains";
        let model = Quantity::time("one, by the published model", "µs");
        for (quantity, value) in [
            (Quantity::amount(beyond, ""), contention),
            (model, by_model),
        ] {
            if let Some(value) = value {
                run.count(&arm.label, &at, quantity, value);
            }
        }
    }
    if own.is_empty() {
        return;
    }
    let pages = Quantity::plain("pages of a buffer", "");
    run.count(&arm.label, &arm.at, pages, units(arm));
    // Hugetlb pages always stay in memory.
    if arm.way == PinMethod::Mlock && arm.pages.is_pool() {
        let note = "there is nothing to do: the kernel returns at once";
        let rows = run.results.rows.iter_mut();
        let rows = rows.filter(|row| row.arm == arm.label && row.at.starts_with(&arm.at));
        rows.for_each(|row| row.note = Some(note.to_owned()));
    }
}

/// Returns contention and model for each number of threads, from the median of a pin. Contention is the time of a pin
/// relative to one thread, divided by the ratio of threads to processors (1 is none). The model multiplies the median
/// on the first pages by `parts`, the ratio of the units of a buffer.
fn compare(
    own: &[(usize, f64)],
    first: &[(usize, f64)],
    parts: f64,
    cpus: usize,
) -> Vec<(Option<f64>, Option<f64>)> {
    let of =
        |all: &[(usize, f64)], threads| all.iter().find(|one| one.0 == threads).map(|one| one.1);
    let both = |(threads, median): &(usize, f64)| {
        let shared = (*threads as f64 / cpus.max(1) as f64).max(1.0);
        let contention = of(own, 1).map(|alone| median / (alone * shared));
        (contention, of(first, *threads).map(|median| median * parts))
    };
    own.iter().map(both).collect()
}

fn caveats(run: &mut BenchRun<'_>) {
    let (host, results) = (run.machine.host, &mut run.results);
    let has = |method: PinMethod, pages: &str| {
        let place = Parameter::text("method", method.name());
        let is_it = |row: &ResultRow| row.at.contains(&place) && row.arm.starts_with(pages);
        results.rows.iter().any(is_it)
    };
    let (has_mlock, has_direct) = (has(PinMethod::Mlock, ""), has(PinMethod::Direct, ""));
    if has(PinMethod::Mlock, "hugetlb") {
        results.caveats.push(
            "mlock of hugetlb pages does nothing: they always stay in memory, and the kernel \
             returns at once. It is not the same work done faster."
                .to_owned(),
        );
    }
    if has_direct {
        results.caveats.push(
            "direct is a whole read including the device; its CPU time includes the cost of pinning."
                .to_owned(),
        );
    }
    if host.pmd_page.get().is_some() && has_mlock {
        results.caveats.push(
            "mlock of a part of a transparent huge page splits its mapping, so from the second lock \
             on, base pages are locked there, whatever the page size."
                .to_owned(),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_model_goes_by_units_and_contention_by_processors() {
        let (small, large) = ([(1, 8.0), (4, 32.0)], [(1, 1.0), (4, 2.0)]);
        let near = |a: Option<f64>, b: f64| (a.unwrap() - b).abs() < b * 0.02;
        // Four threads on two processors take twice as long without any contention.
        assert!(near(compare(&small, &small, 1.0, 2)[1].0, 2.0));
        let large = compare(&large, &small, 1.0 / 64.0, 2);
        assert!(near(large[1].0, 1.0) && near(large[0].1, 8.0 / 64.0));
    }
}
