//! Tests `hugeleaf verify` on captured hosts with one fault each, on a running server that loses
//! its pages, and on an applied plan that was changed afterwards.

mod applied;
mod can_take;
mod captured;
mod server;

use std::process::Output;

use serde_json::Value;

/// Returns the findings' ids in a JSON answer, in order.
fn ids(answer: &Value) -> Vec<&str> {
    let findings = answer["findings"].as_array().unwrap();
    findings.iter().map(|f| f["id"].as_str().unwrap()).collect()
}

/// Returns a JSON answer and its exit status.
#[track_caller]
fn answer(output: &Output) -> (Value, i32) {
    let text = crate::common::answered(output);
    let value = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}:\n{text}"));
    (value, output.status.code().unwrap())
}
