//! Tests `hugeleaf status` on captured hosts, on hosts with unreadable files, and on this host.
//!
//! The answers are committed next to this file, one text and one JSON per host. After an intended change, `HUGELEAF_BLESS=1 cargo test -p
//! hugeleaf-cli --test cli status::` rewrites them; review the difference before committing it.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Output;

use crate::common::{files_below, repository};
use assert_cmd::Command;
use hugeleaf_host::limits;
use hugeleaf_host::{Root, read_host, read_owners};
use hugeleaf_report::document::TextOptions;
use hugeleaf_report::status::{status, status_json};
use hugeleaf_sys::Kernel;
use hugeleaf_verdict::findings::findings;
use serde_json::Value;

/// One host per kind of machine; fixtures/README.md describes each.
const HOSTS: [&str; 12] = [
    "arm64-16k",
    "arm64-64k",
    "cut-files",
    "dead-knobs",
    "neither-kind",
    "no-hugetlb",
    "no-thp",
    "virtual-machine",
    "x86-4k-two-nodes",
    "x86-6.1-cgroup-v1",
    "x86-7.3-two-nodes",
    "x86-old-kernel",
];

fn hugeleaf(arguments: &[&str]) -> Output {
    let mut command = Command::cargo_bin("hugeleaf").unwrap();
    // Relative paths make answers independent of the repository's location.
    command
        .current_dir(repository())
        .args(arguments)
        .output()
        .unwrap()
}

fn stdout_of(output: &Output) -> String {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && stderr.is_empty(),
        "{}: {stderr}",
        output.status
    );
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn compare(got: &str, file: &Path) {
    if std::env::var_os("HUGELEAF_BLESS").is_some() {
        std::fs::write(file, got).unwrap();
        return;
    }
    let expected = std::fs::read_to_string(file).unwrap_or_default();
    assert!(
        got == expected,
        "{} differs; it is now:\n{got}",
        file.display()
    );
}

#[test]
fn every_captured_host_reads_as_committed() {
    let answers = repository().join("crates/cli/tests/status");
    for host in HOSTS {
        let root = format!("fixtures/{host}");
        let text = stdout_of(&hugeleaf(&["status", "--root", &root]));
        compare(&text, &answers.join(format!("{host}.txt")));
        let json = stdout_of(&hugeleaf(&["status", "--root", &root, "--json"]));
        compare(&json, &answers.join(format!("{host}.json")));
    }
}

#[test]
fn without_a_command_it_is_status() {
    let root = "fixtures/no-thp";
    let named = stdout_of(&hugeleaf(&["status", "--root", root]));
    assert_eq!(stdout_of(&hugeleaf(&["--root", root])), named);
}

/// Field names are a contract: docs/reference/json.md lists them.
#[test]
fn the_json_contract_holds() {
    let root = "fixtures/x86-4k-two-nodes";
    let text = stdout_of(&hugeleaf(&["status", "--json", "--root", root]));
    assert!(text.starts_with("{\n  \"schema\": 2,"));
    let answer: Value = serde_json::from_str(&text).unwrap();
    let host = &answer["host"];
    for name in [
        "kernel",
        "arch",
        "memory_bytes",
        "page_tables_bytes",
        "thp",
        "limits",
    ] {
        assert!(!host[name].is_null(), "{name}");
    }
    for name in ["page_bytes", "kind", "enabled"] {
        assert!(!host["page_sizes"][0][name].is_null(), "{name}");
    }
    let pools = host["pools"].as_array().unwrap();
    for name in ["page_bytes", "total", "free", "reserved", "surplus"] {
        assert!(!pools[0][name].is_null(), "{name}");
    }
    // The total has no node, and a node has no reservations; these keys are missing, not null.
    assert!(pools[0].get("node").is_none());
    assert_eq!(pools[1]["node"], 0);
    assert!(pools[1].get("reserved").is_none());
    for name in ["id", "severity", "text", "command"] {
        assert!(answer["findings"][0][name].is_string(), "{name}");
    }
}

#[test]
fn base_pages_of_every_size_are_told_from_the_capture() {
    for (host, bytes) in [
        ("x86-4k-two-nodes", 4096),
        ("arm64-16k", 16384),
        ("arm64-64k", 65536),
    ] {
        let root = format!("fixtures/{host}");
        let text = stdout_of(&hugeleaf(&["status", "--json", "--root", &root]));
        let answer: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(answer["host"]["base_page_bytes"], bytes, "{host}");
    }
}

#[test]
fn a_folder_that_is_no_captured_host_is_an_error_of_two_lines() {
    let output = hugeleaf(&["status", "--root", "crates"]);
    assert_eq!(output.status.code(), Some(3));
    let stderr = String::from_utf8(output.stderr).unwrap();
    let lines: Vec<&str> = stderr.lines().collect();
    assert_eq!(lines.len(), 2, "{stderr}");
    assert!(
        lines[0].starts_with("hugeleaf: crates/proc: missing: "),
        "{stderr}"
    );
    assert!(lines[1].starts_with("  next: "), "{stderr}");
}

#[test]
fn the_live_host() {
    let answer: Value = serde_json::from_str(&stdout_of(&hugeleaf(&["--json"]))).unwrap();
    let host = &answer["host"];
    let page = Kernel::new().base_page().bytes().get();
    assert_eq!(host["base_page_bytes"], page);
    assert!(host["memory_bytes"].as_u64().unwrap() > page);
    assert!(!host["holders"].as_array().unwrap().is_empty());
    assert!(stdout_of(&hugeleaf(&[])).contains("PAGE SIZES"));
}

/// Returns true for files without a unique fact: another file has the same, a process is left out, the cgroup limits nothing, or hugeleaf
/// does not read the file.
fn may_be_missed(host: &Path, file: &str) -> bool {
    const ENDS: [&str; 16] = [
        "auxv",
        "/status",
        "has_memory",
        "online",
        "proc/self/cgroup",
        "cgroup.controllers",
        "cgroup.subtree_control",
        "nr_hugepages_mempolicy",
        "max_usage_in_bytes",
        "usage_in_bytes",
        "failcnt",
        "numa_stat",
        "events.local",
        "tasks",
        "hugepages-oddkB/nr_hugepages",
        "future_knob",
    ];
    let counts = file.ends_with("current") || file.ends_with("events");
    counts && limits_nothing(host, file) || ENDS.iter().any(|end| file.ends_with(end))
}

/// Returns true if the limits next to `GROUP/hugetlb.SIZE.…` are unlimited.
fn limits_nothing(host: &Path, file: &str) -> bool {
    let (group, name) = file.rsplit_once('/').unwrap();
    let size = name.split('.').nth(1).unwrap();
    ["max", "rsvd.max"].iter().all(|limit| {
        let limit = host.join(format!("{group}/hugetlb.{size}.{limit}"));
        std::fs::read_to_string(limit).is_ok_and(|text| text.trim() == "max")
    })
}

#[test]
fn each_file_that_cannot_be_read_is_said_and_nothing_panics() {
    for host in HOSTS {
        let folder = repository().join("fixtures").join(host);
        let mut files = files_below(&folder);
        for list in ["sys/kernel/mm/transparent_hugepage", "etc/sysctl.d", "proc"] {
            files.push(PathBuf::from(list));
        }
        for file in files {
            let name = file.to_str().unwrap().to_owned();
            let root = Root::at(&folder).failing(&file, ErrorKind::PermissionDenied);
            let mut facts = match read_host(&root, &Kernel::new()) {
                Ok(facts) => facts,
                Err(error) => {
                    let only_source = name.ends_with("auxv") || name.ends_with("smaps");
                    assert!(only_source || name == "proc", "{host} {name}: {error}");
                    continue;
                }
            };
            facts.owners = read_owners(&root).known().cloned().unwrap_or_default();
            facts.memory_limits = limits::all_memory(&root);
            let found = findings(&facts);
            assert!(
                !status(&facts, &found)
                    .text(TextOptions::plain(100))
                    .is_empty()
            );
            let json = status_json(&facts, &found);
            let answer: Value = serde_json::from_str(&json).unwrap();
            if !may_be_missed(&folder, &name) && name != "proc" {
                let error = errors_in(&answer)
                    .into_iter()
                    .find(|(_, text)| text.contains(&name));
                let (field, _) = error.unwrap_or_else(|| panic!("{host}: no error for {name}"));
                assert!(field.ends_with("_error"), "{field}");
                assert!(
                    found.iter().any(|finding| finding.id == "unreadable"),
                    "{name}"
                );
            }
        }
    }
}

/// Returns every field named `*_error`, each of which must be next to a `null`.
fn errors_in(value: &Value) -> Vec<(String, String)> {
    match value {
        Value::Object(fields) => fields
            .iter()
            .flat_map(
                |(name, value)| match (name.strip_suffix("_error"), value.as_str()) {
                    (Some(fact), Some(text)) => {
                        assert!(fields[fact].is_null(), "{fact}");
                        vec![(name.clone(), text.to_owned())]
                    }
                    _ => errors_in(value),
                },
            )
            .collect(),
        Value::Array(items) => items.iter().flat_map(errors_in).collect(),
        _ => Vec::new(),
    }
}
