//! Tests of workload files: every error states its position, and commands leave nothing behind.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hugeleaf_workload::workload_file::{Runner, RunnerError, Script, WorkloadSpec};

fn parse(text: &str) -> Result<WorkloadSpec, String> {
    WorkloadSpec::parse(Path::new("w.toml"), text).map_err(|e| e.to_string())
}

const LEAST: &str = "schema = 1\ntitle = 'x'\nload.run = 'true'\n";
const MEASURE: &str = "[[measure]]\nname = 'a'\nbetter = 'lower'\nseconds = true\n";

#[test]
fn the_least_that_a_file_says() {
    let described = parse(&format!("{LEAST}{MEASURE}")).unwrap();
    assert_eq!(
        (described.name.as_str(), described.points().len()),
        ("w", 1)
    );
    assert_eq!(described.load.script.limit, Duration::from_secs(600));
    assert_eq!(described.commands(), [("load", "true")]);
}

#[test]
fn every_combination_is_a_point() {
    let described = parse(&format!(
        "{LEAST}{MEASURE}[matrix]\na = [1, 2]\nb = ['x', 'y', 'z']"
    ))
    .unwrap();
    let points = described.points();
    assert_eq!(points.len(), 6);
    assert!(points.contains(&vec![("a".into(), "2".into()), ("b".into(), "z".into())]));
}

/// Checks every kind of error: its position and a word of its message.
#[test]
fn errors_say_where() {
    let with = |more: &str| format!("{LEAST}{more}");
    let measured = |more: &str| format!("{LEAST}{MEASURE}{more}");
    let cases = [
        (String::new(), "1:1", "schema"),
        ("schema = 2\ntitle='x'\nload.run='x'\nmeasure=[]".into(), "1:10", "schema 1"),
        ("schema = 'x'".into(), "1:10", "invalid type"),
        (with("measure = []"), "4:11", "without a measure"),
        (with("meazure = []"), "4:1", "meazure"),
        (format!("schema = 1\ntitle = 'x'\nload.run = ' '\n{MEASURE}"), "3:12", "empty"),
        (format!("schema = 1\ntitle = 'x'\n[load]\nrun = 'x'\nlimit = 'soon'\n{MEASURE}"), "5:9", "soon"),
        (with("[[measure]]\nname = 'a'\nbetter = 'more'"), "6:10", "more"),
        (with("[[measure]]\nname = 'a'\nseconds = true"), "4:1", "which way"),
        (with("[[measure]]\nname = 'a'\nbetter = 'lower'"), "4:1", "one of"),
        (with("[[measure]]\nname = 'a'\nbetter = 'lower'\nseconds = true\njson = '/a'"), "4:1", "one of"),
        (with("[[measure]]\nname = 'a'\nbetter = 'lower'\nregex = '(('"), "7:9", "regular expression"),
        (with("[[measure]]\nname = 'a'\nbetter = 'lower'\nregex = 'a'"), "7:9", "group"),
        (with("[[measure]]\nname = 'a'\nbetter = 'lower'\nregex = '(a{1000}){1000}'"), "7:9", "regular expression"),
        (with("[[measure]]\nname = 'a'\nbetter = 'lower'\njson = 'a'"), "7:8", "begins with /"),
        (with("[[measure]]\nname = 'a'\nbetter = 'lower'\ncounter = 'x'"), "7:11", "cpu, faults"),
        (with("[[measure]]\nname = 'a'\nbetter = 'lower'\nhistogram = '(a)(b)'"), "7:13", "percentile"),
        (with("[[measure]]\nname = 'a'\nbetter = 'lower'\nhistogram = '(a)(b)'\npercentile = 101"), "8:14", "0 to 100"),
        (with("[[measure]]\nname = 'a'\nbetter = 'lower'\nseconds = true\npercentile = 9"), "8:14", "without a histogram"),
        (with("[[measure]]\nname = 'a'\nbetter = 'lower'\nseconds = true\nfactor = 0"), "8:10", "not 0"),
        (with("[[measure]]\nname = 'a'\nbetter = 'lower'\nseconds = true\nper = 'b'"), "8:7", "before this one"),
        (measured("[[measure]]\nname = 'a'\nseconds = true"), "8:1", "twice"),
        (measured("[needs]\nmemory = 'much'"), "9:10", "much"),
        (measured("[needs]\nmemory = '101%'"), "9:10", "0% to 100%"),
        (measured("[needs]\ndisk = 'x'"), "9:8", "x"),
        (measured("[needs]\nfiles = ['proc/x']"), "9:10", "whole path"),
        (measured("[set]\nPATH = '/x'"), "9:1", "small letters"),
        (measured("[set]\nwork = '/x'"), "9:1", "set by hugeleaf"),
        (measured("[set]\na = 1\n[sizes]\na = '1G'"), "11:1", "twice"),
        (measured("[sizes]\na = 'x'"), "9:5", "neither"),
        (measured("[matrix]\na = []"), "9:5", "no values"),
        (measured("[matrix]\na = [1, '1']"), "9:5", "twice"),
        (measured("[files]\n'../x' = 'y'"), "9:1", "plain name"),
        (measured("[files]\n'.x' = 'y'"), "9:1", "plain name"),
        (measured("[unfit]\nlarge = 'y'"), "9:1", "not one of"),
        (measured("[[arm]]\nname = 'x'\nset.a = 1"), "10:5", "no variable"),
        (measured("[[arm]]\nname = ''\nset = {}"), "8:1", "no arm"),
        (measured("[server]\nrun = 'x'"), "8:1", "ready"),
        ("schema = 1\ntitle = 'x'\nmeasure = [{name='a', better='lower', seconds=true}]\n[load]\nrun='x'\nloop='open'".into(), "3:11", "rates"),
        ("schema = 1\ntitle = 'x'\nmeasure = [{name='a', better='lower', seconds=true}]\n[load]\nrun='x'\nrate=[1]".into(), "3:11", "rates"),
    ];
    for (text, at, word) in cases {
        let error = parse(&text)
            .err()
            .unwrap_or_else(|| panic!("no error: {text}"));
        assert!(
            error.starts_with(&format!("w.toml:{at}: ")) && error.contains(word),
            "{text}\n{error}, and not {at} {word}"
        );
    }
}

/// Runs `act` on a stage of this workload file, in a temporary folder.
fn staged(file: &str, act: impl FnOnce(&WorkloadSpec, &Runner<'_>, &AtomicBool)) {
    let described = parse(file).unwrap();
    let below = tempfile::tempdir().unwrap();
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(below.path(), open).unwrap();
    let stop = AtomicBool::new(false);
    {
        let stage = Runner::new(&described, below.path(), &stop).unwrap();
        act(&described, &stage, &stop);
    }
    assert_eq!(std::fs::read_dir(below.path()).unwrap().count(), 0);
}

fn script(run: &str, limit: Duration) -> Script {
    Script {
        run: run.to_owned(),
        limit,
    }
}

const LONG: Duration = Duration::from_secs(60);

fn run(stage: &Runner<'_>, text: &str, limit: Duration) -> Result<String, RunnerError> {
    let ended = stage.run(
        ("load", &script(text, limit)),
        (&[], &[]),
        None,
        &mut |_| {},
    );
    ended.map(|ran| ran.printed)
}

#[test]
fn commands_have_a_folder_and_no_rights() {
    staged(
        &format!("{LEAST}{MEASURE}[files]\na = 'text'"),
        |_, stage, _| {
            let said = run(
                stage,
                "cat \"$files/a\"; echo; echo x >\"$work/b\"; pwd; id -u; echo \"${SECRET:-none}\"",
                LONG,
            );
            let said = said.unwrap();
            let lines: Vec<&str> = said.lines().collect();
            assert_eq!((lines[0], lines[3]), ("text", "none"));
            assert_eq!(lines[1], stage.work().to_str().unwrap());
            assert_ne!(lines[2], "0");
            assert!(run(stage, "echo x >\"$files/a\"", LONG).is_err());
            // An unset variable is an error, and so is a failing command.
            assert!(run(stage, "echo $nobody", LONG).is_err());
            assert!(run(stage, "false; true", LONG).is_err());
        },
    );
}

#[test]
fn what_fails_says_its_last_words() {
    staged(&format!("{LEAST}{MEASURE}"), |_, stage, _| {
        let error = run(stage, "echo first; echo no such table >&2; exit 3", LONG)
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("status: 3") && error.contains("no such table"),
            "{error}"
        );
        let lacking = run(stage, "echo no such device; exit 77", LONG).unwrap_err();
        assert!(
            matches!(&lacking, RunnerError::Lacking { said } if said == "no such device"),
            "{lacking}"
        );
        let long = run(stage, "echo waits; sleep 100", Duration::from_millis(300)).unwrap_err();
        assert!(
            matches!(&long, RunnerError::TooLong { said, .. } if said == "waits"),
            "{long}"
        );
    });
}

/// A killed server leaves such a segment.
#[test]
fn no_segment_outlives_its_command() {
    if hugeleaf_sys::effective_uid() != 0 {
        println!("not run: no_segment_outlives_its_command: namespaces are made by root");
        return;
    }
    // This size is unique on the host.
    let size = 4 * 1024 * 1024 + std::process::id();
    staged(&format!("{LEAST}{MEASURE}"), |_, stage, _| {
        let made = format!("ipcmk --shmem {size}; cat /proc/sysvipc/shm");
        let inside = run(stage, &made, LONG).unwrap();
        assert!(inside.contains(&format!(" {size} ")), "{inside}");
    });
    let outside = std::fs::read_to_string("/proc/sysvipc/shm").unwrap();
    assert!(!outside.contains(&format!(" {size} ")), "{outside}");
}

/// A server and its load share folders that are private to the stage.
#[test]
fn what_commands_write_to_shared_folders_is_their_own() {
    let name = format!("hugeleaf-test-{}", std::process::id());
    let both = ["/tmp", "/dev/shm"].map(|folder| format!("{folder}/{name}"));
    let [tmp, shm] = &both;
    let serves = format!("echo a >{tmp}; echo b >{shm}; : >\"$work/up\"; exec sleep 1000");
    let seen = tempfile::NamedTempFile::new().unwrap();
    let mut stays = false;
    staged(&server(&serves, "test -e \"$work/up\""), |_, stage, _| {
        let running = stage.start(&[], &[]).unwrap().unwrap();
        let said = run(stage, &format!("cat {tmp} {shm}"), LONG).unwrap();
        assert_eq!(said, "a\nb\n");
        // Existing files stay visible, because a program may be among them.
        run(stage, &format!("test -e {}", seen.path().display()), LONG).unwrap();
        stays = stage.shared_folders_warning().is_some();
        drop(running);
    });
    if stays {
        println!(
            "not run: the part of what_commands_write_to_shared_folders_is_their_own: needs root, mount namespaces and overlayfs"
        );
        return both
            .iter()
            .for_each(|path| drop(std::fs::remove_file(path)));
    }
    for path in both {
        assert!(!Path::new(&path).exists(), "{path}");
    }
}

#[test]
fn what_is_stopped_midway_is_asked_first() {
    staged(&format!("{LEAST}{MEASURE}"), |_, stage, stop| {
        let script = "trap 'echo bye >\"$work/bye\"; exit 0' TERM; : >\"$work/up\"; while :; do sleep 0.05; done";
        let up = stage.work().join("up");
        let error = std::thread::scope(|scope| {
            scope.spawn(|| {
                hugeleaf_testkit::until("it is up", || up.exists());
                stop.store(true, Ordering::Relaxed);
            });
            run(stage, script, LONG).unwrap_err()
        });
        assert!(matches!(error, RunnerError::Stopped), "{error}");
        assert!(stage.work().join("bye").exists());
    });
}

/// Returns the number of processes on this host with this command line.
fn count(words: &str) -> usize {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let lines = entries.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
    lines
        .filter(|line| String::from_utf8_lossy(line).replace('\0', " ").trim() == words)
        .count()
}

#[test]
fn nothing_outlives_its_command() {
    // No other process sleeps for this time.
    let words = format!("sleep 3{}", std::process::id());
    staged(&format!("{LEAST}{MEASURE}"), |_, stage, stop| {
        let script = format!("{words} & setsid {words} & sleep 0.5");
        run(stage, &script, LONG).unwrap();
        // As root they have ended with the command; otherwise they end with the stage.
        if hugeleaf_sys::effective_uid() == 0 {
            hugeleaf_testkit::until("all of them have ended", || count(&words) == 0);
        }
        stop.store(true, Ordering::Relaxed);
        let error = run(stage, &words, LONG).unwrap_err();
        assert!(matches!(error, RunnerError::Stopped), "{error}");
    });
    assert_eq!(count(&words), 0);
}

fn server(run: &str, ready: &str) -> String {
    server_within("60s", run, ready)
}

fn server_within(limit: &str, run: &str, ready: &str) -> String {
    format!("{LEAST}{MEASURE}[server]\nlimit = '{limit}'\nrun = '''{run}'''\nready = '''{ready}'''")
}

#[test]
fn a_server_that_does_not_start_says_why() {
    staged(
        &server("echo port 80 is taken; exit 1", "false"),
        |_, stage, _| {
            let error = stage.start(&[], &[]).unwrap_err().to_string();
            assert!(error.contains("port 80 is taken"), "{error}");
        },
    );
    staged(
        &server_within("2s", "echo starts; exec sleep 1000", "false"),
        |_, stage, _| {
            let error = stage.start(&[], &[]).unwrap_err().to_string();
            assert!(
                error.contains("limit of 2 s") && error.contains("starts"),
                "{error}"
            );
        },
    );
}

#[test]
fn a_server_is_asked_to_end_and_one_that_has_crashed_is_told() {
    let file = server(
        "trap 'echo bye >\"$work/bye\"; exit 0' TERM; : >\"$work/up\"; while :; do sleep 0.05; done",
        "test -e \"$work/up\"",
    );
    staged(&file, |_, stage, _| {
        let running = stage.start(&[], &[]).unwrap().unwrap();
        assert!(running.pid().is_some());
        running.stop().unwrap();
        assert!(stage.work().join("bye").exists());
    });
    staged(
        &server(
            ": >\"$work/up\"; until test -e \"$work/go\"; do sleep 0.05; done; echo out of memory; : >\"$work/gone\"; exit 9",
            "test -e \"$work/up\"",
        ),
        |_, stage, _| {
            let running = stage.start(&[], &[]).unwrap().unwrap();
            let ended =
                ": >\"$work/go\"; until test -e \"$work/gone\"; do sleep 0.05; done; sleep 1";
            run(stage, ended, LONG).unwrap();
            let error = running.stop().unwrap_err().to_string();
            assert!(error.contains("out of memory"), "{error}");
        },
    );
}

/// Endless output costs no more memory than the retained part.
#[test]
fn a_command_may_print_without_end() {
    staged(&format!("{LEAST}{MEASURE}"), |_, stage, _| {
        let said = run(
            stage,
            "head -c 60000000 /dev/zero | tr '\\0' x; echo; echo end",
            LONG,
        )
        .unwrap();
        assert!(
            said.ends_with("end\n") && said.len() < 16 << 20,
            "{}",
            said.len()
        );
    });
}
