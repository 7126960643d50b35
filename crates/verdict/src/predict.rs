//! Predicts the gain of huge pages for a process before any change: a range, or the reason for no prediction. Pure.
//!
//! With the processor's counters, the share of time in page walks is known, and so is the maximum gain. Without them, three
//! facts that every host has give an estimate. The number of base pages that the process touches in a short time is the
//! minimum number of translations it needs. Translations beyond the reach of the TLB are misses. The cost of a miss is the
//! additional time of a dependent random read on base pages compared with huge pages, measured here in as much memory. The
//! share of user-mode computation bounds the gain: time that waits for a disk or the kernel gains nothing.
//!
//! The accuracy was tested. The constants are fitted to programs with a proven gain, and docs/figures.md tells how
//! often the proven gain was in the range.

use std::time::Duration;

use hugeleaf_host::{Host, Process};
use hugeleaf_units::{Bytes, PageSize, Range};
use serde::Serialize;

use crate::eligible::{self, MappingKind, Reason};

/// One short scan of the base pages that a process touches.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AccessScan {
    pub time: Duration,
    pub resident: Bytes,
    pub touched: Bytes,
    pub large: Bytes,
}

#[derive(Debug, Clone, PartialEq)]
pub struct ProcessActivity {
    pub base_page: PageSize,
    /// Short scans, and a long one last. The pages touched in one second are the working set.
    pub scans: Vec<AccessScan>,
    pub time: Duration,
    /// User-mode processor time of all threads meanwhile.
    pub user: Duration,
    pub system: Duration,
    pub busiest: Duration,
    /// Time that its threads waited for a processor; `None` if the kernel does not count it.
    pub waited: Option<Duration>,
    pub faults: u64,
    /// Share of its cycles in page walks, if the processor counts them.
    pub walks: Option<f64>,
}

/// Cost of a dependent random read on this host, in as much memory as the working set, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct ReadLatency {
    #[serde(rename = "size_bytes")]
    pub size: Bytes,
    pub base_ns: f64,
    pub large_ns: f64,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct GainPrediction {
    /// Minimum work per time relative to now.
    pub low: f64,
    /// Maximum work per time relative to now.
    pub high: f64,
    pub by: PredictionMethod,
    /// Minimum number of TLB misses per second, if estimated from touched pages.
    pub misses_per_second: Option<f64>,
    /// Base-page memory touched in one second.
    #[serde(rename = "working_set_bytes")]
    pub working_set: Bytes,
    /// Minimum and maximum share of its user-mode time in page walks.
    pub walks: [f64; 2],
    /// Share of its processor time in user mode.
    pub user_share: f64,
    /// Share of time in which its busiest thread runs.
    pub busy: f64,
    pub faults_per_second: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum PredictionMethod {
    WalkCycles,
    TouchedPages,
}

#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum NoPrediction {
    #[error("it was idle ({percent:.0} % of a CPU); run predict again under load")]
    Idle { percent: f64 },
    #[error(
        "it ran for {percent:.0} % of the time and waited for a CPU for {waited:.0} %; run \
         predict again when the host is less busy"
    )]
    Starved { percent: f64, waited: f64 },
    #[error(
        "it uses {0} on base pages that could be huge, which the TLB covers: no gain is possible"
    )]
    FitsTlb(Bytes),
    #[error(
        "its scans found between {low:.0} and {high:.0} touched pages a second: watch it for \
         longer, with --for"
    )]
    Unstable { low: f64, high: f64 },
    #[error("between ×{low:.2} and ×{high:.2}, which is too wide: measure it with hugeleaf prove")]
    TooWide { low: f64, high: f64 },
}

/// Number of base-page translations in a two-level TLB (1,536 in Intel's since Skylake, 2,048 or more in AMD's since Zen
/// 2, by their optimisation manuals).
const REACH: f64 = 1536.0;
/// Minimum share of the miss cost that a program experiences. Other work and sequential reads hide the rest.
const MIN_MISS_SHARE: f64 = 0.3;
/// Maximum share of the miss cost. It exceeds one if several misses occur for each touched page. Redis experienced 3.5
/// and memcached 1.6 times the counted cost (bench/runs/2026-11-25-vm-3).
const MAX_MISS_SHARE: f64 = 4.0;
/// Maximum gain relative to that of a random read. The kernel also touches the program's memory, and page tables that
/// are not read leave room in the caches. Redis gained 1.1 of it.
const MAX_GAIN_OVER_READS: f64 = 1.3;
/// Processor time of a page fault that a huge page would save, in seconds. A first touch of new memory took 1.45 to 1.55
/// µs on base pages and 0.37 to 0.39 µs for the same amount in a huge page (docs/internals/kernel-notes.md).
const FAULT: f64 = 1.1e-6;
const MARGIN: f64 = 0.03;
/// Share of touched pages above which a scan was too long for counting.
const FULL: f64 = 0.9;
/// Maximum width of a prediction. A wider one is not reported.
const WIDEST: f64 = 1.0;

/// Minimum use of one processor for a prediction.
const MIN_USAGE: f64 = 0.05;
/// Maximum ratio between scans, including noise.
const MAX_SCAN_RATIO: f64 = 8.0;

/// Returns the ranges of a process whose pages could be huge by any method: not a file, not on a pool, and long enough.
/// Settings that currently forbid it are ignored.
pub fn promotable_ranges(host: &Host, process: &Process) -> Vec<Range> {
    let could = |segment: &&hugeleaf_host::ProcessMapping| match eligible::mapping(
        host, process, segment,
    ) {
        Err(Reason::Hugetlb | Reason::Special | Reason::TooSmall) => false,
        Ok(kind) => kind != MappingKind::File,
        Err(_) => MappingKind::from_segment(segment) != MappingKind::File,
    };
    process
        .segments
        .iter()
        .filter(could)
        .map(|segment| segment.range)
        .collect()
}

/// Returns the working set, or why nothing can be predicted, before the read cost is measured.
pub fn working_set(watched: &ProcessActivity) -> Result<Bytes, NoPrediction> {
    let used = (watched.user + watched.system).as_secs_f64() / seconds(watched);
    let waited = watched.waited.unwrap_or_default().as_secs_f64() / seconds(watched);
    let percent = used * 100.0;
    if used < MIN_USAGE {
        return Err(match used + waited < MIN_USAGE {
            true => NoPrediction::Idle { percent },
            false => NoPrediction::Starved {
                percent,
                waited: waited * 100.0,
            },
        });
    }
    let touched = watched.scans.iter().map(|scan| scan.touched).max();
    let touched = touched.unwrap_or_default();
    match touched.as_f64() / watched.base_page.bytes().as_f64() <= REACH {
        true => Err(NoPrediction::FitsTlb(touched)),
        false => Ok(touched),
    }
}

/// Combines several processes watched at the same time, such as a server with a process per client. Each has a whole TLB
/// while it runs, so only the pages beyond its reach count. `None` for no processes.
pub fn merge(all: &[ProcessActivity]) -> Option<ProcessActivity> {
    let first = all.first()?;
    if all.len() == 1 {
        return Some(first.clone());
    }
    let page = first.base_page.bytes().as_f64();
    #[expect(clippy::cast_possible_truncation, reason = "some thousand pages")]
    let reach = Bytes((REACH * page) as u64);
    let scan = |at: usize| {
        let scans = || all.iter().filter_map(move |one| one.scans.get(at));
        let beyond: Bytes = scans().map(|scan| scan.touched - reach).sum();
        let most = scans().map(|scan| scan.touched).max().unwrap_or_default();
        let count = u32::try_from(scans().count().max(1)).unwrap_or(u32::MAX);
        AccessScan {
            time: scans().map(|scan| scan.time).sum::<Duration>() / count,
            resident: scans().map(|scan| scan.resident).sum(),
            // The reach that is subtracted once below is for all processes together.
            touched: most.max(beyond + most.min(reach)),
            large: scans().map(|scan| scan.large).sum(),
        }
    };
    let scans = all.iter().map(|one| one.scans.len()).min().unwrap_or(0);
    let waited = all.iter().filter_map(|one| one.waited);
    Some(ProcessActivity {
        base_page: first.base_page,
        scans: (0..scans).map(scan).collect(),
        time: all.iter().map(|one| one.time).max().unwrap_or_default(),
        user: all.iter().map(|one| one.user).sum(),
        system: all.iter().map(|one| one.system).sum(),
        busiest: all.iter().map(|one| one.busiest).max().unwrap_or_default(),
        waited: waited.reduce(|one, other| one + other),
        faults: all.iter().map(|one| one.faults).sum(),
        walks: None,
    })
}

fn seconds(watched: &ProcessActivity) -> f64 {
    watched.time.as_secs_f64().max(1e-6)
}

pub fn predict(
    watched: &ProcessActivity,
    reads: &ReadLatency,
) -> Result<GainPrediction, NoPrediction> {
    let working_set = working_set(watched)?;
    let time = seconds(watched);
    let used = watched.user + watched.system;
    let busy = (watched.busiest.as_secs_f64() / time).min(1.0);
    let user_share = watched.user.as_secs_f64() / used.as_secs_f64();
    let of_read = (1.0 - reads.large_ns / reads.base_ns).max(0.0);
    let bound = MAX_GAIN_OVER_READS * of_read;
    let (misses, is_full) = misses(watched)?;
    let counted = watched.walks.map(|share| share.clamp(0.0, 1.0));
    let of_large = of_large(watched);
    let (by, walks) = match counted {
        // Huge pages do not remove all walks. No test machine could count the share that they remove.
        Some(share) => (
            PredictionMethod::WalkCycles,
            [share * 0.5 * (1.0 - of_large), share],
        ),
        None => {
            let miss = (reads.base_ns - reads.large_ns).max(0.0) * 1e-9;
            let share = misses * miss / watched.user.as_secs_f64().max(0.01) * time;
            let most = if is_full {
                bound
            } else {
                (share * MAX_MISS_SHARE).min(bound)
            };
            (
                PredictionMethod::TouchedPages,
                [(share.min(of_read) * MIN_MISS_SHARE).min(most), most],
            )
        }
    };
    let faults_per_second = watched.faults as f64 / time;
    let faults = (faults_per_second * FAULT / (used.as_secs_f64() / time)).min(1.0 - user_share);
    // A process that waits for others gains less than its computation, possibly nothing.
    let low = gain(walks[0] * user_share * busy) - MARGIN;
    let high = gain(walks[1] * user_share + faults) + MARGIN;
    if high - low > WIDEST {
        return Err(NoPrediction::TooWide { low, high });
    }
    Ok(GainPrediction {
        low,
        high,
        by,
        misses_per_second: counted.is_none().then_some(misses),
        working_set,
        walks,
        user_share,
        busy,
        faults_per_second,
    })
}

/// Returns the speedup if a share of the time disappears.
fn gain(share: f64) -> f64 {
    1.0 / (1.0 - share.clamp(0.0, 0.95))
}

fn of_large(watched: &ProcessActivity) -> f64 {
    let share = |scan: &AccessScan| scan.large.share_of(scan.large + scan.resident);
    watched.scans.last().and_then(share).unwrap_or(0.0)
}

/// Returns the minimum misses per second, as the median of all short scans, and true if they were too long to tell.
fn misses(watched: &ProcessActivity) -> Result<(f64, bool), NoPrediction> {
    let page = watched.base_page.bytes().as_f64();
    let short = &watched.scans[..watched.scans.len().saturating_sub(1)];
    let rate = |scan: &AccessScan| {
        let (all, touched) = (scan.resident.as_f64() / page, scan.touched.as_f64() / page);
        if all <= 0.0 || touched <= REACH {
            return 0.0;
        }
        // Repeated touches count once, so estimate the random touches behind the pages seen.
        let part = (touched / all).min(FULL);
        let touches = -all * (1.0 - part).ln();
        touches * (1.0 - REACH / touched) / scan.time.as_secs_f64().max(1e-6)
    };
    let mut rates: Vec<f64> = short.iter().map(rate).collect();
    rates.sort_by(f64::total_cmp);
    let Some(middle) = rates.get(rates.len() / 2).copied() else {
        return Ok((0.0, true));
    };
    let (low, high) = (rates[rates.len() / 4], rates[rates.len() * 3 / 4]);
    if low * MAX_SCAN_RATIO < high && high > 1e6 {
        return Err(NoPrediction::Unstable { low, high });
    }
    let full = short.iter().filter(|scan| {
        scan.touched
            .share_of(scan.resident)
            .is_some_and(|part| part >= FULL)
    });
    Ok((middle, full.count() * 2 > short.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: u64 = 4096;

    fn scan(millis: u64, resident: u64, touched: u64) -> AccessScan {
        AccessScan {
            time: Duration::from_millis(millis),
            resident: Bytes(resident * PAGE),
            touched: Bytes(touched * PAGE),
            large: Bytes::ZERO,
        }
    }

    /// One thread that computes and touches `touched` of 262,144 pages in 10 ms.
    fn works(touched: u64) -> ProcessActivity {
        let mut scans = vec![scan(10, 1 << 18, touched); 9];
        scans.push(scan(1000, 1 << 18, 1 << 18));
        ProcessActivity {
            base_page: PageSize::new(Bytes(PAGE)).unwrap(),
            scans,
            time: Duration::from_secs(4),
            user: Duration::from_secs(4),
            system: Duration::ZERO,
            busiest: Duration::from_secs(4),
            waited: None,
            faults: 0,
            walks: None,
        }
    }

    const READS: ReadLatency = ReadLatency {
        size: Bytes(1 << 30),
        base_ns: 150.0,
        large_ns: 100.0,
    };

    fn said(watched: &ProcessActivity) -> GainPrediction {
        predict(watched, &READS).unwrap()
    }

    #[test]
    fn more_misses_bring_more() {
        let few = said(&works(2_000));
        let many = said(&works(40_000));
        assert!(
            few.high < many.high && few.low < many.low,
            "{few:?} {many:?}"
        );
        assert!(few.low <= 1.0 && few.high < 1.1, "{few:?}");
        // 40,000 pages in 10 ms are at least four million misses a second of 50 ns each: a fifth of the time.
        let misses = many.misses_per_second.unwrap();
        assert!((4e6..5e6).contains(&misses), "{misses}");
        assert!(many.high > 1.2, "{many:?}");
    }

    #[test]
    fn hardly_more_than_a_read_itself() {
        let all = said(&works(1 << 18));
        let most = 1.0 / (1.0 - MAX_GAIN_OVER_READS / 3.0) + MARGIN;
        assert!(all.high <= most + 1e-9, "{all:?}");
        let same = ReadLatency {
            large_ns: READS.base_ns,
            ..READS
        };
        let none = predict(&works(1 << 18), &same).unwrap();
        assert!(none.low < 1.0 && none.high <= 1.0 + MARGIN, "{none:?}");
    }

    #[test]
    fn what_the_kernel_does_gains_nothing() {
        let mut watched = works(40_000);
        watched.user = Duration::from_secs(1);
        watched.system = Duration::from_secs(3);
        let server = said(&watched);
        assert!((server.user_share - 0.25).abs() < 1e-9);
        // The same misses in a quarter of the time take a larger share of it, but never more than all of it.
        assert!(server.high <= 1.0 / 0.75 + MARGIN);
    }

    #[test]
    fn faults_count_where_there_is_time_in_the_kernel() {
        let mut watched = works(2_000);
        watched.faults = 400_000;
        watched.system = Duration::from_millis(400);
        watched.user = Duration::from_millis(3_600);
        assert!(said(&watched).high > said(&works(2_000)).high);
    }

    /// Ten backends, each idle when judged alone, and one that does as much as all of them.
    #[test]
    fn a_tree_is_judged_as_a_whole() {
        let mut backend = works(5_536);
        backend.user = Duration::from_millis(150);
        backend.busiest = backend.user;
        assert!(matches!(
            working_set(&backend),
            Err(NoPrediction::Idle { .. })
        ));
        let tree = merge(&vec![backend.clone(); 10]).unwrap();
        let all = said(&tree);
        // Each backend touches 4,000 pages beyond a TLB in 10 ms.
        let misses = all.misses_per_second.unwrap();
        assert!((3.9e6..4.1e6).contains(&misses), "{misses}");
        assert_eq!(tree.user, Duration::from_millis(1500));
        // The same work in one process.
        let mut one = works(41_536);
        (one.user, one.busiest) = (tree.user, tree.busiest);
        let one = said(&one);
        assert!((all.low - one.low).abs() < 1e-6 && (all.high - one.high).abs() < 1e-6);
        // Idle processes change nothing.
        let mut idle = works(0);
        (idle.user, idle.busiest) = (Duration::ZERO, Duration::ZERO);
        let mut with_idle = vec![backend; 10];
        with_idle.extend(vec![idle; 50]);
        let with_idle = said(&merge(&with_idle).unwrap());
        assert!((with_idle.high - all.high).abs() < 1e-6);
        assert_eq!(merge(&[]), None);
    }

    #[test]
    fn who_gets_no_processor_does_not_rest() {
        let mut starved = works(40_000);
        (starved.time, starved.user) = (Duration::from_secs(20), Duration::from_millis(250));
        starved.waited = Some(Duration::from_secs(19));
        let error = working_set(&starved).unwrap_err();
        assert!(matches!(error, NoPrediction::Starved { .. }), "{error}");
        let said = error.to_string();
        assert!(said.contains("waited for a CPU for 95 %"), "{said}");
        starved.waited = Some(Duration::from_millis(10));
        let error = working_set(&starved).unwrap_err();
        assert!(matches!(error, NoPrediction::Idle { .. }), "{error}");
    }

    #[test]
    fn counters_are_believed() {
        let mut watched = works(2_000);
        watched.walks = Some(0.3);
        let counted = said(&watched);
        assert_eq!(counted.by, PredictionMethod::WalkCycles);
        assert!(counted.misses_per_second.is_none());
        assert!(counted.low > 1.1 && counted.high > 1.4, "{counted:?}");
    }

    #[test]
    fn what_would_mislead_is_not_said() {
        let mut rests = works(40_000);
        rests.user = Duration::from_millis(40);
        assert!(matches!(
            predict(&rests, &READS),
            Err(NoPrediction::Idle { .. })
        ));
        let mut small = works(1_000);
        for scan in &mut small.scans {
            scan.touched = Bytes(1_000 * PAGE);
        }
        assert!(matches!(
            predict(&small, &READS),
            Err(NoPrediction::FitsTlb(_))
        ));
        let mut varies = works(100_000);
        for scan in &mut varies.scans[..4] {
            scan.touched = Bytes(1_700 * PAGE);
        }
        assert!(matches!(
            predict(&varies, &READS),
            Err(NoPrediction::Unstable { .. })
        ));
        let wide = ReadLatency {
            large_ns: 10.0,
            ..READS
        };
        assert!(matches!(
            predict(&works(1 << 18), &wide),
            Err(NoPrediction::TooWide { .. })
        ));
    }

    #[test]
    fn nothing_at_all_is_no_panic() {
        let mut nothing = works(0);
        nothing.scans.clear();
        nothing.time = Duration::ZERO;
        assert!(predict(&nothing, &READS).is_err());
        nothing.user = Duration::from_secs(1);
        let zero = ReadLatency {
            base_ns: 0.0,
            ..READS
        };
        let _ = predict(&nothing, &zero);
    }
}
