//! Help texts, and the page that describes them.

use std::path::Path;

use crate::common::{good, refused, repository};
use crate::{LAB, lab};

const COMMANDS: [&str; 5] = ["amm", "mover", "oltp", "pagetables", "pin"];

/// After an intended change, `TRYCMD=overwrite make lab-test` updates the texts.
#[test]
fn help() {
    trycmd::TestCases::new()
        .register_bin("hugeleaf-lab", Path::new(LAB))
        .env("LC_ALL", "C")
        .case("tests/help/*.trycmd");
}

/// docs/reference/lab.md names every flag of every command.
#[test]
fn the_reference_knows_every_flag() {
    let text = std::fs::read_to_string(repository().join("docs/reference/lab.md")).unwrap();
    for command in COMMANDS {
        let start = format!("`hugeleaf-lab {command}");
        let section = text.split("\n## ").find(|s| s.starts_with(&start));
        let section = section.unwrap_or_else(|| panic!("no section on {command}"));
        let help = good(&lab(&[command, "--help"]).output().unwrap());
        let words = help.split(|c: char| !(c.is_ascii_lowercase() || c == '-'));
        let global = ["--json", "--root", "--help", "--version", "--hugeleaf"];
        for flag in words.filter(|w| w.len() > 2 && w.starts_with("--") && !global.contains(w)) {
            assert!(
                section.contains(&format!("`{flag}")),
                "{command} {flag} is not described"
            );
        }
    }
}

/// A missing program is an error and is not replaced by another.
#[test]
fn hugeleaf_has_to_be_there() {
    let output = lab(&["pin", "--hugeleaf", "/nonexistent"])
        .output()
        .unwrap();
    refused(&output, 2, &["/nonexistent", "--hugeleaf FILE"]);
}
