//! Tests `hugeleaf predict` on running programs: its prediction for one that misses the TLB constantly, and its silence if a prediction
//! would mislead.

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::common::{hugeleaf, repository, run, stderr, stdout};
use serde_json::Value;

/// A child that is killed when dropped.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Ended {
    fn pid(&self) -> String {
        self.0.id().to_string()
    }

    fn resident_kib(&self) -> u64 {
        let text = std::fs::read_to_string(format!("/proc/{}/status", self.0.id()));
        let text = text.unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let number = line.and_then(|rest| rest.split_whitespace().next()?.parse().ok());
        number.unwrap_or(0)
    }
}

/// Starts a program that only reads at random, on base pages.
fn reader(folder: &tempfile::TempDir) -> Ended {
    let output = folder.path().join("out.json");
    let arguments = [
        "bench",
        "chase",
        "--sizes",
        "64M",
        "--pages",
        "base",
        "--for",
        "120s",
        "--rounds",
        "2",
        "--output",
        output.to_str().unwrap(),
    ];
    let child = hugeleaf(&arguments)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let reader = Ended(child.unwrap());
    hugeleaf_testkit::until("it has its memory", || reader.resident_kib() >= 64 << 10);
    hugeleaf_testkit::pause(
        Duration::from_secs(2),
        "no scan may see it write its path, which it does before it reads",
    );
    reader
}

/// Repeats the command for a while if it gives no prediction. On a busy machine a program may get no CPU for whole scans, or its read times
/// vary.
fn asked(arguments: &[&str]) -> std::process::Output {
    let began = std::time::Instant::now();
    loop {
        let output = run(arguments);
        if output.status.success() || began.elapsed() > Duration::from_secs(90) {
            return output;
        }
    }
}

#[test]
fn a_program_that_misses_all_the_time_gets_a_range() {
    let folder = tempfile::tempdir().unwrap();
    let reader = reader(&folder);
    let output = asked(&["predict", &reader.pid(), "--for", "2s", "--json"]);
    let answer: Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!(output.status.code(), Some(0), "{answer:#}");
    let predicted = &answer["predicted"];
    let [low, high] = ["low", "high"].map(|end| predicted[end].as_f64().unwrap());
    assert!(0.9 < low && low <= high && high < 3.0, "{answer:#}");
    let set = predicted["working_set_bytes"].as_u64().unwrap();
    assert!(set >= 60 << 20, "{answer:#}");
    // With less CPU time too few pages are touched between two scans.
    let has_a_processor = predicted["busy"].as_f64().unwrap() > 0.8;
    if predicted["by"] == "touched-pages" && has_a_processor {
        assert!(
            predicted["misses_per_second"].as_f64().unwrap() > 1e5,
            "{answer:#}"
        );
    }
    let read = &answer["read"];
    assert!(read["base_ns"].as_f64().unwrap() > 0.0, "{answer:#}");
}

#[test]
fn what_a_read_costs_is_taken_from_a_result() {
    let folder = tempfile::tempdir().unwrap();
    let reader = reader(&folder);
    let chase = folder.path().join("chase.json");
    let chase = chase.to_str().unwrap();
    let measured = run(&[
        "bench",
        "chase",
        "--sizes",
        "1M,8M",
        "--pages",
        "base,thp:2M",
        "--for",
        "200ms",
        "--rounds",
        "2",
        "-o",
        chase,
    ]);
    if measured.status.code() != Some(0) {
        println!(
            "not run: what_a_read_costs_is_taken_from_a_result: no transparent huge page of 2M: {}",
            stderr(&measured)
        );
        return;
    }
    let pid = reader.pid();
    let question = ["predict", &pid, "--for", "2s", "--chase", chase];
    let output = asked(&[&question[..], &["--json"]].concat());
    let answer: Value = serde_json::from_str(&stdout(&output)).unwrap();
    // The size nearest to the working set.
    assert_eq!(answer["read"]["size_bytes"], 8 << 20, "{answer:#}");
    let screen = stdout(&asked(&question));
    assert!(
        screen.contains("expected throughput on huge pages"),
        "{screen}"
    );
    assert!(screen.contains("hugeleaf prove"), "{screen}");

    let one = run(&[
        "bench", "chase", "--sizes", "1M", "--pages", "base", "--for", "200ms", "--rounds", "2",
        "-o", chase,
    ]);
    assert_eq!(one.status.code(), Some(0), "{}", stderr(&one));
    let output = run(&question);
    assert_eq!(output.status.code(), Some(3), "{}", stdout(&output));
    assert!(stderr(&output).contains("next:"), "{}", stderr(&output));
}

#[test]
fn what_rests_gets_none() {
    let sleeper = Ended(Command::new("sleep").arg("120").spawn().unwrap());
    let output = run(&["predict", &sleeper.pid(), "--for", "1s"]);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert!(
        stdout(&output).contains("it was idle"),
        "{}",
        stdout(&output)
    );
    let output = run(&["predict", &sleeper.pid(), "--for", "1s", "--json"]);
    let answer: Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert!(
        answer["predicted"].is_null() && answer["no_estimate"].is_string(),
        "{answer:#}"
    );
}

/// A scan that would stall the process for too long is refused, with the flag that would allow it.
#[test]
fn no_scan_takes_longer_than_allowed() {
    let folder = tempfile::tempdir().unwrap();
    let reader = reader(&folder);
    let output = run(&["predict", &reader.pid(), "--longest-stall", "1ms"]);
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(said.contains("when it maps memory"), "{said}");
    assert!(
        said.contains(&format!(
            "hugeleaf predict {} --longest-stall",
            reader.pid()
        )),
        "{said}"
    );
}

/// The processes of a tree are judged as one.
#[test]
fn a_tree_is_judged_as_a_whole() {
    let script = "for n in 1 2 3; do (while :; do :; done) & done; wait";
    let mut shell = Command::new("sh");
    let child = std::os::unix::process::CommandExt::process_group(&mut shell, 0)
        .args(["-c", script])
        .spawn();
    let child = child.unwrap();
    let group = format!("-{}", child.id());
    let tree = format!("tree:{}", child.id());
    let children = format!("/proc/{0}/task/{0}/children", child.id());
    hugeleaf_testkit::until("its children run", || {
        let children = std::fs::read_to_string(&children).unwrap_or_default();
        children.split_whitespace().count() == 3
    });
    let output = run(&["predict", &tree, "--for", "1s", "--json"]);
    let _ = Command::new("kill").args(["-9", "--", &group]).status();
    drop(Ended(child));
    let answer: Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!(answer["pids"].as_array().unwrap().len(), 3, "{answer:#}");
    // They are busy but hold little memory.
    let why = answer["no_estimate"].as_str().unwrap();
    assert!(
        why.contains("no gain is possible") || why.contains("waited"),
        "{answer:#}"
    );
}

#[test]
fn nobody_and_a_captured_host_get_none() {
    let output = run(&["predict", "4194303"]);
    assert_ne!(output.status.code(), Some(0));
    assert!(stderr(&output).contains("next:"), "{}", stderr(&output));
    let captured = repository().join("fixtures/x86-4k-two-nodes");
    let output = run(&["predict", "1", "--root", captured.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
}
