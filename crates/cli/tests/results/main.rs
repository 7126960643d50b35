//! `docs/results.md` is made from the committed raw runs, and is what they make.
//!
//! After new runs, or a change that is meant: `HUGELEAF_BLESS=1 cargo test -p hugeleaf-cli --test
//! results` writes it anew.

// A panic is how a test fails, also in its helpers.
#![allow(clippy::unwrap_used)]

#[path = "../cli_support/mod.rs"]
mod cli_support;

mod answers;
mod oltp;
mod own;
mod page;
mod runs;
mod summary;

use cli_support::repository;
use runs::Runs;

const PAGE: &str = "docs/results.md";

#[test]
fn the_page_is_what_the_committed_runs_make() {
    let runs = Runs::read(&repository().join("bench/runs"));
    let made = page::page(&runs);
    let path = repository().join(PAGE);
    if std::env::var_os("HUGELEAF_BLESS").is_some() {
        std::fs::write(&path, &made).unwrap();
        return;
    }
    let there = std::fs::read_to_string(&path).unwrap_or_default();
    let differs = made.lines().zip(there.lines()).find(|(a, b)| a != b);
    assert!(
        made == there,
        "{PAGE} is not what bench/runs makes; first difference: {differs:#?}\nlook at what \
         `HUGELEAF_BLESS=1 cargo test -p hugeleaf-cli --test results` changes"
    );
}

/// Every run is on the page: one that nothing is said of would be kept for nobody.
#[test]
fn every_run_is_on_the_page() {
    let runs = Runs::read(&repository().join("bench/runs"));
    let made = page::page(&runs);
    // The list of all of them at its end does not count.
    let (figures, _) = made.split_once("## What it does not show").unwrap();
    for run in &runs.all {
        assert!(
            figures.contains(&run.link()),
            "{} is not on the page",
            run.path()
        );
    }
}

#[test]
fn without_any_run_the_page_says_so() {
    let made = page::page(&Runs { all: Vec::new() });
    assert!(made.contains("not measured yet"), "{made}");
    assert!(!made.contains("NaN"), "{made}");
}
