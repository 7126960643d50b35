//! The `hugeleaf` command: converts flags into calls.
//!
//! The entry point is [`run`]. A command reads flags, calls, and shows the answer (`Context::answer`: JSON or a page). [`context`] also has
//! the form of a failure: two lines and an exit status. `bench::measured` runs, prints and writes any experiment. The lab builds its own
//! commands from [`context`] and [`mod@bench`].

// This crate is not published, so self-explanatory names need no comment.
#![cfg_attr(not(test), warn(clippy::disallowed_macros, clippy::disallowed_methods))]

mod cmd;
pub mod context;
mod memory_limit_check;
mod progress;

pub use cmd::bench;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

use context::{Context, Failure, print_failure};

/// Huge pages for running servers: show and explain coverage, change it without a restart, and
/// measure the gain.
#[derive(Debug, Parser)]
#[command(name = "hugeleaf", version, propagate_version = true)]
struct Cli {
    #[command(flatten)]
    global: context::GlobalArgs,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Show page sizes, pools, settings and findings of this host on one screen
    Status(cmd::status::Args),
    /// Show memory by page size, per process, or per mapping of a target
    Mem(cmd::mem::Args),
    /// Explain why memory is not on huge pages, with the command that changes it
    Why(cmd::why::Args),
    /// Estimate the speedup from huge pages, as an interval, without changing anything
    Predict(cmd::predict::Args),
    /// Check the kernel features and settings that matter to a database
    Check(cmd::check::Args),
    /// Promote a running process's memory to huge pages
    Promote(cmd::promote::PromoteArgs),
    /// Demote a running process's memory to base pages
    Demote(cmd::promote::DemoteArgs),
    /// Start an unmodified program on huge pages
    Run(cmd::run::Args),
    /// Plan the huge pages of each service by size and NUMA node, and write a plan file
    Plan(Box<cmd::plan::Args>),
    /// Apply a plan: pools, settings and files; undo reverts it
    Apply(cmd::apply::Args),
    /// Revert an apply, exactly
    Undo(cmd::undo::Args),
    /// Check that every service has its huge pages, and will have them after a restart
    Verify(Box<cmd::verify::Args>),
    /// Populate a hugetlbfs file or memory on trial, in parallel by node, and judge the result
    Warm(cmd::warm::Args),
    /// Record a trace of the host: CPU profile, locks, page faults, pins and I/O
    Trace(Box<cmd::trace::Args>),
    /// Show memory by page size, live; explain, promote and demote by key
    Top(cmd::top::Args),
    /// Promote processes by rule, continuously, and demote those that do not gain
    Guard(cmd::guard::Args),
    /// Divide one memory target among several servers by need, on huge pages
    Balance(cmd::balance::Args),
    /// Print metrics of pools, coverage, page tables and the guard for Prometheus
    Metrics(cmd::metrics::Args),
    /// Measure the effect of huge pages on a running server in a controlled experiment
    Prove(cmd::prove::Args),
    /// Benchmark page sizes on this host: read latency, and workloads from files
    Bench(cmd::bench::Args),
    /// Compare two results, or two arms of one, with intervals and other differences
    Compare(cmd::compare::Args),
    /// Run status, mem, why and prove on an embedded database, within minutes
    Try(cmd::try_::Args),
    /// Print a shell completion script
    Completions(cmd::completions::Args),
    /// Write the manual pages to a directory
    #[command(hide = true)]
    Manpages(cmd::completions::ManArgs),
    /// Run the embedded workload of `try` in a separate process
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

/// Parses the command line. `bench NAME` is short for `bench file NAME`.
fn parse() -> Result<Cli, clap::Error> {
    let mut words: Vec<_> = std::env::args_os().collect();
    let cli = Cli::try_parse_from(&words)?;
    let named = match &cli.command {
        Some(Command::Bench(args)) => args.short_form(),
        _ => None,
    };
    let Some(named) = named else {
        return Ok(cli);
    };
    words.insert(words.len() - named, "file".into());
    Cli::try_parse_from(words)
}

pub fn run() -> ExitCode {
    hugeleaf_sys::prefer_oom_kill();
    let cli = match parse() {
        Ok(cli) => cli,
        // Help and version are requested output, not failures.
        Err(asked) if !asked.use_stderr() => asked.exit(),
        Err(error) => return print_failure(&wrong_usage(&error)),
    };
    hugeleaf_sys::return_unused();
    if let Err(failure) = memory_limit_check::check_memory(cli.command.as_ref()) {
        return print_failure(&failure);
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
            return cmd::run::run(&args, &context)
                .unwrap_or_else(|failure| print_failure(&failure));
        }
        Some(Command::Plan(args)) => cmd::plan::run(&args, &context),
        Some(Command::Apply(args)) => cmd::apply::run(&args, &context),
        Some(Command::Undo(args)) => cmd::undo::run(&args, &context),
        Some(Command::Verify(args)) => cmd::verify::run(&args, &context),
        Some(Command::Warm(args)) => cmd::warm::run(&args, &context),
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
        Err(failure) => print_failure(&failure),
    }
}
