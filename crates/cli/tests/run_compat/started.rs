//! Loading the library into libc when threads exist before `main`, and on hosts that forbid one or another way of changing code.

use std::process::Output;

use super::under::{Line, Mode, UNDER, can_run, compare, program, program_with, same};
use crate::common::{not_run, stderr, stdout};

/// Compiles the program with a library whose constructor starts threads; `flags` compile the library.
fn with_early_threads(called: &str, flags: &[&str]) -> Option<std::path::PathBuf> {
    let mut all = vec!["-fPIC", "-shared"];
    all.extend(flags);
    let library = program_with("early", &all, &format!("lib{called}.so"))?;
    let folder = format!("-Wl,-rpath,{}", library.parent()?.display());
    program_with(
        "begun",
        &["-Wl,--no-as-needed", library.to_str()?, &folder],
        called,
    )
}

/// Runs often, so that a thread is caught in the middle of a libc function.
#[test]
fn threads_that_a_linked_library_started() {
    let _host = hugeleaf_testkit::host_lock::shared();
    if !can_run("threads_that_a_linked_library_started") {
        return;
    }
    let begun = with_early_threads("begun", &[]).unwrap();
    for _ in 0..hugeleaf_testkit::size(3, 10) {
        compare(&begun, &["150"], 3, Line::None, |_| ());
    }
}

/// Another library also asks to be first, and is. Its threads run before hugeleaf's library can count them, so libc stays unchanged.
#[test]
fn threads_that_were_there_first() {
    let _host = hugeleaf_testkit::host_lock::shared();
    let test = "threads_that_were_there_first";
    if !can_run(test) {
        return;
    }
    let Some(begun) = with_early_threads("begun_first", &["-Wl,-z,initfirst"]) else {
        return not_run(test, "needs a linker that knows -z initfirst");
    };
    let run = |way: Mode| -> Output {
        let mut command = way.command(&begun);
        command.arg("20").env_remove("COMPAT_LARGE");
        command.output().unwrap()
    };
    let bare = run(Mode::Bare);
    for way in UNDER {
        for _ in 0..10 {
            let under = run(way);
            same(&bare, &under, Line::Allowed, &format!("{way:?}"));
            let said = stderr(&under);
            assert!(
                said.contains("not active: threads were started"),
                "{way:?}: {said}"
            );
        }
    }
}

/// A program linked with a library that defines `shmget`, like libhugetlbfs, uses that definition.
#[test]
fn another_library_keeps_its_own_function() {
    let _host = hugeleaf_testkit::host_lock::shared();
    if !can_run("another_library_keeps_its_own_function") {
        return;
    }
    let library = program_with("ownshm", &["-fPIC", "-shared"], "libownshm.so").unwrap();
    let folder = format!("-Wl,-rpath,{}", library.parent().unwrap().display());
    let flags = ["-Wl,--no-as-needed", library.to_str().unwrap(), &folder];
    let segment = program_with("segment", &flags, "segment").unwrap();
    compare(&segment, &[], 3, Line::None, |_| ());
}

/// Runs a program behind a filter, in one mode.
fn behind(filter: &str, way: Mode, large: bool) -> Output {
    let mut command = Mode::Bare.command(program("filtered"));
    command.arg(filter).args(way.words()).arg(program("held"));
    if large && way != Mode::Bare {
        command.env("COMPAT_LARGE", "1");
    }
    command.arg("200").output().unwrap()
}

/// In place, by a memfd, through `/proc/self/mem`: the first permitted way is used.
#[test]
fn each_way_of_changing_code() {
    let _host = hugeleaf_testkit::host_lock::shared();
    if !can_run("each_way_of_changing_code") {
        return;
    }
    for filter in ["container", "no-new-code", "no-code-files"] {
        let bare = behind(filter, Mode::Bare, false);
        assert_eq!(bare.status.code(), Some(7), "{filter}: {}", stderr(&bare));
        for way in UNDER {
            let under = behind(filter, way, true);
            same(&bare, &under, Line::None, &format!("{filter}, {way:?}"));
        }
    }
}

/// The kernel fails between two parts of the change, and the program runs as bare.
#[test]
fn a_change_that_stops_halfway() {
    let _host = hugeleaf_testkit::host_lock::shared();
    if !can_run("a_change_that_stops_halfway") {
        return;
    }
    let bare = behind("half-new-code", Mode::Bare, false);
    assert_eq!(bare.status.code(), Some(7), "{}", stderr(&bare));
    for way in UNDER {
        let under = behind("half-new-code", way, false);
        same(&bare, &under, Line::Allowed, &format!("{way:?}"));
        let said = stderr(&under);
        // If the whole change is in one page, it cannot stop halfway.
        let whole = said.is_empty();
        assert!(whole || said.contains("not active"), "{way:?}: {said}");
    }
}

/// Libc's code keeps its name, so that profilers and debuggers find its functions. No page of it is both writable and executable.
#[test]
fn libcs_code_stays_libcs() {
    let _host = hugeleaf_testkit::host_lock::shared();
    if !can_run("libcs_code_stays_libcs") {
        return;
    }
    let maps = |way: Mode| -> String {
        let mut command = way.command("cat");
        let output = command.arg("/proc/self/maps").output().unwrap();
        stdout(&output)
    };
    for way in UNDER {
        let maps = maps(way);
        let code: Vec<&str> = maps.lines().filter(|l| l.contains("r-xp")).collect();
        let nameless = code.iter().find(|l| !l.contains('/') && !l.contains("[v"));
        assert_eq!(nameless, None, "{way:?}: {maps}");
        assert!(!maps.contains("memfd"), "{way:?}: {maps}");
        assert!(!maps.contains("rwxp"), "{way:?}: {maps}");
    }
}
