//! `hugeleaf-lab amm` as a whole: two private servers, and refusals.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Output;

use crate::arms;
use crate::common::{hugeleaf, not_run, of_arm, refused, rows, samples, stderr, stdout};
use serde_json::Value;

use crate::lab;

/// Phases of two seconds on little memory.
const SHORT: [&str; 15] = [
    "amm",
    "--target",
    "64M",
    "--least",
    "8M",
    "--for",
    "2s",
    "--settle",
    "1s",
    "--rounds",
    "1",
    "--shrink",
    "100",
    "--durability",
    "never",
];

/// Returns [`SHORT`] without the flags that `args` replaces.
fn short_but(args: &[&str]) -> Vec<&'static str> {
    let (command, flags) = SHORT.split_at(1);
    let kept = flags.chunks(2).filter(|pair| !args.contains(&pair[0]));
    command
        .iter()
        .copied()
        .chain(kept.flatten().copied())
        .collect()
}

fn answer(below: &Path, args: &[&str]) -> Output {
    // The servers' account must be able to reach its folder.
    std::fs::set_permissions(below, std::fs::Permissions::from_mode(0o755)).unwrap();
    let below_text = below.display().to_string();
    let all = [
        &short_but(args)[..],
        args,
        &["--json", "--below", &below_text],
    ]
    .concat();
    lab(&all).current_dir(below).output().unwrap()
}

/// Returns the result; `None`, with a note, without MariaDB.
fn measured(test: &str, below: &Path, args: &[&str], status: i32) -> Option<Value> {
    let output = answer(below, args);
    if stderr(&output).contains("no MariaDB is installed") {
        not_run(test, "MariaDB is not installed");
        return None;
    }
    assert_eq!(output.status.code(), Some(status), "{}", stderr(&output));
    Some(serde_json::from_str(&stdout(&output)).unwrap())
}

/// Returns the only value of a quantity of an arm in a phase of a load, or in the whole load.
#[track_caller]
fn value(result: &Value, arm: &str, (load, phase): (&str, Option<&str>), what: &str) -> f64 {
    let is_it = |row: &&&Value| row["at"]["load"] == load && row["at"]["phase"].as_str() == phase;
    let all = rows(result, arm, what);
    let row = all.iter().find(is_it);
    samples(row.unwrap_or_else(|| panic!("no {what} of {arm} in {load} {phase:?}")))[0]
}

#[test]
fn two_servers_share_their_memory_and_each_phase_has_its_figures() {
    let below = tempfile::tempdir().unwrap();
    let args = [
        "--arms",
        "manual:large,manual:base:75",
        "--loads",
        "swap,flood,nightly,tpcc",
    ];
    let test = "two_servers_share_their_memory_and_each_phase_has_its_figures";
    let Some(result) = measured(test, below.path(), &args, 0) else {
        return;
    };
    assert_eq!(result["experiment"]["name"], "amm");
    assert_eq!(arms(&result), ["manual:large", "manual:base:75"]);
    for arm in arms(&result) {
        for (load, phase) in [
            ("swap", Some("a busy")),
            ("swap", Some("b busy")),
            ("swap", None),
            ("nightly", Some("night")),
            ("flood", Some("flood")),
            ("tpcc", Some("a busy")),
            ("tpcc", Some("b busy")),
        ] {
            let rate = value(&result, arm, (load, phase), "throughput");
            assert!(rate > 0.0, "{arm}, {load}, {phase:?}: {rate}");
        }
        let night = ("nightly", Some("night"));
        let flood = ("flood", Some("flood"));
        for at in [night, flood] {
            let others = value(&result, arm, at, "statements of the other a second");
            assert!(others > 0.0, "{arm}, {at:?}");
        }
        // A flood consists of statements whose pages are not in the buffer pool.
        let reads = "physical reads an operation";
        let before = value(&result, arm, ("flood", Some("before")), reads);
        let during = value(&result, arm, flood, reads);
        assert!(during > before, "{arm}: {before} and {during}");
        let orders = ("tpcc", Some("a busy"));
        assert!(value(&result, arm, orders, "block changes an operation") > 1.0);
        assert!(value(&result, arm, orders, "resident, most") > 64e6);
        assert_eq!(
            value(&result, arm, orders, "buffer pools, most"),
            64.0 * 1024.0 * 1024.0
        );
    }
    // A fixed division stays constant, second by second.
    let pools = |arm: &str, server: &str| {
        let all = rows(&result, arm, &format!("memory of {server}"));
        let swap = all.iter().find(|row| row["at"]["load"] == "swap").unwrap();
        assert_eq!(swap["samples"][3]["at_seconds"], 4.0, "{swap}");
        samples(swap)
    };
    let mib = |mebibytes: u32| f64::from(mebibytes << 20);
    assert_eq!(pools("manual:large", "a"), [mib(32); 4]);
    assert_eq!(pools("manual:base:75", "a"), [mib(48); 4]);
    assert_eq!(pools("manual:base:75", "b"), [mib(16); 4]);
    let large = |arm| value(&result, arm, ("swap", None), "coverage at the end");
    // Both were full at their promotion.
    assert!(large("manual:large") > 0.8, "{}", large("manual:large"));
    assert_eq!(large("manual:base:75"), 0.0);
    let left: Vec<_> = std::fs::read_dir(below.path()).unwrap().flatten().collect();
    let is_result = |entry: &std::fs::DirEntry| {
        entry
            .file_name()
            .to_string_lossy()
            .starts_with("hugeleaf-bench-amm-")
    };
    assert!(left.iter().all(is_result), "{left:?}");
}

/// The same result as a screen and a page; neither knows it by name.
#[test]
fn what_was_measured_is_a_screen_a_page_and_compared() {
    let below = tempfile::tempdir().unwrap();
    let args = ["--arms", "manual:base,manual:base:75", "--loads", "swap"];
    let more = ["--output", "amm.json", "--html", "amm.html"];
    std::fs::set_permissions(below.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let below_text = below.path().display().to_string();
    let all = [&SHORT[..], &args, &more, &["--below", &below_text]].concat();
    let output = lab(&all).current_dir(below.path()).output().unwrap();
    if stderr(&output).contains("no MariaDB is installed") {
        not_run("what_was_measured_is_a_screen", "MariaDB is not installed");
        return;
    }
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let text = stdout(&output);
    for word in [
        "swap, a busy",
        "manual:base:75",
        "operations/s",
        "physical reads an operation",
    ] {
        assert!(text.contains(word), "{word}: {text}");
    }
    let page = std::fs::read_to_string(below.path().join("amm.html")).unwrap();
    for title in [
        "Throughput, second by second",
        "Buffer pool of a, second by second",
    ] {
        assert!(page.contains(title), "{title}");
    }
    let compared = [
        "compare",
        "amm.json",
        "--arms",
        "manual:base,manual:base:75",
    ];
    let compared = hugeleaf(&compared)
        .current_dir(below.path())
        .output()
        .unwrap();
    let text = stdout(&compared);
    assert!(text.contains("throughput"), "{text}{}", stderr(&compared));
}

/// `hugeleaf balance` moves memory while the loads run.
#[test]
fn memory_moves_to_the_one_that_is_busy() {
    let test = "memory_moves_to_the_one_that_is_busy";
    let below = tempfile::tempdir().unwrap();
    if hugeleaf(&["balance", "--help"])
        .output()
        .unwrap()
        .status
        .code()
        != Some(0)
    {
        not_run(test, "this program has no balance");
        return;
    }
    let args = [
        "--arms", "amm:base", "--loads", "swap", "--for", "20s", "--every", "1s",
    ];
    let Some(result) = measured(test, below.path(), &args, 0) else {
        return;
    };
    let all = rows(&result, "amm:base", "memory of a");
    let of_a = samples(all[0]);
    let most = of_a.iter().copied().fold(0.0, f64::max);
    assert!(
        most > f64::from(32 << 20),
        "a was busy and got nothing: {of_a:?}"
    );
}

#[test]
fn what_cannot_be_is_told_in_two_lines() {
    let below = tempfile::tempdir().unwrap();
    let say = |args: &[&str]| answer(below.path(), args);
    refused(
        &say(&["--target", "1000T"]),
        3,
        &["may be taken", "request at most"],
    );
    refused(
        &say(&["--target", "16M"]),
        2,
        &["leaves no memory to transfer", "--target 32M"],
    );
    for wrong in [
        &["--arms", "amm:hugetlb"][..],
        &["--arms", "auto:base"],
        &["--loads", "storm"],
        &["--for", "500ms"],
        &["--every", "10ms"],
    ] {
        assert_eq!(say(wrong).status.code(), Some(2), "{wrong:?}");
    }
    let nowhere = ["--below", "/nonexistent", "--loads", "steady"];
    let all = [&SHORT[..], &nowhere].concat();
    let output = lab(&all).current_dir(below.path()).output().unwrap();
    if stderr(&output).contains("no MariaDB is installed") {
        not_run(
            "the part of what_cannot_be_is_told",
            "MariaDB is not installed",
        );
        return;
    }
    refused(&output, 3, &["/nonexistent"]);
}

/// A pool that is too small is reported with a remedy, and the other arms continue.
#[test]
fn an_arm_whose_pool_is_short_is_unavailable() {
    let below = tempfile::tempdir().unwrap();
    // A size above the free pool of any test host and below the memory limit is unknown. The arm is
    // therefore measured if the pool has this much.
    let args = ["--arms", "manual:base,manual:hugetlb", "--loads", "steady"];
    let output = answer(below.path(), &args);
    if stderr(&output).contains("no MariaDB is installed") {
        not_run("an_arm_whose_pool_is_short", "MariaDB is not installed");
        return;
    }
    let result: Value =
        serde_json::from_str(&stdout(&output)).unwrap_or_else(|_| panic!("{}", stderr(&output)));
    let none = of_arm(&result, "unavailable", "manual:hugetlb");
    match none.first() {
        None => assert_eq!(output.status.code(), Some(0)),
        Some(none) => {
            assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
            assert!(none["next"].to_string().contains("hugeleaf plan"), "{none}");
        }
    }
    assert!(value(&result, "manual:base", ("steady", None), "throughput") > 0.0);
}
