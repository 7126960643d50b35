//! The `hugeleaf` command: converts flags into calls.
//!
//! The entry point is [`run`]. A command reads flags, calls, and shows the answer (`Context::answer`: JSON or a page). [`context`] also has
//! the form of a failure: two lines and an exit status. `bench::measured` runs, prints and writes any experiment. The lab builds its own
//! commands from [`context`] and [`mod@bench`].

// This crate is not published, so self-explanatory names need no comment.
#![cfg_attr(not(test), warn(clippy::disallowed_macros, clippy::disallowed_methods))]

mod cmd;
pub mod context;
mod guest;
mod progress;

pub use cmd::bench;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

use context::{Context, Failure};

/// Bigger pages for the servers you already run: see what you have, know why, change it live, and
/// prove what it gained.
#[derive(Debug, Parser)]
#[command(name = "hugeleaf", version, propagate_version = true)]
struct Cli {
    #[command(flatten)]
    global: context::Global,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// One screen: page sizes, pools, settings, what is wasted, and what to do about it
    Status(cmd::status::Args),
    /// Processes by page size; with a target, its segments by page size, asked and got
    Mem(cmd::mem::Args),
    /// Why each range is not on a larger page, with the command that changes it
    Why(cmd::why::Args),
    /// What larger pages would bring a process, before anything is changed: a range
    Predict(cmd::predict::Args),
    /// Is this host fit for a database: every feature, present, set, and what it is worth here
    Check(cmd::check::Args),
    /// Move a running process's memory to larger pages, without a restart
    Promote(cmd::promote::PromoteArgs),
    /// Move it back to base pages
    Demote(cmd::promote::DemoteArgs),
    /// Start an unmodified program on the pages it should have
    Run(cmd::run::Args),
    /// How many pages of which size on which node, with the reasons, into a plan file
    Plan(Box<cmd::plan::Args>),
    /// Make a plan so: pools, settings, files; journaled, and taken back by undo
    Apply(cmd::apply::Args),
    /// Take back what apply did, exactly
    Undo(cmd::undo::Args),
    /// Has every service the pages it asked for, and will it after its next restart?
    Verify(cmd::verify::Args),
    /// Where time goes: processes, functions, locks, faults, pins; one file, replayable, diffable
    Trace(Box<cmd::trace::Args>),
    /// This host by page size, live on a terminal: why, promote, demote by a key
    Top(cmd::top::Args),
    /// Keep larger pages by rule, all the time, and take back what brings nothing
    Guard(cmd::guard::Args),
    /// One memory target for several servers, moved by need, always on large pages
    Balance(cmd::balance::Args),
    /// Pools, coverage, page tables and what the guard did, for Prometheus
    Metrics(cmd::metrics::Args),
    /// A controlled experiment on a running server: what did larger pages bring?
    Prove(cmd::prove::Args),
    /// What pages of each size cost and gain here: latency, page tables
    Bench(cmd::bench::Args),
    /// Two results row by row, or two arms of one: ratio, interval, and what else differs
    Compare(cmd::compare::Args),
    /// All of it in minutes on an embedded database
    Try(cmd::try_::Args),
    /// Print the completion script of a shell
    Completions(cmd::completions::Args),
    /// Write the manual pages into a folder
    #[command(hide = true)]
    Manpages(cmd::completions::ManArgs),
    /// The embedded workload of `try`, run as a process of its own
    #[command(hide = true)]
    Workload(cmd::workload::Args),
}

/// Converts a usage error of clap into the two lines of a failure.
fn wrong_usage(error: &clap::Error) -> Failure {
    // Points to the help of the typed command, if there is one.
    let typed = std::env::args_os()
        .nth(1)
        .and_then(|word| word.into_string().ok())
        .filter(|word| Cli::command().find_subcommand(word).is_some());
    let help = match &typed {
        Some(command) => format!("hugeleaf {command} --help"),
        None => "hugeleaf --help".to_owned(),
    };
    let failure = context::wrong_usage(error, &help);
    // Lower statuses belong to the program that `run` starts.
    match typed.as_deref() {
        Some("run") => failure.with_status(cmd::run::OWN_FAILURE),
        _ => failure,
    }
}

pub fn run() -> ExitCode {
    hugeleaf_sys::be_ended_first();
    let words: Vec<_> = std::env::args_os().collect();
    if let Some(failure) = cmd::bench::moved_to_the_lab(&words) {
        return failure.report();
    }
    let words = cmd::bench::with_file(words, Cli::command);
    let cli = match Cli::try_parse_from(words) {
        Ok(cli) => cli,
        // Help and version are requested output, not failures.
        Err(asked) if !asked.use_stderr() => asked.exit(),
        Err(error) => return wrong_usage(&error).report(),
    };
    hugeleaf_sys::return_unused();
    if let Err(failure) = guest::admit(cli.command.as_ref()) {
        return failure.report();
    }
    let context = Context::new(cli.global);
    let result = match cli.command {
        None => cmd::status::run(&cmd::status::Args::default(), &context),
        Some(Command::Status(args)) => cmd::status::run(&args, &context),
        Some(Command::Mem(args)) => cmd::mem::run(&args, &context),
        Some(Command::Why(args)) => cmd::why::run(&args, &context),
        Some(Command::Predict(args)) => cmd::predict::run(&args, &context),
        Some(Command::Check(args)) => cmd::check::run(&args, &context),
        Some(Command::Promote(args)) => cmd::promote::run_promote(&args, &context),
        Some(Command::Demote(args)) => cmd::promote::run_demote(&args, &context),
        Some(Command::Run(args)) => {
            return cmd::run::run(&args, &context).unwrap_or_else(|failure| failure.report());
        }
        Some(Command::Plan(args)) => cmd::plan::run(&args, &context),
        Some(Command::Apply(args)) => cmd::apply::run(&args, &context),
        Some(Command::Undo(args)) => cmd::undo::run(&args, &context),
        Some(Command::Verify(args)) => cmd::verify::run(&args, &context),
        Some(Command::Trace(args)) => cmd::trace::run(&args, &context),
        Some(Command::Top(args)) => cmd::top::run(args, &context),
        Some(Command::Guard(args)) => cmd::guard::run(&args, &context),
        Some(Command::Balance(args)) => cmd::balance::run(&args, &context),
        Some(Command::Metrics(args)) => cmd::metrics::run(&args, &context),
        Some(Command::Prove(args)) => cmd::prove::run(&args, &context),
        Some(Command::Bench(args)) => cmd::bench::run(&args, &context),
        Some(Command::Compare(args)) => cmd::compare::run(&args, &context),
        Some(Command::Try(args)) => cmd::try_::run(&args, &context),
        Some(Command::Completions(args)) => cmd::completions::run(&args, Cli::command()),
        Some(Command::Manpages(args)) => cmd::completions::write_man_pages(&args, Cli::command()),
        Some(Command::Workload(args)) => cmd::workload::run(&args, &context),
    };
    match result {
        Ok(status) => status.into(),
        Err(failure) => failure.report(),
    }
}
