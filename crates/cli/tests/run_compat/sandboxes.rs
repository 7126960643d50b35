//! Sanitizers, which have their own allocator and memory layout, and programs that install a filter of system calls.

use std::process::Output;

use super::under::{Line, Mode, UNDER, can_run, compare, program, program_with, same};
use crate::common::{is_root, not_run, refused, stderr, stdout};

/// Bare, the program finds its bug; under `run` it must do so with the same message.
fn finds_its_bug(test: &str, flag: &str, bug: &str, words: &str) {
    if !can_run(test) {
        return;
    }
    let flags = [flag, "-Wno-error", "-Wno-use-after-free"];
    let Some(planted) = program_with("planted", &flags, &format!("planted-{bug}")) else {
        return not_run(test, &format!("needs a compiler with {flag}"));
    };
    let run = |way: Mode, how: &str| -> Output {
        let mut command = way.command(&planted);
        command
            .arg(how)
            .env_remove("ASAN_OPTIONS")
            .env_remove("TSAN_OPTIONS")
            .output()
            .unwrap()
    };
    let bare = run(Mode::Bare, "well");
    if !bare.status.success() {
        let why = stderr(&bare).lines().next().unwrap_or("").to_owned();
        return not_run(test, &format!("it does not run bare: {why}"));
    }
    for way in UNDER {
        let under = run(way, "well");
        let said = format!("{way:?}: {}", stderr(&under));
        assert_eq!(under.status.code(), Some(0), "{said}");
        assert_eq!(stdout(&under), "done\n", "{said}");
    }
    let bare = run(Mode::Bare, bug);
    assert!(stderr(&bare).contains(words), "bare: {}", stderr(&bare));
    for way in UNDER {
        let under = run(way, bug);
        assert_eq!(
            under.status.code(),
            bare.status.code(),
            "{way:?}: {}",
            stderr(&under)
        );
        assert_eq!(stdout(&under), stdout(&bare), "{way:?}");
        assert!(
            stderr(&under).contains(words),
            "{way:?}: {}",
            stderr(&under)
        );
        let ours = stderr(&under)
            .lines()
            .filter(|l| l.starts_with("hugeleaf: "))
            .count();
        assert!(ours <= 1, "{way:?}: {}", stderr(&under));
    }
}

const ADDRESS: &str = "-fsanitize=address";

#[test]
fn the_address_sanitizer_finds_an_overflow() {
    let _host = hugeleaf_testkit::host_lock::shared();
    let test = "the_address_sanitizer_finds_an_overflow";
    finds_its_bug(test, ADDRESS, "overflow", "heap-buffer-overflow");
}

#[test]
fn the_address_sanitizer_finds_a_use_after_free() {
    let _host = hugeleaf_testkit::host_lock::shared();
    let test = "the_address_sanitizer_finds_a_use_after_free";
    finds_its_bug(test, ADDRESS, "after-free", "heap-use-after-free");
}

#[test]
fn the_leak_sanitizer_finds_a_leak() {
    let _host = hugeleaf_testkit::host_lock::shared();
    let test = "the_leak_sanitizer_finds_a_leak";
    finds_its_bug(test, "-fsanitize=leak", "leak", "12345 byte(s)");
}

#[test]
fn the_thread_sanitizer_finds_a_race() {
    let _host = hugeleaf_testkit::host_lock::shared();
    let test = "the_thread_sanitizer_finds_a_race";
    finds_its_bug(test, "-fsanitize=thread", "race", "data race");
}

/// The filter allows the calls of bare malloc. All others fail, kill, or only four are allowed.
fn shut_in(test: &str, words: [&str; 2]) {
    if can_run(test) {
        let sandbox = program("sandbox");
        compare(
            &sandbox,
            &[words[0], words[1], "150"],
            4,
            Line::None,
            |_| (),
        );
    }
}

#[test]
fn a_filter_that_refuses() {
    let _host = hugeleaf_testkit::host_lock::shared();
    shut_in("a_filter_that_refuses", ["errno", "prctl"]);
}

#[test]
fn a_filter_that_kills() {
    let _host = hugeleaf_testkit::host_lock::shared();
    shut_in("a_filter_that_kills", ["kill", "prctl"]);
}

#[test]
fn a_filter_that_kills_set_by_seccomp() {
    let _host = hugeleaf_testkit::host_lock::shared();
    shut_in("a_filter_that_kills_set_by_seccomp", ["kill", "seccomp"]);
}

#[test]
fn the_strict_mode() {
    let _host = hugeleaf_testkit::host_lock::shared();
    let test = "the_strict_mode";
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    if status.contains("Seccomp:\t2") {
        return not_run(test, "needs to be outside of a filter of system calls");
    }
    shut_in(test, ["strict", "prctl"]);
}

/// Root has every capability there but is still refused, so the report names the filter.
#[test]
fn tracing_behind_a_containers_filter() {
    let _host = hugeleaf_testkit::host_lock::shared();
    let test = "tracing_behind_a_containers_filter";
    if !can_run(test) {
        return;
    }
    if !is_root() {
        return not_run(test, "needs root");
    }
    let mut command = Mode::Bare.command(program("filtered"));
    let hugeleaf = assert_cmd::cargo::cargo_bin("hugeleaf");
    command.arg("container").arg(hugeleaf);
    let output = command.args(["trace", "--for", "1s"]).output().unwrap();
    refused(&output, 3, &["seccomp", "--intervals-only"]);
}

/// A container's initial restrictions. Huge pages still work, and shared memory, which would need its own file system, reports that it
/// stays on base pages.
#[test]
fn behind_a_containers_filter() {
    let _host = hugeleaf_testkit::host_lock::shared();
    if !can_run("behind_a_containers_filter") {
        return;
    }
    let filtered = program("filtered");
    for (name, word, line) in [
        ("held", "200", Line::None),
        ("sharing", "24", Line::Allowed),
    ] {
        let path = program(name);
        let run = |way: Mode| {
            let mut command = Mode::Bare.command(&filtered);
            command
                .arg("container")
                .args(way.words())
                .arg(&path)
                .arg(word);
            if way != Mode::Bare {
                command.env("COMPAT_LARGE", "1");
            }
            command.output().unwrap()
        };
        let bare = run(Mode::Bare);
        assert_eq!(stderr(&bare), "", "{name}");
        for way in UNDER {
            same(&bare, &run(way), line, &format!("{name}, {way:?}"));
        }
    }
}
