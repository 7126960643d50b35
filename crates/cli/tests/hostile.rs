//! Root's commands on a host that a hostile ordinary user has prepared. No command may hang, write
//! unrequested files, fill memory, print escape sequences, or run the user's code as root.
//!
//! Only here a time limit is part of the promise: a command that waits for another process is
//! killed, which fails the test. Needs root and a C compiler.

mod kit;

use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};

use crate::common::NOBODY;
use kit::{Kit, Seen, assert_untouched};

/// Runs the commands that scan processes, one process and the host.
fn look_at(kit: &Kit, target: &str) {
    for command in [&["mem"][..], &["why"], &["promote", "--dry-run"]] {
        kit.hugeleaf(&[command, &[target]].concat());
        kit.hugeleaf(&[command, &["--json", target]].concat());
    }
}

/// Creates root's own plan in root's folder.
fn plan(kit: &Kit, name: &str) -> String {
    let file = kit.roots(name).display().to_string();
    let seen = kit.hugeleaf(&["plan", "--bytes", "4M", "--output", &file]);
    let said = String::from_utf8_lossy(&seen.err).into_owned();
    assert!(matches!(seen.status, 0 | 1), "{said}");
    file
}

#[test]
fn hundreds_of_oddly_named_processes() {
    let Some(mut kit) = Kit::new("hundreds_of_oddly_named_processes") else {
        return;
    };
    let odd = kit.folder("\u{1b}[31mfolder\u{7}");
    kit.start(
        "crowd",
        "crowd",
        hugeleaf_testkit::size("100", "300"),
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
fn one_of_very_many_mappings_and_one_that_is_stopped() {
    let Some(mut kit) = Kit::new("one_of_very_many_mappings_and_one_that_is_stopped") else {
        return;
    };
    let folder = kit.folder("cwd");
    kit.start(
        "many",
        "mappings",
        hugeleaf_testkit::size("10000", "30000"),
        &[],
        &folder,
    );
    let many = kit.last().to_string();
    kit.start("stopped", "stopped", "", &[], &folder);
    let stopped = kit.last().to_string();
    let before = kit.inventory();
    for command in [&["status"][..], &["mem"], &["verify"]] {
        kit.hugeleaf(command);
    }
    look_at(&kit, &many);
    look_at(&kit, &stopped);
    // A stopped process never delivers the expected data.
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

/// Server files with one kind of trap in each place that a reader opens.
fn servers(kit: &mut Kit) {
    let zero = Path::new("/dev/zero");
    // PostgreSQL's folder is its working directory.
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
    // MariaDB, Redis and a JVM get files through their arguments.
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
    // Programs were queried as their owner, and no query blocked.
    let asked = kit.asked();
    let as_root = asked
        .iter()
        .any(|note| note.starts_with("0 ") || note == "0");
    assert!(!as_root, "{asked:?}");
}

#[test]
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

fn shown(path: &Path) -> String {
    path.display().to_string()
}

/// Checks for a refusal with this status and these words.
#[track_caller]
fn refused(seen: &Seen, status: i32, words: &[&str]) {
    let said = String::from_utf8_lossy(&seen.err);
    assert_eq!(seen.status, status, "{said}");
    for word in words.iter().chain(&["\n  next: "]) {
        assert!(said.contains(word), "no '{word}' in {said}");
    }
}

#[test]
#[expect(clippy::too_many_lines, reason = "one folder")]
fn results_in_a_folder_full_of_links() {
    let Some(kit) = Kit::new("results_in_a_folder_full_of_links") else {
        return;
    };
    let folder = kit.folder("out");
    let out = |name: &str| shown(&folder.join(name));
    // Occupies the draft names of the next process ids.
    let next = std::process::id();
    for pid in next..next + 1000 {
        for name in [
            format!(".x.prom.{pid}"),
            format!("x.trace.{pid}.part"),
            format!("x.json.{pid}.tmp"),
        ] {
            kit.link(&kit.secret(), &format!("out/{name}"));
        }
    }
    let links = std::fs::read_dir(&folder).unwrap().count();
    let secret = std::fs::metadata(kit.secret()).unwrap();
    let written: [(&str, &[&str]); 4] = [
        ("x.prom", &["verify", "--prometheus"]),
        (
            "x.trace",
            &["trace", "--intervals-only", "--for", "100ms", "--output"],
        ),
        ("x.toml", &["plan", "--bytes", "4M", "--output"]),
        ("x.json", &["run", "--report"]),
    ];
    for (name, command) in written {
        let (file, end): (String, &[&str]) = match name {
            "x.json" => (format!("--report={}", out(name)), &["--", "true"]),
            _ => (out(name), &[]),
        };
        let status = if name == "x.json" { 125 } else { 3 };
        let start: Vec<&str> = command
            .iter()
            .copied()
            .filter(|w| *w != "--report")
            .collect();
        let seen = kit.hugeleaf(&[&start[..], &[&file], end].concat());
        let said = String::from_utf8_lossy(&seen.err);
        assert!(matches!(seen.status, 0 | 1), "{said}");
        let meta = std::fs::symlink_metadata(folder.join(name)).unwrap();
        assert!(
            meta.is_file() && meta.uid() == 0 && meta.mode() & 0o022 == 0,
            "{name}"
        );
        // A link that the user has placed must not be followed.
        std::fs::remove_file(folder.join(name)).unwrap();
        if name == "x.toml" {
            continue; // A plan never replaces an existing file.
        }
        kit.link(&kit.secret(), &format!("out/{name}"));
        refused(
            &kit.hugeleaf(&[&start[..], &[&file], end].concat()),
            status,
            &["is a link of user"],
        );
        std::fs::remove_file(folder.join(name)).unwrap();
        kit.fifo(&format!("out/{name}"));
        refused(
            &kit.hugeleaf(&[&start[..], &[&file], end].concat()),
            status,
            &["is a pipe"],
        );
        std::fs::remove_file(folder.join(name)).unwrap();
    }
    let after = std::fs::metadata(kit.secret()).unwrap();
    assert_eq!(
        (secret.mtime_nsec(), secret.len()),
        (after.mtime_nsec(), after.len())
    );
    assert_eq!(
        std::fs::read_dir(&folder).unwrap().count(),
        links,
        "drafts are left behind"
    );
}

/// Creates plans that other users could give to root, derived from a valid one.
fn plans_of_others(kit: &Kit, good: &str) -> Vec<(PathBuf, &'static str)> {
    let text = std::fs::read(good).unwrap();
    let copy = |path: PathBuf, owner: u32, mode: u32| {
        std::fs::write(&path, &text).unwrap();
        chown(&path, Some(owner), Some(owner)).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        path
    };
    let loose = kit.roots("loose");
    std::fs::create_dir(&loose).unwrap();
    std::fs::set_permissions(&loose, std::fs::Permissions::from_mode(0o777)).unwrap();
    let changed = "could be changed by others";
    vec![
        (copy(kit.roots("writable.toml"), 0, 0o646), changed),
        (copy(kit.roots("by-group.toml"), 0, 0o664), changed),
        (copy(kit.roots("theirs.toml"), NOBODY, 0o600), changed),
        (copy(loose.join("plan.toml"), 0, 0o600), changed),
        (copy(kit.theirs("plan.toml"), 0, 0o600), changed),
        (kit.link(Path::new(good), "link.toml"), changed),
        (kit.fifo("fifo.toml"), changed),
        (kit.link(Path::new("/dev/zero"), "zero.toml"), changed),
        (PathBuf::from("/dev/zero"), "is a device"),
    ]
}

#[test]
fn plans_that_others_can_change_are_not_applied() {
    let Some(kit) = Kit::new("plans_that_others_can_change_are_not_applied") else {
        return;
    };
    let good = plan(&kit, "good.toml");
    let all = plans_of_others(&kit, &good);
    let before = kit.inventory();
    for (path, why) in &all {
        for more in [&["--dry-run"][..], &[]] {
            let file = shown(path);
            let command = [&["apply", &*file][..], more].concat();
            refused(&kit.hugeleaf(&command), 3, &["is not trusted", why]);
        }
    }
    let seen = kit.hugeleaf(&["apply", "--dry-run", &good]);
    assert_eq!(seen.status, 0, "{}", String::from_utf8_lossy(&seen.err));
    assert_untouched(&before, &kit.inventory());
    // A unit's program that belongs to the user is refused too.
    let program = shown(&kit.theirs("hugeleaf"));
    let unit = format!(
        "[[unit]]\nunit = \"none.service\"\nexec_start = \"{program} run -- /bin/true\"\nwhy = \"\"\n"
    );
    let text = std::fs::read_to_string(&good).unwrap() + &unit;
    let started = kit.roots("started.toml");
    std::fs::write(&started, text).unwrap();
    let seen = kit.hugeleaf(&["apply", &shown(&started)]);
    refused(
        &seen,
        3,
        &["none.service would start", "could be changed by others"],
    );
}

#[test]
fn a_mount_hides_nothing() {
    let Some(kit) = Kit::new("a_mount_hides_nothing") else {
        return;
    };
    let file = shown(&kit.roots("plan.toml"));
    let with = |mount: &str| {
        let seen = kit.hugeleaf(&["plan", "--bytes", "4M", "--mount", mount, "--output", &file]);
        let _ = std::fs::remove_file(&file);
        seen
    };
    if with(&shown(&kit.roots("free"))).status == 3 {
        crate::common::not_run("a_mount_hides_nothing", "this kernel reserves no pages");
        return;
    }
    for mount in ["/usr", "/etc/x", "/proc", "/home", "/var", "/dev"] {
        refused(&with(mount), 2, &["hide files that the host needs"]);
    }
    refused(&with("/"), 2, &["--mount /"]);
    let own = shown(&kit.folder("own"));
    refused(&with(&own), 2, &["could be changed by others"]);
    let full = kit.roots("full");
    std::fs::create_dir(&full).unwrap();
    std::fs::write(full.join("file"), "").unwrap();
    refused(&with(&shown(&full)), 2, &["not empty"]);
    kit.link(Path::new("/usr"), "link");
    refused(
        &with(&shown(&kit.theirs("link"))),
        2,
        &["a link to another path"],
    );
    refused(
        &with(&shown(&kit.theirs("link/local/none"))),
        2,
        &["a link to another path"],
    );
    // An edited plan may not contain more than the flag allows.
    let good = kit.roots("free");
    kit.hugeleaf(&[
        "plan",
        "--bytes",
        "4M",
        "--mount",
        &shown(&good),
        "--output",
        &file,
    ]);
    let text = std::fs::read_to_string(&file).unwrap();
    let bad = text.replace(&format!("path = \"{}\"", shown(&good)), "path = \"/usr\"");
    assert_ne!(text, bad);
    std::fs::write(&file, bad).unwrap();
    refused(
        &kit.hugeleaf(&["apply", "--dry-run", &file]),
        2,
        &["line ", "column ", "/usr"],
    );
    // A mount point that was filled after planning.
    std::fs::write(&file, &text).unwrap();
    std::fs::create_dir(&good).unwrap();
    std::fs::write(good.join("file"), "").unwrap();
    refused(&kit.hugeleaf(&["apply", &file]), 3, &["not empty"]);
}

/// Runs a shell script in a private mount namespace with empty hugeleaf state. `$1` is hugeleaf,
/// and `other` runs a command as the user. The script must succeed; returns its output.
#[track_caller]
fn apart(kit: &Kit, script: &str) -> String {
    let whole = format!(
        "set -e; mount -t tmpfs -o mode=755 none /var/lib; h=$1; \
         other() {{ setpriv --reuid={NOBODY} --regid={NOBODY} --clear-groups \"$@\"; }}; \
         denied() {{ if \"$@\" 2>/dev/null; then echo \"not denied: $*\"; exit 1; fi; }}; {script}"
    );
    let hugeleaf = env!("CARGO_BIN_EXE_hugeleaf");
    let seen = kit.run(
        "/usr/bin/unshare",
        &["-m", "sh", "-c", &whole, "sh", hugeleaf],
    );
    let (out, err) = (
        String::from_utf8_lossy(&seen.out),
        String::from_utf8_lossy(&seen.err),
    );
    assert_eq!(seen.status, 0, "{script}: {out}{err}");
    out.into_owned()
}

fn can_be_apart(kit: &Kit, test: &str) -> bool {
    let words = ["-m", "setpriv", "--reuid=65534", "flock", "--version"];
    let can = kit
        .run("/usr/bin/env", &[&["unshare"], &words[..]].concat())
        .status
        == 0;
    if !can {
        crate::common::not_run(test, "needs unshare, setpriv and flock");
    }
    can
}

#[test]
fn nobody_else_locks_roots_work_or_writes_its_journal() {
    let name = "nobody_else_locks_roots_work_or_writes_its_journal";
    let Some(kit) = Kit::new(name) else { return };
    if !can_be_apart(&kit, name) {
        return;
    }
    let state = "d=/var/lib/hugeleaf; mkdir -p $d/journal; ";
    // All users could open the lock of an earlier version; only root can open a new one.
    let lock = "stat -c %a $d/lock; denied other flock -n $d/lock true; ";
    let old = format!("{state} touch $d/lock; chmod 644 $d/lock; $h undo; {lock}");
    let new = format!("{state} $h undo; {lock}");
    for script in [old, new] {
        let said = apart(&kit, &script);
        assert_eq!(said, "nothing to undo: no apply is in force\n600\n");
    }
    // A lock that the user created and holds.
    let held = format!(
        "{state} touch $d/lock; chown {NOBODY} $d/lock; exec 9<$d/lock; flock -n 9; $h undo; {lock}"
    );
    apart(&kit, &held);
    // Root does not undo from a journal that others can write.
    for spoil in [
        "chmod 777 $d/journal",
        "chmod 757 $d",
        &format!("chown {NOBODY} $d/journal"),
        "echo x >$d/journal/0001.log; chmod 666 $d/journal/0001.log",
    ] {
        let script = format!(
            "{state} {spoil}; for more in '' --list; do if $h undo $more 2>&1; then exit 1; fi; done"
        );
        let said = apart(&kit, &script);
        assert_eq!(
            said.matches("could be changed by others").count(),
            2,
            "{spoil}: {said}"
        );
        assert_eq!(said.matches("  next: ").count(), 2, "{spoil}: {said}");
    }
}

#[test]
fn a_full_disk_keeps_the_old_file() {
    let name = "a_full_disk_keeps_the_old_file";
    let Some(kit) = Kit::new(name) else { return };
    if !can_be_apart(&kit, name) {
        return;
    }
    for (file, command) in [
        ("x.prom", "verify --prometheus /mnt/x.prom"),
        (
            "x.trace",
            "trace --intervals-only --for 100ms --output /mnt/x.trace",
        ),
        ("x.toml", "plan --bytes 4M --output /mnt/x.toml"),
        ("x.json", "run --report=/mnt/x.json -- true"),
    ] {
        let old = if file == "x.toml" {
            ""
        } else {
            "echo old >/mnt/$f;"
        };
        let script = format!(
            "f={file}; mount -t tmpfs -o size=16k none /mnt; {old} \
             cat /dev/zero >/mnt/fill 2>/dev/null || true; before=$(mktemp); ls -A /mnt >$before; \
             $h {command} 2>&1 >/dev/null | grep -c 'No space left'; \
             ls -A /mnt | diff $before -; rm $before; \
             if [ -e /mnt/$f ]; then cat /mnt/$f; fi"
        );
        let said = apart(&kit, &script);
        let kept = if file == "x.toml" { "1\n" } else { "1\nold\n" };
        assert_eq!(said, kept, "{command}");
    }
}
