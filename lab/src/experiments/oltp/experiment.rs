//! `hugeleaf-lab oltp` from its order to its result. Fills a database, drives it on the pages of each arm in turn,
//! and measures at the end the cost of an address translation on these pages.

use crate::kits::tpcc::PostgresStore;
use serde_json::json;

use super::embedded::MeasuredSqlite;
use super::external_server::ExternalServer;
use super::rows::{AS_IT_IS, charts, main, remarks};
use super::settings::{DerivedSettings, MeasuredDatabase, OltpDatabase, OltpSettings, ServerKind};
use super::{OltpPages, derived_settings, mariadb, postgres, translation_cost};
use hugeleaf_proof::bench::BenchRun;
use hugeleaf_proof::bench::{BenchContext, BenchError, BenchEvent};
use hugeleaf_proof::result_format::{ArmInfo, PageLayout, Parameter, Results, Sample};

/// The server kinds that can be started.
pub static SERVERS: &[ServerKind] = &[postgres::KIND, mariadb::KIND];

/// Makes all runs.
///
/// # Errors
/// [`BenchError`].
pub fn measure(
    order: &OltpSettings,
    machine: &BenchContext<'_>,
    progress: &mut dyn FnMut(BenchEvent),
) -> Result<Results, BenchError> {
    let setup = DerivedSettings::from_settings(order, machine)?;
    let server: Box<dyn MeasuredDatabase + '_> = match &order.database {
        OltpDatabase::Sqlite(folder) => Box::new(MeasuredSqlite {
            folder,
            order,
            machine,
        }),
        OltpDatabase::ExternalServer(dsn) => Box::new(ExternalServer {
            store: PostgresStore::new(dsn, order.durability)?,
            order,
            machine,
        }),
        OltpDatabase::Started(kind, _) => (kind.make)(order, machine),
    };
    let mut run = BenchRun::new("oltp", (order.seed, json!({})), machine, progress);
    match order.pages.is_empty() {
        true => as_it_is(server, setup, run),
        false => {
            let ended = on_pages(server, order, setup, &mut run);
            run.ended(ended)?;
            if order.translation {
                translation_cost::add(&mut run, order, setup);
            }
            run.finish(&main()).map_err(|error| match error {
                BenchError::NoData { .. } | BenchError::Stopped => BenchError::no(
                    "bench oltp: none of the requested pages were available, or the run was stopped",
                    "hugeleaf status    # lists the page sizes",
                ),
                error => error,
            })
        }
    }
}

fn as_it_is(
    mut server: Box<dyn MeasuredDatabase + '_>,
    setup: DerivedSettings,
    mut run: BenchRun<'_>,
) -> Result<Results, BenchError> {
    server.start(None, setup)?;
    let one = server.drive(None, setup, run.progress)?;
    run.expect(ArmInfo::named(AS_IT_IS), Vec::new(), 1);
    run.results.charts = charts(None);
    run.results.remarks = remarks(None);
    add(&mut run.results, (AS_IT_IS, None, &[]), 0, one);
    run.finish(&main())
}

/// Runs all arms at all steps, then drops the server: its memory is free before other memory is measured.
fn on_pages(
    mut server: Box<dyn MeasuredDatabase + '_>,
    order: &OltpSettings,
    setup: DerivedSettings,
    run: &mut BenchRun<'_>,
) -> Result<(), BenchError> {
    for pages in &order.pages {
        server.check(*pages)?;
    }
    server.fill(run.progress)?;
    let went = take_turns(server.as_mut(), order, setup, run);
    run.results.caveats.extend(server.caveats());
    went
}

fn take_turns(
    server: &mut dyn MeasuredDatabase,
    order: &OltpSettings,
    setup: DerivedSettings,
    run: &mut BenchRun<'_>,
) -> Result<(), BenchError> {
    let mut arms: Vec<(String, OltpPages)> = Vec::new();
    for pages in &order.pages {
        let label = pages.label(run.machine.host);
        if arms.iter().all(|(known, _)| *known != label) {
            arms.push((label, *pages));
        }
    }
    let steps = derived_settings::steps(order);
    let place = steps.as_ref().map(|(place, _)| *place);
    let at = |step: Option<u64>| -> Vec<Parameter> {
        let both = place.zip(step).into_iter();
        both.map(|(place, step)| Parameter::number(place, step))
            .collect()
    };
    run.results.charts = charts(place);
    run.results.remarks = remarks(place);
    let values = steps.map_or(vec![None], |(_, all)| all.into_iter().map(Some).collect());
    let mut cells = Vec::new();
    for step in &values {
        for (arm, (label, _)) in arms.iter().enumerate() {
            run.expect(ArmInfo::named(label), at(*step), order.rounds);
            cells.push((arm, *step));
        }
    }
    let mut lacking = Vec::new();
    let went = run.rounds(order.rounds, &cells, |run, round, cell| {
        if lacking.contains(&cell) {
            run.skip(1);
            return Ok(());
        }
        let (arm, step) = cell;
        let (label, pages) = &arms[arm];
        let (pages, at, setup) = (Some(*pages), at(step), setup.at(order, step));
        let where_ = step.map_or_else(String::new, |step| format!(" at {step}"));
        run.step(format!("round {}: {label}{where_}", round + 1));
        // The progress of all runs says more than that of this one.
        let ran = server
            .start(pages, setup)
            .and_then(|()| server.drive(pages, setup, &mut |_| {}));
        match ran {
            Ok(one) => add(&mut run.results, (label, step, &at), round, one),
            Err(BenchError::PagesMissing(why)) => {
                run.lacks(label, &at, &why);
                lacking.push(cell);
            }
            Err(error) => return Err(error),
        }
        Ok(())
    });
    if let Some(place) = place {
        let by = place.trim_end_matches("_bytes");
        let steps = json!({ "by": by, "values": values });
        run.results.settings.insert("steps".to_owned(), steps);
    }
    let seen = run.results.layouts.iter();
    let astray = seen.filter(|seen| seen.verified == Some(false));
    let astray: Vec<_> = astray
        .map(|seen| (seen.arm.clone(), seen.at.clone()))
        .collect();
    for (arm, at) in astray {
        run.doubt(&arm, &at, None);
    }
    went
}

/// Adds a run of an arm at a step. The first run adds the values that all runs have in common.
fn add(
    results: &mut Results,
    (arm, step, at): (&str, Option<u64>, &[Parameter]),
    round: usize,
    mut run: Results,
) {
    for row in run.rows {
        for sample in row.samples {
            let sample = Sample::new(round, sample.value);
            results.add(arm, at, row.quantity.clone(), sample);
        }
    }
    results
        .layouts
        .extend(run.layouts.into_iter().map(|seen| PageLayout {
            arm: arm.to_owned(),
            at: at.to_vec(),
            round: Some(round),
            ..seen
        }));
    for caveat in run.caveats {
        if !results.caveats.contains(&caveat) {
            results.caveats.push(caveat);
        }
    }
    let counted = run.settings.remove("counted_by");
    for one in counted.iter().flat_map(|all| all.as_array()).flatten() {
        let by = json!({ "arm": arm, "round": round, "at": step, "by": one["by"] });
        let all = results
            .settings
            .entry("counted_by")
            .or_insert_with(|| json!([]));
        all.as_array_mut()
            .into_iter()
            .for_each(|all| all.push(by.clone()));
    }
    let (about, of_run) = (&mut results.experiment, run.experiment);
    if about.title.is_empty() {
        (about.title, about.how) = (of_run.title, of_run.how);
        let own = std::mem::take(&mut results.settings);
        results.settings = run.settings;
        results.settings.extend(own);
    }
}

#[cfg(test)]
mod tests;
