//! See `hugeleaf predict --help`.

use std::path::PathBuf;
use std::time::Duration;

use hugeleaf_host::Host;
use hugeleaf_host::process::spent::spent;
use hugeleaf_proof::bench::{Machine, room};
use hugeleaf_proof::circumstances;
use hugeleaf_proof::predict::{observe, reads, table};
use hugeleaf_report::predict::Prediction;
use hugeleaf_sys::Pid;
use hugeleaf_units::{Bytes, parse_time};
use hugeleaf_verdict::predict::{MODEL, Reads, predict, working_set};

use crate::context::{Context, Failure, Several, Status};
use crate::progress::{SPINNER, bar};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Without a change: it looks now and then at which pages the process touches (each look takes about
20 ms for each gigabyte on base pages, in which the process cannot map memory), and measures what a
random read costs here on base pages and on large ones. Where the processor counts page walks, it
goes by those. A range that would say nothing is not printed. Watch it under its usual load.

Exit status: 0 predicted; 1 nothing can be said, with the reason; 2 wrong usage; 3 a precondition
is missing.

Examples:
  hugeleaf predict 1234
  hugeleaf predict postgres                 of several processes the one that works most
  hugeleaf predict mariadbd --for 30s
  hugeleaf bench chase -o chase.json && hugeleaf predict 1234 --chase chase.json
  hugeleaf prove 1234 --metric …            what it does bring, measured")]
pub struct Args {
    /// A process: PID, name, systemd unit, cgroup's path, or tree:PID
    #[arg(value_name = "TARGET")]
    target: String,
    /// How long to watch it
    #[arg(long = "for", value_name = "TIME", default_value = "4s", value_parser = parse_time)]
    time: Duration,
    /// What reads cost here, by a result of hugeleaf bench chase [default: measured now, a few seconds]
    #[arg(long, value_name = "FILE")]
    chase: Option<PathBuf>,
}

pub fn run(args: &Args, context: &Context) -> Result<Status, Failure> {
    context.need_live("predict")?;
    let host = context.host()?;
    let pids = context.targets(std::slice::from_ref(&args.target), Several::All)?;
    context.stop_on_signals()?;
    let bar = bar(SPINNER, 0);
    let pid = busiest(context, &pids);
    bar.set_message(format!("watching {pid}"));
    let place = (&context.root, &host);
    let observed = observe(&context.kernel, place, pid, args.time, &context.stop);
    let observed = observed.map_err(|why| {
        Failure::missing(
            format!("predict: {why}"),
            format!("hugeleaf mem {pid}    # whether it may be read"),
        )
    })?;
    // What has nothing to gain is not worth the measuring.
    let (reads, predicted) = match working_set(&observed.watched, &MODEL) {
        Ok(size) => {
            bar.set_message("measuring what a read costs here");
            let reads = args.reads(context, &host, size)?;
            (Some(reads), predict(&observed.watched, &reads, &MODEL))
        }
        Err(unsaid) => (None, Err(unsaid)),
    };
    bar.finish_and_clear();
    let prediction = Prediction {
        process: &observed.process,
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

/// The one of some processes that works most, where there are several.
fn busiest(context: &Context, pids: &[Pid]) -> Pid {
    const WHILE: Duration = Duration::from_millis(500);
    if let [pid] = pids {
        return *pid;
    }
    let look = || {
        pids.iter()
            .map(|pid| (*pid, spent(&context.root, *pid).ok()))
    };
    let before: Vec<_> = look().collect();
    context.kernel.sleep(WHILE);
    let used = |((pid, now), (_, then)): ((Pid, Option<_>), &(Pid, Option<_>))| {
        let (now, then): (hugeleaf_host::process::spent::Spent, _) = (now?, then.as_ref()?);
        let since = now.since(then);
        Some((since.user + since.system, pid))
    };
    let most = look().zip(&before).filter_map(used).max();
    most.map_or(pids[0], |(_, pid)| pid)
}

impl Args {
    fn reads(&self, context: &Context, host: &Host, size: Bytes) -> Result<Reads, Failure> {
        if let Some(path) = &self.chase {
            let results = super::results::read(path)?;
            return table(&results, size).ok_or_else(|| {
                Failure::missing(
                    format!(
                        "predict: {}: no reads on base pages and on thp",
                        path.display()
                    ),
                    format!(
                        "hugeleaf bench chase --pages base,thp:2M -o {}",
                        path.display()
                    ),
                )
            });
        }
        let most = room(&context.root).unwrap_or_default();
        let circumstances = circumstances(&context.root, host, &[]);
        let machine = Machine {
            root: &context.root,
            host,
            circumstances: &circumstances,
            most,
            program: &context.program()?,
            stop: &context.stop,
        };
        reads(&machine, size).map_err(|e| {
            Failure::missing(format!("predict: what a read costs here: {e}"), e.next())
        })
    }
}
