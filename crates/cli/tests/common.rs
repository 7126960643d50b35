//! Shared code of the tests of the real binary: runs it and checks its output.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

pub use hugeleaf_testkit::host_lock::{has_pool_in_use, has_surplus_pages};
pub use hugeleaf_testkit::process::{holder, works, zombie};
pub use hugeleaf_testkit::process_facts::children as children_of;
pub use hugeleaf_testkit::{
    ChildGuard, CommandOutput, NOBODY, files_below, is_root, not_run, repository,
    until as wait_until,
};

/// The program under test.
pub const HUGELEAF: &str = env!("CARGO_BIN_EXE_hugeleaf");

/// Returns the binary under test with a fixed environment: no terminal, no colour settings, English.
pub fn hugeleaf(args: &[&str]) -> Command {
    program(Path::new(HUGELEAF), args)
}

/// Returns a copy of the binary with the same environment.
pub fn program(path: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(path);
    command
        .args(args)
        .env_remove("NO_COLOR")
        .env_remove("COLUMNS")
        .env("LC_ALL", "C")
        // On a busy machine any command may take long enough for a line of progress.
        .env("HUGELEAF_TEST_PROGRESS", "1d")
        .stdin(Stdio::null());
    command
}

/// Runs the binary to its end.
pub fn run(args: &[&str]) -> Output {
    hugeleaf(args).output().unwrap()
}

/// Returns the standard output.
pub fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Returns the standard error.
pub fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Checks the form of a refusal: the status, exactly two lines on stderr, and each of `words` in them. Returns the two lines.
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

/// Checks for status 0 and an empty stderr. Returns standard output.
#[track_caller]
pub fn good(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(0), "stderr:\n{}", stderr(output));
    assert_eq!(stderr(output), "", "something on stderr");
    stdout(output)
}

/// Checks for an answer, positive or negative (status 1), and an empty stderr.
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

/// Runs the binary to its end, in the environment of the test.
pub fn answer(args: &[&str]) -> CommandOutput {
    CommandOutput::run(Command::new(HUGELEAF).args(args))
}

/// Returns a copy of the binary that every user may run, in a separate folder.
pub fn public_copy() -> (tempfile::TempDir, PathBuf) {
    public_copy_of(HUGELEAF)
}

/// Returns such a copy of another program.
pub fn public_copy_of(program: &str) -> (tempfile::TempDir, PathBuf) {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::Builder::new()
        .permissions(std::fs::Permissions::from_mode(0o755))
        .tempdir()
        .unwrap();
    let path = dir.path().join("hugeleaf");
    // Another process makes the copy. A descriptor open for writing here could be inherited by processes of other threads, and running the
    // copy would then fail ("text file busy").
    let copied = Command::new("cp").arg(program).arg(&path).status().unwrap();
    assert!(copied.success());
    (dir, path)
}

/// Returns the rows of an arm and a quantity in a result, in order of places.
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

/// Returns the values of a row.
pub fn samples(row: &serde_json::Value) -> Vec<f64> {
    let samples = row["samples"].as_array().expect("a row has samples");
    samples
        .iter()
        .map(|sample| sample["value"].as_f64().expect("a number"))
        .collect()
}

/// Returns the entries of an arm in one of a result's lists: `layouts`, `unavailable`.
pub fn of_arm<'a>(
    result: &'a serde_json::Value,
    list: &str,
    arm: &str,
) -> Vec<&'a serde_json::Value> {
    let all = result[list].as_array().into_iter().flatten();
    all.filter(|one| one["arm"] == arm).collect()
}

/// Returns a copy of a captured host with additional files.
pub fn host_with(fixture: &str, files: &[(&str, &str)]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let copied = Command::new("cp")
        .arg("-r")
        .arg(format!("fixtures/{fixture}/."))
        .arg(dir.path())
        .current_dir(repository())
        .status()
        .unwrap();
    assert!(copied.success());
    for (name, text) in files {
        let file = dir.path().join(name);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, text).unwrap();
    }
    dir
}
