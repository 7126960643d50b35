//! Several page sizes, at one or several steps: what takes turns, and what is told of all of it.

use hugeleaf_proof::bench::BenchEvent;
use hugeleaf_proof::bench::oltp::{Cell, Grid, OltpResult, Turn, in_turn};

use super::embedded::Embedded;
use super::server::Server;
use super::{Args, Bar, Ground, Place, Setup, setup, translation};
use crate::context::{Context, Failure};

/// Has all of them run.
pub(super) fn run(
    args: &Args,
    setup: Setup,
    ground: &Ground,
    context: &Context,
) -> Result<OltpResult, Failure> {
    let mut result = match (&args.start, &args.database) {
        (None, Some(Place::Postgres(_))) => {
            return Err(Failure::usage(
                "bench oltp: --pages: a server that runs has its pages already",
                "hugeleaf bench oltp --start postgres --pages …, or without --pages",
            ));
        }
        (Some(_), _) => {
            let mut server = Server::start(args, setup, ground, context)?;
            let result = turns(args, ground, context, &mut |cell| server.turn(cell))?;
            server.tell(result)
        }
        (None, _) => {
            let embedded = Embedded::new(args, setup, context)?;
            turns(args, ground, context, &mut |cell| embedded.turn(cell))?
        }
    };
    result.command = std::env::args().collect();
    // The server, if any, has ended and given its memory back.
    translation::add(&mut result, args, setup, ground, context);
    Ok(result)
}

fn turns(
    args: &Args,
    ground: &Ground,
    context: &Context,
    turn: &mut dyn FnMut(Cell<'_>) -> Result<Turn, Failure>,
) -> Result<OltpResult, Failure> {
    let mut labels: Vec<String> = Vec::new();
    for label in args.pages.iter().map(|p| p.label(&ground.host)) {
        if !labels.contains(&label) {
            labels.push(label);
        }
    }
    let steps = setup::steps(args);
    let grid = Grid {
        labels: &labels,
        steps: steps.as_ref(),
        rounds: args.rounds,
        seed: args.seed,
    };
    let bar = Bar::new();
    let (whole, mut done) = (grid.runs() as u64, 0);
    let mut watched = |cell: Cell<'_>| {
        let at = cell.at.map_or_else(String::new, |at| format!(" at {at}"));
        let what = format!("round {}: {}{at}", cell.round + 1, cell.label);
        bar.show(&BenchEvent::At {
            done,
            of: whole,
            what,
        });
        done += 1;
        turn(cell)
    };
    let result = in_turn(&grid, &mut watched, &context.stop)?;
    result.ok_or_else(|| {
        Failure::no(
            "bench oltp: none of the pages asked for were had, or it was stopped",
            "hugeleaf status    # what pages there are",
        )
    })
}
