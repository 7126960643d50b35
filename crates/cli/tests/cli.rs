//! Tests the command line on the real binary: help, exit statuses, pipes, colour, JSON.

use crate::common::{
    answered, good, holder, hugeleaf, not_run, refused, repository, run, stderr, stdout, works,
};
use serde_json::Value;

/// Every interactive command.
const COMMANDS: [&str; 22] = [
    "status",
    "mem",
    "why",
    "check",
    "promote",
    "demote",
    "run",
    "plan",
    "apply",
    "undo",
    "verify",
    "warm",
    "prove",
    "guard",
    "balance",
    "metrics",
    "top",
    "trace",
    "bench",
    "compare",
    "try",
    "completions",
];

/// The help text changes only on purpose. After an intended change, `TRYCMD=overwrite cargo test -p
/// hugeleaf-cli --test cli help` rewrites it.
#[test]
fn help() {
    trycmd::TestCases::new()
        .register_bin(
            "hugeleaf",
            std::path::Path::new(env!("CARGO_BIN_EXE_hugeleaf")),
        )
        .env("LC_ALL", "C")
        .case("tests/help/*.trycmd");
}

/// One table has the exit statuses of all commands.
#[test]
fn every_command_has_its_exit_statuses_in_the_reference() {
    let path = repository().join("docs/reference/exit-status.md");
    let text = std::fs::read_to_string(path).unwrap();
    for command in COMMANDS {
        let row = format!("| `{command}` |");
        assert_eq!(text.matches(&row).count(), 1, "{row}");
    }
}

#[test]
fn every_command_has_help_and_a_snapshot_of_it() {
    for command in COMMANDS {
        let long = good(&run(&[command, "--help"]));
        assert!(long.contains("Usage: hugeleaf"), "{long}");
        let short = good(&run(&[command, "-h"]));
        // They differ if something switches clap to its long layout, such as a doc comment on a value of a flag.
        assert_eq!(short, long, "{command}");
        let snapshot = format!("crates/cli/tests/help/{command}.trycmd");
        assert!(
            repository().join(&snapshot).exists(),
            "{snapshot} is missing"
        );
    }
}

/// The reference names exactly the flags of every command.
#[test]
fn the_reference_knows_every_flag() {
    let text = std::fs::read_to_string(repository().join("docs/reference/commands.md")).unwrap();
    for command in COMMANDS {
        let section = text
            .split("\n## ")
            .find(|s| s.starts_with(&format!("`hugeleaf {command}")))
            .unwrap_or_else(|| panic!("commands.md has no section on {command}"));
        let help = good(&run(&[command, "--help"]));
        let global = ["--json", "--root", "--help", "--version"];
        for flag in flags(&help).filter(|f| !global.contains(&f.as_str())) {
            assert!(
                section.contains(&format!("`{flag}")),
                "{command} {flag} is not described"
            );
        }
        for flag in flags(section).filter(|f| !global.contains(&f.as_str())) {
            assert!(help.contains(&flag), "{command} has no {flag} any more");
        }
    }
}

/// Returns every `--flag` in a text.
fn flags(text: &str) -> impl Iterator<Item = String> + '_ {
    text.split(|c: char| !(c.is_ascii_lowercase() || c == '-'))
        .filter(|word| word.len() > 2 && word.starts_with("--") && !word.starts_with("---"))
        .map(str::to_owned)
}

#[test]
fn wrong_usage_is_status_2() {
    for args in [
        &["--no-such-flag"][..],
        &["no-such-command"],
        &["mem", "--no-such-flag"],
        &["completions"],
    ] {
        let output = run(args);
        assert_eq!(
            output.status.code(),
            Some(2),
            "{args:?}: {}",
            stderr(&output)
        );
        assert_eq!(stdout(&output), "");
        let said = stderr(&output);
        let lines: Vec<&str> = said.lines().collect();
        assert_eq!(lines.len(), 2, "{said}");
        assert!(lines[0].starts_with("hugeleaf: "), "{said}");
        assert!(
            lines[1].starts_with("  next: ") && lines[1].contains("--help"),
            "{said}"
        );
    }
}

#[test]
fn the_version_is_that_of_the_package() {
    let text = good(&run(&["--version"]));
    assert_eq!(
        text.trim(),
        format!("hugeleaf {}", env!("CARGO_PKG_VERSION"))
    );
}

/// In a pipe there is no colour and no cursor movement, and in a short command no progress.
#[test]
fn quiet_in_pipes() {
    for args in [&["status"][..], &["mem"], &["mem", "--global"]] {
        let text = good(&run(args));
        assert!(
            !text.contains('\x1b') && !text.contains('\r'),
            "{args:?}:\n{text}"
        );
        assert!(!text.is_empty());
    }
}

/// A longer command prints lines of progress to stderr. Its answer is the same.
#[test]
fn progress_in_a_pipe_is_a_line_at_intervals() {
    let _host = hugeleaf_testkit::host_lock::shared();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("a.trace");
    for (period, prints) in [("100ms", true), ("1d", false)] {
        let mut command = hugeleaf(&["trace", "--for", "3s", "--intervals-only", "--json", "-o"]);
        let command = command.arg(&file).env("HUGELEAF_TEST_PROGRESS", period);
        let output = command.output().unwrap();
        let lines = stderr(&output);
        assert_eq!(output.status.code(), Some(0), "{lines}");
        let line = lines
            .lines()
            .find(|line| line.starts_with("hugeleaf: tracing"));
        assert_eq!(line.is_some(), prints, "{lines}");
        assert!(line.is_none_or(|line| line.contains(" %")), "{lines}");
        assert!(!lines.contains('\x1b') && !lines.contains('\r'), "{lines}");
        serde_json::from_str::<Value>(&stdout(&output)).unwrap();
    }
}

/// A terminal may get colour, unless NO_COLOR is set.
#[test]
fn no_color_is_honoured() {
    if !works("script", &["-qec", "true", "/dev/null"]) {
        return not_run("no_color_is_honoured", "no script(1) to make a terminal");
    }
    let output = std::process::Command::new("script")
        .args([
            "-qec",
            concat!(env!("CARGO_BIN_EXE_hugeleaf"), " status"),
            "/dev/null",
        ])
        .env("NO_COLOR", "1")
        .env("TERM", "xterm-256color")
        .stdin(std::process::Stdio::null())
        .output()
        .unwrap();
    let text = stdout(&output);
    assert!(text.contains('\n'), "nothing came");
    // Colours are SGR sequences, which end in m.
    let colours = text
        .split("\x1b[")
        .skip(1)
        .filter(|rest| {
            rest.trim_start_matches(|c: char| c.is_ascii_digit() || c == ';')
                .starts_with('m')
        })
        .count();
    assert_eq!(colours, 0, "{text:?}");
}

/// `hugeleaf mem | head -1`: a closed pipe is not an error.
#[test]
fn a_reader_that_goes_away_is_no_error() {
    for args in [
        &["status"][..],
        &["mem"],
        &["mem", "--json"],
        &["completions", "bash"],
    ] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = hugeleaf(args).stdout(writer).output().unwrap();
        assert_eq!(stderr(&output), "", "{args:?}");
        assert_eq!(output.status.code(), Some(0), "{args:?}");
    }
}

/// Every `--json` answer is one object with `"schema": 2`.
#[test]
fn json_has_a_schema() {
    for args in [
        &["status", "--json"][..],
        &["mem", "--json"],
        &["mem", "--global", "--json"],
    ] {
        let value: Value = serde_json::from_str(&good(&run(args))).unwrap();
        assert_eq!(value["schema"], 2, "{args:?}");
        units_are_in_the_names(&value, &mut Vec::new());
    }
}

/// Names of byte counts end in `_bytes` and their values are integers. An unreadable value is null
/// and has a sibling with the reason.
fn units_are_in_the_names(value: &Value, path: &mut Vec<String>) {
    match value {
        Value::Object(map) => {
            for (key, inner) in map {
                path.push(key.clone());
                if key.ends_with("_bytes") {
                    assert!(inner.is_u64() || inner.is_null(), "{path:?}: {inner}");
                }
                if inner.is_null() {
                    assert!(
                        map.contains_key(&format!("{key}_error")),
                        "{path:?} is null"
                    );
                }
                units_are_in_the_names(inner, path);
                path.pop();
            }
        }
        Value::Array(items) => items.iter().for_each(|i| units_are_in_the_names(i, path)),
        _ => {}
    }
}

#[test]
fn completions_for_every_shell() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = good(&run(&["completions", shell]));
        for command in COMMANDS {
            assert!(script.contains(command), "{shell}: {command}");
        }
    }
    if works("bash", &["--version"]) {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("hugeleaf.bash");
        std::fs::write(&file, good(&run(&["completions", "bash"]))).unwrap();
        assert!(works("bash", &["-n", file.to_str().unwrap()]));
    }
}

#[test]
fn a_manual_page_for_every_command() {
    let dir = tempfile::tempdir().unwrap();
    good(&run(&["manpages", dir.path().to_str().unwrap()]));
    for command in COMMANDS {
        let page = dir.path().join(format!("hugeleaf-{command}.1"));
        let text = std::fs::read_to_string(&page).unwrap();
        assert!(text.contains(".SH SYNOPSIS"), "{}", page.display());
    }
}

/// A folder that is not a captured host is reported with its path.
#[test]
fn a_root_that_is_no_host() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().to_str().unwrap();
    let no_proc = [root, "/proc: missing", "at least proc/self/auxv"];
    for command in ["status", "mem", "why"] {
        let arguments = [command, "--root", root, "1"];
        let most = if command == "status" { 3 } else { 4 };
        refused(&run(&arguments[..most]), 3, &no_proc);
    }
    std::fs::create_dir(dir.path().join("proc")).unwrap();
    let no_auxv = ["/proc/self/auxv: missing", "KernelPageSize"];
    refused(&run(&["status", "--root", root]), 3, &no_auxv);
    refused(
        &run(&["mem", "--root", "/no/such/folder"]),
        3,
        &["/no/such/folder/proc: missing"],
    );
}

/// docs/reference/json.md names every field that the commands print.
#[test]
fn the_reference_knows_every_field() {
    let text = std::fs::read_to_string(repository().join("docs/reference/json.md")).unwrap();
    let held = holder(8, None);
    for args in [
        &["status"][..],
        &["mem"],
        &["mem", "--global"],
        &["mem", &held.pid()],
        &["why", &held.pid()],
        &["promote", "--dry-run", &held.pid()],
        &["demote", "--dry-run", &held.pid()],
    ] {
        let output = hugeleaf(args).arg("--json").output().unwrap();
        let value: Value = serde_json::from_str(&answered(&output)).unwrap();
        let mut names = std::collections::BTreeSet::new();
        field_names(&value, &mut names);
        for name in names.iter().filter(|name| !name.ends_with("_error")) {
            let marked = [format!("`{name}`"), format!("`{name}[]`")];
            assert!(
                marked.iter().any(|m| text.contains(m)),
                "{args:?} prints {name}, and json.md does not say what that is"
            );
        }
    }
}

fn field_names(value: &Value, names: &mut std::collections::BTreeSet<String>) {
    match value {
        Value::Object(map) => {
            for (key, inner) in map {
                names.insert(key.clone());
                field_names(inner, names);
            }
        }
        Value::Array(items) => items.iter().for_each(|i| field_names(i, names)),
        _ => {}
    }
}
