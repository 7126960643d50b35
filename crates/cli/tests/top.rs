//! Tests `top` in its own terminal: keys, screens, and the restored terminal in every case.

use std::os::unix::process::ExitStatusExt;
use std::path::Path;

use crate::common::{
    ChildGuard, holder, hugeleaf, not_run, refused, repository, run, wait_until, works,
};
use hugeleaf_sys::Kernel;
use hugeleaf_testkit::host_lock::{self, HostAccess};
use hugeleaf_testkit::terminal::Terminal;
use rustix::process::{Pid, Signal, kill_process};

/// Returns true if a terminal can be created here; otherwise prints the reason.
fn can_run(test: &str) -> bool {
    let can = works("setsid", &["--ctty", "--version"]) && Path::new("/dev/ptmx").exists();
    if !can {
        not_run(test, "no setsid(1) of util-linux, or no pseudo-terminals");
    }
    can
}

fn top(args: &[&str], size: (u16, u16)) -> Terminal {
    let args: Vec<&str> = std::iter::once("top").chain(args.iter().copied()).collect();
    Terminal::start(Path::new(env!("CARGO_BIN_EXE_hugeleaf")), &args, size)
}

fn send(terminal: &Terminal, signal: Signal) {
    let pid = i32::try_from(terminal.child.0.id()).unwrap();
    kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
}

#[track_caller]
fn is_as_it_was(terminal: &Terminal) {
    assert!(
        terminal.is_line_mode(),
        "the terminal's modes are not as they were"
    );
    assert!(
        !terminal.is_full_screen(),
        "{}",
        String::from_utf8_lossy(&terminal.written)
    );
}

/// Filters the table to the process that holds memory.
fn only(terminal: &mut Terminal, held: &ChildGuard) {
    let pid = held.pid();
    terminal.wait_text("▼BASE");
    terminal.types(&format!("/{pid}\r"));
    terminal.wait_for("the holder alone", |s| {
        s.contains(&format!("> {pid:>7}")) && s.contains(&format!("filter: {pid}"))
    });
}

#[test]
fn keys_screens_and_sizes() {
    if !can_run("keys_screens_and_sizes") {
        return;
    }
    let held = holder(64, None);
    let mut terminal = top(&[], (80, 24));
    only(&mut terminal, &held);
    assert!(terminal.is_full_screen() && !terminal.is_line_mode());
    // Its memory has been scanned.
    let pid = held.pid();
    terminal.wait_for("its memory", |shown| {
        let row = shown
            .lines()
            .find(|line| line.contains(&format!("> {pid:>7}")));
        row.is_some_and(|row| row.contains('%') && row.contains('M'))
    });
    terminal.types("w");
    terminal.wait_text("resident:");
    terminal.types("\x1b");
    terminal.wait_text("filter:");
    terminal.types("?");
    terminal.wait_text("KEYS");
    terminal.types("q");
    terminal.wait_text("PRESSURE");
    let narrow = terminal.shown();
    assert!(!narrow.contains("HISTORY"), "{narrow}");
    terminal.resize(120, 40);
    terminal.wait_text("HISTORY");
    terminal.resize(40, 10);
    terminal.wait_text("needs 52 columns");
    terminal.resize(80, 24);
    terminal.wait_text("PRESSURE");
    // A click on a column head sorts by it, in the mouse protocol without a column limit. The head's position depends on a possible note
    // above it.
    let shown = terminal.shown();
    let above = shown.lines().take_while(|line| !line.contains("▼BASE"));
    let head = above.count() + 1;
    terminal.types(&format!("\x1b[<0;5;{head}M\x1b[<0;5;{head}m"));
    terminal.wait_text("▲PID");
    terminal.types("q");
    assert_eq!(terminal.end().code(), Some(0));
    is_as_it_was(&terminal);
}

/// Locks the host with THP on request only; needs root and a suitable kernel.
fn can_move(test: &str) -> Option<HostAccess> {
    let why = if hugeleaf_sys::effective_uid() != 0 {
        "needs root"
    } else if !Kernel::new().supports_collapse() {
        "needs MADV_COLLAPSE, Linux 6.1"
    } else {
        return Some(host_lock::advised());
    };
    not_run(test, why);
    None
}

#[test]
fn a_program_is_promoted_and_demoted_by_keys() {
    const NAME: &str = "a_program_is_promoted_and_demoted_by_keys";
    if !can_run(NAME) {
        return;
    }
    let Some(_host) = can_move(NAME) else { return };
    let held = holder(64, None);
    let mut terminal = top(&[], (100, 30));
    only(&mut terminal, &held);
    terminal.types("p");
    terminal.wait_text("to huge pages?");
    // An unassigned key does nothing, and n cancels.
    terminal.types("zn");
    terminal.wait_text("PRESSURE");
    terminal.types("p");
    terminal.wait_text("at --budget 10%");
    terminal.types("++++");
    terminal.wait_text("full speed");
    terminal.types("y");
    terminal.wait_text("promoted all");
    terminal.types("\x1b");
    let pid = held.pid();
    terminal.wait_for("its coverage", |shown| {
        let row = shown
            .lines()
            .find(|line| line.contains(&format!("> {pid:>7}")));
        row.is_some_and(|row| [" 9", " 100 %"].iter().any(|part| row.contains(part)))
    });
    terminal.types("d");
    terminal.wait_text("to base pages?");
    terminal.types("y");
    terminal.wait_text("demoted");
    // Sent together they would be one key with Alt.
    terminal.types("\x1b");
    terminal.wait_text("PRESSURE");
    terminal.types("q");
    assert_eq!(terminal.end().code(), Some(0));
    is_as_it_was(&terminal);
}

#[test]
fn every_end_gives_the_terminal_back() {
    if !can_run("every_end_gives_the_terminal_back") {
        return;
    }
    for (signal, status) in [
        (Signal::TERM, Some(15)),
        (Signal::HUP, Some(1)),
        (Signal::QUIT, Some(3)),
        (Signal::INT, None),
    ] {
        let mut terminal = top(&[], (80, 24));
        terminal.wait_text("PRESSURE");
        send(&terminal, signal);
        let ended = terminal.end();
        assert_eq!(ended.signal(), status, "{signal:?}: {ended:?}");
        is_as_it_was(&terminal);
    }
    // Ctrl-C, and q immediately, before the first sample.
    for keys in ["\x03", "q"] {
        let mut terminal = top(&[], (80, 24));
        terminal.wait_text("hugeleaf top");
        terminal.types(keys);
        assert_eq!(terminal.end().code(), Some(0));
        is_as_it_was(&terminal);
    }
}

#[test]
fn a_terminal_that_goes_away_ends_it() {
    if !can_run("a_terminal_that_goes_away_ends_it") {
        return;
    }
    let mut terminal = top(&[], (80, 24));
    terminal.wait_text("PRESSURE");
    terminal.close();
    let ended = terminal.end();
    assert!(
        ended.code() == Some(0) || ended.signal() == Some(1),
        "{ended:?}"
    );
}

#[test]
fn ctrl_z_stops_it_and_it_goes_on() {
    if !can_run("ctrl_z_stops_it_and_it_goes_on") {
        return;
    }
    for by_key in [true, false] {
        let mut terminal = top(&[], (80, 24));
        terminal.wait_text("PRESSURE");
        match by_key {
            true => terminal.types("\x1a"),
            false => send(&terminal, Signal::TSTP),
        }
        let stat = format!("/proc/{}/stat", terminal.child.pid());
        wait_until("it is stopped", || {
            terminal.take(std::time::Duration::from_millis(10));
            std::fs::read_to_string(&stat).is_ok_and(|text| text.contains(") T "))
        });
        while terminal.is_full_screen() {
            assert!(terminal.take(std::time::Duration::from_millis(100)));
        }
        is_as_it_was(&terminal);
        send(&terminal, Signal::CONT);
        terminal.wait_text("PRESSURE");
        assert!(terminal.is_full_screen() && !terminal.is_line_mode());
        terminal.types("q");
        assert_eq!(terminal.end().code(), Some(0));
        is_as_it_was(&terminal);
    }
}

#[test]
fn what_is_recorded_is_played() {
    if !can_run("what_is_recorded_is_played") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("looks.jsonl");
    let file = path.to_str().unwrap();
    let lines = || std::fs::read_to_string(&path).map_or(0, |text| text.lines().count());
    let held = holder(32, None);
    let mut terminal = top(&["--record", file], (80, 24));
    terminal.wait_text("PRESSURE");
    wait_until("three looks", || {
        terminal.take(std::time::Duration::from_millis(10));
        lines() > 3
    });
    terminal.types("q");
    assert_eq!(terminal.end().code(), Some(0));
    let count = lines() - 1;

    let mut terminal = top(&["--replay", file], (80, 24));
    terminal.wait_text(&format!("scan 1 of {count}"));
    terminal.types(" ");
    terminal.types("G");
    let last = "\x1b[C".repeat(count);
    terminal.types(&last);
    terminal.wait_text(&format!("scan {count} of {count}, the end"));
    only(&mut terminal, &held);
    terminal.types("p");
    terminal.wait_text("a recording cannot be promoted");
    terminal.types("q");
    assert_eq!(terminal.end().code(), Some(0));
    is_as_it_was(&terminal);

    // A second recording into the same file, and a damaged file, are refused before the screen is drawn.
    let mut again = top(&["--record", file], (80, 24));
    assert_eq!(again.end().code(), Some(3));
    assert!(
        again.shown().contains("hugeleaf: ") && !again.is_full_screen(),
        "{}",
        again.shown()
    );
    let text = std::fs::read_to_string(&path).unwrap();
    let broken: Vec<&str> = text.lines().take(2).chain(["{}"]).collect();
    std::fs::write(&path, broken.join("\n") + "\n").unwrap();
    let mut terminal = top(&["--replay", file], (120, 24));
    assert_eq!(terminal.end().code(), Some(3));
    let shown = terminal.shown().replace('\n', "");
    assert!(shown.contains("line 3: missing field `sample`"), "{shown}");
    assert!(shown.contains("next: name a file"), "{shown}");
}

#[test]
fn a_recording_that_was_cut_is_played_to_its_end() {
    if !can_run("a_recording_that_was_cut_is_played_to_its_end") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("looks.jsonl");
    let file = path.to_str().unwrap();
    let mut terminal = top(&["--record", file], (80, 24));
    wait_until("two looks", || {
        terminal.take(std::time::Duration::from_millis(10));
        std::fs::read_to_string(&path).is_ok_and(|text| text.lines().count() > 2)
    });
    // SIGKILL cannot be handled: the terminal stays as it is, and the file ends in the middle.
    send(&terminal, Signal::KILL);
    assert_eq!(terminal.end().signal(), Some(9));
    let text = std::fs::read(&path).unwrap();
    std::fs::write(&path, &text[..text.len() - 9]).unwrap();
    let mut terminal = top(&["--replay", file], (80, 24));
    terminal.wait_text("is incomplete and left out");
    terminal.types("q");
    assert_eq!(terminal.end().code(), Some(0));
}

#[test]
fn a_captured_host_is_shown_and_not_moved() {
    if !can_run("a_captured_host_is_shown_and_not_moved") {
        return;
    }
    let root = repository().join("fixtures/x86-4k-two-nodes");
    let mut terminal = top(&["--root", root.to_str().unwrap()], (80, 24));
    terminal.wait_text("MEMORY");
    terminal.types("p");
    terminal.types("q");
    assert_eq!(terminal.end().code(), Some(0));
    is_as_it_was(&terminal);
}

#[test]
fn without_colour_there_is_none() {
    if !can_run("without_colour_there_is_none") {
        return;
    }
    let mut terminal = Terminal::start(
        Path::new("/usr/bin/env"),
        &[
            "NO_COLOR=1",
            env!("CARGO_BIN_EXE_hugeleaf"),
            "top",
            "--read-only",
        ],
        (80, 24),
    );
    terminal.wait_text("PRESSURE");
    terminal.types("p");
    terminal.wait_text("--read-only was given");
    terminal.types("q");
    terminal.end();
    let text = String::from_utf8_lossy(&terminal.written).into_owned();
    let colours = text
        .split("\x1b[")
        .skip(1)
        .filter_map(|rest| rest.split_once('m'));
    let mut codes = colours.flat_map(|(codes, _)| codes.split(';'));
    let is_colour = |code: &str| {
        code.parse()
            .is_ok_and(|n: u32| (30..=38).contains(&n) || (40..=48).contains(&n))
    };
    assert!(!codes.any(is_colour), "{text:?}");
}

#[test]
fn without_a_terminal_it_says_what_else_there_is() {
    refused(&run(&["top"]), 3, &["not a terminal", "hugeleaf mem"]);
    refused(
        &run(&["top", "--json"]),
        2,
        &["no JSON", "hugeleaf mem --json"],
    );
    let both = hugeleaf(&["top", "--record", "a", "--replay", "b"])
        .output()
        .unwrap();
    refused(&both, 2, &["--replay"]);
    if works("script", &["-qec", "true", "/dev/null"]) {
        let dumb = std::process::Command::new("script")
            .args([
                "-qec",
                concat!(env!("CARGO_BIN_EXE_hugeleaf"), " top"),
                "/dev/null",
            ])
            .env("TERM", "dumb")
            .stdin(std::process::Stdio::null())
            .output()
            .unwrap();
        assert_eq!(dumb.status.code(), Some(3));
        assert!(crate::common::stdout(&dumb).contains("TERM is 'dumb'"));
    }
}
