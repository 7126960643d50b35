//! `hugeleaf verify`: captured hosts that are spoilt by one thing at a time, a running server that
//! loses its pages, and a plan that was applied and that somebody changed.

mod applied;
mod captured;
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
    let text = crate::common::answered(output);
    let value = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}:\n{text}"));
    (value, output.status.code().unwrap())
}
