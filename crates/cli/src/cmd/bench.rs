//! See `hugeleaf bench --help`.

mod amm;
mod chase;
mod described;
mod failure;
mod lists;
mod mover;
mod oltp;
mod pagetables;
mod pin;
mod setup;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use hugeleaf_proof::bench::{self as measure, BenchEvent, Machine};
use hugeleaf_proof::rows::Results;
use hugeleaf_proof::write_whole;
use hugeleaf_report::bench as view;
use hugeleaf_report::screen::clean;
use hugeleaf_workload::pagetables::serve_attacher;
use indicatif::ProgressBar;

use crate::context::{Context, Failure, Status, tell};
use crate::progress;

use failure::failure;
pub use oltp::copier;
pub use setup::ATTACHER;
use setup::{Output, Setup};

/// Flags.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  hugeleaf bench chase            how long a read takes, by working set and page size
  hugeleaf bench pagetables       what it costs that a thousand processes attach a gigabyte
  hugeleaf bench mover            what a backup server moves, by the pages of its buffers
  hugeleaf bench pin              what it costs to pin a buffer for a transfer
  hugeleaf bench amm              what it brings that memory moves between two servers
  hugeleaf bench --list           programs that come with hugeleaf: redis, pgbench, jvm, nginx, …
  hugeleaf bench redis            Redis on base pages, on transparent huge ones, and promoted while it runs
  hugeleaf bench my.toml          a workload of your own: docs/reference/workload-file.md

Nothing of the host is changed: what it cannot give is listed as `unavailable`, with the command
that changes that.")]
#[command(args_conflicts_with_subcommands = true, arg_required_else_help = true)]
pub struct Args {
    /// List the workloads that come with hugeleaf, and what this host lacks for them
    #[arg(long)]
    list: bool,
    #[command(subcommand)]
    workload: Option<Workload>,
}

#[derive(Debug, clap::Subcommand)]
enum Workload {
    /// Two MariaDB servers that share their memory: divided by hand or automatically, by page size
    Amm(amm::Args),
    /// Latency of a dependent random read, by working set and page size
    Chase(chase::Args),
    /// Any program that a file describes; hugeleaf bench NAME is short for it
    File(described::Args),
    /// Data path of a backup server, by the physical layout of its buffers
    Mover(mover::Args),
    /// Orders a minute on a database, after the rules of TPC-C
    Oltp(oltp::Args),
    /// Page tables and time of many processes that attach one region, by page size
    Pagetables(pagetables::Args),
    /// Cost of pinning a buffer, by its physical layout and by number of threads
    Pin(pin::Args),
}

/// Runs one, prints what it measured, then writes it: a full disk costs the file only.
pub fn run(args: &Args, context: &Context) -> Result<Status, Failure> {
    let Some(workload) = &args.workload else {
        return described::list(context);
    };
    if let Workload::File(file) = workload
        && let Some(status) = file.before(context)?
    {
        return Ok(status);
    }
    measured(workload, context)
}

fn measured(workload: &Workload, context: &Context) -> Result<Status, Failure> {
    let (name, output, names_pages) = workload.about();
    let setup = Setup::new(name, output, context)?;
    let results = {
        let bar = Bar::new();
        workload.measure(&setup, context, &mut |event| bar.show(&event))?
    };
    let json = results.to_json();
    let page = || view::page(&results);
    context.answer(Context::view(false), || json.clone(), page)?;
    let default = || default_path(&results.experiment.name, &results.experiment.started);
    let path = workload
        .kept_in()
        .or_else(|| output.output.clone())
        .unwrap_or_else(default);
    save("result", &path, &json)?;
    if let Some(path) = &output.html {
        save("page", path, &view::whole_page(&results).html())?;
    }
    let is_short = names_pages && !results.unavailable.is_empty();
    Ok(status(is_short, results.experiment.is_interrupted()))
}

impl Workload {
    /// Its name, where its result goes, and whether the pages were named: then it is a no where one of them is
    /// unavailable.
    fn about(&self) -> (&'static str, &Output, bool) {
        match self {
            Workload::Amm(args) => ("amm", &args.output, !args.arms.is_empty()),
            Workload::Chase(args) => ("chase", &args.output, !args.pages.is_empty()),
            Workload::File(args) => ("file", &args.output, args.names_arms()),
            Workload::Mover(args) => ("mover", &args.output, !args.pages.is_empty()),
            Workload::Oltp(args) => ("oltp", &args.output, !args.pages.is_empty()),
            Workload::Pagetables(args) => ("pagetables", &args.output, !args.pages.is_empty()),
            Workload::Pin(args) => ("pin", &args.output, !args.pages.is_empty()),
        }
    }

    /// Where its result goes if it is gone on with.
    fn kept_in(&self) -> Option<PathBuf> {
        match self {
            Workload::File(args) => args.resumed(),
            _ => None,
        }
    }

    fn measure(
        &self,
        setup: &Setup,
        context: &Context,
        progress: &mut dyn FnMut(BenchEvent),
    ) -> Result<Results, Failure> {
        let machine = &Machine {
            root: &context.root,
            host: &setup.host,
            circumstances: &setup.circumstances,
            most: setup.most,
            stop: &context.stop,
        };
        let result = match self {
            Workload::Amm(args) => measure::amm::measure(&args.settings(), machine, progress),
            Workload::Chase(args) => {
                measure::chase::measure(&args.settings(context, setup)?, machine, progress)
            }
            Workload::File(args) => return args.measure(machine, progress),
            Workload::Mover(args) => {
                measure::mover::measure(&args.settings(setup)?, machine, progress)
            }
            Workload::Oltp(args) => measure::oltp::measure(&args.order(), machine, progress),
            Workload::Pagetables(args) => {
                measure::pagetables::measure(&args.settings(context, setup)?, machine, progress)
            }
            Workload::Pin(args) => measure::pin::measure(&args.settings(setup)?, machine, progress),
        };
        result.map_err(|error| failure(self.about().0, &error))
    }
}

/// Writes what was printed before: a full disk costs the file only.
pub(super) fn save(what: &str, path: &Path, text: &str) -> Result<(), Failure> {
    write_whole(path, text).map_err(|e| {
        Failure::missing(
            format!("the result is above, and could not be written: {e}"),
            "make room or name another place: --output FILE, --html FILE; --json > FILE \
             keeps it too",
        )
    })?;
    tell(&format!("{what}: {}", path.display()));
    Ok(())
}

fn default_path(name: &str, started: &str) -> PathBuf {
    // 2026-01-31T12:00:00Z, without what a file name should not hold.
    let is_kept = |c: &char| c.is_ascii_digit() || *c == 'T';
    let digits: String = started.chars().filter(is_kept).collect();
    format!("hugeleaf-bench-{name}-{}.json", digits.replace('T', "-")).into()
}

/// Runs a process of `bench pagetables` where that is what this process was started for.
pub fn attacher() -> Option<ExitCode> {
    let mut arguments = std::env::args().skip(1);
    if arguments.next()? != ATTACHER {
        return None;
    }
    let (Some(parent), Some(handle)) = (arguments.next(), arguments.next()) else {
        let what = format!("{ATTACHER}: started by hugeleaf bench pagetables, not by hand");
        return Some(Failure::usage(what, "hugeleaf bench pagetables --help").report());
    };
    Some(match serve_attacher(&parent, &handle) {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            let what = format!("{ATTACHER}: {reason}");
            Failure::missing(what, "hugeleaf bench pagetables").report()
        }
    })
}

/// Whether it is all that was asked for: pages that were named and unavailable, and Ctrl-C, are a no.
fn status(is_short: bool, is_interrupted: bool) -> Status {
    match is_short || is_interrupted {
        true => Status::No,
        false => Status::Good,
    }
}

/// The command line with `bench file NAME` where `bench NAME` was typed. What commands there are is asked only then.
pub fn with_file(
    mut words: Vec<std::ffi::OsString>,
    command: impl FnOnce() -> clap::Command,
) -> Vec<std::ffi::OsString> {
    let is_bench = words.get(1).is_some_and(|word| word == "bench");
    let name = words.get(2).and_then(|word| word.to_str());
    let name = name.filter(|name| is_bench && *name != "help" && !name.starts_with('-'));
    let is_known = |name: &str| {
        let command = command();
        let bench = command.find_subcommand("bench");
        bench.is_some_and(|bench| bench.find_subcommand(name).is_some())
    };
    if name.is_some_and(|name| !is_known(name)) {
        words.insert(2, "file".into());
    }
    words
}

/// How far it is.
struct Bar(ProgressBar);

impl Bar {
    fn new() -> Bar {
        Bar(progress::bar(progress::PERCENT, 1))
    }

    fn show(&self, event: &BenchEvent) {
        let bar = &self.0;
        match event {
            BenchEvent::Note(note) if bar.is_hidden() => tell(&format!("note: {note}")),
            BenchEvent::Taking(what) => bar.set_message(clean(&format!("{what}: taking memory"))),
            BenchEvent::At { done, of, what } => {
                bar.set_length(*of);
                bar.set_position(*done);
                bar.set_message(clean(what));
            }
            BenchEvent::Note(note) => bar.println(clean(&format!("note: {note}"))),
            BenchEvent::Unavailable { arm, reason } => {
                bar.println(clean(&format!("unavailable: {arm}: {reason}")))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_named_and_not_had_is_a_no() {
        assert_eq!(status(true, false), Status::No);
        assert_eq!(status(false, false), Status::Good);
        assert_eq!(status(false, true), Status::No);
    }

    #[test]
    fn a_file_is_named_for_its_experiment_and_time() {
        let path = default_path("chase", "2026-01-31T12:00:00Z");
        assert_eq!(path, Path::new("hugeleaf-bench-chase-20260131-120000.json"));
    }
}
