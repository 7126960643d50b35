//! Programs that fork, start others, load libraries, use threads, or are interrupted.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use super::numbers::{no_more, number};
use super::under::{Line, Mode, UNDER, can_run, clean, compare, program, program_with, same};
use crate::common::{NOBODY, is_root, not_run, public_copy, stderr, stdout};
use hugeleaf_testkit::{find_program, size};

#[test]
fn children_forked_while_threads_allocate() {
    let _host = hugeleaf_testkit::host_lock::shared();
    if !can_run("children_forked_while_threads_allocate") {
        return;
    }
    let forks = program("forks");
    let run = |way: Mode, children: &str| way.command(&forks).arg(children).output().unwrap();
    let bare = run(Mode::Bare, "30");
    assert!(bare.status.success(), "{}", stderr(&bare));
    let children = size("50", "200");
    same(&bare, &run(Mode::All, children), Line::None, "every role");
    same(
        &bare,
        &run(Mode::Defaults, children),
        Line::None,
        "defaults",
    );
}

#[test]
fn libraries_that_come_and_go() {
    let _host = hugeleaf_testkit::host_lock::shared();
    if !can_run("libraries_that_come_and_go") {
        return;
    }
    let plugin = program_with("plugin", &["-fPIC", "-shared"], "plugin.so").unwrap();
    compare(
        &program("loading"),
        &[
            plugin.to_str().unwrap(),
            hugeleaf_testkit::size("30", "100"),
        ],
        0,
        Line::None,
        |_| (),
    );
}

#[test]
fn programs_started_in_every_way() {
    let _host = hugeleaf_testkit::host_lock::shared();
    if can_run("programs_started_in_every_way") {
        compare(&program("spawning"), &["40"], 0, Line::None, |_| ());
    }
}

#[test]
fn handlers_that_map_and_allocate_and_jump() {
    let _host = hugeleaf_testkit::host_lock::shared();
    if can_run("handlers_that_map_and_allocate_and_jump") {
        compare(&program("signals"), &["500"], 0, Line::None, |_| ());
    }
}

#[test]
fn ten_thousand_threads() {
    let _host = hugeleaf_testkit::host_lock::shared();
    if !can_run("ten_thousand_threads") {
        return;
    }
    let threads = program("manythreads");
    let run = |way: Mode, stack: &str| {
        let output = way
            .command(&threads)
            .args([size("3000", "10000"), stack])
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "{way:?}: {}{}",
            stdout(&output),
            stderr(&output)
        );
        assert_eq!(stderr(&output), "", "{way:?}");
        output
    };
    // Default stacks, and small ones with every eligible stack examined.
    for (way, stack) in [(Mode::Defaults, "0"), (Mode::All, "65536")] {
        let (bare, under) = (run(Mode::Bare, stack), run(way, stack));
        println!("{} threads at once", number(&under, "threads"));
        assert_eq!(
            number(&under, "threads"),
            number(&bare, "threads"),
            "{way:?}"
        );
        no_more(
            "resident",
            number(&bare, "resident"),
            number(&under, "resident"),
            5,
            4,
        );
    }
}

#[test]
fn a_process_of_one_thread_stays_one() {
    let _host = hugeleaf_testkit::host_lock::shared();
    let test = "a_process_of_one_thread_stays_one";
    if !can_run(test) {
        return;
    }
    let userns = program("userns");
    let bare = Mode::Bare.command(&userns).arg("100").output().unwrap();
    if !bare.status.success() {
        return not_run(test, "needs unprivileged user namespaces");
    }
    // The new namespace cannot mount a file system, so shared memory prints a message.
    compare(&userns, &["100"], 0, Line::Allowed, |_| ());
}

#[test]
fn descriptors_closed_by_the_program_stay_its_own() {
    let _host = hugeleaf_testkit::host_lock::shared();
    if !can_run("descriptors_closed_by_the_program_stay_its_own") {
        return;
    }
    let closing = program("closing");
    for way in [Mode::Bare, Mode::All, Mode::Defaults] {
        let folder = tempfile::tempdir().unwrap();
        let output = way
            .command(&closing)
            .arg(folder.path())
            .arg("80")
            .output()
            .unwrap();
        let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
        assert_eq!(output.status.code(), Some(11), "{way:?}: {}", read("two"));
        assert_eq!(read("zero"), "", "{way:?}");
        assert_eq!(read("one"), "the program's own\n", "{way:?}");
        assert_eq!(read("two"), "", "{way:?}");
        assert_eq!(stdout(&output) + &stderr(&output), "", "{way:?}");
    }
}

/// Returns the path of the library that `run` loads into a program.
fn library() -> String {
    let mut command = Mode::Defaults.command("/bin/sh");
    let output = command
        .args(["-c", "printf %s \"$LD_PRELOAD\""])
        .output()
        .unwrap();
    let path = stdout(&output);
    assert!(Path::new(&path).is_file(), "{path}: {}", stderr(&output));
    path
}

/// Copies the library, readable by every user, to `library.so` in a folder.
pub fn public_library(folder: &Path) {
    let to = folder.join("library.so");
    assert!(
        Command::new("cp")
            .arg(library())
            .arg(&to)
            .status()
            .unwrap()
            .success()
    );
    std::fs::set_permissions(&to, std::fs::Permissions::from_mode(0o644)).unwrap();
}

#[test]
fn the_library_twice_and_again() {
    let _host = hugeleaf_testkit::host_lock::shared();
    if !can_run("the_library_twice_and_again") {
        return;
    }
    let (held, library) = (program("held"), library());
    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().join("again.so");
    std::fs::copy(&library, &copy).unwrap();
    let copy = copy.to_str().unwrap();
    let bare = Mode::Bare.command(&held).arg("150").output().unwrap();
    for list in [
        format!("{library}:{library}"),
        format!("{library}:{copy}"),
        format!("{copy}:{library}"),
    ] {
        for way in UNDER {
            let mut command = way.command("/bin/sh");
            let script = "LD_PRELOAD=$1 exec \"$2\" 150";
            let output = command
                .args(["-c", script, "sh", &list])
                .arg(&held)
                .output()
                .unwrap();
            same(&bare, &output, Line::Allowed, &format!("{list}, {way:?}"));
        }
    }
    // Also by name, in a program that already has it.
    let loading = program("loading");
    let plugin = program_with("plugin", &["-fPIC", "-shared"], "again_plugin.so").unwrap();
    let preload = format!("{library}:{}", plugin.display());
    let script = "LD_PRELOAD=$1 exec \"$2\" \"$3\" 50";
    let bare = Mode::Bare
        .command(&loading)
        .arg(&plugin)
        .arg("50")
        .output()
        .unwrap();
    for way in UNDER {
        let mut command = way.command("/bin/sh");
        command
            .args(["-c", script, "sh", &preload])
            .arg(&loading)
            .arg(&plugin);
        same(
            &bare,
            &command.output().unwrap(),
            Line::None,
            &format!("{way:?}"),
        );
    }
}

#[test]
fn opened_by_the_program_it_changes_nothing() {
    let _host = hugeleaf_testkit::host_lock::shared();
    let test = "opened_by_the_program_it_changes_nothing";
    let Some(python) = find_program(&["/usr/bin/python3", "python3"]) else {
        return not_run(test, "needs python3");
    };
    if !can_run(test) {
        return;
    }
    let script = "import ctypes, sys\nfor i in range(3):\n ctypes.CDLL(sys.argv[1])\n\
        x = [bytes(1000) for i in range(100000)]\nprint(sum(map(len, x)))";
    let (folder, library) = (tempfile::tempdir().unwrap(), library());
    let copy = folder.path().join("copy.so");
    std::fs::copy(&library, &copy).unwrap();
    for path in [Path::new(&library), &copy] {
        let run = |way: Mode| {
            let mut command = way.command(&python);
            command.args(["-c", script]).arg(path).output().unwrap()
        };
        let bare = run(Mode::Bare);
        assert_eq!(stdout(&bare), "100000000\n", "{}", stderr(&bare));
        for way in UNDER {
            same(
                &bare,
                &run(way),
                Line::Allowed,
                &format!("{} {way:?}", path.display()),
            );
        }
    }
}

/// Returns set-user-ID copies of `cat` and `env`, in a folder that everyone may enter.
fn setuid_copies() -> tempfile::TempDir {
    let folder = tempfile::Builder::new()
        .permissions(std::fs::Permissions::from_mode(0o755))
        .tempdir()
        .unwrap();
    for name in ["cat", "env"] {
        let copy = folder.path().join(name);
        let from = find_program(&[name]).unwrap();
        assert!(
            Command::new("cp")
                .arg(from)
                .arg(&copy)
                .status()
                .unwrap()
                .success()
        );
        std::fs::set_permissions(&copy, std::fs::Permissions::from_mode(0o4755)).unwrap();
    }
    folder
}

#[test]
fn a_setuid_child_goes_without() {
    let _host = hugeleaf_testkit::host_lock::shared();
    let test = "a_setuid_child_goes_without";
    if !is_root() || find_program(&["setpriv"]).is_none() {
        return not_run(test, "needs root and setpriv (util-linux)");
    }
    if !can_run(test) {
        return;
    }
    let copies = setuid_copies();
    let (folder, hugeleaf) = public_copy();
    public_library(folder.path());
    let script = "id -u; grep -c library.so /proc/self/maps; \
        echo setuid; \"$1/env\"; \"$1/cat\" /proc/self/maps /proc/self/status";
    let mut command = Command::new("setpriv");
    command
        .args([
            "--reuid",
            &NOBODY.to_string(),
            "--regid",
            &NOBODY.to_string(),
        ])
        .arg("--clear-groups")
        .arg(&hugeleaf)
        .args(["run", "--", "/bin/sh", "-c", script, "sh"])
        .arg(copies.path())
        .current_dir("/");
    clean(&mut command);
    command.env("HUGELEAF_RUN_LIBRARY", folder.path().join("library.so"));
    let output = command.output().unwrap();
    let text = stdout(&output);
    assert!(output.status.success(), "{text}{}", stderr(&output));
    let (before, after) = text.split_once("setuid\n").unwrap();
    let mut lines = before.lines();
    assert_eq!(lines.next(), Some(NOBODY.to_string().as_str()), "{text}");
    // The child that is not set-user-ID has the library; otherwise the rest proves nothing.
    assert!(lines.next().unwrap().parse::<u32>().unwrap() > 0, "{text}");
    assert!(
        after.contains(&format!("Uid:\t{NOBODY}\t0\t0")),
        "not set-user-ID: {text}"
    );
    let maps = after
        .lines()
        .filter(|line| line.contains("-") && line.contains(" r-xp "));
    assert!(maps.clone().count() > 1, "{text}");
    for line in maps {
        assert!(!line.contains("library.so"), "{line}");
    }
    assert!(
        !after.lines().any(|line| line.starts_with("LD_PRELOAD=")),
        "{text}"
    );
}
