//! Files of a process or a server that trap a reader with root rights: FIFOs, devices, endless files, links, and folders with very many
//! names. Also kernel lists that a program makes long.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use super::{Seen, all_commands, fifo, give, ground, hostile, watched, words};
use hugeleaf_testkit::size;

use crate::common::{ChildGuard, NOBODY};

/// Creates a server's folder, with a configuration made by `make`.
fn server(top: &Path, name: &str, make: impl Fn(&Path)) -> PathBuf {
    let folder = top.join(name);
    std::fs::create_dir(&folder).unwrap();
    give(&folder);
    std::fs::write(folder.join("PG_VERSION"), "15\n").unwrap();
    make(&folder);
    folder
}

fn conf(folder: &Path, text: &str) {
    std::fs::write(folder.join("postgresql.conf"), text).unwrap();
}

const SECRET: &str = "nobody-may-know";

/// Creates a folder for each kind of trap.
fn servers(top: &Path) -> Vec<PathBuf> {
    let secret = top.join("secret");
    std::fs::write(&secret, format!("huge_pages = {SECRET}\n{SECRET}\n")).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(&secret, mode).unwrap();
    let main = |folder: &Path| folder.join("postgresql.conf");
    let link = |to: &str| {
        let to = to.to_owned();
        move |folder: &Path| symlink(&to, main(folder)).unwrap()
    };
    let sparse = |folder: &Path| {
        let file = std::fs::File::create(main(folder)).unwrap();
        file.set_len(1 << 40).unwrap();
    };
    let deep = |folder: &Path| {
        for n in 0..60 {
            symlink(format!("l{}", n + 1), folder.join(format!("l{n}"))).unwrap();
        }
        symlink("l0", main(folder)).unwrap();
    };
    let many = |folder: &Path| {
        conf(folder, "include_dir = 'many'\n");
        std::fs::create_dir(folder.join("many")).unwrap();
        for n in 0..size(1_100, 100_000) {
            std::fs::File::create(folder.join(format!("many/{n}.conf"))).unwrap();
        }
    };
    let fifos = |folder: &Path| {
        conf(
            folder,
            "include 'a'\ninclude_if_exists 'a'\ninclude_dir 'a'\n",
        );
        for name in ["a", "postgresql.auto.conf", "postmaster.pid"] {
            fifo(&folder.join(name));
        }
    };
    let swapped = |folder: &Path| {
        conf(folder, "huge_pages = on\n");
        fifo(&folder.join("two"));
    };
    vec![
        server(top, "fifo", |folder| fifo(&main(folder))),
        server(top, "zero", link("/dev/zero")),
        server(top, "endless", link("/proc/self/fd/0")),
        server(top, "root", link(secret.to_str().unwrap())),
        server(top, "version", |folder| {
            std::fs::remove_file(folder.join("PG_VERSION")).unwrap();
            symlink(&secret, folder.join("PG_VERSION")).unwrap();
        }),
        server(top, "pipe", |folder| {
            std::fs::remove_file(folder.join("PG_VERSION")).unwrap();
            fifo(&folder.join("PG_VERSION"));
        }),
        server(top, "loop", link("postgresql.conf")),
        server(top, "sparse", sparse),
        server(top, "deep", deep),
        server(top, "many", many),
        server(top, "fifos", fifos),
        server(top, "swapped", swapped),
    ]
}

/// Starts in each folder a process that poses as its server.
fn running(program: &Path, folders: &[PathBuf]) -> Vec<ChildGuard> {
    let start = |folder: &PathBuf| {
        let mut what = vec!["postgres"];
        if folder.ends_with("swapped") {
            what.extend(["swap", "postgresql.conf", "two"]);
        }
        hostile(program, folder, &words(&what))
    };
    folders.iter().map(start).collect()
}

#[test]
fn no_configuration_hangs_or_fills_whoever_reads_it() {
    let Some((dir, program)) = ground("files::no_configuration_hangs_or_fills_whoever_reads_it")
    else {
        return;
    };
    let folders = servers(dir.path());
    let processes = running(&program, &folders);
    let mut seen = all_commands(dir.path(), &processes[0].pid());
    for (folder, process) in folders.iter().zip(&processes) {
        seen.push(watched(dir.path(), &words(&["plan", &process.pid()])));
        let data = folder.to_str().unwrap();
        seen.push(watched(dir.path(), &words(&["plan", "--postgres", data])));
    }
    for seen in &seen {
        assert!(
            !seen.all().contains(SECRET),
            "{}:\n{}",
            seen.shown,
            seen.all()
        );
    }
}

/// A query runs the server's program, which belongs to the user.
#[test]
fn what_runs_for_an_answer_is_the_users_and_ends() {
    let Some((dir, program)) = ground("files::what_runs_for_an_answer_is_the_users_and_ends")
    else {
        return;
    };
    let log = dir.path().join("log");
    // As a server it waits; queried for its options it reports its user, and waits as well.
    let source = dir.path().join("asked.c");
    let text = format!(
        "#include <stdio.h>\n#include <sys/prctl.h>\n#include <unistd.h>\nint main(int argc, char **argv)\n{{\n\
         \tif (argc < 2) {{ prctl(PR_SET_NAME, \"mysqld\"); puts(\"ready\"); fflush(stdout); getchar(); return 0; }}\n\
         \tFILE *log = fopen(\"{}\", \"a\");\n\tif (log) {{ fprintf(log, \"%d %d %d\\n\", getppid(), getuid(), geteuid()); fclose(log); }}\n\
         \tfor (;;) pause();\n}}\n",
        log.display()
    );
    std::fs::write(&source, text).unwrap();
    let asked = dir.path().join("asked");
    let compiled = std::process::Command::new("cc")
        .arg("-o")
        .args([&asked, &source])
        .status();
    assert!(compiled.unwrap().success());
    give(&asked);
    let _other = hostile(&program, dir.path(), &words(&["x", "memory", "1"]));
    let servers: Vec<ChildGuard> = (0..5).map(|_| hostile(&asked, dir.path(), &[])).collect();
    let plan = watched(dir.path(), &words(&["plan", &servers[0].pid()]));
    let verify = watched(dir.path(), &words(&["verify"]));
    // All five would hang, so a command queries only one program per user.
    let runs_of = |seen: &Seen| -> Vec<String> {
        let text = std::fs::read_to_string(&log).unwrap();
        let of = |line: &str| Some(line.strip_prefix(&format!("{} ", seen.pid))?.to_owned());
        text.lines().filter_map(of).collect()
    };
    let user = format!("{NOBODY} {NOBODY}");
    for seen in [&plan, &verify] {
        assert_eq!(runs_of(seen), [user.as_str()], "{}", seen.shown);
    }
    // A program that everyone can change is not run at all.
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    std::fs::set_permissions(&asked, open).unwrap();
    let seen = watched(dir.path(), &words(&["plan", &servers[0].pid()]));
    assert!(seen.all().contains("not run, because"), "{}", seen.all());
    assert_eq!(runs_of(&seen), [""; 0]);
}

/// Uses the maximum number of mappings, objects and arguments of a user.
#[test]
fn what_a_process_makes_long_is_read_all_the_same() {
    let Some((dir, program)) = ground("files::what_a_process_makes_long_is_read_all_the_same")
    else {
        return;
    };
    let argument = "a".repeat(100_000);
    let mut arguments = vec!["x"];
    arguments.extend([argument.as_str(); 18]);
    let processes = [
        hostile(
            &program,
            dir.path(),
            &words(&["many", "maps", size("10000", "60000")]),
        ),
        hostile(
            &program,
            dir.path(),
            &words(&["postgres", "objects", size("4000", "20000")]),
        ),
        hostile(&program, dir.path(), &words(&arguments)),
        hostile(
            &program,
            dir.path(),
            &words(&["stopped", "memory", "200", "stop"]),
        ),
    ];
    for process in &processes {
        all_commands(dir.path(), &process.pid());
    }
}

/// Maps of JIT code must be regular files owned by the program's user.
#[test]
fn no_map_of_code_hangs_a_trace() {
    let Some((dir, program)) = ground("files::no_map_of_code_hangs_a_trace") else {
        return;
    };
    type Make = fn(&Path);
    let makes: [(&str, Make); 3] = [
        ("a FIFO", |path| fifo(path)),
        ("a device", |path| symlink("/dev/zero", path).unwrap()),
        ("without end", |path| {
            std::fs::File::create(path)
                .unwrap()
                .set_len(1 << 40)
                .unwrap();
            give(path);
        }),
    ];
    for (what, make) in makes {
        let process = hostile(&program, dir.path(), &words(&["made", "made"]));
        let map = PathBuf::from(format!("/tmp/perf-{}.map", process.pid()));
        let _gone = Remove(map.clone());
        make(&map);
        let trace = dir.path().join("made.trace");
        let line = [
            "trace",
            "--for",
            "300ms",
            "-o",
            trace.to_str().unwrap(),
            &process.pid(),
        ];
        let seen = watched(dir.path(), &words(&line));
        println!("{what}: {}", seen.all().lines().next().unwrap_or_default());
    }
}

/// A file that is removed when the test ends.
struct Remove(PathBuf);

impl Drop for Remove {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}
