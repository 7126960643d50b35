//! Implements `hugeleaf trace`.

mod diff;
mod show;

use std::path::{Path, PathBuf};
use std::time::Duration;

use hugeleaf_host::Root;
use hugeleaf_report::trace::{TraceView, json};
use hugeleaf_sys::Pid;
use hugeleaf_trace::model::{SourceState, TraceEndReason, TracedTarget};
use hugeleaf_trace::{
    CollectOptions, CollectStage, Trace, check_writable, collect, ring_memory, write_trace,
};
use hugeleaf_units::{Bytes, parse_time};
use hugeleaf_verdict::trace_findings::findings;

use crate::context::{AmbiguityPolicy, CommandStatus, Context, Failure, print_stderr};
use crate::progress::{Bar, BarLayout};

#[derive(Debug, clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_precedence_over_arg = true,
    after_help = "\
Examples:
  hugeleaf trace --for 10s                      the whole host, ten seconds
  hugeleaf trace postgres --for 30s -o a.trace  with PostgreSQL as the target
  hugeleaf trace show a.trace                   show a trace, also on another machine
  hugeleaf trace diff a.trace b.trace           before and after, side by side

The whole host is always recorded. The processes of a target and their children are shown
separately. Recording requires CAP_PERFMON and, for locks, a tracefs: run it as root. The host is
not changed."
)]
pub struct Args {
    #[command(subcommand)]
    command: Option<TraceCommand>,
    /// Processes to show separately: PID, name, systemd unit, cgroup path, or tree:PID
    #[arg(value_name = "TARGET")]
    target: Option<String>,
    /// Recording time; Ctrl-C ends it early and keeps the data collected until then
    #[arg(long = "for", value_name = "TIME", default_value = "10s", value_parser = parse_time)]
    time: Duration,
    /// Trace file [default: hugeleaf-trace-DATE-TIME.trace in the current directory]
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// CPU samples per second and CPU
    #[arg(long, value_name = "N", default_value_t = 199, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    rate: u64,
    /// Buffer per CPU for lock events; enlarge it if events are lost
    #[arg(long, value_name = "SIZE", default_value = "4M")]
    buffer: Bytes,
    /// Do not record lock contention
    #[arg(long)]
    no_locks: bool,
    /// Count every call that locks memory, instead of sampling and scaling up; slows down all
    /// system calls meanwhile
    #[arg(long)]
    every_call: bool,
    /// Record intervals and memory only; needs no privilege
    #[arg(long)]
    intervals_only: bool,
}

#[derive(Debug, clap::Subcommand)]
enum TraceCommand {
    /// Show a trace as text, JSON or an HTML page, with findings
    Show(show::Args),
    /// Show two traces side by side, before and after
    Diff(diff::Args),
}

impl Args {
    /// Returns the memory of the rings that a recording needs; none for a view.
    pub fn ring_memory(&self, root: &Root) -> Bytes {
        match self.command.is_some() || self.intervals_only {
            true => Bytes::ZERO,
            false => ring_memory(root, self.buffer, self.no_locks),
        }
    }
}

pub fn run(args: &Args, context: &Context) -> Result<CommandStatus, Failure> {
    match &args.command {
        Some(TraceCommand::Show(args)) => show::run(args, context),
        Some(TraceCommand::Diff(args)) => diff::run(args, context),
        None => record(args, context),
    }
}

fn record(args: &Args, context: &Context) -> Result<CommandStatus, Failure> {
    context.need_live("trace")?;
    let target = args
        .target
        .as_ref()
        .map(|text| {
            let pids = context.targets(std::slice::from_ref(text), AmbiguityPolicy::All)?;
            Ok::<_, Failure>(TracedTarget {
                text: text.clone(),
                pids: pids.into_iter().map(|Pid(pid)| pid).collect(),
            })
        })
        .transpose()?;
    let output = args.output.clone().unwrap_or_else(default_path);
    check_writable(&output)?;
    let options = CollectOptions {
        time: args.time,
        rate: args.rate,
        buffer: args.buffer,
        intervals_only: args.intervals_only,
        no_locks: args.no_locks,
        every_call: args.every_call,
        target,
        command: std::env::args().collect(),
        tool_version: env!("CARGO_PKG_VERSION").to_owned(),
    };
    context.stop_on_signals()?;
    let bar = Bar::new(BarLayout::Percent, millis(args.time));
    let trace = collect(
        &context.root,
        &context.kernel,
        &options,
        &context.stop,
        &mut |progress| show_progress(&bar, progress),
    )?;
    drop(bar);
    let size = write_trace(&output, &trace)?;
    let found = findings(&trace);
    let shown = TraceView {
        trace: &trace,
        findings: &found,
        file: &output.display().to_string(),
    };
    let view = Context::view(false);
    context.answer(view, || json(&shown, None), || shown.screen())?;
    say(&trace, &output, Bytes(size));
    Ok(CommandStatus::Good)
}

/// Prints warnings and the file's name to stderr, in addition to the screen.
fn say(trace: &Trace, output: &Path, size: Bytes) {
    for source in &trace.sources {
        if let SourceState::Refused { reason, remedy } = &source.state {
            print_stderr(&format!(
                "hugeleaf: {} skipped: {reason}\n  next: {remedy}",
                source.name
            ));
        }
        if source.lost > 0 {
            print_stderr(&format!(
                "hugeleaf: {}: {} events were lost\n  next: hugeleaf trace --buffer 32M, or a lower --rate",
                source.name, source.lost
            ));
        }
    }
    match trace.ending {
        TraceEndReason::Done => {}
        TraceEndReason::Interrupted => print_stderr(&format!(
            "hugeleaf: ended early, after {:.1} of {:.1} s",
            trace.seconds, trace.asked_seconds
        )),
        TraceEndReason::TargetEnded => {
            print_stderr(&format!(
                "hugeleaf: the target ended after {:.1} s",
                trace.seconds
            ));
        }
    }
    print_stderr(&format!("trace: {} ({size})", output.display()));
}

fn default_path() -> PathBuf {
    let now = jiff::Timestamp::now().strftime("%Y%m%d-%H%M%S");
    format!("hugeleaf-trace-{now}.trace").into()
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn show_progress(bar: &Bar, progress: CollectStage) {
    match progress {
        CollectStage::Before => bar.set_message("reading memory"),
        CollectStage::At(seconds) => {
            bar.set_position(millis(
                Duration::try_from_secs_f64(seconds).unwrap_or_default(),
            ));
            bar.set_message("tracing; Ctrl-C stops it and keeps the trace");
        }
        CollectStage::After => bar.set_message("reading memory again"),
        CollectStage::Names => bar.set_message("looking up functions"),
    }
}
