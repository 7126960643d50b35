//! Implements `hugeleaf bench file`.

use std::cell::OnceCell;
use std::path::{Path, PathBuf};

use hugeleaf_proof::bench::workload_file::{
    ArmPageSource, WorkloadArm, WorkloadBenchSettings, measure, merged,
};
use hugeleaf_proof::bench::{BenchContext, BenchEvent, memory_limit};
use hugeleaf_proof::result_format::Results;
use hugeleaf_proof::write_whole;
use hugeleaf_report::workload_file as view;
use hugeleaf_units::Bytes;
use hugeleaf_verdict::shell_word;
use hugeleaf_workload::workload_file::{SHIPPED, WorkloadSpec, shipped};

use super::failure::failure;
use super::setup::OutputArgs;
use super::size_lists::parse_rounds;
use crate::context::{CommandStatus, Context, Failure, can_ask, confirm, print_stderr};

/// Maximum length of a workload file; usual ones have a page or two.
const LONGEST: Bytes = Bytes::from_mib(1);

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Pages:  4K or base; thp:2M and hugetlb:2M, by hugeleaf run; run (the defaults of hugeleaf run);
        promoted (started unchanged, promoted once it is filled)

Examples:
  hugeleaf bench --list
  hugeleaf bench redis
  hugeleaf bench pgbench --pages 4K,hugetlb:2M,promoted --pairs 10 --html pgbench.html
  hugeleaf bench redis --arm old=server=/opt/old/redis-server --arm new=server=redis-server
  hugeleaf bench my.toml --dry-run     print every command

The first arm is the baseline. Arms take turns in random order, and each run starts everything anew.
A file that is not shipped with hugeleaf runs after you have confirmed its commands on a terminal,
or with --yes. As root, it runs as the user nobody unless it requests root.
Exit status: 0 measured; 1 interrupted, or an arm that was named was unavailable; 2 wrong usage;
3 a precondition is missing.")]
pub struct Args {
    /// Workload of hugeleaf bench --list, or a workload file
    #[arg(value_name = "NAME|FILE")]
    workload: String,
    /// Pages to compare, separated by commas [default: the file's own arms, or else base pages,
    /// THP, and promoted (servers) or run]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pages: Vec<ArmPageSource>,
    /// Arm that sets a workload variable, env.VARIABLE or pages; flags with the same name form one
    /// arm
    #[arg(long = "arm", value_name = "NAME=KEY=VALUE", conflicts_with = "pages")]
    arms: Vec<WorkloadArm>,
    /// Set a workload variable in all arms
    #[arg(long, value_name = "KEY=VALUE", value_parser = parse_set)]
    set: Vec<(String, String)>,
    /// Runs of each arm; an interval needs 6
    #[arg(long = "pairs", value_name = "N", default_value = "6", value_parser = parse_rounds)]
    rounds: usize,
    /// Parent directory for the data of the workload; it should be on a disk
    #[arg(long, value_name = "DIR", default_value = "/var/tmp")]
    below: PathBuf,
    /// Continue an interrupted result, or extend one to --pairs, and rewrite the file
    #[arg(long, value_name = "FILE", conflicts_with = "output")]
    pub(super) resume: Option<PathBuf>,
    /// Seed of the random orders, to repeat a run
    #[arg(long, value_name = "N", default_value = "1")]
    seed: u64,
    /// Print the requirements and every command; run nothing
    #[arg(long)]
    dry_run: bool,
    /// Run a file that is not shipped with hugeleaf, without asking
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    pub(super) output: OutputArgs,
    /// The workload, read once: what was shown and agreed to is what runs.
    #[arg(skip)]
    known: Box<OnceCell<(WorkloadSpec, String)>>,
}

fn parse_set(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err(format!("'{text}' is not KEY=VALUE, as in seconds=5")),
    }
}

impl Args {
    /// Returns true if the user named arms. An unavailable arm then leads to status 1.
    pub(super) fn names_arms(&self) -> bool {
        !self.pages.is_empty() || !self.arms.is_empty()
    }

    /// Handles the cases that end before any measurement: a dry run, and a file that is not shipped and that the user did not agree to run.
    pub(super) fn before(&self, context: &Context) -> Result<Option<CommandStatus>, Failure> {
        let (described, _) = self.read()?;
        if self.dry_run {
            let unmet = described
                .needs
                .unmet_here(memory_limit(&context.root).unwrap_or_default(), &self.below);
            let json = || view::one_json(described, unmet.as_ref());
            context.answer(Context::view(false), json, || {
                view::describe_workload(described, unmet.as_ref())
            })?;
            return Ok(Some(CommandStatus::Good));
        }
        if shipped(&self.workload).is_none() && !self.yes && !self.agreed(described)? {
            return Err(Failure::missing(
                format!(
                    "bench {} is not shipped with hugeleaf, and would run its own commands",
                    self.workload
                ),
                format!(
                    "hugeleaf bench {0} --dry-run, and then: hugeleaf bench {0} --yes",
                    shell_word(&self.workload)
                ),
            ));
        }
        Ok(None)
    }

    /// Shows all commands on the terminal and asks for consent.
    fn agreed(&self, described: &WorkloadSpec) -> Result<bool, Failure> {
        if !can_ask() {
            return Ok(false);
        }
        for (what, command) in described.commands() {
            for line in command.lines() {
                print_stderr(&format!("{what:>8}: {line}"));
            }
        }
        let who = match described.needs.root {
            true => "as root",
            false => "without privileges",
        };
        confirm(&format!("Run these commands {who}?"))
    }

    fn read(&self) -> Result<&(WorkloadSpec, String), Failure> {
        if let Some(known) = self.known.get() {
            return Ok(known);
        }
        let (path, text) = match shipped(&self.workload) {
            Some(shipped) => (
                format!("{}.toml", shipped.name).into(),
                shipped.text.to_owned(),
            ),
            None => self.read_file()?,
        };
        let described = WorkloadSpec::parse(&path, &text).map_err(|e| {
            Failure::usage(
                format!("bench: {e}"),
                "see docs/reference/workload-file.md for all keys of a file",
            )
        })?;
        Ok(self.known.get_or_init(|| (described, text)))
    }

    fn read_file(&self) -> Result<(PathBuf, String), Failure> {
        let path = PathBuf::from(&self.workload);
        let is_name = !self.workload.contains(['/', '.']);
        let read = hugeleaf_sys::open_regular(&path)
            .and_then(|file| hugeleaf_sys::read_at_most(&file, LONGEST));
        let bytes = read.map_err(|e| match is_name {
            true => Failure::usage(
                format!(
                    "bench {}: no such benchmark, workload or file",
                    self.workload
                ),
                "hugeleaf bench --help; hugeleaf bench --list",
            ),
            false => Failure::missing(
                format!("bench: {}: {e}", path.display()),
                "name a file that describes a workload; hugeleaf bench --list",
            ),
        })?;
        let text = String::from_utf8(bytes).map_err(|_| {
            Failure::usage(
                format!("bench: {}: not UTF-8", path.display()),
                "write it as UTF-8",
            )
        })?;
        Ok((path, text))
    }

    pub(super) fn measure(
        &self,
        machine: &BenchContext<'_>,
        progress: &mut dyn FnMut(BenchEvent),
    ) -> Result<Results, Failure> {
        let (described, text) = self.read()?;
        let mut described = described.clone();
        let (matrix, set): (Vec<_>, Vec<_>) =
            (self.set.iter().cloned()).partition(|(name, _)| described.matrix.contains_key(name));
        for (name, value) in matrix {
            described.matrix.insert(name, vec![value]);
        }
        let resume = self
            .resume
            .as_deref()
            .map(crate::cmd::read_results::read)
            .transpose()?;
        let path = self.resume.clone().or_else(|| self.output.output.clone());
        let settings = WorkloadBenchSettings {
            described: &described,
            given: &self.workload,
            text,
            arms: self.arms_set(&set, &described, machine),
            rounds: self.rounds,
            seed: self.seed,
            below: self.below.clone(),
            resume,
            // Without an output file, an interrupted result is written only at the end.
            keep: &|results| {
                if let Some(path) = &path {
                    // The final write reports a full disk.
                    let _ = write_whole(path, &results.to_json());
                }
            },
        };
        measure(&settings, machine, progress).map_err(|error| failure(&described.name, &error))
    }

    /// Returns the arms with the settings common to all of them; an arm's own settings take precedence.
    fn arms_set(
        &self,
        set: &[(String, String)],
        described: &WorkloadSpec,
        machine: &BenchContext<'_>,
    ) -> Vec<WorkloadArm> {
        let mut arms = self.arms(described, machine);
        for arm in &mut arms {
            let own = std::mem::take(&mut arm.set);
            arm.set = set.iter().cloned().chain(own).collect();
        }
        arms
    }

    fn arms(&self, described: &WorkloadSpec, machine: &BenchContext<'_>) -> Vec<WorkloadArm> {
        if !self.arms.is_empty() {
            return merged(self.arms.iter().cloned());
        }
        let of = |pages: ArmPageSource| WorkloadArm {
            name: pages.label(machine.host),
            pages: Some(pages),
            ..WorkloadArm::default()
        };
        if self.pages.is_empty() && !described.arms.is_empty() {
            let own = described.arms.iter().cloned();
            return merged(own.map(|own| WorkloadArm {
                name: own.name,
                set: own.set,
                ..WorkloadArm::default()
            }));
        }
        match self.pages.is_empty() {
            false => merged(self.pages.iter().copied().map(of)),
            true => merged(usual(described, machine).into_iter().map(of)),
        }
    }
}

/// Returns the default arms: base pages, THP, and promotion at run time where possible.
fn usual(described: &WorkloadSpec, machine: &BenchContext<'_>) -> Vec<ArmPageSource> {
    let base = machine.host.base_page.to_string();
    let huge = machine
        .host
        .pmd_page
        .get()
        .map(|size| format!("thp:{size}"));
    let live = match described.server {
        Some(_) => "promoted",
        None => "run",
    };
    let all = [Some(base), huge, Some(live.to_owned())];
    all.into_iter()
        .flatten()
        .filter_map(|text| text.parse().ok())
        .collect()
}

pub(super) fn list(context: &Context) -> Result<CommandStatus, Failure> {
    let memory = memory_limit(&context.root).unwrap_or_default();
    let mut all = Vec::new();
    for shipped in SHIPPED {
        let described = shipped.described();
        let described =
            described.map_err(|e| Failure::missing(format!("bench: {e}"), "report this"))?;
        let unmet = described.needs.unmet_here(memory, Path::new("/var/tmp"));
        all.push((described, unmet));
    }
    context.answer(
        Context::view(false),
        || view::list_json(&all),
        || view::list(&all),
    )?;
    Ok(CommandStatus::Good)
}
