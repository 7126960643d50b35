//! A metric that a command prints.

use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::process::Stdio;

use hugeleaf_sys::{Deadline, run_for_output};

use super::reading::{Metric, MetricError, Reading, ReadingKind};
use super::redact;
use super::spec::{MetricArgument, MetricKind, MetricSpec, MetricSpecError};
use crate::stats::BetterDirection;

/// Maximum output that is read; a number is short.
const MOST_OUTPUT: usize = 64 * 1024;

pub(super) const KIND: MetricKind = MetricKind {
    names: &["cmd"],
    form: "cmd:COMMAND",
    help: "output of a shell command that prints an increasing counter",
    example: "cmd:cat /run/app/requests",
    needs_address: true,
    can_be_gauge: true,
    parse,
};

fn parse(typed: &MetricArgument<'_>) -> Result<MetricSpec, MetricSpecError> {
    let (command, gauge) = (typed.rest.to_owned(), typed.gauge);
    let open = move |_: &_, _: Deadline<'_>| Ok(open(&command, gauge));
    let shown = format!("{}{}", typed.gauge_prefix(), redact::command(typed.rest));
    Ok(MetricSpec::new(shown, open))
}

/// Opens `cmd:COMMAND`: the last output of `sh -c COMMAND`, run anew for every reading. It is a rising counter
/// unless `gauge` is set.
fn open(command: &str, gauge: Option<BetterDirection>) -> Metric {
    let name = redact::command(command);
    let (command, shown) = (command.to_owned(), name.clone());
    let read = move |question: Deadline<'_>| {
        // The guard shows errors to every local user, so the command's output is only in the next step.
        let text = output(&command, question).map_err(|(reason, said)| {
            let next = format!("run it by hand with sh -c{}", quoted(&said));
            MetricError::unreachable(&shown, reason, next)
        })?;
        let value = last_number(&text).map_err(|what| {
            let next = format!("make it end its output with a number{}", quoted(&text));
            MetricError::garbage(&shown, what, next)
        })?;
        Ok(match gauge {
            Some(_) => Reading::Gauge(value),
            None => Reading::Counter(value),
        })
    };
    let counter = Metric::counter(name, "1/s", read);
    match gauge {
        None => counter,
        Some(better) => Metric {
            unit: "value".to_owned(),
            better,
            kind: ReadingKind::Gauge,
            ..counter
        },
    }
}

/// Returns the end of a command's output.
fn quoted(text: &str) -> String {
    let line = text.lines().last().unwrap_or_default();
    let line: String = line.chars().take(200).collect();
    match line.is_empty() {
        true => line,
        false => format!("; it printed: {line}"),
    }
}

/// Returns the output of a command; an error includes its standard error.
fn output(command: &str, question: Deadline<'_>) -> Result<String, (String, String)> {
    let mut shell = std::process::Command::new("sh");
    shell
        .args(["-c", command])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        // A process group of its own, so that Ctrl-C at the terminal ends the experiment and not the reading, and
        // a hung command can be ended with all its children.
        .process_group(0);
    let said = run_for_output(&mut shell, question, MOST_OUTPUT).map_err(|e| match e.kind() {
        ErrorKind::TimedOut => (
            format!("no answer in {} s", question.time().as_secs()),
            String::new(),
        ),
        _ => (format!("sh: {e}"), String::new()),
    })?;
    if said.status.success() {
        return Ok(said.stdout);
    }
    Err((said.status.to_string(), said.stderr))
}

pub fn last_number(text: &str) -> Result<f64, String> {
    let word = text
        .split_whitespace()
        .next_back()
        .ok_or("printed nothing")?;
    let number = word.parse().ok().filter(|v: &f64| v.is_finite());
    number.ok_or_else(|| "its last word is not a number".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;

    use proptest::prelude::*;

    static NEVER: AtomicBool = AtomicBool::new(false);

    #[test]
    fn the_number_that_stands_last() {
        assert_eq!(last_number("42\n"), Ok(42.0));
        assert_eq!(last_number("requests done: 1.5e3\n\n"), Ok(1500.0));
        assert_eq!(last_number(" \n"), Err("printed nothing".to_owned()));
        for bad in ["12 apples", "nan", "inf"] {
            let error = last_number(bad).unwrap_err();
            assert!(error.ends_with("not a number"), "{bad}: {error}");
        }
    }

    proptest! {
        #[test]
        fn never_panics(text in ".*") {
            let _ = last_number(&text);
        }

        #[test]
        fn numbers_come_back(n in 0u32.., before in "[a-z\r\n#]*") {
            prop_assert_eq!(last_number(&format!("{before} {n}\n")), Ok(f64::from(n)));
        }
    }

    #[test]
    fn reads_what_is_printed() {
        let mut m = open("echo served: 41", None);
        assert_eq!(m.read(&NEVER), Ok(Reading::Counter(41.0)));
        let mut m = open("echo 2.5", Some(BetterDirection::Lower));
        assert_eq!(m.read(&NEVER), Ok(Reading::Gauge(2.5)));
        assert_eq!(m.better, BetterDirection::Lower);
    }

    #[test]
    fn failures_are_told_apart() {
        let failed = open("echo no such stat >&2; exit 4", None).read(&NEVER);
        let Err(MetricError::Unreachable { reason, next, .. }) = failed else {
            panic!("{failed:?}");
        };
        assert_eq!(reason, "exit status: 4");
        assert!(next.ends_with("it printed: no such stat"), "{next}");
        for garbage in ["echo hello", "true", "printf '\\377\\376'"] {
            let e = open(garbage, None).read(&NEVER).unwrap_err();
            assert!(matches!(e, MetricError::Garbage { .. }), "{garbage}: {e}");
        }
    }

    #[test]
    fn nothing_of_a_command_is_in_its_errors() {
        for command in [
            "PGPASSWORD=geheim; echo no geheim >&2; exit 4",
            "echo geheim; exit 1",
            "echo geheim",
            "curl -H 'Authorization: geheim' http://127.0.0.1:9/",
            "printf geheim; sleep 0 geheim",
        ] {
            let mut metric = open(command, None);
            let error = metric.read(&NEVER).unwrap_err();
            let said = format!("{} {error}", metric.name);
            assert!(!said.contains("geheim"), "{said}");
        }
    }

    #[test]
    fn endless_output_ends() {
        // The pipe is closed after 64 KiB, which ends the command.
        let e = open("yes 1", None).read(&NEVER).unwrap_err();
        assert!(matches!(e, MetricError::Unreachable { .. }), "{e}");
    }
}
