//! Names of processes, arguments, folders and files with terminal control characters.

use std::ffi::OsStr;

use super::{Seen, all_commands, bytes, give, ground, hostile, watched};

/// Returns true for characters that no terminal may get: controls, and text reordering or hiding.
fn acts(c: char) -> bool {
    let is_line = matches!(c, '\n' | '\t');
    let turns =
        matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}');
    (c.is_control() && !is_line) || turns || c == '\u{feff}'
}

#[track_caller]
fn is_harmless(seen: &Seen) {
    let text = seen.all();
    let bad: Vec<&str> = text.lines().filter(|line| line.chars().any(acts)).collect();
    assert!(bad.is_empty(), "{}: {bad:?}", seen.shown);
    // A page shows a line break as a blank.
    if seen.shown == "the page" {
        return;
    }
    let forged = text
        .lines()
        .find(|line| line.trim_start().starts_with("FORGED"));
    assert_eq!(forged, None, "{}:\n{text}", seen.shown);
}

#[test]
fn no_name_steers_a_terminal() {
    let Some((dir, program)) = ground("names::no_name_steers_a_terminal") else {
        return;
    };
    let folder = dir.path().join(bytes(b"cwd\x1b[2J\nFORGED\xe2\x80\xae"));
    std::fs::create_dir(&folder).unwrap();
    give(&folder);
    let file = folder.join(bytes(
        b"map\x1b]0;x\x07\nFORGED\xff\xc2\x9b31m\xe2\x80\x8b\r",
    ));
    std::fs::write(&file, "x").unwrap();
    give(&file);
    // Also used as a program, because its path is in every frame of a trace.
    let own = folder.join(bytes(b"\x1b[5mprogram\nFORGED"));
    std::fs::copy(&program, &own).unwrap();
    give(&own);
    let (name, line) = (
        bytes(b"\x1b[31m\nFORGED\x9b"),
        bytes(b"\nFORGED \x1b[2J\xe2\x80\xae\x7f"),
    );
    let what: Vec<&OsStr> = vec![
        &name,
        OsStr::new("file"),
        file.as_os_str(),
        OsStr::new("memory"),
        OsStr::new("150"),
        OsStr::new("made"),
        &line,
    ];
    let process = hostile(&own, &folder, &what);
    let pid = process.pid();
    for seen in all_commands(dir.path(), &pid) {
        is_harmless(&seen);
        if seen.shown.contains("--json") && !seen.stdout.is_empty() {
            let json = serde_json::from_slice::<serde_json::Value>(&seen.stdout);
            json.unwrap_or_else(|e| panic!("{}: {e}\n{}", seen.shown, seen.all()));
        }
    }
    // Errors repeat the typed text.
    let typed = bytes(b"x\x1b[31m\xe2\x80\xae");
    for command in [
        "mem", "why", "promote", "demote", "plan", "trace", "prove", "apply", "compare",
    ] {
        is_harmless(&watched(dir.path(), &[OsStr::new(command), &typed]));
    }
    let metric = [
        OsStr::new("prove"),
        OsStr::new(&pid),
        OsStr::new("--metric"),
        &typed,
    ];
    is_harmless(&watched(dir.path(), &metric));
}
