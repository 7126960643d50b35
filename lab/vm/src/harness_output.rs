//! Parser of the output of rustc's test harness (`--show-output`), which also detects tests that were not run.
//!
//! A test for which this machine lacks something prints `not run: NAME: REASON` and returns. To the harness it has
//! passed; here it counts as ignored. A test that left out only a part of itself prints `not run: the part of NAME …:
//! REASON`, and has passed.

use std::collections::BTreeSet;
use std::io::{BufRead, Write};

#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case", tag = "outcome", content = "why")]
pub enum TestOutcome {
    Held,
    /// It could not be run, with the reason.
    NotRun(String),
    Failed,
}

/// Reads the output of test programs, one after the other, line by line.
#[derive(Debug, Default)]
pub struct HarnessParser {
    /// The passed test whose own output is being read.
    of: Option<String>,
    /// True while the output of failed tests is being read.
    failures: bool,
}

impl HarnessParser {
    /// Returns the outcome of a test that a line reports. `Held` may later be replaced by `NotRun` for the same test.
    pub fn line(&mut self, line: &str) -> Option<(String, TestOutcome)> {
        if let Some((name, outcome)) = line_of_test(line) {
            return Some((name, outcome));
        }
        let header = line.strip_prefix("---- ");
        if let Some(name) = header.and_then(|rest| rest.strip_suffix(" stdout ----")) {
            let name = name.strip_suffix(" - should panic").unwrap_or(name);
            self.of = (!self.failures).then(|| name.to_owned());
        } else if line == "successes:" || line == "failures:" {
            self.failures = line == "failures:";
            self.of = None;
        } else if line.starts_with("test result: ") {
            *self = HarnessParser::default();
        } else if let Some(said) = line.strip_prefix("not run: ")
            && !said.starts_with("the part of ")
        {
            let name = self.of.clone()?;
            let reason = reason_of(said, &name);
            return Some((name, TestOutcome::NotRun(reason)));
        }
        None
    }
}

/// Parses `test NAME ... ok`. With one thread the harness prints the name first and the result later; the test's own
/// output to stderr may be between them.
fn line_of_test(line: &str) -> Option<(String, TestOutcome)> {
    let rest = line.strip_prefix("test ")?;
    let (name, outcome) = rest.split_once(" ... ")?;
    let name = name.strip_suffix(" - should panic").unwrap_or(name);
    let outcome = match outcome {
        "ok" => TestOutcome::Held,
        "FAILED" => TestOutcome::Failed,
        // Ignored without a reason, it is no test but a program that tests start.
        other => TestOutcome::NotRun(other.strip_prefix("ignored, ")?.to_owned()),
    };
    Some((name.to_owned(), outcome))
}

/// Returns the reason of `NAME: REASON` if the name is that of the test.
fn reason_of(said: &str, name: &str) -> String {
    let short = name.rsplit("::").next().unwrap_or(name);
    let without = said
        .strip_prefix(short)
        .and_then(|rest| rest.strip_prefix(": "));
    without.unwrap_or(said).to_owned()
}

/// Copies the output of test programs, and counts tests that were not run as ignored in its closing lines.
#[derive(Debug, Default)]
pub struct SummaryRewriter {
    harness: HarnessParser,
    not_run: BTreeSet<String>,
}

impl SummaryRewriter {
    /// Returns the line to print for a line of the output.
    pub fn line(&mut self, line: &str) -> String {
        match self.harness.line(line) {
            // Reported by a test's own output; the harness itself counts its ignored tests.
            Some((name, TestOutcome::NotRun(_))) if line.starts_with("not run: ") => {
                self.not_run.insert(name);
            }
            _ => {}
        }
        if !line.starts_with("test result: ") {
            return line.to_owned();
        }
        let count = std::mem::take(&mut self.not_run).len();
        let moved = |line: &str, word: &str, change: &dyn Fn(usize) -> Option<usize>| {
            let end = line.find(word)?;
            let start = line[..end].rfind(' ')? + 1;
            let number = change(line[start..end].parse().ok()?)?;
            Some(format!("{}{number}{}", &line[..start], &line[end..]))
        };
        moved(line, " passed", &|passed| passed.checked_sub(count))
            .and_then(|line| moved(&line, " ignored", &|ignored| Some(ignored + count)))
            .unwrap_or_else(|| line.to_owned())
    }

    pub fn text(text: &str) -> String {
        let mut recount = SummaryRewriter::default();
        text.lines()
            .map(|line| recount.line(line) + "\n")
            .collect::<String>()
    }

    /// Copies until the input ends, each line as soon as it is complete.
    ///
    /// # Errors
    /// If reading or writing fails.
    pub fn copy(mut from: impl BufRead, mut to: impl Write) -> std::io::Result<()> {
        let (mut recount, mut line) = (SummaryRewriter::default(), Vec::new());
        while from.read_until(b'\n', &mut line)? > 0 {
            let text = String::from_utf8_lossy(&line);
            let text = recount.line(text.strip_suffix('\n').unwrap_or(&text));
            writeln!(to, "{text}")?;
            to.flush()?;
            line.clear();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "\
running 6 tests
test a::holds ... ok
test a::lacks_root ... ok
test b::fails ... FAILED
test b::half ... ok
test c::panics - should panic ... ok
test old ... ignored, needs a disk

successes:

---- a::holds stdout ----
it found that khugepaged does not run: 2M pages are never
---- a::lacks_root stdout ----
not run: lacks_root: needs root
not run: lacks_root: needs a pool
---- b::half stdout ----
not run: the part of half with pages of 1G: needs memory

successes:
    a::holds
    a::lacks_root
    b::half

failures:

---- b::fails stdout ----
not run: fails: so it said, and failed

failures:
    b::fails

test result: FAILED. 4 passed; 1 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.10s
";

    #[test]
    fn what_was_not_run_is_ignored_and_a_part_is_not() {
        let closing = "test result: FAILED. 3 passed; 1 failed; 2 ignored; 0 measured; 0 filtered out; finished in 0.10s";
        let text = SummaryRewriter::text(OUTPUT);
        assert_eq!(text.lines().last(), Some(closing));
        let rest = |text: &str| text.rsplit_once("test result").unwrap().0.to_owned();
        assert_eq!(rest(&text), rest(OUTPUT), "nothing else changes");
    }

    /// Each program's output is counted separately, for any number of programs.
    #[test]
    fn each_program_is_counted_by_itself() {
        let whole = "test result: ok. 7 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out";
        let text = SummaryRewriter::text(&format!(
            "{OUTPUT}{whole}\nnot run: cargo fmt\n{whole}\n{OUTPUT}"
        ));
        let closings: Vec<&str> = text.lines().filter(|l| l.starts_with("test res")).collect();
        assert_eq!(closings[1..3], [whole; 2]);
        assert_eq!(closings[0], closings[3]);
    }

    #[test]
    fn outcomes_are_distinguished() {
        let mut harness = HarnessParser::default();
        let said: Vec<_> = OUTPUT.lines().filter_map(|l| harness.line(l)).collect();
        let last = |name: &str| {
            let found = said.iter().rfind(|(of, _)| of == name);
            found.unwrap().1.clone()
        };
        let not = |why: &str| TestOutcome::NotRun(why.to_owned());
        assert_eq!(last("a::holds"), TestOutcome::Held);
        assert_eq!(last("a::lacks_root"), not("needs a pool"));
        assert_eq!(last("b::fails"), TestOutcome::Failed);
        assert_eq!(last("b::half"), TestOutcome::Held);
        assert_eq!(last("c::panics"), TestOutcome::Held);
        assert_eq!(last("old"), not("needs a disk"));
        assert_eq!(line_of_test("test victim::obeys ... ignored"), None);
    }
}
