//! See `hugeleaf compare --help`.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use hugeleaf_proof::compare::{CompareError, arms, files};
use hugeleaf_proof::rows::Results;
use hugeleaf_report::compare::Shown;
use hugeleaf_units::Bytes;

use super::prove::Part;
use crate::context::{Context, Failure, Status};

/// A result of a day of measuring has a few megabytes; what is longer is something else.
const LONGEST: Bytes = Bytes::from_mib(256);

/// Flags.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  hugeleaf compare before.json after.json
  hugeleaf compare oltp.json --arms base,hugetlb:2M
  hugeleaf compare old.json new.json --arms base,thp:2M --all

A and B are result files of `bench` or `prove`. What differs between them besides the
samples (host, kernel, settings, knobs) is listed, and each row names what of that bears on it.
Samples of two files are no pairs: their interval is by rank. Two arms of one file are compared in
the rounds that both have.

Exit status: 0 shown, whatever it says; 1 the two cannot be compared, or a file is no result; 2
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
    Ok(Status::Good)
}

pub(super) fn read(path: &Path) -> Result<Results, Failure> {
    let shown = path.display();
    let mut text = String::new();
    let got =
        File::open(path).and_then(|file| file.take(LONGEST.get() + 1).read_to_string(&mut text));
    match got {
        Ok(_) if text.len() as u64 > LONGEST.get() => Err(Failure::no(
            format!("{shown}: it is longer than {LONGEST}: it is no result of prove or bench"),
            "name a file that --output wrote: hugeleaf bench --help",
        )),
        Ok(_) => Results::read(&text)
            .map_err(|error| Failure::no(format!("{shown}: {error}"), error.next)),
        Err(e) if e.kind() == std::io::ErrorKind::InvalidData => Err(Failure::no(
            format!("{shown}: it is no text: it is no result of prove or bench"),
            "name a file that --output wrote: hugeleaf bench --help",
        )),
        Err(e) => Err(Failure::missing(
            format!("{shown}: {e}"),
            "name a file that --output wrote, and that you may read",
        )),
    }
}

fn refused(error: &CompareError) -> Failure {
    let (text, next) = (format!("compare: {error}"), error.next());
    match error {
        CompareError::NoSuchArm { .. } => Failure::usage(text, next),
        _ => Failure::no(text, next),
    }
}
