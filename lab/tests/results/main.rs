//! `docs/results.md` and the pages in `docs/results` match the committed raw runs that they are made from.
//!
//! After new runs, or an intended change, `HUGELEAF_BLESS=1 scripts/lab.sh test --test results` updates them.

// A panic is how a test fails, also in its helpers.
#![allow(clippy::unwrap_used)]

mod answers;
mod oltp;
mod own;
mod page;
mod programs;
mod python;
mod runs;
mod summary;

use hugeleaf_testkit::{files_below, repository};
use page::{FIRST, MACHINES, SUBJECTS};
use runs::Runs;

#[test]
fn the_pages_are_what_the_committed_runs_make() {
    let runs = Runs::read(&repository().join("bench/runs"));
    let made = page::pages(&runs);
    let folder = repository().join(SUBJECTS);
    if std::env::var_os("HUGELEAF_BLESS").is_some() {
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir(&folder).unwrap();
        for (path, text) in &made {
            std::fs::write(repository().join(path), text).unwrap();
        }
        return;
    }
    for (path, made) in &made {
        let there = std::fs::read_to_string(repository().join(path)).unwrap_or_default();
        let differs = made.lines().zip(there.lines()).find(|(a, b)| a != b);
        assert!(
            *made == there,
            "{path} is not what bench/runs makes; first difference: {differs:#?}\nlook at what \
             `HUGELEAF_BLESS=1 scripts/lab.sh test --test results` changes"
        );
    }
    let others = files_below(&folder).len() + 1;
    assert_eq!(
        others,
        made.len(),
        "{SUBJECTS} has pages that nothing makes"
    );
}

/// Every run must be on a page; otherwise it would be unused.
#[test]
fn every_run_is_on_a_page() {
    let runs = Runs::read(&repository().join("bench/runs"));
    // The list of all runs does not count.
    let all = format!("{SUBJECTS}/{MACHINES}.md");
    let made = page::pages(&runs);
    let figures: Vec<String> = made
        .into_iter()
        .filter(|(path, _)| *path != all)
        .map(|(_, text)| text)
        .collect();
    for run in &runs.all {
        let path = format!("[{}](", run.path());
        assert!(
            figures.iter().any(|text| text.contains(&path)),
            "{} is on no page",
            run.path()
        );
    }
}

#[test]
fn without_any_run_the_pages_say_so() {
    for (path, made) in page::pages(&Runs { all: Vec::new() }) {
        assert!(!made.contains("NaN"), "{path}: {made}");
        assert!(path != FIRST || made.contains("not measured yet"), "{made}");
    }
}
