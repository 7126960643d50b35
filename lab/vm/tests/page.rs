//! The page of hosts is made only of the stored results.

use std::path::Path;

use hugeleaf_vm::host::HostFile;
use hugeleaf_vm::results::{page, recorded};

#[allow(clippy::unwrap_used)]
fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .unwrap()
}

#[test]
fn the_page_of_hosts_is_made_of_the_results() {
    let results = recorded(repository()).unwrap();
    let text = std::fs::read_to_string(repository().join("docs/reference/hosts.md")).unwrap();
    assert!(
        text == page(&results),
        "docs/reference/hosts.md is not what lab/vm/results says: make vm-table"
    );
}

#[test]
fn every_host_with_tests_has_a_result() {
    let results = recorded(repository()).unwrap();
    let mut with: Vec<&str> = results.iter().map(|r| r.host.as_str()).collect();
    let mut hosts = HostFile::all(&repository().join("lab/vm/hosts")).unwrap();
    hosts.retain(|host| !host.description.tests.is_empty());
    let mut names: Vec<&str> = hosts.iter().map(|h| h.name.as_str()).collect();
    names.sort_unstable();
    with.sort_unstable();
    assert_eq!(with, names, "make vm-test HOST=…");
}
