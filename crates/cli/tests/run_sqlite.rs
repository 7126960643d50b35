//! Tests `hugeleaf run --sqlite` in programs with several copies of SQLite, and in those that use it until they exit. The results must be
//! as without it. The programs are in `run_sqlite/`.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::common::{good, hugeleaf, not_run, repository, stderr, stdout};

/// Compiles sources of `run_sqlite/` to a file; returns true if the compiler supports that.
fn compiled(folder: &Path, to: &str, words: &str) -> bool {
    let mut command = Command::new("cc");
    command.current_dir(repository().join("crates/cli/tests/run_sqlite"));
    command.args(["-O2", "-w", "-fPIC", "-pthread", "-o"]);
    command.arg(folder.join(to)).args(words.split(' '));
    command.arg(format!("-L{}", folder.display()));
    command.arg(format!("-Wl,-rpath,{}", folder.display()));
    command.output().is_ok_and(|output| output.status.success())
}

/// Runs a command in that folder, under `run` with a cache of SQLite.
fn under_run(folder: &Path, words: &[&str]) -> Output {
    let mut command = hugeleaf(&["run", "--sqlite", "64M", "--"]);
    command.current_dir(folder).args(words);
    command.env_remove("LD_PRELOAD").output().unwrap()
}

fn bare(folder: &Path, words: &[&str]) -> Output {
    let mut command = Command::new(words[0]);
    command.current_dir(folder).args(&words[1..]);
    command.output().unwrap()
}

/// Each caller gets its usual copy, regardless of other loaded copies and of the binding of its calls.
#[test]
fn each_caller_gets_its_own_copy_of_sqlite() {
    let _host = hugeleaf_testkit::host_lock::shared();
    let folder = tempfile::tempdir().unwrap();
    let all = [
        ("host", "host.c -ldl"),
        ("libcopy.so", "-shared -DID=3 copy.c"),
        ("own.so", "-shared -DID=1 user.c copy.c"),
        ("own-now.so", "-shared -Wl,-z,now -DID=2 user.c copy.c"),
        ("needs.so", "-shared user.c -lcopy"),
        (
            "hidden.so",
            "-shared -fvisibility=hidden -DID=4 user.c copy.c",
        ),
        ("symbolic.so", "-shared -Wl,-Bsymbolic -DID=5 user.c copy.c"),
    ];
    if !all
        .iter()
        .all(|(to, words)| compiled(folder.path(), to, words))
    {
        return not_run(
            "each_caller_gets_its_own_copy_of_sqlite",
            "needs a C compiler (cc)",
        );
    }
    for (words, copies) in [
        ("-l ./own.so -u", 1),
        ("-l ./own.so -l ./own-now.so -u -u", 2),
        ("-l ./needs.so -l ./own-now.so -u", 2),
        ("-g ./libcopy.so -l ./own.so -u -d", 1),
        // Bound before another copy was loaded globally.
        ("-l ./own-now.so -g ./libcopy.so -u -l ./own.so -u", 2),
        ("-l ./hidden.so -l ./symbolic.so -u", 0),
        ("-l ./own.so -j -j", 1),
        ("-l ./own.so -u -l ./own-now.so -j -l ./needs.so -j", 3),
    ] {
        let words: Vec<&str> = ["./host"].into_iter().chain(words.split(' ')).collect();
        let (ours, own) = (
            under_run(folder.path(), &words),
            bare(folder.path(), &words),
        );
        assert!(ours.status.success(), "{words:?}: {}", stderr(&ours));
        assert_eq!(stdout(&ours), good(&own), "{words:?}");
        // These have no configurable cache, and each is reported once.
        let said = stderr(&ours).matches("it keeps its own cache").count();
        assert_eq!(said, copies, "{words:?}: {}", stderr(&ours));
    }
    // A built-in copy is reported before the program starts.
    assert!(compiled(folder.path(), "built-in", "-DOWN host.c -ldl"));
    let built_in = under_run(folder.path(), &["./built-in"]);
    let said = stderr(&built_in);
    assert!(
        said.contains("built-in contains SQLite with hidden functions"),
        "{said}"
    );
    let none = under_run(folder.path(), &["./host", "-d"]);
    assert_eq!(good(&none), "asked: 1 0\n", "a program without SQLite");
    assert_eq!(stderr(&none), "");
}

/// Their calls never reach the library, so they are found in the files that a process has mapped.
#[test]
fn a_report_names_hidden_copies_of_sqlite() {
    const TEST: &str = "a_report_names_hidden_copies_of_sqlite";
    let _host = hugeleaf_testkit::host_lock::shared();
    let folder = tempfile::tempdir().unwrap();
    for (to, words) in [
        ("host", "host.c -ldl"),
        ("exported.so", "-shared -DOWN -DID=1 user.c copy.c"),
        (
            "hidden.so",
            "-shared -fvisibility=hidden -DOWN -DID=4 user.c copy.c",
        ),
    ] {
        if !compiled(folder.path(), to, words) {
            return not_run(TEST, "needs a C compiler (cc)");
        }
    }
    let mut command = hugeleaf(&["run", "--sqlite", "64M", "--report", "pages.json", "--"]);
    command.args(["./host", "-l", "./exported.so", "-l", "./hidden.so", "-u"]);
    let output = command.current_dir(folder.path()).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let report = std::fs::read(folder.path().join("pages.json")).unwrap();
    let report: serde_json::Value = serde_json::from_slice(&report).unwrap();
    let hidden = folder.path().canonicalize().unwrap().join("hidden.so");
    assert_eq!(
        report["hidden_sqlite_files"],
        serde_json::json!([hidden.to_str().unwrap()])
    );
}

#[test]
fn sqlite_is_used_when_a_program_ends() {
    const TEST: &str = "sqlite_is_used_when_a_program_ends";
    let _host = hugeleaf_testkit::host_lock::shared();
    let folder = tempfile::tempdir().unwrap();
    if !compiled(folder.path(), "last", "last.c -l:libsqlite3.so.0") {
        return not_run(TEST, "needs a C compiler (cc) and libsqlite3.so.0");
    }
    let output = under_run(folder.path(), &["./last"]);
    let lines = ["main", "thread", "end of a thread", "at exit", "destructor"];
    let expected: String = lines
        .iter()
        .map(|line| format!("{line}: 0 0 0\n"))
        .collect();
    assert_eq!(good(&output), expected);
    assert_eq!(stderr(&output), "");
    // A program with a closed standard error is unaffected.
    let mut closed = hugeleaf(&["run", "--sqlite", "64M", "--", "sh", "-c", "./last 2>&-"]);
    let closed = closed.current_dir(folder.path()).output().unwrap();
    assert_eq!(stdout(&closed), expected);
}

/// Returns the Python for which `scripts/install-test-deps.sh` installed modules, otherwise the host's.
fn python() -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into());
    let ours = repository().join(target).join("sqlite-modules/bin/python3");
    match ours.exists() {
        true => ours,
        false => "python3".into(),
    }
}

/// Python modules with their own SQLite. Each absent one is named.
#[test]
fn modules_with_a_sqlite_of_their_own() {
    const TEST: &str = "modules_with_a_sqlite_of_their_own";
    const SCRIPT: &str = "\
import importlib, sqlite3, sys
own = sqlite3.connect('own.db')
own.execute('CREATE TABLE t (x)')
module = importlib.import_module(sys.argv[1])
if sys.argv[1] == 'apsw':
    cursor = module.Connection('its.db')
else:
    cursor = module.connect('its.db', isolation_level=None)
cursor.execute('CREATE TABLE t (id INTEGER PRIMARY KEY, x)')
cursor.execute('BEGIN')
for n in range(20000):
    cursor.execute('INSERT INTO t VALUES (?, ?)', (n, '%0200d' % n))
cursor.execute('COMMIT')
print(*cursor.execute('SELECT count(*), sum(id), sqlite_version() FROM t WHERE x > 0').fetchone())
print(*own.execute('SELECT sqlite_version()').fetchone())
";
    let _host = hugeleaf_testkit::host_lock::shared();
    let python = python();
    let has = |module: &str| {
        let import = format!("import sqlite3, {module}");
        let output = Command::new(&python).args(["-c", &import]).output();
        output.is_ok_and(|output| output.status.success())
    };
    let mut absent = 0;
    for (module, package) in [
        ("pysqlite3", "pysqlite3-binary"),
        ("sqlean", "sqlean.py"),
        ("apsw", "apsw"),
    ] {
        if !has(module) {
            let part = format!("the part of {TEST} with {module}");
            not_run(&part, &format!("needs pip install {package}"));
            absent += 1;
            continue;
        }
        let words = [python.to_str().unwrap(), "-c", SCRIPT, module];
        let folders = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let ours = under_run(folders[0].path(), &words);
        assert_eq!(
            good(&ours),
            good(&bare(folders[1].path(), &words)),
            "{module}"
        );
        assert_eq!(stderr(&ours), "", "{module}");
    }
    if absent == 3 {
        not_run(TEST, "none of these modules is installed");
    }
}
