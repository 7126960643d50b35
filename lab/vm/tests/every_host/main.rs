//! Requirements for every host, independent of its kernel, page sizes, nodes and control groups. Each test is a
//! capability, and a row in the table of hosts (docs/reference/hosts.md).
//!
//! They run on the build machine like any test, and inside the guests of `lab/vm/hosts`. Statements of hugeleaf are
//! compared with those of the kernel, which are read here again in a simpler way.

// The tests' shared code unwraps too.
#![allow(clippy::unwrap_used)]

mod boots;
mod capture;
mod checks;
mod host;
mod kernel;
mod limits;
mod moves;
mod numbers;
mod plans;
mod processes;
mod services;
mod settings;
mod sharing;
mod starts;
mod traces;
mod verdicts;
mod victim;

use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

/// Returns the program under test: `HUGELEAF`, or the one that cargo made next to these tests, or the one on PATH.
pub fn program() -> PathBuf {
    if let Some(path) = std::env::var_os("HUGELEAF") {
        return path.into();
    }
    let own = std::env::current_exe().unwrap();
    let beside = own.ancestors().nth(2).unwrap().join("hugeleaf");
    if beside.is_file() {
        return beside;
    }
    PathBuf::from("hugeleaf")
}

/// Runs hugeleaf as a script would.
pub fn hugeleaf(args: &[&str]) -> Output {
    Command::new(program())
        .args(args)
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .output()
        .unwrap_or_else(|e| panic!("{}: {e}", program().display()))
}

/// Returns its answer as text; fails without an answer.
#[track_caller]
pub fn answer(args: &[&str]) -> String {
    let out = hugeleaf(args);
    assert!(
        matches!(out.status.code(), Some(0 | 1)),
        "{args:?}: {:?}\n{}\n{}",
        out.status,
        String::from_utf8_lossy(&out.stdout),
        String::from_utf8_lossy(&out.stderr)
    );
    String::from_utf8(out.stdout).unwrap()
}

/// Returns its answer as JSON.
#[track_caller]
pub fn json(args: &[&str]) -> Value {
    let text = answer(&[args, &["--json"]].concat());
    serde_json::from_str(&text).unwrap_or_else(|e| panic!("{args:?}: {e}\n{text}"))
}

/// Reports that a test could not be run, with the reason.
pub fn not_run(test: &str, why: &str) {
    println!("not run: {test}: {why}");
}
