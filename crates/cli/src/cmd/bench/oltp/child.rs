//! Runs of this very program.

use std::path::PathBuf;
use std::process::Output;

use crate::context::Failure;

/// This very program.
pub(super) fn program() -> Result<PathBuf, Failure> {
    std::env::current_exe().map_err(|e| {
        Failure::missing(
            format!("bench oltp: this very program: {e}"),
            "run it again",
        )
    })
}

/// The two lines of its refusal: what failed, and what to do next.
pub(super) fn refusal(output: &Output) -> (Option<String>, Option<String>) {
    let text = String::from_utf8_lossy(&output.stderr);
    let line = |start: &str| {
        let mut lines = text.lines();
        lines.find_map(|l| l.strip_prefix(start)).map(str::to_owned)
    };
    (line("hugeleaf: "), line("  next: "))
}
