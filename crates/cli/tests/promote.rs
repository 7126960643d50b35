//! Tests `promote` and `demote` on a process that only holds memory.

use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::{Command, Output, Stdio};

use crate::common::{ChildGuard, answered, good, holder, hugeleaf, refused, run, stdout};
use hugeleaf_sys::Kernel;
use hugeleaf_testkit::host_lock::{self, HostAccess};
use serde_json::Value;

const M: u64 = 1 << 20;

/// Locks the host with THP on request only, if these tests can run; otherwise prints the reason.
fn can_run(test: &str) -> Option<HostAccess> {
    let why = if hugeleaf_sys::effective_uid() != 0 {
        "needs root"
    } else if !Kernel::new().supports_collapse() {
        "needs MADV_COLLAPSE, Linux 6.1"
    } else {
        return Some(host_lock::advised());
    };
    println!("not run: {test}: {why}");
    None
}

fn json(output: &Output) -> Value {
    serde_json::from_str(&answered(output)).unwrap()
}

fn process(answer: &Value) -> &Value {
    &answer["processes"][0]
}

fn bytes(process: &Value, name: &str) -> u64 {
    process[name]
        .as_u64()
        .unwrap_or_else(|| panic!("{name} in {process:#}"))
}

#[test]
fn there_and_back_with_its_result_in_text_and_json() {
    let Some(_host) = can_run("there_and_back_with_its_result_in_text_and_json") else {
        return;
    };
    let target = holder(64, None);
    let pid = target.pid();
    let plan = good(&run(&["promote", "--dry-run", &pid]));
    assert!(plan.contains("nothing was changed"), "{plan}");

    let answer = json(&run(&["promote", "--budget", "100%", "--json", &pid]));
    let p = process(&answer);
    assert_eq!(answer["schema"], 2);
    assert!(bytes(p, "done_bytes") >= 32 * M, "{p:#}");
    let failed = p["failed"].as_array().unwrap().iter();
    let failed: u64 = failed.map(|f| bytes(f, "bytes")).sum();
    assert_eq!(bytes(p, "asked_bytes"), bytes(p, "done_bytes") + failed);
    let coverage = |name: &str| p[name].as_f64().unwrap();
    assert!(
        coverage("coverage_after") > coverage("coverage_before") + 0.3,
        "{p:#}"
    );
    let grown = bytes(p, "resident_after_bytes").saturating_sub(bytes(p, "resident_before_bytes"));
    assert!(grown < 2 * M, "{p:#}");

    let text = stdout(&run(&["promote", &pid]));
    assert!(text.starts_with("nothing left to promote"), "{text}");

    let text = good(&run(&["demote", &pid]));
    assert!(text.starts_with("demoted all"), "{text}");
    let text = good(&run(&["promote", &pid]));
    for part in [
        "promoted all",
        "speed:",
        "undo: hugeleaf demote",
        "to make this permanent:",
        "skipped:",
    ] {
        assert!(text.contains(part), "'{part}' is missing in:\n{text}");
    }
    assert!(!text.contains('\x1b'), "colour in a pipe:\n{text}");
}

#[test]
fn nothing_to_do_is_exit_status_0() {
    let Some(_host) = can_run("nothing_to_do_is_exit_status_0") else {
        return;
    };
    // Too small for any huge page, so there is nothing to promote.
    let target = holder(0, None);
    for verb in ["promote", "demote"] {
        let text = good(&run(&[verb, &target.pid()]));
        assert!(text.contains(&format!("to {verb}\n")), "{text}");
        let answer = json(&run(&[verb, "--json", &target.pid()]));
        assert_eq!(answer["complete"], true);
    }
    let text = good(&run(&["promote", &target.pid()]));
    assert!(text.starts_with("nothing to promote"), "{text}");
    assert!(text.contains("skipped:"), "{text}");
}

#[test]
fn an_interrupt_says_what_was_done_and_how_to_go_on() {
    let Some(_host) = can_run("an_interrupt_says_what_was_done_and_how_to_go_on") else {
        return;
    };
    let target = holder(256, None);
    let mut child = hugeleaf(&["promote", "--budget", "1%", &target.pid()])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // The target's first huge page shows that the work has started.
    let smaps = format!("/proc/{}/smaps_rollup", target.pid());
    let begun = || {
        let text = std::fs::read_to_string(&smaps).unwrap();
        let line = text.lines().find(|l| l.starts_with("AnonHugePages:"));
        line.is_some_and(|l| !l.contains(" 0 kB"))
    };
    while !begun() {
        assert!(child.try_wait().unwrap().is_none(), "it ended by itself");
        std::thread::yield_now();
    }
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let mut text = String::new();
    child
        .stdout
        .take()
        .unwrap()
        .read_to_string(&mut text)
        .unwrap();
    let status = ChildGuard(child).0.wait().unwrap();
    assert_eq!(status.code(), Some(1), "{text}");
    let is_stopped = text.lines().any(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        words == ["stopped:", "interrupted"]
    });
    assert!(is_stopped, "{text}");
    assert!(text.contains("\nto continue: hugeleaf promote"), "{text}");
    assert!(text.contains("not reached: interrupted"), "{text}");
}

#[test]
fn wrong_flags_are_wrong_usage() {
    for args in [
        &["promote"] as &[&str],
        &["promote", "--budget", "0%", "1"],
        &["promote", "--budget", "many", "1"],
        &["promote", "--min-resident", "101%", "1"],
        &["demote", "--min-resident", "90%", "1"],
    ] {
        assert_eq!(run(args).status.code(), Some(2), "{args:?}");
    }
}

#[test]
fn a_captured_host_is_not_acted_on() {
    let text = refused(
        &run(&["promote", "--root", "/nowhere", "1"]),
        2,
        &["--root"],
    );
    assert!(text.contains("promote"), "{text}");
}

/// With two unrelated processes of one name, nothing is promoted without an explicit choice.
#[test]
fn a_name_of_strangers_is_listed_and_refused() {
    let test = "a_name_of_strangers_is_listed_and_refused";
    if !hugeleaf_testkit::apart_from_processes(&format!("promote::{test}")) {
        return;
    }
    let Some(_host) = can_run(test) else {
        return;
    };
    let name = "twin-server";
    let start = || ChildGuard(Command::new("sleep").arg0(name).arg("600").spawn().unwrap());
    let (one, two) = (start(), start());
    let trees = [one.pid(), two.pid()].map(|pid| format!("tree:{pid} ({name} 600"));
    let listed = ["2 unrelated process trees", &trees[0], &trees[1], "--all"];
    for command in [
        &["promote", name][..],
        &["demote", name],
        &["prove", name, "--metric", "cmd:echo 1"],
    ] {
        refused(&run(command), 2, &listed);
    }
    let answer = json(&run(&["promote", "--dry-run", "--json", name]));
    assert_eq!(answer["processes"].as_array().unwrap().len(), 2);
    // A sleep has no promotable memory.
    for one_or_all in [&["promote", &one.pid()][..], &["promote", "--all", name]] {
        assert!(answered(&run(one_or_all)).starts_with("nothing to promote"));
    }
}
