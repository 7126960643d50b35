//! Results of a run of tests in a guest, parsed from the output of the test programs, and the table
//! of all hosts.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;

use anyhow::Context;
use serde::{Deserialize, Serialize};

use crate::harness_output::HarnessParser;
pub use crate::harness_output::TestOutcome;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TestResult {
    /// The program, such as `vm/every_host`.
    pub program: String,
    pub name: String,
    #[serde(flatten)]
    pub outcome: TestOutcome,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct GuestTestResults {
    pub host: String,
    pub title: String,
    /// The kernel's release, and its Debian version.
    pub kernel: String,
    /// Date of the run, such as `2026-11-23`.
    pub date: String,
    /// Seconds until the first program ran.
    pub seconds_to_boot: f64,
    /// Seconds in total, without the making of disks.
    pub seconds: f64,
    pub tests: Vec<TestResult>,
}

/// Prefix of the line that announces a program in the output of a guest.
pub const ANNOUNCED: &str = "hugeleaf-vm: program ";

/// Parses the output of test programs (rustc's test harness, `--test-threads=1 --show-output`).
pub fn parse(output: &str) -> Vec<TestResult> {
    let mut tests: Vec<TestResult> = Vec::new();
    let (mut program, mut harness) = (String::new(), HarnessParser::default());
    for line in output.lines() {
        let line = line.trim_end();
        if let Some(name) = line.strip_prefix(ANNOUNCED) {
            program = name.to_owned();
            harness = HarnessParser::default();
        } else if let Some((name, outcome)) = harness.line(line) {
            let known = tests.iter_mut().rev();
            let mut of_this = known.take_while(|t| t.program == program);
            match of_this.find(|t| t.name == name) {
                Some(test) => test.outcome = outcome,
                None => tests.push(TestResult {
                    program: program.clone(),
                    name,
                    outcome,
                }),
            }
        }
    }
    tests
}

/// Reads the results stored in a repository, by host.
///
/// # Errors
/// If one cannot be read.
pub fn recorded(repository: &Path) -> anyhow::Result<Vec<GuestTestResults>> {
    let folder = repository.join("lab/vm/results");
    let mut results: Vec<GuestTestResults> = Vec::new();
    for entry in std::fs::read_dir(&folder).with_context(|| format!("{}", folder.display()))? {
        let path = entry?.path();
        let text = std::fs::read_to_string(&path)?;
        results.push(serde_json::from_str(&text).with_context(|| format!("{}", path.display()))?);
    }
    results.sort_by(|a, b| a.host.cmp(&b.host));
    Ok(results)
}

/// Formats the totals of all tests: `N passed; M failed; K not run`.
pub fn sums(tests: &[TestResult]) -> String {
    let (held, failed, not) = counts(tests);
    format!("{held} passed; {failed} failed; {not} not run")
}

/// Returns the page `docs/reference/hosts.md`.
pub fn page(results: &[GuestTestResults]) -> String {
    let mut text = String::from(HEAD);
    text.push_str(
        "\n| host | configuration | kernel | boot | duration | tests passed / failed / not run |\n",
    );
    text.push_str("|---|---|---|---|---|---|\n");
    for r in results {
        let (held, failed, not) = counts(&r.tests);
        let _ = writeln!(
            text,
            "| [{}](#{}) | {} | {} | {:.0} s | {:.0} s | {held} / {failed} / {not} |",
            r.host,
            // GitHub's anchor of a heading has no dots.
            r.host.replace('.', ""),
            r.title,
            r.kernel,
            r.seconds_to_boot,
            r.seconds
        );
    }
    text.push_str(&capabilities(results));
    for r in results {
        text.push_str(&section(r));
    }
    text
}

const HEAD: &str = "\
# Hosts that hugeleaf is tested on

Each host is a real kernel in a virtual machine, described by a file in [lab/vm/hosts](../../lab/vm/hosts). It runs the tests that this file
lists. `make vm-table` generates this page from the results in [lab/vm/results](../../lab/vm/results); `make vm-test` runs all
tests again. QEMU emulates the processor here, so the times describe the test run and not the speed of hugeleaf.

Debian has no arm64 kernel with 64K base pages, so that size is not tested.
";

fn counts(tests: &[TestResult]) -> (usize, usize, usize) {
    tests
        .iter()
        .fold((0, 0, 0), |(a, b, c), t| match t.outcome {
            TestOutcome::Held => (a + 1, b, c),
            TestOutcome::Failed => (a, b + 1, c),
            TestOutcome::NotRun(_) => (a, b, c + 1),
        })
}

/// The program whose tests are capabilities: the same on every host.
const CAPABILITIES: &str = "vm/every_host";

/// Returns the table of hosts and capabilities; a capability that a host leaves out has an empty
/// cell.
fn capabilities(results: &[GuestTestResults]) -> String {
    let mut names: BTreeSet<&str> = BTreeSet::new();
    let mut cells: BTreeMap<(&str, &str), &TestOutcome> = BTreeMap::new();
    for r in results {
        for t in r.tests.iter().filter(|t| t.program == CAPABILITIES) {
            names.insert(&t.name);
            cells.insert((&r.host, &t.name), &t.outcome);
        }
    }
    if names.is_empty() {
        return String::new();
    }
    let mut text = String::from("\n## Capabilities by host\n\n");
    text.push_str(
        "✓ passed, ✗ failed, – not run (the host's section below gives the reason).\n\n| |",
    );
    for (number, _) in results.iter().enumerate() {
        let _ = write!(text, " {} |", number + 1);
    }
    text.push_str("\n|---|");
    text.push_str(&"---|".repeat(results.len()));
    text.push('\n');
    for name in names {
        let _ = write!(text, "| {} |", name.replace("::", ": ").replace('_', " "));
        for r in results {
            let cell = match cells.get(&(r.host.as_str(), name)) {
                Some(TestOutcome::Held) => "✓",
                Some(TestOutcome::Failed) => "✗",
                Some(TestOutcome::NotRun(_)) => "–",
                None => "",
            };
            let _ = write!(text, " {cell} |");
        }
        text.push('\n');
    }
    text.push('\n');
    for (number, r) in results.iter().enumerate() {
        let _ = writeln!(text, "{}. {}: {}", number + 1, r.host, r.title);
    }
    text
}

/// Returns the section of a host: tests that were not run or failed, with the reasons.
fn section(r: &GuestTestResults) -> String {
    let mut text = format!(
        "\n## {}\n\n{}. {}, {}.\n",
        r.host, r.title, r.kernel, r.date
    );
    let mut reasons: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for t in &r.tests {
        let why = match &t.outcome {
            TestOutcome::Held => continue,
            TestOutcome::Failed => "**failed**".to_owned(),
            TestOutcome::NotRun(why) => format!("not run, {why}"),
        };
        reasons.entry(why).or_default().push(&t.name);
    }
    if reasons.is_empty() {
        text.push_str("\nAll tests were run and passed.\n");
        return text;
    }
    text.push('\n');
    for (why, names) in reasons {
        let names: Vec<String> = names.iter().map(|n| format!("`{n}`")).collect();
        let _ = writeln!(text, "- {why}: {}", names.join(", "));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "\
hugeleaf-vm: program vm/every_host
running 4 tests
test a::holds ... ok
test b::fails ... FAILED
test cannot_run ... ok
test old ... ignored, needs a disk

successes:

---- cannot_run stdout ----
not run: cannot_run: needs two nodes

test result: FAILED. 2 passed; 1 failed
hugeleaf-vm: program cli/promote
test cannot_run ... ok
test half ... ok

successes:

---- cannot_run stdout ----
not run: cannot_run: needs root
---- half stdout ----
not run: the part of half with swap: needs swap
";

    #[test]
    fn outcomes_are_distinguished() {
        let tests = parse(OUTPUT);
        let of = |program: &str, name: &str| {
            let test = tests
                .iter()
                .find(|t| t.program == program && t.name == name);
            test.unwrap().outcome.clone()
        };
        assert_eq!(of("vm/every_host", "a::holds"), TestOutcome::Held);
        assert_eq!(of("vm/every_host", "b::fails"), TestOutcome::Failed);
        let not = |why: &str| TestOutcome::NotRun(why.to_owned());
        assert_eq!(of("vm/every_host", "cannot_run"), not("needs two nodes"));
        assert_eq!(of("vm/every_host", "old"), not("needs a disk"));
        assert_eq!(of("cli/promote", "cannot_run"), not("needs root"));
        assert_eq!(of("cli/promote", "half"), TestOutcome::Held);
        assert_eq!(sums(&tests), "2 passed; 1 failed; 3 not run");
    }

    #[test]
    fn results_come_back_from_their_file_and_fill_the_page() {
        let result = GuestTestResults {
            host: "x86-6.1".to_owned(),
            title: "old".to_owned(),
            kernel: "6.1.0".to_owned(),
            date: "2026-11-23".to_owned(),
            seconds_to_boot: 6.7,
            seconds: 61.2,
            tests: parse(OUTPUT),
        };
        let text = serde_json::to_string_pretty(&result).unwrap();
        let back: GuestTestResults = serde_json::from_str(&text).unwrap();
        assert_eq!(back.tests, result.tests);
        let page = page(&[back]);
        for part in [
            "| [x86-6.1](#x86-61) | old | 6.1.0 | 7 s | 61 s | 2 / 1 / 3 |",
            "| a: holds | ✓ |",
            "| b: fails | ✗ |",
            "| cannot run | – |",
            "- not run, needs two nodes: `cannot_run`",
            "- **failed**: `b::fails`",
        ] {
            assert!(page.contains(part), "{part} is not in\n{page}");
        }
    }
}
