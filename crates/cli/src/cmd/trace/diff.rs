//! Implements `hugeleaf trace diff`.

use std::path::PathBuf;

use hugeleaf_report::trace::{TraceDiff, TraceView, diff_json};
use hugeleaf_trace::read_trace;
use hugeleaf_verdict::trace_findings::findings;

use super::show::write_page;
use crate::context::{CommandStatus, Context, Failure};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  hugeleaf trace diff base.trace huge.trace
  hugeleaf trace diff base.trace huge.trace --html case.html

Different conditions of the two traces (host, length, target) are listed first. Rows that depend on
them are not comparable.
Exit status: 0 shown; 2 wrong usage; 3 a file cannot be read or written.")]
pub struct Args {
    /// Trace from before the change
    #[arg(value_name = "BEFORE")]
    before: PathBuf,
    /// Trace from after the change
    #[arg(value_name = "AFTER")]
    after: PathBuf,
    /// Show full lists
    #[arg(long)]
    all: bool,
    /// Also write an HTML page with charts
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

/// Runs the command. A difference between two traces is an answer, not a failure.
pub fn run(args: &Args, context: &Context) -> Result<CommandStatus, Failure> {
    let (before, after) = (read_trace(&args.before)?, read_trace(&args.after)?);
    let (found_before, found_after) = (findings(&before), findings(&after));
    let names = [&args.before, &args.after].map(|path| path.display().to_string());
    let compared = TraceDiff {
        before: TraceView {
            trace: &before,
            findings: &found_before,
            file: &names[0],
        },
        after: TraceView {
            trace: &after,
            findings: &found_after,
            file: &names[1],
        },
    };
    let view = Context::view(args.all);
    context.answer(view, || diff_json(&compared), || compared.page())?;
    if let Some(path) = &args.html {
        let command: Vec<String> = std::env::args().collect();
        write_page(path, &compared.whole(&command).html())?;
    }
    Ok(CommandStatus::Good)
}
