//! Tests `hugeleaf prove` on a real process: this test program, started again as a worker. The worker reads its memory at random and counts
//! its operations in a file.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use hugeleaf_sys::{Errno, OwnMapping, Sharing};
use hugeleaf_testkit::host_lock::{self, HostAccess};
use hugeleaf_units::Bytes;
use serde_json::Value;

const COUNT_FILE: &str = "HUGELEAF_TEST_COUNT_FILE";
const MEMORY: Bytes = Bytes::from_mib(64);

/// The worker's code, not a test. It ends when its parent's end of the pipe closes.
#[test]
#[ignore = "the worker of the other tests"]
fn worker() {
    let Ok(path) = std::env::var(COUNT_FILE) else {
        return;
    };
    let mapping = OwnMapping::anonymous(MEMORY, Sharing::Private).unwrap();
    let base = hugeleaf_sys::Kernel::new();
    let step = base.base_page().bytes();
    mapping.touch(step).unwrap();
    std::thread::spawn(|| {
        // Ends with the test for any reason.
        let _ = std::io::Read::read(&mut std::io::stdin(), &mut [0; 1]);
        std::process::exit(0);
    });
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .open(&path)
        .unwrap();
    for count in 1u64.. {
        mapping.touch(step).unwrap();
        file.write_all_at(format!("{count:020}\n").as_bytes(), 0)
            .unwrap();
        hugeleaf_testkit::pause(Duration::from_millis(1), "other tests need the CPU as well");
    }
}

struct Worker {
    child: Child,
    count: PathBuf,
    dir: tempfile::TempDir,
}

impl Worker {
    fn start() -> Worker {
        let dir = tempfile::tempdir().unwrap();
        let count = dir.path().join("count");
        let child = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "prove::worker",
                "--ignored",
                "--nocapture",
                "--test-threads=1",
            ])
            .env(COUNT_FILE, &count)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let worker = Worker { child, count, dir };
        hugeleaf_testkit::until("the worker counts", || {
            std::fs::read_to_string(&worker.count).is_ok_and(|t| t.len() >= 20)
        });
        worker
    }

    fn pid(&self) -> String {
        self.child.id().to_string()
    }

    fn metric(&self) -> String {
        format!("cmd:cat {}", self.count.display())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Returns its memory on THP in bytes.
    fn huge(&self) -> u64 {
        let text = std::fs::read_to_string(format!("/proc/{}/smaps_rollup", self.pid())).unwrap();
        let line = text
            .lines()
            .find(|l| l.starts_with("AnonHugePages:"))
            .unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn prove() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hugeleaf"));
    command.arg("prove").stdin(Stdio::null());
    // On a busy machine an experiment may take long enough for a line of progress.
    command.env("HUGELEAF_TEST_PROGRESS", "1d");
    command
}

/// Returns a quick experiment; its numbers are meaningless, only its course is tested.
fn quick(worker: &Worker) -> Command {
    quick_to(worker, &worker.path("result.json"))
}

fn quick_to(worker: &Worker, output: &Path) -> Command {
    let mut command = prove();
    command
        .arg(worker.pid())
        .args(["--metric", &worker.metric(), "--pairs", "8"])
        .args(["--interval", "200ms", "--settle", "20ms", "--output"])
        .arg(output);
    command
}

fn said(output: &Output) -> (String, String) {
    (
        String::from_utf8_lossy(&output.stdout).into_owned(),
        String::from_utf8_lossy(&output.stderr).into_owned(),
    )
}

/// Fails unless the error has two lines: the failure and the next step.
fn assert_fails(mut command: Command, status: i32, says: &str) {
    let output = command.output().unwrap();
    let (_, err) = said(&output);
    assert_eq!(output.status.code(), Some(status), "{err}");
    assert!(err.contains(says), "'{says}' is not in: {err}");
    let lines: Vec<&str> = err.lines().collect();
    let at = lines.iter().position(|l| l.starts_with("hugeleaf: "));
    let at = at.unwrap_or_else(|| panic!("no error line: {err}"));
    assert!(lines[at + 1].starts_with("  next: "), "{err}");
}

fn is_root(test: &str) -> bool {
    let root = hugeleaf_sys::effective_uid() == 0;
    if !root {
        println!("not run: {test}: needs root");
    }
    root
}

/// Locks the host with THP on request only, so that any huge page comes from the test.
fn advised() -> HostAccess {
    host_lock::advised()
}

#[test]
fn wrong_usage() {
    for (args, says) in [
        (&["1", "--metric", "tps"][..], "not one of postgres:"),
        (&["1", "--metric", "gauge:cmd:x"], "direction"),
        (&["1", "--metric", "http://h/metrics"], "which metric"),
    ] {
        let mut command = prove();
        command.args(args);
        assert_fails(command, 2, says);
    }
    for args in [
        &["--metric", "cmd:echo 1"][..],
        &["1"],
        &["1", "--metric", "cmd:echo 1", "--pairs", "7"],
        &["1", "--metric", "cmd:echo 1", "--equal", "0%"],
        &["1", "--metric", "cmd:echo 1", "--confidence", "99.9%"],
        &["1", "--metric", "cmd:echo 1", "--for", "soon"],
    ] {
        let output = prove().args(args).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{args:?}");
    }
}

#[test]
fn missing_preconditions() {
    let mut nobody = prove();
    nobody.args(["no-such-process-here", "--metric", "cmd:echo 1"]);
    assert_fails(nobody, 3, "no process matches");
    let _host = advised();
    let worker = Worker::start();
    for (metric, says) in [
        ("cmd:echo x >&2; exit 9", "x"),
        ("cmd:echo many", "not a number"),
        ("redis:/no/such/socket", "redis"),
        ("mysql:/no/such/socket", "mysql"),
        ("postgres:host=/no/such/folder user=x", "postgres"),
        ("http://127.0.0.1:1/#x", "cannot be read"),
    ] {
        let mut command = prove();
        command.args([&worker.pid(), "--metric", metric]);
        assert_fails(command, 3, says);
        assert_eq!(worker.huge(), 0, "{metric}");
    }
}

#[test]
fn counters_or_a_clean_error() {
    use hugeleaf_perf::{CounterGroup, CounterKind, CounterScope, own_thread};
    let worker = Worker::start();
    let cycles = CounterGroup::open(CounterScope::Thread(own_thread()), &[CounterKind::Cycles]);
    match cycles.map_err(|e| e.errno) {
        Ok(_) => println!("not run: counters_or_a_clean_error: needs a machine without counters"),
        Err(errno) => {
            assert_ne!(errno, Errno::SRCH);
            for metric in ["cpi", "walk-cycles", "walk-cycles:r1001008"] {
                let mut command = prove();
                command.args([&worker.pid(), "--metric", metric]);
                assert_fails(command, 3, "no such hardware counter here");
            }
        }
    }
}

#[test]
fn a_result_and_everything_as_it_was() {
    if !is_root("a_result_and_everything_as_it_was") {
        return;
    }
    let _host = advised();
    let worker = Worker::start();
    let before = worker.huge();
    let output = quick(&worker)
        .arg("--html")
        .arg(worker.path("page.html"))
        .output()
        .unwrap();
    let (out, err) = said(&output);
    let text = std::fs::read_to_string(worker.path("result.json")).expect(&err);
    let result: Value = serde_json::from_str(&text).unwrap();
    let verdict = result["verdict"].as_str().unwrap();
    let status = if verdict == "faster" { 0 } else { 1 };
    assert_eq!(output.status.code(), Some(status), "{err}");
    // As in "30 % faster (95 % CI …": chance decides the verdict here.
    let headline = out.lines().next().unwrap();
    assert!(headline.contains(verdict), "{out}");
    assert_eq!(result["schema"], 2);
    assert_eq!(result["pairs"].as_array().unwrap().len(), 8);
    for (arm, label) in [(0, "base"), (1, "large")] {
        assert_eq!(result["arms"][arm]["name"], label);
        let row = &result["rows"][arm];
        assert_eq!(
            (&row["arm"], &row["quantity"]["main"]),
            (&label.into(), &true.into())
        );
        let samples = row["samples"].as_array().unwrap();
        assert!(!samples.is_empty());
        for sample in samples {
            for end in sample["coverage"].as_array().unwrap() {
                assert_eq!(end.as_f64().unwrap() > 0.5, label == "large", "{sample}");
            }
        }
    }
    assert_eq!(result["experiment"]["left_on"], "base");
    assert_eq!(result["left"]["as_found"], true, "{}", result["left"]);
    let in_words: Vec<&str> = out.split_whitespace().collect();
    let in_words = in_words.join(" ");
    assert!(in_words.contains("left on base pages, as found"), "{out}");
    assert_eq!(result["effect"]["estimator"], "hodges-lehmann");
    assert!(out.contains("Hodges-Lehmann"), "{out}");
    assert_eq!(result["settings"]["block_pairs"], 4);
    let pairs = result["pairs"].as_array().unwrap();
    let first = pairs.iter().filter(|p| p["first"] == "large").count();
    assert_eq!(first, 4, "{pairs:?}");
    assert!(result["host"]["kernel"].is_string());
    assert!(result["command"].as_array().unwrap().len() > 5);
    assert_eq!(worker.huge(), before);
    let page = std::fs::read_to_string(worker.path("page.html")).unwrap();
    assert!(page.contains("<svg") && page.contains(verdict));
}

#[test]
fn json_is_the_result() {
    if !is_root("json_is_the_result") {
        return;
    }
    let _host = advised();
    let worker = Worker::start();
    let output = quick(&worker).arg("--json").output().unwrap();
    let (out, err) = said(&output);
    assert_eq!(
        out,
        std::fs::read_to_string(worker.path("result.json")).expect(&err)
    );
    assert!(err.contains("result: "));
}

#[test]
fn a_dry_run_touches_nothing() {
    if !is_root("a_dry_run_touches_nothing") {
        return;
    }
    let _host = advised();
    let worker = Worker::start();
    let output = quick(&worker).arg("--dry-run").output().unwrap();
    let (out, err) = said(&output);
    assert_eq!(output.status.code(), Some(0), "{err}");
    assert!(
        out.contains("would promote") && out.contains("random order"),
        "{out}"
    );
    assert!(!worker.path("result.json").exists());
    assert_eq!(worker.huge(), 0);
}

/// Memory already on huge pages has no time before; dry run and run report it and change nothing.
#[test]
fn a_dry_run_and_a_run_agree() {
    if !is_root("a_dry_run_and_a_run_agree") {
        return;
    }
    let _host = advised();
    let worker = Worker::start();
    let mut promote = Command::new(env!("CARGO_BIN_EXE_hugeleaf"));
    let promoted = promote.args(["promote", &worker.pid()]).output().unwrap();
    assert!(promoted.status.success());
    let huge = worker.huge();
    let says = |more: &[&str]| {
        let output = quick(&worker).arg("--before-after").args(more).output();
        let output = output.unwrap();
        assert_eq!(output.status.code(), Some(3));
        said(&output).1
    };
    let run = says(&[]);
    assert!(run.contains("already on huge pages"), "{run}");
    assert_eq!(says(&["--dry-run"]), run);
    assert_eq!(worker.huge(), huge);
}

#[test]
fn a_metric_that_stands_still_or_falls() {
    if !is_root("a_metric_that_stands_still_or_falls") {
        return;
    }
    let _host = advised();
    let worker = Worker::start();
    let falling = worker.path("falling");
    std::fs::write(&falling, "1000").unwrap();
    let f = falling.display();
    for (metric, says) in [
        ("cmd:echo 5".to_owned(), "stood still"),
        (
            format!("cmd:n=$(cat {f}); echo $((n-1)) > {f}; echo $n"),
            "fell from",
        ),
        ("gauge:lower:cmd:echo -5".to_owned(), "above 0"),
    ] {
        let mut command = prove();
        command.args([&worker.pid(), "--metric", &metric, "--interval", "200ms"]);
        command.current_dir(worker.dir.path());
        assert_fails(command, 3, says);
        assert_eq!(worker.huge(), 0, "{metric}");
    }
}

#[test]
fn a_full_disk_costs_the_file_only() {
    if !is_root("a_full_disk_costs_the_file_only") {
        return;
    }
    let _host = advised();
    let worker = Worker::start();
    let full = worker.path("full");
    std::fs::create_dir(&full).unwrap();
    let mounted = Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=4k", "tmpfs"])
        .arg(&full)
        .status()
        .is_ok_and(|s| s.success());
    let target = match mounted {
        true => full.join("result.json"),
        false => "/dev/full".into(),
    };
    let output = quick_to(&worker, &target).output();
    let left = std::fs::read_dir(&full).map_or(0, Iterator::count);
    if mounted {
        assert!(
            Command::new("umount")
                .arg(&full)
                .status()
                .unwrap()
                .success()
        );
    }
    let output = output.unwrap();
    let (out, err) = said(&output);
    assert_eq!(output.status.code(), Some(3), "{err}");
    assert!(
        out.contains("8 pairs"),
        "the result is printed all the same: {out}"
    );
    let lines: Vec<&str> = err.lines().collect();
    assert_eq!(lines.len(), 2, "{err}");
    assert!(
        lines[0].starts_with("hugeleaf: ") && lines[0].contains("space"),
        "{err}"
    );
    assert!(lines[1].starts_with("  next: "), "{err}");
    assert_eq!(left, 0, "half a file was left");
    assert_eq!(worker.huge(), 0);
}

/// Starts an experiment of a minute, and waits until memory has been promoted.
fn long_running(worker: &Worker) -> Child {
    let mut child = prove()
        .arg(worker.pid())
        .args(["--metric", &worker.metric(), "--pairs", "500", "--output"])
        .arg(worker.path("result.json"))
        .args(["--interval", "100ms", "--settle", "10ms"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    hugeleaf_testkit::until("memory is moved", || {
        assert!(child.try_wait().unwrap().is_none(), "it ended early");
        worker.huge() > 0
    });
    child
}

#[test]
fn an_interrupt_puts_memory_back() {
    if !is_root("an_interrupt_puts_memory_back") {
        return;
    }
    let _host = advised();
    let worker = Worker::start();
    let child = long_running(&worker);
    let pid = child.id().to_string();
    assert!(
        Command::new("kill")
            .args(["-INT", &pid])
            .status()
            .unwrap()
            .success()
    );
    let output = child.wait_with_output().unwrap();
    let (out, err) = said(&output);
    // A few pairs may be complete by then, with any verdict.
    assert!(matches!(output.status.code(), Some(0 | 1)), "{err}");
    assert!(out.contains("interrupted"), "{out}");
    assert_eq!(worker.huge(), 0);
}

#[test]
fn a_terminal_that_closes_puts_memory_back() {
    if !is_root("a_terminal_that_closes_puts_memory_back") {
        return;
    }
    let _host = advised();
    for signal in ["-HUP", "-QUIT", "-TERM"] {
        let worker = Worker::start();
        let mut child = long_running(&worker);
        // The reader of its output exits first.
        drop(child.stderr.take());
        drop(child.stdout.take());
        for _ in 0..2 {
            let pid = child.id().to_string();
            let sent = Command::new("kill").args([signal, &pid]).status().unwrap();
            assert!(sent.success());
        }
        let status = child.wait().unwrap();
        assert!(matches!(status.code(), Some(0 | 1)), "{signal}: {status}");
        assert_eq!(worker.huge(), 0, "{signal}");
    }
}

#[test]
fn the_second_experiment_refuses_and_says_who() {
    if !is_root("the_second_experiment_refuses_and_says_who") {
        return;
    }
    let _host = advised();
    let worker = Worker::start();
    let child = long_running(&worker);
    let first = child.id().to_string();
    let mut second = quick_to(&worker, &worker.path("second.json"));
    second.current_dir(worker.dir.path());
    assert_fails(second, 3, &format!("another hugeleaf: process {first}"));
    assert!(!worker.path("second.json").exists());
    assert!(
        Command::new("kill")
            .args(["-INT", &first])
            .status()
            .unwrap()
            .success()
    );
    child.wait_with_output().unwrap();
    assert_eq!(worker.huge(), 0);
    // When its holder ends, the mark is released.
    let output = quick(&worker).arg("--dry-run").output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", said(&output).1);
}

#[test]
fn a_mark_of_somebody_else_stops_nobody() {
    if !is_root("a_mark_of_somebody_else_stops_nobody") {
        return;
    }
    let _host = advised();
    let worker = Worker::start();
    // A user who may read the process holds the lock exclusively by passing it on.
    let smaps = File::open(format!("/proc/{}/smaps", worker.pid())).unwrap();
    let mut holder = Command::new("sh");
    holder
        .args(["-c", "flock -x 0 && echo held && exec sleep 60"])
        .stdin(smaps)
        .stdout(Stdio::piped())
        .uid(65534)
        .gid(65534);
    let mut holder = match holder.spawn() {
        Ok(holder) => holder,
        Err(e) => panic!("{e}"),
    };
    let mut said_so = [0; 5];
    let mut out = holder.stdout.take().unwrap();
    let is_held = std::io::Read::read_exact(&mut out, &mut said_so).is_ok();
    let output = quick(&worker).arg("--dry-run").output();
    holder.kill().unwrap();
    holder.wait().unwrap();
    if !is_held {
        println!("not run: a_mark_of_somebody_else_stops_nobody: needs flock(1)");
        return;
    }
    let (out, err) = said(&output.unwrap());
    assert!(out.contains("would promote"), "{out}{err}");
}

#[test]
fn one_bad_reading_is_counted_and_ends_nothing() {
    if !is_root("one_bad_reading_is_counted_and_ends_nothing") {
        return;
    }
    let _host = advised();
    let worker = Worker::start();
    // The thirtieth reading starts again at 0, once.
    let readings = worker.path("readings");
    let metric = format!(
        "cmd:echo >> {r}; n=$(wc -l < {r}); if [ $n -eq 30 ]; then echo 0; else cat {}; fi",
        worker.count.display(),
        r = readings.display()
    );
    let output = prove()
        .arg(worker.pid())
        .args(["--metric", &metric, "--pairs", "8", "--interval", "200ms"])
        .args(["--settle", "20ms", "--output"])
        .arg(worker.path("result.json"))
        .output()
        .unwrap();
    let (out, err) = said(&output);
    assert!(matches!(output.status.code(), Some(0 | 1)), "{err}");
    assert!(out.contains("1 bad reading(s)"), "{out}");
    let text = std::fs::read_to_string(worker.path("result.json")).unwrap();
    let result: Value = serde_json::from_str(&text).unwrap();
    let bad = &result["bad_readings"];
    let count = |arm: &str| bad[arm].as_u64().unwrap();
    assert_eq!(count("base") + count("large"), 1, "{bad}");
    assert_eq!(result["pairs"].as_array().unwrap().len(), 8);
    assert_eq!(worker.huge(), 0);
}

#[test]
fn a_quantile_of_one_bucket_is_refused() {
    if !is_root("a_quantile_of_one_bucket_is_refused") {
        return;
    }
    let _host = advised();
    let worker = Worker::start();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    // Each page adds a hundred values with p99 between 0.02 and 0.05; the mean is 0.03.
    std::thread::spawn(move || {
        for (n, stream) in listener.incoming().enumerate() {
            let Ok(mut stream) = stream else { return };
            let _ = std::io::Read::read(&mut stream, &mut [0; 4096]);
            let (all, some, sum) = (100 * n, 40 * n, 3 * n);
            let body = format!(
                "lat_bucket{{le=\"0.02\"}} {some}\nlat_bucket{{le=\"0.05\"}} {all}\n\
                 lat_bucket{{le=\"+Inf\"}} {all}\nlat_sum {sum}\nlat_count {all}\n"
            );
            let length = body.len();
            let head = "HTTP/1.1 200 OK\r\nConnection: close\r\n";
            let _ = std::io::Write::write_all(
                &mut stream,
                format!("{head}Content-Length: {length}\r\n\r\n{body}").as_bytes(),
            );
        }
    });
    let measure = |what: &str| {
        let output = prove()
            .arg(worker.pid())
            .args(["--metric", &format!("http://{address}/#{what}")])
            .args(["--interval", "100ms", "--settle", "10ms", "--output"])
            .arg(worker.path("result.json"))
            .output()
            .unwrap();
        let text = std::fs::read_to_string(worker.path("result.json")).unwrap();
        let result: Value = serde_json::from_str(&text).unwrap();
        (output, result)
    };
    let (output, result) = measure("p99(lat)");
    let (out, err) = said(&output);
    assert_eq!(output.status.code(), Some(1), "{err}");
    let bounds = "unclear, between -60 and +150 % (95 % CI), ×0.40 to ×2.50";
    assert!(out.starts_with(bounds), "{out}");
    assert!(out.contains("are in one bucket"), "{out}");
    assert!(out.contains("#mean(lat)"), "{out}");
    assert_eq!(result["verdict"], "unclear");
    assert_eq!(result["buckets"]["shared"], serde_json::json!([0.02, 0.05]));
    assert_eq!(
        result["buckets"]["instead"],
        format!("http://{address}/#mean(lat)")
    );
    let (_, result) = measure("mean(lat)");
    assert_eq!(result["verdict"], "same", "{result}");
    let mean = result["rows"][0]["samples"][0]["value"].as_f64().unwrap();
    assert!((mean - 0.03).abs() < 1e-9, "{mean}");
    assert_eq!(result["equivalence"]["not_below"], true);
}

#[test]
fn a_target_that_ends_is_said_so() {
    if !is_root("a_target_that_ends_is_said_so") {
        return;
    }
    let _host = advised();
    let mut worker = Worker::start();
    let child = long_running(&worker);
    worker.child.kill().unwrap();
    worker.child.wait().unwrap();
    let output = child.wait_with_output().unwrap();
    let (_, err) = said(&output);
    assert_eq!(output.status.code(), Some(3), "{err}");
    // Either the worker's end or its stopped counter is noticed first.
    assert!(
        err.contains("ended during the experiment") || err.contains("stood still"),
        "{err}"
    );
}
