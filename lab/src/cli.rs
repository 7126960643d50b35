//! The command `hugeleaf-lab`: turns flags into experiments, and does nothing else.

mod amm;
mod backup_io;
mod oltp;
mod pagetables;
mod pin;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use hugeleaf_cli::bench::{BenchSetup, ExperimentOptions, failure, measured};
use hugeleaf_cli::context::{self, CommandStatus, Context, Failure, print_failure};
use hugeleaf_proof::bench::{BenchContext, BenchError, BenchEvent};
use hugeleaf_proof::result_format::Results;

use crate::experiments;

/// Measure hugeleaf: experiments with benchmark kits on each page size.
#[derive(Debug, Parser)]
#[command(
    name = "hugeleaf-lab",
    version,
    propagate_version = true,
    after_help = "\
Examples:
  hugeleaf-lab oltp            orders per minute of a database
  hugeleaf-lab pagetables      cost of a thousand processes that attach 1G
  hugeleaf-lab mover           throughput of a backup server, by the pages of its buffers
  hugeleaf-lab pin             cost of pinning a buffer for a transfer
  hugeleaf-lab amm             gain from balancing memory between two servers

The host is not changed. Page sizes that it cannot provide are listed as `unavailable`, with the
command that changes that."
)]
struct Cli {
    #[command(flatten)]
    global: context::GlobalArgs,
    /// The program hugeleaf, which runs and promotes servers [default: the variable HUGELEAF, or
    /// else next to this program, or else on PATH]
    #[arg(long, global = true, value_name = "FILE")]
    hugeleaf: Option<PathBuf>,
    #[command(subcommand)]
    command: LabCommand,
}

/// The variable that names the program hugeleaf.
const HUGELEAF: &str = "HUGELEAF";

#[derive(Debug, Subcommand)]
enum LabCommand {
    /// Measure two MariaDB servers that share memory, divided manually or automatically, by page
    /// size
    Amm(amm::Args),
    /// Measure the data path of a backup server, by the physical layout of its buffers
    Mover(backup_io::Args),
    /// Measure orders per minute of a database, by the rules of TPC-C
    Oltp(oltp::Args),
    /// Measure page tables and times of many processes that attach one region, by page size
    Pagetables(pagetables::Args),
    /// Measure the cost of pinning a buffer, by physical layout and number of threads
    Pin(pin::Args),
}

/// Runs the command line of this process.
pub fn run() -> ExitCode {
    if let Some(code) = pagetables::attacher().or_else(oltp::copier) {
        return code;
    }
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        // Help and version requests are not failures.
        Err(asked) if !asked.use_stderr() => asked.exit(),
        Err(error) => return print_failure(&wrong_usage(&error)),
    };
    let mut context = Context::new(cli.global);
    let result = program(cli.hugeleaf).and_then(|program| {
        context.program = Some(program);
        cli.command.run(&context)
    });
    match result {
        Ok(status) => status.into(),
        Err(failure) => print_failure(&failure),
    }
}

/// Finds the program hugeleaf.
fn program(named: Option<PathBuf>) -> Result<PathBuf, Failure> {
    let is_file = |path: &PathBuf| path.is_file();
    if let Some(named) = named.or_else(|| std::env::var_os(HUGELEAF).map(PathBuf::from)) {
        return match is_file(&named) {
            true => Ok(named),
            false => Err(Failure::usage(
                format!("{}: no such program", named.display()),
                "pass the path of hugeleaf, built by make build: --hugeleaf FILE",
            )),
        };
    }
    let beside = std::env::current_exe().map(|own| own.with_file_name("hugeleaf"));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut all = (beside.into_iter())
        .chain(std::env::split_paths(&path).map(|folder| folder.join("hugeleaf")));
    all.find(is_file).ok_or_else(|| {
        Failure::missing(
            "hugeleaf is neither next to hugeleaf-lab nor on PATH",
            "build both with make lab, or pass its path: --hugeleaf FILE",
        )
    })
}

impl LabCommand {
    fn run(&self, context: &Context) -> Result<CommandStatus, Failure> {
        let experiment = self.experiment();
        measured(&experiment, context, |setup, machine, progress| {
            self.measure(setup, (context, machine), progress)
        })
    }

    fn experiment(&self) -> ExperimentOptions<'_> {
        let (name, output, names_arms) = match self {
            LabCommand::Amm(args) => ("amm", &args.output, !args.arms.is_empty()),
            LabCommand::Mover(args) => ("mover", &args.output, !args.pages.is_empty()),
            LabCommand::Oltp(args) => ("oltp", &args.output, !args.pages.is_empty()),
            LabCommand::Pagetables(args) => ("pagetables", &args.output, !args.pages.is_empty()),
            LabCommand::Pin(args) => ("pin", &args.output, !args.pages.is_empty()),
        };
        ExperimentOptions {
            name,
            output,
            names_arms,
            resumed: None,
        }
    }

    fn measure(
        &self,
        setup: &BenchSetup,
        (context, machine): (&Context, &BenchContext<'_>),
        progress: &mut dyn FnMut(BenchEvent),
    ) -> Result<Results, Failure> {
        let result = match self {
            LabCommand::Amm(args) => experiments::amm::measure(&args.settings(), machine, progress),
            LabCommand::Mover(args) => {
                experiments::backup_io::measure(&args.settings(setup)?, machine, progress)
            }
            LabCommand::Oltp(args) => experiments::oltp::measure(&args.order(), machine, progress),
            LabCommand::Pagetables(args) => {
                let settings = args.settings(context, setup)?;
                experiments::pagetables::measure(&settings, machine, progress)
            }
            LabCommand::Pin(args) => {
                experiments::memory_pinning::measure(&args.settings(setup)?, machine, progress)
            }
        };
        let name = self.experiment().name;
        result.map_err(|error| match error {
            BenchError::Stopped => Failure::no(
                format!("bench {name}: {error}"),
                format!("hugeleaf-lab {name}"),
            ),
            error => failure(name, &error),
        })
    }
}

/// Converts a usage error of clap to the two lines that every failure has.
fn wrong_usage(error: &clap::Error) -> Failure {
    let typed = std::env::args().nth(1);
    let typed = typed.filter(|word| {
        let command = <Cli as clap::CommandFactory>::command();
        command.find_subcommand(word).is_some()
    });
    let help = match typed {
        Some(command) => format!("hugeleaf-lab {command} --help"),
        None => "hugeleaf-lab --help".to_owned(),
    };
    context::wrong_usage(error, &help)
}
