//! Implements `hugeleaf trace show`.

use std::path::{Path, PathBuf};

use hugeleaf_proof::write_whole;
use hugeleaf_report::flame_graph;
use hugeleaf_report::trace::{self as view, PARTS, TraceSection, TraceView};
use hugeleaf_trace::read_trace;
use hugeleaf_trace::tables::{TableScope, locks, profile};
use hugeleaf_verdict::findings::shell_word;
use hugeleaf_verdict::trace_findings::findings;

use crate::context::{CommandStatus, Context, Failure, print_stderr};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Sections: intervals, processes, threads, functions, target-functions, locks, lock-threads,
          lock-callers, faults, pages, segments, memory, pins, io, counters, sources, findings

Examples:
  hugeleaf trace show a.trace                         one screen, findings last
  hugeleaf trace show a.trace --section locks,lock-callers
  hugeleaf trace show a.trace --lock pin_seg_range    threads that wait for it, and its events
  hugeleaf trace show a.trace --html a.html           everything, with charts and a flame graph

This host is not read, so a trace is shown alike on any machine.
Exit status: 0 shown; 1 the trace has no such lock or function, or no samples for a flame graph;
2 wrong usage; 3 the file cannot be read or written.")]
pub struct Args {
    /// Trace file
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Show only these sections, separated by commas
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = parse_section)]
    section: Vec<&'static TraceSection>,
    /// Show every section, with full lists
    #[arg(long)]
    all: bool,
    /// Show one lock, by address, name or locking function: its threads, callers and events
    #[arg(long, value_name = "LOCK", conflicts_with_all = ["section", "callers"])]
    lock: Option<String>,
    /// Show the callers of one function, with call paths
    #[arg(long, value_name = "FUNCTION", conflicts_with = "section")]
    callers: Option<String>,
    /// Also write an HTML page with charts
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Also write the CPU profile as an SVG flame graph, of the target if there is one
    #[arg(long, value_name = "FILE")]
    flame_graph: Option<PathBuf>,
}

fn parse_section(name: &str) -> Result<&'static TraceSection, String> {
    TraceSection::parse(name).ok_or_else(|| {
        let names = PARTS.each_ref().map(|part| part.name);
        format!("'{name}' is not one of {}", names.join(", "))
    })
}

pub fn run(args: &Args, context: &Context) -> Result<CommandStatus, Failure> {
    let trace = read_trace(&args.file)?;
    let file = args.file.display().to_string();
    let found = findings(&trace);
    let shown = TraceView {
        trace: &trace,
        findings: &found,
        file: &file,
    };
    let screen = Context::view(args.all);
    match (&args.lock, &args.callers) {
        (Some(lock), _) => {
            let found = locks::find(&trace, lock);
            if found.is_empty() {
                let what = format!("no thread waited for a lock '{lock}'");
                return Err(not_there(&shown, &what, "locks --all"));
            }
            let page = || view::lock_page(&trace, &found, args.all);
            context.answer(screen, || view::json(&shown, Some(&found)), page)?;
        }
        (_, Some(function)) => {
            let found = profile::callers(&trace, TableScope::Host, function).ok_or_else(|| {
                let what = format!("no sample has a function '{function}' on its stack");
                not_there(&shown, &what, "functions --all")
            })?;
            let page = || view::callers_page(&trace, function, &found);
            let json = || view::callers_json(&shown, function, &found);
            context.answer(screen, json, page)?;
        }
        _ => {
            let page = || match (&args.section[..], args.all) {
                ([], false) => shown.screen(),
                ([], true) => shown.sections(&PARTS),
                (wanted, _) => shown.sections(wanted.iter().copied()),
            };
            context.answer(screen, || view::json(&shown, None), page)?;
        }
    }
    if let Some(path) = &args.html {
        write_page(path, &shown.whole().html())?;
    }
    if let Some(path) = &args.flame_graph {
        let drawn = flame_graph::svg(&view::flames(&trace)).ok_or_else(|| {
            let what = "no CPU samples of the target, so no flame graph";
            not_there(&shown, what, "sources")
        })?;
        write(path, &drawn, "flame graph", "--flame-graph FILE")?;
    }
    Ok(CommandStatus::Good)
}

/// Returns the failure for an item that is not in the trace. The section lists the existing items.
fn not_there(shown: &TraceView<'_>, what: &str, section: &str) -> Failure {
    let file = shown.file;
    let show = format!(
        "hugeleaf trace show {} --section {section}",
        shell_word(file)
    );
    Failure::no(format!("{file}: {what}"), show)
}

pub(super) fn write_page(path: &Path, page: &str) -> Result<(), Failure> {
    write(path, page, "page", "--html FILE")
}

fn write(path: &Path, text: &str, what: &str, flag: &str) -> Result<(), Failure> {
    write_whole(path, text).map_err(|e| {
        Failure::missing(
            format!("cannot write the {what}: {e}"),
            format!("name a writable file, with free space: {flag}"),
        )
    })?;
    print_stderr(&format!("{what}: {}", path.display()));
    Ok(())
}
