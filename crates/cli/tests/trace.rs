//! Tests `hugeleaf trace`: its obstacles, and its files.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use crate::signals::ended;
use hugeleaf_trace::model::{SourceState, TraceEndReason};
use hugeleaf_trace::read_trace;
use rustix::process::Signal;

/// `nobody` on every distribution.
const NOBODY: u32 = 65534;

const HUGELEAF: &str = env!("CARGO_BIN_EXE_hugeleaf");

fn is_root() -> bool {
    hugeleaf_sys::effective_uid() == 0
}

fn works(program: &str, arguments: &[&str]) -> bool {
    let mut command = Command::new(program);
    command
        .args(arguments)
        .output()
        .is_ok_and(|o| o.status.success())
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Creates a world-writable folder with a copy of the program that everyone may run.
fn for_everybody() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let all = |mode| std::fs::Permissions::from_mode(mode);
    std::fs::set_permissions(dir.path(), all(0o777)).unwrap();
    let program = dir.path().join("hugeleaf");
    std::fs::copy(HUGELEAF, &program).unwrap();
    std::fs::set_permissions(&program, all(0o755)).unwrap();
    (dir, program)
}

/// Fails unless the error has two lines: the failure and the next step.
#[track_caller]
fn two_lines(output: &Output, status: i32) -> (String, String) {
    let text = stderr(output);
    assert_eq!(output.status.code(), Some(status), "{text}");
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 2, "{text}");
    let next = lines[1].strip_prefix("  next: ").expect("no next step");
    (lines[0].to_owned(), next.to_owned())
}

/// Returns true if this user gets samples; otherwise prints a reason.
fn has_events(test: &str) -> bool {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("a.trace");
    let output = Command::new(HUGELEAF)
        .args(["trace", "--for", "200ms", "-o"])
        .arg(&file)
        .output()
        .unwrap();
    if !output.status.success() {
        println!("not run: {test}: {}", stderr(&output).trim());
    }
    output.status.success()
}

/// If perf_event_paranoid forbids events, the setting and the capability are named. Features that
/// need neither still work.
#[test]
fn a_user_without_privilege() {
    let _host = hugeleaf_testkit::host_lock::shared();
    const NAME: &str = "a_user_without_privilege";
    let paranoid = std::fs::read_to_string("/proc/sys/kernel/perf_event_paranoid");
    let level: i64 = paranoid.map_or(-1, |text| text.trim().parse().unwrap());
    if !is_root() || level < 1 {
        println!("not run: {NAME}: needs root, and kernel.perf_event_paranoid of 1 or more");
        return;
    }
    let (dir, program) = for_everybody();
    let run = |arguments: &[&str]| {
        Command::new(&program)
            .args(["trace", "--for", "300ms"])
            .args(arguments)
            .current_dir(dir.path())
            .uid(NOBODY)
            .gid(NOBODY)
            .output()
            .unwrap()
    };
    let (what, next) = two_lines(&run(&["-o", "a.trace"]), 3);
    let setting = format!("kernel.perf_event_paranoid is {level}");
    assert!(
        what.contains(&setting) && what.contains("CAP_PERFMON"),
        "{what}"
    );
    assert!(
        next.contains("sysctl kernel.perf_event_paranoid=-1"),
        "{next}"
    );
    assert!(
        next.contains("setcap cap_sys_ptrace,cap_syslog,cap_perfmon=ep /"),
        "{next}"
    );
    assert!(!dir.path().join("a.trace").exists());
    let output = run(&["--intervals-only", "-o", "b.trace"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let trace = read_trace(&dir.path().join("b.trace")).unwrap();
    assert!(!trace.intervals.is_empty() && trace.samples.is_empty());
    for args in [["trace", "show", "b.trace"], ["trace", "diff", "b.trace"]] {
        let more = if args[1] == "diff" {
            "b.trace"
        } else {
            "--all"
        };
        let output = Command::new(HUGELEAF)
            .args(args)
            .arg(more)
            .current_dir(dir.path())
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(text.contains("switched off by a flag"), "{text}");
        for claim in [
            "no thread waited",
            "no samples",
            "0 samples",
            "none on this host",
        ] {
            assert!(!text.contains(claim), "{claim}: {text}");
        }
    }
}

/// Without tracefs and the right to mount it, samples remain; locks are omitted with the remedy.
#[test]
fn no_tracefs() {
    let _host = hugeleaf_testkit::host_lock::shared();
    const NAME: &str = "no_tracefs";
    let unshare = ["--mount", "true"];
    if !is_root() || !works("unshare", &unshare) || !works("setpriv", &["--version"]) {
        println!("not run: {NAME}: needs root, unshare(1) and setpriv(1)");
        return;
    }
    if !has_events(NAME) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("a.trace");
    // Unmounts all of them in a private mount namespace.
    let script = "while umount /sys/kernel/tracing || umount /sys/kernel/debug; do :; done \
                  2>/dev/null; exec setpriv --bounding-set -sys_admin --inh-caps -sys_admin \"$@\"";
    let output = Command::new("unshare")
        .args(["--mount", "sh", "-c", script, "sh", HUGELEAF])
        .args(["trace", "--for", "300ms", "-o"])
        .arg(&file)
        .output()
        .unwrap();
    let text = stderr(&output);
    if !output.status.success() && text.contains("CAP_PERFMON") {
        println!("not run: {NAME}: CAP_PERFMON is no capability of its own here");
        return;
    }
    assert!(output.status.success(), "{text}");
    assert!(text.contains("lock contention skipped"), "{text}");
    assert!(text.contains("next: as root: mount -t tracefs"), "{text}");
    let trace = read_trace(&file).unwrap();
    let state = |name: &str| {
        let source = trace.sources.iter().find(|s| s.name == name);
        source.unwrap().state.clone()
    };
    assert_eq!(state("cpu samples"), SourceState::Used);
    assert!(matches!(
        state("lock contention"),
        SourceState::Refused { .. }
    ));
    assert!(trace.locks.is_empty());
}

#[test]
fn what_cannot_be_written_is_said_at_once() {
    let _host = hugeleaf_testkit::host_lock::shared();
    for (file, word) in [("/nowhere/a.trace", "a.trace"), ("/", "/")] {
        let output = Command::new(HUGELEAF)
            // An hour, so a late failure would be noticed.
            .args(["trace", "--for", "1h", "--intervals-only", "-o", file])
            .output()
            .unwrap();
        let (what, _) = two_lines(&output, 3);
        assert!(what.contains(word), "{what}");
    }
    let output = Command::new(HUGELEAF)
        .args([
            "trace",
            "--for",
            "200ms",
            "--intervals-only",
            "-o",
            "/dev/full",
        ])
        .output()
        .unwrap();
    let (what, next) = two_lines(&output, 3);
    assert!(what.contains("/dev/full"), "{what}");
    assert!(next.contains("make room"), "{next}");
}

#[test]
fn wrong_usage() {
    let _host = hugeleaf_testkit::host_lock::shared();
    let run = |arguments: &[&str]| Command::new(HUGELEAF).args(arguments).output().unwrap();
    let captured = tempfile::tempdir().unwrap();
    let folder = captured.path().display().to_string();
    for arguments in [
        &["trace", "--for", "0"][..],
        &["trace", "--rate", "0"],
        &["trace", "tree:x"],
        &["trace", "--root", &folder],
    ] {
        two_lines(&run(arguments), 2);
    }
    let (what, _) = two_lines(&run(&["trace", "no such program", "--for", "1s"]), 3);
    assert!(what.contains("no such program"), "{what}");
}

/// Ctrl-C ends the trace, and the collected part is written.
#[test]
fn interrupted() {
    let _host = hugeleaf_testkit::host_lock::shared();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("a.trace");
    let args = ["trace", "--for", "10m", "--intervals-only", "-o"];
    let mut command = Command::new(HUGELEAF);
    let status = ended(command.args(args).arg(&file), Signal::INT, &|_| true);
    assert!(status.success());
    let trace = read_trace(&file).unwrap();
    assert_eq!(trace.ending, TraceEndReason::Interrupted);
    assert!(trace.asked_seconds > 500.0);
}

/// Waits until a process has perf events open.
fn wait_until_it_has_events(pid: u32) {
    let is_event = |file: std::fs::DirEntry| {
        let target = std::fs::read_link(file.path()).unwrap_or_default();
        target.as_os_str() == "anon_inode:[perf_event]"
    };
    hugeleaf_testkit::until("it has events", || {
        let files = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
        files.flatten().any(is_event)
    });
}

/// A target that exits early ends the trace.
#[test]
fn a_target_that_exits() {
    let _host = hugeleaf_testkit::host_lock::shared();
    if !has_events("a_target_that_exits") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let file: &Path = &dir.path().join("a.trace");
    // It lives until its standard input ends.
    let mut target = Command::new("cat");
    let mut target = target.stdin(Stdio::piped()).spawn().unwrap();
    let pid = target.id().to_string();
    let tracer = Command::new(HUGELEAF)
        .args(["trace", &pid, "--for", "10m", "-o"])
        .arg(file)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    wait_until_it_has_events(tracer.id());
    // It is reaped and does not become a zombie.
    drop(target.stdin.take());
    target.wait().unwrap();
    let output = tracer.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(
        stderr(&output).contains("the target ended"),
        "{}",
        stderr(&output)
    );
    let trace = read_trace(file).unwrap();
    assert_eq!(trace.ending, TraceEndReason::TargetEnded);
    assert_eq!(trace.target.unwrap().text, pid);
}
