//! A hostile user's kit: what an ordinary user can prepare on a host, and root's commands among it.
//! Nothing hangs, nothing is written that was not asked for, no memory is filled, no escape
//! sequence reaches the screen, and nothing of the user's runs as root.
//!
//! This is the one place where a limit on time is the promise: a command that waits for somebody
//! else is killed, and that fails the test. Needs root and a C compiler.

// A panic is how a test fails, also in its helpers.
#![allow(clippy::unwrap_used)]

#[path = "../cli_support/mod.rs"]
mod cli_support;
mod kit;

use std::path::Path;

use kit::{Kit, assert_untouched};

/// The commands that look at processes of others, at a process and at the host.
fn look_at(kit: &Kit, target: &str) {
    for command in [&["mem"][..], &["why"], &["promote", "--dry-run"]] {
        kit.hugeleaf(&[command, &[target]].concat());
        kit.hugeleaf(&[command, &["--json", target]].concat());
    }
}

/// A plan of root's own, in root's own folder.
fn plan(kit: &Kit, name: &str) -> String {
    let file = kit.roots(name).display().to_string();
    let seen = kit.hugeleaf(&["plan", "--bytes", "4M", "--output", &file]);
    let said = String::from_utf8_lossy(&seen.err).into_owned();
    assert!(matches!(seen.status, 0 | 1), "{said}");
    file
}

#[test]
#[ignore = "needs the safe reader"]
fn hundreds_of_oddly_named_processes() {
    let Some(mut kit) = Kit::new("hundreds_of_oddly_named_processes") else {
        return;
    };
    let odd = kit.folder("\u{1b}[31mfolder\u{7}");
    kit.start(
        "crowd",
        "crowd",
        "300",
        &["--\u{1b}[2Jargument", &"x".repeat(64)],
        &odd,
    );
    let crowd = kit.last().to_string();
    kit.start("postgres", "storm", "", &["-D", "/nowhere"], &odd);
    let before = kit.inventory();
    for command in [
        &["status"][..],
        &["mem"],
        &["mem", "--all"],
        &["verify"],
        &["plan"],
    ] {
        kit.hugeleaf(command);
        kit.hugeleaf(&[command, &["--json"]].concat());
    }
    look_at(&kit, &format!("tree:{crowd}"));
    for name in ["postgres", "\u{1b}[2J\u{1b}[31mred", "a) R 1 (b"] {
        look_at(&kit, name);
    }
    assert_untouched(&before, &kit.inventory());
    assert!(
        kit.asked().iter().all(|note| !note.starts_with("0 ")),
        "{:?}",
        kit.asked()
    );
}

#[test]
fn one_of_thirty_thousand_mappings_and_one_that_is_stopped() {
    let Some(mut kit) = Kit::new("one_of_thirty_thousand_mappings_and_one_that_is_stopped") else {
        return;
    };
    let folder = kit.folder("cwd");
    kit.start("many", "mappings", "30000", &[], &folder);
    let many = kit.last().to_string();
    kit.start("stopped", "stopped", "", &[], &folder);
    let stopped = kit.last().to_string();
    let before = kit.inventory();
    for command in [&["status"][..], &["mem"], &["verify"]] {
        kit.hugeleaf(command);
    }
    look_at(&kit, &many);
    look_at(&kit, &stopped);
    // What they wait for does not come from a process that is stopped.
    for more in [&[][..], &["--dry-run"]] {
        let prove = [
            "prove",
            &stopped,
            "--metric",
            "cmd:cat /proc/uptime",
            "--output",
            "/dev/null",
        ];
        let limits = [
            "--for",
            "1s",
            "--interval",
            "10ms",
            "--settle",
            "1ms",
            "--pairs",
            "8",
        ];
        kit.hugeleaf(&[&prove[..], &limits, more].concat());
    }
    assert_untouched(&before, &kit.inventory());
}

/// Files of a server, one kind of trap in each place where a reader looks.
fn servers(kit: &mut Kit) {
    let zero = Path::new("/dev/zero");
    // PostgreSQL: its folder is its working directory.
    for (number, trap) in ["fifo", "zero", "loop", "huge"].iter().enumerate() {
        let data = kit.folder(&format!("data-{number}"));
        let at = |file: &str| format!("data-{number}/{file}");
        match *trap {
            "fifo" => {
                for file in ["postgresql.conf", "postgresql.auto.conf", "postmaster.pid"] {
                    kit.fifo(&at(file));
                }
            }
            "zero" => {
                for file in ["postgresql.conf", "postgresql.auto.conf", "postmaster.pid"] {
                    kit.link(zero, &at(file));
                }
            }
            "loop" => {
                kit.folder(&at("more"));
                let includes = "include 'postgresql.conf'\ninclude_dir 'more'\n".repeat(50);
                kit.file(&at("postgresql.conf"), &includes);
                for n in 0..50 {
                    kit.file(
                        &at(&format!("more/{n}.conf")),
                        "include '../postgresql.conf'\n",
                    );
                }
                kit.link(&data.join("postgresql.conf"), &at("postgresql.auto.conf"));
                kit.file(
                    &at("postmaster.pid"),
                    "\u{1b}[2J\n\n\n5432\n/tmp/\u{1b}[31m\n",
                );
            }
            _ => {
                let file = kit.file(&at("postgresql.conf"), "");
                let file = std::fs::File::options().write(true).open(file).unwrap();
                file.set_len(8 << 30).unwrap();
                kit.link(&kit.secret(), &at("postgresql.auto.conf"));
                kit.file(&at("postmaster.pid"), [0xff_u8; 1 << 16]);
            }
        }
        let folder = data.display().to_string();
        kit.start("postgres", "server", "", &["-D", &folder], &data);
    }
    // MariaDB, Redis and a JVM: files that their arguments name.
    let cwd = kit.folder("cwd");
    kit.fifo("my.cnf");
    kit.link(zero, "redis.conf");
    kit.fifo("flags");
    let named = |name: &str| kit.theirs(name).display().to_string();
    let defaults = format!("--defaults-file={}", named("my.cnf"));
    let (redis, flags) = (named("redis.conf"), format!("@{}", named("flags")));
    let flags_file = format!("-XX:Flags={}", named("flags"));
    kit.start("mysqld", "server", "", &[&defaults, "--large-pages"], &cwd);
    kit.start("redis-server", "server", "", &[&redis], &cwd);
    let java = ["-XX:+UseLargePages", "-Xmx1g", &flags_file, &flags];
    kit.start("java", "server", "", &java, &cwd);
    kit.start("beam.smp", "server", "", &["\u{1b}[2J"], &cwd);
}

#[test]
#[ignore = "needs the safe reader"]
fn files_of_servers_that_are_traps() {
    let Some(mut kit) = Kit::new("files_of_servers_that_are_traps") else {
        return;
    };
    servers(&mut kit);
    let before = kit.inventory();
    for command in ["status", "mem", "verify", "plan"] {
        kit.hugeleaf(&[command]);
    }
    for name in ["postgres", "mysqld", "redis-server", "java", "beam.smp"] {
        kit.hugeleaf(&["plan", name]);
        kit.hugeleaf(&["why", name]);
        kit.hugeleaf(&["promote", "--dry-run", name]);
    }
    for number in 0..4 {
        let data = kit.theirs(&format!("data-{number}")).display().to_string();
        kit.hugeleaf(&["plan", "--postgres", &data]);
    }
    let my = format!("--mariadb={}", kit.theirs("my.cnf").display());
    kit.hugeleaf(&["plan", &my]);
    assert_untouched(&before, &kit.inventory());
    // Whom it asked it asked as the user whose program it is, and waited for nobody.
    let asked = kit.asked();
    let as_root = asked
        .iter()
        .any(|note| note.starts_with("0 ") || note == "0");
    assert!(!as_root, "{asked:?}");
}

#[test]
#[ignore = "needs the safe reader"]
fn names_of_code_that_are_traps() {
    let Some(mut kit) = Kit::new("names_of_code_that_are_traps") else {
        return;
    };
    let cwd = kit.folder("\u{1b}[31mcwd");
    let secret = kit.secret().display().to_string();
    for (kind, to) in [
        ("fifo", ""),
        ("link", "/dev/zero"),
        ("link", &*secret),
        ("text", ""),
        ("large", ""),
    ] {
        kit.start("jit", kind, to, &["\u{1b}]0;owned\u{7}"], &cwd);
    }
    let before = kit.inventory();
    let file = kit.roots("a.trace").display().to_string();
    kit.hugeleaf(&[
        "trace", "jit", "--for", "2s", "--rate", "400", "--output", &file,
    ]);
    for more in [&[][..], &["--json"]] {
        let seen = kit.hugeleaf(&[&["trace", "show"][..], &[&file], more].concat());
        assert_eq!(seen.status, 0, "{}", String::from_utf8_lossy(&seen.err));
    }
    std::fs::remove_file(&file).unwrap();
    assert_untouched(&before, &kit.inventory());
}

#[test]
fn a_dry_run_among_them_changes_nothing() {
    let Some(mut kit) = Kit::new("a_dry_run_among_them_changes_nothing") else {
        return;
    };
    let folder = kit.folder("cwd");
    kit.start("stopped", "stopped", "", &[], &folder);
    let file = plan(&kit, "plan.toml");
    let before = kit.inventory();
    let seen = kit.hugeleaf(&["apply", "--dry-run", &file]);
    assert_eq!(seen.status, 0, "{}", String::from_utf8_lossy(&seen.err));
    assert_untouched(&before, &kit.inventory());
}
