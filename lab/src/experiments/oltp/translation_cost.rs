//! The cost of an address translation on the arms, after they have run.

use std::time::Duration;

use hugeleaf_units::{Bytes, PageKind};
use hugeleaf_workload::PageArm;
use serde_json::Value as Json;

use super::run::NOT_COUNTED;
use super::settings::{DerivedSettings, OltpSettings};
use super::watch::CountedEvents;
use hugeleaf_proof::bench::BenchEvent;
use hugeleaf_proof::bench::BenchRun;
use hugeleaf_proof::bench::chase::{ChaseSettings, READ, cache_line, measure as chase};
use hugeleaf_proof::result_format::{Quantity, Results, Sample};

/// Rounds of `bench chase`: enough for an interval.
const ROUNDS: u32 = 6;
const SAMPLE: Duration = Duration::from_secs(1);

/// Reports the processor's events. If it has no counters, measures by `bench chase` over memory as
/// long as the cache.
pub(super) fn add(run: &mut BenchRun<'_>, order: &OltpSettings, setup: DerivedSettings) {
    if let Some(by) = counted_by(&run.results) {
        run.results.remarks.push(by.in_words());
        return;
    }
    let why = why_not(&mut run.results.caveats);
    let machine = run.machine;
    let arms = distinct_arms(run, order);
    let distinct: Vec<PageArm> = arms.iter().map(|(_, arm)| *arm).collect();
    let length = fitting(setup.cache, &distinct, machine.most);
    let settings = ChaseSettings {
        time: SAMPLE * ROUNDS * u32::try_from(distinct.len()).unwrap_or(1),
        arms: distinct,
        sizes: vec![length],
        rounds: ROUNDS as usize,
        seed: order.seed,
        line: cache_line(machine.root),
    };
    let mut steps = |event: BenchEvent| {
        if let BenchEvent::At { .. } = event {
            (run.progress)(event);
        }
    };
    match chase(&settings, machine, &mut steps) {
        Ok(measured) => {
            let why = format!("translation, by dependent reads: {why}; over {length} of memory");
            run.results.remarks.push(why);
            for (label, arm) in &arms {
                let arm = arm.to_string();
                let own = measured.rows.iter();
                let own = own.filter(|row| row.arm == arm && row.quantity.name == READ);
                for sample in own.flat_map(|row| &row.samples) {
                    let read = Quantity::time(READ, "ns");
                    let sample = Sample::new(sample.round.unwrap_or_default(), sample.value);
                    run.results.add(label, &[], read, sample);
                }
            }
        }
        // The results of the load remain valid.
        Err(error) => run.results.caveats.push(format!(
            "the cost of a read on these pages was not measured: {error}"
        )),
    }
}

/// Returns the events that were counted in the first run at the largest step.
fn counted_by(results: &Results) -> Option<CountedEvents> {
    let all = results.settings.get("counted_by").and_then(Json::as_array);
    let largest = results.settings.get("steps");
    let largest = largest.and_then(|steps| steps["values"].as_array()?.last());
    let mut all = all.into_iter().flatten();
    let by = all.find(|run| largest.is_none_or(|largest| run["at"] == *largest))?;
    serde_json::from_value(by["by"].clone()).ok()
}

/// Returns the arms that ran, each kind of page once. Locked base pages read like base pages, but
/// the samples of one are not shown as those of the other.
fn distinct_arms(run: &BenchRun<'_>, order: &OltpSettings) -> Vec<(String, PageArm)> {
    let mut arms: Vec<(String, PageArm)> = Vec::new();
    for pages in &order.pages {
        let label = pages.label(run.machine.host);
        let has_run = run.results.rows.iter().any(|row| row.arm == label);
        if let Some(arm) = pages.arm(run.machine.host)
            && has_run
            && arms.iter().all(|(_, known)| *known != arm)
        {
            arms.push((label, arm));
        }
    }
    arms
}

/// Returns the length of memory for which all arms fit together.
fn fitting(cache: Bytes, arms: &[PageArm], most: Bytes) -> Bytes {
    let ordinary = || arms.iter().filter(|arm| arm.kind != PageKind::Hugetlb);
    let page = ordinary().map(|arm| arm.size).max();
    let each = Bytes(most.get() / ordinary().count().max(1) as u64);
    let whole = page.map_or(each.get(), |page| page.round_down(each.get()));
    cache.min(Bytes(whole))
}

/// Returns the reason why the processor did not count, and removes the runs' notes of it.
fn why_not(caveats: &mut Vec<String>) -> String {
    let notes = caveats.extract_if(.., |caveat| caveat.starts_with(NOT_COUNTED));
    let first = notes.collect::<Vec<_>>().into_iter().next();
    first.unwrap_or_else(|| "the processor's counters were not read".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn counted(results: &mut Results, all: &[(u64, &str)]) {
        let run = |(at, cycles): &(u64, &str)| json!({ "at": at, "by": { "cycles": cycles, "instructions": "i" } });
        let runs: Vec<Json> = all.iter().map(run).collect();
        results
            .settings
            .insert("counted_by".to_owned(), runs.into());
    }

    #[test]
    fn what_counted_is_that_of_the_largest_step() {
        let mut results = Results::empty("oltp", "");
        assert!(counted_by(&results).is_none());
        counted(&mut results, &[(8, "small"), (32, "large")]);
        let said = counted_by(&results).unwrap().in_words();
        assert!(said.contains("small"), "{said}");
        let steps = json!({ "by": "cache", "values": [8, 32] });
        results.settings.insert("steps".to_owned(), steps);
        let said = counted_by(&results).unwrap().in_words();
        assert!(said.contains("large"), "{said}");
        // At that step nothing was counted.
        counted(&mut results, &[(8, "small")]);
        assert!(counted_by(&results).is_none());
    }

    #[test]
    fn why_it_did_not_count_is_said_once() {
        let note = |why: &str| format!("{NOT_COUNTED}{why}");
        let mut caveats = vec![note("none"), "other".to_owned(), note("not here")];
        assert_eq!(why_not(&mut caveats), note("none"));
        assert_eq!(caveats, ["other"]);
        assert!(why_not(&mut caveats).contains("were not read"));
    }
}
