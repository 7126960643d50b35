//! The page of hosts is made only of the stored results.

use std::path::Path;

use hugeleaf_vm::guest_config::GuestConfigFile;
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

/// Adds the names and texts of all source files below a folder.
#[allow(clippy::unwrap_used)]
fn add_sources(folder: &Path, text: &mut String) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            add_sources(&path, text);
        } else if path.extension().is_some_and(|end| end == "rs") {
            text.push_str(&path.file_name().unwrap().to_string_lossy());
            text.push_str(&std::fs::read_to_string(&path).unwrap());
        }
    }
}

/// The harness reports no error for a filter without a match: the host would silently lose the tests.
#[test]
fn hosts_name_programs_and_tests_that_exist() {
    for host in GuestConfigFile::all(&repository().join("lab/vm/hosts")).unwrap() {
        let lists = host.description.tests.iter().flatten();
        for line in lists.chain(&host.description.quick) {
            let mut words = line.split(' ');
            let (krate, program) = words.next().and_then(|word| word.split_once('/')).unwrap();
            let above = if krate == "vm" { "lab" } else { "crates" };
            let package = repository().join(above).join(krate);
            let manifest = std::fs::read_to_string(package.join("Cargo.toml")).unwrap_or_default();
            let tests = package.join("tests");
            let exists = tests.join(program).join("main.rs").exists()
                || tests.join(format!("{program}.rs")).exists()
                || manifest.contains(&format!("[[test]]\nname = \"{program}\""));
            assert!(exists, "{}: no program {krate}/{program}", host.name);
            let mut text = String::new();
            add_sources(&tests, &mut text);
            for part in words.flat_map(|word| word.split("::")) {
                assert!(text.contains(part), "{}: no test {part}", host.name);
            }
        }
    }
}

#[test]
fn every_host_with_tests_has_a_result() {
    let results = recorded(repository()).unwrap();
    let mut with: Vec<&str> = results.iter().map(|r| r.host.as_str()).collect();
    let mut hosts = GuestConfigFile::all(&repository().join("lab/vm/hosts")).unwrap();
    hosts.retain(|host| !host.description.tests.is_empty());
    let mut names: Vec<&str> = hosts.iter().map(|h| h.name.as_str()).collect();
    names.sort_unstable();
    with.sort_unstable();
    assert_eq!(with, names, "make vm-test HOST=…");
}
