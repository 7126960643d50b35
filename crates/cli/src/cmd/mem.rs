//! See `hugeleaf mem --help`.

use std::sync::atomic::Ordering;
use std::time::Duration;

use hugeleaf_host::process::orders;
use hugeleaf_host::{Host, Looking, Process, SharedObject, read_all_processes};
use hugeleaf_report::mem::{Mem, Shown, global_json, global_text, rank};
use hugeleaf_report::why::verdicts_json;
use hugeleaf_sys::Kernel;
use hugeleaf_verdict::why::account;

use crate::context::{Context, Failure, Status};

/// Flags.
#[derive(Debug, Default, clap::Args)]
#[command(after_help = "Examples:
  hugeleaf mem                 processes, those with most on base pages first
  hugeleaf mem postgres        the segments of all processes of that name
  hugeleaf mem tree:1234       a process and its descendants
  hugeleaf mem --global        the whole host, by page size")]
pub struct Args {
    /// Processes: a PID, a name, a systemd unit, a cgroup's path, or tree:PID
    #[arg(value_name = "TARGET")]
    targets: Vec<String>,
    /// The whole host by page size: pool, in use, pinned, free
    #[arg(long, conflicts_with = "targets")]
    global: bool,
    /// Also tell the smaller THP sizes apart, by page flags (needs root, and a target)
    #[arg(long, requires = "targets")]
    orders: bool,
    /// All rows, however small
    #[arg(long)]
    all: bool,
    /// Repeat every so often until Ctrl-C, as in 1s or 500ms
    #[arg(long, value_name = "TIME", value_parser = crate::context::parse_time)]
    watch: Option<Duration>,
}

/// Runs it.
pub fn run(args: &Args, context: &Context) -> Result<Status, Failure> {
    let Some(pause) = args.watch else {
        Context::print(&answer(args, context)?)?;
        return Ok(Status::Good);
    };
    context.need_live("mem --watch")?;
    context.stop_on_signals()?;
    while !context.stop.load(Ordering::Relaxed) {
        let text = answer(args, context)?;
        if Context::is_terminal() && !context.json {
            // Home and clear to the end: less flicker than clearing the whole screen first.
            Context::print(&format!("\x1b[H\x1b[J{text}"))?;
        } else {
            Context::print(&text)?;
        }
        context.kernel.sleep(pause);
    }
    Ok(Status::Good)
}

/// One look at the host.
fn answer(args: &Args, context: &Context) -> Result<String, Failure> {
    let host = context.host()?;
    let width = Context::width();
    if args.global {
        return Ok(if context.json {
            global_json(&host)
        } else {
            global_text(&host, width)
        });
    }
    let (mut processes, shared) = read(args, context, &host)?;
    rank(&mut processes);
    let wants_verdicts = context.json && !args.targets.is_empty();
    let verdicts: Vec<_> = processes
        .iter()
        .filter(|_| wants_verdicts)
        .map(|p| verdicts_json(&account(&host, p, &p.pid.to_string())))
        .collect();
    let mem = Mem {
        host: &host,
        processes: &processes,
        shared: &shared,
        targeted: !args.targets.is_empty(),
        verdicts: &verdicts,
    };
    Ok(if context.json {
        mem.json()
    } else {
        mem.text(Shown {
            width,
            all: args.all,
        })
    })
}

fn read(
    args: &Args,
    context: &Context,
    host: &Host,
) -> Result<(Vec<Process>, Vec<SharedObject>), Failure> {
    if args.targets.is_empty() {
        return Ok(read_all_processes(&context.root, &context.kernel, host));
    }
    // Verdicts need the pages; the screen does not, and reading them takes longer.
    let looking = if context.json {
        Looking::Pages
    } else {
        Looking::Segments
    };
    let pids = context.targets(&args.targets)?;
    let (mut processes, unread) = context.read_targets(host, &pids, looking)?;
    for (_, error) in &unread {
        eprintln!("hugeleaf: left out: {error}");
    }
    if args.orders {
        for process in &mut processes {
            orders::split_by_folio(&context.root, host, process)?;
        }
    }
    Ok((processes, Vec::new()))
}
