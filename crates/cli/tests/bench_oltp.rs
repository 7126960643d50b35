//! `hugeleaf bench oltp`, whole: on files, on a server of its own, and with something in the way.

// A panic is how a test fails, also in its helpers.
#![allow(clippy::unwrap_used)]

mod cli_support;

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use cli_support::{Running, hugeleaf, not_run, refused, stderr, stdout};
use serde_json::Value;

/// A hundredth of the standard's rows, for half a second.
const SHORT: [&str; 9] = [
    "oltp",
    "--shrink",
    "100",
    "--for",
    "500ms",
    "--ramp-up",
    "100ms",
    "--connections",
    "2",
];

fn bench(folder: &Path, args: &[&str]) -> Command {
    let mut command = hugeleaf(&[&["bench"], &SHORT[..], args].concat());
    command.current_dir(folder);
    command
}

fn answer(folder: &Path, args: &[&str]) -> Output {
    bench(folder, args).output().unwrap()
}

#[track_caller]
fn json(output: &Output) -> Value {
    assert_eq!(output.status.code(), Some(0), "{}", stderr(output));
    serde_json::from_str(&stdout(output)).unwrap()
}

#[track_caller]
fn assert_a_result(result: &Value) {
    assert_eq!(result["schema"], 1);
    assert_eq!(result["experiment"]["name"], "oltp");
    assert_eq!(result["experiment"]["unit"], "NOTPM");
    assert_eq!(result["experiment"]["better"], "higher");
    assert_eq!(result["settings"]["connections"], 2);
    let run = &result["runs"][0];
    assert_eq!(run["consistent"], true);
    assert!(run["notpm"].as_f64().unwrap() > 0.0, "{run}");
    let kinds = run["kinds"].as_array().unwrap();
    assert_eq!(kinds.len(), 5);
    let shares: f64 = kinds.iter().map(|k| k["share"].as_f64().unwrap()).sum();
    assert!((shares - 1.0).abs() < 1e-9, "{shares}");
    for each in ["logical_reads", "block_changes", "cpu_seconds"] {
        assert!(
            run["per_transaction"][each].as_f64().unwrap() > 0.0,
            "{each}: {run}"
        );
    }
    let notes = result["caveats"].as_array().unwrap();
    assert!(
        notes
            .iter()
            .any(|note| note.as_str().unwrap().contains("no TPC-C result"))
    );
}

#[test]
fn on_files_that_are_filled_once_and_used_again() {
    let folder = tempfile::tempdir().unwrap();
    let first = answer(folder.path(), &["--warehouses", "3", "--json"]);
    let result = json(&first);
    assert_a_result(&result);
    assert_eq!(result["database"]["warehouses"], 3);
    assert_eq!(result["database"]["databases"], 2);
    assert!(folder.path().join("hugeleaf-oltp/tpcc-2.sqlite").exists());
    let written = stderr(&first);
    let file = written
        .lines()
        .find_map(|l| l.strip_prefix("result: "))
        .unwrap();
    let kept = std::fs::read_to_string(folder.path().join(file)).unwrap();
    assert_eq!(kept, stdout(&first));
    // The second run finds all there, and says so to a person.
    let again = answer(
        folder.path(),
        &["--warehouses", "3", "--no-load", "--output", "again.json"],
    );
    assert_eq!(again.status.code(), Some(0), "{}", stderr(&again));
    let text = stdout(&again);
    for word in [
        "NOTPM",
        "3 warehouses",
        "New-Order",
        "Stock-Level",
        "logical reads",
        "twelve",
    ] {
        assert!(text.contains(word), "{word}: {text}");
    }
    // Something else than what is there is refused, and left as it is.
    let other = answer(folder.path(), &["--warehouses", "5"]);
    refused(&other, 3, &["holds 3 warehouses", "--refill"]);
    let refilled = answer(folder.path(), &["--warehouses", "1", "--refill", "--json"]);
    let result = json(&refilled);
    assert_eq!(result["database"]["warehouses"], 1);
    // One warehouse is one file, which two connections share.
    assert_eq!(result["database"]["databases"], 1);
}

#[test]
fn page_sizes_take_turns_and_what_is_not_had_is_told() {
    let folder = tempfile::tempdir().unwrap();
    // No host has pages of 512G for a cache of 16M.
    let args = [
        "--warehouses",
        "2",
        "--cache",
        "16M",
        "--rounds",
        "2",
        "--json",
    ];
    let pages = ["--pages", "base,locked,hugetlb:512G"];
    let output = answer(folder.path(), &[&args[..], &pages].concat());
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    let result: Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!(result["command"][2], "oltp");
    let arms = result["arms"].as_array().unwrap();
    let labels: Vec<&str> = arms.iter().map(|a| a["label"].as_str().unwrap()).collect();
    assert_eq!(labels, ["base", "locked", "hugetlb:512G"]);
    for arm in &arms[..2] {
        assert_eq!(arm["samples"].as_array().unwrap().len(), 2, "{arm}");
        assert_ne!(arm["verified"], false, "{arm}");
    }
    assert!(arms[2]["not_had"]["reason"].is_string(), "{}", arms[2]);
    let runs = result["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 4);
    assert!(runs.iter().all(|run| run["consistent"] == true));
}

#[test]
fn on_a_server_of_its_own_that_leaves_nothing_behind() {
    let (folder, below) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    open_to_all(below.path());
    let below_text = below.path().display().to_string();
    let args = [
        "--start",
        "postgres",
        "--below",
        &below_text,
        "--warehouses",
        "2",
        "--json",
    ];
    let output = answer(folder.path(), &args);
    if stderr(&output).contains("no PostgreSQL is installed") {
        refused(&output, 3, &["apt-get install postgresql"]);
        not_run("on_a_server_of_its_own", "PostgreSQL is not installed");
        return;
    }
    let result = json(&output);
    assert_a_result(&result);
    let version = result["database"]["version"].as_str().unwrap();
    assert!(version.starts_with("PostgreSQL "), "{version}");
    let cpu = &result["runs"][0]["per_transaction"]["server_cpu_seconds"];
    assert!(cpu.as_f64().unwrap() > 0.0, "{cpu}");
    assert_eq!(std::fs::read_dir(below.path()).unwrap().count(), 0);
}

fn open_to_all(folder: &Path) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn interrupted_it_says_so_and_leaves_no_server() {
    let (folder, below) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    open_to_all(below.path());
    let below_text = below.path().display().to_string();
    let args = [
        "--start",
        "postgres",
        "--below",
        &below_text,
        "--warehouses",
        "50",
        "--json",
    ];
    let mut command = bench(folder.path(), &args);
    let child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = Running(child.unwrap());
    let began = Instant::now();
    // Once there is a socket the server runs.
    while !a_file_below(below.path(), ".s.PGSQL") {
        if child.0.try_wait().unwrap().is_some() || began.elapsed() > Duration::from_secs(60) {
            not_run("interrupted_it_says_so", "PostgreSQL is not installed");
            return;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let pid = rustix::process::Pid::from_child(&child.0);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let status = child.0.wait().unwrap();
    assert_eq!(status.code(), Some(1));
    assert_eq!(std::fs::read_dir(below.path()).unwrap().count(), 0);
    assert_eq!(
        std::fs::read_dir(folder.path()).unwrap().count(),
        0,
        "no result is written"
    );
}

fn a_file_below(folder: &Path, start: &str) -> bool {
    let name_fits =
        |entry: &std::fs::DirEntry| entry.file_name().to_string_lossy().starts_with(start);
    let entries = |folder: &Path| std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries(folder).any(|below| entries(&below.path()).any(|entry| name_fits(&entry)))
}

#[test]
fn killed_while_it_fills_it_is_gone_on_with() {
    let folder = tempfile::tempdir().unwrap();
    let args = ["--warehouses", "60"];
    let child = bench(folder.path(), &args).stdout(Stdio::null()).spawn();
    let mut child = Running(child.unwrap());
    let file = folder.path().join("hugeleaf-oltp/tpcc-1.sqlite");
    let began = Instant::now();
    // Items and some warehouses are there, a good deal is not.
    while std::fs::metadata(&file).map_or(0, |m| m.len()) < 5 << 20 {
        assert!(child.0.try_wait().unwrap().is_none(), "it ended too early");
        assert!(began.elapsed() < Duration::from_secs(60));
        std::thread::sleep(Duration::from_millis(2));
    }
    child.0.kill().unwrap();
    child.0.wait().unwrap();
    let refused_now = answer(folder.path(), &["--warehouses", "60", "--no-load"]);
    refused(&refused_now, 3, &["filled halfway", "without --no-load"]);
    let output = answer(folder.path(), &["--warehouses", "60", "--json"]);
    assert_a_result(&json(&output));
    assert!(
        stderr(&output).contains("was filled halfway"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn what_cannot_be_is_told_in_two_lines() {
    let folder = tempfile::tempdir().unwrap();
    let say = |args: &[&str]| answer(folder.path(), args);
    refused(&say(&["--no-load"]), 3, &["is empty", "without --no-load"]);
    let nowhere = "postgres:host=/nonexistent user=postgres password=secret";
    let text = refused(
        &say(&["--database", nowhere]),
        3,
        &["/nonexistent", "--start postgres"],
    );
    assert!(!text.contains("secret"), "{text}");
    let folder_of_nobody = "sqlite:/proc/version/x";
    refused(
        &say(&["--database", folder_of_nobody]),
        3,
        &["/proc/version/x"],
    );
    refused(
        &say(&["--cache", "1000T"]),
        3,
        &["a cache of 1000T", "--cache"],
    );
    let whole = ["bench", "oltp", "--warehouses", "100000"];
    let large = hugeleaf(&whole)
        .current_dir(folder.path())
        .output()
        .unwrap();
    refused(
        &large,
        3,
        &["100000 warehouses take", "what fits: --warehouses"],
    );
    for wrong in [
        &["--warehouses", "0"][..],
        &["--database", "oracle:x"],
        &["--start", "postgres", "--database", "sqlite:x"],
        &["--durability", "maybe"],
        &["--html", "page.html"],
        &["--think", "-1"],
    ] {
        assert_eq!(say(wrong).status.code(), Some(2), "{wrong:?}");
    }
}
