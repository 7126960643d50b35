//! Tests `hugeleaf bench FILE`: foreign files, errors, interruption and resumption.

use std::path::{Path, PathBuf};

use crate::common::{
    ChildGuard, good, hugeleaf, refused, rows, run, samples, stderr, stdout, wait_until,
};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

const SUM: &str = r#"
schema = 1
title = "A sum"

[set]
n = 1000

[prepare]
run = 'echo "$n" >"$work/n"'

[load]
run = 'awk -v n="$n" "BEGIN { for (i = 0; i < n; i++) s += i; print \"sum\", s; print \"rate\", n }"'

[[measure]]
name = "rate"
unit = "1/s"
better = "higher"
regex = '^rate (.*)'

[check]
run = 'test "$(cat "$work/n")" -gt 0'
"#;

/// Creates a file in a temporary folder, which is removed with the first value.
fn file(text: &str) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("own.toml");
    std::fs::write(&path, text).unwrap();
    (folder, path)
}

/// Creates a subfolder for `--below` that commands running as nobody can access.
fn below(folder: &tempfile::TempDir) -> PathBuf {
    let below = folder.path().join("below");
    std::fs::create_dir(&below).unwrap();
    for open in [folder.path(), &below] {
        std::fs::set_permissions(open, std::os::unix::fs::PermissionsExt::from_mode(0o755))
            .unwrap();
    }
    below
}

fn result(path: &Path) -> Value {
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

#[test]
fn all_that_come_with_it_are_listed_and_shown() {
    let _host = hugeleaf_testkit::host_lock::shared();
    let text = good(&run(&["bench", "--list", "--json"]));
    let answer: Value = serde_json::from_str(&text).unwrap();
    let all = answer["workloads"].as_array().unwrap();
    assert!(all.len() >= 14);
    for workload in all {
        let name = workload["name"].as_str().unwrap();
        let shown = good(&run(&["bench", name, "--dry-run"]));
        assert!(shown.contains("LOAD") && shown.contains("CHECK"), "{shown}");
        assert_eq!(
            workload["ready"] == false,
            workload["missing"].is_string(),
            "{workload}"
        );
    }
}

#[test]
fn a_strangers_file_is_shown_and_not_run() {
    let _host = hugeleaf_testkit::host_lock::shared();
    let (folder, path) = file(&SUM.replace("awk -v", "touch /tmp/never; awk -v"));
    let path = path.to_str().unwrap();
    let output = run(&["bench", path]);
    refused(
        &output,
        3,
        &["is not shipped with hugeleaf", "--dry-run", "--yes"],
    );
    let shown = good(&run(&["bench", path, "--dry-run"]));
    assert!(
        shown.contains("touch /tmp/never") && shown.contains("nobody"),
        "{shown}"
    );
    assert!(!Path::new("/tmp/never").exists());
    drop(folder);
}

#[test]
fn arms_may_be_settings_and_all_of_them_are_measured() {
    let _host = hugeleaf_testkit::host_lock::shared();
    let (folder, path) = file(SUM);
    let out = folder.path().join("result.json");
    let arguments = [
        "bench",
        path.to_str().unwrap(),
        "--yes",
        "--pairs",
        "3",
        "--arm",
        "few=n=100",
        "--arm",
        "many=n=5000",
        "--output",
        out.to_str().unwrap(),
    ];
    let output = run(&arguments);
    assert!(output.status.success(), "{}", stderr(&output));
    let result = result(&out);
    for (arm, value) in [("few", 100.0), ("many", 5000.0)] {
        let row = rows(&result, arm, "rate").remove(0);
        assert_eq!(samples(row), [value; 3], "{arm}");
        assert_eq!(rows(&result, arm, "processor time").len(), 1);
    }
    // A page and a comparison need no new run.
    let out = out.to_str().unwrap();
    let compared = good(&run(&["compare", out, "--arms", "few,many"]));
    assert!(compared.contains("rate"), "{compared}");
}

/// Variables set on all arms also apply to data preparation.
#[test]
fn a_variable_is_set_for_all_that_runs() {
    let _host = hugeleaf_testkit::host_lock::shared();
    let (folder, path) = file(&SUM.replace("-gt 0'", "= 77'"));
    let out = folder.path().join("result.json");
    let (path, out_text) = (path.to_str().unwrap(), out.to_str().unwrap());
    let arguments = [
        "bench", path, "--yes", "--pairs", "1", "--pages", "4K", "--set", "n=77",
    ];
    let output = hugeleaf(&arguments)
        .args(["--output", out_text])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let result = result(&out);
    assert_eq!(samples(rows(&result, "base", "rate").remove(0)), [77.0]);
}

#[test]
fn wrong_usage_says_what_to_do() {
    let _host = hugeleaf_testkit::host_lock::shared();
    let (_folder, path) = file(&SUM.replace("better = \"higher\"", "better = \"more\""));
    let text = refused(
        &run(&["bench", path.to_str().unwrap()]),
        2,
        &["own.toml:", "workload-file.md"],
    );
    assert!(text.contains(":17:10:"), "{text}");
    refused(
        &run(&["bench", "nothing-of-this-name"]),
        2,
        &["nothing-of-this-name", "--list"],
    );
    refused(&run(&["bench", "/nowhere/x.toml"]), 3, &["/nowhere/x.toml"]);
    refused(&run(&["bench", "/dev/zero.toml"]), 3, &["zero.toml"]);
    let (_folder, path) = file(SUM);
    let path = path.to_str().unwrap();
    refused(
        &run(&["bench", path, "--yes", "--arm", "a=m=1"]),
        2,
        &["'m'", "--dry-run"],
    );
    refused(
        &run(&["bench", path, "--yes", "--arm", "a"]),
        2,
        &["NAME=KEY=VALUE"],
    );
    refused(
        &run(&["bench", path, "--yes", "--below", "/nowhere"]),
        3,
        &["/nowhere"],
    );
}

#[test]
fn what_is_missing_is_not_run() {
    let _host = hugeleaf_testkit::host_lock::shared();
    let (_folder, path) = file(&format!(
        "{SUM}\n[needs]\nprograms = ['no-such-program']\npackages = ['no-such-package']"
    ));
    refused(
        &run(&["bench", path.to_str().unwrap(), "--yes"]),
        3,
        &[
            "cannot run here: no-such-program",
            "apt-get install no-such-package",
        ],
    );
}

#[test]
fn a_run_that_fails_is_no_sample() {
    let _host = hugeleaf_testkit::host_lock::shared();
    let (folder, path) = file(&SUM.replace(
        "awk -v",
        "test \"$n\" -lt 500 || { echo no room >&2; exit 1; }; awk -v",
    ));
    let out = folder.path().join("result.json");
    let arguments = [
        "bench",
        path.to_str().unwrap(),
        "--yes",
        "--pairs",
        "4",
        "--arm",
        "few=n=100",
        "--arm",
        "many=n=5000",
        "--output",
        out.to_str().unwrap(),
    ];
    let output = run(&arguments);
    // One of the named arms is unavailable.
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    let result = result(&out);
    assert_eq!(samples(rows(&result, "few", "rate").remove(0)).len(), 4);
    let text = result.to_string();
    assert_eq!(result["rejected"].as_array().unwrap().len(), 2, "{text}");
    assert!(text.contains("no room"), "{text}");
    // A figure of 0 is invalid.
    let (_folder, path) = file(&SUM.replace("rate\\\", n", "rate\\\", 0"));
    let given = path.to_str().unwrap();
    let output = run(&["bench", given, "--yes", "--pairs", "1"]);
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    let next = format!("next: hugeleaf bench {given} --dry-run");
    assert!(said.contains("above 0") && said.contains(&next), "{said}");
    // If all arms fail there is no result.
    let broken = SUM.replace("awk -v", "echo broken; exit 1; awk -v");
    let (_folder, path) = file(&broken);
    let output = run(&["bench", path.to_str().unwrap(), "--yes", "--pairs", "1"]);
    let text = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(
        text.contains("no run has succeeded") && text.contains("broken"),
        "{text}"
    );
}

#[test]
fn an_interrupted_run_leaves_nothing_and_is_gone_on_with_and_added_to() {
    let _host = hugeleaf_testkit::host_lock::shared();
    // The second run waits for the test's signal.
    let (folder, path) = file(&SUM.replace(
        "awk -v",
        "test \"$round\" = 0 || test -e /var/tmp/hugeleaf-lab-go || sleep 1000; awk -v",
    ));
    let (out, below) = (folder.path().join("result.json"), below(&folder));
    let arguments = [
        "bench",
        path.to_str().unwrap(),
        "--yes",
        "--arm",
        "few=n=100",
        "--below",
        below.to_str().unwrap(),
    ];
    let mut first = hugeleaf(&arguments);
    first.args(["--pairs", "3", "--output", out.to_str().unwrap()]);
    let child = ChildGuard(
        first
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null())
            .spawn()
            .unwrap(),
    );
    let rounds = || -> Option<usize> {
        let result: Value = serde_json::from_str(&std::fs::read_to_string(&out).ok()?).ok()?;
        Some(samples(rows(&result, "few", "rate").first()?).len())
    };
    wait_until("the first round to be written", || rounds() == Some(1));
    let pid = Pid::from_raw(i32::try_from(child.0.id()).unwrap()).unwrap();
    kill_process(pid, Signal::INT).unwrap();
    wait_until("it to end", || {
        !below.join("x").exists() && std::fs::read_dir(&below).unwrap().count() == 0
    });
    drop(child);
    assert_eq!(result(&out)["experiment"]["ending"], "interrupted");
    std::fs::write("/var/tmp/hugeleaf-lab-go", "").unwrap();
    let again = |pairs: &str, more: &[&str]| {
        hugeleaf(&arguments)
            .args(["--resume", out.to_str().unwrap(), "--pairs", pairs])
            .args(more)
            .output()
            .unwrap()
    };
    let other = again("3", &["--seed", "7"]);
    let whole = again("3", &[]);
    let ended = result(&out);
    // Other runs may have been added in between.
    let more = again("5", &[]);
    let fewer = again("4", &[]);
    std::fs::remove_file("/var/tmp/hugeleaf-lab-go").unwrap();
    refused(&other, 2, &["differs in seed"]);
    refused(&fewer, 2, &["differs in pairs (it has more already)"]);
    assert!(whole.status.success(), "{}", stderr(&whole));
    assert_eq!(ended["experiment"]["ending"], "done");
    assert_eq!(samples(rows(&ended, "few", "rate").remove(0)), [100.0; 3]);
    assert!(more.status.success(), "{}", stderr(&more));
    let added = result(&out);
    assert_eq!(samples(rows(&added, "few", "rate").remove(0)), [100.0; 5]);
    assert_eq!(added["settings"]["rounds"], 5);
    assert_eq!(std::fs::read_dir(&below).unwrap().count(), 0);
    assert!(stdout(&whole).contains("few"));
}

/// Returns true if a process has this unique command line.
fn is_running(mark: &str) -> bool {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let command = |path: PathBuf| std::fs::read_to_string(path.join("cmdline"));
    processes
        .filter(|entry| entry.file_name().to_string_lossy().parse::<u32>().is_ok())
        .any(|entry| command(entry.path()).is_ok_and(|text| text.contains(mark)))
}

#[test]
fn what_a_killed_run_leaves_is_removed_by_the_next() {
    let _host = hugeleaf_testkit::host_lock::shared();
    const SLEEP: &str = "sleep\x004242.5";
    let shared = PathBuf::from(format!("/dev/shm/hugeleaf-test-{}", std::process::id()));
    let waits = format!(
        "test ! -e \"$wait\" || {{ : >{}; sleep 4242.5; }}; awk -v",
        shared.display()
    );
    let waits = SUM.replace("awk -v", &waits);
    let (folder, path) = file(&waits.replace("n = 1000", "n = 1000\nwait = '/none'"));
    let below = below(&folder);
    // A foreign file or a non-folder must not be removed.
    let others = below.join("hugeleaf-lab-file");
    std::fs::write(&others, "").unwrap();
    let bench = |wait: &str| {
        let mut command = hugeleaf(&["bench", path.to_str().unwrap(), "--yes", "--pairs", "1"]);
        let arm = format!("one=wait={wait}");
        command.args(["--arm", &arm, "--below", below.to_str().unwrap()]);
        command
            .arg("--output")
            .arg(folder.path().join("result.json"));
        command
    };
    let null = std::process::Stdio::null;
    let mut child = ChildGuard(bench("/").stdout(null()).stderr(null()).spawn().unwrap());
    wait_until("it to run", || is_running(SLEEP));
    child.0.kill().unwrap();
    child.0.wait().unwrap();
    // Without namespaces, orphans stay alive until the next scan.
    if crate::common::is_root() {
        wait_until("all of it to end", || !is_running(SLEEP));
        assert!(!shared.exists());
    }
    let _ = std::fs::remove_file(&shared);
    assert_eq!(std::fs::read_dir(&below).unwrap().count(), 2);
    let output = bench("/none").output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let left: Vec<_> = std::fs::read_dir(&below).unwrap().flatten().collect();
    assert_eq!(left.len(), 1, "{left:?}");
    assert!(others.exists());
}

/// A disk that is full during preparation, during a program's writes, and during the final write.
#[test]
fn a_full_disk_is_told_and_nothing_is_left() {
    let _host = hugeleaf_testkit::host_lock::shared();
    let test = "a_full_disk_is_told_and_nothing_is_left";
    let disk = tempfile::tempdir().unwrap();
    let mounted = std::process::Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=1M,mode=0777", "none"])
        .arg(disk.path())
        .status();
    if !mounted.is_ok_and(|status| status.success()) {
        return crate::common::not_run(test, "needs to mount a file system of its own");
    }
    let below = disk.path().to_str().unwrap();
    let fills = "head -c 8000000 /dev/zero >\"$work/fill\" &&";
    for (stage, text) in [
        (
            "prepare",
            SUM.replace("echo \"$n\" >", &format!("{fills} echo \"$n\" >")),
        ),
        ("load", SUM.replace("awk -v", &format!("{fills} awk -v"))),
    ] {
        let (folder, path) = file(&text);
        let to = folder.path().join("result.json");
        let arguments = [
            "bench",
            path.to_str().unwrap(),
            "--yes",
            "--pairs",
            "2",
            "--below",
            below,
            "--output",
            to.to_str().unwrap(),
        ];
        let output = run(&arguments);
        let said = stderr(&output);
        assert!(!output.status.success(), "{stage}: {said}");
        assert!(said.contains("No space left on device"), "{stage}: {said}");
        assert_eq!(std::fs::read_dir(below).unwrap().count(), 0, "{stage}");
    }
    // If the result itself has no space, no partial file remains.
    let (_folder, path) = file(SUM);
    let filler = disk.path().join("filler");
    let all = std::process::Command::new("dd")
        .args(["if=/dev/zero", "bs=64k", "status=none"])
        .arg(format!("of={}", filler.display()))
        .stderr(std::process::Stdio::null())
        .status();
    assert!(!all.unwrap().success());
    let to = disk.path().join("result.json");
    let output = run(&[
        "bench",
        path.to_str().unwrap(),
        "--yes",
        "--pairs",
        "2",
        "--output",
        to.to_str().unwrap(),
    ]);
    let said = stderr(&output);
    assert_ne!(output.status.code(), Some(0), "{said}");
    assert!(said.contains("No space left on device"), "{said}");
    std::fs::remove_file(&filler).unwrap();
    let left: Vec<_> = std::fs::read_dir(below).unwrap().flatten().collect();
    let unmounted = std::process::Command::new("umount").arg(below).status();
    assert!(unmounted.unwrap().success());
    assert!(left.is_empty(), "{left:?}");
}
