//! Core dumps, and a debugger that attaches.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};

use super::under::{Mode, UNDER, can_run, program};
use crate::common::{ChildGuard, not_run, stderr, stdout};

#[test]
fn a_core_dump_holds_all_memory() {
    let _host = hugeleaf_testkit::host_lock::shared();
    let test = "a_core_dump_holds_all_memory";
    if !can_run(test) {
        return;
    }
    let pattern = std::fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap();
    if pattern.starts_with('|') || pattern.contains('/') {
        return not_run(test, "core_pattern sends core dumps elsewhere");
    }
    let dumped = program("dumped");
    for way in [Mode::Bare, Mode::All, Mode::Defaults] {
        let folder = tempfile::tempdir().unwrap();
        let output = way
            .command(&dumped)
            .arg("80")
            .current_dir(folder.path())
            .output()
            .unwrap();
        let said = format!("{way:?}: {}{}", stdout(&output), stderr(&output));
        assert_eq!(output.status.signal(), Some(6), "{said}");
        assert_eq!(stderr(&output), "", "{said}");
        if !output.status.core_dumped() {
            return not_run(test, "the hard limit allows no core dumps");
        }
        let core = std::fs::read_dir(folder.path())
            .unwrap()
            .next()
            .unwrap()
            .unwrap()
            .path();
        let core = std::fs::read(core).unwrap();
        let pid = stdout(&output).trim().to_owned();
        for place in 0..3 {
            let marker = format!("marker-of the program-{place}-{pid}");
            let found = core
                .windows(marker.len())
                .any(|part| part == marker.as_bytes());
            assert!(found, "{marker} is not in the core: {said}");
        }
    }
}

/// A debugger reads and writes memory, and stops the program in a function that the library has patched.
#[test]
fn a_debugger_attaches_and_goes_on() {
    let _host = hugeleaf_testkit::host_lock::shared();
    let test = "a_debugger_attaches_and_goes_on";
    if !can_run(test) {
        return;
    }
    let (traced, tracer) = (program("traced"), program("tracer"));
    let mut ways = vec![Mode::Bare];
    ways.extend(UNDER);
    for way in ways {
        let mut command = way.command(&traced);
        command
            .arg("100")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut child = ChildGuard(command.spawn().unwrap());
        let mut to = child.0.stdin.take().unwrap();
        let mut from = BufReader::new(child.0.stdout.take().unwrap());
        let mut line = String::new();
        from.read_line(&mut line).unwrap();
        let words: Vec<&str> = line.split_whitespace().collect();
        assert_eq!(words.len(), 3, "{way:?}: {line}");
        let mut debugger = Command::new(&tracer);
        debugger
            .args(&words)
            .stdin(Stdio::null())
            .stdout(Stdio::piped());
        let mut debugger = ChildGuard(debugger.spawn().unwrap());
        let mut said = BufReader::new(debugger.0.stdout.take().unwrap());
        let mut running = String::new();
        said.read_line(&mut running).unwrap();
        assert_eq!(running, "running\n", "{way:?}");
        to.write_all(b"\n").unwrap();
        assert!(debugger.0.wait().unwrap().success(), "{way:?}");
        let mut rest = String::new();
        from.read_to_string(&mut rest).unwrap();
        assert_eq!(rest, "99aabbccddeeff\nwhole\n", "{way:?}");
        assert!(child.0.wait().unwrap().success(), "{way:?}");
    }
}

/// Checks that gdb can call a function in an unrelated program. That of Debian 12 cannot if the CPU has more registers than it knows.
fn gdb_calls_functions() -> Result<(), String> {
    let child = ChildGuard(Command::new("sleep").arg("60").spawn().unwrap());
    let output = Command::new("gdb")
        .args(["-nx", "-batch", "-p", &child.pid()])
        .args(["-ex", "print (int)getpid()", "-ex", "detach"])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    match stdout(&output).contains(&format!("= {}\n", child.pid())) {
        true => Ok(()),
        false => Err(stderr(&output).lines().last().unwrap_or("").to_owned()),
    }
}

/// The real gdb, if installed, finds the program's functions, including the patched ones.
#[test]
fn gdb_attaches() {
    let _host = hugeleaf_testkit::host_lock::shared();
    let test = "gdb_attaches";
    let gdb = Command::new("gdb").arg("--version").output();
    if !gdb.is_ok_and(|output| output.status.success()) {
        return not_run(test, "needs gdb");
    }
    if !can_run(test) {
        return;
    }
    if let Err(why) = gdb_calls_functions() {
        return not_run(test, &format!("needs a gdb that works here: {why}"));
    }
    let held = program("held");
    for way in UNDER {
        let mut command = way.command(&held);
        command
            .args(["150", "pause"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut child = ChildGuard(command.spawn().unwrap());
        let mut from = BufReader::new(child.0.stdout.take().unwrap());
        let mut line = String::new();
        while line != "ready\n" {
            line.clear();
            assert_ne!(from.read_line(&mut line).unwrap(), 0, "{way:?}: it ended");
        }
        let output = Command::new("gdb")
            .args(["-nx", "-batch", "-p", &child.pid()])
            .args([
                "-ex",
                "bt",
                "-ex",
                "print wanted",
                "-ex",
                "disassemble mmap",
            ])
            .args(["-ex", "print (int)getpid()", "-ex", "detach"])
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let text = stdout(&output);
        assert!(
            text.contains(" main (count=3"),
            "{way:?}: {text}{}",
            stderr(&output)
        );
        assert!(
            text.contains(&format!("= {}\n", child.pid())),
            "{way:?}: {text}"
        );
        child.0.stdin.take().unwrap().write_all(b"\n").unwrap();
        let mut rest = String::new();
        from.read_to_string(&mut rest).unwrap();
        assert_eq!(rest, "whole\n", "{way:?}");
        assert_eq!(child.0.wait().unwrap().code(), Some(7), "{way:?}");
    }
}
