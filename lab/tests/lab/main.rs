//! The program `hugeleaf-lab` as a whole, and its kits on real servers.

// A panic is how a test fails, also in its helpers.
#![allow(clippy::unwrap_used)]

#[path = "../../../crates/cli/tests/common.rs"]
#[allow(dead_code, unused_imports)] // shared with the tests of the product, which use the rest
mod common;

mod amm;
mod help;
mod keyed;
mod mover;
mod mover_kit;
mod oltp;
mod pagetables;
mod tpcc;

use std::path::Path;
use std::process::Command;

/// Returns the program's command with a known environment.
fn lab(args: &[&str]) -> Command {
    common::program(Path::new(LAB), args)
}

/// Returns the names of a result's arms.
fn arms(result: &serde_json::Value) -> Vec<&str> {
    let arms = result["arms"].as_array().expect("a result has arms");
    arms.iter()
        .map(|arm| arm["name"].as_str().expect("a name"))
        .collect()
}

const LAB: &str = env!("CARGO_BIN_EXE_hugeleaf-lab");
