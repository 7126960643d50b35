//! Implements `hugeleaf undo`.

use hugeleaf_plan::host_changes::{
    ChangeContext, StepState, UndoOptions, UndoSelection, history, undo,
};
use hugeleaf_report::apply::{list_json, undo_json, undo_list};

use super::apply::refusal;
use crate::context::{CommandStatus, Context, Failure};
use crate::progress::Bar;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Without ID, the newest apply in force is reverted. Each step is compared with the current state. A
value that is as the apply left it is restored exactly. A value that something else has changed
meanwhile is left alone and reported. Running undo again is safe, even after a crash.

Exit status: 0 all restored; 1 something was left alone, or is still in use; 2 wrong usage; 3 a
precondition is missing, or a step failed.

Examples:
  hugeleaf undo --list
  hugeleaf undo --dry-run
  hugeleaf undo 3 --even-if-changed")]
pub struct Args {
    /// Number of the apply, as apply printed it
    #[arg(value_name = "ID", conflicts_with = "all")]
    id: Option<u32>,
    /// Revert all applies in force, newest first
    #[arg(long)]
    all: bool,
    /// List all applies; change nothing
    #[arg(long, conflicts_with_all = ["id", "all", "even_if_changed", "dry_run"])]
    list: bool,
    /// Also restore values that something else has changed meanwhile
    #[arg(long)]
    even_if_changed: bool,
    /// Print the differences; change nothing
    #[arg(long)]
    dry_run: bool,
}

pub fn run(args: &Args, context: &Context) -> Result<CommandStatus, Failure> {
    let view = Context::view(false);
    if args.list {
        let all = history(&context.root).map_err(|error| refusal(error, "undo", ""))?;
        context.answer(view, || list_json(&all), || undo_list(&all))?;
        return Ok(CommandStatus::Good);
    }
    if !args.dry_run {
        context.need_live("undo")?;
    }
    let which = match args.id {
        Some(id) => UndoSelection::Id(id),
        None if args.all => UndoSelection::All,
        None => UndoSelection::Newest,
    };
    let options = UndoOptions {
        even_if_changed: args.even_if_changed,
        dry_run: args.dry_run,
    };
    context.stop_on_signals()?;
    let bar = Bar::spinner("reading the journal");
    let mut change = ChangeContext {
        root: &context.root,
        kernel: &context.kernel,
        stop: &context.stop,
        progress: &mut |step| bar.set_message(step),
    };
    let outcomes = undo(&mut change, which, &options);
    drop(bar);
    let outcomes = outcomes.map_err(|error| refusal(error, "undo", ""))?;
    context.answer(
        view,
        || undo_json(&outcomes, args.dry_run),
        || hugeleaf_report::apply::undo(&outcomes, args.dry_run),
    )?;
    let steps = || outcomes.iter().flat_map(|one| &one.steps);
    if let Some(failed) = steps().find(|step| step.state == StepState::Failed) {
        let why = failed.note.as_deref().unwrap_or("failed");
        return Err(Failure::missing(
            format!("undo: {}: {why}", failed.id),
            "fix that, then repeat: hugeleaf undo",
        ));
    }
    if outcomes.iter().any(|one| one.unjournaled) {
        return Err(Failure::missing(
            "undo: cannot write the journal",
            "free space, and make it writable: df /var/lib/hugeleaf",
        ));
    }
    let all_good = outcomes.iter().all(|one| args.dry_run || one.is_good());
    Ok(all_good.into())
}
