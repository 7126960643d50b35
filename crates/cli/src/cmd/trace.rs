//! Implements `hugeleaf trace`.

mod diff;
mod show;

use std::path::{Path, PathBuf};
use std::time::Duration;

use hugeleaf_report::trace::{Shown, json};
use hugeleaf_sys::Pid;
use hugeleaf_trace::model::{Ending, SourceState, TracedTarget};
use hugeleaf_trace::{
    CollectError, Options, Progress, Trace, TraceFileError, check_writable, collect, write_trace,
};
use hugeleaf_units::{Bytes, parse_time};
use hugeleaf_verdict::trace::findings;
use indicatif::ProgressBar;

use crate::context::{Context, Failure, Several, Status, tell};
use crate::progress::{self, PERCENT};

#[derive(Debug, clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_precedence_over_arg = true,
    after_help = "Examples:
  hugeleaf trace --for 10s                    the whole host, ten seconds
  hugeleaf trace postgres --for 30s -o a.trace  with PostgreSQL as the target
  hugeleaf trace show a.trace                 what it says, also on another machine
  hugeleaf trace diff a.trace b.trace         before and after, side by side

The whole host is always collected; a target's processes and their children are shown apart. It
takes CAP_PERFMON and, for locks, a tracefs: run it as root. Nothing of the host is changed."
)]
pub struct Args {
    #[command(subcommand)]
    command: Option<View>,
    /// What to show apart: a PID, a name, a systemd unit, a cgroup's path, or tree:PID
    #[arg(value_name = "TARGET")]
    target: Option<String>,
    /// For how long; Ctrl-C ends it earlier, and what was collected until then is kept
    #[arg(long = "for", value_name = "TIME", default_value = "10s", value_parser = parse_time)]
    time: Duration,
    /// Where to write it [default: hugeleaf-trace-DATE-TIME.trace in this folder]
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// CPU samples a second and CPU
    #[arg(long, value_name = "N", default_value_t = 199, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    rate: u64,
    /// Room for lock events a CPU; larger where events are lost
    #[arg(long, value_name = "SIZE", default_value = "4M")]
    buffer: Bytes,
    /// Leave lock contention out
    #[arg(long)]
    no_locks: bool,
    /// Count every call that locks memory; otherwise those of a part of the time, scaled up
    /// (watching one system call makes each of all others slower)
    #[arg(long)]
    every_call: bool,
    /// Intervals and memory only: needs no privilege
    #[arg(long)]
    intervals_only: bool,
}

#[derive(Debug, clap::Subcommand)]
enum View {
    /// A trace as text, JSON or one page: where time goes, and what was found
    Show(show::Args),
    /// Two traces side by side, before and after
    Diff(diff::Args),
}

pub fn run(args: &Args, context: &Context) -> Result<Status, Failure> {
    match &args.command {
        Some(View::Show(args)) => show::run(args, context),
        Some(View::Diff(args)) => diff::run(args, context),
        None => record(args, context),
    }
}

fn record(args: &Args, context: &Context) -> Result<Status, Failure> {
    context.need_live("trace")?;
    let target = args
        .target
        .as_ref()
        .map(|text| {
            let pids = context.targets(std::slice::from_ref(text), Several::All)?;
            Ok::<_, Failure>(TracedTarget {
                text: text.clone(),
                pids: pids.into_iter().map(|Pid(pid)| pid).collect(),
            })
        })
        .transpose()?;
    let output = args.output.clone().unwrap_or_else(default_path);
    check_writable(&output)?;
    let options = Options {
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
    let bar = progress::bar(PERCENT, millis(args.time));
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
    let shown = Shown {
        trace: &trace,
        findings: &found,
        file: &output.display().to_string(),
    };
    let view = Context::view(false);
    context.answer(view, || json(&shown, None), || shown.screen())?;
    say(&trace, &output, Bytes(size));
    Ok(Status::Good)
}

/// Prints warnings and the file's name to stderr, in addition to the screen.
fn say(trace: &Trace, output: &Path, size: Bytes) {
    for source in &trace.sources {
        if let SourceState::Refused { reason, remedy } = &source.state {
            tell(&format!(
                "hugeleaf: {} left out: {reason}\n  next: {remedy}",
                source.name
            ));
        }
        if source.lost > 0 {
            tell(&format!(
                "hugeleaf: {}: {} events were lost\n  next: hugeleaf trace --buffer 32M, or a lower --rate",
                source.name, source.lost
            ));
        }
    }
    match trace.ending {
        Ending::Done => {}
        Ending::Interrupted => tell(&format!(
            "hugeleaf: ended early, after {:.1} of {:.1} s",
            trace.seconds, trace.asked_seconds
        )),
        Ending::TargetEnded => {
            tell(&format!(
                "hugeleaf: the target ended after {:.1} s",
                trace.seconds
            ));
        }
    }
    tell(&format!("trace: {} ({size})", output.display()));
}

fn default_path() -> PathBuf {
    let now = jiff::Timestamp::now().strftime("%Y%m%d-%H%M%S");
    format!("hugeleaf-trace-{now}.trace").into()
}

impl From<CollectError> for Failure {
    fn from(error: CollectError) -> Failure {
        match error {
            CollectError::Refused { reason, remedy } => Failure::missing(reason, remedy),
            CollectError::Host(error) => error.into(),
        }
    }
}

impl From<TraceFileError> for Failure {
    fn from(error: TraceFileError) -> Failure {
        Failure::missing(error.to_string(), error.next())
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn show_progress(bar: &ProgressBar, progress: Progress) {
    match progress {
        Progress::Before => bar.set_message("reading memory"),
        Progress::At(seconds) => {
            bar.set_position(millis(
                Duration::try_from_secs_f64(seconds).unwrap_or_default(),
            ));
            bar.set_message("tracing; Ctrl-C ends it and keeps what there is");
        }
        Progress::After => bar.set_message("reading memory again"),
        Progress::Names => bar.set_message("looking up functions"),
    }
}
