//! Implements `hugeleaf predict`.

use std::path::PathBuf;
use std::time::Duration;

use hugeleaf_host::Host;
use hugeleaf_host::process::cpu_time::{CpuUsage, cpu_usage};
use hugeleaf_mover::WorkingSetOptions;
use hugeleaf_mover::walk_time;
use hugeleaf_proof::bench::{BenchContext, memory_limit};
use hugeleaf_proof::circumstances;
use hugeleaf_proof::prediction_inputs::{observe, reads, table};
use hugeleaf_report::predict::PredictionView;
use hugeleaf_sys::Pid;
use hugeleaf_units::{Bytes, parse_time};
use hugeleaf_verdict::findings::shell_word;
use hugeleaf_verdict::predict::{ReadLatency, predict, working_set};

use crate::context::{AmbiguityPolicy, CommandStatus, Context, Failure};
use crate::progress::Bar;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Nothing is changed. predict samples the pages that the process touches, and measures the cost of a
random read on base and on huge pages of this host. If the processor counts page walks, it uses
these counters instead. Watch the process under its usual load. An interval too wide to be useful
is not printed.

The kernel reports touched pages only for a whole process. A scan takes about 20 ms per gigabyte on
base pages (up to 100 ns per page), and the process cannot map memory meanwhile. A process whose
scan would exceed --longest-stall is not watched. Several processes are judged as one, weighted by
their CPU time.

Exit status: 0 predicted; 1 no prediction, with the reason; 2 wrong usage; 3 a precondition is
missing.

Examples:
  hugeleaf predict 1234
  hugeleaf predict tree:1234                a server with one process per client
  hugeleaf predict mariadbd --for 30s --longest-stall 100ms
  hugeleaf bench chase -o chase.json && hugeleaf predict 1234 --chase chase.json
  hugeleaf prove 1234 --metric …            measure the actual gain")]
pub struct Args {
    /// Process: PID, name, systemd unit, cgroup path, or tree:PID
    #[arg(value_name = "TARGET")]
    target: String,
    /// Time to watch the process
    #[arg(long = "for", value_name = "TIME", default_value = "4s", value_parser = parse_time)]
    time: Duration,
    /// Maximum time that one scan may keep the process from mapping memory
    #[arg(long, value_name = "TIME", default_value = "5ms", value_parser = parse_time)]
    longest_stall: Duration,
    /// Latencies from a result of hugeleaf bench chase [default: measured now, in a few seconds]
    #[arg(long, value_name = "FILE")]
    chase: Option<PathBuf>,
}

pub fn run(args: &Args, context: &Context) -> Result<CommandStatus, Failure> {
    context.need_live("predict")?;
    let host = context.host()?;
    let pids = context.targets(std::slice::from_ref(&args.target), AmbiguityPolicy::All)?;
    context.stop_on_signals()?;
    let bar = Bar::spinner(&format!("watching {}", args.target));
    let pids = busiest(context, &pids);
    let watch = WorkingSetOptions {
        time: args.time,
        held: args.longest_stall,
        stop: &context.stop,
    };
    let observed = observe(&context.kernel, (&context.root, &host), &pids, watch);
    let observed = observed.map_err(|why| args.not_watched(context, &pids, &why))?;
    // A process that has nothing to gain needs no latency measurement.
    let (reads, predicted) = match working_set(&observed.watched) {
        Ok(size) => {
            bar.set_message("measuring the cost of a read");
            let reads = args.reads(context, &host, size)?;
            (Some(reads), predict(&observed.watched, &reads))
        }
        Err(unsaid) => (None, Err(unsaid)),
    };
    drop(bar);
    let prediction = PredictionView {
        target: &args.target,
        processes: &observed.processes,
        watched: &observed.watched,
        longest_walk: observed.longest_walk,
        reads: reads.as_ref(),
        predicted: &predicted,
    };
    context.answer(
        Context::view(false),
        || prediction.json(),
        || prediction.page(),
    )?;
    Ok(predicted.is_ok().into())
}

/// Maximum number of watched processes; each takes a thread.
const MOST: usize = 32;

/// Returns the processes that use CPU time, busiest first. Returns all if none does or there is
/// only one.
fn busiest(context: &Context, pids: &[Pid]) -> Vec<Pid> {
    const WHILE: Duration = Duration::from_millis(500);
    if let [pid] = pids {
        return vec![*pid];
    }
    let scan = || pids.iter().map(|pid| cpu_usage(&context.root, *pid).ok());
    let before: Vec<_> = scan().collect();
    context.kernel.wait(WHILE, &context.stop);
    let used = |(now, then): (Option<CpuUsage>, &Option<CpuUsage>)| {
        let since = now?.since(then.as_ref()?);
        Some(since.user + since.system + since.waited.unwrap_or_default())
    };
    let used = scan()
        .zip(&before)
        .map(|pair| used(pair).unwrap_or_default());
    let mut by_use: Vec<(Duration, Pid)> = used.zip(pids.iter().copied()).collect();
    by_use.sort_by_key(|(used, _)| std::cmp::Reverse(*used));
    let works = by_use
        .iter()
        .take_while(|(used, _)| !used.is_zero())
        .count();
    let count = if works == 0 { pids.len() } else { works };
    let first = by_use.iter().take(count.min(MOST));
    first.map(|(_, pid)| *pid).collect()
}

impl Args {
    fn not_watched(&self, context: &Context, pids: &[Pid], why: &str) -> Failure {
        let walk = |pid: &Pid| walk_time(&context.kernel, &context.root, *pid).ok();
        let longest = pids.iter().filter_map(walk).max();
        let next = match longest.filter(|longest| *longest > self.longest_stall) {
            Some(longest) => format!(
                "allow it: hugeleaf predict {} --longest-stall {}ms",
                shell_word(&self.target),
                longest.as_millis() * 5 / 4 + 1
            ),
            None => format!(
                "hugeleaf mem {}    # checks that it can be read",
                shell_word(&self.target)
            ),
        };
        Failure::missing(format!("predict: {why}"), next)
    }

    fn reads(&self, context: &Context, host: &Host, size: Bytes) -> Result<ReadLatency, Failure> {
        if let Some(path) = &self.chase {
            let results = super::read_results::read(path)?;
            return table(&results, size).ok_or_else(|| {
                Failure::missing(
                    format!(
                        "predict: {} has no reads on base pages and on thp",
                        path.display()
                    ),
                    format!(
                        "hugeleaf bench chase --pages base,thp:2M -o {}",
                        path.display()
                    ),
                )
            });
        }
        let most = memory_limit(&context.root).unwrap_or_default();
        let circumstances = circumstances(&context.root, host, &[]);
        let machine = BenchContext {
            root: &context.root,
            host,
            circumstances: &circumstances,
            most,
            program: &context.program()?,
            stop: &context.stop,
        };
        reads(&machine, size).map_err(|e| {
            Failure::missing(
                format!("predict: cannot measure the cost of a read: {e}"),
                e.next(),
            )
        })
    }
}
