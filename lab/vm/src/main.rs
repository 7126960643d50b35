//! `hugeleaf-vm`: real kernels in virtual machines, from the command line.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use anyhow::{Context, bail};
use clap::{Parser, Subcommand};
use hugeleaf_units::Bytes;
use hugeleaf_vm::architecture::Architecture;
use hugeleaf_vm::cache::ArtifactCache;
use hugeleaf_vm::guest_config::{GuestConfigFile, MemorySize};
use hugeleaf_vm::guest_runner::{GuestCommand, GuestRunner, programs_of};
use hugeleaf_vm::harness_output::SummaryRewriter;
use hugeleaf_vm::missing_precondition::MissingPrecondition;
use hugeleaf_vm::programs::{self, GuestPrograms};
use hugeleaf_vm::qemu::GuestExit;
use hugeleaf_vm::results::{GuestTestResults, TestOutcome, page, sums};

/// Run commands, a shell or tests on real kernels in virtual machines.
///
/// Needs root, QEMU, mmdebstrap, cpio and an apt with a Debian archive. Downloads are kept in
/// HUGELEAF_VM_CACHE (default: ~/.cache/hugeleaf-vm). HUGELEAF_VM_MIRROR names another archive,
/// HUGELEAF_VM_ACCELERATOR a QEMU accelerator (default: tcg), HUGELEAF_VM_HOSTS another directory
/// of hosts.
#[derive(Debug, Parser)]
#[command(name = "hugeleaf-vm")]
struct VmCli {
    #[command(subcommand)]
    command: VmCommand,
}

#[derive(Debug, Subcommand)]
enum VmCommand {
    /// List the hosts described in lab/vm/hosts
    List,
    /// Download the requirements of hosts, and exit
    Fetch {
        /// Hosts; all if none is named
        hosts: Vec<String>,
    },
    /// Run one command in a guest; return its output, its exit status and the files in /out
    Run(RunArgs),
    /// Open a shell on the console of a guest; `exit` ends it
    Shell {
        /// Name of the host
        host: String,
    },
    /// Run the tests of hosts in guests
    Test {
        /// Hosts; all if none is named
        hosts: Vec<String>,
        /// Run only the tests that `make test` runs
        #[arg(long)]
        quick: bool,
        /// Number of concurrent guests; each needs a processor and its memory
        #[arg(long, default_value_t = processors().min(3), value_name = "N")]
        jobs: usize,
        /// Keep the results in lab/vm/results, for the table of hosts
        #[arg(long)]
        record: bool,
    },
    /// Generate docs/reference/hosts.md from the results
    Table,
    /// Copy the output of `cargo test -- --show-output`; count tests that print `not run: NAME:
    /// REASON` as ignored
    Count,
}

/// One command in a guest.
#[derive(Debug, clap::Args)]
struct RunArgs {
    /// Name of the host
    host: String,
    /// Time limit of the guest in seconds
    #[arg(long, default_value_t = 300)]
    limit: u64,
    /// Directory for the files from /out
    #[arg(long, value_name = "DIR")]
    files: Option<PathBuf>,
    /// File of this machine to add to PATH in the guest; can be repeated
    #[arg(long, value_name = "FILE")]
    add: Vec<PathBuf>,
    /// Userland from lab/vm/userlands.toml instead of the host's own
    #[arg(long)]
    userland: Option<String>,
    /// Memory instead of the host's own, on a single node
    #[arg(long, value_name = "SIZE")]
    memory: Option<Bytes>,
    /// Shell command to run
    #[arg(trailing_var_arg = true, required = true, allow_hyphen_values = true)]
    line: Vec<String>,
}

fn main() -> ExitCode {
    match run(VmCli::parse().command) {
        Ok(status) => status,
        Err(error) => {
            eprintln!("hugeleaf-vm: {error:#}");
            let lacks = error.is::<MissingPrecondition>();
            ExitCode::from(if lacks { 3 } else { 125 })
        }
    }
}

fn run(command: VmCommand) -> anyhow::Result<ExitCode> {
    if let VmCommand::Count = command {
        SummaryRewriter::copy(std::io::stdin().lock(), std::io::stdout().lock())?;
        return Ok(ExitCode::SUCCESS);
    }
    let repository = Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .context("the crate is in the repository")?
        .to_owned();
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&stop))?;
    }
    let workshop = GuestRunner {
        repository,
        cache: ArtifactCache::open()?,
        stop,
    };
    match command {
        VmCommand::List => list(&workshop),
        VmCommand::Fetch { hosts } => {
            for host in chosen(&workshop, &hosts)? {
                workshop.prepare(&host)?;
                println!("{}: here", host.name);
            }
            Ok(ExitCode::SUCCESS)
        }
        VmCommand::Run(run) => one_command(&workshop, run),
        VmCommand::Shell { host } => {
            let host = find_host(&workshop, &host)?;
            let programs = compile(&workshop, &[], host.description.architecture)?;
            workshop.shell(&host, &programs)?;
            Ok(ExitCode::SUCCESS)
        }
        VmCommand::Test {
            hosts,
            quick,
            jobs,
            record,
        } => {
            let mut hosts = chosen(&workshop, &hosts)?;
            if quick {
                hosts.retain_mut(GuestConfigFile::only_quick);
            }
            test(&workshop, hosts, jobs, record)
        }
        VmCommand::Table => table(&workshop),
        VmCommand::Count => unreachable!("it needs no workshop"),
    }
}

fn one_command(workshop: &GuestRunner, run: RunArgs) -> anyhow::Result<ExitCode> {
    let host = with(find_host(workshop, &run.host)?, run.userland, run.memory);
    let programs = compile(workshop, &[], host.description.architecture)?;
    let errand = GuestCommand {
        line: run.line.join(" "),
        add: run.add,
        limit: Duration::from_secs(run.limit),
        files: run.files,
    };
    let status = workshop.command(&host, &programs, &errand)?;
    Ok(ExitCode::from(u8::try_from(status).unwrap_or(125)))
}

/// Returns a host with another userland, and with other memory on one node.
fn with(
    mut host: GuestConfigFile,
    userland: Option<String>,
    memory: Option<Bytes>,
) -> GuestConfigFile {
    let description = &mut host.description;
    if let Some(userland) = userland {
        description.userland = userland;
    }
    if let Some(memory) = memory {
        description.memory = MemorySize(memory);
        description.nodes.clear();
    }
    host
}

fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn list(workshop: &GuestRunner) -> anyhow::Result<ExitCode> {
    let hosts = workshop.hosts()?;
    let width = hosts.iter().map(|h| h.name.len()).max().unwrap_or(0);
    for host in hosts {
        let quick = match host.description.quick.is_empty() {
            true => "",
            false => "  (make test)",
        };
        println!("{:width$}  {}{quick}", host.name, host.description.title);
    }
    Ok(ExitCode::SUCCESS)
}

fn find_host(workshop: &GuestRunner, name: &str) -> anyhow::Result<GuestConfigFile> {
    let hosts = workshop.hosts()?;
    let names: Vec<&str> = hosts.iter().map(|h| h.name.as_str()).collect();
    match hosts.iter().find(|h| h.name == name) {
        Some(host) => Ok(host.clone()),
        None => bail!("no host {name}; known hosts: {}", names.join(", ")),
    }
}

fn chosen(workshop: &GuestRunner, names: &[String]) -> anyhow::Result<Vec<GuestConfigFile>> {
    if names.is_empty() {
        return workshop.hosts();
    }
    names.iter().map(|name| find_host(workshop, name)).collect()
}

/// Compiles the programs that hosts of an architecture run.
fn compile(
    workshop: &GuestRunner,
    hosts: &[GuestConfigFile],
    architecture: Architecture,
) -> anyhow::Result<GuestPrograms> {
    let same = hosts
        .iter()
        .filter(|h| h.description.architecture == architecture);
    programs::build(&workshop.repository, architecture, &programs_of(same)?)
}

/// Programs of each architecture, compiled at their first use.
type ProgramsByArchitecture = BTreeMap<Architecture, OnceLock<anyhow::Result<GuestPrograms>>>;

/// Runs the tests of hosts, several at a time. Hosts of this machine's own architecture are first, while cargo
/// compiles for the others.
fn test(
    workshop: &GuestRunner,
    mut hosts: Vec<GuestConfigFile>,
    jobs: usize,
    record: bool,
) -> anyhow::Result<ExitCode> {
    hosts.sort_by_key(|h| Some(h.description.architecture) != Architecture::own());
    let architectures = hosts.iter().map(|h| h.description.architecture);
    let compiled: ProgramsByArchitecture =
        architectures.map(|each| (each, OnceLock::new())).collect();
    let (hosts, compiled, next) = (&hosts, &compiled, &AtomicUsize::new(0));
    let one_by_one = || {
        let mut good = true;
        while let Some(host) = hosts.get(next.fetch_add(1, Ordering::Relaxed)) {
            if workshop.stop.load(Ordering::Relaxed) {
                return false;
            }
            let programs = compiled[&host.description.architecture]
                .get_or_init(|| compile(workshop, hosts, host.description.architecture));
            good &= test_one(workshop, host, programs, record);
        }
        good
    };
    let good = std::thread::scope(|scope| {
        scope.spawn(|| {
            for (&each, programs) in compiled {
                programs.get_or_init(|| compile(workshop, hosts, each));
            }
        });
        let working: Vec<_> = (0..jobs.max(1)).map(|_| scope.spawn(one_by_one)).collect();
        let ended = working.into_iter().map(|thread| thread.join());
        ended.fold(true, |good, each| good & each.unwrap_or(false))
    });
    Ok(match good {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

/// Runs the tests of a host, then prints its whole result at once. Returns true if it is good. Missing preconditions
/// are printed by name, and are not a failure.
fn test_one(
    workshop: &GuestRunner,
    host: &GuestConfigFile,
    programs: &anyhow::Result<GuestPrograms>,
    record: bool,
) -> bool {
    let ran = match programs {
        Ok(programs) => workshop.tests(host, programs),
        Err(error) => return only_missing(host, error),
    };
    match ran.and_then(|(result, ended)| print_result(workshop, &result, &ended, record)) {
        Ok(good) => good,
        Err(error) => only_missing(host, &error),
    }
}

/// Prints why a host was not run; returns true if the only cause is a missing precondition.
fn only_missing(host: &GuestConfigFile, error: &anyhow::Error) -> bool {
    let missing = error.is::<MissingPrecondition>();
    let kind = if missing { "not run: " } else { "" };
    println!("{kind}host {}: {error:#}", host.name);
    missing
}

/// Prints the result of a run; returns true if it is good.
fn print_result(
    workshop: &GuestRunner,
    result: &GuestTestResults,
    ended: &GuestExit,
    record: bool,
) -> anyhow::Result<bool> {
    let mut out = std::io::stdout().lock();
    writeln!(
        out,
        "== {}: {}\n{}",
        result.host,
        result.title,
        SummaryRewriter::text(&ended.output)
    )?;
    writeln!(
        out,
        "host {}: {}; booted in {:.0} s, {:.0} s in all",
        result.host,
        sums(&result.tests),
        result.seconds_to_boot,
        result.seconds
    )?;
    let status = match ended.status() {
        Ok(status) => status,
        Err(error) => {
            writeln!(out, "host {}: {error:#}", result.host)?;
            return Ok(false);
        }
    };
    if record {
        let folder = workshop.repository.join("lab/vm/results");
        std::fs::create_dir_all(&folder)?;
        let text = serde_json::to_string_pretty(result)? + "\n";
        std::fs::write(folder.join(format!("{}.json", result.host)), text)?;
    }
    let failed = result
        .tests
        .iter()
        .any(|t| t.outcome == TestOutcome::Failed);
    Ok(status == 0 && !failed && !result.tests.is_empty())
}

fn table(workshop: &GuestRunner) -> anyhow::Result<ExitCode> {
    let text = page(&hugeleaf_vm::results::recorded(&workshop.repository)?);
    std::fs::write(workshop.repository.join("docs/reference/hosts.md"), text)?;
    Ok(ExitCode::SUCCESS)
}
