//! Attacks of an unprivileged user on root's commands, on the real binary. Processes and files of `nobody` try to hang a command, to fill
//! its memory, to control its terminal, and to make it read or run forbidden files.

mod files;
mod names;

use std::ffi::{OsStr, OsString};
use std::io::Read;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use hugeleaf_testkit::host_lock::{self, SharedHost};

use crate::common::{ChildGuard, NOBODY, hugeleaf, is_root, not_run};

/// Time limit on any machine, however slow; a longer run means that the command hangs.
const HANGS: Duration = Duration::from_secs(120);

/// Maximum peak memory of a command, in kB.
const MOST_MEMORY: u64 = 200 << 10;

/// Compiles the program into a folder of `nobody`; `None` if this test cannot run here.
///
/// One test runs at a time, because each scans all processes and counts queries to its own.
fn ground(test: &str) -> Option<(Ground, PathBuf)> {
    if !is_root() {
        not_run(test, "needs root, and a user that is not");
        return None;
    }
    if !hugeleaf_testkit::apart_from_processes(&format!("others::{test}")) {
        return None;
    }
    let host = host_lock::shared();
    let dir = tempfile::Builder::new()
        .prefix("hugeleaf-others-")
        .tempdir()
        .unwrap();
    give(dir.path());
    let program = dir.path().join("hostile");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/others/hostile.c");
    let compiled = Command::new("cc")
        .args(["-O1", "-pthread", "-o"])
        .args([program.as_path(), source.as_path()])
        .status();
    match compiled {
        Ok(status) => assert!(status.success()),
        Err(error) => {
            not_run(test, &format!("needs a C compiler: cc: {error}"));
            return None;
        }
    }
    give(&program);
    Some((Ground { dir, _host: host }, program))
}

/// The folder, and the unchanged host.
struct Ground {
    dir: tempfile::TempDir,
    _host: SharedHost,
}

impl Ground {
    fn path(&self) -> &Path {
        self.dir.path()
    }
}

/// Makes the user the owner of a file.
fn give(path: &Path) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
    chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
}

fn fifo(path: &Path) {
    let made = Command::new("mkfifo").arg(path).status().unwrap();
    assert!(made.success());
    chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
}

/// Starts the program in a folder as the user, and waits until it is ready.
fn hostile(program: &Path, folder: &Path, arguments: &[&OsStr]) -> ChildGuard {
    let mut child = Command::new(program)
        .args(arguments)
        .current_dir(folder)
        .uid(NOBODY)
        .gid(NOBODY)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut ready = [0; 6];
    child
        .stdout
        .as_mut()
        .unwrap()
        .read_exact(&mut ready)
        .unwrap();
    assert_eq!(&ready, b"ready\n");
    ChildGuard(child)
}

fn words<'a>(line: &'a [&'a str]) -> Vec<&'a OsStr> {
    line.iter().map(OsStr::new).collect()
}

/// Result of a watched command.
struct Seen {
    shown: String,
    /// Its process id.
    pid: String,
    stdout: Vec<u8>,
    stderr: Vec<u8>,
}

impl Seen {
    fn all(&self) -> String {
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        text(&self.stdout) + &text(&self.stderr)
    }
}

/// Runs a command to its end, and fails if it hangs or takes too much memory.
#[track_caller]
fn watched(folder: &Path, arguments: &[&OsStr]) -> Seen {
    let shown = format!("hugeleaf {arguments:?}");
    let (out, err) = (folder.join("stdout"), folder.join("stderr"));
    let file = |path: &Path| std::fs::File::create(path).unwrap();
    let mut command = hugeleaf(&[]);
    command
        .args(arguments)
        .current_dir(folder)
        .stdout(file(&out))
        .stderr(file(&err));
    let mut child = ChildGuard(command.spawn().unwrap());
    let status = format!("/proc/{}/status", child.pid());
    let start = Instant::now();
    let mut largest = 0;
    let status = loop {
        let text = std::fs::read_to_string(&status).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let now = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse().ok());
        largest = largest.max(now.unwrap_or(0));
        if let Some(status) = child.0.try_wait().unwrap() {
            break status;
        }
        assert!(start.elapsed() < HANGS, "{shown} hangs");
        hugeleaf_testkit::pause(
            Duration::from_millis(5),
            "the rate of samples of its memory",
        );
    };
    println!(
        "{shown}: {status}, {:.2} s, {largest} kB",
        start.elapsed().as_secs_f64()
    );
    assert!(largest <= MOST_MEMORY, "{shown} took {largest} kB");
    let seen = Seen {
        pid: child.pid(),
        stdout: std::fs::read(out).unwrap(),
        stderr: std::fs::read(err).unwrap(),
        shown,
    };
    let is_known = matches!(status.code(), Some(0..=3));
    assert!(
        is_known && !seen.all().contains("panicked"),
        "{}: {status}\n{}",
        seen.shown,
        seen.all()
    );
    seen
}

/// Runs each command that reads a process or the host.
#[track_caller]
fn all_commands(folder: &Path, pid: &str) -> Vec<Seen> {
    let trace = folder.join("a.trace");
    let page = folder.join("page.html");
    let (trace, page) = (trace.to_str().unwrap(), page.to_str().unwrap());
    let _ = std::fs::remove_file(trace);
    let lines: Vec<Vec<&str>> = vec![
        vec!["status"],
        vec!["status", "--json"],
        vec!["mem"],
        vec!["mem", "--json"],
        vec!["mem", pid],
        vec!["mem", "--json", pid],
        vec!["why", pid],
        vec!["why", "--json", pid],
        vec!["plan"],
        vec!["plan", pid],
        vec!["plan", "--json", pid],
        vec!["verify"],
        vec!["verify", "--json"],
        vec!["verify", "--prometheus"],
        vec!["promote", "--dry-run", pid],
        vec!["promote", "--dry-run", "--json", pid],
        vec!["demote", "--dry-run", pid],
        vec!["trace", "--for", "300ms", "-o", trace, pid],
        vec!["trace", "show", trace, "--html", page],
        vec!["trace", "show", trace, "--json"],
    ];
    let run = |line: &Vec<&str>| watched(folder, &words(line));
    let mut seen: Vec<Seen> = lines.iter().map(run).collect();
    if let Ok(page) = std::fs::read(page) {
        seen.push(Seen {
            shown: "the page".to_owned(),
            pid: String::new(),
            stdout: page,
            stderr: Vec::new(),
        });
    }
    seen
}

/// Returns an argument of any bytes but zero.
fn bytes(text: &[u8]) -> OsString {
    use std::os::unix::ffi::OsStringExt;
    OsString::from_vec(text.to_vec())
}
