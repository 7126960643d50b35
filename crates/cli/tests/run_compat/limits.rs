//! Programs under limits: address space, data, locked memory.

use std::process::{Command, Output};

use super::numbers::{huge, nth_number};
use super::under::{Line, Mode, UNDER, can_run, clean, program, same};
use crate::common::{NOBODY, is_root, not_run, public_copy, stderr, stdout, works};

/// Runs a program under a limit (`prlimit` of util-linux) until its memory is exhausted.
fn until_the_end(way: Mode, limit: &str, words: &[&str]) -> Output {
    let mut command = Command::new("prlimit");
    command
        .arg(limit)
        .args(way.words())
        .arg(program("limited"))
        .args(words);
    clean(&mut command);
    let output = command.output().unwrap();
    let said = format!(
        "{way:?} {limit} {words:?}: {}{}",
        stdout(&output),
        stderr(&output)
    );
    assert!(output.status.success(), "{said}");
    assert_eq!(stderr(&output), "", "{said}");
    output
}

/// Memory must be exhausted as in the bare program: at most a few windows earlier, and no later.
fn ends_where_bare_does(test: &str, limit: &str, bytes: u64) {
    if !can_run(test) {
        return;
    }
    if !works("prlimit", &["--version"]) {
        return not_run(test, "needs prlimit (util-linux)");
    }
    let limit = format!("--{limit}={bytes}");
    let all = [
        ["1048576", "mmap"],
        ["20000", "malloc"],
        ["65536", "sbrk"],
        ["1048576", "malloc"],
        ["1000", "malloc"],
    ];
    for words in &all[..hugeleaf_testkit::size(3, all.len())] {
        let bare = until_the_end(Mode::Bare, &limit, words);
        for way in UNDER {
            let under = until_the_end(way, &limit, words);
            for round in 0..2 {
                let word = format!("{round}:");
                let (had, has) = (nth_number(&bare, &word, 0), nth_number(&under, &word, 0));
                println!("{way:?} {limit} {words:?}: {has}, bare {had}");
                let window = 8 * huge();
                assert!(has + window >= had, "{way:?} {words:?}: {has}, bare {had}");
                assert!(has <= had + window, "{way:?} {words:?}: {has}, bare {had}");
            }
        }
    }
}

#[test]
fn a_limit_on_address_space() {
    let _host = hugeleaf_testkit::host_lock::shared();
    ends_where_bare_does(
        "a_limit_on_address_space",
        "as",
        hugeleaf_testkit::size(512 << 20, 1 << 30),
    );
}

#[test]
fn a_limit_on_data() {
    let _host = hugeleaf_testkit::host_lock::shared();
    ends_where_bare_does(
        "a_limit_on_data",
        "data",
        hugeleaf_testkit::size(256 << 20, 512 << 20),
    );
}

/// The stack has no limit, and addresses are scarce. Only the existing stack is prepared, and only
/// on request.
#[test]
fn a_stack_without_a_limit_in_little_address_space() {
    let _host = hugeleaf_testkit::host_lock::shared();
    let test = "a_stack_without_a_limit_in_little_address_space";
    if !can_run(test) {
        return;
    }
    let run = |way: Mode, script: &str| -> Output {
        let mut command = way.command("sh");
        command.args(["-c", script, "sh"]).arg(program("held"));
        command.env_remove("COMPAT_LARGE").output().unwrap()
    };
    let little = "ulimit -s unlimited && ulimit -v 60000 && exec \"$1\" 20";
    let bare = run(Mode::Bare, little);
    if bare.status.code() != Some(7) {
        return not_run(test, &format!("bare: {}", stderr(&bare)));
    }
    for way in UNDER {
        same(&bare, &run(way, little), Line::None, &format!("{way:?}"));
    }
    let stack = "ulimit -s unlimited && exec grep VmStk: /proc/self/status";
    let kib = nth_number(&run(Mode::Defaults, stack), "VmStk:", 0);
    assert!(kib < 1024, "{kib}K of stack are mapped, and nobody asked");
}

/// Runs as a user to whom the limit applies.
#[test]
fn thirty_two_kilobytes_of_locked_memory() {
    let _host = hugeleaf_testkit::host_lock::shared();
    let test = "thirty_two_kilobytes_of_locked_memory";
    if !is_root() || !works("setpriv", &["--version"]) || !works("prlimit", &["--version"]) {
        return not_run(test, "needs root, setpriv and prlimit (util-linux)");
    }
    if !can_run(test) {
        return;
    }
    let (folder, hugeleaf) = public_copy();
    for name in ["held", "sharing", "locked"] {
        let copy = folder.path().join(name);
        assert!(
            Command::new("cp")
                .arg(program(name))
                .arg(&copy)
                .status()
                .unwrap()
                .success()
        );
    }
    let run = |way: Mode, name: &str, word: &str| {
        let mut command = Command::new("prlimit");
        command
            .args(["--memlock=32768:32768", "setpriv", "--clear-groups"])
            .args([
                "--reuid",
                &NOBODY.to_string(),
                "--regid",
                &NOBODY.to_string(),
            ])
            .current_dir("/");
        let mut words = way.words();
        if let Some(first) = words.first_mut() {
            *first = hugeleaf.clone().into_os_string();
        }
        command.args(words).arg(folder.path().join(name)).arg(word);
        clean(&mut command);
        command.env("HOME", folder.path());
        if way != Mode::Bare {
            command
                .env("COMPAT_LARGE", "1")
                .env("HUGELEAF_RUN_LIBRARY", folder.path().join("library.so"));
        }
        command.output().unwrap()
    };
    super::processes::public_library(folder.path());
    for (name, word, status) in [
        ("held", "200", 7),
        ("sharing", "24", 0),
        ("locked", "50", 2),
    ] {
        let bare = run(Mode::Bare, name, word);
        assert_eq!(
            bare.status.code(),
            Some(status),
            "{name}: {}",
            stderr(&bare)
        );
        for way in UNDER {
            same(
                &bare,
                &run(way, name, word),
                Line::Allowed,
                &format!("{name} {way:?}"),
            );
        }
    }
}
