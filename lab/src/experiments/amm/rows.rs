//! Makes rows of the samples of each second: throughput by phase and by second, memory by server, and the columns of
//! the study of Oracle 11g.

use std::time::Duration;

use crate::kits::tpcc::DatabaseCounters;
use hugeleaf_units::Bytes;

use super::load::{AmmLoad, NAMES};

use hugeleaf_proof::result_format::{Chart, Parameter, Quantity, Results, Sample};

/// State of both servers at a moment. Counters start at some moment before the phase.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ServersSample {
    /// Seconds since the load began.
    pub(super) at: f64,
    /// Reads by key, or transactions of the order entry.
    pub(super) operations: u64,
    /// Reads by key of each server; 0 for the order entry.
    pub(super) each: [u64; 2],
    /// Statements of a report or a flood.
    pub(super) others: u64,
    pub(super) counters: DatabaseCounters,
    pub(super) commits: u64,
    pub(super) pools: [Bytes; 2],
    /// Resident memory of both processes together.
    pub(super) resident: Option<Bytes>,
}

/// A phase of a run: a sample at its beginning, and one each second.
#[derive(Debug)]
pub(super) struct PhaseSeen {
    pub(super) name: &'static str,
    pub(super) looks: Vec<ServersSample>,
}

/// A run of an arm and a load.
#[derive(Debug)]
pub(super) struct RunSeen {
    pub(super) phases: Vec<PhaseSeen>,
    /// Part of both buffer pools on huge pages at the end.
    pub(super) large: Option<f64>,
    /// The balancer's log.
    pub(super) log: Option<String>,
}

const UNIT: &str = "operations/s";

pub(super) fn main() -> Quantity {
    Quantity::rate("throughput", UNIT).main()
}

/// Length of the window for the worst seconds, in samples of 1 s.
const WORST: usize = 3;

/// Results of the study of Oracle 11g: automatic memory management on base pages, manual on huge pages.
pub(super) const PUBLISHED: &str = "published for Oracle 11g, a second, automatic on base pages and manual on 2M: transactions 905 \
     and 872, logical reads 36,742 and 36,411, block changes 10,195 and 10,101, physical reads 4287 and 4864, physical \
     writes 2817 and 2928";

pub(super) fn charts() -> Vec<Chart> {
    let memory = |name: &str| {
        let y = memory_of(name);
        let title = format!("Buffer pool of {name}, second by second");
        Chart::over_time(&y, &title)
    };
    vec![
        Chart::bars("throughput", "Throughput"),
        Chart::over_time("throughput by second", "Throughput, second by second"),
        memory(NAMES[0]),
        memory(NAMES[1]),
        Chart::over_time(
            "resident",
            "Resident memory of both servers, second by second",
        ),
    ]
}

fn memory_of(name: &str) -> String {
    format!("memory of {name}")
}

/// Returns the place of a load, and of a phase of it.
pub(super) fn places(load: AmmLoad, phase: Option<&str>) -> Vec<Parameter> {
    let load = Parameter::text("load", load.name());
    let phase = phase.map(|phase| Parameter::text("phase", phase));
    [load].into_iter().chain(phase).collect()
}

/// Adds a run of an arm and a load.
pub(super) fn add(
    results: &mut Results,
    (arm, load, round): (&str, AmmLoad, usize),
    run: &RunSeen,
    settle: Duration,
) {
    let whole = places(load, None);
    for (quantity, value) in of_whole(run) {
        results.add(arm, &whole, quantity, Sample::new(round, value));
    }
    for phase in &run.phases {
        let at = places(load, Some(phase.name));
        for (quantity, value) in of_phase(&phase.looks, settle) {
            results.add(arm, &at, quantity, Sample::new(round, value));
        }
    }
    for (quantity, at_seconds, value) in by_second(run) {
        let sample = Sample {
            at_seconds: Some(at_seconds),
            ..Sample::from(value)
        };
        results.add(arm, &whole, quantity, sample);
    }
}

fn of_whole(run: &RunSeen) -> Vec<(Quantity, f64)> {
    let looks = || run.phases.iter().map(|phase| phase.looks.as_slice());
    let seconds: f64 = looks().filter_map(seconds).sum();
    let mut known = Vec::new();
    if seconds > 0.0 {
        let all = looks()
            .map(|looks| grown(looks, |look| look.operations))
            .sum::<f64>();
        known.push((main(), all / seconds));
    }
    let large = Quantity::plain("coverage at the end", "");
    known.extend(run.large.map(|part| (large, part)));
    known
}

fn seconds(looks: &[ServersSample]) -> Option<f64> {
    let (first, last) = (looks.first()?, looks.last()?);
    Some(last.at - first.at).filter(|seconds| *seconds > 0.0)
}

fn grown(looks: &[ServersSample], of: impl Fn(&ServersSample) -> u64) -> f64 {
    match (looks.first(), looks.last()) {
        (Some(first), Some(last)) => of(last).saturating_sub(of(first)) as f64,
        _ => 0.0,
    }
}

fn of_phase(looks: &[ServersSample], settle: Duration) -> Vec<(Quantity, f64)> {
    let Some(length) = seconds(looks) else {
        return Vec::new();
    };
    let operations = grown(looks, |look| look.operations);
    let (plain, amount) = (Quantity::plain, Quantity::amount);
    let mut known = vec![(main(), operations / length)];
    let began = looks[0].at;
    let settled = looks
        .iter()
        .position(|look| look.at >= began + settle.as_secs_f64());
    let settled = settled.map(|from| &looks[from..]);
    if let Some((looks, length)) = settled.and_then(|looks| Some((looks, seconds(looks)?))) {
        let rate = grown(looks, |look| look.operations) / length;
        known.push((Quantity::rate("throughput, settled", UNIT), rate));
    }
    let worst = looks
        .windows(WORST + 1)
        .filter_map(|looks| Some(grown(looks, |look| look.operations) / seconds(looks)?));
    let worst = worst.min_by(f64::total_cmp);
    known.extend(worst.map(|rate| (Quantity::rate("worst 3 s", UNIT), rate)));
    for (name, count) in columns(looks) {
        known.push((plain(&format!("{name} a second"), ""), count / length));
        if operations > 0.0 {
            let each = amount(&format!("{name} an operation"), "");
            known.push((each, count / operations));
        }
    }
    for (at, name) in NAMES.iter().enumerate() {
        let part = worst_of_moves(looks, |look| look.each[at]);
        let said = format!("worst 3 s of {name} while memory moves, over before");
        known.extend(part.map(|part| (plain(&said, ""), part)));
    }
    let others = grown(looks, |look| look.others);
    if others > 0.0 {
        let statements = plain("statements of the other a second", "");
        known.push((statements, others / length));
    }
    let most = |of: &dyn Fn(&ServersSample) -> Option<Bytes>| looks.iter().filter_map(of).max();
    let resident = most(&|look| look.resident);
    known.extend(resident.map(|bytes| (amount("resident, most", "bytes"), bytes.as_f64())));
    let pools = most(&|look| Some(look.pools[0] + look.pools[1]));
    known.extend(pools.map(|bytes| (amount("buffer pools, most", "bytes"), bytes.as_f64())));
    known
}

/// Returns a server's rate in the worst 3 s of the moves, relative to its rate before them. The moves last from the
/// first change of a buffer pool to the last. `None` if nothing moved, or too early for a rate before the moves.
fn worst_of_moves(looks: &[ServersSample], of: impl Fn(&ServersSample) -> u64) -> Option<f64> {
    let moved = |both: &[ServersSample]| both[0].pools != both[1].pools;
    let first = looks.windows(2).position(moved)?;
    let last = looks.windows(2).rposition(moved)? + 1;
    let before = Some(&looks[..=first]).filter(|before| before.len() > WORST)?;
    let rate = |looks: &[ServersSample]| Some(grown(looks, &of) / seconds(looks)?);
    let during = &looks[first..looks.len().min(last + WORST)];
    let worst = { during.windows(WORST + 1).filter_map(rate) }.min_by(f64::total_cmp)?;
    Some(worst / rate(before)?).filter(|part| part.is_finite())
}

/// Returns the columns of the study, for both servers together.
fn columns(looks: &[ServersSample]) -> Vec<(&'static str, f64)> {
    let of = |of: fn(&DatabaseCounters) -> Option<u64>| {
        let is_known = looks.iter().all(|look| of(&look.counters).is_some());
        is_known.then(|| grown(looks, |look| of(&look.counters).unwrap_or(0)))
    };
    let all = [
        ("logical reads", of(|counters| counters.logical_reads)),
        ("block changes", of(|counters| counters.block_changes)),
        ("physical reads", of(|counters| counters.physical_reads)),
        ("physical writes", of(|counters| counters.physical_writes)),
    ];
    all.into_iter()
        .filter_map(|(name, count)| Some((name, count?)))
        .collect()
}

/// Returns the quantities of each second, with the second.
fn by_second(run: &RunSeen) -> Vec<(Quantity, f64, f64)> {
    let plain = Quantity::plain;
    let mut known = Vec::new();
    // Orders are not counted per server.
    let mut all = run.phases.iter().flat_map(|phase| &phase.looks);
    let is_by_server = all.any(|look| look.each != [0; 2]);
    for looks in run.phases.iter().flat_map(|phase| phase.looks.windows(2)) {
        let (Some(length), at) = (seconds(looks), looks[1].at.round()) else {
            continue;
        };
        let rate = grown(looks, |look| look.operations) / length;
        known.push((plain("throughput by second", UNIT), at, rate));
        for (name, count) in columns(looks) {
            known.push((plain(&format!("{name} by second"), ""), at, count / length));
        }
        for (which, name) in NAMES.iter().enumerate().filter(|_| is_by_server) {
            let rate = grown(looks, |look| look.each[which]) / length;
            known.push((plain(&format!("throughput of {name}"), UNIT), at, rate));
        }
        for (name, pool) in NAMES.iter().zip(looks[1].pools) {
            known.push((plain(&memory_of(name), "bytes"), at, pool.as_f64()));
        }
        let resident = looks[1].resident;
        known.extend(resident.map(|bytes| (plain("resident", "bytes"), at, bytes.as_f64())));
    }
    known
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the samples of a phase, with the given operations in each second.
    fn looks(from: f64, operations: &[u64]) -> Vec<ServersSample> {
        let mut look = ServersSample {
            at: from,
            counters: DatabaseCounters {
                physical_reads: Some(0),
                ..DatabaseCounters::default()
            },
            pools: [Bytes(3), Bytes(50)],
            ..ServersSample::default()
        };
        let mut all = vec![look];
        for count in operations {
            look.at += 1.0;
            look.operations += count;
            look.counters.physical_reads = Some(2 * look.operations);
            look.pools = [look.pools[0] + Bytes(1), look.pools[1] - Bytes(1)];
            all.push(look);
        }
        all
    }

    fn value(results: &Results, at: &[Parameter], quantity: &str) -> Vec<f64> {
        let row = results.row("amm:large", at, quantity);
        row.unwrap_or_else(|| panic!("no {quantity}")).values()
    }

    #[test]
    fn a_server_that_stands_still_while_memory_moves_is_seen() {
        let seen = |operations: &[u64], moved: std::ops::Range<usize>| {
            let mut looks = looks(0.0, operations);
            let mut pool = Bytes(0);
            for (at, look) in looks.iter_mut().enumerate() {
                pool += Bytes(u64::from(moved.contains(&at)));
                look.pools = [pool, Bytes(1000) - pool];
                look.each = [look.operations, 0];
            }
            worst_of_moves(&looks, |look| look.each[0])
        };
        // Three seconds of 20, 0 and 40 after four of 100.
        let worst = seen(&[100, 100, 100, 100, 20, 0, 40, 100, 100], 5..8).unwrap();
        assert!((worst - 0.2).abs() < 1e-9, "{worst}");
        // Nothing moved in the first case; in the second the rate before the moves is unknown.
        assert_eq!(seen(&[100, 100, 100, 100, 0, 0, 0], 0..0), None);
        assert_eq!(seen(&[100, 0, 0, 0, 0, 0, 0], 1..3), None);
    }

    #[test]
    fn seconds_become_phases_and_phases_a_whole() {
        let run = RunSeen {
            phases: vec![
                PhaseSeen {
                    name: "a busy",
                    looks: looks(0.0, &[10, 20, 90, 10, 20, 90]),
                },
                PhaseSeen {
                    name: "b busy",
                    looks: looks(6.0, &[1, 1]),
                },
            ],
            large: Some(0.5),
            log: None,
        };
        let mut results = Results::empty("amm", "");
        let settle = Duration::from_secs(4);
        add(&mut results, ("amm:large", AmmLoad::Swap, 0), &run, settle);
        let (whole, first) = (
            places(AmmLoad::Swap, None),
            places(AmmLoad::Swap, Some("a busy")),
        );
        assert_eq!(value(&results, &first, "throughput"), [40.0]);
        assert_eq!(value(&results, &first, "throughput, settled"), [55.0]);
        assert_eq!(value(&results, &first, "worst 3 s"), [40.0]);
        assert_eq!(value(&results, &first, "physical reads a second"), [80.0]);
        assert_eq!(
            value(&results, &first, "physical reads an operation"),
            [2.0]
        );
        assert_eq!(value(&results, &first, "buffer pools, most"), [53.0]);
        // Quantities that the server does not count have no row, nor have phases that were too short.
        assert!(
            results
                .row("amm:large", &first, "logical reads a second")
                .is_none()
        );
        let second = places(AmmLoad::Swap, Some("b busy"));
        assert!(
            results
                .row("amm:large", &second, "throughput, settled")
                .is_none()
        );
        assert!(results.row("amm:large", &second, "worst 3 s").is_none());
        assert_eq!(value(&results, &whole, "throughput"), [242.0 / 8.0]);
        assert_eq!(value(&results, &whole, "coverage at the end"), [0.5]);
        let memory = value(&results, &whole, "memory of a");
        assert_eq!(memory, [4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 4.0, 5.0]);
        let row = results
            .row("amm:large", &whole, "throughput by second")
            .unwrap();
        assert_eq!(row.samples[6].at_seconds, Some(7.0));
        // Quantities by second are a row, and no two of its samples are of one round.
        Results::read(&results_with_arm(results).to_json()).unwrap();
    }

    fn results_with_arm(mut results: Results) -> Results {
        results
            .arms
            .push(hugeleaf_proof::result_format::ArmInfo::named("amm:large"));
        results
    }
}
