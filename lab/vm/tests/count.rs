//! Tests that were not run count as ignored: in the output of a real test program, which is this one, and in the sums
//! of `.ci/run`.

// The tests' shared code unwraps too.
#![allow(clippy::unwrap_used)]

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

#[test]
#[ignore = "counted by another test"]
fn lacks_something() {
    println!("not run: lacks_something: needs a machine that nobody has");
}

#[test]
#[ignore = "counted by another test"]
fn lacks_a_part() {
    println!("not run: the part of lacks_a_part that flies: needs wings");
}

/// Returns the output of `hugeleaf-vm count` for a text.
fn counted(text: &[u8]) -> String {
    let mut count = Command::new(env!("CARGO_BIN_EXE_hugeleaf-vm"))
        .arg("count")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    count.stdin.take().unwrap().write_all(text).unwrap();
    let output = count.wait_with_output().unwrap();
    assert!(output.status.success());
    String::from_utf8(output.stdout).unwrap()
}

/// Returns the output of the two tests above, as counted by the harness itself.
fn harness() -> Vec<u8> {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--show-output", "lacks_"])
        .output()
        .unwrap();
    assert!(output.status.success());
    output.stdout
}

#[test]
fn the_harness_counts_it_as_passed_and_we_as_ignored() {
    let bare = harness();
    let text = String::from_utf8_lossy(&bare);
    assert!(
        text.contains("2 passed; 0 failed; 0 ignored"),
        "the harness has learned to tell: {text}"
    );
    let said = counted(&bare);
    assert!(said.contains("1 passed; 0 failed; 1 ignored"), "{said}");
}

/// Runs with a `make` that prints the output of tests, and fails on request.
fn ci_run(prints: &str, status: i32) -> (Option<i32>, String) {
    let folder = tempfile::tempdir().unwrap();
    let make = folder.path().join("make");
    std::fs::write(
        &make,
        format!("#!/bin/sh\ncat <<'END'\n{prints}END\nexit {status}\n"),
    )
    .unwrap();
    std::fs::set_permissions(&make, std::fs::Permissions::from_mode(0o755)).unwrap();
    let path = std::env::var("PATH").unwrap();
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let output = Command::new(repository.join(".ci/run"))
        .env("PATH", format!("{}:{path}", folder.path().display()))
        // Without the steps of `make test-all`.
        .env("HUGELEAF_CI_SECONDS", "0")
        .output()
        .unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    (output.status.code(), said)
}

#[test]
fn sums_have_what_was_not_run() {
    let text = counted(&harness());
    let failed = "test a ... FAILED\ntest result: FAILED. 4 passed; 2 failed; 3 ignored\n";
    let last = |said: &str| said.lines().last().unwrap().to_owned();
    let (status, said) = ci_run(&text, 0);
    assert_eq!(
        (status, last(&said)),
        (Some(0), "1 passed, 0 failed, 1 ignored".to_owned())
    );
    assert!(said.contains("1 not run: lacks_something: "), "{said}");
    let (status, said) = ci_run(&format!("{text}{failed}"), 7);
    assert_eq!(
        (status, last(&said)),
        (Some(7), "5 passed, 2 failed, 4 ignored".to_owned())
    );
    let not_reached = "not reached: the steps of make test-all\n";
    assert_eq!(
        ci_run("nothing\n", 0),
        (
            Some(1),
            format!("nothing\n{not_reached}\n== closing lines\n{not_reached}no test was run\n")
        )
    );
}
