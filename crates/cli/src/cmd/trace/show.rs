//! See `hugeleaf trace show --help`.

use std::path::{Path, PathBuf};

use hugeleaf_proof::write_whole;
use hugeleaf_report::trace::{self as view, Section, Shown};
use hugeleaf_trace::model::Lock;
use hugeleaf_trace::tables::{Of, locks, profile};
use hugeleaf_trace::{Trace, read_trace};
use hugeleaf_verdict::findings::shell_word;
use hugeleaf_verdict::trace::{TraceFinding, findings};

use super::file_failure;
use crate::context::{Context, Failure, Status, tell};

/// Locks of one function that are shown, without --all.
const LOCKS: usize = 3;

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
        let names: Vec<&str> = Section::ALL.iter().map(|s| s.name()).collect();
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
        write_page(path, &view::html(&shown))?;
    }
    if let Some(path) = &args.flame_graph {
        write_flame_graph(path, &shown)?;
    }
    Ok(Status::Good)
}

fn whole(args: &Args, shown: &Shown<'_>, context: &Context) -> String {
    let look = Context::look();
    match (context.json, &args.section[..], args.all) {
        (true, ..) => view::json(shown, None),
        (_, [], false) => view::screen(shown, look),
        (_, [], true) => view::sections(shown, &Section::ALL, true, look),
        (_, wanted, all) => view::sections(shown, wanted, all, look),
    }
}

fn one_lock(
    args: &Args,
    shown: &Shown<'_>,
    text: &str,
    context: &Context,
) -> Result<String, Failure> {
    let found: Vec<&Lock> = locks::find(shown.trace, text);
    if found.is_empty() {
        return Err(Failure::no(
            format!("{}: no lock '{text}' was waited for", shown.file),
            format!(
                "hugeleaf trace show {} --section locks --all",
                shell_word(shown.file)
            ),
        ));
    }
    if context.json {
        return Ok(view::json(shown, Some(&found)));
    }
    let most = if args.all { usize::MAX } else { LOCKS };
    let each = |lock: &&Lock| view::lock_text(shown.trace, lock, args.all, Context::look());
    let mut text: String = found
        .iter()
        .take(most)
        .map(each)
        .collect::<Vec<_>>()
        .join("\n");
    if found.len() > most {
        text += &format!(
            "\n… and {} more locks of that function: --all\n",
            found.len() - most
        );
    }
    Ok(text)
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
        false => view::callers_text(shown.trace, function, &found, args.all, Context::look()),
    })
}

fn write_flame_graph(path: &Path, shown: &Shown<'_>) -> Result<(), Failure> {
    let Some(drawn) = view::flame_graph(shown.trace) else {
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
    with_findings(trace, file, |shown| view::screen(shown, Context::look()))
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
