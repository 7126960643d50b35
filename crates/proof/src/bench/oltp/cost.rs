//! What it costs on the arms to translate an address, once they have run.

use std::time::Duration;

use hugeleaf_units::{Bytes, PageKind};
use hugeleaf_workload::PageArm;

use super::order::{Order, Progress, Setup};
use super::translation::{by_chase, by_counters};
use super::{NOT_COUNTED, OltpResult};
use crate::bench::chase::{ChaseSettings, cache_line, measured as chase};
use crate::bench::{BenchEvent, Machine};

/// Rounds of `bench chase`: enough for an interval.
const ROUNDS: u32 = 6;
/// How long a sample of it is.
const SAMPLE: Duration = Duration::from_secs(1);

/// Fills it in: from the processor's counters, or where it has none from `bench chase` over memory
/// as long as the cache.
pub(super) fn add(
    result: &mut OltpResult,
    order: &Order,
    setup: Setup,
    machine: &Machine<'_>,
    progress: Progress<'_>,
) {
    if let Some(counted) = by_counters(result) {
        result.translation = Some(counted);
        return;
    }
    let why = why_not(result);
    let arms = distinct_arms(result, order, machine);
    let distinct: Vec<PageArm> = arms.iter().map(|(_, arm)| *arm).collect();
    let length = fitting(setup.cache, &distinct, machine.most);
    let settings = ChaseSettings {
        time: SAMPLE * ROUNDS * u32::try_from(distinct.len()).unwrap_or(1),
        arms: distinct,
        sizes: vec![length],
        rounds: ROUNDS as usize,
        seed: order.seed,
        most: machine.most,
        line: cache_line(machine.root),
    };
    let mut steps = |event: BenchEvent| {
        if let BenchEvent::At { .. } = event {
            progress(event);
        }
    };
    match chase(&settings, machine, &mut steps) {
        Ok(measured) => {
            let labels = arms.iter();
            let labels: Vec<(String, String)> = labels
                .map(|(label, arm)| (label.clone(), arm.to_string()))
                .collect();
            let why = format!("{why}; over {length} of memory");
            result.translation = Some(by_chase(&labels, &measured, why));
        }
        // What the load gave stands.
        Err(error) => result.caveats.push(format!(
            "what a read costs on these pages was not measured: {error}"
        )),
    }
}

/// The arms that ran, each kind of page once: locked base pages are base pages to whoever reads
/// them, and the samples of one are not shown as those of the other.
fn distinct_arms(
    result: &OltpResult,
    order: &Order,
    machine: &Machine<'_>,
) -> Vec<(String, PageArm)> {
    let mut arms: Vec<(String, PageArm)> = Vec::new();
    for pages in &order.pages {
        let label = pages.label(machine.host);
        let has_run = result
            .runs
            .iter()
            .any(|run| run.arm.as_ref() == Some(&label));
        if let Some(arm) = pages.arm(machine.host)
            && has_run
            && arms.iter().all(|(_, known)| *known != arm)
        {
            arms.push((label, arm));
        }
    }
    arms
}

/// The length of memory on which all arms fit together.
fn fitting(cache: Bytes, arms: &[PageArm], most: Bytes) -> Bytes {
    let ordinary = arms.iter().filter(|arm| arm.kind != PageKind::Hugetlb);
    let ordinary = ordinary.count().max(1) as u64;
    let largest = arms.iter().filter(|arm| arm.kind != PageKind::Hugetlb);
    let page = largest.map(|arm| arm.size).max();
    let each = Bytes(most.get() / ordinary);
    let whole = page.map_or(each.get(), |page| page.round_down(each.get()));
    cache.min(Bytes(whole))
}

/// Why the processor did not count, as the runs have noted it; the note goes.
fn why_not(result: &mut OltpResult) -> String {
    let note = result
        .caveats
        .iter()
        .position(|c| c.starts_with(NOT_COUNTED));
    match note {
        Some(at) => {
            let note = result.caveats.remove(at);
            result
                .caveats
                .retain(|caveat| !caveat.starts_with(NOT_COUNTED));
            note
        }
        None => "the processor's counters were not read".to_owned(),
    }
}
