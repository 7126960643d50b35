//! What the tests of the real binary share: running it, and reading its answer as a person would.
#![allow(dead_code)] // each test program uses a part of it

use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use hugeleaf_host::{Pool, Root, read_host};
use hugeleaf_sys::Kernel;
use hugeleaf_units::Pages;

/// The user that owns nothing ("nobody").
pub const NOBODY: u32 = 65534;

/// The root of the repository.
pub fn repository() -> PathBuf {
    let mut folders = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
    let found = folders.find(|folder| folder.join("ARCHITECTURE.md").exists());
    found.unwrap().to_owned()
}

/// Every file below a folder, relative to it.
pub fn files_below(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(at) = folders.pop() {
        for entry in std::fs::read_dir(at).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                found.push(path.strip_prefix(folder).unwrap().to_owned());
            }
        }
    }
    found.sort();
    found
}

/// The binary under test, with a known environment: no terminal, no colour settings, English.
pub fn hugeleaf(args: &[&str]) -> Command {
    program(Path::new(env!("CARGO_BIN_EXE_hugeleaf")), args)
}

/// The same for a copy of it.
pub fn program(path: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(path);
    command
        .args(args)
        .env_remove("NO_COLOR")
        .env_remove("COLUMNS")
        .env("LC_ALL", "C")
        .stdin(Stdio::null());
    command
}

/// Runs it to its end.
pub fn run(args: &[&str]) -> Output {
    hugeleaf(args).output().unwrap()
}

/// Its standard output.
pub fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Its standard error.
pub fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Checks the shape of a refusal: the status, nothing but the two lines on stderr, and each of
/// `words` in them. Gives the two lines.
#[track_caller]
pub fn refused(output: &Output, status: i32, words: &[&str]) -> String {
    let text = stderr(output);
    assert_eq!(
        output.status.code(),
        Some(status),
        "exit status; stderr:\n{text}\nstdout:\n{}",
        stdout(output)
    );
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 2, "two lines expected, got:\n{text}");
    assert!(lines[0].starts_with("hugeleaf: "), "first line: {text}");
    assert!(lines[1].starts_with("  next: "), "second line: {text}");
    for word in words {
        assert!(text.contains(word), "'{word}' is missing in:\n{text}");
    }
    text
}

/// Checks that it ended well, with nothing on stderr. Gives standard output.
#[track_caller]
pub fn good(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(0), "stderr:\n{}", stderr(output));
    assert_eq!(stderr(output), "", "something on stderr");
    stdout(output)
}

/// Checks that there was an answer, good or not (status 1), and nothing on stderr.
#[track_caller]
pub fn answered(output: &Output) -> String {
    assert!(
        matches!(output.status.code(), Some(0 | 1)),
        "{:?}, stderr:\n{}",
        output.status,
        stderr(output)
    );
    assert_eq!(stderr(output), "", "something on stderr");
    let text = stdout(output);
    assert!(!text.is_empty(), "no answer");
    text
}

/// A child that is ended and reaped when the test is over, however that goes.
pub struct Running(pub Child);

impl Running {
    /// Its id as an argument.
    pub fn pid(&self) -> String {
        self.0.id().to_string()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A process that holds `mib` MiB of private memory and does nothing, as `uid` where given.
pub fn holder(mib: u32, uid: Option<u32>) -> Running {
    let script = format!(
        "x=$(head -c {}M /dev/zero | tr '\\0' x); echo ready; read -r line",
        mib
    );
    let mut command = Command::new("/bin/sh");
    command
        .args(["-c", &script])
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    if let Some(uid) = uid {
        command.uid(uid).gid(uid);
    }
    let mut child = command.spawn().unwrap();
    let mut ready = [0u8; 6];
    let mut out = child.stdout.take().unwrap();
    let running = Running(child);
    out.read_exact(&mut ready).expect("the holder came up");
    running
}

/// A process that has ended and that nobody has waited for.
pub fn zombie() -> Running {
    let child = Running(Command::new("true").spawn().unwrap());
    let stat = format!("/proc/{}/stat", child.pid());
    wait_until("the child is a zombie", || {
        std::fs::read_to_string(&stat).is_ok_and(|text| text.contains(") Z "))
    });
    child
}

/// Waits until something holds; fails the test after a minute.
#[track_caller]
pub fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < Duration::from_secs(60), "never: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The processes that a process started, by `/proc/PID/task/*/children`.
pub fn children_of(parent: u32) -> Vec<u32> {
    let path = format!("/proc/{parent}/task/{parent}/children");
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.split_whitespace()
        .map(|word| word.parse().unwrap())
        .collect()
}

/// Whether this test runs as root.
pub fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|m| {
        use std::os::unix::fs::MetadataExt;
        m.uid() == 0
    })
}

/// Says that a test could not be run, and why.
pub fn not_run(test: &str, why: &str) {
    println!("not run: {test}: {why}");
}

/// Whether somebody uses reserved pages of this host: no test can then set a pool to a size of its own.
pub fn has_pool_in_use() -> bool {
    any_pool(|pool| pool.used() > Pages(0))
}

/// Whether programs use pages that their pool is to lose: `undo` names them as still in use, whatever a test has done.
pub fn has_surplus_pages() -> bool {
    any_pool(|pool| pool.lasting() < pool.all())
}

fn any_pool(is: fn(&Pool) -> bool) -> bool {
    read_host(&Root::live(), &Kernel::new()).is_ok_and(|host| host.pools.iter().any(is))
}

/// A copy of the binary that every user may run, in a folder of its own.
pub fn public_copy() -> (tempfile::TempDir, PathBuf) {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::Builder::new()
        .permissions(std::fs::Permissions::from_mode(0o755))
        .tempdir()
        .unwrap();
    let path = dir.path().join("hugeleaf");
    // By another process: a descriptor that is open for writing here would be inherited by what
    // other threads start meanwhile, and the copy could not be run ("text file busy").
    let copied = Command::new("cp")
        .arg(env!("CARGO_BIN_EXE_hugeleaf"))
        .arg(&path)
        .status()
        .unwrap();
    assert!(copied.success());
    (dir, path)
}

/// Whether a command can be run here at all and says yes.
pub fn works(program: &str, args: &[&str]) -> bool {
    Command::new(program)
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// The rows of an arm and a quantity in a result, in its order of places.
pub fn rows<'a>(
    result: &'a serde_json::Value,
    arm: &str,
    what: &str,
) -> Vec<&'a serde_json::Value> {
    let rows = result["rows"].as_array().expect("a result has rows");
    let rows = rows
        .iter()
        .filter(|row| row["arm"] == arm && row["quantity"]["name"] == what);
    rows.filter(|row| !samples(row).is_empty()).collect()
}

/// The values of a row.
pub fn samples(row: &serde_json::Value) -> Vec<f64> {
    let samples = row["samples"].as_array().expect("a row has samples");
    samples
        .iter()
        .map(|sample| sample["value"].as_f64().expect("a number"))
        .collect()
}

/// What a result says of an arm in one of its lists: `layouts`, `unavailable`.
pub fn of_arm<'a>(
    result: &'a serde_json::Value,
    list: &str,
    arm: &str,
) -> Vec<&'a serde_json::Value> {
    let all = result[list].as_array().into_iter().flatten();
    all.filter(|one| one["arm"] == arm).collect()
}

/// The names of a result's arms.
pub fn arms(result: &serde_json::Value) -> Vec<&str> {
    let arms = result["arms"].as_array().expect("a result has arms");
    arms.iter()
        .map(|arm| arm["name"].as_str().expect("a name"))
        .collect()
}
