//! Implements `hugeleaf metrics`.

use std::path::PathBuf;

use hugeleaf_guard::client::ask_status;
use hugeleaf_guard::{GuardPaths, one_shot};
use hugeleaf_proof::write_whole;
use hugeleaf_report::exposition::text;
use hugeleaf_report::guard::{metrics, textfile_metrics};

use crate::context::{CommandStatus, Context, Failure};
use crate::progress::Bar;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  hugeleaf metrics
  hugeleaf metrics --textfile /var/lib/prometheus/node-exporter/hugeleaf.prom

If a guard runs, the metrics are those that it serves at http://localhost:9646/metrics. Otherwise
the host is scanned once, and there are no metrics of promotions and tests. All metrics are listed
in docs/reference/guard.md.")]
pub struct Args {
    /// Write the metrics to a file for node_exporter's textfile collector, atomically
    #[arg(long, value_name = "FILE")]
    textfile: Option<PathBuf>,
}

pub fn run(args: &Args, context: &Context) -> Result<CommandStatus, Failure> {
    let bar = Bar::spinner("scanning the processes");
    let asked = || ask_status(&GuardPaths::default().socket()).ok();
    let status = match context.root.is_live().then(asked).flatten() {
        Some(status) => status,
        None => one_shot::scan_once(&context.root, &context.kernel, &context.host()?)?,
    };
    drop(bar);
    match &args.textfile {
        None => Context::print(&text(metrics(&status, status.series)))?,
        Some(path) => {
            let text = text(textfile_metrics(&status, status.series));
            write_whole(path, &text).map_err(|e| {
                Failure::missing(e.to_string(), "name a file in an existing, writable folder")
            })?;
        }
    }
    Ok(CommandStatus::Good)
}
