//! `bench chase`: the latency of a dependent random read, by working set and page size.
//!
//! Working sets go from small to large. For each, every arm gets its memory once if all arms fit
//! together. The memory is laid out, which warms it, and its pages are read back. Then the arms are
//! measured round by round in a new random order, so that drift affects all alike. Before each
//! sample the arm reads untimed, because the arm before has filled the caches. At the end the pages
//! are read back again. If the arms do not fit together, each allocates and frees its memory within
//! its turn.

use std::time::{Duration, Instant};

use hugeleaf_host::{PageUsage, Root};
use hugeleaf_units::{Bytes, PageKind};
use hugeleaf_workload::{ChaseMemory, ChaseWalk, PageArm};
use serde_json::json;

use super::bench_run::BenchRun;
use super::page_check::{held_by_folio, page_mismatch};
use super::{BenchContext, BenchError, BenchEvent, MissingPages};
use crate::result_format::{ArmInfo, Chart, PageLayout, Parameter, Quantity, Results, Sample};

pub const READ: &str = "dependent read";

/// Hops between two clock readings: enough to make a reading negligible, few enough to end a sample
/// in time.
const HOPS_A_LOOK: u64 = 2_000;
/// Minimum duration of a sample, to keep clock errors negligible.
const SHORTEST: Duration = Duration::from_millis(1);
/// Maximum duration of untimed reads before a sample, in durations of a sample.
const WARM_AT_MOST: u32 = 2;

#[derive(Debug, Clone)]
pub struct ChaseSettings {
    /// The arms; base pages first if present.
    pub arms: Vec<PageArm>,
    pub sizes: Vec<Bytes>,
    /// Total measuring time, without allocating and warming memory.
    pub time: Duration,
    pub rounds: usize,
    pub seed: u64,
    pub line: Bytes,
}

/// Returns the length of a cache line, as the kernel reports it for the first CPU's first cache,
/// else 64 bytes. With a longer line than assumed, two reads may share a line, and one is too fast.
pub fn cache_line(root: &Root) -> Bytes {
    const USUAL: Bytes = Bytes(64);
    let text = root.read("sys/devices/system/cpu/cpu0/cache/index0/coherency_line_size");
    let line = text.known().and_then(|text| text.trim().parse().ok());
    line.filter(|line| *line > 0).map_or(USUAL, Bytes)
}

/// Runs the measurement.
///
/// # Errors
/// [`BenchError`]; all memory is returned then.
pub fn measure(
    settings: &ChaseSettings,
    machine: &BenchContext<'_>,
    progress: &mut dyn FnMut(BenchEvent),
) -> Result<Results, BenchError> {
    if let Some(large) = settings.sizes.iter().find(|size| **size > machine.most) {
        return Err(BenchError::TooLarge {
            what: "a working set".to_owned(),
            asked: *large,
            most: machine.most,
        });
    }
    let (line, sample) = (settings.line.get(), sample_time(settings));
    let used = json!({
        "rounds": settings.rounds, "for_seconds": settings.time.as_secs_f64(),
        "sample_seconds": sample.as_secs_f64(), "line_bytes": line, "most_bytes": machine.most,
    });
    let mut run = BenchRun::new("chase", (settings.seed, used), machine, progress);
    let about = &mut run.results.experiment;
    about.title = "time of a dependent random read, by working set and page size".to_owned();
    about.how = format!(
        "one cycle through every {line} bytes of the working set, in an order drawn from seed {}; {} rounds, the arms \
         in a new order in each; {:.2} s a sample, after an untimed warm-up",
        settings.seed,
        settings.rounds,
        sample.as_secs_f64()
    );
    let by = |title| Chart::by("working_set_bytes", READ, title);
    run.results.charts = vec![
        by("Time of a read by working set"),
        by("Time of a read relative to the first arm").over_first(),
    ];
    for arm in &settings.arms {
        for size in &settings.sizes {
            run.expect(ArmInfo::from_arm(*arm), place(*size), settings.rounds);
        }
    }
    let went = (settings.sizes.iter()).try_for_each(|size| working_set(&mut run, settings, *size));
    run.ended(went)?;
    caveats(&mut run);
    run.finish(&read())
}

fn read() -> Quantity {
    Quantity::time(READ, "ns").main()
}

fn place(size: Bytes) -> Vec<Parameter> {
    vec![Parameter::number("working_set_bytes", size.get())]
}

struct ChaseArm {
    arm: PageArm,
    walk: Option<ChaseWalk>,
    before: Option<PageReadback>,
    after: Option<PageReadback>,
}

fn working_set(
    run: &mut BenchRun<'_>,
    settings: &ChaseSettings,
    size: Bytes,
) -> Result<(), BenchError> {
    run.taking(size);
    let machine = run.machine;
    let together = fits_together(settings, size, machine.most);
    let mut open = Vec::new();
    for arm in settings.arms.iter().copied() {
        run.go_on()?;
        let Some(walk) = take(run, settings, arm, size)? else {
            run.skip(settings.rounds);
            continue;
        };
        open.push(ChaseArm {
            arm,
            before: Some(read_back_pages(walk.memory(), arm, size, machine)?),
            after: None,
            walk: together.then_some(walk),
        });
    }
    let all: Vec<usize> = (0..open.len()).collect();
    let went = run.rounds(settings.rounds, &all, |run, round, at| {
        run.step(format!("{size} on {}", open[at].arm));
        one_sample(run, settings, size, round, &mut open[at])
    });
    for mut one in open {
        if let Some(walk) = &one.walk {
            one.after = Some(read_back_pages(walk.memory(), one.arm, size, machine)?);
        }
        close(&mut run.results, size, one, together);
    }
    went
}

/// True if memory of all arms may be held at a time; pools do not count.
fn fits_together(settings: &ChaseSettings, size: Bytes, most: Bytes) -> bool {
    let ordinary = settings.arms.iter();
    let ordinary = ordinary.filter(|arm| arm.kind != PageKind::Hugetlb);
    let needed: Bytes = ordinary.filter_map(|arm| arm.whole(size)).sum();
    needed <= most
}

/// Allocates an arm's memory and lays a path through it; `None` if it is unavailable, which is
/// recorded.
fn take(
    run: &mut BenchRun<'_>,
    settings: &ChaseSettings,
    arm: PageArm,
    size: Bytes,
) -> Result<Option<ChaseWalk>, BenchError> {
    let seed = run.random.u64(..);
    match ChaseMemory::take(arm, size, run.machine.host) {
        Ok(memory) => Ok(Some(ChaseWalk::lay(memory, size, settings.line, seed))),
        Err(error) => {
            let shortage = MissingPages::from_error(size, error)?;
            run.lacks(&arm.to_string(), &[], &shortage);
            Ok(None)
        }
    }
}

fn one_sample(
    run: &mut BenchRun<'_>,
    settings: &ChaseSettings,
    size: Bytes,
    round: usize,
    one: &mut ChaseArm,
) -> Result<(), BenchError> {
    if let Some(walk) = &mut one.walk {
        measure_one(run, sample_time(settings), walk, (round, one.arm, size));
        return Ok(());
    }
    let Some(mut walk) = take(run, settings, one.arm, size)? else {
        return Ok(());
    };
    let before = read_back_pages(walk.memory(), one.arm, size, run.machine)?;
    one.before = Some(PageReadback::worse(one.before.take(), before));
    measure_one(
        run,
        sample_time(settings),
        &mut walk,
        (round, one.arm, size),
    );
    let after = read_back_pages(walk.memory(), one.arm, size, run.machine)?;
    one.after = Some(PageReadback::worse(one.after.take(), after));
    Ok(())
}

/// Takes a sample: reads untimed once around or for a limited time, then timed.
fn measure_one(
    run: &mut BenchRun<'_>,
    time: Duration,
    walk: &mut ChaseWalk,
    (round, arm, size): (usize, PageArm, Bytes),
) {
    let mut left = walk.lines();
    let began = Instant::now();
    while left > 0 && began.elapsed() < time * WARM_AT_MOST && run.go_on().is_ok() {
        let hops = left.min(HOPS_A_LOOK);
        walk.go(hops);
        left -= hops;
    }
    let at_seconds = Some(run.seconds());
    let began = Instant::now();
    let mut hops = 0u64;
    let elapsed = loop {
        walk.go(HOPS_A_LOOK);
        hops += HOPS_A_LOOK;
        let elapsed = began.elapsed();
        if elapsed >= time {
            break elapsed;
        }
        // A partial sample is discarded, and the round has none.
        if run.go_on().is_err() {
            return;
        }
    };
    let hops = hops as f64;
    let nanoseconds = Sample {
        at_seconds,
        ..Sample::new(round, elapsed.as_secs_f64() * 1e9 / hops)
    };
    let (arm, at, reads) = (arm.to_string(), place(size), Quantity::plain("reads", ""));
    run.results.add(&arm, &at, read(), nanoseconds);
    run.results.add(&arm, &at, reads, Sample::new(round, hops));
}

fn close(results: &mut Results, size: Bytes, one: ChaseArm, together: bool) {
    let (arm, at) = (one.arm.to_string(), place(size));
    let mut rows = results.rows.iter_mut();
    let Some(row) = rows.find(|row| row.arm == arm && row.at == at && row.quantity.main) else {
        return;
    };
    let [before, after] = [one.before, one.after].map(Option::unwrap_or_default);
    row.doubtful = before.note.is_some() || after.note.is_some();
    row.note = match (before.note, after.note) {
        (None, Some(note)) => Some(format!("afterwards {note}")),
        (note, _) => note,
    };
    for (when, pages) in [("before", before.pages), ("after", after.pages)] {
        results.layouts.push(PageLayout {
            note: (!together).then(|| "memory was allocated anew for each sample".to_owned()),
            ..PageLayout::new(&arm, &at, when, pages)
        });
    }
}

#[derive(Debug, Clone, PartialEq, Default)]
struct PageReadback {
    pages: Vec<PageUsage>,
    note: Option<String>,
}

impl PageReadback {
    /// Returns the first state with a deviation, else the later state.
    fn worse(before: Option<PageReadback>, now: PageReadback) -> PageReadback {
        before.filter(|seen| seen.note.is_some()).unwrap_or(now)
    }
}

/// Reads back the page sizes of the first `length` bytes, and compares them with the arm.
fn read_back_pages(
    memory: &ChaseMemory,
    arm: PageArm,
    length: Bytes,
    machine: &BenchContext<'_>,
) -> Result<PageReadback, BenchError> {
    let pages = match memory.pages(length)? {
        Some(pages) => Ok(pages),
        None => held_by_folio(memory.range(), machine),
    };
    Ok(match pages {
        Ok(pages) => judge(pages, arm, length, memory),
        Err(reason) => PageReadback {
            pages: Vec::new(),
            note: Some(reason),
        },
    })
}

fn judge(pages: Vec<PageUsage>, arm: PageArm, length: Bytes, memory: &ChaseMemory) -> PageReadback {
    // Memory is whole pages, so it may exceed the working set.
    let mismatch = page_mismatch(&pages, arm, PageUsage::total(&pages).max(length));
    let why = || memory.why().map_or_else(String::new, |w| format!(": {w}"));
    PageReadback {
        note: mismatch.map(|text| text + &why()),
        pages,
    }
}

fn sample_time(settings: &ChaseSettings) -> Duration {
    let samples = settings.sizes.len() * settings.arms.len() * settings.rounds;
    let samples = u32::try_from(samples.max(1)).unwrap_or(u32::MAX);
    (settings.time / samples).max(SHORTEST)
}

fn caveats(run: &mut BenchRun<'_>) {
    run.on_a_virtual_machine(
        "gains also depend on the page sizes of its host, which are not visible from the guest.",
    );
    run.explain_doubts();
    let (host, results) = (run.machine.host, &mut run.results);
    if results.layouts.iter().any(|layout| layout.note.is_some()) {
        results.caveats.push(
            "The largest working sets did not fit into memory together, so each arm allocated its \
             memory anew for every sample."
                .to_owned(),
        );
    }
    let Some(large) = host.pmd_page.get() else {
        return;
    };
    let is_small = |arm: &&ArmInfo| {
        arm.kind == Some(PageKind::Thp) && arm.page_bytes.is_some_and(|size| size < large)
    };
    let has_rows = |arm: &ArmInfo| results.rows.iter().any(|row| row.arm == arm.name);
    if results.arms.iter().filter(is_small).any(has_rows) {
        results.caveats.push(format!(
            "Transparent huge pages below {large} are mapped by entries of {}. Their gain comes \
             from contiguity, on CPUs that coalesce such entries in the TLB.",
            host.base_page
        ));
    }
}

#[cfg(test)]
mod tests;
