//! Tests `hugeleaf try`: its results, its refusals, and the absence of leftover processes.

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::common::{
    ChildGuard, NOBODY, is_root, not_run, program, public_copy, refused, run, stderr, stdout,
    wait_until, works,
};

fn this_program() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_hugeleaf"))
}

/// Returns true if this kernel supports `try`.
fn can_collapse(test: &str) -> bool {
    use hugeleaf_sys::Kernel;
    let can = Kernel::new().supports_collapse();
    if !can {
        not_run(test, "this kernel has no MADV_COLLAPSE");
    }
    can
}

/// Allows one experiment at a time, because each needs a CPU.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    // A test that failed with the lock held has left no incomplete state.
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns a short but complete run in `dir`.
fn short(path: &Path, dir: &Path, more: &[&str]) -> Command {
    let args = ["try", "--cache", "64M", "--for", "5s"];
    let mut command = program(path, &[&args, more].concat());
    command.current_dir(dir);
    command
}

/// Returns the workload that this `try` started.
fn workload_of(parent: u32) -> Option<u32> {
    let path = PathBuf::from(format!("/proc/{parent}/task/{parent}/children"));
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.split_whitespace().next()?.parse().ok()
}

/// Returns true if the process is gone; an unreaped zombie counts as gone.
fn is_gone(pid: u32) -> bool {
    match std::fs::read_to_string(format!("/proc/{pid}/stat")) {
        Ok(stat) => stat.rsplit(") ").next().unwrap().starts_with('Z'),
        Err(_) => true,
    }
}

/// Starts a run that is long enough to be interrupted, and waits for the step `[N/`.
fn started_up_to(step: &str) -> (ChildGuard, u32, BufReader<std::process::ChildStderr>) {
    let dir = std::env::temp_dir();
    let mut command = program(this_program(), &["try", "--cache", "64M", "--for", "10m"]);
    let mut child = command
        .current_dir(dir)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap());
    let running = ChildGuard(child);
    let mut line = String::new();
    while !line.starts_with(&format!("[{step}/")) {
        line.clear();
        assert_ne!(lines.read_line(&mut line).unwrap(), 0, "it ended early");
    }
    let pid = running.0.id();
    let workload = workload_of(pid).expect("it has a workload");
    (running, workload, lines)
}

/// Runs as another user if this is root, because no privilege is needed.
fn as_nobody(command: &mut Command, folder: &Path) {
    if is_root() {
        command.uid(NOBODY).gid(NOBODY);
        std::os::unix::fs::chown(folder, Some(NOBODY), Some(NOBODY)).unwrap();
    }
}

#[test]
fn one_screen_and_one_page() {
    let _host = hugeleaf_testkit::host_lock::shared();
    let _alone = alone();
    if !can_collapse("one_screen_and_one_page") {
        return;
    }
    let (_copy, path) = public_copy();
    let dir = tempfile::tempdir().unwrap();
    let mut command = short(&path, dir.path(), &[]);
    as_nobody(&mut command, dir.path());
    let output = command.output().unwrap();
    let screen = stdout(&output);
    assert_eq!(output.status.code(), Some(0), "{screen}{}", stderr(&output));
    assert!(screen.lines().count() <= 40, "{screen}");
    for word in ["status ", "mem ", "why ", "prove ", "hugeleaf promote PID"] {
        assert!(screen.contains(word), "{word} in\n{screen}");
    }
    let page = std::fs::read_to_string(dir.path().join("hugeleaf-try.html")).unwrap();
    assert!(page.contains("<svg") && page.contains("</html>"));
    // In a pipe each step is one line, without a bar.
    let steps = stderr(&output);
    assert_eq!(steps.lines().count(), 5, "{steps}");
    assert!(!steps.contains('\x1b'), "{steps}");
}

#[test]
fn json_holds_the_answers_of_all_four() {
    let _host = hugeleaf_testkit::host_lock::shared();
    let _alone = alone();
    let test = "json_holds_the_answers_of_all_four";
    if hugeleaf_testkit::left_to_all(test) || !can_collapse(test) {
        return;
    }
    let args = ["--json", "--html", "/dev/null"];
    let output = short(this_program(), Path::new("/"), &args)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let answer: serde_json::Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!(answer["schema"], 2);
    assert_eq!(answer["workload"]["cache_bytes"], 64 << 20);
    assert!(answer["workload"]["rows"].as_u64().unwrap() > 100_000);
    assert!(answer["status"]["host"]["page_sizes"].is_array());
    assert!(answer["mem"]["processes"][0]["segments"].is_array());
    assert!(answer["why"]["summary"].is_array());
    let verdict = answer["prove"]["verdict"].as_str().unwrap();
    assert!(["faster", "slower", "same", "unclear"].contains(&verdict));
    // Samples exist only if the memory was on the intended pages.
    let rows = answer["prove"]["rows"].as_array().unwrap();
    let main: Vec<_> = rows
        .iter()
        .filter(|row| row["quantity"]["main"] == true)
        .collect();
    assert_eq!(main.len(), 2);
    for row in main {
        assert!(!row["samples"].as_array().unwrap().is_empty(), "{row}");
    }
}

#[test]
fn signals_end_it_and_its_workload() {
    let _host = hugeleaf_testkit::host_lock::shared();
    let _alone = alone();
    if !can_collapse("signals_end_it_and_its_workload") {
        return;
    }
    for (step, signal) in [("2", "-INT"), ("5", "-TERM")] {
        let (mut running, workload, mut lines) = started_up_to(step);
        assert!(works("kill", &[signal, &running.pid()]));
        let status = running.0.wait().unwrap();
        assert_eq!(status.code(), Some(1), "in step {step}");
        let mut said = String::new();
        while lines.read_line(&mut said).unwrap() > 0 {}
        assert!(said.contains("\n  next: "), "{said}");
        wait_until("the workload ends", || is_gone(workload));
    }
}

#[test]
fn its_workload_does_not_outlive_it() {
    let _host = hugeleaf_testkit::host_lock::shared();
    let _alone = alone();
    if !can_collapse("its_workload_does_not_outlive_it") {
        return;
    }
    let (mut running, workload, _) = started_up_to("5");
    running.0.kill().unwrap();
    running.0.wait().unwrap();
    wait_until("the workload ends", || is_gone(workload));
}

#[test]
fn too_little_memory_is_refused_with_a_size_that_fits() {
    let _host = hugeleaf_testkit::host_lock::shared();
    if !can_collapse("too_little_memory_is_refused_with_a_size_that_fits") {
        return;
    }
    let output = run(&["try", "--cache", "1024T"]);
    refused(&output, 3, &["does not fit", "hugeleaf try --cache "]);
    refused(&run(&["try", "--cache", "1M"]), 3, &["too small"]);
}

#[test]
fn a_captured_host_cannot_be_tried() {
    let _host = hugeleaf_testkit::host_lock::shared();
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().to_str().unwrap();
    refused(&run(&["--root", root, "try"]), 2, &["--root"]);
}

#[test]
fn a_page_that_cannot_be_written_is_known_before_the_wait() {
    let _host = hugeleaf_testkit::host_lock::shared();
    if !can_collapse("a_page_that_cannot_be_written_is_known_before_the_wait") {
        return;
    }
    let output = run(&["try", "--html", "/nonexistent/page.html"]);
    refused(&output, 3, &["/nonexistent/page.html"]);
}

#[test]
fn the_workload_alone_says_who_it_is_for() {
    let _host = hugeleaf_testkit::host_lock::shared();
    let output = run(&["workload", "oltp"]);
    refused(&output, 2, &["hugeleaf try"]);
}
