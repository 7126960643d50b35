//! Implements `hugeleaf mem`.

use std::time::Duration;

use hugeleaf_host::process::{folios, read_run_settings};
use hugeleaf_host::{Host, Pid, Process, ReadDetail, SharedMemoryObject, read_all_processes};
use hugeleaf_report::mem::{MemView, global_json, global_page, rank};
use hugeleaf_verdict::role_results::{RoleResult, judge_roles};
use hugeleaf_verdict::why::{SegmentAccount, account};

use crate::context::{AmbiguityPolicy, CommandStatus, Context, Failure, print_stderr};
use crate::progress::Bar;

#[derive(Debug, Default, clap::Args)]
#[command(after_help = "\
Examples:
  hugeleaf mem                 processes, most base-page memory first
  hugeleaf mem postgres        mappings of all processes of that name
  hugeleaf mem tree:1234       a process and its descendants
  hugeleaf mem --global        the whole host, by page size")]
pub struct Args {
    /// Processes: PID, name, systemd unit, cgroup path, or tree:PID
    #[arg(value_name = "TARGET")]
    targets: Vec<String>,
    /// Show the whole host by page size: pool, used, pinned and free memory
    #[arg(long, conflicts_with = "targets")]
    global: bool,
    /// Distinguish the smaller THP sizes, by page flags; needs root and a target
    #[arg(long, requires = "targets")]
    orders: bool,
    /// Show all rows, including small ones, and each process in a row of its own
    #[arg(long)]
    all: bool,
    /// Repeat at this interval until Ctrl-C, e.g. 1s or 500ms
    #[arg(long, value_name = "TIME", value_parser = hugeleaf_units::parse_time)]
    watch: Option<Duration>,
}

pub fn run(args: &Args, context: &Context) -> Result<CommandStatus, Failure> {
    let Some(pause) = args.watch else {
        scan_once(args, context)?;
        return Ok(CommandStatus::Good);
    };
    context.need_live("mem --watch")?;
    context.stop_on_signals()?;
    loop {
        scan_once(args, context)?;
        if !context.kernel.wait(pause, &context.stop) {
            return Ok(CommandStatus::Good);
        }
    }
}

/// Scans the host once and prints the result. With `--watch` on a terminal it replaces the previous screen.
fn scan_once(args: &Args, context: &Context) -> Result<(), Failure> {
    // With --watch the previous screen stays until the next one.
    let bar = (args.watch.is_none()).then(|| Bar::spinner("reading the memory of the processes"));
    let host = context.host()?;
    let clear = || match args.watch.is_some() && Context::is_terminal() && !context.json {
        true => Context::clear(),
        false => Ok(()),
    };
    let view = Context::view(args.all);
    if args.global {
        drop(bar);
        clear()?;
        return context.answer(view, || global_json(&host), || global_page(&host));
    }
    let (mut processes, shared) = read(args, context, &host)?;
    rank(&mut processes);
    let targeted = !args.targets.is_empty();
    // Only verdicts have advice.
    let has_verdicts = context.json || processes.iter().any(|p| p.run.known().is_some());
    let host = match targeted && has_verdicts {
        true => context.with_wants(host),
        false => host,
    };
    let judged = processes.iter().filter(|_| targeted);
    let judged = judged.map(|p| judge(&host, p, context.json));
    let (accounts, roles): (Vec<_>, Vec<_>) = judged.unzip();
    let mem = MemView {
        host: &host,
        processes: &processes,
        shared: &shared,
        targeted,
        accounts: &accounts,
        roles: &roles,
    };
    drop(bar);
    clear()?;
    context.answer(view, || mem.json(), || mem.page(args.all))
}

/// Judges a process's ranges, and its roles if `run` started it.
fn judge(
    host: &Host,
    process: &Process,
    wants_verdicts: bool,
) -> (Vec<SegmentAccount>, Vec<RoleResult>) {
    let settings = process.run.known();
    let accounts = match wants_verdicts || settings.is_some() {
        true => account(host, process, &process.pid.to_string()),
        false => Vec::new(),
    };
    let roles = settings.map(|s| judge_roles(host, process, s, &accounts).states);
    (accounts, roles.unwrap_or_default())
}

fn read(
    args: &Args,
    context: &Context,
    host: &Host,
) -> Result<(Vec<Process>, Vec<SharedMemoryObject>), Failure> {
    if args.targets.is_empty() {
        return Ok(read_all_processes(&context.root, &context.kernel, host));
    }
    let pids = context.targets(&args.targets, AmbiguityPolicy::All)?;
    let under_run = |pid: &Pid| read_run_settings(&context.root, *pid).known().is_some();
    // Verdicts and roles need the page map. Other views skip it because reading it takes longer.
    let looking = if context.json || pids.iter().any(under_run) {
        ReadDetail::Pages
    } else {
        ReadDetail::Segments
    };
    let (mut processes, unread) = context.read_targets(host, &pids, looking)?;
    for (_, error) in &unread {
        print_stderr(&format!("hugeleaf: skipped: {error}"));
    }
    if args.orders {
        for process in &mut processes {
            folios::split_by_folio(&context.root, host, process)?;
        }
    }
    Ok((processes, Vec::new()))
}
