//! What it costs on the arms to translate an address, once they have run.

use std::time::Duration;

use hugeleaf_proof::bench::BenchEvent;
use hugeleaf_proof::bench::chase::{ChaseSettings, cache_line, run as chase};
use hugeleaf_proof::bench::oltp::{OltpArm, OltpResult, by_chase, by_counters};
use hugeleaf_units::{Bytes, PageKind};
use hugeleaf_workload::PageArm;

use super::{Args, Bar, Ground, Setup};
use crate::context::Context;

/// Rounds of `bench chase`: enough for an interval.
const ROUNDS: u32 = 6;
/// How long a sample of it is.
const SAMPLE: Duration = Duration::from_secs(1);

/// Fills it in: from the processor's counters, or where it has none from `bench chase` over memory
/// as long as the cache.
pub(super) fn add(
    result: &mut OltpResult,
    args: &Args,
    setup: Setup,
    ground: &Ground,
    context: &Context,
) {
    if args.no_translation {
        return;
    }
    if let Some(counted) = by_counters(result) {
        result.translation = Some(counted);
        return;
    }
    let why = why_not(result);
    let arms = distinct_arms(result, args, ground);
    let distinct: Vec<PageArm> = arms.iter().map(|(_, arm)| *arm).collect();
    let length = fitting(setup.cache, &distinct, ground.most);
    let settings = ChaseSettings {
        time: SAMPLE * ROUNDS * u32::try_from(distinct.len()).unwrap_or(1),
        arms: distinct,
        sizes: vec![length],
        rounds: ROUNDS as usize,
        seed: args.seed,
        most: ground.most,
        line: cache_line(&context.root),
    };
    let bar = Bar::new();
    let mut progress = |event: BenchEvent| {
        if let BenchEvent::At { .. } = event {
            bar.show(&event);
        }
    };
    let (root, stop) = (&context.root, &context.stop);
    let circumstances = &ground.circumstances;
    match chase(
        &settings,
        root,
        &ground.host,
        circumstances,
        &mut progress,
        stop,
    ) {
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
fn distinct_arms(result: &OltpResult, args: &Args, ground: &Ground) -> Vec<(String, PageArm)> {
    let mut arms: Vec<(String, PageArm)> = Vec::new();
    for pages in &args.pages {
        let label = pages.label(&ground.host);
        let ran = |arm: &OltpArm| arm.label == label && !arm.samples.is_empty();
        if let Some(arm) = pages.arm(&ground.host)
            && result.arms.iter().any(ran)
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
    const START: &str = hugeleaf_proof::bench::oltp::NOT_COUNTED;
    let note = result.caveats.iter().position(|c| c.starts_with(START));
    match note {
        Some(at) => {
            let note = result.caveats.remove(at);
            result.caveats.retain(|caveat| !caveat.starts_with(START));
            note
        }
        None => "the processor's counters were not read".to_owned(),
    }
}
