//! Implements `hugeleaf promote` and `hugeleaf demote`.

use std::time::Duration;

use hugeleaf_mover::{
    BytesByReason, DemoteOptions, Outcome, Percent, PreconditionError, Progress, PromoteOptions,
    StallLimits, demote, promote,
};
use hugeleaf_report::promote::{
    ALL, BootTaskRunner, HostCommands, PromoteRequest, PromotionDirection, json, page,
};
use hugeleaf_sys::Pid;
use hugeleaf_units::parse_time;

use crate::context::{AmbiguityPolicy, CommandStatus, Context, Failure};
use crate::progress::{Bar, BarLayout};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  hugeleaf promote mariadbd                   all processes of that name
  hugeleaf promote --dry-run 1234             memory to promote, and reasons against the rest
  hugeleaf promote postgresql.service         a unit; memory that its processes share counts once
  hugeleaf promote --switch-thp-on mariadbd   a server that disabled THP for itself
  hugeleaf promote --budget 100% 1234         as fast as possible, whatever it costs the server
  hugeleaf promote --at-least 95% qemu-kvm    until 95 % of the guest is on huge pages

Exit status: 0 promoted all that can be, or nothing to promote; 1 incomplete: something was refused,
busy or not reached, or a process ended; 2 wrong usage; 3 a precondition is missing.
With --at-least: 0 the share is reached; 1 it is not.")]
pub struct PromoteArgs {
    #[command(flatten)]
    common: ProcessChangeArgs,
    /// Minimum resident part of a block to promote it; below 100% memory grows by the amount
    /// reported
    #[arg(long, value_name = "PERCENT", default_value = "100%")]
    min_resident: Percent,
    /// Re-enable THP first in processes that disabled it by prctl, e.g. MariaDB. ptrace stops their
    /// main thread for a few microseconds (x86-64 only)
    #[arg(long)]
    switch_thp_on: bool,
    /// Repeat until this share of the eligible memory is on huge pages, a repetition gains nothing,
    /// or 10 minutes have passed. Memory where no whole huge page fits is not eligible
    #[arg(long, value_name = "PERCENT", conflicts_with = "dry_run")]
    at_least: Option<Percent>,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  hugeleaf demote mariadbd      revert a promotion
  hugeleaf demote tree:1234     a process and its descendants

Memory that several processes map is split through debugfs, for all of them. If the host does not
allow the use of that file, the memory stays on huge pages, and the answer says why. Memory locked
with mlock stays on huge pages, as does memory that promote would refuse, because it could not be
promoted again. Memory that was on huge pages before a promotion is demoted too. Zero pages that the
kernel frees during a split are returned to the process, so its size stays the same.

Exit status: 0 demoted all that can be, or nothing to demote; 1 incomplete: something was refused,
busy or not reached, or a process ended; 2 wrong usage; 3 a precondition is missing.")]
pub struct DemoteArgs {
    #[command(flatten)]
    common: ProcessChangeArgs,
}

#[derive(Debug, clap::Args)]
struct ProcessChangeArgs {
    /// Processes: PID, name, systemd unit, cgroup path, or tree:PID
    #[arg(value_name = "TARGET", required = true)]
    targets: Vec<String>,
    /// Maximum share of the process's time that the calls may take
    #[arg(long, value_name = "PERCENT", default_value = "10%")]
    budget: Percent,
    /// Bound the stall of one call, e.g. 5ms. A call for one huge page takes about 1 ms, and more
    /// if memory is fragmented or processors are busy
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    longest_stall: Option<Duration>,
    /// Accept a name that several unrelated process trees have, and take all of them
    #[arg(long)]
    all: bool,
    /// Print the planned changes; change nothing
    #[arg(long)]
    dry_run: bool,
}

impl ProcessChangeArgs {
    const fn pace(&self) -> StallLimits {
        StallLimits {
            budget: self.budget,
            longest_stall: self.longest_stall,
        }
    }
}

pub fn run_promote(args: &PromoteArgs, context: &Context) -> Result<CommandStatus, Failure> {
    let options = PromoteOptions {
        pace: args.common.pace(),
        min_resident: args.min_resident,
        switch_thp_on: args.switch_thp_on,
        at_least: args.at_least,
        dry_run: args.common.dry_run,
        ..PromoteOptions::default()
    };
    run(
        &args.common,
        context,
        PromotionDirection::Promote,
        |host, pids, progress| {
            let (kernel, root) = (&context.kernel, &context.root);
            promote(kernel, root, host, pids, &options, progress, &context.stop)
        },
    )
}

pub fn run_demote(args: &DemoteArgs, context: &Context) -> Result<CommandStatus, Failure> {
    let options = DemoteOptions {
        pace: args.common.pace(),
        dry_run: args.common.dry_run,
        ..DemoteOptions::default()
    };
    run(
        &args.common,
        context,
        PromotionDirection::Demote,
        |host, pids, progress| {
            let (kernel, root) = (&context.kernel, &context.root);
            demote(kernel, root, host, pids, &options, progress, &context.stop)
        },
    )
}

type ProgressSink<'a> = &'a mut dyn FnMut(&Progress<'_>);

fn run(
    common: &ProcessChangeArgs,
    context: &Context,
    direction: PromotionDirection,
    change: impl FnOnce(
        &hugeleaf_host::Host,
        &[Pid],
        ProgressSink<'_>,
    ) -> Result<Outcome, PreconditionError>,
) -> Result<CommandStatus, Failure> {
    context.need_live(direction.verb())?;
    let several = match common.all || common.dry_run {
        true => AmbiguityPolicy::All,
        false => AmbiguityPolicy::Confirm(direction.verb()),
    };
    let pids = context.targets(&common.targets, several)?;
    // The next suggested command needs --all for an ambiguous name.
    let targets = match context.targets(&common.targets, AmbiguityPolicy::Refused) {
        Ok(_) => common.targets.join(" "),
        Err(_) => format!("{ALL}{}", common.targets.join(" ")),
    };
    let host = context.host()?;
    context.stop_on_signals()?;
    let bar = Bar::new(BarLayout::Bytes, 0);
    let mut one_way = None;
    let outcome = change(&host, &pids, &mut |progress| {
        if progress.one_way != one_way && !common.dry_run {
            one_way = progress.one_way;
            bar.note(&one_way.map_or_else(String::new, BytesByReason::one_way_in_words));
        }
        bar.set_prefix(progress.stage.name());
        bar.set_length(progress.total.get());
        bar.set_position(progress.done.get());
    });
    drop(bar);
    let outcome = outcome?;
    let host = context.with_wants(host);
    let commands = HostCommands::new(&host, own_path(), scheduler(context));
    let request = PromoteRequest {
        direction,
        targets: &targets,
        pace: common.pace(),
        commands: &commands,
    };
    let view = Context::view(false);
    context.answer(view, || json(&outcome), || page(&outcome, &request))?;
    Ok((outcome.is_success() || outcome.dry_run).into())
}

/// Returns the path of this program, or its name if the path is unknown.
pub fn own_path() -> String {
    std::env::current_exe().map_or_else(|_| "hugeleaf".into(), |path| path.display().to_string())
}

/// Returns the scheduler of the host. sd_booted(3) recognises systemd by this folder.
pub fn scheduler(context: &Context) -> BootTaskRunner {
    let exists = |path: &str| context.root.path(path).is_dir();
    if exists("run/systemd/system") {
        BootTaskRunner::Systemd
    } else if exists("etc/cron.d")
        && (exists("var/spool/cron/crontabs") || exists("var/spool/cron"))
    {
        BootTaskRunner::Cron
    } else {
        BootTaskRunner::Unknown
    }
}
