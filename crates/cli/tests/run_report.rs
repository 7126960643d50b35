//! Output about a program under `hugeleaf run`: `mem` of captured hosts and of running programs,
//! and the final report.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use crate::common::{
    ChildGuard, good, hugeleaf, not_run, refused, repository, run, stderr, stdout,
};
use hugeleaf_host::process::parse_run_settings;
use serde_json::Value;
use tempfile::TempDir;

const MIB: u64 = 1 << 20;

fn number(value: &Value) -> u64 {
    value
        .as_u64()
        .unwrap_or_else(|| panic!("{value} is no number"))
}

/// Returns the total bytes of a table by page size.
fn sum(table: &Value) -> u64 {
    let rows = table.as_array().unwrap().iter();
    rows.map(|held| number(&held["bytes"])).sum()
}

fn role<'a>(roles: &'a Value, name: &str) -> &'a Value {
    let mut roles = roles.as_array().unwrap().iter();
    roles
        .find(|role| role["role"] == name)
        .unwrap_or_else(|| panic!("no role {name}"))
}

/// Returns `mem` of process 1000 on a captured host.
fn captured(name: &str) -> Value {
    let root = repository().join("fixtures").join(name);
    let output = run(&["mem", "1000", "--json", "--root", root.to_str().unwrap()]);
    let answer: Value = serde_json::from_str(&good(&output)).unwrap();
    answer["processes"][0].clone()
}

#[test]
fn what_roles_got_is_what_their_segments_hold() {
    let _host = hugeleaf_testkit::host_lock::shared();
    for host in ["all-got", "partly-got", "no-library", "not-grown"] {
        let process = captured(&format!("run/{host}"));
        let of_role = |names: &[&str]| -> u64 {
            let segments = process["segments"].as_array().unwrap().iter();
            let own = segments.filter(|s| names.iter().any(|name| s["role"] == *name));
            own.map(|s| sum(&s["by_page_size"])).sum()
        };
        for (name, segments) in [
            ("data", &["data", "heap", "anon"][..]),
            ("shm", &["shm"]),
            ("stack", &["stack", "thread stack"]),
        ] {
            let role = role(&process["roles"], name);
            assert_eq!(sum(&role["got"]), of_role(segments), "{host}: {name}");
            let counted = number(&role["missing_bytes"]) + number(&role["too_small_bytes"]);
            assert!(counted <= sum(&role["got"]), "{host}: {name}");
            let missing = number(&role["missing_bytes"]) > 0;
            assert!(!missing || role["reason"].is_string(), "{host}: {name}");
        }
    }
}

#[test]
fn segments_say_what_the_policy_asked_for_them() {
    let _host = hugeleaf_testkit::host_lock::shared();
    let process = captured("run/partly-got");
    let asked = |role: &str| -> Vec<Value> {
        let segments = process["segments"].as_array().unwrap().iter();
        let own = segments.filter(|s| s["role"] == role);
        own.map(|s| s["asked"]["run"].clone()).collect()
    };
    assert!(asked("shm").iter().all(|a| a == "1G,hugetlb:2M"));
    assert!(asked("heap").iter().all(|a| a == "2M"));
    // The report covers the program's own code, but not that of libraries.
    assert_eq!(asked("text"), [Value::from("2M"), Value::Null]);
    assert_eq!(process["run"]["library_loaded"], true);
    assert_eq!(process["run"]["data_after_bytes"], 2 * MIB);
}

#[test]
fn settings_that_cannot_be_read_are_said_to_be_so() {
    let _host = hugeleaf_testkit::host_lock::shared();
    for (host, word) in [
        ("garbage", "base=gold"),
        ("newer", "newer hugeleaf"),
        ("overwritten", "overwrote"),
    ] {
        let process = captured(&format!("run/{host}"));
        assert!(process["run"].is_null() && process.get("run").is_some());
        let error = process["run_error"].as_str().unwrap();
        assert!(error.contains(word), "{host}: {error}");
        assert!(process.get("roles").is_none(), "{host}");
    }
    let without = captured("why/all-large");
    assert!(without.get("run").is_none() && without.get("roles").is_none());
}

/// The program that grows on request; needs a compiler.
struct Grower {
    folder: TempDir,
    path: PathBuf,
}

impl Grower {
    fn new(test: &str) -> Option<Grower> {
        Grower::compiled(test, &[])
    }

    fn compiled(test: &str, flags: &[&str]) -> Option<Grower> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("grower");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/run_report/grower.c");
        let output = Command::new("cc")
            .args(["-O1", "-Wall", "-o"])
            .arg(&path)
            .arg(source)
            .args(flags)
            .output();
        match output {
            Err(error) => not_run(test, &format!("needs a C compiler: cc: {error}")),
            Ok(output) if output.status.success() => return Some(Grower { folder, path }),
            Ok(output) if flags.is_empty() => panic!("{}", stderr(&output)),
            Ok(_) => not_run(test, &format!("cc {flags:?} does not work here")),
        }
        None
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("report.json")
    }

    /// Returns `hugeleaf run` of it, with flags before and words after.
    fn command(&self, flags: &[&str], words: &str) -> Command {
        let mut command = hugeleaf(&["run"]);
        command.args(flags).arg("--").arg(&self.path);
        command.args(words.split_whitespace());
        for name in ["LDR_CNTRL", "LARGE_PAGE_DATA", "LD_PRELOAD", "HUGELEAF_RUN"] {
            command.env_remove(name);
        }
        // Leftover files of the launcher would be found here.
        command.env("TMPDIR", self.folder.path());
        command
    }

    /// Runs it to its end with a report; returns its output and the report.
    fn report(&self, words: &str) -> (Output, Value) {
        let file = self.file();
        let output = self
            .command(&["--report", file.to_str().unwrap()], words)
            .output()
            .unwrap();
        let text = std::fs::read_to_string(&file)
            .unwrap_or_else(|e| panic!("{e}; stderr:\n{}", stderr(&output)));
        (output, serde_json::from_str(&text).unwrap())
    }
}

#[test]
fn a_report_has_the_program_its_end_and_the_machine() {
    let _host = hugeleaf_testkit::host_lock::shared();
    let Some(grower) = Grower::new("a_report_has_the_program_its_end_and_the_machine") else {
        return;
    };
    let (output, report) = grower.report("data 100 status 7");
    assert_eq!(output.status.code(), Some(7), "{}", stderr(&output));
    assert_eq!(stdout(&output), "");
    assert_eq!(report["schema"], 2);
    assert_eq!(report["exit"]["status"], 7);
    assert!(report["exit"].get("signal").is_none());
    assert_eq!(report["command"][1], "data");
    assert!(report["duration_seconds"].as_f64().unwrap() > 0.0);
    assert!(report["host"]["memory_bytes"].is_u64());
    assert!(report["settings"]["version"].is_string());
    assert_eq!(report["processes_left_out"], 0);
    let processes = report["processes"].as_array().unwrap();
    assert_eq!(processes.len(), 1, "{processes:?}");
    let process = &processes[0];
    assert_eq!(process["name"], "grower");
    assert_eq!(process["at_exit"], true, "the library said when it ended");
    assert!(number(&process["peak_resident_bytes"]) >= 100 * MIB);
    let data = role(&process["roles"], "data");
    assert_eq!(data["asked"], "auto");
    assert!(sum(&data["got"]) >= 100 * MIB);
    // With one process, the total equals that of the process.
    assert_eq!(report["roles"], process["roles"]);
    assert_eq!(
        number(&report["peak_resident_bytes"]) / MIB,
        number(&process["peak_resident_bytes"]) / MIB
    );
    assert_nothing_left(&grower);
}

/// Fails if the launcher left anything in the folder for temporary files.
fn assert_nothing_left(grower: &Grower) {
    let entries = std::fs::read_dir(grower.folder.path()).unwrap();
    let left: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
    assert!(
        left.iter()
            .all(|name| name == "grower" || name == "report.json"),
        "{left:?}"
    );
}

#[test]
fn shared_memory_counts_once_in_the_sum() {
    let _host = hugeleaf_testkit::host_lock::shared();
    let Some(grower) = Grower::new("shared_memory_counts_once_in_the_sum") else {
        return;
    };
    let (output, report) = grower.report("shared 64 child 80 status 0");
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let processes = report["processes"].as_array().unwrap();
    assert_eq!(processes.len(), 2, "{processes:?}");
    for process in processes {
        let shm = sum(&role(&process["roles"], "shm")["got"]);
        assert_eq!(shm / MIB, 64, "{process}");
    }
    // When the child ended, both existed and memory was at its peak.
    assert_eq!(sum(&role(&report["roles"], "shm")["got"]) / MIB, 64);
    assert!(sum(&role(&report["roles"], "data")["got"]) >= 80 * MIB);
}

#[test]
fn a_program_that_is_killed_is_reported_so() {
    let _host = hugeleaf_testkit::host_lock::shared();
    let Some(grower) = Grower::new("a_program_that_is_killed_is_reported_so") else {
        return;
    };
    let (output, report) = grower.report("data 40 abort");
    assert_eq!(output.status.signal(), Some(6), "{:?}", output.status);
    assert_eq!(report["exit"]["signal"], 6);
    assert!(report["exit"].get("status").is_none());
}

#[test]
fn a_report_that_cannot_be_written_is_refused_before_the_start() {
    let _host = hugeleaf_testkit::host_lock::shared();
    let name = "a_report_that_cannot_be_written_is_refused_before_the_start";
    let Some(grower) = Grower::new(name) else {
        return;
    };
    let folder = grower.folder.path();
    for (nowhere, why) in [
        (folder.join("no/such/folder/r.json"), "No such file"),
        (folder.join("grower/r.json"), "Not a directory"),
        (folder.to_owned(), "is a folder"),
    ] {
        let nowhere = nowhere.to_str().unwrap();
        let output = grower
            .command(&["--report", nowhere], "status 5")
            .output()
            .unwrap();
        refused(&output, 125, &["--report", nowhere, why]);
        assert_nothing_left(&grower);
    }
}

#[test]
fn a_folder_that_goes_while_the_program_runs_costs_the_report_only() {
    let _host = hugeleaf_testkit::host_lock::shared();
    let folder = tempfile::tempdir().unwrap();
    let below = folder.path().join("below");
    std::fs::create_dir(&below).unwrap();
    let output = hugeleaf(&["run", "--report"])
        .arg(below.join("r.json"))
        .args(["--", "sh", "-c", "rmdir \"$1\"; exit 5", "sh"])
        .arg(&below)
        .output()
        .unwrap();
    refused(&output, 5, &["below/r.json", "--report"]);
}

/// Inside the namespace its ids differ from those that the launcher knows.
#[test]
fn the_end_of_a_program_in_a_pid_namespace_is_seen() {
    let _host = hugeleaf_testkit::host_lock::shared();
    let name = "the_end_of_a_program_in_a_pid_namespace_is_seen";
    let Some(grower) = Grower::new(name) else {
        return;
    };
    let unshare = ["-U", "-r", "-p", "-f"];
    let works = Command::new("unshare").args(unshare).arg("true").status();
    if !works.is_ok_and(|status| status.success()) {
        return not_run(name, "needs unshare (util-linux) and user namespaces");
    }
    let file = grower.file();
    let output = hugeleaf(&["run", "--report"])
        .arg(&file)
        .args(["--", "unshare"])
        .args(unshare)
        .arg(&grower.path)
        .args(["data", "120", "status", "6"])
        .env("TMPDIR", grower.folder.path())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(6), "{}", stderr(&output));
    let report: Value = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
    let processes = report["processes"].as_array().unwrap();
    let seen = processes.iter().find(|p| p["name"] == "grower");
    let seen = seen.unwrap_or_else(|| panic!("{processes:?}"));
    assert_eq!(seen["at_exit"], true, "{seen}");
    assert!(number(&seen["seen_resident_bytes"]) >= 120 * MIB, "{seen}");
}

/// The kernel records the peak resident size; periodic scans would miss it.
#[test]
fn a_peak_between_two_looks_is_known() {
    let _host = hugeleaf_testkit::host_lock::shared();
    let Some(grower) = Grower::new("a_peak_between_two_looks_is_known") else {
        return;
    };
    // Scans happen 630 and 1270 ms after the start.
    let (output, report) = grower.report("pause 700 spike 150 status 0");
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let process = &report["processes"][0];
    assert!(number(&process["seen_resident_bytes"]) > 0, "{process}");
    assert!(
        number(&process["peak_resident_bytes"]) >= 150 * MIB,
        "{process}"
    );
    assert!(number(&report["peak_resident_bytes"]) >= 150 * MIB);
}

#[test]
fn a_dash_is_standard_error() {
    let _host = hugeleaf_testkit::host_lock::shared();
    let Some(grower) = Grower::new("a_dash_is_standard_error") else {
        return;
    };
    let output = grower
        .command(&["--report", "-", "--text", "base"], "data 50 status 3")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(3));
    assert_eq!(stdout(&output), "", "standard output is the program's");
    let text = stderr(&output);
    for word in ["grower (", "ROLE", "MISSING", "base pages, as requested"] {
        assert!(text.contains(word), "'{word}' is missing in:\n{text}");
    }
    assert!(
        !text.contains("hugeleaf promote"),
        "nothing can be done to a process that has ended:\n{text}"
    );
}

#[test]
fn nonsense_on_the_socket_does_no_harm() {
    let _host = hugeleaf_testkit::host_lock::shared();
    let Some(grower) = Grower::new("nonsense_on_the_socket_does_no_harm") else {
        return;
    };
    let (output, report) = grower.report("data 40 noise status 4");
    assert_eq!(output.status.code(), Some(4), "{}", stderr(&output));
    let processes = report["processes"].as_array().unwrap();
    assert_eq!(
        processes.len(),
        1,
        "process 1 is not one of ours: {processes:?}"
    );
    assert_eq!(processes[0]["name"], "grower");
}

#[test]
fn a_static_program_is_reported_without_the_library() {
    let _host = hugeleaf_testkit::host_lock::shared();
    let name = "a_static_program_is_reported_without_the_library";
    let Some(grower) = Grower::compiled(name, &["-static"]) else {
        return;
    };
    let file = grower.file();
    let flags = ["--report", file.to_str().unwrap()];
    let mut child = grower.started(&flags, "data 64 wait");
    hugeleaf_testkit::pause(
        std::time::Duration::from_secs(3),
        "it must not end before the first scans, which are invisible from outside",
    );
    child.end();
    let report: Value = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
    let process = &report["processes"][0];
    assert_eq!(process["at_exit"], false);
    let data = role(&process["roles"], "data");
    assert!(number(&data["missing_bytes"]) > 32 * MIB);
    let reason = data["reason"].as_str().unwrap();
    assert!(reason.starts_with("the library is not loaded"), "{reason}");
}

/// A grower that waits.
struct Waiting(ChildGuard);

impl Grower {
    /// Starts it, and returns when it reports that it is ready.
    fn started(&self, flags: &[&str], words: &str) -> Waiting {
        let mut child = self
            .command(flags, words)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        out.read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        Waiting(ChildGuard(child))
    }
}

impl Waiting {
    /// Lets it continue, and waits for its end.
    fn end(&mut self) {
        let child = &mut self.0.0;
        let _ = child.stdin.take().unwrap().write_all(b"go on\n");
        assert_eq!(child.wait().unwrap().code(), Some(0));
    }

    /// Returns `mem` of it. Without a report, `hugeleaf run` has become the program.
    fn mem(&self) -> Value {
        let output = run(&["mem", "--json", &self.0.pid()]);
        let answer: Value = serde_json::from_str(&good(&output)).unwrap();
        answer["processes"][0].clone()
    }
}

#[test]
fn mem_shows_a_living_program_role_by_role() {
    let _host = hugeleaf_testkit::host_lock::shared();
    let Some(grower) = Grower::new("mem_shows_a_living_program_role_by_role") else {
        return;
    };
    let mut child = grower.started(&["--data", "auto"], "data 100 shared 16 wait");
    let process = child.mem();
    assert_eq!(process["run"]["library_loaded"], true, "{}", process["run"]);
    assert!(sum(&role(&process["roles"], "data")["got"]) >= 100 * MIB);
    assert_eq!(sum(&role(&process["roles"], "shm")["got"]) / MIB, 16);
    let text = good(&run(&["mem", &child.0.pid()]));
    for word in ["under hugeleaf run:", "ROLE   ASKED", "\ndata", "\ntext"] {
        assert!(text.contains(word), "'{word}' is missing in:\n{text}");
    }
    child.end();
}

#[test]
fn a_program_that_wrote_over_its_environment_is_still_known() {
    let _host = hugeleaf_testkit::host_lock::shared();
    let name = "a_program_that_wrote_over_its_environment_is_still_known";
    let Some(grower) = Grower::new(name) else {
        return;
    };
    let mut child = grower.started(&[], "data 50 clean wait");
    let environ = std::fs::read(format!("/proc/{}/environ", child.0.pid())).unwrap();
    let has = |word: &[u8]| environ.windows(word.len()).any(|w| w == word);
    assert!(!has(b"HUGELEAF_RUN"), "the program did not do its part");
    let process = child.mem();
    assert!(
        process.get("run_error").is_none(),
        "{}",
        process["run_error"]
    );
    assert!(sum(&role(&process["roles"], "data")["got"]) >= 50 * MIB);
    child.end();
}

#[test]
fn nobody_else_can_enter_the_folder_of_the_socket() {
    let _host = hugeleaf_testkit::host_lock::shared();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("r.json");
    let script = "printf '%s\\n' \"$HUGELEAF_RUN\"; read -r line";
    let mut command = hugeleaf(&["run", "--report", file.to_str().unwrap()]);
    command.args(["--", "/bin/sh", "-c", script]);
    command.env("TMPDIR", folder.path());
    let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let mut child = ChildGuard(child.unwrap());
    let mut settings = String::new();
    let mut out = BufReader::new(child.0.stdout.take().unwrap());
    out.read_line(&mut settings).unwrap();
    // One part parses exactly what the other writes.
    let settings = parse_run_settings(settings.trim_end()).unwrap();
    let socket = PathBuf::from(settings.report.unwrap());
    let above = socket.parent().unwrap();
    let mode = std::fs::metadata(above).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700, "{}", above.display());
    drop(child.0.stdin.take());
    child.0.wait().unwrap();
    assert!(!above.exists(), "{} is left", above.display());
    assert!(file.exists());
}

#[test]
fn the_end_of_output_is_seen_while_the_program_lives() {
    let _host = hugeleaf_testkit::host_lock::shared();
    let folder = tempfile::tempdir().unwrap();
    let mut child = hugeleaf(&["run", "--report"])
        .arg(folder.path().join("report.json"))
        .args(["--", "sh", "-c", "echo said; exec >&-; read line; exit 3"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = String::new();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    // Ends only if no other process holds the pipe; the program itself waits for its input.
    while stdout.read_line(&mut said).unwrap() > 0 {}
    assert_eq!(said, "said\n");
    drop(child.stdin.take());
    assert_eq!(child.wait().unwrap().code(), Some(3));
}
