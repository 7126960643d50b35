//! Measurement of a described workload, from settings to result.

use std::collections::BTreeMap;

use hugeleaf_units::{Bytes, PageKind};
use hugeleaf_workload::workload_file::{
    LoopKind, MetricDirection, Runner, WorkloadMetric, WorkloadSpec,
};
use serde_json::{Value as Json, json};

use super::WorkloadBenchSettings;
use super::arm::WorkloadArm;
use super::arm_run::{ArmRun, ArmRunResult, MatrixPoint, failed, variables};
use crate::bench::bench_run::BenchRun;
use crate::bench::{BenchContext, BenchError, BenchEvent, MissingPages};
use crate::result_format::{ArmInfo, Chart, Parameter, Quantity, Results, Sample};

/// Number of failures after which an arm is skipped at a place.
const FAILURES: usize = 2;

/// A huge-page arm is doubtful below this share on its pages, and a base-page arm above the second share on huge pages.
const ENOUGH: f64 = 0.5;
const HARDLY: f64 = 0.1;

pub fn measure(
    settings: &WorkloadBenchSettings<'_>,
    machine: &BenchContext<'_>,
    progress: &mut dyn FnMut(BenchEvent),
) -> Result<Results, BenchError> {
    let described = settings.described;
    check(settings, machine)?;
    let points = described.points();
    let mut run = BenchRun::new(
        &described.name,
        (settings.seed, settings_json(settings)),
        machine,
        progress,
    );
    run.results.charts = charts(described);
    describe(&mut run.results, settings);
    for point in &points {
        for arm in &settings.arms {
            run.expect(arm_about(arm, machine), places(point), settings.rounds);
        }
    }
    if let Some(before) = &settings.resume {
        resume(&mut run.results, before, settings)?;
    }
    let went = stage(settings, machine, &points, &mut run);
    run.ended(went)?;
    check_samples(&run.results, settings)?;
    if run.results.rows.iter().any(|row| row.doubtful) {
        run.explain_doubts();
    }
    run.on_a_virtual_machine(
        "TLB-miss cost also depends on the hypervisor's nested paging; compare ratios, not times.",
    );
    let main = quantity(described.main()).main();
    run.finish(&main)
}

fn check(
    settings: &WorkloadBenchSettings<'_>,
    machine: &BenchContext<'_>,
) -> Result<(), BenchError> {
    let described = settings.described;
    let name = &described.name;
    for (variable, arm) in settings.arms.iter().flat_map(|arm| {
        let names = arm.set.iter().map(|(variable, _)| variable);
        names.map(move |variable| (variable, arm))
    }) {
        let is_known =
            described.set.contains_key(variable) || described.sizes.contains_key(variable);
        if !is_known {
            return Err(BenchError::usage(
                format!(
                    "bench {name}: the arm {arm} sets '{variable}', which the workload does not have"
                ),
                settings.dry_run("shows its variables and commands"),
            ));
        }
    }
    match described.needs.unmet_here(machine.most, &settings.below) {
        None => Ok(()),
        Some(unmet) => Err(BenchError::missing(
            format!("bench {name} cannot run here: {}", unmet.message),
            unmet.remedy,
        )),
    }
}

fn check_samples(
    results: &Results,
    settings: &WorkloadBenchSettings<'_>,
) -> Result<(), BenchError> {
    let has_any = results.rows.iter().any(|row| !row.samples.is_empty());
    let reason = results
        .rejected
        .first()
        .and_then(|rejected| rejected["reason"].as_str());
    match reason {
        Some(reason) if !has_any && !results.experiment.is_interrupted() => Err(BenchError::no(
            format!("no run has succeeded; first failure: {reason}"),
            settings.dry_run("shows its commands"),
        )),
        _ => Ok(()),
    }
}

fn settings_json(settings: &WorkloadBenchSettings<'_>) -> serde_json::Value {
    let arms: BTreeMap<&str, _> = (settings.arms.iter())
        .map(|arm| {
            let set: BTreeMap<_, _> = arm.set.iter().cloned().collect();
            let environment: BTreeMap<_, _> = arm.environment.iter().cloned().collect();
            (
                arm.name.as_str(),
                json!({"set": set, "environment": environment}),
            )
        })
        .collect();
    json!({
        "rounds": settings.rounds,
        "arms_set": arms,
        "matrix": settings.described.matrix,
        "workload": settings.text,
    })
}

fn describe(results: &mut Results, settings: &WorkloadBenchSettings<'_>) {
    let described = settings.described;
    results.experiment.title.clone_from(&described.title);
    let restarted = match described.server {
        Some(_) => "the server is started and filled anew for each run",
        None => "each run is a new process",
    };
    let looped = match described.load.looped {
        LoopKind::Closed => "closed loop",
        LoopKind::Open => "open loop at a fixed rate",
    };
    let runs = if settings.rounds == 1 { "run" } else { "runs" };
    results.experiment.how = format!(
        "{} {runs} of each arm; {restarted}; {looped}; arms take turns in random order, seed {}",
        settings.rounds, settings.seed
    );
    results
        .remarks
        .extend((!described.effect.is_empty()).then(|| described.effect.clone()));
    let more = &mut results.experiment.more;
    if !described.kind.is_empty() {
        more.insert("kind".to_owned(), json!(described.kind));
    }
}

fn charts(described: &WorkloadSpec) -> Vec<Chart> {
    let main = &described.main().name;
    let bars = Chart::bars(main, main);
    let numeric = described.matrix.iter().find(|(_, values)| {
        values.len() > 2 && values.iter().all(|value| value.parse::<u64>().is_ok())
    });
    let curve = numeric.map(|(name, _)| Chart::by(name, main, &format!("{main} by {name}")));
    [Some(bars), curve].into_iter().flatten().collect()
}

fn arm_about(arm: &WorkloadArm, machine: &BenchContext<'_>) -> ArmInfo {
    let pages = arm
        .pages
        .and_then(|pages| pages.required_pages(machine.host));
    match pages {
        Some(pages) => ArmInfo {
            name: arm.name.clone(),
            ..ArmInfo::from_arm(pages)
        },
        None => ArmInfo::named(&arm.name),
    }
}

fn places(point: &MatrixPoint) -> Vec<Parameter> {
    let place = |(name, value): &(String, String)| match value.parse() {
        Ok(number) => Parameter::number(name, number),
        Err(_) => Parameter::text(name, value),
    };
    point.iter().map(place).collect()
}

fn quantity(measure: &WorkloadMetric) -> Quantity {
    match measure.better {
        Some(MetricDirection::Higher) => Quantity::rate(&measure.name, &measure.unit),
        Some(MetricDirection::Lower) => Quantity::amount(&measure.name, &measure.unit),
        None => Quantity::plain(&measure.name, &measure.unit),
    }
}

fn resume(
    results: &mut Results,
    before: &Results,
    settings: &WorkloadBenchSettings<'_>,
) -> Result<(), BenchError> {
    let keys = ["workload", "matrix", "arms_set", "seed"];
    let differs = keys
        .into_iter()
        .find(|key| before.settings.get(*key) != results.settings.get(*key));
    // Resuming may add rounds, so that two sets of results can take turns.
    let rounds = |of: &Results| of.settings.get("rounds").and_then(Json::as_u64);
    let has_more = rounds(before) > rounds(results);
    let differs = differs.or(has_more.then_some("pairs (it has more already)"));
    let name = &settings.described.name;
    if let Some(key) = differs.or((before.experiment.name != *name).then_some("workload")) {
        return Err(BenchError::usage(
            format!("bench {name}: cannot resume: the result differs in {key}"),
            "use the same flags and workload file, or leave --resume out",
        ));
    }
    results.rows.clone_from(&before.rows);
    results.rejected.clone_from(&before.rejected);
    results
        .experiment
        .started
        .clone_from(&before.experiment.started);
    Ok(())
}

fn stage(
    settings: &WorkloadBenchSettings<'_>,
    machine: &BenchContext<'_>,
    points: &[MatrixPoint],
    run: &mut BenchRun<'_>,
) -> Result<(), BenchError> {
    let described = settings.described;
    let stage = Runner::new(described, &settings.below, machine.stop);
    let stage = stage.map_err(|e| failed(settings, "folder", e))?;
    if let Some(caveat) = stage.shared_folders_warning() {
        (run.progress)(BenchEvent::Note(caveat.to_owned()));
        run.results.caveats.push(caveat.to_owned());
    }
    if let Some(prepare) = &described.prepare {
        run.taking(format!("{}: preparing", described.name));
        let arm = common(&settings.arms);
        let variables = variables(settings, machine, &arm, &MatrixPoint::new(), 0);
        let prepared = stage.run(("prepare", prepare), (&variables, &[]), None, &mut |_| {});
        prepared.map_err(|e| failed(settings, "prepare", e))?;
    }
    let arms = 0..settings.arms.len();
    let cells: Vec<(usize, usize)> = arms
        .flat_map(|arm| (0..points.len()).map(move |p| (arm, p)))
        .collect();
    let mut failures: BTreeMap<(usize, usize), usize> = BTreeMap::new();
    let main = &described.main().name;
    let mut last = None;
    run.rounds(settings.rounds, &cells, |run, round, cell| {
        if last.replace(round).is_some_and(|last| last != round) {
            keep(settings, &run.results);
        }
        let (arm, point) = (&settings.arms[cell.0], &points[cell.1]);
        let at = places(point);
        let known = run.results.row(&arm.name, &at, main);
        let is_there = known.is_some_and(|row| row.samples.iter().any(|s| s.round == Some(round)));
        if is_there || failures.get(&cell).is_some_and(|n| *n >= FAILURES) {
            run.skip(1);
            return Ok(());
        }
        run.step(format!("round {}: {arm}{}", round + 1, in_words(point)));
        let turn = ArmRun {
            settings,
            machine,
            stage: &stage,
            arm,
            round,
            variables: variables(settings, machine, arm, point, round),
        };
        match turn.take() {
            Ok(samples) => add(&mut run.results, &turn, &at, samples),
            Err(BenchError::PagesMissing(why)) => {
                run.lacks(&arm.name, &at, &why);
                failures.insert(cell, FAILURES);
            }
            Err(BenchError::Stopped) => return Err(BenchError::Stopped),
            Err(error) => {
                reject(run, &turn, &at, &error);
                let failed = failures.entry(cell).or_default();
                *failed += 1;
                if *failed >= FAILURES {
                    let missing = MissingPages {
                        from: Bytes::ZERO,
                        reason: error.to_string(),
                        next: error.next(),
                    };
                    run.lacks(&arm.name, &at, &missing);
                }
            }
        }
        Ok(())
    })
}

/// Returns the settings common to all arms, for preparing their shared data.
fn common(arms: &[WorkloadArm]) -> WorkloadArm {
    let sets = |arm: &WorkloadArm, pair: &(String, String)| arm.set.contains(pair);
    let first = arms.first().map_or(&[][..], |arm| arm.set.as_slice());
    let all = first
        .iter()
        .filter(|pair| arms.iter().all(|arm| sets(arm, pair)));
    WorkloadArm {
        set: all.cloned().collect(),
        ..WorkloadArm::default()
    }
}

fn keep(settings: &WorkloadBenchSettings<'_>, results: &Results) {
    let mut results = results.clone();
    "interrupted".clone_into(&mut results.experiment.ending);
    (settings.keep)(&results);
}

fn in_words(point: &MatrixPoint) -> String {
    point
        .iter()
        .map(|(name, value)| format!(", {name} {value}"))
        .collect()
}

fn reject(run: &mut BenchRun<'_>, turn: &ArmRun<'_>, at: &[Parameter], error: &BenchError) {
    let reason = error.to_string();
    (run.progress)(BenchEvent::Note(format!(
        "round {}, {}: no sample: {reason}",
        turn.round + 1,
        turn.arm
    )));
    let at: serde_json::Map<_, _> = at
        .iter()
        .map(|place| (place.name.clone(), place.value.to_json()))
        .collect();
    run.results.rejected.push(json!({
        "arm": turn.arm.name, "at": at, "round": turn.round, "reason": reason,
    }));
}

fn add(results: &mut Results, turn: &ArmRun<'_>, at: &[Parameter], taken: ArmRunResult) {
    let (arm, described) = (turn.arm, turn.settings.described);
    let mut put = |quantity: Quantity, value: f64| {
        results.add(&arm.name, at, quantity, Sample::new(turn.round, value));
    };
    let figures = described.measures.iter().zip(&taken.figures).enumerate();
    for (n, (measure, figure)) in figures {
        let quantity = quantity(measure);
        put(
            if n == 0 { quantity.main() } else { quantity },
            figure.value,
        );
    }
    let side = [
        ("cpu", "processor time", "s"),
        ("faults", "page faults", ""),
    ];
    for (counter, name, unit) in side {
        if let Some(value) = taken.counted.get(counter) {
            put(Quantity::amount(name, unit), *value);
        }
    }
    let asked = arm
        .pages
        .and_then(|pages| pages.required_pages(turn.machine.host));
    let part = taken.seen.part(asked);
    if let Some(part) = part {
        put(
            Quantity::amount("resident", "bytes"),
            taken.seen.resident.as_f64(),
        );
        put(
            Quantity::amount("page tables", "bytes"),
            taken.seen.page_tables.as_f64(),
        );
        put(Quantity::plain("coverage", ""), part);
    }
    if let Some(seconds) = taken.promoted_seconds {
        put(Quantity::plain("promoting", "s"), seconds);
    }
    let doubt = doubt(arm, asked.map(|arm| arm.kind), part);
    let main = &described.main().name;
    let mut rows = results.rows.iter_mut();
    if let Some(why) = doubt
        && let Some(row) =
            rows.find(|row| row.arm == arm.name && row.at == at && row.quantity.name == *main)
    {
        row.doubtful = true;
        row.note = Some(why);
    }
}

/// Returns the reason for doubt about the pages of an arm's memory.
fn doubt(arm: &WorkloadArm, kind: Option<PageKind>, part: Option<f64>) -> Option<String> {
    let part = part.filter(|_| arm.pages.is_some())?;
    let percent = 100.0 * part;
    match kind {
        Some(PageKind::Base) if part > HARDLY => {
            Some(format!("{percent:.0} % of it was on huge pages"))
        }
        Some(PageKind::Base) => None,
        _ if part < ENOUGH => Some(format!("{percent:.0} % of it was on these pages")),
        _ => None,
    }
}
