//! See `hugeleaf compare --help`.

use std::path::{Path, PathBuf};

use hugeleaf_proof::compare::{CompareError, arms, files, sets};
use hugeleaf_report::compare::{Shown, sets as sets_page, sets_json};

use super::prove::Part;
use super::results::{all_in, read};
use crate::context::{Context, Failure, Status, tell};

/// Flags.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  hugeleaf compare before.json after.json
  hugeleaf compare oltp.json --arms base,hugetlb:2M
  hugeleaf compare old.json new.json --arms base,thp:2M --all
  hugeleaf compare before after                     two folders, workload by workload
  hugeleaf compare before after --fail-if-slower 2% for a release that must not be slower

A and B are result files of `bench` or `prove`, or folders of them. What differs between them besides the
samples (host, kernel, settings, knobs) is listed, and each row names what of that bears on it.
Samples of two files are no pairs: their interval is by rank. Two arms of one file are compared in
the rounds that both have.

Exit status: 0 shown, whatever it says; 1 slower than --fail-if-slower allows, or the two cannot be compared, or a file is no result; 2
wrong usage; 3 a file cannot be read.")]
pub struct Args {
    /// A result
    #[arg(value_name = "A")]
    a: PathBuf,
    /// Another one
    #[arg(value_name = "B", required_unless_present = "arms")]
    b: Option<PathBuf>,
    /// Compare two arms: the first of A, the second of B, or of A too where there is no B
    #[arg(long, value_name = "ARM,ARM", value_parser = parse_arms)]
    arms: Option<[String; 2]>,
    /// Differences within ± this count as none
    #[arg(long, value_name = "PERCENT", default_value = "2%")]
    equal: Part,
    /// End with status 1 where what was measured for is slower by more than this
    #[arg(long, value_name = "PERCENT")]
    fail_if_slower: Option<Part>,
    /// Also what else was measured: latencies, CPU, I/O, page tables
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

/// Runs it. That two results differ is no failure: it is what was asked for.
pub fn run(args: &Args, context: &Context) -> Result<Status, Failure> {
    if let (None, Some([a, b])) = (&args.b, &args.arms)
        && a == b
    {
        return Err(Failure::usage(
            format!("compare: --arms {a},{b} is one arm twice"),
            "name two of them: hugeleaf compare --help",
        ));
    }
    if let (Some(b), None) = (&args.b, &args.arms)
        && args.a.is_dir()
        && b.is_dir()
    {
        return folders(args, b, context);
    }
    let a = read(&args.a)?;
    let b = args.b.as_deref().map(read).transpose()?;
    let equal = args.equal.0;
    let compared = match (&args.arms, &b) {
        (Some(names), b) => arms(&a, b.as_ref(), names, equal),
        (None, Some(b)) => files(&a, b, equal),
        // Clap asks for one of the two.
        (None, None) => {
            return Err(Failure::usage(
                "compare: one result, and no arms",
                "hugeleaf compare --help",
            ));
        }
    };
    let compared = compared.map_err(|error| refused(&error))?;
    let names = [Some(&args.a), args.b.as_ref()];
    let names = names.map(|path| {
        path.map(|path| path.display().to_string())
            .unwrap_or_default()
    });
    let shown = Shown {
        compared: &compared,
        a: (&a, &names[0]),
        b: b.as_ref().map(|b| (b, names[1].as_str())),
    };
    let view = Context::view(args.all);
    context.answer(view, || shown.json(), || shown.page(args.all))?;
    args.status(|part| compared.slower_by(part))
}

/// Two folders of results, by the experiment's name.
fn folders(args: &Args, b: &Path, context: &Context) -> Result<Status, Failure> {
    let (a, b) = (all_in(&args.a)?, all_in(b)?);
    let compared = sets(&a, &b, args.equal.0);
    if compared.rows.is_empty() {
        return Err(Failure::no(
            format!(
                "{} and {}: no result of the one is also in the other",
                args.a.display(),
                args.b.as_deref().unwrap_or(&args.a).display()
            ),
            "name folders with results of the same benchmarks: hugeleaf bench --help",
        ));
    }
    let view = Context::view(args.all);
    context.answer(view, || sets_json(&compared), || sets_page(&compared))?;
    args.status(|part| compared.slower_by(part))
}

impl Args {
    /// A no where something is slower than is allowed, with what that is.
    fn status(&self, slower: impl FnOnce(f64) -> Vec<String>) -> Result<Status, Failure> {
        let Some(part) = self.fail_if_slower else {
            return Ok(Status::Good);
        };
        let slower = slower(part.0);
        match slower.is_empty() {
            true => Ok(Status::Good),
            false => {
                tell(&format!(
                    "slower by more than {} %: {}",
                    100.0 * part.0,
                    slower.join(", ")
                ));
                Ok(Status::No)
            }
        }
    }
}

fn refused(error: &CompareError) -> Failure {
    let (text, next) = (format!("compare: {error}"), error.next());
    match error {
        CompareError::NoSuchArm { .. } => Failure::usage(text, next),
        _ => Failure::no(text, next),
    }
}
