//! See `hugeleaf trace show --help`.

use std::path::{Path, PathBuf};

use hugeleaf_proof::write_whole;
use hugeleaf_report::flame;
use hugeleaf_report::page::Page;
use hugeleaf_report::trace::{self as view, Section, Shown};
use hugeleaf_trace::model::Lock;
use hugeleaf_trace::tables::{Of, locks, profile};
use hugeleaf_trace::{Trace, read_trace};
use hugeleaf_verdict::findings::shell_word;
use hugeleaf_verdict::trace::{TraceFinding, findings};

use super::failure::file_failure;
use crate::context::{Context, Failure, Status, tell};

/// Flags.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Sections: intervals, processes, threads, functions, target-functions, locks, lock-threads,
lock-callers, faults, pages, segments, memory, pins, io, counters, sources, findings

Examples:
  hugeleaf trace show a.trace                         one screen, findings last
  hugeleaf trace show a.trace --section locks,lock-callers
  hugeleaf trace show a.trace --lock pin_seg_range    threads that wait for it, and its events
  hugeleaf trace show a.trace --html a.html           all of it, with charts and a flame graph

Nothing of this host is read: a trace is shown alike on any machine.
Exit status: 0 shown; 1 the trace has no such lock or function, or no samples for a flame graph;
2 wrong usage; 3 the file cannot be read or written."
)]
pub struct Args {
    /// The trace
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Only these parts of it, separated by commas
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = parse_section)]
    section: Vec<Section>,
    /// Every part, and whole lists
    #[arg(long)]
    all: bool,
    /// One lock, by address, name, or the function that takes it: threads, callers, events
    #[arg(long, value_name = "LOCK", conflicts_with_all = ["section", "callers"])]
    lock: Option<String>,
    /// One function: who called it, and the ways there
    #[arg(long, value_name = "FUNCTION", conflicts_with = "section")]
    callers: Option<String>,
    /// Also write it as one page with charts
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Also write the CPU profile (the target's, where there is one) as a flame graph, in SVG
    #[arg(long, value_name = "FILE")]
    flame_graph: Option<PathBuf>,
}

fn parse_section(name: &str) -> Result<Section, String> {
    Section::parse(name).ok_or_else(|| {
        let names: Vec<&str> = Section::all().map(Section::name).collect();
        format!("'{name}' is none of {}", names.join(", "))
    })
}

/// Runs it.
pub fn run(args: &Args, context: &Context) -> Result<Status, Failure> {
    let trace = read_trace(&args.file).map_err(|e| file_failure(&e))?;
    let file = args.file.display().to_string();
    let found = findings(&trace);
    let shown = Shown {
        trace: &trace,
        findings: &found,
        file: &file,
    };
    let text = match (&args.lock, &args.callers) {
        (Some(lock), _) => one_lock(args, &shown, lock, context)?,
        (_, Some(function)) => callers(args, &shown, function, context)?,
        _ => whole(args, &shown, context),
    };
    Context::print(&text)?;
    if let Some(path) = &args.html {
        write_page(path, &shown.whole().html())?;
    }
    if let Some(path) = &args.flame_graph {
        write_flame_graph(path, &shown)?;
    }
    Ok(Status::Good)
}

/// Lists are whole where all of them were asked for.
fn text(page: &Page, args: &Args) -> String {
    page.text(Context::view(args.all))
}

fn whole(args: &Args, shown: &Shown<'_>, context: &Context) -> String {
    if context.json {
        return view::json(shown, None);
    }
    let page = match (&args.section[..], args.all) {
        ([], false) => shown.screen(),
        ([], true) => shown.sections(&Section::all().collect::<Vec<_>>()),
        (wanted, _) => shown.sections(wanted),
    };
    text(&page, args)
}

fn one_lock(
    args: &Args,
    shown: &Shown<'_>,
    name: &str,
    context: &Context,
) -> Result<String, Failure> {
    let found: Vec<&Lock> = locks::find(shown.trace, name);
    if found.is_empty() {
        return Err(Failure::no(
            format!("{}: no lock '{name}' was waited for", shown.file),
            format!(
                "hugeleaf trace show {} --section locks --all",
                shell_word(shown.file)
            ),
        ));
    }
    if context.json {
        return Ok(view::json(shown, Some(&found)));
    }
    Ok(text(&view::lock_page(shown.trace, &found, args.all), args))
}

fn callers(
    args: &Args,
    shown: &Shown<'_>,
    function: &str,
    context: &Context,
) -> Result<String, Failure> {
    let Some(found) = profile::callers(shown.trace, Of::Host, function) else {
        return Err(Failure::no(
            format!(
                "{}: no sample has a function '{function}' on its stack",
                shown.file
            ),
            format!(
                "hugeleaf trace show {} --section functions --all",
                shell_word(shown.file)
            ),
        ));
    };
    Ok(match context.json {
        true => view::callers_json(shown, function, &found),
        false => text(&view::callers_page(shown.trace, function, &found), args),
    })
}

fn write_flame_graph(path: &Path, shown: &Shown<'_>) -> Result<(), Failure> {
    let Some(drawn) = flame::svg(&view::flames(shown.trace)) else {
        return Err(Failure::no(
            format!(
                "{}: no CPU samples of the target, so no flame graph",
                shown.file
            ),
            format!(
                "hugeleaf trace show {} --section sources",
                shell_word(shown.file)
            ),
        ));
    };
    write(path, &drawn, "flame graph", "--flame-graph FILE")
}

/// Writes a page, whole or not at all.
pub(super) fn write_page(path: &Path, page: &str) -> Result<(), Failure> {
    write(path, page, "page", "--html FILE")
}

fn write(path: &Path, text: &str, what: &str, flag: &str) -> Result<(), Failure> {
    write_whole(path, text).map_err(|e| {
        Failure::missing(
            format!("the {what} could not be written: {e}"),
            format!("name a file where there is room and you may write: {flag}"),
        )
    })?;
    tell(&format!("{what}: {}", path.display()));
    Ok(())
}

/// The one screen of a trace, with what was found in it.
pub(super) fn screen(trace: &Trace, file: &Path) -> String {
    with_findings(trace, file, |shown| {
        shown.screen().text(Context::view(false))
    })
}

/// The same as JSON, whole.
pub(super) fn screen_json(trace: &Trace, file: &Path) -> String {
    with_findings(trace, file, |shown| view::json(shown, None))
}

fn with_findings(trace: &Trace, file: &Path, view: impl Fn(&Shown<'_>) -> String) -> String {
    let found: Vec<TraceFinding> = findings(trace);
    let file = file.display().to_string();
    view(&Shown {
        trace,
        findings: &found,
        file: &file,
    })
}
