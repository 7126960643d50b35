//! `hugeleaf-lab mover` and `hugeleaf-lab pin` as a whole: their answers, their refusals, and that they
//! leave nothing behind.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use crate::common::{
    ChildGuard, NOBODY, has_pool_in_use, is_root, not_run, of_arm, public_copy_of, refused, rows,
    samples, stderr, stdout, wait_until,
};
use hugeleaf_testkit::host_lock;
use serde_json::Value;

use crate::lab;

/// Makes a folder on a disk, in the build's own.
fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

fn bench(folder: &Path, args: &[&str]) -> Command {
    let mut command = lab(args);
    command.current_dir(folder);
    command
}

/// Small enough for a busy machine.
const SMALL: [&str; 11] = [
    "mover",
    "--readers",
    "1",
    "--writers",
    "2",
    "--size",
    "1M",
    "--space",
    "4M",
    "--rounds",
    "6",
];
const PIN: [&str; 7] = ["pin", "--threads", "1,2", "--space", "2M", "--rounds", "6"];

/// Returns the answer with `--json`; `None`, with a note, if a precondition is missing.
fn json(test: &str, args: &[&str]) -> Option<(Value, i32)> {
    let folder = folder();
    let all = [args, &["--json", "-o", "result.json"]].concat();
    let output = bench(folder.path(), &all).output().unwrap();
    let status = output.status.code().unwrap();
    let said = stderr(&output);
    if status == 3 && (said.contains("no direct I/O") || said.contains("io_uring")) {
        not_run(test, said.lines().next().unwrap_or_default());
        return None;
    }
    let value = serde_json::from_str(&stdout(&output)).unwrap_or_else(|e| panic!("{e}: {said}"));
    let left: Vec<PathBuf> = (std::fs::read_dir(folder.path()).unwrap())
        .map(|entry| entry.unwrap().path())
        .collect();
    assert_eq!(
        left,
        [folder.path().join("result.json")],
        "something is left"
    );
    Some((value, status))
}

/// Returns the rows of a quantity of an arm in a mode, or by a method.
fn rows_at<'a>(result: &'a Value, at: [&str; 2], label: &str, what: &str) -> Vec<&'a Value> {
    let mut rows = rows(result, label, what);
    rows.retain(|row| row["at"][at[0]] == at[1]);
    rows
}

/// Returns the samples of a quantity of an arm in a mode; empty if it was not measured.
fn of_mode(result: &Value, mode: &str, label: &str, what: &str) -> Vec<f64> {
    let rows = rows_at(result, ["mode", mode], label, what);
    rows.first().map_or_else(Vec::new, |row| samples(row))
}

/// Returns the layout of its memory, before or after.
fn layout<'a>(result: &'a Value, at: [&str; 2], label: &str, when: &str) -> &'a Value {
    let all = of_arm(result, "layouts", label);
    let is_it = |l: &&&Value| l["at"][at[0]] == at[1] && l["when"] == when;
    all.iter()
        .find(is_it)
        .unwrap_or_else(|| panic!("no {when} of {label} in {result}"))
}

fn number(value: &Value) -> f64 {
    value
        .as_f64()
        .unwrap_or_else(|| panic!("{value} is no number"))
}

#[test]
fn mover_answers_as_the_contract_says() {
    let test = "mover_answers_as_the_contract_says";
    let args = [&SMALL[..], &["--for", "360ms", "--pages", "scattered,base"]].concat();
    let Some((result, status)) = json(test, &args) else {
        return;
    };
    assert_eq!((status, &result["schema"]), (0, &Value::from(2)));
    assert_eq!(result["experiment"]["name"], "mover");
    assert_eq!(result["experiment"]["ending"], "done");
    assert!(result["remarks"].to_string().contains("×2.72"), "{result}");
    let alone = rows(&result, "devices alone", "devices alone");
    assert_eq!(samples(alone[0]).len(), 2);
    for label in ["scattered", "base"] {
        let of = |what: &str| of_mode(&result, "direct", label, what);
        let moved = rows_at(&result, ["mode", "direct"], label, "data moved")[0];
        assert_eq!(moved["quantity"]["unit"], "MiB/s");
        let rates = samples(moved);
        assert_eq!(rates.len(), 6);
        for (at, rate) in rates.iter().enumerate() {
            let mib = (of("read")[at] + of("written")[at]) / f64::from(1 << 20);
            let expected = mib / of("length")[at];
            assert!(
                (rate - expected).abs() < 0.01 * expected,
                "{rate} {expected}"
            );
            assert!(mib > 0.0 && of("transfer, mean")[at] > 0.0);
            assert!(of("page fault of a bystander, count")[at] > 0.0);
        }
        assert!(of("lock and unlock, mean").is_empty());
        assert_eq!(of("host user").len(), 6);
        let before = layout(&result, ["mode", "direct"], label, "before");
        assert_eq!(before["pages"][0]["kind"], "base");
    }
}

#[test]
fn every_mode_runs_and_locks_are_timed() {
    let test = "every_mode_runs_and_locks_are_timed";
    let modes = ["direct", "lock", "uring", "uring-registered"];
    let args = [
        &SMALL[..],
        &[
            "--for",
            "500ms",
            "--pages",
            "scattered",
            "--mode",
            "direct,lock,uring,uring-registered",
        ],
    ];
    let Some((result, status)) = json(test, &args.concat()) else {
        return;
    };
    assert_eq!(status, 0);
    for mode in modes {
        let locked = of_mode(&result, mode, "scattered", "lock and unlock, mean");
        assert!(!of_mode(&result, mode, "scattered", "data moved").is_empty());
        assert_eq!(!locked.is_empty(), mode == "lock", "{mode}");
    }
}

#[test]
fn streams_are_counted_and_the_page_is_whole() {
    let folder = folder();
    let args = [
        &SMALL[..],
        &[
            "--for",
            "300ms",
            "--pages",
            "scattered",
            "--rate",
            "64K",
            "--most-streams",
            "3",
        ],
        &["--block", "16K", "--html", "page.html", "-o", "r.json"],
    ];
    let output = bench(folder.path(), &args.concat()).output().unwrap();
    if stderr(&output).contains("no direct I/O") {
        not_run(
            "streams_are_counted_and_the_page_is_whole",
            "no direct I/O here",
        );
        return;
    }
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let text = stdout(&output);
    assert!(text.starts_with("mover, direct: scattered "), "{text}");
    assert!(
        text.contains("×2.72") && text.contains("at most 3 were tried"),
        "{text}"
    );
    let page = std::fs::read_to_string(folder.path().join("page.html")).unwrap();
    assert!(
        page.contains("<svg") && page.trim_end().ends_with("</html>"),
        "{page}"
    );
    // The name of SVG's language is an address that is never opened.
    let rest = page.replace("http://www.w3.org/2000/svg", "");
    assert!(
        !rest.contains("http://") && !rest.contains("src="),
        "{page}"
    );
    let result = std::fs::read_to_string(folder.path().join("r.json")).unwrap();
    let result: Value = serde_json::from_str(&result).unwrap();
    let streams = of_mode(&result, "direct", "scattered", "writers that keep up");
    assert_eq!(streams, [3.0, 3.0, 3.0]);
}

#[test]
fn what_cannot_be_is_refused_before_the_load() {
    let folder = folder();
    let there = folder.path().join("there");
    std::fs::write(&there, vec![7u8; 1 << 20]).unwrap();
    let there = there.to_str().unwrap();
    let short = [
        "mover",
        "--pages",
        "scattered",
        "--for",
        "100ms",
        "--rounds",
        "1",
    ];
    let refuse = |args: &[&str], status: i32, words: &[&str]| {
        let all = [&short[..], args].concat();
        let output = bench(folder.path(), &all).output().unwrap();
        refused(&output, status, words)
    };
    refuse(&["--device", there], 2, &["already exists", "--overwrite"]);
    refuse(
        &["--device", "/none/where"],
        3,
        &["/none/where", "No such file"],
    );
    refuse(
        &["--readers", "0", "--writers", "0"],
        2,
        &["neither readers nor writers"],
    );
    refuse(&["--block", "5K"], 2, &["not a multiple of a base page"]);
    refuse(&["--block", "32M", "--space", "64M"], 2, &["slots"]);
    refuse(&["--space", "64K"], 2, &["--space"]);
    refuse(&["--size", "900T"], 3, &["no room for 7 files", "--size"]);
    refuse(&["--mode", "fast"], 2, &["'fast' is not a mode"]);
    refuse(&["--space", "1023G"], 3, &["at most"]);
    assert_eq!(std::fs::read(there).unwrap(), vec![7u8; 1 << 20]);
    if let Ok(memory) = tempfile::tempdir_in("/dev/shm") {
        let path = memory.path().to_str().unwrap();
        refuse(
            &["--device", path],
            3,
            &["no direct I/O", "--device memory"],
        );
        assert_eq!(std::fs::read_dir(memory.path()).unwrap().count(), 0);
    }
}

#[test]
fn limits_of_locked_memory_are_told() {
    let test = "limits_of_locked_memory_are_told";
    if !is_root() {
        not_run(test, "needs root, to be somebody else");
        return;
    }
    let (_dir, program) = public_copy_of(crate::LAB);
    for (args, word) in [
        (
            "mover --mode lock --pages scattered --device /var/tmp",
            "lock pins 1.8M",
        ),
        (
            "mover --device memory --pages scattered",
            "backed by memory",
        ),
        ("pin --how uring --pages scattered", "uring pins 2M"),
    ] {
        let script = format!("ulimit -l 64; cd /tmp; exec \"$0\" {args} -o /dev/null");
        let mut command = Command::new("/bin/sh");
        command
            .args(["-c", &script])
            .arg(&program)
            .uid(NOBODY)
            .gid(NOBODY);
        refused(&command.output().unwrap(), 3, &[word]);
    }
}

/// Counts the loop devices made for `--device memory`.
fn memory_devices() -> usize {
    let blocks = std::fs::read_dir("/sys/block").unwrap();
    let files = blocks.map(|b| b.unwrap().path().join("loop/backing_file"));
    files
        .filter_map(|file| std::fs::read_to_string(file).ok())
        .filter(|text| text.contains("hugeleaf-device"))
        .count()
}

#[test]
fn a_kill_leaves_no_device_and_no_file() {
    let test = "a_kill_leaves_no_device_and_no_file";
    if !is_root() || !Path::new("/dev/loop-control").exists() {
        not_run(test, "needs root and loop devices");
        return;
    }
    let _host = host_lock::exclusive();
    for (device, signal) in [("memory", "KILL"), (".", "KILL"), ("memory", "INT")] {
        let folder = folder();
        let args = [
            &SMALL[..],
            &["--device", device, "--for", "600s", "--pages", "scattered"],
        ];
        let mut command = bench(folder.path(), &args.concat());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = ChildGuard(command.spawn().unwrap());
        let fds = format!("/proc/{}/task", child.pid());
        // More than two threads per device: it runs.
        wait_until("the load runs", || {
            std::fs::read_dir(&fds).is_ok_and(|tasks| tasks.count() >= 4)
        });
        assert_eq!(memory_devices(), if device == "memory" { 3 } else { 0 });
        let pid = child.pid();
        let sent = Command::new("kill")
            .args([&format!("-{signal}"), &pid])
            .status();
        assert!(sent.unwrap().success());
        let status = child.0.wait().unwrap();
        if signal == "INT" {
            assert_eq!(status.code(), Some(1));
        }
        wait_until("devices are gone", || memory_devices() == 0);
        let left = std::fs::read_dir(folder.path()).unwrap();
        let left: Vec<_> = left.map(|e| e.unwrap().file_name()).collect();
        let mover = |name: &std::ffi::OsString| name.to_string_lossy().contains("mover-");
        assert!(
            !left
                .iter()
                .any(|n| mover(n) && !n.to_string_lossy().ends_with(".json")),
            "{left:?}"
        );
    }
}

#[test]
fn pin_answers_as_the_contract_says() {
    let test = "pin_answers_as_the_contract_says";
    let args = [
        &PIN[..],
        &[
            "--how",
            "mlock,direct",
            "--for",
            "300ms",
            "--pages",
            "scattered,base",
        ],
    ];
    let Some((result, status)) = json(test, &args.concat()) else {
        return;
    };
    assert_eq!(status, 0);
    assert!(
        result["remarks"].to_string().contains("64 on 4K pages"),
        "{result}"
    );
    for how in ["mlock", "direct"] {
        let at = ["method", how];
        let points = rows_at(&result, at, "base", "pin and let go");
        assert_eq!(points.len(), 2);
        for point in points {
            assert_eq!(point["quantity"]["unit"], "µs");
            assert_eq!(samples(point).len(), 6);
            assert!(samples(point).iter().all(|us| *us > 0.0), "{point}");
            assert!(
                !point["note"].to_string().contains("nothing to do"),
                "{point}"
            );
        }
        let page = number(&layout(&result, at, "base", "before")["pages"][0]["page_bytes"]);
        let units = samples(rows_at(&result, at, "base", "pages of a buffer")[0])[0];
        assert!((units - f64::from(256 << 10) / page).abs() < 0.5);
    }
}

#[test]
fn locking_splits_huge_pages_and_that_is_told() {
    let test = "locking_splits_huge_pages_and_that_is_told";
    let large = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/hpage_pmd_size");
    let Ok(large) = large else {
        not_run(test, "needs transparent huge pages");
        return;
    };
    let thp = format!(
        "thp:{}",
        hugeleaf_units::Bytes(large.trim().parse().unwrap())
    );
    let pages = format!("scattered,{thp}");
    let args = [
        &PIN[..],
        &["--how", "mlock", "--for", "200ms", "--pages", &pages],
    ];
    let Some((result, _)) = json(test, &args.concat()) else {
        return;
    };
    let at = ["method", "mlock"];
    if layout(&result, at, &thp, "before")["verified"] != true {
        not_run(test, "no huge pages were free");
        return;
    }
    let after = layout(&result, at, &thp, "after");
    assert_eq!(after["verified"], false, "{after}");
    let note = after["note"].as_str().unwrap();
    assert!(note.contains(&format!("were not on {thp}")), "{note}");
}

#[test]
fn pages_of_a_pool_are_nothing_to_lock_and_go_back() {
    let test = "pages_of_a_pool_are_nothing_to_lock_and_go_back";
    let Some(host) = host_lock::alone_as_root(test) else {
        return;
    };
    let has_pools = Path::new(host_lock::POOLS).exists() && !has_pool_in_use();
    if !has_pools || host.set_pool(default_page(), 8) != 8 {
        not_run(test, "needs a pool of which nobody uses pages");
        return;
    }
    let size = hugeleaf_units::Bytes(default_page());
    let label = format!("hugetlb:{size}");
    let pages = format!("scattered,{label}");
    let args = [
        &PIN[..],
        &["--how", "mlock,uring", "--for", "300ms", "--pages", &pages],
    ];
    let Some((result, status)) = json(test, &args.concat()) else {
        return;
    };
    assert_eq!(status, 0, "{result}");
    let units = rows_at(&result, ["method", "mlock"], &label, "pages of a buffer")[0];
    assert_eq!(samples(units), [1.0]);
    assert!(
        units["note"].as_str().unwrap().contains("nothing to do"),
        "{units}"
    );
    let ring = rows_at(&result, ["method", "uring"], &label, "pin and let go")[0];
    assert!(ring["note"].is_null(), "{ring}");
    let after = layout(&result, ["method", "uring"], &label, "after");
    assert_eq!(after["verified"], true, "{after}");
    let free = std::fs::read_to_string("/proc/meminfo").unwrap();
    let free = free
        .lines()
        .find(|l| l.starts_with("HugePages_Free"))
        .unwrap();
    assert_eq!(free.split_whitespace().nth(1), Some("8"), "{free}");
}

fn default_page() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap();
    let line = text
        .lines()
        .find(|l| l.starts_with("Hugepagesize"))
        .unwrap();
    line.split_whitespace()
        .nth(1)
        .unwrap()
        .parse::<u64>()
        .unwrap()
        * 1024
}

#[test]
fn pages_that_are_not_there_are_told_and_the_others_measured() {
    let test = "pages_that_are_not_there_are_told_and_the_others_measured";
    let args = [
        &PIN[..],
        &[
            "--how",
            "mlock",
            "--for",
            "100ms",
            "--pages",
            "scattered,hugetlb:512T",
        ],
    ];
    let folder = folder();
    let output: Output = bench(folder.path(), &args.concat()).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{test}: {}", stderr(&output));
    let text = stdout(&output);
    assert!(text.contains("unavailable  hugetlb:512T: "), "{text}");
    assert!(
        text.contains("pin, mlock with 2 threads: scattered "),
        "{text}"
    );
}
