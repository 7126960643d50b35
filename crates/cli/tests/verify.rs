//! `hugeleaf verify`: captured hosts that are spoilt by one thing at a time, a running server that
//! loses its pages, and a plan that was applied and that somebody changed.
// A panic is how a test fails, in its helpers too.
#![allow(clippy::unwrap_used)]

mod cli_support;
// The tests of servers use the rest of it.
#[allow(dead_code)]
mod support;

#[path = "verify/applied.rs"]
mod applied;
// The tests of apply use the rest of it.
#[path = "verify/captured.rs"]
mod captured;
#[allow(dead_code)]
#[path = "apply/namespace.rs"]
mod namespace;
#[path = "verify/server.rs"]
mod server;

use std::process::Output;

use serde_json::Value;

/// The findings' names in a JSON answer, in order.
fn ids(answer: &Value) -> Vec<&str> {
    let findings = answer["findings"].as_array().unwrap();
    findings.iter().map(|f| f["id"].as_str().unwrap()).collect()
}

/// A JSON answer and its exit status.
#[track_caller]
fn answer(output: &Output) -> (Value, i32) {
    let text = cli_support::answered(output);
    let value = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}:\n{text}"));
    (value, output.status.code().unwrap())
}
