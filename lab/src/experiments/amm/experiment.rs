//! `hugeleaf-lab amm` from its settings to its result.

use hugeleaf_units::Bytes;
use serde_json::{Value as Json, json};

use super::AmmSettings;
use super::arm::AmmArm;
use super::load::AmmLoad;
use super::rows::{PUBLISHED, add, charts, main, places};
use super::run::AmmRun;
use super::tenant::Tenants;
use hugeleaf_proof::bench::BenchRun;
use hugeleaf_proof::bench::{BenchContext, BenchError, BenchEvent};
use hugeleaf_proof::result_format::{ArmInfo, Results};

/// Runs all loads on all arms.
///
/// # Errors
/// [`BenchError`].
pub fn measure(
    settings: &AmmSettings,
    machine: &BenchContext<'_>,
    progress: &mut dyn FnMut(BenchEvent),
) -> Result<Results, BenchError> {
    check(settings, machine)?;
    let mut run = BenchRun::new(
        "amm",
        (settings.seed, settings_json(settings)),
        machine,
        progress,
    );
    run.results.charts = charts();
    run.results.remarks = vec![PUBLISHED.to_owned()];
    for load in &settings.loads {
        let phases = load.phases().iter().map(|phase| Some(phase.name));
        for phase in [None].into_iter().chain(phases) {
            for arm in &settings.arms {
                let samples = if phase.is_none() { settings.rounds } else { 0 };
                let arm = ArmInfo::named(arm.to_string());
                run.expect(arm, places(*load, phase), samples);
            }
        }
    }
    let went = take_turns(settings, machine, &mut run);
    run.ended(went)?;
    run.on_a_virtual_machine(
        "its disk belongs to its host, so a miss in a buffer pool may cost more or less than on a \
         physical disk.",
    );
    run.finish(&main())
}

fn take_turns(
    settings: &AmmSettings,
    machine: &BenchContext<'_>,
    run: &mut BenchRun<'_>,
) -> Result<(), BenchError> {
    let mut tenants = Tenants::fill(settings, machine, run.progress)?;
    describe(&mut run.results, settings, &tenants.version()?);
    let mut cells: Vec<(AmmLoad, AmmArm)> = Vec::new();
    for load in &settings.loads {
        cells.extend(settings.arms.iter().map(|arm| (*load, *arm)));
    }
    let mut lacking = Vec::new();
    let mut logs = Vec::new();
    run.rounds(settings.rounds, &cells, |run, round, (load, arm)| {
        if lacking.contains(&arm) {
            run.skip(1);
            return Ok(());
        }
        let label = arm.to_string();
        run.step(format!("round {}: {}, {label}", round + 1, load.name()));
        let one = AmmRun {
            settings,
            machine,
            arm,
            load,
            seed: settings.seed.wrapping_add(round as u64),
        };
        match one.measure(&mut tenants) {
            Ok(seen) => {
                add(
                    &mut run.results,
                    (&label, load, round),
                    &seen,
                    settings.settle,
                );
                if let Some(log) = &seen.log {
                    let lines: Vec<&str> = log.lines().collect();
                    logs.push(json!({"arm": label, "load": load.name(), "round": round + 1, "log": lines}));
                    // Logs are stored with the samples to explain unexpected runs.
                    let all = json!(logs);
                    run.results.analysis.insert("balance_logs".into(), all);
                }
            }
            Err(BenchError::PagesMissing(why)) => {
                run.lacks(&label, &[], &why);
                lacking.push(arm);
            }
            Err(error) => return Err(error),
        }
        Ok(())
    })
}

fn check(settings: &AmmSettings, machine: &BenchContext<'_>) -> Result<(), BenchError> {
    if settings.target > machine.most {
        return Err(BenchError::TooLarge {
            what: "the target of both buffer pools".to_owned(),
            asked: settings.target,
            most: machine.most,
        });
    }
    // A smaller target leaves nothing to move between the servers.
    let need = Bytes(settings.least.get().saturating_mul(4));
    if settings.target < need {
        return Err(BenchError::usage(
            format!(
                "bench amm: a target of {} leaves no memory to transfer, because each server keeps at least {}",
                settings.target, settings.least
            ),
            format!("hugeleaf-lab amm --target {need}"),
        ));
    }
    Ok(())
}

/// Returns the settings as stored in the result.
fn settings_json(settings: &AmmSettings) -> Json {
    json!({
        "target_bytes": settings.target,
        "least_bytes": settings.least,
        "phase_seconds": settings.phase.as_secs_f64(),
        "settle_seconds": settings.settle.as_secs_f64(),
        "every_seconds": settings.every.as_secs_f64(),
        "connections": settings.connections,
        "rounds": settings.rounds,
        "durability": settings.durability.name(),
        "warehouses": settings.warehouses,
    })
}

/// Fills in the title and the method of the results.
fn describe(results: &mut Results, settings: &AmmSettings, version: &str) {
    let loads: Vec<&str> = settings.loads.iter().map(|load| load.name()).collect();
    results.experiment.title = format!(
        "Operations a second of two {version} servers that share {}; reads by primary key, and \
         transactions by the rules of TPC-C (tpcc)",
        settings.target
    );
    results.experiment.how = format!(
        "loads {}; each phase {} s, sampled once a second; servers are restarted and warmed for each \
         run, and bypass the page cache; settled means {} s after the start of a phase; seed {}",
        loads.join(", "),
        settings.phase.as_secs(),
        settings.settle.as_secs(),
        settings.seed
    );
    results.settings.insert("server".to_owned(), json!(version));
    if settings.loads.iter().any(|load| load.is_tpcc()) {
        results.caveats.push(
            "the load follows the rules of TPC-C, but this is no TPC-C result: compare it only with \
             results of hugeleaf"
                .to_owned(),
        );
    }
    if settings.phase <= settings.settle {
        results.caveats.push(format!(
            "phases of {} s are not longer than the {} s that memory may take to settle",
            settings.phase.as_secs(),
            settings.settle.as_secs()
        ));
    }
}
