//! Implements `hugeleaf compare`.

use std::path::{Path, PathBuf};

use hugeleaf_proof::compare::{QuantitySelection, ReleaseBlockers, arms, files, history, sets};
use hugeleaf_proof::write_whole;
use hugeleaf_report::compare::{
    ComparisonView, history as history_page, sets as sets_page, sets_json,
};
use hugeleaf_report::document::Document;
use hugeleaf_report::json::answer;

use super::prove::Fraction;
use super::read_results::{read, read_folder};
use crate::context::{CommandStatus, Context, Failure, print_stderr};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  hugeleaf compare before.json after.json
  hugeleaf compare oltp.json --arms base,hugetlb:2M
  hugeleaf compare old.json new.json --arms base,thp:2M --all
  hugeleaf compare before after                       two directories, workload by workload
  hugeleaf compare before after --fail-if-slower 2%   fail if a release is slower
  hugeleaf compare linux-6.1 linux-7.3 --counts       faults, page tables, coverage; no timings
  hugeleaf compare --history 2026-0* --html history.html

A and B are result files of `bench` or `prove`, or directories of them. Other differences between
them (host, kernel, settings, knobs) are listed, and each row names those that may affect it.
Samples of two files are not paired, so their interval is by rank. Two arms of one file are compared
in the rounds that both have.

Exit status: 0 shown, whatever the result; 1 not comparable, or a file is not a result; 2 wrong
usage; 3 a file cannot be read. With --fail-if-slower also 1 if something is slower than that, or
could not be compared: a result, an arm or a measuring point that only one of the two has, a damaged
file, a sample that is not above 0, too few samples for an interval.")]
pub struct Args {
    /// Result file, or directory of results
    #[arg(value_name = "A", required_unless_present = "history")]
    a: Option<PathBuf>,
    /// Result file or directory to compare with A
    #[arg(value_name = "B", required_unless_present_any = ["arms", "history"])]
    b: Option<PathBuf>,
    /// Compare several directories of results with the first; name the oldest first
    #[arg(long, value_name = "DIR", num_args = 2.., conflicts_with_all = ["a", "b", "arms", "counts"])]
    history: Vec<PathBuf>,
    /// Compare the counters of two directories instead of their main metrics
    #[arg(long, conflicts_with_all = ["arms", "fail_if_slower"])]
    counts: bool,
    /// Also write an HTML page (directories only); with --history, one chart per workload
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Compare the first arm of A with the second arm of B, or of A if there is no B
    #[arg(long, value_name = "ARM,ARM", value_parser = parse_arms)]
    arms: Option<[String; 2]>,
    /// Treat differences within ± this as equal
    #[arg(long, value_name = "PERCENT", default_value = "2%")]
    equal: Fraction,
    /// Exit with 1 if a main metric is slower by more than this, or could not be compared
    #[arg(long, value_name = "PERCENT")]
    fail_if_slower: Option<Fraction>,
    /// Also show secondary metrics: latencies, CPU, I/O, page tables
    #[arg(long)]
    all: bool,
}

fn parse_arms(text: &str) -> Result<[String; 2], String> {
    let parts: Vec<&str> = text.split(',').map(str::trim).collect();
    match parts.as_slice() {
        [a, b] if !a.is_empty() && !b.is_empty() => Ok([(*a).to_owned(), (*b).to_owned()]),
        _ => Err(format!("'{text}' is not two arms; write base,thp:2M")),
    }
}

/// Runs the command. A difference between two results is an answer, not a failure.
pub fn run(args: &Args, context: &Context) -> Result<CommandStatus, Failure> {
    let Some(path) = &args.a else {
        return many(args, context);
    };
    if let (None, Some([a, b])) = (&args.b, &args.arms)
        && a == b
    {
        return Err(Failure::usage(
            format!("compare: --arms {a},{b} names one arm twice"),
            "name two arms: hugeleaf compare --help",
        ));
    }
    if let (Some(b), None) = (&args.b, &args.arms)
        && path.is_dir()
        && b.is_dir()
    {
        return folders(args, [path, b], context);
    }
    if args.counts || args.html.is_some() {
        return Err(Failure::usage(
            "compare: --counts and --html need two directories",
            "hugeleaf compare A B --all    # all rows of two results",
        ));
    }
    let a = read(path)?;
    let b = args.b.as_deref().map(read).transpose()?;
    let equal = args.equal.0;
    let compared = match (&args.arms, &b) {
        (Some(names), b) => arms(&a, b.as_ref(), names, equal),
        (None, Some(b)) => files(&a, b, equal),
        // Clap requires one of the two.
        (None, None) => {
            return Err(Failure::usage(
                "compare: one result, but no --arms",
                "hugeleaf compare --help",
            ));
        }
    };
    let compared = compared.map_err(|error| Failure {
        message: format!("compare: {error}"),
        ..error
    })?;
    let names = [Some(path), args.b.as_ref()];
    let names = names.map(|path| {
        path.map(|path| path.display().to_string())
            .unwrap_or_default()
    });
    let shown = ComparisonView {
        compared: &compared,
        a: (&a, &names[0]),
        b: b.as_ref().map(|b| (b, names[1].as_str())),
    };
    let view = Context::view(args.all);
    context.answer(view, || shown.json(), || shown.page(args.all))?;
    args.status(|part| compared.stopping(part))
}

/// Compares two folders of results by experiment name.
fn folders(args: &Args, paths: [&Path; 2], context: &Context) -> Result<CommandStatus, Failure> {
    let which = match args.counts {
        true => QuantitySelection::Counts,
        false => QuantitySelection::Main,
    };
    let [a, b] = paths.map(read_folder);
    let compared = sets(&a?, &b?, which, args.equal.0);
    if compared.rows.is_empty() {
        let [a, b] = paths.map(Path::display);
        let why = compared.left_out.first();
        let why = why.map_or_else(String::new, |why| format!("; {why}"));
        return Err(Failure::no(
            format!("{a} and {b} have no result in common{why}"),
            "name folders with results of the same benchmarks: hugeleaf bench --help",
        ));
    }
    let page = || sets_page(&compared, which);
    context.answer(Context::view(args.all), || sets_json(&compared), page)?;
    args.write(page)?;
    args.status(|part| compared.stopping(part))
}

/// Compares many folders with the first.
fn many(args: &Args, context: &Context) -> Result<CommandStatus, Failure> {
    let read = |path: &PathBuf| {
        let name = path.file_name().unwrap_or(path.as_os_str());
        Ok((name.to_string_lossy().into_owned(), read_folder(path)?))
    };
    let sets: Result<Vec<_>, Failure> = args.history.iter().map(read).collect();
    let compared = history(&sets?, args.equal.0);
    if compared.rows.is_empty() {
        return Err(Failure::no(
            "the first folder has no result in common with another",
            "name folders with results of the same benchmarks: hugeleaf bench --help",
        ));
    }
    let page = || history_page(&compared);
    context.answer(Context::view(args.all), || answer(&compared), page)?;
    args.write(page)?;
    args.status(|part| compared.stopping(part))
}

impl Args {
    fn write(&self, page: impl Fn() -> Document) -> Result<(), Failure> {
        let Some(path) = &self.html else {
            return Ok(());
        };
        write_whole(path, &page().html()).map_err(|e| {
            Failure::missing(
                format!("compare: cannot write the page: {e}"),
                "name a writable file, with free space: --html FILE",
            )
        })?;
        print_stderr(&format!("page: {}", path.display()));
        Ok(())
    }

    /// Returns [`CommandStatus::No`] if a row is too slow, or if a comparison was not possible. Neither counts as "no difference".
    fn status(
        &self,
        stopping: impl FnOnce(f64) -> ReleaseBlockers,
    ) -> Result<CommandStatus, Failure> {
        let Some(part) = self.fail_if_slower else {
            return Ok(CommandStatus::Good);
        };
        let ReleaseBlockers {
            slower,
            not_compared,
        } = stopping(part.0);
        if !slower.is_empty() {
            let percent = 100.0 * part.0;
            let slower = slower.join(", ");
            print_stderr(&format!("slower by more than {percent} %: {slower}"));
        }
        for reason in not_compared.iter().take(SHOWN) {
            print_stderr(&format!("not compared: {}: {reason}", self.names()));
        }
        if let more @ 1.. = not_compared.len().saturating_sub(SHOWN) {
            print_stderr(&format!("not compared: {more} more"));
        }
        Ok((slower.is_empty() && not_compared.is_empty()).into())
    }

    /// Formats the inputs as `A before.json, B after.json`.
    fn names(&self) -> String {
        let [first, .., last] = self.history.as_slice() else {
            let sides = [("A", &self.a), ("B", &self.b)].into_iter();
            let sides = sides.filter_map(|(side, path)| Some((side, path.as_ref()?.display())));
            let sides = sides.map(|(side, path)| format!("{side} {path}"));
            return sides.collect::<Vec<_>>().join(", ");
        };
        format!("A {}, B {}", first.display(), last.display())
    }
}

/// Maximum number of failed comparisons listed by name.
const SHOWN: usize = 20;
