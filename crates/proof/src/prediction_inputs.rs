//! Observation of a process for a prediction (`hugeleaf_verdict::predict`), and the cost of a read on this host.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hugeleaf_host::process::cpu_time::cpu_usage;
use hugeleaf_host::{Host, Process, ReadDetail, Root, read_process};
use hugeleaf_mover::{WorkingSetOptions, may_walk, sample};
use hugeleaf_sys::{Kernel, Pid};
use hugeleaf_units::{Bytes, PageKind, PageSize};
use hugeleaf_verdict::predict::{ProcessActivity, ReadLatency, merge, promotable_ranges};
use hugeleaf_workload::PageArm;

use crate::bench::chase::{ChaseSettings, READ, cache_line, measure};
use crate::bench::{BenchContext, BenchError};
use crate::metric::{Reading, between};
use crate::result_format::{ParameterValue, Results};

/// Duration of a scan short enough to miss few second touches; the page-table walk adds to it.
const SHORT: Duration = Duration::from_millis(2);
/// Memory touched in this time is the working set.
const LONG: Duration = Duration::from_secs(1);
/// Number of short scans, spread over the available time.
const LOOKS: u32 = 9;

#[derive(Debug)]
pub struct ObservedProcesses {
    /// Processes that lived until the end, in the order of the request.
    pub processes: Vec<Process>,
    /// The observations of all of them, joined.
    pub watched: ProcessActivity,
    /// Longest time in one scan during which the kernel kept a process from mapping memory.
    pub longest_walk: Duration,
}

/// Watches processes in parallel.
///
/// # Errors
/// No process could be watched, with the reason of the first; or a stop was requested.
pub fn observe(
    kernel: &Kernel,
    place: (&Root, &Host),
    pids: &[Pid],
    watch: WorkingSetOptions<'_>,
) -> Result<ObservedProcesses, String> {
    // The CPU's counters are never waited for.
    let goes_on = AtomicBool::new(false);
    let mut walks = walk_cycles(pids);
    let began = walks.as_mut().and_then(|metric| metric.read(&goes_on).ok());
    let from = kernel.now();
    let one = |pid| move || observe_one(kernel, place, pid, watch);
    let all: Vec<_> = std::thread::scope(|scope| {
        let watching: Vec<_> = pids.iter().map(|pid| scope.spawn(one(*pid))).collect();
        let lost = |_| Err("the scanning thread ended".to_owned());
        let ended = watching.into_iter().map(|thread| thread.join());
        ended.map(|came| came.unwrap_or_else(lost)).collect()
    });
    if watch.stop.load(Ordering::Relaxed) {
        return Err("stopped on request".to_owned());
    }
    let elapsed = kernel.now().saturating_sub(from);
    let walks = walks.as_mut().zip(began).and_then(|(metric, began)| {
        let now: Reading = metric.read(&goes_on).ok()?;
        between("walk-cycles", &began, &now, elapsed).ok()
    });
    let (seen, failed): (Vec<_>, Vec<_>) = all.into_iter().partition(Result::is_ok);
    let mut seen: Vec<ProcessObservation> = seen.into_iter().flatten().collect();
    let parts: Vec<ProcessActivity> = seen.iter_mut().map(|one| one.watched.clone()).collect();
    let Some(watched) = merge(&parts) else {
        let first = failed.into_iter().find_map(Result::err);
        return Err(first.unwrap_or_else(|| "no process was found".to_owned()));
    };
    Ok(ObservedProcesses {
        longest_walk: seen.iter().map(|one| one.longest).max().unwrap_or_default(),
        processes: seen.into_iter().map(|one| one.process).collect(),
        watched: ProcessActivity { walks, ..watched },
    })
}

/// Observation of one process.
struct ProcessObservation {
    process: Process,
    watched: ProcessActivity,
    longest: Duration,
}

fn observe_one(
    kernel: &Kernel,
    (root, host): (&Root, &Host),
    pid: Pid,
    watch: WorkingSetOptions<'_>,
) -> Result<ProcessObservation, String> {
    // Reading its mappings takes as long as a scan.
    may_walk(kernel, root, pid, watch.held)?;
    let process = read_process(root, kernel, host, pid, ReadDetail::Segments);
    let process = process.map_err(|e| e.to_string())?;
    let ranges = promotable_ranges(host, &process);
    let (from, before) = (
        kernel.now(),
        cpu_usage(root, pid).map_err(|e| e.to_string())?,
    );
    let one = |time| {
        sample(
            kernel,
            root,
            pid,
            &ranges,
            WorkingSetOptions { time, ..watch },
        )
    };
    let mut scans = Vec::new();
    let pause = watch.time.saturating_sub(LONG) / LOOKS;
    for _ in 0..LOOKS {
        let sample = one(SHORT)?;
        scans.push(sample);
        if !kernel.wait(pause.saturating_sub(sample.seen.time), watch.stop) {
            return Err("stopped on request".to_owned());
        }
    }
    scans.push(one(LONG)?);
    let elapsed = kernel.now().saturating_sub(from);
    let used = cpu_usage(root, pid)
        .map_err(|e| e.to_string())?
        .since(&before);
    Ok(ProcessObservation {
        process,
        longest: scans
            .iter()
            .map(|sample| sample.cost)
            .max()
            .unwrap_or_default(),
        watched: ProcessActivity {
            base_page: host.base_page,
            scans: scans.into_iter().map(|sample| sample.seen).collect(),
            time: elapsed,
            user: used.user,
            system: used.system,
            busiest: used.busiest(),
            waited: used.waited,
            faults: used.minor_faults,
            walks: None,
        },
    })
}

/// Opens the share of cycles in page walks, if the CPU counts it; a CPU that counts only walks gives no share.
fn walk_cycles(pids: &[Pid]) -> Option<crate::Metric> {
    let metric = crate::metric::walk_cycles(pids, None).ok()?;
    metric.unit.starts_with("share").then_some(metric)
}

/// Measures the cost of a dependent random read on this host, in `size` or in as much memory as may be taken.
pub fn reads(machine: &BenchContext<'_>, size: Bytes) -> Result<ReadLatency, BenchError> {
    /// A larger size makes little difference, and takes long to lay out.
    const MOST: Bytes = Bytes::from_mib(512);
    let Some(huge) = machine.host.pmd_page.get() else {
        return Err(BenchError::PagesMissing(crate::bench::MissingPages {
            from: Bytes::ZERO,
            reason: "this host has no transparent huge pages".to_owned(),
            next: "hugeleaf status".to_owned(),
        }));
    };
    // Memory of both kinds exists at the same time.
    let size = size
        .min(MOST)
        .min(Bytes(machine.most.get() / 3))
        .max(huge.bytes());
    let settings = ChaseSettings {
        arms: vec![PageArm::base(machine.host), large(huge)],
        sizes: vec![size],
        time: Duration::from_secs(2),
        rounds: 9,
        seed: 1,
        line: cache_line(machine.root),
    };
    let results = measure(&settings, machine, &mut |_| {})?;
    table(&results, size).ok_or(BenchError::Stopped)
}

fn large(size: PageSize) -> PageArm {
    PageArm {
        size,
        kind: PageKind::Thp,
    }
}

/// Returns the cost of a read in a result of `bench chase`, at the working set nearest to `size`. The fastest sample
/// counts, as the least disturbed one. `None` if base or huge pages are missing in the result.
pub fn table(results: &Results, size: Bytes) -> Option<ReadLatency> {
    let mut by_size: BTreeMap<Bytes, (Option<f64>, Option<f64>)> = BTreeMap::new();
    for row in results.rows.iter().filter(|row| row.quantity.name == READ) {
        let place = row.at.first().map(|place| &place.value);
        let fastest = row.values().into_iter().reduce(f64::min);
        let (Some(ParameterValue::Bytes(at)), Some(fastest)) = (place, fastest) else {
            continue;
        };
        let arm = results.arms.iter().find(|arm| arm.name == row.arm)?;
        let cell = by_size.entry(*at).or_default();
        match arm.kind {
            Some(PageKind::Base) => cell.0 = Some(fastest),
            // The last of several sizes is the largest.
            Some(PageKind::Thp) => cell.1 = Some(fastest),
            _ => {}
        }
    }
    let both = by_size.into_iter().filter_map(|(size, cell)| {
        Some(ReadLatency {
            size,
            base_ns: cell.0?,
            large_ns: cell.1?,
        })
    });
    let far = |reads: &ReadLatency| (reads.size.as_f64() / size.as_f64().max(1.0)).ln().abs();
    both.min_by(|a, b| far(a).total_cmp(&far(b)))
}
