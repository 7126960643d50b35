//! Runs a program bare and under `hugeleaf run`, and compares the results.

use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;

use crate::common::{not_run, stderr, stdout};
use hugeleaf_testkit::process_facts;

/// Start mode of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Without hugeleaf.
    Bare,
    /// All roles on the host's huge pages, without a minimum size.
    All,
    /// `hugeleaf run` without a flag.
    Defaults,
}

/// Both modes that use hugeleaf.
pub const UNDER: [Mode; 2] = [Mode::All, Mode::Defaults];

impl Mode {
    /// Returns the words before the program's own.
    pub fn words(self) -> Vec<OsString> {
        let hugeleaf = env!("CARGO_BIN_EXE_hugeleaf");
        let huge = format!("{}K", process_facts::huge_page_kb().unwrap_or(0));
        let words: Vec<&str> = match self {
            Mode::Bare => Vec::new(),
            Mode::All => vec![
                hugeleaf, "run", "--data", &huge, "--shm", &huge, "--stack", &huge, "--",
            ],
            Mode::Defaults => vec![hugeleaf, "run", "--"],
        };
        words.into_iter().map(OsString::from).collect()
    }

    /// Returns the program's command in this mode.
    pub fn command(self, program: impl AsRef<Path>) -> Command {
        let mut words = self.words();
        words.push(program.as_ref().into());
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).stdin(Stdio::null());
        clean(&mut command);
        if self != Mode::Bare {
            command.env("COMPAT_LARGE", "1");
        }
        command
    }
}

/// Removes variables of a surrounding `hugeleaf run` or of a developer's settings.
pub fn clean(command: &mut Command) {
    for name in [
        "LD_PRELOAD",
        "HUGELEAF_RUN",
        "LDR_CNTRL",
        "LARGE_PAGE_DATA",
        "GLIBC_TUNABLES",
    ] {
        command.env_remove(name);
    }
    command.env("LC_ALL", "C");
}

/// Permitted additional output on stderr.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Line {
    /// Nothing.
    None,
    /// One line from hugeleaf, because something known is unavailable there.
    Allowed,
}

/// Returns stderr without hugeleaf's line; fails on a forbidden or a second line.
#[track_caller]
fn own_words(output: &Output, line: Line) -> String {
    let text = stderr(output);
    let (ours, own): (Vec<&str>, Vec<&str>) = text
        .lines()
        .partition(|line| line.starts_with("hugeleaf: "));
    let allowed = if line == Line::Allowed { 1 } else { 0 };
    assert!(ours.len() <= allowed, "{text}");
    own.join("\n")
}

/// Fails unless both runs have the same status and output.
#[track_caller]
pub fn same(bare: &Output, under: &Output, line: Line, what: &str) {
    let said = format!(
        "{what}\nstdout:\n{}stderr:\n{}\nbare, {}:\n{}{}",
        stdout(under),
        stderr(under),
        bare.status,
        stdout(bare),
        stderr(bare)
    );
    assert_eq!(under.status.code(), bare.status.code(), "{said}");
    assert_eq!(under.status.signal(), bare.status.signal(), "{said}");
    assert_eq!(stdout(under), stdout(bare), "{said}");
    assert_eq!(
        own_words(under, line),
        own_words(bare, Line::None),
        "{said}"
    );
}

/// Runs a program in all three modes and fails unless all results agree; `change` sets up each command. Bare, it must end with `status`,
/// because two identical failures prove nothing.
#[track_caller]
pub fn compare(
    program: &Path,
    words: &[&str],
    status: i32,
    line: Line,
    change: impl Fn(&mut Command),
) {
    let run = |way: Mode| {
        let mut command = way.command(program);
        command.args(words);
        change(&mut command);
        command
            .output()
            .unwrap_or_else(|e| panic!("{command:?}: {e}"))
    };
    let bare = run(Mode::Bare);
    assert_eq!(
        bare.status.code(),
        Some(status),
        "bare: {}{}",
        stdout(&bare),
        stderr(&bare)
    );
    for way in UNDER {
        same(
            &bare,
            &run(way),
            line,
            &format!("{} {words:?}, {way:?}", program.display()),
        );
    }
}

/// Returns true if this host has THP and a compiler; otherwise prints the reason.
pub fn can_run(test: &str) -> bool {
    if process_facts::huge_page_kb().is_none() {
        not_run(test, "needs transparent huge pages");
        return false;
    }
    let compiler = Command::new("cc").arg("--version").output();
    if !compiler.is_ok_and(|output| output.status.success()) {
        not_run(test, "needs a C compiler (cc)");
        return false;
    }
    true
}

fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/run_compat/c")
}

/// Returns the folder of compiled programs, which every user may run.
fn folder() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("run_compat");
        std::fs::create_dir_all(&folder).unwrap();
        folder
    })
}

/// Compiles `c/NAME.c` to `to`; returns true if the compiler supports these flags.
fn compile(name: &str, flags: &[&str], to: &Path) -> bool {
    // Compiles to a temporary name first, so that concurrent tests each see a complete program.
    let fresh = to.with_extension(format!("{:?}", std::thread::current().id()));
    let mut command = Command::new("cc");
    command
        .args([
            "-std=gnu11",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-O1",
            "-g",
            "-pthread",
        ])
        .args(flags)
        .arg(sources().join(format!("{name}.c")))
        .args(["-ldl", "-o"])
        .arg(&fresh);
    let output = command.output().unwrap();
    if output.status.success() {
        std::fs::rename(&fresh, to).unwrap();
    } else {
        println!("{command:?}\n{}", stderr(&output));
    }
    output.status.success()
}

/// Compiles a program of `c/`.
#[track_caller]
pub fn program(name: &str) -> PathBuf {
    let to = folder().join(name);
    assert!(compile(name, &[], &to), "{name} was not compiled");
    to
}

/// Compiles with flags that a compiler may lack.
pub fn program_with(name: &str, flags: &[&str], called: &str) -> Option<PathBuf> {
    let to = folder().join(called);
    compile(name, flags, &to).then_some(to)
}
