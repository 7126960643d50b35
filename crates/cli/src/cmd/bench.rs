//! Implements `hugeleaf bench`. Also runs the lab's experiments and prints their results ([`measured`]).

mod chase;
mod failure;
mod setup;
mod size_lists;
mod workload_file;

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use hugeleaf_proof::bench::{self as measure, BenchContext, BenchEvent};
use hugeleaf_proof::result_format::Results;
use hugeleaf_proof::write_whole;
use hugeleaf_report::bench as view;

use crate::context::{CommandStatus, Context, Failure, print_stderr};
use crate::progress::{Bar, BarLayout};

pub use failure::failure;
pub use setup::{BenchSetup, OutputArgs};
pub use size_lists::{WorkingSets, named, once, parse_count, parse_rounds, usual};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  hugeleaf bench chase            read latency, by working set and page size
  hugeleaf bench --list           shipped workloads: redis, pgbench, jvm, nginx, …
  hugeleaf bench redis            Redis on base pages, on THP, and promoted while it runs
  hugeleaf bench my.toml          a workload of your own: docs/reference/workload-file.md

The host is not changed. Page sizes that it cannot provide are listed as `unavailable`, with the
command that changes that.")]
#[command(arg_required_else_help = true)]
pub struct Args {
    /// List the workloads shipped with hugeleaf, and their missing requirements on this host
    #[arg(long)]
    list: bool,
    #[command(subcommand)]
    workload: Option<BenchSubcommand>,
}

#[derive(Debug, clap::Subcommand)]
enum BenchSubcommand {
    /// Measure the latency of dependent random reads, by working set and page size
    Chase(chase::Args),
    /// Measure a workload that a file describes; short form: hugeleaf bench NAME
    File(workload_file::Args),
    /// Moved to hugeleaf-lab, a separate program: hugeleaf-lab amm --help
    #[command(hide = true, disable_help_flag = true, disable_version_flag = true)]
    Amm(LabOnlyArgs),
    /// Moved to hugeleaf-lab, a separate program: hugeleaf-lab mover --help
    #[command(hide = true, disable_help_flag = true, disable_version_flag = true)]
    Mover(LabOnlyArgs),
    /// Moved to hugeleaf-lab, a separate program: hugeleaf-lab oltp --help
    #[command(hide = true, disable_help_flag = true, disable_version_flag = true)]
    Oltp(LabOnlyArgs),
    /// Moved to hugeleaf-lab, a separate program: hugeleaf-lab pagetables --help
    #[command(hide = true, disable_help_flag = true, disable_version_flag = true)]
    Pagetables(LabOnlyArgs),
    /// Moved to hugeleaf-lab, a separate program: hugeleaf-lab pin --help
    #[command(hide = true, disable_help_flag = true, disable_version_flag = true)]
    Pin(LabOnlyArgs),
    /// The short form of `file`: a name, with all words after it.
    #[command(external_subcommand)]
    Named(Vec<OsString>),
}

/// Flags of an experiment that only the lab has. They are not read, so that the refusal is the same for all.
#[derive(Debug, clap::Args)]
struct LabOnlyArgs {
    #[arg(hide = true, trailing_var_arg = true, allow_hyphen_values = true)]
    _words: Vec<OsString>,
}

impl Args {
    /// Returns the number of words from the name of a workload on, if `file` was left out before it.
    pub(crate) fn short_form(&self) -> Option<usize> {
        match &self.workload {
            Some(BenchSubcommand::Named(words)) => Some(words.len()),
            _ => None,
        }
    }
}

/// Runs an experiment, prints the result, then writes it. A full disk loses only the file.
pub(crate) fn run(args: &Args, context: &Context) -> Result<CommandStatus, Failure> {
    if args.list && args.workload.is_some() {
        return Err(Failure::usage(
            "bench: --list lists all workloads and takes none",
            "hugeleaf bench --list",
        ));
    }
    match &args.workload {
        None => workload_file::list(context),
        Some(BenchSubcommand::Amm(_)) => Err(in_the_lab("amm")),
        Some(BenchSubcommand::Mover(_)) => Err(in_the_lab("mover")),
        Some(BenchSubcommand::Oltp(_)) => Err(in_the_lab("oltp")),
        Some(BenchSubcommand::Pagetables(_)) => Err(in_the_lab("pagetables")),
        Some(BenchSubcommand::Pin(_)) => Err(in_the_lab("pin")),
        // `file` was put in before the name, so this is left only after `--`.
        Some(BenchSubcommand::Named(_)) => Err(Failure::usage(
            "bench: a workload cannot follow --",
            "hugeleaf bench --list",
        )),
        Some(BenchSubcommand::Chase(args)) => {
            let about = ExperimentOptions {
                name: "chase",
                output: &args.output,
                names_arms: !args.pages.is_empty(),
                resumed: None,
            };
            measured(&about, context, |setup, machine, progress| {
                let settings = args.settings(context, setup)?;
                measure::chase::measure(&settings, machine, progress)
                    .map_err(|error| failure("chase", &error))
            })
        }
        Some(BenchSubcommand::File(args)) => {
            if let Some(status) = args.before(context)? {
                return Ok(status);
            }
            let about = ExperimentOptions {
                name: "file",
                output: &args.output,
                names_arms: args.names_arms(),
                resumed: args.resume.clone(),
            };
            measured(&about, context, |_, machine, progress| {
                args.measure(machine, progress)
            })
        }
    }
}

pub struct ExperimentOptions<'a> {
    pub name: &'a str,
    pub output: &'a OutputArgs,
    /// True if the user named arms. An unavailable arm then leads to status 1.
    pub names_arms: bool,
    /// Previous result that the experiment continues; it is written again.
    pub resumed: Option<PathBuf>,
}

/// Measures an experiment, prints the result, then writes it. A full disk loses only the file.
pub fn measured(
    experiment: &ExperimentOptions<'_>,
    context: &Context,
    measure: impl FnOnce(
        &BenchSetup,
        &BenchContext<'_>,
        &mut dyn FnMut(BenchEvent),
    ) -> Result<Results, Failure>,
) -> Result<CommandStatus, Failure> {
    let output = experiment.output;
    let setup = BenchSetup::new(experiment.name, output, context)?;
    let machine = BenchContext {
        root: &context.root,
        host: &setup.host,
        circumstances: &setup.circumstances,
        most: setup.most,
        program: &setup.program,
        stop: &context.stop,
    };
    let results = {
        let bar = Bar::new(BarLayout::Percent, 1);
        measure(&setup, &machine, &mut |event| show(&bar, &event))?
    };
    let json = results.to_json();
    let page = || view::page(&results);
    context.answer(Context::view(false), || json.clone(), page)?;
    let default = || default_path(&results.experiment.name, &results.experiment.started);
    let path = (experiment.resumed.clone())
        .or_else(|| output.output.clone())
        .unwrap_or_else(default);
    save("result", &path, &json)?;
    if let Some(path) = &output.html {
        save("page", path, &view::whole_page(&results).html())?;
    }
    let is_short = experiment.names_arms && !results.unavailable.is_empty();
    // Named pages that are unavailable, and Ctrl-C, give status 1.
    Ok((!is_short && !results.experiment.is_interrupted()).into())
}

/// Writes a result that is already printed, so a full disk loses only the file.
pub(crate) fn save(what: &str, path: &Path, text: &str) -> Result<(), Failure> {
    write_whole(path, text).map_err(|e| {
        Failure::missing(
            format!("cannot write the result, which is shown above: {e}"),
            "free space or name another file: --output FILE, --html FILE; or use --json > FILE",
        )
    })?;
    print_stderr(&format!("{what}: {}", path.display()));
    Ok(())
}

fn default_path(name: &str, started: &str) -> PathBuf {
    // Keeps the digits and the T of 2026-01-31T12:00:00Z.
    let is_kept = |c: &char| c.is_ascii_digit() || *c == 'T';
    let digits: String = started.chars().filter(is_kept).collect();
    format!("hugeleaf-bench-{name}-{}.json", digits.replace('T', "-")).into()
}

fn in_the_lab(name: &str) -> Failure {
    Failure::usage(
        format!("bench {name} is part of hugeleaf-lab, a separate program"),
        format!("hugeleaf-lab {name} --help    # make lab builds it"),
    )
}

fn show(bar: &Bar, event: &BenchEvent) {
    match event {
        BenchEvent::Note(text) => bar.note(text),
        BenchEvent::Taking(what) => bar.set_message(&format!("{what}: allocating memory")),
        BenchEvent::At { done, of, what } => {
            bar.set_length(*of);
            bar.set_position(*done);
            bar.set_message(what);
        }
        BenchEvent::Unavailable { arm, reason } => {
            bar.print_above(&format!("unavailable: {arm}: {reason}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_named_for_its_experiment_and_time() {
        let path = default_path("chase", "2026-01-31T12:00:00Z");
        assert_eq!(path, Path::new("hugeleaf-bench-chase-20260131-120000.json"));
    }
}
