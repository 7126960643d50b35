//! `bench oltp` from what was asked for to its result: fills a database, puts it on the pages of each arm in
//! turn, drives it, and asks at the end what these pages cost to translate.

use hugeleaf_workload::tpcc::TpccError;
use serde_json::json;

use super::arms::{Cell, Grid, Turn, in_turn};
use super::elsewhere::Elsewhere;
use super::embedded::{Embedded, RUN};
use super::order::{Database, Order, Progress, Refusal, Server, ServerKind, Setup};
use super::{OltpResult, cost, postgres, setup};
use crate::bench::{BenchEvent, Machine, Shortage};
use crate::rows::Results;

/// The servers that can be started.
pub static SERVERS: &[ServerKind] = &[postgres::KIND];

/// Has it all run.
///
/// # Errors
/// [`Refusal`], with its text for the user.
pub fn measure(
    order: &Order,
    machine: &Machine<'_>,
    progress: &mut dyn FnMut(BenchEvent),
) -> Result<Results, Refusal> {
    let result = measured(order, machine, progress)?;
    let mut results = result.to_results();
    // A run of its own answers the one that started it, which makes rows of all of them.
    if order.arm.is_some() {
        results.analysis.insert(RUN.to_owned(), json!(result));
    }
    Ok(results)
}

fn measured(
    order: &Order,
    machine: &Machine<'_>,
    progress: Progress<'_>,
) -> Result<OltpResult, Refusal> {
    let setup = Setup::of(order, machine)?;
    let mut server: Box<dyn Server + '_> = match &order.database {
        Database::Sqlite(folder) => Box::new(Embedded::new(folder, order, machine)),
        Database::Elsewhere(dsn) => Box::new(Elsewhere::new(dsn, order, machine)?),
        Database::Started(kind, _) => (kind.make)(order, machine),
    };
    if order.pages.is_empty() {
        // Only an arm can lack pages.
        server.start(None, setup)?;
        return match server.drive(None, setup, progress)? {
            Turn::Ran(result) => Ok(*result),
            Turn::Shortage(Shortage { reason, next, .. }) => Err(Refusal::missing(reason, next)),
            Turn::Stopped => Err(TpccError::Stopped.into()),
        };
    }
    for pages in &order.pages {
        server.check(*pages)?;
    }
    server.fill(progress)?;
    let mut result = take_turns(server.as_mut(), order, setup, machine, progress)?;
    result.caveats.extend(server.caveats());
    result.command.clone_from(&machine.circumstances.command);
    // Its memory is returned before that of others is measured.
    drop(server);
    if order.translation {
        cost::add(&mut result, order, setup, machine, progress);
    }
    Ok(result)
}

fn take_turns(
    server: &mut dyn Server,
    order: &Order,
    setup: Setup,
    machine: &Machine<'_>,
    progress: Progress<'_>,
) -> Result<OltpResult, Refusal> {
    let mut labels: Vec<String> = Vec::new();
    for label in order.pages.iter().map(|p| p.label(machine.host)) {
        if !labels.contains(&label) {
            labels.push(label);
        }
    }
    let steps = setup::steps(order);
    let grid = Grid {
        labels: &labels,
        steps: steps.as_ref(),
        rounds: order.rounds,
        seed: order.seed,
    };
    let (of, mut done) = (grid.runs() as u64, 0);
    let mut turn = |cell: Cell<'_>| {
        let at = cell.at.map_or_else(String::new, |at| format!(" at {at}"));
        let what = format!("round {}: {}{at}", cell.round + 1, cell.label);
        progress(BenchEvent::At { done, of, what });
        done += 1;
        let mut named = order.pages.iter();
        let pages = named.find(|p| p.label(machine.host) == cell.label).copied();
        let setup = setup.at(order, cell.at);
        match server.start(pages, setup)? {
            Some(lacks) => Ok(Turn::Shortage(lacks)),
            // How far all runs are says more than how far this one is.
            None => server.drive(pages, setup, &mut |_| {}),
        }
    };
    let result = in_turn(&grid, &mut turn, machine.stop)?;
    result.ok_or_else(|| {
        Refusal::no(
            "bench oltp: none of the pages asked for were available, or it was stopped",
            "hugeleaf status    # what pages there are",
        )
    })
}
